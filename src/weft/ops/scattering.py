"""Elements written along one axis at indices from a tensor.

Where several meet at one index, the primitive ``scatter_combine`` multiplies
them or takes the extreme one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import normalize_dim
from weft.core.dispatch import bind
from weft.core.lowering import Varied
from weft.core.op import Op, Sample, define
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.creation import ones, zeros
from weft.ops.gathering import (
    GATHERS,
    all_batched,
    check_gather,
    gather_op,
    index_grid,
    scatter_add_op,
    scatter_op,
    scattered,
)
from weft.ops.index import as_row, zeros_of
from weft.ops.operands import as_index, check_range, scalar
from weft.ops.public import public
from weft.ops.select import where
from weft.ops.shaping import reshape
from weft.ops.slicing import slice_op


def _scatter_operands(
    name: str, x: Tensor, dim: int, index: Tensor, src: Any
) -> tuple[int, Tensor, Tensor]:
    """The checked dimension, index, and source of the index's shape."""
    d = normalize_dim(name, dim, x.ndim)
    index = as_index(name, index)
    check_gather(name, x.shape, index.shape, d)
    if not isinstance(src, Tensor):
        src = expand(scalar(name, src, x.dtype), index.shape)
    if src.dtype is not x.dtype:
        raise DTypeError(
            f"{name}: expected src to be {x.dtype.name} like the tensor, got "
            f"{src.dtype.name}"
        )
    if src.shape != index.shape:
        if src.ndim != index.ndim or any(
            m < n for m, n in zip(src.shape, index.shape, strict=True)
        ):
            raise ShapeError(
                f"{name}: src of shape {src.shape} is smaller than index of shape "
                f"{index.shape}"
            )
        window = tuple(slice(0, n) for n in index.shape)
        src = bind(slice_op, (src,), {"index": window})
    return d, index, src


def _scatter(op: Op, x: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    if x.ndim == 0:
        src = as_row(src) if isinstance(src, Tensor) else src
        ids = as_row(as_index(op.name, index))
        return reshape(_scatter(op, as_row(x), dim, ids, src), ())
    d, index, src = _scatter_operands(op.name, x, dim, index, src)
    return bind(op, (x, index, src), {"dim": d})


_SCATTERS = {"add": "sum", "multiply": "prod"}


@public(method=True, inplace="0, weft.tensor([[0]]), 5.0")
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy with the elements of ``src`` (or one value) put where ``index`` says.

    ``reduce`` is None, ``"add"`` or ``"multiply"``.

    >>> weft.zeros(3).scatter(0, weft.tensor([2]), weft.tensor([5.0]))
    tensor([0., 0., 5.])
    """
    given = value if src is None else src
    if given is None:
        raise ArgumentError("scatter: expected src or value, got neither")
    if reduce is None:
        return _scatter(scatter_op, input, dim, index, given)
    if reduce not in _SCATTERS:
        raise ArgumentError(
            f"scatter: reduce must be None, 'add' or 'multiply', got {reduce!r}"
        )
    if not isinstance(given, Tensor):
        ids = as_index("scatter", index)
        given = expand(scalar("scatter", given, input.dtype), ids.shape)
    return scatter_reduce(input, dim, index, given, _SCATTERS[reduce])


@public(method=True, inplace="0, weft.tensor([[0]]), x")
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with the elements of ``src`` added where ``index`` says.

    >>> weft.zeros(2).scatter_add(0, weft.tensor([1, 1]), weft.tensor([5.0, 6.0]))
    tensor([ 0., 11.])
    """
    return _scatter(scatter_add_op, input, dim, index, src)


# -- scatter with a reduction


_COMBINE = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
_LOOPS = {
    "prod": scattered("mul"), "amax": scattered("maximum"),
    "amin": scattered("minimum"),
}  # fmt: skip


def _combine_eval(x: Any, index: Any, src: Any, *, dim: int, reduce: str) -> Any:
    check_range("scatter_reduce", index, x.shape[dim], dim, wrap=False)
    out = x.copy()
    _COMBINE[reduce].at(out, index_grid(index, dim), src)
    return out


def _shares(
    x: Tensor, index: Tensor, src: Tensor, out: Tensor, dim: int, reduce: str
) -> tuple[Tensor, Tensor]:
    """The output's derivative by each element of ``x`` and of ``src``."""
    back = gather_op(out, index, dim=dim)
    if reduce != "prod":  # equal winners share
        won, won_src = cast(x == out, x.dtype), cast(src == back, x.dtype)
        count = scatter_add_op(won, index, won_src, dim=dim)
        return won / count, won_src / gather_op(count, index, dim=dim)
    filled, filled_src = (where(v == 0, 1, v) for v in (x, src))
    rest = scatter_combine(filled, index, filled_src, dim=dim, reduce="prod")
    zero, zero_src = (cast(v == 0, x.dtype) for v in (x, src))
    zeros = scatter_add_op(zero, index, zero_src, dim=dim)
    nil, nil_src = (where(v == 0, v, 0) for v in (x, src))
    nils = scatter_add_op(nil, index, nil_src, dim=dim)
    return _others_product(x, filled, rest, zeros, nils), _others_product(
        src, filled_src, *(gather_op(v, index, dim=dim) for v in (rest, zeros, nils))
    )


def _others_product(
    v: Tensor, filled: Tensor, rest: Tensor, zeros: Tensor, nils: Tensor
) -> Tensor:
    """The product of a group without ``v``, right where the group has zeros.

    ``rest`` is the product of the elements that are not zero, ``zeros`` the number
    of the others and ``nils`` their sum (which is 0, but has derivatives).
    """
    few = where(zeros == 1, nils * rest / filled, 0)
    return where(
        v == 0, where(zeros == 1, rest, 0), where(zeros == 0, rest / filled, few)
    )


def _combine_vjp(
    g: Tensor, need: Any, x: Tensor, index: Tensor, src: Tensor, out: Tensor,
    dim: int, reduce: str,
) -> tuple[Any, ...]:  # fmt: skip
    by_x, by_src = _shares(x, index, src, out, dim, reduce)
    back = gather_op(g, index, dim=dim)
    return (g * by_x if need[0] else None, None, back * by_src if need[2] else None)


def _combine_jvp(
    ts: list[Any], x: Tensor, index: Tensor, src: Tensor, out: Tensor,
    dim: int, reduce: str,
) -> Tensor:  # fmt: skip
    by_x, by_src = _shares(x, index, src, out, dim, reduce)
    moved = zeros_of(x.shape, x) if ts[0] is None else ts[0] * by_x
    if ts[2] is None:
        return moved
    return scatter_add_op(moved, index, ts[2] * by_src, dim=dim)


def _combine_samples(rng: np.random.Generator) -> Any:
    for k, (shape, ids, dim) in enumerate(GATHERS):
        index = rng.integers(0, shape[dim], ids)
        values = rng.permuted(np.linspace(0.4, 2, math.prod(shape) + math.prod(ids)))
        x, src = values[: math.prod(shape)], values[math.prod(shape) :]
        params = {"dim": dim, "reduce": ("prod", "amax", "amin")[k % 3]}
        yield Sample((x.reshape(shape), index, src.reshape(ids)), params)


def _combine_reference(x: Any, index: Any, src: Any, *, dim: int, reduce: str) -> Any:
    combine: Any = {"prod": lambda a, b: a * b, "amax": max, "amin": min}[reduce]
    out = x.copy()
    for position in np.ndindex(index.shape):
        to = (*position[:dim], index[position], *position[dim + 1 :])
        out[to] = combine(out[to], src[position])
    return out


scatter_combine: Op = define(
    "scatter_combine",
    refuses={"index": 10**6},
    inputs="x index src",
    lower=Varied(
        lambda x, index, src, *, dim, reduce: _LOOPS[reduce].choose(
            x, index, src, dim=dim
        )
    ),
    eval=_combine_eval,
    type=lambda x, index, src, *, dim, reduce: x,
    vjp=_combine_vjp,
    jvp=_combine_jvp,
    batch=all_batched,
    samples=_combine_samples,
    reference=_combine_reference,
)


@public(method=True, inplace="0, weft.tensor([[0]]), x, 'amax'")
def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """A copy with the elements of ``src`` combined where ``index`` says.

    ``reduce`` is ``sum``, ``prod``, ``mean``, ``amax`` or ``amin``; without
    ``include_self`` the elements that something comes to don't count themselves.

    >>> x, ids = weft.tensor([1.0, 2.0]), weft.tensor([0, 0])
    >>> x.scatter_reduce(0, ids, weft.tensor([5.0, 3.0]), "amax")
    tensor([5., 2.])
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ArgumentError(
            "scatter_reduce: reduce must be 'sum', 'prod', 'mean', 'amax' or 'amin', "
            f"got {reduce!r}"
        )
    if input.ndim == 0:
        ids, src = as_row(as_index("scatter_reduce", index)), as_row(src)
        row = scatter_reduce(
            as_row(input), dim, ids, src, reduce, include_self=include_self
        )
        return reshape(row, ())
    d, ids, src = _scatter_operands("scatter_reduce", input, dim, index, src)
    hits = scatter_add_op(
        zeros(input.shape, dtype=dtypes.int64, device=input.device),
        ids,
        ones(ids.shape, dtype=dtypes.int64, device=input.device),
        dim=d,
    )
    x = input
    if not include_self:
        x = where(
            hits > 0, scalar("scatter_reduce", _neutral(reduce, x.dtype), x.dtype), x
        )
    if reduce in _COMBINE:
        return scatter_combine(x, ids, src, dim=d, reduce=reduce)
    total = scatter_add_op(x, ids, src, dim=d)
    if reduce == "sum":
        return total
    count = hits + 1 if include_self else where(hits > 0, hits, 1)
    whole = not total.dtype.is_inexact
    return (
        total // cast(count, total.dtype) if whole else total / cast(count, total.dtype)
    )


def _neutral(reduce: str, dtype: dtypes.DType) -> Any:
    """The neutral element, which leaves the other operand as it is."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.is_floating_point:
        return -math.inf if reduce == "amax" else math.inf
    if dtype is dtypes.bool_:
        return reduce == "amin"
    limits = np.iinfo(dtype.np)
    return limits.min if reduce == "amax" else limits.max
