"""Properties of a tensor: its shape, memory, type, parts and transposes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.dims import existing_dim
from weft.errors import DeviceError, ShapeError
from weft.ops import (
    complex_numbers,
    shaping,
)
from weft.ops.memory_format import check_format, contiguous_format, has_format

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


def _in_memory(x: Any, name: str) -> Any:
    """A tensor's array, if the tensor is in host memory."""
    if not x.is_cpu:
        raise DeviceError(
            f"{name}: this tensor is on {x.device.name!r}, whose memory is its "
            "own; move it with .cpu()"
        )
    return x.array()


def offset_of(x: Tensor) -> int:
    """The offset of a view in the memory of its base, in elements."""
    if x._base is None:
        return 0
    mine, whole = x.layout_array(), x._base.layout_array()
    if not isinstance(mine, np.ndarray) or not isinstance(whole, np.ndarray):
        return 0
    start = np.lib.array_utils.byte_bounds(whole)[0]
    return (mine.__array_interface__["data"][0] - start) // mine.itemsize


class Inspection:
    """Questions that a tensor answers about itself."""

    def dim(self: Any) -> int:
        """The number of dimensions.

        >>> weft.zeros(2, 3).dim()
        2
        """
        return self.ndim

    def size(self: Any, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension.

        >>> weft.zeros(2, 3).size(1)
        3
        """
        if dim is None:
            return self.shape
        return self.shape[existing_dim("size", dim, self.ndim)]

    def numel(self: Any) -> int:
        """The number of elements.

        >>> weft.zeros(2, 3).numel()
        6
        """
        return math.prod(self.shape)

    nelement = numel
    ndimension = dim

    @property
    def is_cuda(self: Any) -> bool:
        """Whether the tensor is on a CUDA device.

        >>> weft.zeros(1).is_cuda
        False
        """
        return self.device.type == "cuda"

    @property
    def is_cpu(self: Any) -> bool:
        """Whether the tensor is on the CPU.

        >>> weft.zeros(1).is_cpu
        True
        """
        return self.device.type == "cpu"

    def stride(self: Any, dim: int | None = None) -> Any:
        """The distance in memory, in elements, of one step in each dimension.

        >>> weft.zeros(2, 3).stride()
        (3, 1)
        """
        array = _in_memory(self, "stride")
        steps = tuple(s // array.itemsize for s in array.strides)
        return steps if dim is None else steps[dim]

    def storage_offset(self: Any) -> int:
        """The offset of a view in the memory of the tensor it is a view of.

        >>> weft.zeros(4, 3)[2].storage_offset()
        6
        """
        return offset_of(self)

    def is_contiguous(self: Any, memory_format: Any = contiguous_format) -> bool:
        """Whether the layout is row-major, or that of a memory format.

        >>> weft.zeros(2, 3).t().is_contiguous()
        False
        """
        array = _in_memory(self, "is_contiguous")
        if memory_format is contiguous_format:
            return bool(array.flags.c_contiguous)
        return has_format(array, check_format("is_contiguous", memory_format))

    def data_ptr(self: Any) -> int:
        """The address of the first element.

        >>> x = weft.zeros(3)
        >>> x.data_ptr() == x.view(3, 1).data_ptr()
        True
        """
        self.storage_record.exposed = True
        return int(_in_memory(self, "data_ptr").ctypes.data)

    @property
    def _cdata(self: Any) -> int:
        """A number that only this tensor has, by which PyTorch's users tell objects."""
        return id(self)

    def element_size(self: Any) -> int:
        """The bytes of one element.

        >>> weft.zeros(1).element_size()
        4
        """
        return self.dtype.itemsize

    @property
    def itemsize(self: Any) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self: Any) -> int:
        """The bytes of all elements.

        >>> weft.zeros(3).nbytes
        12
        """
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self: Any) -> bool:
        """Whether the dtype is a floating-point type.

        >>> weft.zeros(1).is_floating_point()
        True
        """
        return self.dtype.is_floating_point

    def is_complex(self: Any) -> bool:
        """Whether the dtype is a complex type.

        >>> weft.zeros(1).is_complex()
        False
        """
        return self.dtype.is_complex

    def is_signed(self: Any) -> bool:
        """Whether the dtype holds negative numbers.

        >>> weft.zeros(1, dtype=weft.uint8).is_signed()
        False
        """
        return self.dtype.is_signed

    def is_inference(self: Any) -> bool:
        """Whether this tensor was made in ``inference_mode``.

        >>> weft.zeros(1).is_inference()
        False
        """
        return self._inference

    @property
    def T(self: Any) -> Tensor:
        """The dimensions in reverse order.

        >>> weft.zeros(2, 3).T.shape
        (3, 2)
        """
        return shaping.permute(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self: Any) -> Tensor:
        """The last two dimensions exchanged.

        >>> weft.zeros(5, 2, 3).mT.shape
        (5, 3, 2)
        """
        if self.ndim < 2:
            raise ShapeError(f"mT: expected at least 2 dimensions, got {self.shape}")
        return shaping.transpose(self, -2, -1)

    @property
    def H(self: Any) -> Tensor:
        """A matrix transposed and conjugated.

        >>> weft.tensor([[1j]]).H
        tensor([[0.-1.j]])
        """
        return shaping.adjoint(self)

    @property
    def real(self: Any) -> Tensor:
        """The real part, over the same memory; setting it writes there.

        >>> z = weft.tensor([1 + 2j])
        >>> z.real = 3
        >>> z
        tensor([3.+2.j])
        """
        return complex_numbers.real(self)

    @real.setter
    def real(self: Any, value: Any) -> None:
        complex_numbers.real(self)[...] = value

    @property
    def imag(self: Any) -> Tensor:
        """The imaginary part, over the same memory; setting it writes there.

        >>> weft.tensor([1 + 2j]).imag
        tensor([2.])
        """
        return complex_numbers.imag(self)

    @imag.setter
    def imag(self: Any, value: Any) -> None:
        complex_numbers.imag(self)[...] = value

    @property
    def mH(self: Any) -> Tensor:
        """The last two dimensions exchanged, and complex numbers conjugated.

        >>> weft.zeros(5, 2, 3).mH.shape
        (5, 3, 2)
        """
        return shaping.adjoint(self)
