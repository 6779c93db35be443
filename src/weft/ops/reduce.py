"""Reductions: sums, and whether any or all elements hold.

The primitives are ``sum any all``; what other reductions share is here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core import fast_path
from weft.core.dims import normalize_dims, reduced_dims
from weft.core.dispatch import bind
from weft.core.eager_kernels import COSTLY
from weft.core.lowering import Reduction
from weft.core.mode import mode
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.dtype import as_dtype
from weft.ops import dividing
from weft.ops.broadcasting import expand
from weft.ops.copies import HALF, cast
from weft.ops.public import public
from weft.ops.select import where
from weft.ops.shaping import reshape

# -- shared pieces


def reduced_shape(
    shape: tuple[int, ...], dim: tuple[int, ...], keepdim: bool
) -> tuple[int, ...]:
    """A shape with the reduced axes of size 1, or left out."""
    if keepdim:
        return tuple(1 if i in dim else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dim)


def restore(g: Tensor, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Tensor:
    """A reduced value expanded to the shape that it came from."""
    dims = dim if isinstance(dim, tuple) else (dim,)
    if not keepdim and g.ndim:
        g = reshape(g, reduced_shape(shape, dims, True))
    return expand(g, shape)


def reduce_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Any:
    dim = params["dim"]
    if isinstance(dim, tuple):
        shifted: Any = tuple(d + 1 for d in dim)
    else:
        shifted = dim + 1
    return bind(op, tuple(args), dict(params, dim=shifted))


def reduce_samples(low: float = -2.0, high: float = 2.0) -> Callable[..., Any]:
    def samples(rng: np.random.Generator) -> Any:
        for shape, dim, keep in (
            ((3, 4), (0,), False),
            ((3, 4), (0, 1), True),
            ((2, 3, 2), (0, 2), False),
            ((), (), False),
            ((2, 0), (0,), False),
        ):
            x = rng.permuted(np.linspace(low, high, max(math.prod(shape), 1)))
            x = x[: math.prod(shape)].reshape(shape)
            yield Sample((x,), {"dim": dim, "keepdim": keep})

    return samples


def along_samples(low: float = -2.0, high: float = 2.0) -> Callable[..., Any]:
    """Samples for operators over one dimension of at least one element."""

    def samples(rng: np.random.Generator) -> Any:
        for shape, dim in (((3, 4), 1), ((4, 2, 3), 0), ((5,), 0), ((3, 0), 0)):
            yield Sample((rng.uniform(low, high, shape),), {"dim": dim})

    return samples


# -- sum


def _sum_eval(x: Any, *, dim: tuple[int, ...], keepdim: bool) -> Any:
    if x.dtype.char in HALF:
        total = x.astype(np.float32).sum(dim, keepdims=keepdim)
        return np.asarray(total).astype(x.dtype)
    return np.add.reduce(x, dim, x.dtype, None, keepdim)  # type: ignore[call-overload]


def reduce_type(x: TensorType, *, dim: tuple[int, ...], keepdim: bool) -> TensorType:
    return TensorType(reduced_shape(x.shape, dim, keepdim), x.dtype)


def _sum_reference(x: Any, *, dim: tuple[int, ...], keepdim: bool) -> Any:
    ones = np.ones([x.shape[d] for d in dim])
    out = np.tensordot(x, ones, (dim, tuple(range(len(dim)))))
    return out.reshape(reduced_shape(x.shape, dim, keepdim))


sum_op: Op = define(
    "sum",
    divides=dividing.reduction("sum"),
    inputs="x",
    lower=Reduction("add", splits=True),
    bulk=COSTLY,
    eval=_sum_eval,
    type=reduce_type,
    vjp={"x": lambda g, x_shape, dim, keepdim: restore(g, x_shape, dim, keepdim)},
    linear=True,
    batch=reduce_batch,
    samples=reduce_samples(),
    reference=_sum_reference,
)
_SUM = sum_op.plan((True,)), np.add.reduce


@public(method=True)
def sum(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The sum of all elements, or along dimensions; integers sum to int64.

    >>> weft.tensor([[1, 2], [3, 4]]).sum(dim=0)
    tensor([4, 6])
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    state = mode.quick
    if state and dtype is None and type(input) is Tensor:
        found = fast_path.reduction(_SUM, input, dim, keepdim, state)
        if found is not None:
            return found
    x = widen(input, dtype)
    dims = reduced_dims("sum", dim, x.ndim)
    return bind(sum_op, (x,), {"dim": dims, "keepdim": bool(keepdim)})


def widen(x: Tensor, dtype: Any) -> Tensor:
    """Integers as int64, unless a dtype is given."""
    if dtype is not None:
        return cast(x, as_dtype(dtype))
    kind = x._data.dtype.char if type(x) is Tensor else x.dtype.np.char
    return x if kind in dtypes.INEXACT_CODES else cast(x, dtypes.int64)


@public(method=True)
def nansum(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The sum of the elements that are not NaN.

    >>> weft.nansum(weft.tensor([1.0, float("nan")]))
    tensor(1.)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    return sum(where(input != input, 0, input), dim, keepdim, dtype=dtype)


@public(method=True)
def count_nonzero(input: Tensor, dim: Any = None, *, axis: Any = None) -> Tensor:
    """The number of elements that are not zero.

    >>> weft.count_nonzero(weft.tensor([0, 3, 0, 4]))
    tensor(2)
    """
    if axis is not None:
        dim = axis
    return sum(input != 0, dim)


# -- logic


def _bool_type(x: TensorType, *, dim: tuple[int, ...], keepdim: bool) -> TensorType:
    return TensorType(reduced_shape(x.shape, dim, keepdim), dtypes.bool_)


def _bool_samples(rng: np.random.Generator) -> Any:
    for sample in reduce_samples()(rng):
        yield Sample((sample.args[0] > 0.5,), sample.params)


any_op: Op = define(
    "any",
    divides=dividing.reduction(),
    inputs="x",
    lower=Reduction("logical_or", splits=True),
    eval=lambda x, *, dim, keepdim: np.any(x, dim, keepdims=keepdim),
    type=_bool_type,
    batch=reduce_batch,
    samples=_bool_samples,
    reference=lambda x, *, dim, keepdim: (
        _sum_reference(x * 1.0, dim=dim, keepdim=keepdim) > 0
    ),
)

all_op: Op = define(
    "all",
    divides=dividing.reduction(),
    inputs="x",
    lower=Reduction("logical_and", splits=True),
    eval=lambda x, *, dim, keepdim: np.all(x, dim, keepdims=keepdim),
    type=_bool_type,
    batch=reduce_batch,
    samples=_bool_samples,
    reference=lambda x, *, dim, keepdim: (
        _sum_reference(1.0 - x, dim=dim, keepdim=keepdim) == 0
    ),
)


@public(method=True)
def any(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """Whether at least one element is true (not zero).

    >>> weft.tensor([False, True]).any()
    tensor(True)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    dims = normalize_dims("any", dim, input.ndim)  # none of them: nothing is reduced
    return bind(any_op, (input,), {"dim": dims, "keepdim": bool(keepdim)})


@public(method=True)
def all(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """Whether every element is true (not zero).

    >>> weft.tensor([False, True]).all()
    tensor(False)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    dims = normalize_dims("all", dim, input.ndim)  # none of them: nothing is reduced
    return bind(all_op, (input,), {"dim": dims, "keepdim": bool(keepdim)})
