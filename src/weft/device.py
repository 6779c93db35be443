"""Devices: where tensors live, and which kernels run their operators.

A device is an object in a registry. Each one may bring its own kernels; an
operator that a device has no kernel for is refused by name, with the kernels
that exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.errors import DeviceError

if TYPE_CHECKING:
    from weft.core.op import Op

Kernel = Callable[..., Any]


class Device:
    """One place that holds tensors and runs operators.

    ``kernels`` maps operator names to functions over this device's buffers;
    ``None`` means that the operators' NumPy evaluations serve (the CPU).

    >>> weft.device("cpu")
    device('cpu')
    """

    __slots__ = ("from_host", "kernels", "name", "to_host")

    def __init__(
        self,
        name: str,
        kernels: dict[str, Kernel] | None = None,
        *,
        from_host: Kernel | None = None,
        to_host: Kernel | None = None,
    ) -> None:
        self.name = name
        self.kernels = kernels
        self.from_host = from_host or (lambda array: array)
        self.to_host = to_host or (lambda buffer: buffer)

    @property
    def type(self) -> str:
        return self.name.partition(":")[0]

    @property
    def index(self) -> int | None:
        number = self.name.partition(":")[2]
        return int(number) if number else None

    def register_kernel(self, op_name: str, kernel: Kernel) -> None:
        """Give this device its own implementation of an operator."""
        if self.kernels is None:
            from weft.core.op import find_op

            find_op(op_name).kernel = kernel
        else:
            self.kernels[op_name] = kernel

    def kernel(self, op: Op) -> Kernel:
        """The function that runs ``op`` here."""
        if self.kernels is None:
            return op.kernel
        found = self.kernels.get(op.name)
        if found is None:
            have = ", ".join(sorted(self.kernels)) or "none"
            raise DeviceError(
                f"{op.name}: no kernel for device {self.name!r}; it has {have}. "
                "Register one with device.register_kernel, or move the tensor "
                "with .to('cpu')"
            )
        return found

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (device, (self.name,))


cpu = Device("cpu")
_REGISTRY: dict[str, Device] = {"cpu": cpu, "cpu:0": cpu}


def register_device(new: Device) -> Device:
    """Make a device known by its name.

    >>> weft.register_device(weft.Device("toy"))
    device('toy')
    >>> weft.device("toy").type
    'toy'
    >>> weft.unregister_device("toy")
    """
    _REGISTRY[new.name] = new
    return new


def unregister_device(name: str) -> None:
    """Forget a registered device.

    >>> weft.register_device(weft.Device("toy"))
    device('toy')
    >>> weft.unregister_device("toy")
    """
    if name == "cpu":
        raise DeviceError("the CPU cannot be unregistered")
    _REGISTRY.pop(name, None)


def devices() -> list[Device]:
    """Every device of this process.

    >>> weft.devices()
    [device('cpu')]
    """
    return list(dict.fromkeys(_REGISTRY.values()))


def device(spec: str | Device) -> Device:
    """The device with this name; an unknown one is refused with what exists.

    >>> weft.device("cpu").type
    'cpu'
    """
    if isinstance(spec, Device):
        return spec
    found = _REGISTRY.get(spec) if isinstance(spec, str) else None
    if found is None:
        have = ", ".join(repr(d.name) for d in devices())
        raise DeviceError(f"device {spec!r} is not available; available: {have}")
    return found
