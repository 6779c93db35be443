"""Arithmetic on elements: sums, products, quotients, signs and powers.

Each statement declares one operator: its evaluation, its partial derivatives
and its public function. Transcendental functions are in ``transcendental``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.eager_kernels import COSTLY, NEVER, SLOW
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError
from weft.ops.complex_numbers import real
from weft.ops.copies import in_float32
from weft.ops.creation import ones_like
from weft.ops.elementwise import (
    FORMS,
    Public,
    as_operand,
    binary,
    prepare,
    result_type,
    times,
    times_conj,
    unary,
)
from weft.ops.elementwise import conj as conj_value
from weft.ops.inplace import arithmetic_form, write_out
from weft.ops.public import Names, public
from weft.ops.rounding import trunc
from weft.ops.select import where
from weft.ops.transcendental import log

_add: Public = binary(
    "add",
    np.add,
    vjp={"x": lambda g: g, "y": lambda g: g},
    jvp={"x": lambda t: t, "y": lambda t: t},
    reference=lambda x, y: x - (-y),
    commutes=True,
    identity=0,
    terms="all",
    infix="+",
    numbers="all",
    public=None,
    doc="""Element-wise sum.

    >>> weft.tensor([1, 2]) + 3
    tensor([4, 5])
    """,
)

_sub: Public = binary(
    "sub",
    np.subtract,
    accepts="number",
    vjp={"x": lambda g: g, "y": lambda g: -g},
    jvp={"x": lambda t: t, "y": lambda t: -t},
    reference=lambda x, y: x + (-1.0) * y,
    infix="-",
    terms="all",
    numbers="all",
    public=None,
    doc="""Element-wise difference.

    >>> weft.tensor([1, 2]) - 3
    tensor([-2, -1])
    """,
)

mul: Public = binary(
    "mul",
    np.multiply,
    vjp={
        "x": lambda g, y: times_conj(g, y),
        "y": lambda g, x: times_conj(g, x),
    },
    jvp={"x": lambda t, y: times(t, y), "y": lambda t, x: times(t, x)},
    reference=lambda x, y: np.copysign(1, y) * x * np.abs(y),
    commutes=True,
    identity=1,
    terms="each",
    infix="*",
    numbers="all",
    public=Names(
        inplace=arithmetic_form(np.multiply), also=("multiply",), array_api="multiply"
    ),
    doc="""Element-wise product.

    >>> weft.tensor([1.0, 2.0]) * weft.tensor([3.0, 4.0])
    tensor([3., 8.])
    """,
)


def _inverse(y: Any) -> Any:
    """``1 / y``, also for the Python number 0."""
    if type(y) in (int, float) and y == 0:
        return math.copysign(math.inf, y)
    return 1 / y


_true_divide: Public = binary(
    "div",
    np.true_divide,
    accepts="inexact",
    d={"x": lambda y: _inverse(y), "y": lambda y, out: -out / y},
    domain=((-2.0, 2.0), (0.5, 2.0)),
    reference=lambda x, y: x * y**-1.0,
    cost=4,
    terms="first",
    infix="/",
    public=None,
    doc="""Element-wise quotient.

    >>> weft.tensor([1, 2]) / 2
    tensor([0.5000, 1.0000])
    """,
)


@public(method=True, inplace=arithmetic_form(np.add), ufuncs=("add",), array_api=True)
def add(input: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Tensor:
    """``input + alpha * other``.

    >>> weft.add(weft.tensor([1, 2]), weft.tensor([3, 4]), alpha=10)
    tensor([31, 42])
    """
    if out is not None:
        return write_out(out, add(input, other, alpha=alpha), "add")
    if type(alpha) is not int or alpha != 1:
        other = scaled("add", input, other, alpha)
    return _add(input, other)


def scaled(name: str, input: Any, other: Any, alpha: Any) -> Any:
    """``alpha * other``, where alpha must not raise the operands' category."""
    dtype = result_type(as_operand(name, input), as_operand(name, other))
    is_tensor = isinstance(alpha, Tensor)
    if is_tensor and alpha.ndim:
        raise DTypeError(
            f"{name}: expected alpha to be a number or a tensor of no dimensions, got "
            f"shape {alpha.shape}"
        )
    kind = alpha.dtype if is_tensor else dtypes.scalar_dtype(alpha)
    if kind.category > max(dtype.category, dtypes.INT):
        raise ArgumentError(
            f"{name}: expected alpha to be an integer for {dtype.name} operands, got "
            f"{alpha!r}"
        )
    if dtype is dtypes.bool_:
        alpha = alpha.to(dtypes.bool_) if is_tensor else bool(alpha)
    return mul(other, alpha)


@public(
    method=True,
    inplace=arithmetic_form(np.subtract),
    also=("subtract",),
    ufuncs=("subtract",),
    array_api="subtract",
)
def sub(input: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Tensor:
    """``input - alpha * other``.

    >>> weft.sub(weft.tensor([1, 2]), weft.tensor([3, 4]), alpha=10)
    tensor([-29, -38])
    """
    if out is not None:
        return write_out(out, sub(input, other, alpha=alpha), "sub")
    if type(alpha) is not int or alpha != 1:
        other = scaled("sub", input, other, alpha)
    return _sub(input, other)


@public()
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``other - alpha * input``.

    >>> weft.rsub(weft.tensor([1, 2]), 10)
    tensor([9, 8])
    """
    return sub(other, input, alpha=alpha)


@public(
    method=True,
    inplace=arithmetic_form(np.true_divide),
    also=("divide", "true_divide"),
    ufuncs=("divide",),
    array_api="divide",
)
def div(
    input: Any, other: Any, *, rounding_mode: str | None = None, out: Any = None
) -> Tensor:
    """Element-wise quotient, rounded down or towards zero if asked.

    >>> weft.div(weft.tensor([7, -7]), 2, rounding_mode="floor")
    tensor([ 3, -4])
    """
    if out is not None:
        return write_out(out, div(input, other, rounding_mode=rounding_mode), "div")
    if rounding_mode is None:
        return _true_divide(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return _truncated(input, other)
    raise ArgumentError(
        f"div: rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}"
    )


def _truncated(input: Any, other: Any) -> Tensor:
    x, y = prepare("div", "real", input, other)
    if isinstance(x, Tensor) and x.dtype.is_floating_point:
        return trunc(_true_divide(x, y))
    return floor_divide(abs(x), abs(y)) * sign(x) * sign(y)


def _integer_divisor(name: str, eval: Any) -> Any:
    """An integer division that refuses a zero divisor instead of answering 0."""

    def checked(x: Any, y: Any) -> Any:
        result = eval(x, y)
        if result.dtype.kind in "iub" and np.any(np.equal(y, 0)):
            raise ZeroDivision(f"{name}: integer division by zero")
        return result

    return checked


class ZeroDivision(ArgumentError, ZeroDivisionError):
    """An integer division by zero."""


floor_divide: Public = binary(
    "floor_divide",
    _integer_divisor("floor_divide", np.floor_divide),
    refuses={"y": 0},
    accepts="real number",
    d={"x": lambda x: x * 0, "y": lambda y: y * 0},
    domain=((-7.0, 7.0), (0.6, 2.0)),
    bulk=SLOW,
    reference=lambda x, y: np.floor(x / y),
    cost=70,
    public=Names(ufuncs=("floor_divide",)),
    doc="""The quotient rounded down.

    >>> weft.tensor([7, -7]) // 2
    tensor([ 3, -4])
    """,
)

remainder: Public = binary(
    "remainder",
    _integer_divisor("remainder", np.remainder),
    refuses={"y": 0},
    accepts="real number",
    d={"x": lambda x: ones_like(x), "y": lambda x, y: -floor_divide(x, y)},
    domain=((-7.0, 7.0), (0.6, 2.0)),
    bulk=SLOW,
    reference=lambda x, y: x - y * np.floor(x / y),
    cost=64,
    public=Names(ufuncs=("remainder",), array_api=True),
    doc="""The remainder of a division, with the divisor's sign (Python's ``%``).

    >>> weft.tensor([7, -7]) % 3
    tensor([1, 2])
    """,
)

fmod: Public = binary(
    "fmod",
    _integer_divisor("fmod", np.fmod),
    refuses={"y": 0},
    accepts="real number",
    d={"x": lambda x: ones_like(x), "y": lambda x, y: -trunc(x / y)},
    domain=((-7.0, 7.0), (0.6, 2.0)),
    bulk=SLOW,
    reference=lambda x, y: x - y * np.trunc(x / y),
    cost=56,
    exact=True,
    public=Names(ufuncs=("fmod",)),
    doc="""The remainder of a division, with the dividend's sign (C's ``fmod``).

    >>> weft.fmod(weft.tensor([7, -7]), 3)
    tensor([ 1, -1])
    """,
)


# -- signs


neg: Public = unary(
    "neg",
    np.negative,
    accepts="number",
    vjp={"x": lambda g: -g},
    linear=True,
    reference=lambda x: 0.0 - x,
    keeps_finite=True,
    exact=True,
    public=Names(also=("negative",), array_api="negative"),
    doc="""Each element with its sign turned.

    >>> -weft.tensor([1, -2])
    tensor([-1,  2])
    """,
)

abs: Public = unary(
    "abs",
    np.abs,
    accepts="all",
    returns="real",
    vjp={"x": lambda g, x: g * x.sgn()},
    jvp={"x": lambda t, x: real(t * conj_value(x.sgn()))},
    domain=(0.3, 2.0),
    reference=lambda x: np.sqrt(x * x),
    keeps_finite=True,
    exact=True,
    public=Names(also=("absolute",), ufuncs=("fabs",), array_api=True),
    doc="""The absolute value; its derivative at 0 is taken as 0.

    >>> abs(weft.tensor([-1.5, 2.0]))
    tensor([1.5000, 2.0000])
    """,
)


def _sign_eval(x: Any) -> Any:
    if x.dtype.kind == "b":
        return x.copy()
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)  # 0 at NaN


sign: Public = unary(
    "sign",
    _sign_eval,
    accepts="real",
    d=lambda x: x * 0,
    domain=(0.3, 2.0),
    bulk=COSTLY,
    reference=lambda x: x / np.abs(x),
    bounds=(-1, 1),
    exact=True,
    doc="""-1, 0 or 1 by each element's sign; 0 at NaN.

    >>> weft.sign(weft.tensor([-2.0, 0.0, 3.0]))
    tensor([-1.,  0.,  1.])
    """,
)


@public(method=True, inplace="")
def sgn(input: Tensor) -> Tensor:
    """The sign; for complex numbers ``x / |x|``, and 0 at 0.

    >>> weft.sgn(weft.tensor([3 + 4j]))
    tensor([0.6000+0.8000j])
    """
    if not input.dtype.is_complex:
        return sign(input)
    size = abs(input)
    return where(size == 0, 0, input / where(size == 0, 1, size))


@public(method=True, ufuncs=("positive",), array_api=True)
def positive(input: Tensor) -> Tensor:
    """The tensor itself (unary ``+``).

    >>> +weft.tensor([1])
    tensor([1])
    """
    if input.dtype is dtypes.bool_:
        raise DTypeError("positive: expected a number dtype, got bool")
    return input


copysign: Public = binary(
    "copysign",
    np.copysign,
    accepts="floating",
    d={"x": lambda x, out: sign(x) * sign(out), "y": lambda y: y * 0},
    domain=((0.3, 2.0), (0.3, 2.0)),
    bulk=COSTLY,
    reference=lambda x, y: np.abs(x) * np.sign(y),
    cost=4,
    exact=True,
    public=Names(array_api=True),
    doc="""The size of one element with the sign of the other.

    >>> weft.copysign(weft.tensor([1.0, 2.0]), weft.tensor([-1.0, 1.0]))
    tensor([-1.,  2.])
    """,
)


# -- powers


square: Public = unary(
    "square",
    np.square,
    accepts="number",
    d=lambda x: 2 * x,
    reference=lambda x: x**2,
    public=Names(array_api=True),
    doc="""Each element times itself.

    >>> weft.square(weft.tensor([1.0, -2.0]))
    tensor([1., 4.])
    """,
)

reciprocal: Public = unary(
    "reciprocal",
    lambda x: 1 / x,
    d=lambda out: -out * out,
    domain=(0.5, 2.0),
    reference=lambda x: x**-1.0,
    cost=4,
    public=Names(ufuncs=("reciprocal",), array_api=True),
    doc="""One over each element.

    >>> weft.reciprocal(weft.tensor([1.0, 4.0]))
    tensor([1.0000, 0.2500])
    """,
)


def _pow_eval(x: Any, y: Any) -> Any:
    if type(y) is not np.ndarray or y.dtype.kind != "i" or not (y < 0).any():
        result = np.power(x, y)
        return result if result.dtype.char != "b" else result.astype(x.dtype)
    # 1 / x**n cut to a whole number: 0 unless x is 1 or -1
    odd = np.where(np.remainder(y, 2) == 1, x, 1)
    inverse = np.where(np.abs(x) == 1, odd, 0)
    result = np.where(np.less(y, 0), inverse, np.power(x, np.maximum(y, 0)))
    return result.astype(x.dtype)


_pow: Public = binary(
    "pow",
    _pow_eval,
    d={"x": lambda x, y: _pow_dx(x, y), "y": lambda x, y, out: _pow_dy(x, y, out)},
    domain=((0.4, 2.0), (-2.0, 2.0)),
    bulk=NEVER,
    reference=lambda x, y: np.exp(y * np.log(x)),
    cost=30,
    public=None,
    doc="""Each element to a power.

    The derivative by the base is 0 where the exponent is 0, and the one by the
    exponent is 0 where the base is 0.

    >>> weft.tensor([1.0, 2.0, 3.0]) ** 2
    tensor([1., 4., 9.])
    """,
)


def _pow_dx(x: Any, y: Any) -> Any:
    if not isinstance(y, Tensor):
        return 0.0 * x if y == 0 else x * y if y == 2 else y * _pow(x, y - 1)
    return where(y == 0, 0, y * _pow(x, where(y == 0, 1, y - 1)))


def _pow_dy(x: Any, y: Any, out: Tensor) -> Any:
    x = x if isinstance(x, Tensor) else ones_like(out) * x
    return where(x == 0, 0, out * log(where(x == 0, 1, x)))


def _power_by(power: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``pow``, by a function that is given what it does not refuse."""

    def pow(input: Any, exponent: Any, *, out: Any = None) -> Tensor:
        if out is not None:
            return write_out(out, pow(input, exponent), "pow")
        below = type(exponent) is int and exponent < 0
        if below and isinstance(input, Tensor) and not input.dtype.is_inexact:
            raise ArgumentError(
                "pow: integers to negative integer powers are not allowed; convert the "
                "base with .float() first"
            )
        return power(input, exponent)

    pow.__qualname__ = "pow"
    pow.__doc__ = """Each element to a power.

    >>> weft.pow(weft.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    return pow


_powers = public(method=True, inplace="2", ufuncs=("power",), array_api=True)
pow = _powers(_power_by(_pow))
FORMS[pow] = lambda slow: _power_by(FORMS[_pow](slow))


@public(method=True, inplace="1")
def float_power(input: Any, exponent: Any, *, out: Any = None) -> Tensor:
    """Each element to a power, in float64 (or complex128).

    >>> weft.float_power(weft.tensor([1, 2, 3]), 2)
    tensor([1., 4., 9.], dtype=weft.float64)
    """
    if out is not None:
        return write_out(out, float_power(input, exponent), "float_power")
    operands = [as_operand("float_power", v) for v in (input, exponent)]
    has_complex = result_type(*operands).is_complex
    wide = dtypes.complex128 if has_complex else dtypes.float64
    return _pow(*[x.to(wide) if isinstance(x, Tensor) else x for x in operands])


@public(method=True, inplace="x")
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """``input * 2**other``.

    >>> weft.ldexp(weft.tensor([1.0, 3.0]), weft.tensor([2, 1]))
    tensor([4., 6.])
    """
    return mul(input, _pow(2.0, other))


# -- several steps in one


@public(method=True, inplace="x, 0.5")
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``.

    >>> weft.lerp(weft.tensor([0.0]), weft.tensor([10.0]), 0.25)
    tensor([2.5000])
    """
    if not isinstance(weight, Tensor):
        return in_float32(lambda x, y: x + weight * (y - x), input, end)
    return in_float32(lambda x, y, w: x + w * (y - x), input, end, weight)


@public(method=True, inplace="x, x")
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
    """``input + value * tensor1 * tensor2``.

    >>> weft.addcmul(weft.ones(1), weft.ones(1) * 2, weft.ones(1) * 3, value=0.5)
    tensor([4.])
    """
    return in_float32(lambda x, y, z: x + value * y * z, input, tensor1, tensor2)


@public(method=True, inplace="x, x")
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
    """``input + value * tensor1 / tensor2``.

    >>> weft.addcdiv(weft.ones(1), weft.ones(1) * 3, weft.ones(1) * 2)
    tensor([2.5000])
    """
    return in_float32(lambda x, y, z: x + value * y / z, input, tensor1, tensor2)
