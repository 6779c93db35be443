"""``weft.amp``: mixed precision, which is off where there is no GPU.

As in PyTorch without one, ``autocast("cuda")`` computes in its tensors' own types and a
``GradScaler`` leaves losses and gradients as they are; each warns when it is enabled.
Casting on the CPU is refused: ``model.to(weft.bfloat16)`` computes in bfloat16.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from weft.errors import ArgumentError


def _warn(name: str) -> None:
    warnings.warn(f"{name}: there is no GPU, so it is disabled", stacklevel=3)


def is_autocast_available(device_type: str) -> bool:
    """Whether ``autocast`` casts on a kind of device: on none so far.

    >>> weft.amp.is_autocast_available("cuda")
    False
    """
    return False


class autocast:
    """A block, or a decorated function, that computes in its tensors' own types.

    >>> with weft.amp.autocast("cuda", enabled=False):
    ...     (weft.ones(2) @ weft.ones(2)).dtype
    weft.float32
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:  # fmt: skip
        if enabled and device_type == "cpu":
            raise ArgumentError(
                "autocast: Weft does not cast on the CPU; use model.to(torch.bfloat16) "
                "and inputs of that dtype, or enabled=False"
            )
        if enabled:
            _warn("autocast")
        self.device, self.fast_dtype = device_type, dtype

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        return func


class GradScaler:
    """A scaler that is disabled: a scale of 1, and plain optimizer steps.

    >>> scaler = weft.amp.GradScaler("cuda", enabled=False)
    >>> scaler.is_enabled(), scaler.scale(3.0)
    (False, 3.0)
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16,
        growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        if enabled:
            _warn("GradScaler")

    def is_enabled(self) -> bool:
        """False: there is no GPU."""
        return False

    def get_scale(self) -> float:
        """The factor of losses: 1."""
        return 1.0

    def scale(self, outputs: Any) -> Any:
        """The losses as they are."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Leave the gradients, which were never scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step()``."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Leave the scale at 1."""

    def state_dict(self) -> dict[str, Any]:
        """An empty state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take any state, as none is used."""


def custom_fwd(fwd: Any = None, *, device_type: str = "cuda", **options: Any) -> Any:
    """The function itself, or a decorator that gives it: nothing is cast.

    >>> weft.amp.custom_fwd(abs, device_type="cuda") is abs
    True
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, **options)
    return fwd


def custom_bwd(bwd: Any = None, *, device_type: str = "cuda") -> Any:
    """The function itself, or a decorator that gives it: nothing was cast.

    >>> weft.amp.custom_bwd(abs, device_type="cuda") is abs
    True
    """
    return (
        functools.partial(custom_bwd, device_type=device_type) if bwd is None else bwd
    )
