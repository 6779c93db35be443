"""Softmax, and the terms of entropies."""

from __future__ import annotations

import math
from typing import Any

from weft.core.dims import normalize_dim
from weft.core.eager_kernels import fused
from weft.core.tensor import Tensor
from weft.dtype import as_dtype, float32
from weft.errors import DTypeError
from weft.ops.copies import HALF, cast
from weft.ops.creation import full_like
from weft.ops.elementwise import as_operand, prepare
from weft.ops.extremes import amax
from weft.ops.predicates import isnan
from weft.ops.public import public
from weft.ops.reduce import sum
from weft.ops.select import where
from weft.ops.transcendental import exp, log, log1p, xlogy

# -- softmax


def _softmax_input(name: str, input: Tensor, dim: Any, dtype: Any) -> tuple[Any, ...]:
    """The input in the dtype to compute in, the dimension, the dtype to return."""
    if not isinstance(input, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(input).__name__}")
    x = input if dtype is None else cast(input, as_dtype(dtype))
    if not x.dtype.is_floating_point:
        raise DTypeError(
            f"{name}: expected a floating-point dtype, got {x.dtype.name}; pass "
            "dtype=weft.float32 to convert it first"
        )
    wide = cast(x, float32) if x.dtype.np.char in HALF else x
    return wide, normalize_dim(name, dim, x.ndim), x.dtype


def _below_top(x: Tensor, dim: int) -> Tensor:
    """x with its largest element moved to 0, which changes no softmax."""
    if x.ndim == 0 or x.shape[dim] == 0:
        return x - x.detach() if x.ndim == 0 else x
    return x - amax(x.detach(), dim, keepdim=True)


def _total(x: Tensor, dim: int) -> Tensor:
    return sum(x, dim, keepdim=True) if x.ndim else x


@public(method=True)
def softmax(
    input: Tensor, dim: Any = None, dtype: Any = None, *, axis: Any = None
) -> Tensor:
    """``exp(x) / sum(exp(x))`` along a dimension, without overflow.

    >>> weft.softmax(weft.tensor([0.0, 1000.0]), 0)
    tensor([0., 1.])
    """
    if axis is not None:
        dim = axis
    x, d, kind = _softmax_input("softmax", input, dim, dtype)

    def plain(x: Tensor) -> Tensor:
        power = exp(_below_top(x, d))
        return power / _total(power, d)

    return cast(fused("softmax", plain, x, key=d), kind)


@public(method=True)
def log_softmax(
    input: Tensor, dim: Any = None, dtype: Any = None, *, axis: Any = None
) -> Tensor:
    """The logarithm of ``softmax``, without overflow or loss.

    >>> weft.log_softmax(weft.tensor([0.0, 1000.0]), 0)
    tensor([-1000.,     0.])
    """
    if axis is not None:
        dim = axis
    x, d, kind = _softmax_input("log_softmax", input, dim, dtype)

    def plain(x: Tensor) -> Tensor:
        low = _below_top(x, d)
        return low - log(_total(exp(low), d))

    return cast(fused("log_softmax", plain, x, key=d), kind)


# -- entropies


def xlog1py(input: Any, other: Any) -> Tensor:
    """``input * log1p(other)``, and 0 where ``input`` is 0 (unless other is NaN).

    The derivative by ``input`` at 0 is ``log1p(other)`` where that is finite.

    >>> weft.special.xlog1py(weft.tensor([0.0, 2.0]), weft.tensor([-1.0, 0.0]))
    tensor([0., 0.])
    """
    x, y = _two_tensors("xlog1py", input, other)
    inside = (y > -1) & (y < math.inf)
    return x * log1p(where((x != 0) | inside | isnan(y), y, 0))


def _two_tensors(name: str, *values: Any) -> list[Tensor]:
    operands = [as_operand(name, v) for v in values]
    tensors = [v for v in operands if isinstance(v, Tensor)]
    if not tensors:
        raise DTypeError(f"{name}: expected at least one tensor, got two numbers")
    return [
        v if isinstance(v, Tensor) else full_like(tensors[0], v)
        for v in prepare(name, "floating", *operands)
    ]


def entr(input: Tensor) -> Tensor:
    """``-x * log(x)``: 0 at 0, and minus infinity for negative x.

    >>> weft.special.entr(weft.tensor([0.0, 0.5]))
    tensor([0.0000, 0.3466])
    """
    (x,) = prepare("entr", "floating", input)
    return where(x < 0, -math.inf, 0 - xlogy(x, where(x < 0, 1, x)))
