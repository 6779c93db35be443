"""Devices: where tensors live, and which kernels run their operators.

A device is an object in a registry. Each one may bring its own kernels; an
operator that a device has no kernel for is refused by name, with the kernels
that exist. A device is also a context manager: tensors that are made inside are
made there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft import late
from weft.core.mode import mode
from weft.errors import AbsentDeviceError, DeviceError, DTypeError

if TYPE_CHECKING:
    from weft.core.op import Op

Kernel = Callable[..., Any]


class Device:
    """A device that holds tensors and runs operators.

    ``kernels`` maps operator names to functions over this device's buffers;
    ``None`` means that the operators' NumPy evaluations serve (the CPU). A subclass
    may define ``kernel(op)`` instead, which gives the function for any operator. A
    buffer has ``shape``, ``ndim`` and ``dtype`` (NumPy's); ``from_host`` makes one of
    an array, and ``to_host`` an array of one. ``target`` compiles programs for tensors
    that live here (see ``weft.compile.targets``); without one, they run eagerly.

    >>> weft.device("cpu"), str(weft.device("cpu"))
    (device(type='cpu'), 'cpu')
    >>> with weft.device("cpu"):
    ...     weft.zeros(2).device
    device(type='cpu')
    """

    __slots__ = ("from_host", "kernels", "name", "target", "to_host")

    def __init__(
        self,
        name: str,
        kernels: dict[str, Kernel] | None = None,
        *,
        from_host: Kernel | None = None,
        to_host: Kernel | None = None,
        target: Any = None,
    ) -> None:
        self.name = name
        self.target = target
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
        kernel = self.kernels.get(op.name)
        if kernel is None:
            have = ", ".join(sorted(self.kernels)) or "none"
            raise DeviceError(
                f"{op.name}: no kernel for device {self.name!r}; it has {have}. "
                "Register one with device.register_kernel, or move the tensor "
                "with .to('cpu')"
            )
        return kernel

    def launched(self, op: Op, args: Sequence[Any], params: Any = ()) -> Any:
        """The result on buffers and numbers, where it takes a launch that is known.

        None elsewhere: then ``kernel`` knows the way.
        """
        return None

    def copy(self, buffer: Any) -> Any:
        """Another buffer with the same elements; a subclass may spare the way here."""
        return self.from_host(self.to_host(buffer))

    def write(self, target: Any, source: Any) -> None:
        """Copy a buffer's elements into the memory of another one of its shape.

        In-place operators need it; a subclass defines it.
        """
        raise DeviceError(
            f"device {self.name!r} cannot change its memory in place: it defines no "
            "write(target, source). Use the operator that makes a new tensor"
        )

    def shares(self, view: Any, base: Any) -> bool:
        """Whether a buffer that an operator made of another is over its memory."""
        return view is base

    def __enter__(self) -> Device:
        mode.outer_devices = (mode.device, *mode.outer_devices)
        mode.device = None if self is cpu else self
        return self

    def __exit__(self, *error: object) -> None:
        mode.device, *outer = mode.outer_devices
        mode.outer_devices = tuple(outer)

    def __call__(self, function: Kernel) -> Kernel:
        """Decorate a function: tensors that it makes are made here.

        >>> @weft.device("cpu")
        ... def make():
        ...     return weft.zeros(2)
        >>> make().device
        device(type='cpu')
        """

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (device, (self.name,))


# The kinds of devices that programs name; those that nobody registered are absent.
KINDS = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "hip", "xla", "lazy", "vulkan", "mps",
    "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip


def absent(kind: str) -> AbsentDeviceError:
    """The error of whatever needs a device of a kind that is not here."""
    have = ", ".join(repr(d.name) for d in devices())
    return AbsentDeviceError(
        f"device {kind!r} is not available; available: {have}. Choose one that is, as "
        f"in device = 'cuda' if torch.cuda.is_available() else 'cpu'"
    )


class AbsentDevice(Device):
    """A device that can be named and compared, but holds no tensors.

    >>> weft.device("cuda", 1)
    device(type='cuda', index=1)
    >>> weft.device("cuda").type == "cuda" and weft.device("cuda") != weft.device("cpu")
    True
    """

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, {}, from_host=self._refuse, to_host=self._refuse)

    def _refuse(self, *_: Any) -> Any:
        raise absent(self.name)

    def kernel(self, op: Op) -> Kernel:
        raise absent(self.name)


_ABSENT: dict[str, AbsentDevice] = {}
_REGISTRY: dict[str, Device] = {}
BUILT_IN: dict[str, Device] = {}  # that no list of devices shows: see ``core.meta``


def register_device(new: Device) -> Device:
    """Make a device known by its name.

    >>> weft.register_device(weft.Device("toy"))
    device(type='toy')
    >>> weft.device("toy").type
    'toy'
    >>> weft.unregister_device("toy")
    """
    _REGISTRY[new.name] = new
    return new


def unregister_device(name: str) -> None:
    """Forget a registered device.

    >>> weft.register_device(weft.Device("toy"))
    device(type='toy')
    >>> weft.unregister_device("toy")
    """
    if name == "cpu":
        raise DeviceError("the CPU cannot be unregistered")
    _REGISTRY.pop(name, None)


def devices() -> list[Device]:
    """Every device of this process.

    >>> weft.devices()
    [device(type='cpu')]
    """
    return list(dict.fromkeys(_REGISTRY.values()))


class _Found(type):
    """Lets ``isinstance(x, weft.device)`` ask whether x is a device."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Device)

    def __call__(cls, type: str | Device, index: int | None = None) -> Any:
        return _found(type, index)


class device(Device, metaclass=_Found):
    """The device with this name; an unknown one is refused with what exists.

    One that PyTorch knows and this machine lacks can be named; it is an error to make
    a tensor there (``AbsentDeviceError``).

    >>> weft.device("cpu").type
    'cpu'
    >>> weft.device("cpu", 0) is weft.device("cpu:0") is weft.device("cpu")
    True
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(self, type: str | Device, index: int | None = None) -> None: ...


cpu: Device = Device.__new__(device)  # its type is weft.device, as in PyTorch
Device.__init__(cpu, "cpu")
_REGISTRY |= {"cpu": cpu, "cpu:0": cpu}


def _found(type: str | Device, index: int | None) -> Any:
    if isinstance(type, Device) and index is None:
        return type
    if isinstance(type, float):
        raise DTypeError(f"device: expected a name such as 'cpu', got {type}")
    name = type if index is None else f"{type}:{index}"
    device = None
    if isinstance(type, str):
        device = _REGISTRY.get(str(name)) or _REGISTRY.get(f"{name}:0")
        device = device or BUILT_IN.get(str(name))
    if device is not None:
        return device
    kind, _, number = str(name).partition(":")
    if kind == "cuda" and (number or "0").isdigit():
        found = _gpu(int(number or 0))
        if found is not None:
            return found
    if kind not in KINDS or kind == "cpu" or not (number or "0").isdigit():
        have = ", ".join(repr(d.name) for d in devices())
        raise DeviceError(f"device {name!r} is not available; available: {have}")
    return _ABSENT.setdefault(str(name), AbsentDevice(str(name)))


def _gpu(index: int) -> Device | None:
    """A GPU that is asked for by its number; None if it is not there."""
    from weft.runtime.cuda.driver import availability

    if index >= availability().gpus:
        return None
    return register_device(late.find("cuda_device")(index))


def get_default_device() -> Device:
    """The device of new tensors that name none.

    >>> weft.get_default_device()
    device(type='cpu')
    """
    return mode.device or cpu


def set_default_device(device: str | Device | None) -> None:
    """Make tensors on this device from now on, in this thread; None is the CPU.

    >>> weft.set_default_device("cpu")
    >>> weft.zeros(2).device
    device(type='cpu')
    """
    found = cpu if device is None else find_device(device)
    mode.device = None if found is cpu else found


device.__module__ = "weft"  # where pickles and the documentation find it
find_device = device
