"""The Tensor class: data, a node of the tape, and nothing else.

Operators live in ``weft.ops``; ``weft.methods`` lists which of them are methods
and puts them on this class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from weft import dtype as dtypes
from weft import late
from weft.core.device import Device, cpu
from weft.core.mode import mode
from weft.core.size import Shape, Size
from weft.core.tape import Leaf, Storage, keep_in_row
from weft.errors import AutogradError, DTypeError, ShapeError
from weft.runtime.cpu.buffers import owned

ndarray = np.ndarray
new = object.__new__

if TYPE_CHECKING:
    from weft.methods import Methods as _Methods
else:
    _Methods = object


class Tensor(_Methods):
    """An n-dimensional array that can record what is done to it.

    ``weft.tensor`` makes one of data. ``Tensor`` itself is PyTorch's older constructor:
    ``Tensor(2, 3)`` has that shape, and ``Tensor([2, 3])`` that data in the default
    dtype. A NumPy array and a tensor keep their dtype and share their memory.

    >>> weft.Tensor(2, 3).shape, weft.Tensor([2, 3])
    ((2, 3), tensor([2., 3.]))
    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    # Defaults live on the class, so that making a tensor sets two fields.
    grad: Tensor | None = None
    device: Device = cpu
    _node: Any = None
    _storage: Storage | None = None
    _base: Tensor | None = None  # the base of a view
    _chain: tuple[Any, ...] = ()  # the view operators from the base to here
    _interpreter: Any = None  # set on tracers
    _inference: bool = False
    _parameter: bool = False  # set by nn.Parameter
    _post_accumulate: Any = None  # hooks after a backward has added to grad
    _capture: Any = None  # set on tensors that a running capture makes
    __array_priority__ = 1000

    def __new__(cls, *args: Any, **options: Any) -> Self:
        if cls is Tensor or cls.__module__.startswith("weft."):
            return new(cls)
        return late.find("overrides").subclass_instance(cls, *args, **options)

    def __init__(self, data: Any = 0, *sizes: Any, **options: Any) -> None:
        if type(data) is not ndarray or sizes:
            if vars(self):  # an object of a subclass, which is complete
                return None
            if "_parameter" in options and isinstance(data, Tensor):
                return _mark(self, data, options)
            if options:
                raise DTypeError(f"Tensor: unexpected arguments {', '.join(options)}")
            if isinstance(data, Tensor) and not sizes:
                return _look_at(self, data)
            data = _array_from(data, sizes)
        self._data = data
        self._node = None

    @staticmethod
    def on_device(buffer: Any, device: Device) -> Tensor:
        """A tensor around another device's buffer."""
        if device is cpu:
            return Tensor(buffer)
        return DeviceTensor(buffer, device)

    # -- properties

    @property
    def shape(self) -> Shape:
        """The size of each dimension.

        >>> weft.zeros(2, 3).shape
        (2, 3)
        """
        return Shape(self._data.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions.

        >>> weft.zeros(2, 3).ndim
        2
        """
        return self._data.ndim

    @property
    def dtype(self) -> dtypes.DType:
        """The element type.

        >>> weft.zeros(2).dtype
        weft.float32
        """
        return dtypes.of_array(self._data)

    @property
    def _part(self) -> Tensor:
        """What this process has of the tensor: all, unless processes share it out."""
        return self

    def _part_of(self, value: Tensor) -> Tensor:
        """What this process needs of a value for the whole tensor."""
        return value

    def _with_part(self, value: Tensor) -> Tensor:
        """The tensor, like this one, of which this process has ``value``."""
        return value

    def _complete(self) -> Tensor:
        """The tensor with everything that other processes have of it."""
        return self

    # -- the tape

    @property
    def requires_grad(self) -> bool:
        """Whether gradients with respect to this tensor are recorded.

        >>> weft.ones(2, requires_grad=True).requires_grad
        True
        """
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for (or give up) gradients with respect to this tensor.

        >>> weft.ones(2).requires_grad_().requires_grad
        True
        """
        if mode.capture is not None and self.requires_grad != bool(requires_grad):
            mode.capture.note_requires_grad(self, bool(requires_grad))
        if not requires_grad:
            if not self.is_leaf:
                raise AutogradError(
                    "requires_grad_(False): only a leaf can give up gradients; this "
                    f"tensor was made by {self._node.name!r}. Use .detach()"
                )
            self._node = None
        elif self._node is None:
            if not self.dtype.is_inexact:
                raise DTypeError(
                    "requires_grad: expected a floating-point or complex tensor, got "
                    f"{self.dtype.name}. Convert it with .float() first"
                )
            if self._inference:
                raise AutogradError(
                    "requires_grad: this tensor was made in inference_mode; use a "
                    ".clone() made outside it"
                )
            self._node = Leaf(self)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the user made this tensor (rather than a recorded operator).

        >>> x = weft.ones(2, requires_grad=True)
        >>> x.is_leaf, (x * 2).is_leaf
        (True, False)
        """
        return self._node is None or type(self._node) is Leaf

    @property
    def grad_fn(self) -> Any:
        """The recorded operator that made this tensor.

        >>> (weft.ones(2, requires_grad=True) * 2).grad_fn
        <mul>
        """
        return None if self.is_leaf else self._node

    @property
    def _version(self) -> int:
        """The number of changes in place of this tensor's memory."""
        return 0 if self._storage is None else self._storage.version

    @property
    def storage_record(self) -> Storage:
        """The record of this memory's changes, made when first used."""
        if self._storage is None:
            self._storage = Storage()
        return self._storage

    def alias(self, node: Any = None) -> Tensor:
        """The same value as another object, with its own node of the tape."""
        twin = new(Tensor)
        twin._data = self._data
        twin._node = node
        storage = self._storage
        if storage is None:
            storage = self._storage = Storage()
        twin._storage = storage
        return twin

    def become(self, other: Tensor) -> None:
        """Take over another tensor's value (tracers carry values, not memory)."""
        raise TypeError("a concrete tensor is changed through its memory")

    def freeze(self) -> None:
        """Move to memory of its own, so that in-place changes elsewhere don't show."""
        self._data = self._data.copy()
        self._storage = None

    def saved_alias(self) -> Tensor:
        """The object that the tape keeps of an output: the value without its node."""
        return self.alias()

    def is_owned(self) -> bool:
        """Whether the memory is this tensor's own and plain, free to be reused."""
        return type(self) is Tensor and owned(self._data)

    def layout_array(self) -> Any:
        """An array with this tensor's layout; None if that is unknown.

        It is not to be read: that of another device has addresses of its memory.
        """
        own = vars(self)["_data"]  # a tensor that a capture borrows has it too
        return getattr(own, "outline", own)

    def in_order(self) -> Tensor:
        """The result of ``contiguous`` for a tensor that is contiguous already."""
        return self

    def settled(self) -> Tensor:
        """The same value in plain memory that nothing else refers to, where a kind
        of tensor has memory."""
        return self.alias()

    def stopped(self) -> Tensor:
        """The same value, cut off from every kind of derivative."""
        return self.alias()

    def relinked(self, keep: Callable[[Any], bool]) -> Tensor:
        """The same value, with only those tape nodes (at any level) that ``keep``."""
        return self.alias(self._node if keep(self._node) else None)

    def _moved(self, device: Device) -> Tensor:
        """A copy of the values on another device, by way of the host."""
        return Tensor.on_device(device.from_host(self.to_host()), device)

    def to_host(self) -> np.ndarray:
        """The values as a NumPy array, wherever they are."""
        return self.array()

    def array(self) -> np.ndarray:
        """The NumPy array behind this tensor; tracers have none to give."""
        return self._data


keep_in_row(Tensor(np.empty(0)), "grad", "_storage", "_base", "_chain", "_interpreter")


class DeviceTensor(Tensor):
    """A tensor on another device than the CPU."""

    def __init__(self, buffer: Any, device: Device, node: Any = None) -> None:
        self._data = buffer
        self._node = node
        self.device = device

    def alias(self, node: Any = None) -> Tensor:
        twin = DeviceTensor(self._data, self.device, node)
        twin._storage = self.storage_record
        return twin

    def freeze(self) -> None:
        self._data = self.settled()._data
        self._storage = None

    def settled(self) -> Tensor:
        return DeviceTensor(self.device.copy(self._data), self.device)

    def to_host(self) -> np.ndarray:
        return self.device.to_host(self._data)

    def array(self) -> np.ndarray:
        """A copy of the values in host memory, to look at."""
        return self.to_host()


def _array_from(data: Any, sizes: tuple[Any, ...]) -> np.ndarray:
    """The array of ``weft.Tensor(...)``: zeros of these sizes, or the data."""
    shape = (data, *sizes)
    if all(isinstance(n, (int, np.integer)) and type(n) is not bool for n in shape):
        if min(shape) < 0:
            raise ShapeError(f"Tensor: expected sizes of 0 and more, got {shape}")
        return np.zeros(shape, dtypes.default_dtype().np)
    if sizes or isinstance(data, (int, float, complex, np.generic, Size)):
        given = ", ".join(type(n).__name__ for n in shape)
        raise DTypeError(
            "Tensor: expected sizes (ints), or one sequence, array or tensor, got "
            f"({given}); weft.tensor(...) makes a tensor of numbers, and "
            "weft.zeros(...) one of any sizes"
        )
    return late.find("tensor")(data, dtype=dtypes.default_dtype())._data


def _mark(tensor: Tensor, data: Tensor, fields: dict[str, Any]) -> None:
    """Make a new tensor a parameter over another one's memory.

    Packages copy one by ``type(p)(data, **vars(p), requires_grad=...)``.
    """
    tensor.__class__ = type(data)
    tensor.__dict__.update(vars(data.detach()), _parameter=fields["_parameter"])
    tensor.requires_grad_(fields.get("requires_grad", True))


def _look_at(tensor: Tensor, other: Tensor) -> None:
    """Make a new tensor a view of the whole of another one."""
    seen = other.view_as(other)
    if type(seen) is not Tensor:
        raise DTypeError(
            "Tensor: expected a tensor of values in host memory, got a "
            f"{type(seen).__name__}; x.view_as(x) is another view of any tensor"
        )
    for name, value in vars(seen).items():
        setattr(tensor, name, value)
    if tensor._base is not None:
        tensor.storage_record.add_view(tensor)
