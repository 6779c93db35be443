"""Choosing between the elements of two tensors, or of a tensor and a limit."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core import fast_path
from weft.core.eager_kernels import COMPOSED
from weft.core.lowering import Pointwise
from weft.core.mode import mode
from weft.core.number import Number
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.dtype_info import check_stored, finfo
from weft.errors import ArgumentError, DTypeError
from weft.ops.bits import logical_not
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.creation import zeros_like
from weft.ops.elementwise import (
    Public,
    as_operand,
    binary,
    broadcast_shapes,
    elementwise_batch,
    elementwise_type,
    result_type,
)
from weft.ops.inplace import write_out
from weft.ops.operands import as_tensorlike, nonzero, scalar
from weft.ops.predicates import isnan, isneginf, isposinf
from weft.ops.public import Names, public


def _half_where_equal(x: Any, y: Any, better: Any) -> Tensor:
    """The share of the gradient: one for the winner, a half each at a tie."""
    dtype = x.dtype if isinstance(x, Tensor) else y.dtype
    return where(x == y, 0.5, where(better, 1.0, 0.0).to(dtype))


maximum: Public = binary(
    "maximum",
    np.maximum,
    accepts="ordered",
    d={
        "x": lambda x, y: _half_where_equal(x, y, x > y),
        "y": lambda x, y: _half_where_equal(x, y, y > x),
    },
    reference=lambda x, y: (x + y + np.abs(x - y)) / 2,
    commutes=True,
    idempotent=True,
    identity=-np.inf,
    exact=True,
    numbers="all",
    public=Names(inplace=False, array_api=True),
    doc="""The larger of two elements; a NaN wins, and a tie shares its gradient.

    >>> weft.maximum(weft.tensor([1.0, 5.0]), weft.tensor([3.0, 2.0]))
    tensor([3., 5.])
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
    commutes=True,
    idempotent=True,
    identity=np.inf,
    exact=True,
    numbers="all",
    public=Names(inplace=False, array_api=True),
    doc="""The smaller of two elements; a NaN wins, and a tie shares its gradient.

    >>> weft.minimum(weft.tensor([1.0, 5.0]), weft.tensor([3.0, 2.0]))
    tensor([1., 2.])
    """,
)


@public(method=True)
def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The larger of two elements, a NaN only if both are; of equal ones the first.

    >>> weft.fmax(weft.tensor([1.0, float("nan")]), weft.tensor([3.0, 2.0]))
    tensor([3., 2.])
    """
    return where((input >= other) | isnan(other), input, other)


@public(method=True)
def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of two elements, a NaN only if both are; of equal ones the first.

    >>> weft.fmin(weft.tensor([1.0, float("nan")]), weft.tensor([3.0, 2.0]))
    tensor([1., 2.])
    """
    return where((input <= other) | isnan(other), input, other)


# -- where


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
    bulk=COMPOSED,
    inputs="condition x y",
    eval=np.where,
    type=_where_type,
    elementwise=True,
    numbers="all",
    cost=0,
    exact=True,
    lower=Pointwise("where"),
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


@public()
def where(
    condition: Any, input: Any = None, other: Any = None, *, out: Any = None
) -> Any:
    """``input`` where the condition holds, ``other`` elsewhere.

    An element that was not chosen gets a gradient of exactly zero.

    >>> x = weft.tensor([-1.0, 4.0])
    >>> weft.where(x > 0, x, 0.0)
    tensor([0., 4.])
    """
    if out is not None:
        return write_out(out, where(condition, input, other), "where")
    if input is None and other is None:
        return nonzero(as_tensorlike(condition), as_tuple=True)
    state = mode.quick
    if state:
        found = fast_path.choice(where_op, (condition, input, other), state)
        if found is not None:
            return found
    condition = as_tensorlike(condition)
    if condition.dtype is not dtypes.bool_:
        raise DTypeError(
            f"where: expected a boolean condition, got {condition.dtype.name}"
        )
    return where_op(*_align(condition, input, other))


def _align(condition: Tensor, input: Any, other: Any) -> tuple[Tensor, ...]:
    """Three tensors of one shape, the two values of one dtype."""
    values = [as_operand("where", v) for v in (input, other)]
    dtype = result_type(*values)
    tensors = [
        v if isinstance(v, Tensor) else scalar("where", v, dtype) for v in values
    ]
    shape = broadcast_shapes("where", condition.shape, *(t.shape for t in tensors))
    x, y = (cast(t, dtype) for t in tensors)
    return tuple(expand(t, shape) for t in (condition, x, y))


# -- limits


@public(method=True, inplace="0, 1", also=("clip",))
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Each element brought between ``min`` and ``max``.

    >>> weft.clamp(weft.tensor([-2.0, 0.5, 9.0]), min=0, max=1)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None and max is None:
        raise ArgumentError("clamp: expected at least one of min and max")
    out = input
    for limit in (min, max):
        if type(limit) is int:
            check_stored("clamp", limit, input.dtype)
    if min is not None:
        out = where(_beyond(out < min, min), min, out)
    if max is not None:
        out = where(_beyond(out > max, max), max, out)
    return out


def _beyond(outside: Tensor, limit: Any) -> Tensor:
    """A mask of the elements beyond a limit; all of them if it is NaN."""
    if type(limit) is Number:
        limit = limit.tensor
    if isinstance(limit, Tensor):
        return outside | isnan(limit) if limit.dtype.is_inexact else outside
    return logical_not(outside) | outside if limit != limit else outside


@public(method=True, inplace="0")
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Each element, but at least ``min``.

    >>> weft.clamp_min(weft.tensor([-2.0, 0.5]), 0)
    tensor([0.0000, 0.5000])
    """
    return clamp(input, min=min)


@public(method=True, inplace="1")
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Each element, but at most ``max``.

    >>> weft.clamp_max(weft.tensor([-2.0, 0.5]), 0)
    tensor([-2.,  0.])
    """
    return clamp(input, max=max)


@public(method=True, inplace="")
def nan_to_num(
    input: Tensor,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """NaN and infinities replaced by finite numbers.

    >>> weft.nan_to_num(weft.tensor([float("nan"), 1.0]))
    tensor([0., 1.])
    """
    if not input.dtype.is_floating_point:
        return input

    limits = finfo(input.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    out = where(isnan(input), nan, input)
    return where(isposinf(out), high, where(isneginf(out), low, out))


@public(method=True, inplace="x")
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above it, and ``values`` at zero.

    >>> weft.heaviside(weft.tensor([-1.0, 0.0, 2.0]), weft.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """
    if input.dtype is not values.dtype:
        raise DTypeError(
            f"heaviside: expected equal dtypes, got {input.dtype.name} and "
            f"{values.dtype.name}"
        )
    return where(input == 0, values, (input > 0).to(input.dtype))
