"""Python's operators on tensors, and the protocols of Python and other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft import interchange, pickling
from weft.core.mode import mode
from weft.core.size import Size
from weft.core.tensor import Tensor as _Tensor
from weft.errors import (
    ArgumentError,
    AutogradError,
    DTypeError,
)
from weft.ops import (
    arithmetic,
    bits,
    comparison,
    indexing,
    products,
    slicing,
)
from weft.ops.elementwise import as_operator

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


_NUMBERS = (int, float, complex, np.ndarray, np.generic, Size)


def _reflected(fn: Any) -> Any:
    """``number op tensor`` from a function of two operands."""

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, _NUMBERS):
            return fn(other, self)
        return NotImplemented

    return method


def _comparison(fn: Any) -> Any:
    """``==`` and ``!=``, which leave foreign types to the other operand."""

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, (_Tensor, *_NUMBERS)):
            return fn(self, other)
        return NotImplemented

    return method


class Operators:
    """The special methods that Python and other libraries call."""

    # -- operators

    __add__: Any = as_operator(arithmetic._add, "__radd__")
    __radd__ = arithmetic._add
    __sub__: Any = as_operator(arithmetic._sub, "__rsub__")
    __rsub__ = _reflected(arithmetic._sub)
    __mul__: Any = as_operator(arithmetic.mul, "__rmul__")
    __rmul__ = arithmetic.mul
    __truediv__: Any = as_operator(arithmetic._true_divide, "__rtruediv__")
    __rtruediv__ = _reflected(arithmetic._true_divide)
    __floordiv__: Any = as_operator(arithmetic.floor_divide, "__rfloordiv__")
    __rfloordiv__ = _reflected(arithmetic.floor_divide)
    __mod__: Any = as_operator(arithmetic.remainder, "__rmod__")
    __rmod__ = _reflected(arithmetic.remainder)
    __pow__: Any = as_operator(arithmetic.pow, "__rpow__")
    __rpow__ = _reflected(arithmetic.pow)
    __matmul__: Any = as_operator(products.matmul, "__rmatmul__")
    __rmatmul__ = _reflected(products.matmul)
    __neg__: Any = arithmetic.neg
    __pos__ = arithmetic.positive
    __abs__ = arithmetic.abs
    __invert__ = bits.bitwise_not
    __and__: Any = as_operator(bits.bitwise_and, "__rand__")
    __rand__ = bits.bitwise_and
    __or__: Any = as_operator(bits.bitwise_or, "__ror__")
    __ror__ = bits.bitwise_or
    __xor__: Any = as_operator(bits.bitwise_xor, "__rxor__")
    __rxor__ = bits.bitwise_xor
    __lshift__: Any = as_operator(bits.bitwise_left_shift, "__rlshift__")
    __rlshift__ = _reflected(bits.bitwise_left_shift)
    __rshift__: Any = as_operator(bits.bitwise_right_shift, "__rrshift__")
    __rrshift__ = _reflected(bits.bitwise_right_shift)
    __eq__ = _comparison(comparison.eq)
    __ne__ = _comparison(comparison.ne)
    __lt__: Any = as_operator(comparison.lt, "__gt__")
    __le__: Any = as_operator(comparison.le, "__ge__")
    __gt__: Any = as_operator(comparison.gt, "__lt__")
    __ge__: Any = as_operator(comparison.ge, "__le__")
    __getitem__ = indexing.getitem
    __setitem__ = indexing.setitem
    __hash__ = object.__hash__

    # -- Python protocols

    def __bool__(self: Any) -> bool:
        if self.numel() != 1:
            raise ArgumentError(
                f"bool: the truth of a tensor of shape {tuple(self.shape)} is "
                "ambiguous; use .any() or .all()"
            )
        return bool(self.item())

    def __float__(self: Any) -> float:
        return float(self.item())

    def __int__(self: Any) -> int:
        return int(self.item())

    def __complex__(self: Any) -> complex:
        return complex(self.item())

    def __index__(self: Any) -> int:
        if self.dtype.is_inexact:
            raise DTypeError(
                f"index: expected an integer tensor, got {self.dtype.name}"
            )
        return int(self.item())

    def __len__(self: Any) -> int:
        if self.ndim == 0:
            raise DTypeError("len: a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self: Any) -> Any:
        if self.ndim == 0:
            raise DTypeError("iter: a 0-d tensor cannot be iterated")
        return iter(slicing.unbind(self))

    def __contains__(self: Any, element: Any) -> bool:
        return bool((self == element).any())

    def __repr__(self: Any) -> str:
        if self._interpreter is not None:
            return (
                f"<{self._interpreter.name} tensor, shape={tuple(self.shape)}, "
                f"dtype={self.dtype.name}>"
            )
        from weft.printing import format_tensor

        text = format_tensor(self)
        return f"Parameter containing:\n{text}" if self._parameter else text

    def __format__(self: Any, spec: str) -> str:
        if spec and self.numel() == 1 and self._interpreter is None:
            return format(self.item(), spec)
        return format(repr(self), spec)

    # -- other libraries

    __array__ = interchange.to_array
    __array_ufunc__ = interchange.array_ufunc
    __array_function__ = interchange.array_function
    __array_namespace__ = interchange.array_namespace
    __dlpack__ = interchange.to_dlpack
    __cuda_array_interface__ = property(interchange.cuda_array_interface)
    __dlpack_device__ = interchange.dlpack_device
    __reduce_ex__ = pickling.reduce
    __copy__ = interchange.shallow_copy
    to_device = interchange.to_device

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise AutogradError(
                "deepcopy: only leaves can be copied deeply; this tensor was made by "
                f"{self._node.name!r}. Use .detach().clone()"
            )
        if mode.capture is not None:
            return _deep_copy_captured(self, memo)
        kind: Any = type(self)
        twin = kind.__new__(kind)
        memo[id(self)] = twin
        for name, value in vars(self).items():
            if name in ("_node", "_storage", "_base", "_chain", "_data", "grad"):
                continue
            setattr(twin, name, value)
        twin._data = self._data.copy() if self.is_cpu else self.settled()._data
        twin._node = None
        if self._node is not None:
            twin.requires_grad_()
        if self.grad is not None:
            twin.grad = self.grad.detach().clone()
        return twin


def _deep_copy_captured(x: Any, memo: dict[int, Any]) -> Tensor:
    """A deep copy that each run of a captured program makes of the value of then."""
    marks = {k: v for k, v in vars(x).items() if k in _MARKS}
    mode.capture.touch(x)
    twin = memo[id(x)] = x.detach().clone()
    vars(twin).update(marks)
    if x.grad is not None:
        twin.grad = x.grad.detach().clone()
    return twin.requires_grad_(x.requires_grad)


_MARKS = ("_parameter", "name")
