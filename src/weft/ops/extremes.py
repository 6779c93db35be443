"""The largest and smallest elements, and where they are.

The primitives are ``amax amin argmax argmin``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.core import fast_path
from weft.core.dims import normalize_dim, reduced_dims
from weft.core.dispatch import bind
from weft.core.eager_kernels import COSTLY
from weft.core.lowering import Composed, Reduction
from weft.core.mode import mode
from weft.core.op import Op, Plan, Sample, TensorType, define
from weft.core.results import TYPES, results
from weft.core.tensor import Tensor
from weft.errors import RankError
from weft.ops import dividing
from weft.ops.copies import cast
from weft.ops.elementwise import check_accepts
from weft.ops.gathering import gather
from weft.ops.public import public
from weft.ops.reduce import (
    along_samples,
    reduce_batch,
    reduce_samples,
    reduce_type,
    reduced_shape,
    restore,
    sum,
)
from weft.ops.select import maximum, minimum
from weft.ops.shaping import reshape


def _extreme_type(name: str) -> Callable[..., Any]:
    def rule(x: TensorType, *, dim: tuple[int, ...], keepdim: bool) -> TensorType:
        check_accepts(name, "ordered", x.dtype)
        _check_nonempty(name, x.shape, dim)
        return reduce_type(x, dim=dim, keepdim=keepdim)

    return rule


def _check_nonempty(name: str, shape: tuple[int, ...], dim: tuple[int, ...]) -> None:
    for d in dim:
        if shape[d] == 0:
            raise RankError(
                f"{name}: expected at least one element, but dim {d} of shape {shape} "
                "is empty"
            )


def _extreme_share(x: Tensor, out: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """1 / (number of winners) at each winner, 0 elsewhere."""
    won = cast(x == restore(out, x.shape, dim, keepdim), x.dtype)
    return won / restore(sum(won, dim, True), x.shape, dim, True)


def _extreme(name: str, ufunc: Any, reference: Any) -> Op:
    return define(
        name,
        inputs="x",
        eval=lambda x, *, dim, keepdim: ufunc.reduce(x, dim, keepdims=keepdim),
        type=_extreme_type(name),
        lower=Reduction(ufunc.__name__, splits=True),
        bulk=COSTLY,
        vjp={
            "x": lambda g, x, out, dim, keepdim: (
                restore(g, x.shape, dim, keepdim) * _extreme_share(x, out, dim, keepdim)
            )
        },
        jvp={
            "x": lambda t, x, out, dim, keepdim: sum(
                t * _extreme_share(x, out, dim, keepdim), dim, keepdim
            )
        },
        batch=reduce_batch,
        divides=dividing.reduction(name.removeprefix("a")),
        samples=lambda rng: [
            s
            for s in reduce_samples()(rng)
            if 0 not in [s.args[0].shape[d] for d in s.params["dim"]]
        ],
        reference=reference,
    )


def _sorted_reference(position: int) -> Callable[..., Any]:
    def reference(x: Any, *, dim: tuple[int, ...], keepdim: bool) -> Any:
        kept = [i for i in range(x.ndim) if i not in dim]
        count = math.prod(x.shape[i] for i in dim)
        rows = [x.shape[i] for i in kept]
        flat = np.transpose(x, (*kept, *dim)).reshape([*rows, count])
        out = np.sort(flat, -1)[..., position]
        return out.reshape(reduced_shape(x.shape, dim, keepdim))

    return reference


amax_op = _extreme("amax", np.maximum, _sorted_reference(-1))
amin_op = _extreme("amin", np.minimum, _sorted_reference(0))
_AMAX = amax_op.plan((True,)), np.maximum.reduce
_AMIN = amin_op.plan((True,)), np.minimum.reduce


def _reduce_extreme(
    way: tuple[Plan, Any], input: Tensor, dim: Any, keepdim: bool
) -> Tensor:
    state = mode.quick
    if state and type(input) is Tensor:
        found = fast_path.reduction(way, input, dim, keepdim, state)
        if found is not None:
            return found
    op = way[0].op
    check_accepts(op.name, "ordered", input.dtype)
    dims = reduced_dims(op.name, dim, input.ndim)
    _check_nonempty(op.name, input.shape, dims)
    return bind(op, (input,), {"dim": dims, "keepdim": bool(keepdim)})


@public(method=True)
def amax(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The largest element; equal ones share its gradient.

    >>> weft.tensor([[1, 9], [3, 4]]).amax(dim=1)
    tensor([9, 4])
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    return _reduce_extreme(_AMAX, input, dim, keepdim)


@public(method=True)
def amin(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The smallest element; equal ones share its gradient.

    >>> weft.tensor([[1, 9], [3, 4]]).amin(dim=1)
    tensor([1, 3])
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    return _reduce_extreme(_AMIN, input, dim, keepdim)


@public(method=True)
def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest and the largest element.

    >>> weft.aminmax(weft.tensor([3, 1, 2])).max
    tensor(3)
    """
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))


@results("aminmax")
class MinMax(NamedTuple):
    """The result of ``aminmax``."""

    min: Tensor
    max: Tensor


# -- indices


def _arg_type(x: TensorType, *, dim: int, keepdim: bool) -> TensorType:
    check_accepts("argmax", "ordered", x.dtype)
    _check_nonempty("argmax", x.shape, (dim,))
    return TensorType(reduced_shape(x.shape, (dim,), keepdim), dtypes.int64)


def _arg_samples(rng: np.random.Generator) -> Any:
    for sample in along_samples()(rng):
        if sample.args[0].shape[sample.params["dim"]]:
            yield Sample(sample.args, dict(sample.params, keepdim=False))


def _first_of(extreme: str) -> Composed:
    """The first index of an element that equals the extreme one, or is NaN."""

    def calls(call: Any, x: Any, *, dim: int, keepdim: bool) -> Any:
        n, shape = x.shape[dim], x.shape
        best = call("expand", call(extreme, x, dim=(dim,), keepdim=True), shape=shape)
        hit = call("eq", x, best)
        if x.dtype.is_inexact:
            hit = call("logical_or", hit, call("ne", x, x))
        count = call("arange", start=0, step=1, count=n, dtype=dtypes.int64)
        line = (*(1,) * dim, n, *(1,) * (len(shape) - dim - 1))
        at = call("expand", call("reshape", count, shape=line), shape=shape)
        none = call("full", shape=shape, value=n, dtype=dtypes.int64)
        positions = call("where", hit, at, none)
        return call("amin", positions, dim=(dim,), keepdim=keepdim)

    return Composed(calls)


def _arg(name: str, fn: Any, position: int) -> Op:
    return define(
        name,
        inputs="x",
        lower=_first_of("amax" if fn is np.ndarray.argmax else "amin"),
        eval=lambda x, *, dim, keepdim: np.asarray(fn(x, dim, keepdims=keepdim)),
        type=_arg_type,
        batch=reduce_batch,
        divides=dividing.reduction(),
        samples=_arg_samples,
        reference=lambda x, *, dim, keepdim: np.argsort(x, dim, kind="stable").take(
            position, dim
        ),
    )


argmax_op = _arg("argmax", np.ndarray.argmax, -1)
argmin_op = _arg("argmin", np.ndarray.argmin, 0)


def _reduce_arg(op: Op, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    check_accepts(op.name, "ordered", input.dtype)
    d = 0 if dim is None else normalize_dim(op.name, dim, input.ndim)
    if dim is None or input.ndim == 0:
        if input.numel() == 0:
            raise RankError(f"{op.name}: expected at least one element, got none")
        flat = reshape(input, (input.numel(),))
        out = bind(op, (flat,), {"dim": 0, "keepdim": False})
        return reshape(out, (1,) * input.ndim) if keepdim else out
    _check_nonempty(op.name, input.shape, (d,))
    return bind(op, (input,), {"dim": d, "keepdim": bool(keepdim)})


@public(method=True)
def argmax(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The index of the largest element (of all, flattened, without ``dim``).

    >>> weft.tensor([1, 9, 3]).argmax()
    tensor(1)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    return _reduce_arg(argmax_op, input, dim, keepdim)


@public(method=True)
def argmin(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Tensor:
    """The index of the smallest element (of all, flattened, without ``dim``).

    >>> weft.tensor([5, 9, 3]).argmin()
    tensor(2)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    return _reduce_arg(argmin_op, input, dim, keepdim)


# -- values with their indices


@results("max", "min", "median", "nanmedian", "mode", "kthvalue", "cummax", "cummin")
class Extreme(NamedTuple):
    """The result of ``max``, ``min``, ``median``, ``cummax`` along a dimension."""

    values: Tensor
    indices: Tensor


def _pick_extreme(
    name: str, whole: Any, arg: Any, pair: Any, input: Tensor, dim: Any, keepdim: bool
) -> Any:
    if dim is None:
        return whole(input)
    if isinstance(dim, Tensor):
        return pair(input, dim)
    indices = arg(input, dim, True)
    if input.ndim == 0:
        return TYPES[name](input, indices)
    d = normalize_dim(name, dim, input.ndim)
    values = gather(input, d, indices)
    if not keepdim:
        values, indices = values.squeeze(d), indices.squeeze(d)
    return TYPES[name](values, indices)


@public(method=True)
def max(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Any:
    """The largest element; along a dimension, values and indices.

    With a tensor as ``dim``, the element-wise maximum.

    >>> weft.tensor([[1, 9], [3, 4]]).max(dim=1).indices
    tensor([1, 1])
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    return _pick_extreme("max", amax, argmax, maximum, input, dim, keepdim)


@public(method=True)
def min(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    axis: Any = None,
    keepdims: Any = None,
) -> Any:
    """The smallest element; along a dimension, values and indices.

    With a tensor as ``dim``, the element-wise minimum.

    >>> weft.tensor([[1, 9], [3, 4]]).min()
    tensor(1)
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    return _pick_extreme("min", amin, argmin, minimum, input, dim, keepdim)
