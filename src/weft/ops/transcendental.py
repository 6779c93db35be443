"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions.

Each statement declares one operator: evaluation, derivative and public function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.eager_kernels import COSTLY, NEVER, SLOW
from weft.core.tensor import Tensor
from weft.ops.copies import cast, in_float32
from weft.ops.elementwise import Public, binary, result_type, unary
from weft.ops.inplace import write_out
from weft.ops.public import Names, public
from weft.ops.select import where


def _rounded_once(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function with the result alone rounded for half types, not each step."""

    def evaluate(x: Any) -> Any:
        if x.dtype.itemsize != 2:
            return fn(x)
        return fn(x.astype(np.float32)).astype(x.dtype)

    return evaluate


@_rounded_once
def _sigmoid_eval(x: Any) -> Any:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    z = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, z) / (1 + z).astype(x.dtype, copy=False)


exp: Public = unary(
    "exp",
    np.exp,
    d=lambda out: out,
    bulk=COSTLY,
    reference=lambda x: np.power(np.e, x),
    cost=12,
    public=Names(array_api=True),
    doc="""e to the power of each element.

    >>> weft.exp(weft.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """,
)

exp2: Public = unary(
    "exp2",
    np.exp2,
    d=lambda out: out * math.log(2),
    reference=lambda x: np.power(2.0, x),
    cost=12,
    doc="""2 to the power of each element.

    >>> weft.exp2(weft.tensor([0.0, 3.0]))
    tensor([1., 8.])
    """,
)


def _expm1(x: Any) -> Any:
    """NumPy's, but that of a complex number that is not finite is ``exp(x) - 1``."""
    result = np.expm1(x)
    if result.dtype.kind != "c":
        return result
    power = np.array(np.exp(x))
    power.real -= 1
    return np.where(np.isfinite(x), result, power)


expm1: Public = unary(
    "expm1",
    _expm1,
    d=lambda out: out + 1,
    bulk=COSTLY,
    reference=lambda x: np.exp(x) - 1,
    cost=16,
    public=Names(ufuncs=("expm1",), array_api=True),
    doc="""``exp(x) - 1``, exact near 0.

    >>> weft.expm1(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 1.7183])
    """,
)

log: Public = unary(
    "log",
    np.log,
    d=lambda x: 1 / x,
    domain=(0.3, 3.0),
    reference=lambda x: np.log2(x) * np.log(2),
    cost=16,
    public=Names(array_api=True),
    doc="""The natural logarithm.

    >>> weft.log(weft.tensor([1.0, 10.0]))
    tensor([0.0000, 2.3026])
    """,
)

log2: Public = unary(
    "log2",
    np.log2,
    d=lambda x: 1 / (x * math.log(2)),
    domain=(0.3, 3.0),
    bulk=NEVER,
    reference=lambda x: np.log(x) / np.log(2),
    cost=26,
    public=Names(array_api=True),
    doc="""The logarithm to base 2.

    >>> weft.log2(weft.tensor([1.0, 8.0]))
    tensor([0., 3.])
    """,
)

log10: Public = unary(
    "log10",
    np.log10,
    d=lambda x: 1 / (x * math.log(10)),
    domain=(0.3, 3.0),
    bulk=NEVER,
    reference=lambda x: np.log(x) / np.log(10),
    cost=26,
    public=Names(array_api=True),
    doc="""The logarithm to base 10.

    >>> weft.log10(weft.tensor([1.0, 20.0]))
    tensor([0.0000, 1.3010])
    """,
)

log1p: Public = unary(
    "log1p",
    np.log1p,
    d=lambda x: 1 / (x + 1),
    domain=(-0.6, 3.0),
    reference=lambda x: np.log(1 + x),
    cost=16,
    public=Names(array_api=True),
    doc="""``log(1 + x)``, exact near 0.

    >>> weft.log1p(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.6931])
    """,
)

sqrt: Public = unary(
    "sqrt",
    np.sqrt,
    d=lambda out: 0.5 / out,
    domain=(0.3, 3.0),
    bulk=COSTLY,
    reference=lambda x: x**0.5,
    cost=6,
    public=Names(array_api=True),
    doc="""The square root.

    >>> weft.sqrt(weft.tensor([1.0, 2.0]))
    tensor([1.0000, 1.4142])
    """,
)

rsqrt: Public = unary(
    "rsqrt",
    _rounded_once(lambda x: 1 / np.sqrt(x)),
    d=lambda x, out: -0.5 * out / x,
    domain=(0.3, 3.0),
    bulk=COSTLY,
    reference=lambda x: x**-0.5,
    cost=8,
    doc="""One over the square root.

    >>> weft.rsqrt(weft.tensor([1.0, 4.0]))
    tensor([1.0000, 0.5000])
    """,
)

sin: Public = unary(
    "sin",
    np.sin,
    d=lambda x: cos(x),
    domain=(-3.0, 3.0),
    reference=lambda x: np.exp(1j * x).imag,
    cost=20,
    bounds=(-1, 1),
    public=Names(array_api=True),
    doc="""The sine.

    >>> weft.sin(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8415])
    """,
)

cos: Public = unary(
    "cos",
    np.cos,
    d=lambda x: -sin(x),
    domain=(-3.0, 3.0),
    reference=lambda x: np.exp(1j * x).real,
    cost=20,
    bounds=(-1, 1),
    public=Names(array_api=True),
    doc="""The cosine.

    >>> weft.cos(weft.tensor([0.0, 1.0]))
    tensor([1.0000, 0.5403])
    """,
)

tan: Public = unary(
    "tan",
    np.tan,
    d=lambda out: out * out + 1,
    domain=(-1.2, 1.2),
    bulk=NEVER,
    reference=lambda x: np.sin(x) / np.cos(x),
    cost=20,
    public=Names(array_api=True),
    doc="""The tangent.

    >>> weft.tan(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5574])
    """,
)

asin: Public = unary(
    "asin",
    np.arcsin,
    d=lambda x: rsqrt(1 - x * x),
    domain=(-0.9, 0.9),
    reference=lambda x: np.arctan2(x, np.sqrt(1 - x * x)),
    cost=20,
    public=Names(also=("arcsin",), array_api=True),
    doc="""The angle whose sine it is.

    >>> weft.asin(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5708])
    """,
)

acos: Public = unary(
    "acos",
    np.arccos,
    d=lambda x: -rsqrt(1 - x * x),
    domain=(-0.9, 0.9),
    reference=lambda x: np.arctan2(np.sqrt(1 - x * x), x),
    cost=20,
    public=Names(also=("arccos",), array_api=True),
    doc="""The angle whose cosine it is.

    >>> weft.acos(weft.tensor([1.0, 0.0]))
    tensor([0.0000, 1.5708])
    """,
)

atan: Public = unary(
    "atan",
    np.arctan,
    d=lambda x: 1 / (x * x + 1),
    domain=(-3.0, 3.0),
    reference=lambda x: np.arctan2(x, 1.0),
    cost=16,
    public=Names(also=("arctan",), array_api=True),
    doc="""The angle whose tangent it is.

    >>> weft.atan(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7854])
    """,
)

sinh: Public = unary(
    "sinh",
    np.sinh,
    d=lambda x: cosh(x),
    reference=lambda x: (np.exp(x) - np.exp(-x)) / 2,
    cost=24,
    public=Names(array_api=True),
    doc="""The hyperbolic sine.

    >>> weft.sinh(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 1.1752])
    """,
)

cosh: Public = unary(
    "cosh",
    np.cosh,
    d=lambda x: sinh(x),
    reference=lambda x: (np.exp(x) + np.exp(-x)) / 2,
    cost=16,
    public=Names(array_api=True),
    doc="""The hyperbolic cosine.

    >>> weft.cosh(weft.tensor([0.0, 1.0]))
    tensor([1.0000, 1.5431])
    """,
)

tanh: Public = unary(
    "tanh",
    np.tanh,
    d=lambda out: 1 - out * out,
    reference=lambda x: 1 - 2 / (np.exp(2 * x) + 1),
    cost=20,
    bounds=(-1, 1),
    public=Names(array_api=True),
    doc="""The hyperbolic tangent.

    >>> weft.tanh(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """,
)

asinh: Public = unary(
    "asinh",
    np.arcsinh,
    d=lambda x: rsqrt(x * x + 1),
    domain=(-3.0, 3.0),
    bulk=NEVER,
    reference=lambda x: np.log(x + np.sqrt(x * x + 1)),
    cost=52,
    public=Names(also=("arcsinh",), array_api=True),
    doc="""The inverse of the hyperbolic sine.

    >>> weft.asinh(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8814])
    """,
)


def _acosh_slope(x: Tensor) -> Tensor:
    """Complex roots are taken one by one: their product has the right branch."""
    if x.dtype.is_complex:
        return rsqrt(x - 1) * rsqrt(x + 1)
    return rsqrt(x * x - 1)


acosh: Public = unary(
    "acosh",
    np.arccosh,
    d=lambda x: _acosh_slope(x),
    domain=(1.3, 3.0),
    bulk=NEVER,
    reference=lambda x: np.log(x + np.sqrt(x * x - 1)),
    cost=48,
    public=Names(also=("arccosh",), array_api=True),
    doc="""The inverse of the hyperbolic cosine.

    >>> weft.acosh(weft.tensor([1.0, 2.0]))
    tensor([0.0000, 1.3170])
    """,
)

atanh: Public = unary(
    "atanh",
    np.arctanh,
    d=lambda x: 1 / (1 - x * x),
    domain=(-0.8, 0.8),
    bulk=NEVER,
    reference=lambda x: (np.log(1 + x) - np.log(1 - x)) / 2,
    cost=28,
    public=Names(also=("arctanh",), array_api=True),
    doc="""The inverse of the hyperbolic tangent.

    >>> weft.atanh(weft.tensor([0.0, 0.5]))
    tensor([0.0000, 0.5493])
    """,
)

sigmoid: Public = unary(
    "sigmoid",
    _sigmoid_eval,
    d=lambda out: out * (1 - out),
    domain=(-3.0, 3.0),
    bulk=SLOW,
    reference=lambda x: (np.tanh(x / 2) + 1) / 2,
    cost=16,
    bounds=(0, 1),
    doc="""``1 / (1 + exp(-x))``, without overflow.

    >>> weft.sigmoid(weft.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """,
)


def _over_square(part: Any, x: Any, y: Any) -> Any:
    square = x * x + y * y
    return where(square == 0, 0, part / square)


atan2: Public = binary(
    "atan2",
    np.arctan2,
    accepts="floating",
    d={
        "x": lambda x, y: _over_square(y, x, y),
        "y": lambda x, y: _over_square(-x, x, y),
    },
    domain=((0.4, 2.0), (-2.0, 2.0)),
    reference=lambda x, y: np.angle(y + 1j * x),
    cost=28,
    public=Names(also=("arctan2",), array_api=True),
    doc="""The angle of the point (other, input); its gradient at the origin is 0.

    >>> weft.atan2(weft.tensor([1.0]), weft.tensor([1.0]))
    tensor([0.7854])
    """,
)

hypot: Public = binary(
    "hypot",
    np.hypot,
    accepts="floating",
    d={
        "x": lambda x, out: where(out == 0, 0, x / out),
        "y": lambda y, out: where(out == 0, 0, y / out),
    },
    domain=((0.4, 2.0), (-2.0, 2.0)),
    bulk=SLOW,
    reference=lambda x, y: np.sqrt(x * x + y * y),
    cost=8,
    public=Names(array_api=True),
    doc="""The length of the vector (input, other); its gradient at 0 is 0.

    >>> weft.hypot(weft.tensor([3.0]), weft.tensor([4.0]))
    tensor([5.])
    """,
)

logaddexp: Public = binary(
    "logaddexp",
    np.logaddexp,
    accepts="floating",
    d={
        "x": lambda x, y: sigmoid(x - y),
        "y": lambda x, y: sigmoid(y - x),
    },
    bulk=SLOW,
    reference=lambda x, y: np.log(np.exp(x) + np.exp(y)),
    cost=36,
    public=Names(inplace=False, array_api=True),
    doc="""``log(exp(input) + exp(other))``, without overflow.

    >>> weft.logaddexp(weft.tensor([1000.0]), weft.tensor([0.0]))
    tensor([1000.])
    """,
)


@public(method=True, inplace="x")
def xlogy(input: Any, other: Any, *, out: Any = None) -> Tensor:
    """``input * log(other)``, and 0 where ``input`` is 0.

    The derivative by ``input`` at 0 is ``log(other)`` where that is finite.

    >>> weft.xlogy(weft.tensor([0.0, 2.0]), weft.tensor([0.0, 1.0]))
    tensor([0., 0.])
    """
    if out is not None:
        return write_out(out, xlogy(input, other), "xlogy")
    if isinstance(other, Tensor):  # the condition has dimensions, `other` perhaps none
        other = cast(other, result_type(input, other))
    none = (input == 0) & ((other <= 0) | (other == math.inf))
    chosen = where(none, 0, input * log(where(none, 1, other)))
    return where(other != other, math.nan, chosen)


@public(method=True)
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """``log2(2**input + 2**other)``, without overflow.

    >>> weft.logaddexp2(weft.tensor([1000.0]), weft.tensor([1000.0]))
    tensor([1001.])
    """
    scale = math.log(2)
    return logaddexp(input * scale, other * scale) / scale


@public(method=True, inplace="0.1")
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))``, the inverse of the sigmoid.

    >>> weft.logit(weft.tensor([0.5, 0.9]))
    tensor([0.0000, 2.1972])
    """
    x = input if eps is None else input.clamp(eps, 1 - eps)
    return in_float32(lambda x: log(x / (1 - x)), x)


@public(method=True, inplace="")
def sinc(input: Tensor) -> Tensor:
    """``sin(pi x) / (pi x)``, and 1 at 0.

    >>> weft.sinc(weft.tensor([0.0, 0.5]))
    tensor([1.0000, 0.6366])
    """

    def plain(x: Tensor) -> Tensor:
        angle = where(x == 0, 1, x) * math.pi
        return where(x == 0, 1, sin(angle) / angle)

    return in_float32(plain, input)


@public(method=True, inplace="", ufuncs=("deg2rad", "radians"))
def deg2rad(input: Tensor) -> Tensor:
    """Degrees to radians.

    >>> weft.deg2rad(weft.tensor([180.0]))
    tensor([3.1416])
    """
    return input * (math.pi / 180)


@public(method=True, inplace="", ufuncs=("rad2deg", "degrees"))
def rad2deg(input: Tensor) -> Tensor:
    """Radians to degrees.

    >>> weft.rad2deg(weft.tensor([0.0]))
    tensor([0.])
    """
    return input * (180 / math.pi)


@public(method=True)
def angle(input: Tensor) -> Tensor:
    """The angle of each complex number; pi for a negative real one.

    >>> weft.angle(weft.tensor([1j]))
    tensor([1.5708])
    """
    if input.dtype.is_complex:
        return atan2(input.imag, input.real)
    return where(input < 0, math.pi, input * 0)
