"""Element-wise functions, over Weft's operators of the same meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.array_api._common import Array, check_array, operands
from weft.ops import (
    arithmetic,
    broadcasting,
    complex_numbers,
    copies,
    predicates,
    public,
    rounding,
    select,
)
from weft.ops.elementwise import broadcast_shapes
from weft.ops.operands import as_tensorlike

_SAMPLE = "weft.tensor([1, 2])"


def _finish(fn: Any, name: str, text: str, example: str) -> Any:
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"""{text}

    >>> weft.array_api.{name}({example}).shape
    (2,)
    """
    return fn


def _first_line(op: Callable[..., Any]) -> str:
    return (op.__doc__ or "").partition("\n")[0]


def _unary(name: str, op: Callable[..., Any]) -> Any:
    """A function of one array from an operator."""

    def fn(x: Array, /) -> Array:
        return op(check_array(name, x))

    return _finish(fn, name, _first_line(op), _SAMPLE)


def _binary(name: str, op: Callable[..., Any]) -> Any:
    """A function of two arrays (one may be a Python number) from an operator."""

    def fn(x1: Any, x2: Any, /) -> Array:
        return op(*operands(name, x1, x2))

    return _finish(fn, name, _first_line(op), f"{_SAMPLE}, {_SAMPLE}")


# -- functions that an operator is


def _function(name: str, fn: Callable[..., Any]) -> Any:
    """The standard's function of one array, or of two, from an operator's."""
    return (_unary if fn.__code__.co_argcount == 1 else _binary)(name, fn)


DECLARED: dict[str, Any] = {
    theirs: _function(theirs, fn) for theirs, fn in public.array_api().items()
}
globals().update(DECLARED)

# -- functions that need more


def imag(x: Array, /) -> Array:
    """The imaginary part of a complex array.

    >>> weft.array_api.imag(weft.tensor([1 + 2j]))
    tensor([2.])
    """
    return complex_numbers.imag(x)


def round(x: Array, /) -> Array:
    """The nearest whole numbers, ties to even; of complex numbers both parts.

    >>> weft.array_api.round(weft.tensor([0.5, 1.5, -1.7]))
    tensor([ 0.,  2., -2.])
    """
    if x.dtype.is_complex:
        return complex_numbers.complex(
            rounding.round(complex_numbers.real(x)),
            rounding.round(complex_numbers.imag(x)),
        )
    return rounding.round(x)


def sign(x: Array, /) -> Array:
    """-1, 0 or 1 by each element's sign, NaN for NaN; ``x / |x|`` if complex.

    >>> weft.array_api.sign(weft.tensor([-2.0, 0.0, 3.0]))
    tensor([-1.,  0.,  1.])
    """
    signs = arithmetic.sgn(x)
    return select.where(predicates.isnan(x), x, signs) if x.dtype.is_inexact else signs


# -- two arrays


def _floored(x1: Array, x2: Array) -> Array:
    """The quotient rounded down; that of an infinity, which PyTorch and NumPy have as
    NaN, is infinite."""
    out = arithmetic.floor_divide(x1, x2)
    if not out.dtype.is_floating_point:
        return out
    lost = predicates.isinf(x1) & predicates.isnan(out)
    return select.where(lost, arithmetic.div(x1, x2), out)


floor_divide = _binary("floor_divide", _floored)


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """Each element brought between ``min`` and ``max``, in the array's own dtype.

    >>> weft.array_api.clip(weft.tensor([-2.0, 0.5, 9.0]), 0, 1)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None and max is None:
        return copies.clone(x)
    bounds = [b for b in (min, max) if isinstance(b, Array)]
    shape = broadcast_shapes("clip", x.shape, *(b.shape for b in bounds))
    wide = broadcasting.expand(x, shape)
    limits = (as_tensorlike(b) if b is not None else None for b in (min, max))
    return copies.cast(select.clamp(wide, *limits), x.dtype)
