"""Namespaces of devices that are not here: questions answered, work refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from weft.core.device import absent


def needing(kind: str, names: str) -> dict[str, Callable[..., Any]]:
    """Functions that need a device of a kind, and therefore raise an error, by name.

    >>> weft.cuda.synchronize()
    Traceback (most recent call last):
        ...
    weft.errors.AbsentDeviceError: device 'cuda' is not available; ...
    """

    return {name: _refusing(kind, name) for name in names.split()}


def _refusing(kind: str, name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise absent(kind)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raise an error: {name} needs a device {kind!r}."
    return refuse


class _Refused:
    """An object that can only be made where the device is."""

    kind = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise absent(self.kind)


class AbsentStream(_Refused):
    """A queue of work on a device that is not here."""


class AbsentEvent(_Refused):
    """A mark in such a queue."""


class Absentee:
    """The functions that such a namespace answers without its device."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

        class device:
            """A block whose work is on one such device."""

            def __init__(self, device: Any) -> None:
                self.given = device

            def __enter__(self) -> None:
                raise absent(kind)

            def __exit__(self, *error: object) -> None:
                pass

        class device_of(device):
            """A block on the device of a tensor."""

        class StreamContext(device):
            """A block whose work is in one stream; None chooses none."""

            def __enter__(self) -> None:
                if self.given is not None:
                    raise absent(kind)

        self.device, self.device_of, self.StreamContext = (
            device,
            device_of,
            StreamContext,
        )

    def is_available(self) -> bool:
        """False: there is no such device."""
        return False

    def device_count(self) -> int:
        """The number of such devices: none."""
        return 0

    def is_initialized(self) -> bool:
        """False: there is nothing to start."""
        return False

    def manual_seed(self, seed: int) -> None:
        """Take a seed for generators that are not there."""
        int(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Take a seed for generators that are not there."""
        int(seed)

    def seed(self) -> None:
        """Seed no generator, as there is none."""

    def seed_all(self) -> None:
        """Seed no generator, as there is none."""

    def get_rng_state_all(self) -> list[Any]:
        """The states of all generators: none."""
        return []

    def set_rng_state_all(self, new_states: Any) -> None:
        """Set the states of all generators: there are none."""
        if len(list(new_states)):
            raise absent(self.kind)

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes in use: none."""
        return 0

    def memory_stats(self, device: Any = None) -> dict[str, Any]:
        """An empty table: no memory is in use.

        >>> weft.xpu.memory_stats()
        {}
        """
        return {}

    def empty_cache(self) -> None:
        """Release no memory, as none is kept."""

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """False: there is no such device.

        >>> weft.mtia.is_bf16_supported()
        False
        """
        return False


_NEED_ONE = """
    synchronize current_device set_device init get_device_name get_device_properties
    get_device_capability get_rng_state set_rng_state initial_seed mem_get_info
    reset_peak_memory_stats current_stream default_stream set_stream
"""


def accelerator(kind: str) -> dict[str, Any]:
    """What ``torch.xpu`` and its like hold without their device, by name."""
    own = Absentee(kind)
    answers = {name: getattr(own, name) for name in dir(own) if name[0] != "_"}
    del answers["kind"]
    return {
        **answers,
        **needing(kind, _NEED_ONE),
        "stream": own.StreamContext,
        "max_memory_allocated": own.memory_allocated,
        "memory_reserved": own.memory_allocated,
        "max_memory_reserved": own.memory_allocated,
        "Stream": type("Stream", (AbsentStream,), {"kind": kind}),
        "Event": type("Event", (AbsentEvent,), {"kind": kind}),
    }
