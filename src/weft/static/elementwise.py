"""Functions of each element under TensorFlow 1's names, beyond ``static.math``'s."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.dtype import as_dtype
from weft.nn import functional as F
from weft.static.building import as_node, function
from weft.static.math import (
    _binary,
    _reduction,
    _unary,
    floordiv,
    identity,
    mod,
    multiply,
    truediv,
)

acos, acosh = _unary(weft.acos, "acos"), _unary(weft.acosh, "acosh", "[1.5]")
asin, asinh = _unary(weft.asin, "asin"), _unary(weft.asinh, "asinh")
atan, atanh = _unary(weft.atan, "atan"), _unary(weft.atanh, "atanh")
cosh, sinh = _unary(weft.cosh, "cosh"), _unary(weft.sinh, "sinh")
digamma, lgamma = _unary(weft.digamma, "digamma"), _unary(weft.lgamma, "lgamma")
erf, erfc = _unary(weft.erf, "erf"), _unary(weft.erfc, "erfc")
expm1, log1p = _unary(weft.expm1, "expm1"), _unary(weft.log1p, "log1p")
is_finite, is_inf = _unary(weft.isfinite, "is_finite"), _unary(weft.isinf, "is_inf")
is_nan = _unary(weft.isnan, "is_nan")
round, rint = _unary(weft.round, "round"), _unary(weft.round, "rint")
atan2 = _binary(weft.atan2, "atan2", "[1.0], [2.0]")
floormod = mod
floor_div = floordiv
truncatemod = _binary(weft.fmod, "truncatemod")
logical_xor = _binary(weft.logical_xor, "logical_xor", "[True], [False]")
squared_difference = _binary(
    lambda x, y: (x - y) ** 2, "squared_difference", "[3.0], [2.0]"
)
xdivy = _binary(
    lambda x, y: weft.where(x == 0, 0.0, x / weft.where(x == 0, 1.0, y)),
    "xdivy", "[3.0], [2.0]",
)  # fmt: skip


def _imaginary(x: Any) -> Any:
    return weft.imag(x) if x.dtype.is_complex else weft.zeros_like(x)


xlogy = _binary(weft.xlogy, "math.xlogy", "[3.0], [2.0]")
xlog1py = _binary(weft.special.xlog1py, "math.xlog1py", "[3.0], [2.0]")
truncatediv = _binary(lambda x, y: weft.trunc(x / y).to(x.dtype), "truncatediv")
igamma = _binary(weft.igamma, "igamma", "[3.0], [2.0]")
igammac = _binary(weft.igammac, "igammac", "[3.0], [2.0]")
zeta = _binary(weft.special.zeta, "zeta", "[3.0], [2.0]")
erfinv, ndtri = (
    _unary(weft.erfinv, "math.erfinv"),
    _unary(weft.special.ndtri, "math.ndtri"),
)
real, imag = _unary(weft.real, "real"), _unary(_imaginary, "imag")
conj, angle = _unary(weft.conj, "conj"), _unary(weft.angle, "angle")
log_sigmoid = _unary(F.logsigmoid, "log_sigmoid")
complex = _binary(weft.complex, "complex", "[3.0], [2.0]")
reduce_logsumexp = _reduction(weft.logsumexp, "reduce_logsumexp")
reduce_variance = _reduction(
    lambda x, dims, keep: weft.var(x, dims, correction=0, keepdim=keep),
    "reduce_variance",
)
reduce_std = _reduction(
    lambda x, dims, keep: weft.std(x, dims, correction=0, keepdim=keep), "reduce_std"
)


@function
def div(x: Any, y: Any) -> Any:
    """The quotient as Python 2 had it: of whole numbers, rounded down.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run([weft.static.div([7], [2]), weft.static.div([7.0], [2.0])])
    [array([3]), array([3.5], dtype=float32)]
    """
    return (truediv if as_node(x).dtype.is_inexact else floordiv)(x, y)


@function
def div_no_nan(x: Any, y: Any) -> Any:
    """The quotient, and zero where the divisor is zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.div_no_nan([1.0, 1.0], [2.0, 0.0]))
    array([0.5, 0. ], dtype=float32)
    """
    x, y = as_node(x), as_node(y)
    return weft.where(y == 0, 0.0, x / weft.where(y == 0, 1.0, y))


def _cast(name: str, dtype: Any) -> Any:
    def call(x: Any) -> Any:
        return as_node(x).to(dtype)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""The tensor as {dtype.name}.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.{name}([1, 2]).dtype
    weft.{dtype.name}
    """
    return function(call)


to_float, to_double = _cast("to_float", weft.float32), _cast("to_double", weft.float64)
to_int32, to_int64 = _cast("to_int32", weft.int32), _cast("to_int64", weft.int64)


@function
def saturate_cast(value: Any, dtype: Any) -> Any:
    """The tensor in another dtype, limited to what it can hold.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.saturate_cast([300.0, -1.0], weft.uint8))
    array([255,   0], dtype=uint8)
    """
    wanted = as_dtype(dtype)
    if wanted.is_inexact:
        return as_node(value).to(wanted)
    limits = np.iinfo(wanted.np)
    return weft.clamp(as_node(value), int(limits.min), int(limits.max)).to(wanted)


@function
def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None) -> Any:
    """The sum of several tensors.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.accumulate_n([1.0, 2.0])))
    3.0
    """
    from weft.static.math import add_n

    return add_n(inputs)


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """A number times a tensor.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.scalar_mul(2.0, [1.0, 2.0]))
    array([2., 4.], dtype=float32)
    """
    return multiply(scalar, x, name)


@function
def multiply_no_nan(x: Any, y: Any) -> Any:
    """The product, and zero where the second factor is zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.math.multiply_no_nan([np.inf, 2.0], [0.0, 3.0]))
    array([0., 6.], dtype=float32)
    """
    x, y = as_node(x), as_node(y)
    return weft.where(y == 0, 0.0, x * y)


@function
def reciprocal_no_nan(x: Any) -> Any:
    """The reciprocal, and zero of zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.math.reciprocal_no_nan([0.0, 4.0]))
    array([0.  , 0.25], dtype=float32)
    """
    return div_no_nan(1.0, x)


@function
def identity_n(input: Any) -> list[Any]:
    """A new node with the value of each.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     [float(v) for v in session.run(weft.static.identity_n([1.0, 2.0]))]
    [1.0, 2.0]
    """
    return [identity(x) for x in input]
