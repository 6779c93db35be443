"""Running sums and products, differences, and the product of all elements.

The primitives are ``cumsum cumprod logcumsumexp linear_scan prod``; ``prod`` is here
because its derivative is made of running products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import normalize_dim
from weft.core.dispatch import bind
from weft.core.eager_kernels import COMPOSED
from weft.core.lowering import Reduction, Running, cast_element
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.ops import dividing
from weft.ops.broadcasting import expand
from weft.ops.copies import HALF
from weft.ops.creation import full_like
from weft.ops.elementwise import check_accepts, conj
from weft.ops.joining import cat, cat_op
from weft.ops.padding import flip_op
from weft.ops.public import public
from weft.ops.reduce import (
    along_samples,
    reduce_batch,
    reduced_shape,
    restore,
    sum,
    widen,
)
from weft.ops.select import where
from weft.ops.shaping import reshape
from weft.ops.slicing import along
from weft.ops.transcendental import exp

# -- running sums and products


def _cumulative_type(x: TensorType, *, dim: int) -> TensorType:
    return x


def _logarithm_type(x: TensorType, *, dim: int) -> TensorType:
    check_accepts("logcumsumexp", "floating", x.dtype)
    return x


def _running_eval(ufunc: Any) -> Callable[..., Any]:
    def eval(x: Any, *, dim: int) -> Any:
        if x.dtype.char in HALF:
            return ufunc.accumulate(x.astype(np.float32), dim).astype(x.dtype)
        return ufunc.accumulate(x, dim, x.dtype)

    return eval


def _running(start: int, step: Callable[..., Any]) -> Running:
    """Loops with one state, of the output's dtype."""
    return Running(
        lambda k, at, states, *values: (step(k, *states, *values),),
        lambda k, *inputs: (k.number(start),),
    )


def _total(start: float, name: str) -> Running:
    """The scan of ``_running``, with the state in the dtype of totals."""

    def step(k: Any, at: Any, states: Any, x: Any) -> Any:
        return (k.call(name, *states, cast_element(k, x, k.dtype.to_total())),)

    return Running(step, lambda k, x: (k.number(start, k.dtype.to_total()),))


def _reverse_cumsum(g: Tensor, dim: int) -> Tensor:
    return flip_op(cumsum_op(flip_op(g, dims=(dim,)), dim=dim), dims=(dim,))


cumsum_op: Op = define(
    "cumsum",
    divides=dividing.joined,
    bulk=COMPOSED,
    inputs="x",
    lower=_total(0, "add"),
    eval=_running_eval(np.add),
    type=_cumulative_type,
    flops=lambda out, x: x,
    vjp={"x": lambda g, dim: _reverse_cumsum(g, dim)},
    linear=True,
    batch=reduce_batch,
    samples=along_samples(),
    reference=lambda x, *, dim: (
        np.stack(
            [np.sum(np.take(x, range(k + 1), dim), dim) for k in range(x.shape[dim])],
            dim,
        )
        if x.shape[dim]
        else x
    ),
)


def _scan_eval(a: Any, b: Any, *, dim: int) -> Any:
    out = np.empty_like(b)
    rows, decay, add = (np.moveaxis(v, dim, 0) for v in (out, a, b))
    state = np.zeros(rows.shape[1:], b.dtype)
    for k in range(rows.shape[0]):
        state = decay[k] * state + add[k]
        rows[k] = state
    return out


def _scan_back(g: Tensor, a: Tensor, dim: int) -> Tensor:
    """The adjoint state: the same recurrence, run from the end."""
    flipped = flip_op(g, dims=(dim,))
    decay = _shift(flip_op(conj(a), dims=(dim,)), dim, 0)
    return flip_op(linear_scan(decay, flipped, dim=dim), dims=(dim,))


# h[i] = a[i] * h[i-1] + b[i], along a dimension; closed under derivatives.
linear_scan: Op = define(
    "linear_scan",
    inputs="a b",
    lower=_running(0, lambda k, state, a, b: k.call("add", k.call("mul", a, state), b)),
    eval=_scan_eval,
    type=lambda a, b, *, dim: b,
    vjp={
        "a": lambda g, a, out, dim: _scan_back(g, a, dim) * conj(_shift(out, dim, 0)),
        "b": lambda g, a, dim: _scan_back(g, a, dim),
    },
    jvp={
        "a": lambda t, a, out, dim: linear_scan(a, t * _shift(out, dim, 0), dim=dim),
        "b": lambda t, a, dim: linear_scan(a, t, dim=dim),
    },
    batch=lambda op, size, args, batched, params: linear_scan(
        *[
            v if b else expand(v, (size, *v.shape))
            for v, b in zip(args, batched, strict=True)
        ],
        dim=params["dim"] + 1,
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, s), rng.uniform(-1, 1, s)), {"dim": d})
        for s, d in (((3, 4), 1), ((4,), 0), ((3, 0), 0))
    ],
    reference=lambda a, b, *, dim: _scan_reference(a, b, dim),
)


def _scan_reference(a: Any, b: Any, dim: int) -> Any:
    """Each state as an explicit sum of products."""
    a, b = np.moveaxis(a, dim, 0), np.moveaxis(b, dim, 0)
    out = np.zeros_like(b)
    for i in range(len(b)):
        for j in range(i + 1):
            out[i] += b[j] * np.prod(a[j + 1 : i + 1], axis=0)
    return np.moveaxis(out, 0, dim)


def _cumprod_vjp(g: Tensor, x: Tensor, dim: int) -> Tensor:
    return conj(_shifted_products(x, dim)) * _scan_back(g, x, dim)


cumprod_op: Op = define(
    "cumprod",
    inputs="x",
    lower=_total(1, "mul"),
    eval=_running_eval(np.multiply),
    type=_cumulative_type,
    flops=lambda out, x: x,
    vjp={"x": lambda g, x, dim: _cumprod_vjp(g, x, dim)},
    jvp={"x": lambda t, x, dim: linear_scan(x, t * _shifted_products(x, dim), dim=dim)},
    batch=reduce_batch,
    samples=along_samples(),
    reference=lambda x, *, dim: (
        np.stack(
            [np.prod(np.take(x, range(k + 1), dim), dim) for k in range(x.shape[dim])],
            dim,
        )
        if x.shape[dim]
        else x
    ),
)


def _cumulated(op: Op, input: Tensor, dim: int, dtype: Any) -> Tensor:
    x = widen(input, dtype)
    d = normalize_dim(op.name, dim, x.ndim)
    return bind(op, (x,), {"dim": d}) if x.ndim else x


@public(method=True, inplace="0")
def cumsum(
    input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None
) -> Tensor:
    """The running sum along a dimension.

    >>> weft.tensor([1, 2, 3]).cumsum(0)
    tensor([1, 3, 6])
    """
    if axis is not None:
        dim = axis
    return _cumulated(cumsum_op, input, dim, dtype)


@public(method=True, inplace="0")
def cumprod(
    input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None
) -> Tensor:
    """The running product along a dimension.

    >>> weft.tensor([1, 2, 3]).cumprod(0)
    tensor([1, 2, 6])
    """
    if axis is not None:
        dim = axis
    return _cumulated(cumprod_op, input, dim, dtype)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """``exp(a - b)``, where equal infinities have the ratio 1."""
    return exp(where(a == b, 0, a - b))


def _decay(out: Tensor, dim: int) -> Tensor:
    """The factor from each sum of exponentials to the next."""
    return _ratio(_shift(out, dim, -math.inf), out)


logcumsumexp_op: Op = define(
    "logcumsumexp",
    inputs="x",
    lower=_total(-math.inf, "logaddexp"),
    eval=_running_eval(np.logaddexp),
    type=_logarithm_type,
    vjp={
        "x": lambda g, x, out, dim: (
            _ratio(x, out) * _scan_back(g, _decay(out, dim), dim)
        )
    },
    jvp={
        "x": lambda t, x, out, dim: linear_scan(
            _decay(out, dim), t * _ratio(x, out), dim=dim
        )
    },
    batch=reduce_batch,
    samples=along_samples(),
    reference=lambda x, *, dim: np.log(np.cumsum(np.exp(x), dim)),
)


@public(method=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of the running sum of exponentials along a dimension.

    >>> weft.logcumsumexp(weft.tensor([0.0, 0.0]), 0)
    tensor([0.0000, 0.6931])
    """
    check_accepts("logcumsumexp", "floating", input.dtype)
    d = normalize_dim("logcumsumexp", dim, input.ndim)
    return bind(logcumsumexp_op, (input,), {"dim": d}) if input.ndim else input + 0.0


# -- product


def _prod_vjp(g: Tensor, x: Tensor, dim: int) -> Tensor:
    """Each element's share: the product of all the others (exact at zeros)."""
    left = _shifted_products(x, dim)
    right = flip_op(_shifted_products(flip_op(x, dims=(dim,)), dim), dims=(dim,))
    return restore(g, x.shape, dim, False) * conj(left * right)


def _shifted_products(x: Tensor, dim: int) -> Tensor:
    """The product of the elements before each one."""
    return cumprod_op(_shift(x, dim, 1), dim=dim)


def _shift(x: Tensor, dim: int, fill: float) -> Tensor:
    """Shift the elements by one, the first becoming ``fill``."""
    first = full_like(along(x, dim, slice(0, 1)), fill)
    return cat_op(first, along(x, dim, slice(0, -1)), dim=dim)


def _prod_eval(x: Any, *, dim: int) -> Any:
    if x.dtype.char in HALF:
        return np.asarray(_prod_eval(x.astype(np.float32), dim=dim)).astype(x.dtype)
    return np.multiply.reduce(x, dim, x.dtype)


def _along_type(x: TensorType, *, dim: int) -> TensorType:
    return TensorType(reduced_shape(x.shape, (dim,), False), x.dtype)


prod_op: Op = define(
    "prod",
    inputs="x",
    lower=Reduction("mul"),
    eval=_prod_eval,
    type=_along_type,
    vjp={"x": lambda g, x, dim: _prod_vjp(g, x, dim)},
    jvp={"x": lambda t, x, dim: sum(t * _others(x, dim), dim)},
    batch=reduce_batch,
    samples=along_samples(),
    reference=lambda x, *, dim: (
        np.cumprod(x, dim).take(-1, dim)
        if x.shape[dim]
        else np.ones(reduced_shape(x.shape, (dim,), False))
    ),
)


def _others(x: Tensor, dim: int) -> Tensor:
    """The product, for each element, of the others along a dimension."""
    left = _shifted_products(x, dim)
    flipped = flip_op(x, dims=(dim,))
    return left * flip_op(_shifted_products(flipped, dim), dims=(dim,))


@public(method=True)
def prod(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The product of all elements, or along a dimension.

    >>> weft.tensor([2.0, 3.0, 4.0]).prod()
    tensor(24.)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    x = widen(input, dtype)
    if dim is None:
        return bind(prod_op, (reshape(x, (x.numel(),)),), {"dim": 0})
    d = normalize_dim("prod", dim, x.ndim)
    if x.ndim == 0:
        return x
    out = bind(prod_op, (x,), {"dim": d})
    return out.unsqueeze(d) if keepdim else out


# -- differences and integrals


@public(method=True)
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The differences of neighbours along a dimension, n times.

    >>> weft.tensor([1, 4, 9]).diff()
    tensor([3, 5])
    """
    if input.ndim == 0:
        raise ShapeError("diff: expected at least one dimension, got a 0-d tensor")
    if n < 0:
        raise ArgumentError(f"diff: expected n of at least 0, got {n}")
    d = normalize_dim("diff", dim, input.ndim)
    out = input
    if n and (prepend is not None or append is not None):
        out = cat([x for x in (prepend, input, append) if x is not None], d)
    for _ in range(n):
        later, earlier = along(out, d, slice(1, None)), along(out, d, slice(0, -1))
        out = later ^ earlier if out.dtype is dtypes.bool_ else later - earlier
    return out


def _widths(name: str, y: Tensor, x: Any, dx: Any, dim: int) -> Any:
    """The steps between samples, and the sums of neighbouring ones."""
    if x is not None and dx is not None:
        raise ArgumentError(f"{name}: expected x or dx, got both")
    if y.ndim == 0:
        raise ShapeError(f"{name}: expected at least one dimension, got a 0-d tensor")
    if x is not None and (not isinstance(x, Tensor) or x.ndim == 0):
        raise ArgumentError(f"{name}: expected x to be a tensor of sample points")
    d = normalize_dim(name, dim, y.ndim)
    pairs = along(y, d, slice(1, None)) + along(y, d, slice(0, -1))
    if x is None:
        return d, pairs * (1 if dx is None else dx) / 2
    lone = (x.shape[0],) + (1,) * (y.ndim - d - 1)
    grid = reshape(x, lone) if x.ndim == 1 else x
    return d, pairs * diff(grid, dim=grid.ndim - y.ndim + d) / 2


@public(also=("trapz",))
def trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral along a dimension by the trapezoidal rule.

    >>> weft.trapezoid(weft.tensor([1.0, 3.0, 5.0]))
    tensor(6.)
    """
    d, areas = _widths("trapezoid", y, x, dx, dim)
    return sum(areas, d)


@public()
def cumulative_trapezoid(
    y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1
) -> Tensor:
    """The running integral along a dimension by the trapezoidal rule.

    >>> weft.cumulative_trapezoid(weft.tensor([1.0, 3.0, 5.0]))
    tensor([2., 6.])
    """
    d, areas = _widths("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(areas, d)
