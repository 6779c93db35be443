"""A tensor and its memory: storages, new sizes in place, and where the memory is."""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.device import device as find_device
from weft.core.mode import mode
from weft.core.tensor import Tensor as _Tensor
from weft.errors import ArgumentError, AutogradError, DTypeError
from weft.layouts import layout as _layout
from weft.layouts import strided
from weft.methods.inspection import offset_of
from weft.ops import creation

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


def _is_on(kind: str) -> Any:
    def on(self: Any) -> bool:
        return self.device.type == kind

    on.__doc__ = f"""Whether the tensor is on a device of the kind {kind!r}.

    >>> weft.zeros(1).is_{kind}
    False
    """
    return property(on)


def _never(what: str, name: str) -> Any:
    def no(self: Any) -> bool:
        return False

    no.__doc__ = f"""Whether this is a {what} tensor; it is not.

    >>> weft.zeros(1).{name}
    False
    """
    return property(no)


class Memory:
    """The methods that ask for, or exchange, a tensor's memory."""

    is_xpu = _is_on("xpu")
    is_mps = _is_on("mps")
    is_ipu = _is_on("ipu")
    is_xla = _is_on("xla")
    is_mtia = _is_on("mtia")
    is_maia = _is_on("maia")
    is_vulkan = _is_on("vulkan")
    is_meta = _is_on("meta")
    is_sparse = _never("sparse", "is_sparse")
    is_sparse_csr = _never("compressed sparse", "is_sparse_csr")
    is_quantized = _never("quantized", "is_quantized")
    is_mkldnn = _never("MKL-DNN", "is_mkldnn")
    is_nested = _never("nested", "is_nested")

    @property
    def layout(self: Any) -> _layout:
        """How the elements are kept: all of them, at regular steps.

        >>> weft.zeros(2).layout
        weft.strided
        """
        return strided

    def get_device(self: Any) -> int:
        """The number of the tensor's device; -1 on the CPU.

        >>> weft.zeros(1).get_device()
        -1
        """
        return -1 if self.is_cpu else (self.device.index or 0)

    def cuda(
        self: Any,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        """The tensor on a CUDA device (the first, unless one is given).

        >>> weft.zeros(2).cuda()
        Traceback (most recent call last):
        weft.errors.AbsentDeviceError: ...
        """
        where = "cuda" if device is None else device
        if isinstance(where, int):
            where = f"cuda:{where}"
        return self.to(find_device(where), memory_format=memory_format)

    def is_pinned(self: Any, device: Any = None) -> bool:
        """Whether the memory is pinned for copies to a device.

        >>> weft.zeros(1).is_pinned()
        False
        """
        return False

    def pin_memory(self: Any, device: Any = None) -> Tensor:
        """The tensor itself: host memory is copied to devices as it is.

        >>> x = weft.zeros(1)
        >>> x.pin_memory() is x
        True
        """
        return self

    def is_shared(self: Any) -> bool:
        """Whether processes that are forked from this one see the tensor's memory.

        >>> weft.zeros(1).is_shared(), weft.zeros(1).share_memory_().is_shared()
        (False, True)
        """
        memory = self.layout_array()
        while isinstance(memory, np.ndarray):
            memory = memory.base
        if isinstance(memory, memoryview):
            memory = memory.obj
        return isinstance(memory, mmap.mmap)

    def share_memory_(self: Any) -> Tensor:
        """Move to memory that processes which are forked from this one see as well.

        >>> weft.tensor([1.0, 2.0]).share_memory_()
        tensor([1., 2.])
        """
        if self.is_shared():
            return self
        if self._base is not None or self.storage_record.live_views():
            raise ArgumentError(
                "share_memory_: this tensor has views, which would stay behind in the "
                "old memory; share the tensor before views of it are made"
            )
        array = self.to_host()
        moved = np.frombuffer(mmap.mmap(-1, max(array.nbytes, 1)), array.dtype)
        moved = moved[: array.size].reshape(array.shape)
        moved[...] = array
        self._data = moved
        return self

    def is_distributed(self: Any) -> bool:
        """Whether the elements lie on several machines; they do not.

        >>> weft.zeros(1).is_distributed()
        False
        """
        return False

    def untyped_storage(self: Any) -> Any:
        """The memory of this tensor and all its views, as bytes.

        >>> weft.zeros(4)[1:].untyped_storage().nbytes()
        16
        """
        from weft import storage

        return storage.UntypedStorage(storage.memory_of(self))

    def storage(self: Any) -> Any:
        """The memory of this tensor and all its views, as elements of its dtype.

        >>> weft.tensor([1, 2, 3])[1:].storage().tolist()
        [1, 2, 3]
        """
        from weft import storage

        return storage.TypedStorage(
            wrap_storage=self.untyped_storage(), dtype=self.dtype
        )

    def storage_type(self: Any) -> Any:
        """The class of this tensor's typed storage.

        >>> weft.zeros(1).storage_type() is weft.FloatStorage
        True
        """
        from weft import storage

        return getattr(storage, f"{storage._NAMES[self.dtype.name]}Storage")

    def is_set_to(self: Any, tensor: Any) -> bool:
        """Whether both tensors are the same elements of the same memory.

        >>> x = weft.zeros(4)
        >>> x.is_set_to(x.view(4)), x.is_set_to(x[1:])
        (True, False)
        """
        return (
            self.data_ptr() == tensor.data_ptr()
            and self.shape == tensor.shape
            and self.stride() == tensor.stride()
        )

    def set_(
        self: Any,
        source: Any = None,
        storage_offset: int = 0,
        size: Any = None,
        stride: Any = None,
    ) -> Tensor:
        """Look at the memory of another tensor, or of a storage, from now on.

        >>> x, y = weft.zeros(2), weft.ones(3)
        >>> x.set_(y).add_(1) is x, y
        (True, tensor([2., 2., 2.]))
        """
        _check_exchange(self, "set_")
        if source is None:
            source = creation.empty(0, dtype=self.dtype)
        if isinstance(source, _Tensor) and size is None:
            if source.dtype is not self.dtype or not source.is_cpu:
                raise DTypeError(
                    f"set_: expected a {self.dtype.name} tensor on the CPU, got "
                    f"{source.dtype.name} on {source.device.name!r}"
                )
            return _exchange(self, source._data, source.storage_record)
        from weft import storage

        if isinstance(source, _Tensor):
            source = source.untyped_storage()
        count = source.nbytes() // self.dtype.itemsize - storage_offset
        sizes = (count,) if size is None else creation.parse_size("set_", (size,))
        steps = row_major(sizes) if stride is None else tuple(stride)
        array = storage.array_on(source, storage_offset, sizes, steps, self.dtype)
        return _exchange(self, array, None)

    def resize_(self: Any, *sizes: Any, memory_format: Any = None) -> Tensor:
        """Give this tensor another shape, over the same memory while it is enough.

        New elements are not set to anything in particular.

        >>> weft.tensor([[1, 2], [3, 4]]).resize_(3)
        tensor([1, 2, 3])
        """
        shape = creation.parse_size("resize_", sizes)
        if shape == self.shape:
            return self
        _check_exchange(self, "resize_")
        from weft import storage

        count, memory = math.prod(shape), storage.memory_of(self)
        flat = memory.view(self.dtype.np)[offset_of(self) :]
        if flat.size >= count:
            _exchange(self, flat[:count].reshape(shape), self.storage_record)
            self._resized = self._data, flat
            return self
        grown = np.empty(count, self.dtype.np)
        grown[: flat.size] = flat
        return _exchange(self, grown.reshape(shape), None)

    def resize_as_(self: Any, tensor: Any, memory_format: Any = None) -> Tensor:
        """``resize_`` to another tensor's shape.

        >>> weft.zeros(4).resize_as_(weft.zeros(2, 2)).shape
        (2, 2)
        """
        return self.resize_(tensor.shape)

    def new(self: Any, *given: Any, device: Any = None) -> Tensor:
        """A tensor of this dtype: of sizes, of data, or empty.

        >>> weft.tensor([1]).new([2.7, 3.0])
        tensor([2, 3])
        """
        from weft.tensor_types import make

        return make(self.dtype, self.device if device is None else device, given)

    def new_empty_strided(self: Any, size: Any, stride: Any, **options: Any) -> Tensor:
        """Unset elements of this dtype, with these steps in memory.

        >>> weft.zeros(1).new_empty_strided((2, 3), (1, 2)).stride()
        (1, 2)
        """
        from weft.ops.from_memory import empty_strided

        given = {"dtype": self.dtype, "device": self.device, **options}
        return empty_strided(size, stride, **given)

    def dim_order(self: Any) -> tuple[int, ...]:
        """The dimensions from the slowest in memory to the fastest.

        >>> weft.zeros(2, 3).t().dim_order()
        (1, 0)
        """
        steps = self.stride()
        return tuple(sorted(range(self.ndim), key=lambda d: (-steps[d], d)))

    def apply_(self: Any, callable: Any) -> Tensor:
        """Replace each element by a Python function of it.

        >>> weft.tensor([1.0, 2.0]).apply_(lambda v: v * 10)
        tensor([10., 20.])
        """
        return _by_element(self, callable)

    def map_(self: Any, tensor: Any, callable: Any) -> Tensor:
        """Replace each element by a Python function of it and another tensor's.

        >>> weft.tensor([1.0, 2.0]).map_(weft.tensor([5.0, 6.0]), lambda a, b: a + b)
        tensor([6., 8.])
        """
        return _by_element(self, callable, tensor)

    def map2_(self: Any, x: Any, y: Any, callable: Any) -> Tensor:
        """Replace each element by a Python function of it and two tensors'.

        >>> x = weft.tensor([1.0])
        >>> x.map2_(weft.tensor([2.0]), weft.tensor([3.0]), lambda a, b, c: a + b * c)
        tensor([7.])
        """
        return _by_element(self, callable, x, y)

    def is_conj(self: Any) -> bool:
        """Whether a conjugate is still to be taken; it is taken at once here.

        >>> weft.tensor([1j]).conj().is_conj()
        False
        """
        return False

    def is_neg(self: Any) -> bool:
        """Whether a sign is still to be changed; it is changed at once here.

        >>> (-weft.ones(1)).is_neg()
        False
        """
        return False

    def resolve_conj(self: Any) -> Tensor:
        """The tensor itself: conjugates are taken at once.

        >>> weft.tensor([1j]).conj().resolve_conj()
        tensor([0.-1.j])
        """
        return self

    resolve_neg = resolve_conj

    @property
    def output_nr(self: Any) -> int:
        """Which output of its recorded operator this tensor is."""
        return getattr(self._node, "index", 0)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The steps, in elements, of a contiguous tensor."""
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= max(n, 1)
    return tuple(reversed(steps))


def _check_exchange(x: Any, name: str) -> None:
    """Refuse to exchange the memory of what a tape or a capture refers to."""
    if mode.capture is not None or x._interpreter is not None:
        raise AutogradError(
            f"{name}: a tensor's memory cannot be exchanged inside a captured or "
            "transformed function; make a new tensor"
        )
    if x._node is not None:
        raise AutogradError(
            f"{name}: this tensor requires grad, and its memory cannot be exchanged; "
            f"use x.data.{name} or a new tensor"
        )


def _exchange(x: Any, array: np.ndarray, record: Any) -> Any:
    """Let a tensor look at another array."""
    x.storage_record.touch("set_")
    x._data, x._storage = array, record
    x._base, x._chain = None, ()
    return x


def _by_element(x: Any, fn: Any, *others: Any) -> Any:
    """Write a Python function of the elements into a tensor."""
    for one in (x, *others):
        if one.requires_grad:
            raise AutogradError(
                "apply_: a Python function of elements has no derivative; use "
                ".detach() first"
            )
        if one.shape != x.shape:
            raise ArgumentError(
                f"map_: expected tensors of one shape, got {x.shape} and {one.shape}"
            )
    rows = [one.reshape(-1).tolist() for one in (x, *others)]
    values = [fn(*row) for row in zip(*rows, strict=True)]
    made = np.array(values, x.dtype.np).reshape(x.shape)
    return x.copy_(_Tensor(made))
