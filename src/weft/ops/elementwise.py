"""Element-wise operators of arithmetic, comparison, logic and rounding.

Each statement declares one operator: its evaluation, its partial derivatives
and its public function. Transcendental functions are in ``transcendental``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.elementwise import (
    Public,
    _wrap_int,
    as_operand,
    binary,
    elementwise_batch,
    elementwise_type,
    integer_samples,
    prepare,
    result_type,
    samples_in,
    times,
    times_conj,
    unary,
)
from weft.core.elementwise import conj as conj_value
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError

# -- arithmetic

_add: Public = binary(
    "add",
    np.add,
    vjp={"x": lambda g: g, "y": lambda g: g},
    jvp={"x": lambda t: t, "y": lambda t: t},
    reference=lambda x, y: x - (-y),
    doc="""Element-wise sum.

    >>> weft.tensor([1, 2]) + 3
    tensor([4, 5], shape=(2,), dtype=int64)
    """,
)

_sub: Public = binary(
    "sub",
    np.subtract,
    accepts="number",
    vjp={"x": lambda g: g, "y": lambda g: -g},
    jvp={"x": lambda t: t, "y": lambda t: -t},
    reference=lambda x, y: x + (-1.0) * y,
    doc="""Element-wise difference.

    >>> weft.tensor([1, 2]) - 3
    tensor([-2, -1], shape=(2,), dtype=int64)
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
    doc="""Element-wise product.

    >>> weft.tensor([1.0, 2.0]) * weft.tensor([3.0, 4.0])
    tensor([3., 8.], shape=(2,), dtype=float32)
    """,
)

_true_divide: Public = binary(
    "div",
    np.true_divide,
    accepts="inexact",
    d={"x": lambda y: 1 / y, "y": lambda y, out: -out / y},
    domain=((-2.0, 2.0), (0.5, 2.0)),
    reference=lambda x, y: x * y**-1.0,
    doc="""Element-wise quotient.

    >>> weft.tensor([1, 2]) / 2
    tensor([0.5000, 1.0000], shape=(2,), dtype=float32)
    """,
)


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``.

    >>> weft.add(weft.tensor([1, 2]), weft.tensor([3, 4]), alpha=10)
    tensor([31, 42], shape=(2,), dtype=int64)
    """
    return _add(input, other if alpha == 1 else _scaled("add", input, other, alpha))


def _scaled(name: str, input: Any, other: Any, alpha: Any) -> Any:
    """``alpha * other``, where alpha must not raise the operands' category."""
    dtype = result_type(as_operand(name, input), as_operand(name, other))
    if dtypes.scalar_dtype(alpha).category > max(dtype.category, dtypes.INT):
        raise ArgumentError(
            f"{name}: expected alpha to be an integer for {dtype.name} operands, got "
            f"{alpha!r}"
        )
    return mul(other, bool(alpha) if dtype is dtypes.bool_ else alpha)


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``.

    >>> weft.sub(weft.tensor([1, 2]), weft.tensor([3, 4]), alpha=10)
    tensor([-29, -38], shape=(2,), dtype=int64)
    """
    return _sub(input, other if alpha == 1 else _scaled("sub", input, other, alpha))


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``other - alpha * input``.

    >>> weft.rsub(weft.tensor([1, 2]), 10)
    tensor([9, 8], shape=(2,), dtype=int64)
    """
    return sub(other, input, alpha=alpha)


def as_tensorlike(value: Any) -> Tensor:
    """A tensor of whatever can stand for one."""
    if isinstance(value, Tensor):
        return value
    from weft.ops.creation import as_tensor

    return as_tensor(value)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Element-wise quotient, rounded down or towards zero if asked.

    >>> weft.div(weft.tensor([7, -7]), 2, rounding_mode="floor")
    tensor([ 3, -4], shape=(2,), dtype=int64)
    """
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
    accepts="real number",
    d={"x": lambda x: x * 0, "y": lambda y: y * 0},
    domain=((-7.0, 7.0), (0.6, 2.0)),
    reference=lambda x, y: np.floor(x / y),
    doc="""The quotient rounded down.

    >>> weft.tensor([7, -7]) // 2
    tensor([ 3, -4], shape=(2,), dtype=int64)
    """,
)

remainder: Public = binary(
    "remainder",
    _integer_divisor("remainder", np.remainder),
    accepts="real",
    d={"x": lambda x: ones_like(x), "y": lambda x, y: -floor_divide(x, y)},
    domain=((-7.0, 7.0), (0.6, 2.0)),
    reference=lambda x, y: x - y * np.floor(x / y),
    doc="""The remainder of a division, with the divisor's sign (Python's ``%``).

    >>> weft.tensor([7, -7]) % 3
    tensor([1, 2], shape=(2,), dtype=int64)
    """,
)

fmod: Public = binary(
    "fmod",
    _integer_divisor("fmod", np.fmod),
    accepts="real",
    d={"x": lambda x: ones_like(x), "y": lambda x, y: -trunc(x / y)},
    domain=((-7.0, 7.0), (0.6, 2.0)),
    reference=lambda x, y: x - y * np.trunc(x / y),
    doc="""The remainder of a division, with the dividend's sign (C's ``fmod``).

    >>> weft.fmod(weft.tensor([7, -7]), 3)
    tensor([ 1, -1], shape=(2,), dtype=int64)
    """,
)


def ones_like(x: Tensor) -> Tensor:
    from weft.ops.creation import full_like

    return full_like(x, 1)


neg: Public = unary(
    "neg",
    np.negative,
    accepts="number",
    vjp={"x": lambda g: -g},
    linear=True,
    reference=lambda x: 0.0 - x,
    doc="""Each element with its sign turned.

    >>> -weft.tensor([1, -2])
    tensor([-1,  2], shape=(2,), dtype=int64)
    """,
)

abs: Public = unary(
    "abs",
    np.abs,
    accepts="all",
    returns="real",
    vjp={"x": lambda g, x: g * sgn(x)},
    jvp={"x": lambda t, x: real(t * conj_value(sgn(x)))},
    domain=(0.3, 2.0),
    reference=lambda x: np.sqrt(x * x),
    doc="""The absolute value; its derivative at 0 is taken as 0.

    >>> abs(weft.tensor([-1.5, 2.0]))
    tensor([1.5000, 2.0000], shape=(2,), dtype=float32)
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
    reference=lambda x: x / np.abs(x),
    doc="""-1, 0 or 1 by each element's sign; 0 at NaN.

    >>> weft.sign(weft.tensor([-2.0, 0.0, 3.0]))
    tensor([-1.,  0.,  1.], shape=(3,), dtype=float32)
    """,
)


def sgn(input: Tensor) -> Tensor:
    """The sign; for complex numbers ``x / |x|``, and 0 at 0.

    >>> weft.sgn(weft.tensor([3 + 4j]))
    tensor([0.6000+0.8000j], shape=(1,), dtype=complex64)
    """
    if not input.dtype.is_complex:
        return sign(input)
    size = abs(input)
    return where(size == 0, 0, input / where(size == 0, 1, size))


def positive(input: Tensor) -> Tensor:
    """The tensor itself (unary ``+``).

    >>> +weft.tensor([1])
    tensor([1], shape=(1,), dtype=int64)
    """
    if input.dtype is dtypes.bool_:
        raise DTypeError("positive: expected a number dtype, got bool")
    return input


square: Public = unary(
    "square",
    np.square,
    accepts="number",
    d=lambda x: 2 * x,
    reference=lambda x: x**2,
    doc="""Each element times itself.

    >>> weft.square(weft.tensor([1.0, -2.0]))
    tensor([1., 4.], shape=(2,), dtype=float32)
    """,
)

reciprocal: Public = unary(
    "reciprocal",
    lambda x: 1 / x,
    d=lambda out: -out * out,
    domain=(0.5, 2.0),
    reference=lambda x: x**-1.0,
    doc="""One over each element.

    >>> weft.reciprocal(weft.tensor([1.0, 4.0]))
    tensor([1.0000, 0.2500], shape=(2,), dtype=float32)
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
    reference=lambda x, y: np.exp(y * np.log(x)),
    doc="""Each element to a power.

    The derivative by the base is 0 where the exponent is 0, and the one by the
    exponent is 0 where the base is 0.

    >>> weft.tensor([1.0, 2.0, 3.0]) ** 2
    tensor([1., 4., 9.], shape=(3,), dtype=float32)
    """,
)


def _pow_dx(x: Any, y: Any) -> Any:
    if not isinstance(y, Tensor):
        return 0.0 * x if y == 0 else x * y if y == 2 else y * _pow(x, y - 1)
    return where(y == 0, 0, y * _pow(x, where(y == 0, 1, y - 1)))


def _pow_dy(x: Any, y: Any, out: Tensor) -> Any:
    from weft.ops.transcendental import log

    x = x if isinstance(x, Tensor) else ones_like(out) * x
    return where(x == 0, 0, out * log(where(x == 0, 1, x)))


def pow(input: Any, exponent: Any) -> Tensor:
    """Each element to a power.

    >>> weft.pow(weft.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.], shape=(3,), dtype=float32)
    """
    below = type(exponent) is int and exponent < 0
    if below and isinstance(input, Tensor) and not input.dtype.is_inexact:
        raise ArgumentError(
            "pow: integers to negative integer powers are not allowed; convert the "
            "base with .float() first"
        )
    return _pow(input, exponent)


# -- choosing between values


def _half_where_equal(x: Any, y: Any, better: Any) -> Tensor:
    """The share of the gradient: one for the winner, a half each at a tie."""
    return where(x == y, 0.5, where(better, 1.0, 0.0).to(_dtype_of(x, y)))


def _dtype_of(x: Any, y: Any) -> Any:
    return x.dtype if isinstance(x, Tensor) else y.dtype


maximum: Public = binary(
    "maximum",
    np.maximum,
    accepts="ordered",
    d={
        "x": lambda x, y: _half_where_equal(x, y, x > y),
        "y": lambda x, y: _half_where_equal(x, y, y > x),
    },
    reference=lambda x, y: (x + y + np.abs(x - y)) / 2,
    doc="""The larger of two elements; a NaN wins, and a tie shares its gradient.

    >>> weft.maximum(weft.tensor([1.0, 5.0]), weft.tensor([3.0, 2.0]))
    tensor([3., 5.], shape=(2,), dtype=float32)
    """,
)

minimum: Public = binary(
    "minimum",
    np.minimum,
    accepts="ordered",
    d={
        "x": lambda x, y: _half_where_equal(x, y, x < y),
        "y": lambda x, y: _half_where_equal(x, y, y < x),
    },
    reference=lambda x, y: (x + y - np.abs(x - y)) / 2,
    doc="""The smaller of two elements; a NaN wins, and a tie shares its gradient.

    >>> weft.minimum(weft.tensor([1.0, 5.0]), weft.tensor([3.0, 2.0]))
    tensor([1., 2.], shape=(2,), dtype=float32)
    """,
)


def _where_type(condition: Any, x: Any, y: Any) -> TensorType:
    if condition.dtype is not dtypes.bool_:
        raise DTypeError(
            f"where: expected a boolean condition, got {condition.dtype.name}"
        )
    plain = [t for t in (x, y) if isinstance(t, TensorType)]
    elementwise_type("where", "all", "same")(
        *[TensorType(condition.shape, plain[0].dtype)], *plain
    )
    return plain[0]


def _where_samples(rng: np.random.Generator) -> Any:
    for shape in ((3, 4), (), (0, 2)):
        x, y = rng.uniform(-2, 2, (2, *shape))
        yield Sample((rng.uniform(size=shape) < 0.5, x, y))


where_op: Op = define(
    "where",
    inputs="condition x y",
    eval=np.where,
    type=_where_type,
    vjp={
        "x": lambda g, condition: where_op(condition, g, zeros_like(g)),
        "y": lambda g, condition: where_op(condition, zeros_like(g), g),
    },
    jvp={
        "x": lambda t, condition: where_op(condition, t, zeros_like(t)),
        "y": lambda t, condition: where_op(condition, zeros_like(t), t),
    },
    batch=elementwise_batch,
    samples=_where_samples,
    reference=lambda c, x, y: x * c + y * (1 - c),
)


def zeros_like(x: Tensor) -> Tensor:
    from weft.ops.creation import full_like

    return full_like(x, 0)


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """``input`` where the condition holds, ``other`` elsewhere.

    An element that was not chosen gets a gradient of exactly zero.

    >>> x = weft.tensor([-1.0, 4.0])
    >>> weft.where(x > 0, x, 0.0)
    tensor([0., 4.], shape=(2,), dtype=float32)
    """
    if input is None and other is None:
        from weft.ops.index import nonzero

        return nonzero(as_tensorlike(condition), as_tuple=True)
    condition = as_tensorlike(condition)
    if condition.dtype is not dtypes.bool_:
        raise DTypeError(
            f"where: expected a boolean condition, got {condition.dtype.name}"
        )
    return where_op(*_align(condition, input, other))


def _align(condition: Tensor, input: Any, other: Any) -> tuple[Tensor, ...]:
    """Three tensors of one shape, the two values of one dtype."""
    from weft.core.elementwise import broadcast_shapes, result_type
    from weft.ops.movement import cast, expand

    values = [as_operand("where", v) for v in (input, other)]
    dtype = result_type(*values)
    tensors = [v if isinstance(v, Tensor) else scalar(v, dtype) for v in values]
    shape = broadcast_shapes("where", condition.shape, *(t.shape for t in tensors))
    x, y = (cast(t, dtype) for t in tensors)
    return tuple(t if t.shape == shape else expand(t, shape) for t in (condition, x, y))


def scalar(value: Any, dtype: Any) -> Tensor:
    """A 0-d tensor of a Python number."""
    return Tensor(np.asarray(_wrap_int(value, dtype), dtype.np))


def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Each element brought between ``min`` and ``max``.

    >>> weft.clamp(weft.tensor([-2.0, 0.5, 9.0]), min=0, max=1)
    tensor([0.0000, 0.5000, 1.0000], shape=(3,), dtype=float32)
    """
    if min is None and max is None:
        raise ArgumentError("clamp: expected at least one of min and max")
    out = input
    if min is not None:
        out = where(_beyond(out < min, min), min, out)
    if max is not None:
        out = where(_beyond(out > max, max), max, out)
    return out


def _beyond(outside: Tensor, limit: Any) -> Tensor:
    """Where a limit applies: outside of it, and everywhere if it is NaN."""
    if isinstance(limit, Tensor):
        return outside | isnan(limit) if limit.dtype.is_inexact else outside
    return logical_not(outside) | outside if limit != limit else outside


def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Each element, but at least ``min``.

    >>> weft.clamp_min(weft.tensor([-2.0, 0.5]), 0)
    tensor([0.0000, 0.5000], shape=(2,), dtype=float32)
    """
    return clamp(input, min=min)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Each element, but at most ``max``.

    >>> weft.clamp_max(weft.tensor([-2.0, 0.5]), 0)
    tensor([-2.,  0.], shape=(2,), dtype=float32)
    """
    return clamp(input, max=max)


clip = clamp


def nan_to_num(
    input: Tensor,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """NaN and infinities replaced by finite numbers.

    >>> weft.nan_to_num(weft.tensor([float("nan"), 1.0]))
    tensor([0., 1.], shape=(2,), dtype=float32)
    """
    if not input.dtype.is_floating_point:
        return input
    from weft.dtype_info import finfo

    limits = finfo(input.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    out = where(isnan(input), nan, input)
    return where(isposinf(out), high, where(isneginf(out), low, out))


# -- comparison


def _compare(name: str, eval: Any, reference: Any, text: str, shown: str) -> Any:
    accepts = "all" if name in ("eq", "ne") else "ordered"
    return binary(
        name,
        eval,
        accepts=accepts,
        returns="bool",
        samples=integer_samples(2, -2, 3),
        reference=reference,
        doc=f"""Whether each element is {text} the other's.

    >>> weft.{name}(weft.tensor([1, 2, 3]), 2)
    tensor([{shown}], shape=(3,), dtype=bool)
    """,
    )


eq: Public = _compare(
    "eq", np.equal, lambda x, y: (x - y) == 0, "equal to", "False,  True, False"
)
ne: Public = _compare(
    "ne", np.not_equal, lambda x, y: (x - y) != 0, "different from",
    " True, False,  True",
)  # fmt: skip
lt: Public = _compare(
    "lt", np.less, lambda x, y: (y - x) > 0, "less than", " True, False, False"
)
le: Public = _compare(
    "le", np.less_equal, lambda x, y: (y - x) >= 0, "at most", " True,  True, False"
)
gt: Public = _compare(
    "gt", np.greater, lambda x, y: (x - y) > 0, "greater than", "False, False,  True"
)
ge: Public = _compare(
    "ge", np.greater_equal, lambda x, y: (x - y) >= 0, "at least",
    "False,  True,  True",
)  # fmt: skip


def isclose(
    input: Tensor,
    other: Any,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Whether ``|input - other| <= atol + rtol * |other|``, element by element.

    >>> weft.isclose(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 2.1]))
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    other = as_tensorlike(other)
    near = (abs(input - other) <= atol + rtol * abs(other)) & isfinite(other)
    near = near | (input == other)
    if equal_nan:
        near = near | (isnan(input) & isnan(other))
    return near


def allclose(
    input: Tensor,
    other: Any,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether all elements are close; see ``isclose``.

    >>> weft.allclose(weft.tensor([1.0]), weft.tensor([1.0 + 1e-9]))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and the same elements.

    >>> weft.equal(weft.tensor([1, 2]), weft.tensor([1, 2]))
    True
    """
    return input.shape == other.shape and bool((input == other).all())


def _predicate(name: str, eval: Any, reference: Any, text: str, shown: str) -> Any:
    def samples(rng: np.random.Generator) -> Any:
        for shape in ((3, 4), (), (0, 2)):
            x = rng.choice([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan], shape)
            yield Sample((np.asarray(x),))

    return unary(
        name,
        eval,
        accepts="real" if name == "signbit" else "all",
        returns="bool",
        samples=samples,
        reference=reference,
        doc=f"""Whether each element is {text}.

    >>> weft.{name}(weft.tensor([1.0, float("inf"), float("nan")]))
    tensor([{shown}], shape=(3,), dtype=bool)
    """,
    )


isnan = _predicate("isnan", np.isnan, lambda x: x != x, "NaN", "False, False,  True")
isinf = _predicate(
    "isinf", np.isinf, lambda x: (x - x != x - x) & (x == x), "infinite",
    "False,  True, False",
)  # fmt: skip
isfinite = _predicate(
    "isfinite", np.isfinite, lambda x: x - x == 0, "a finite number",
    " True, False, False",
)  # fmt: skip
isposinf = _predicate(
    "isposinf", lambda x: x == np.inf, lambda x: np.isinf(x) & (x > 0),
    "positive infinity", "False,  True, False",
)  # fmt: skip
isneginf = _predicate(
    "isneginf", lambda x: x == -np.inf, lambda x: np.isinf(x) & (x < 0),
    "negative infinity", "False, False, False",
)  # fmt: skip
signbit = _predicate(
    "signbit", np.signbit, lambda x: np.copysign(1, x) < 0, "negative (or -0)",
    "False, False, False",
)  # fmt: skip

# -- logic and bits


def _logical(name: str, eval: Any, reference: Any, text: str, shown: str) -> Any:
    return binary(
        name,
        eval,
        returns="bool",
        samples=integer_samples(2, 0, 2),
        reference=reference,
        doc=f"""{text}; nonzero elements count as true.

    >>> a = weft.tensor([True, True, False])
    >>> weft.{name}(a, weft.tensor([True, False, False]))
    tensor([{shown}], shape=(3,), dtype=bool)
    """,
    )


logical_and = _logical(
    "logical_and", np.logical_and, lambda x, y: x * y != 0, "Both are true",
    " True, False, False",
)  # fmt: skip
logical_or = _logical(
    "logical_or", np.logical_or, lambda x, y: x + y != 0, "At least one is true",
    " True,  True, False",
)  # fmt: skip
logical_xor = _logical(
    "logical_xor", np.logical_xor, lambda x, y: x != y, "Exactly one is true",
    "False,  True, False",
)  # fmt: skip

logical_not: Public = unary(
    "logical_not",
    np.logical_not,
    accepts="all",
    returns="bool",
    samples=integer_samples(1, 0, 2),
    reference=lambda x: x == 0,
    doc="""Whether each element is false (zero).

    >>> weft.logical_not(weft.tensor([True, False]))
    tensor([False,  True], shape=(2,), dtype=bool)
    """,
)


def _bits(name: str, eval: Any, reference: Any, text: str, shown: str) -> Any:
    return binary(
        name,
        eval,
        accepts="integral",
        samples=integer_samples(2, 0, 6),
        reference=reference,
        doc=f"""{text}

    >>> weft.{name}(weft.tensor([6, 5]), 3)
    tensor([{shown}], shape=(2,), dtype=int64)
    """,
    )


def _by_bit(combine: Any) -> Any:
    """A reference that works bit by bit with arithmetic only."""

    def reference(x: Any, y: Any) -> Any:
        total = np.zeros(np.shape(x), np.int64)
        for k in range(4):
            total += (combine((x // 2**k) % 2, (y // 2**k) % 2)) * 2**k
        return total

    return reference


bitwise_and = _bits(
    "bitwise_and", np.bitwise_and, _by_bit(lambda a, b: a * b),
    "The bits that both have.", "2, 1",
)  # fmt: skip
bitwise_or = _bits(
    "bitwise_or", np.bitwise_or, _by_bit(lambda a, b: a + b - a * b),
    "The bits that at least one has.", "7, 7",
)  # fmt: skip
bitwise_xor = _bits(
    "bitwise_xor", np.bitwise_xor, _by_bit(lambda a, b: (a + b) % 2),
    "The bits that exactly one has.", "5, 6",
)  # fmt: skip
bitwise_left_shift = _bits(
    "bitwise_left_shift", np.left_shift, lambda x, y: x * 2**y,
    "The bits moved up.", "48, 40",
)  # fmt: skip
bitwise_right_shift = _bits(
    "bitwise_right_shift", np.right_shift, lambda x, y: x // 2**y,
    "The bits moved down.", "0, 0",
)  # fmt: skip
gcd = _bits(
    "gcd", np.gcd, np.vectorize(math.gcd, otypes=[np.int64]),
    "The greatest common divisor.", "3, 1",
)  # fmt: skip
lcm = _bits(
    "lcm", np.lcm, np.vectorize(math.lcm, otypes=[np.int64]),
    "The least common multiple.", " 6, 15",
)  # fmt: skip

bitwise_not: Public = unary(
    "bitwise_not",
    np.invert,
    accepts="integral",
    samples=integer_samples(1, -4, 5),
    reference=lambda x: -x - 1,
    doc="""Each bit turned; for booleans, logical not.

    >>> ~weft.tensor([0, 5])
    tensor([-1, -6], shape=(2,), dtype=int64)
    """,
)

# -- rounding


def _rounding(name: str, eval: Any, reference: Any, text: str, shown: str) -> Any:
    return unary(
        name,
        eval,
        accepts="real",
        d=lambda x: x * 0,
        reference=reference,
        domain=(1.1, 1.4),
        doc=f"""{text}; its derivative is zero.

    >>> weft.{name}(weft.tensor([-1.7, 1.5, 2.5]))
    tensor([{shown}], shape=(3,), dtype=float32)
    """,
    )


floor: Public = _rounding(
    "floor", np.floor, lambda x: x - np.mod(x, 1), "The whole number below",
    "-2.,  1.,  2.",
)  # fmt: skip
ceil: Public = _rounding(
    "ceil", np.ceil, lambda x: x + np.mod(-x, 1), "The whole number above",
    "-1.,  2.,  3.",
)  # fmt: skip
trunc: Public = _rounding(
    "trunc", np.trunc, lambda x: np.sign(x) * np.floor(np.abs(x)),
    "The whole part", "-1.,  1.,  2.",
)  # fmt: skip
_round: Public = _rounding(
    "round", lambda x: x.copy() if x.dtype.kind in "iub" else np.rint(x),
    lambda x: np.floor(x + 0.5),
    "The nearest whole number, ties to even", "-2.,  2.,  2.",
)  # fmt: skip


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Each element rounded, ties to even.

    >>> weft.round(weft.tensor([0.5, 1.25]), decimals=1)
    tensor([0.5000, 1.2000], shape=(2,), dtype=float32)
    """
    if decimals == 0:
        return _round(input)
    return _round(input * 10.0**decimals) / 10.0**decimals


def frac(input: Tensor) -> Tensor:
    """The part behind the point, with the element's sign.

    >>> weft.frac(weft.tensor([1.25, -1.5]))
    tensor([ 0.2500, -0.5000], shape=(2,), dtype=float32)
    """
    return input - trunc(input)


copysign: Public = binary(
    "copysign",
    np.copysign,
    accepts="floating",
    d={"x": lambda x, out: sign(x) * sign(out), "y": lambda y: y * 0},
    domain=((0.3, 2.0), (0.3, 2.0)),
    reference=lambda x, y: np.abs(x) * np.sign(y),
    doc="""The size of one element with the sign of the other.

    >>> weft.copysign(weft.tensor([1.0, 2.0]), weft.tensor([-1.0, 1.0]))
    tensor([-1.,  2.], shape=(2,), dtype=float32)
    """,
)

nextafter: Public = binary(
    "nextafter",
    np.nextafter,
    accepts="floating",
    d={"x": lambda x: ones_like(x), "y": lambda y: y * 0},
    domain=((1.1, 1.4), (1.6, 1.9)),
    reference=lambda x, y: x + np.spacing(x),
    doc="""The next floating-point number towards the other element.

    >>> weft.nextafter(weft.tensor([1.0]), weft.tensor([2.0])) > 1
    tensor([True], shape=(1,), dtype=bool)
    """,
)

# -- complex numbers

_conj: Public = unary(
    "conj",
    np.conj,
    accepts="all",
    vjp={"x": lambda g: conj_value(g)},
    jvp={"x": lambda t: conj_value(t)},
    reference=lambda x: x.real - 1j * x.imag if np.iscomplexobj(x) else x,
    doc="""The complex conjugate.

    >>> weft.tensor([1 + 2j]).conj()
    tensor([1.-2.j], shape=(1,), dtype=complex64)
    """,
)


def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor is returned as it is.

    >>> weft.conj(weft.tensor([1 + 2j]))
    tensor([1.-2.j], shape=(1,), dtype=complex64)
    """
    return _conj(input) if input.dtype.is_complex else input


def _complex_samples(rng: np.random.Generator) -> Any:
    for shape in ((3, 4), (), (0, 2)):
        yield Sample((rng.normal(size=shape) + 1j * rng.normal(size=shape),))


def _part_type(x: TensorType) -> TensorType:
    return TensorType(x.shape, x.dtype.to_real())


_real: Op = define(
    "real",
    inputs="x",
    eval=lambda x: x.real.copy(),
    type=_part_type,
    vjp={"x": lambda g: complex_op(g, zeros_like(g))},
    jvp={"x": lambda t: _real(t)},
    batch=elementwise_batch,
    samples=_complex_samples,
    reference=lambda x: (x + np.conj(x)).real / 2,
)

_imag: Op = define(
    "imag",
    inputs="x",
    eval=lambda x: x.imag.copy(),
    type=_part_type,
    vjp={"x": lambda g: complex_op(zeros_like(g), g)},
    jvp={"x": lambda t: _imag(t)},
    batch=elementwise_batch,
    samples=_complex_samples,
    reference=lambda x: ((x - np.conj(x)) / 2j).real,
)


def _complex_type(x: TensorType, y: TensorType) -> TensorType:
    same = elementwise_type("complex", "floating", "same")(x, y)
    return TensorType(same.shape, same.dtype.to_complex())


complex_op: Op = define(
    "complex",
    inputs="x y",
    eval=lambda x, y: (x + 1j * y).astype(
        np.complex128 if x.dtype == np.float64 else np.complex64
    ),
    type=_complex_type,
    vjp={"x": lambda g: real(g), "y": lambda g: imag(g)},
    jvp={
        "x": lambda t: complex_op(t, zeros_like(t)),
        "y": lambda t: complex_op(zeros_like(t), t),
    },
    batch=elementwise_batch,
    samples=samples_in((-2, 2), (-2, 2)),
    reference=lambda x, y: x + 1j * y,
)


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """A complex tensor from its two parts.

    >>> weft.complex(weft.tensor([1.0]), weft.tensor([2.0]))
    tensor([1.+2.j], shape=(1,), dtype=complex64)
    """
    return complex_op(*prepare("complex", "floating", real, imag))


def real(input: Tensor) -> Tensor:
    """The real part; a real tensor is returned as it is.

    >>> weft.real(weft.tensor([1 + 2j]))
    tensor([1.], shape=(1,), dtype=float32)
    """
    return _real(input) if input.dtype.is_complex else input


def imag(input: Tensor) -> Tensor:
    """The imaginary part of a complex tensor.

    >>> weft.imag(weft.tensor([1 + 2j]))
    tensor([2.], shape=(1,), dtype=float32)
    """
    if not input.dtype.is_complex:
        raise DTypeError(f"imag: expected a complex dtype, got {input.dtype.name}")
    return _imag(input)


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor.

    >>> weft.is_tensor(weft.ones(1)), weft.is_tensor([1])
    (True, False)
    """
    return isinstance(obj, Tensor)


def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``.

    >>> weft.lerp(weft.tensor([0.0]), weft.tensor([10.0]), 0.25)
    tensor([2.5000], shape=(1,), dtype=float32)
    """
    return input + weight * (end - input)


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
    """``input + value * tensor1 * tensor2``.

    >>> weft.addcmul(weft.ones(1), weft.ones(1) * 2, weft.ones(1) * 3, value=0.5)
    tensor([4.], shape=(1,), dtype=float32)
    """
    return input + value * tensor1 * tensor2


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Any:
    """``input + value * tensor1 / tensor2``.

    >>> weft.addcdiv(weft.ones(1), weft.ones(1) * 3, weft.ones(1) * 2)
    tensor([2.5000], shape=(1,), dtype=float32)
    """
    return input + value * tensor1 / tensor2


# -- more of the same, made of the above

fix = trunc


def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The larger of two elements, a NaN only if both are.

    >>> weft.fmax(weft.tensor([1.0, float("nan")]), weft.tensor([3.0, 2.0]))
    tensor([3., 2.], shape=(2,), dtype=float32)
    """
    return where(isnan(input), other, where(isnan(other), input, maximum(input, other)))


def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of two elements, a NaN only if both are.

    >>> weft.fmin(weft.tensor([1.0, float("nan")]), weft.tensor([3.0, 2.0]))
    tensor([1., 2.], shape=(2,), dtype=float32)
    """
    return where(isnan(input), other, where(isnan(other), input, minimum(input, other)))


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above it, and ``values`` at zero.

    >>> weft.heaviside(weft.tensor([-1.0, 0.0, 2.0]), weft.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000], shape=(3,), dtype=float32)
    """
    if input.dtype is not values.dtype:
        raise DTypeError(
            f"heaviside: expected equal dtypes, got {input.dtype.name} and "
            f"{values.dtype.name}"
        )
    return where(input == 0, values, (input > 0).to(input.dtype))


def float_power(input: Any, exponent: Any) -> Tensor:
    """Each element to a power, in float64 (or complex128).

    >>> weft.float_power(weft.tensor([1, 2, 3]), 2)
    tensor([1., 4., 9.], shape=(3,), dtype=float64)
    """
    operands = [as_operand("float_power", v) for v in (input, exponent)]
    has_complex = result_type(*operands).is_complex
    wide = dtypes.complex128 if has_complex else dtypes.float64
    return _pow(*[x.to(wide) if isinstance(x, Tensor) else x for x in operands])


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """``input * 2**other``.

    >>> weft.ldexp(weft.tensor([1.0, 3.0]), weft.tensor([2, 1]))
    tensor([4., 6.], shape=(2,), dtype=float32)
    """
    return mul(input, _pow(2.0, other))


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from their sizes and angles.

    >>> weft.polar(weft.tensor([2.0]), weft.tensor([0.0]))
    tensor([2.+0.j], shape=(1,), dtype=complex64)
    """
    from weft.ops.transcendental import cos, sin

    return complex(abs * cos(angle), abs * sin(angle))


def isreal(input: Tensor) -> Tensor:
    """Whether each element has no imaginary part.

    >>> weft.isreal(weft.tensor([1 + 0j, 1j]))
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    return imag(input) == 0 if input.dtype.is_complex else input.isfinite() | True


def view_as_real(input: Tensor) -> Tensor:
    """Real and imaginary part as a last dimension of size 2 (a copy).

    >>> weft.view_as_real(weft.tensor([1 + 2j]))
    tensor([[1., 2.]], shape=(1, 2), dtype=float32)
    """
    from weft.ops.movement import stack

    return stack([real(input), imag(input)], -1)


def view_as_complex(input: Tensor) -> Tensor:
    """Complex numbers from a last dimension of size 2 (a copy).

    >>> weft.view_as_complex(weft.tensor([[1.0, 2.0]]))
    tensor([1.+2.j], shape=(1,), dtype=complex64)
    """
    if input.ndim == 0 or input.shape[-1] != 2:
        raise ShapeError(
            "view_as_complex: expected a last dimension of size 2, got shape "
            f"{input.shape}"
        )
    return complex(input[..., 0], input[..., 1])


# -- questions about a tensor


def numel(input: Tensor) -> int:
    """The number of elements.

    >>> weft.numel(weft.zeros(2, 3))
    6
    """
    return input.numel()


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating-point type.

    >>> weft.is_floating_point(weft.ones(1))
    True
    """
    return input.dtype.is_floating_point


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is a complex type.

    >>> weft.is_complex(weft.ones(1))
    False
    """
    return input.dtype.is_complex


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero.

    >>> weft.is_nonzero(weft.tensor([0.0]))
    False
    """
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape.

    >>> weft.is_same_size(weft.ones(2), weft.zeros(2))
    True
    """
    return input.shape == other.shape


def can_cast(from_: Any, to: Any) -> bool:
    """Whether promotion may turn one dtype into another.

    >>> weft.can_cast(weft.int64, weft.float32), weft.can_cast(weft.float32, weft.int64)
    (True, False)
    """
    return dtypes.as_dtype(from_).category <= dtypes.as_dtype(to).category


def relu(input: Tensor) -> Tensor:
    """The positive part: 0 below zero, where its derivative is 0 too.

    >>> weft.relu(weft.tensor([-1.0, 2.0]))
    tensor([0., 2.], shape=(2,), dtype=float32)
    """
    return where(input <= 0, 0, input)


def is_signed(input: Tensor) -> bool:
    """Whether the dtype holds negative numbers.

    >>> weft.is_signed(weft.ones(1))
    True
    """
    return input.dtype.is_signed


def detach(input: Tensor) -> Tensor:
    """The same memory, cut off from gradients and tangents.

    >>> weft.detach(weft.ones(1, requires_grad=True)).requires_grad
    False
    """
    return input.detach()
