"""Elements picked along one axis by an index tensor, and the transpose of that.

The primitives are ``gather``, ``scatter`` and ``scatter_add``; their rules are
made of one another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.dims import existing_dim, normalize_dim
from weft.core.dispatch import bind
from weft.core.eager_kernels import SLOW
from weft.core.lowering import Element, Scatter, Varied
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import is_one, same
from weft.core.tensor import Tensor
from weft.errors import ShapeError
from weft.ops import dividing
from weft.ops.broadcasting import expand
from weft.ops.elementwise import broadcast_shapes
from weft.ops.index import as_row, zeros_of
from weft.ops.operands import as_index, check_range
from weft.ops.public import public
from weft.ops.require import require_index
from weft.ops.select import where
from weft.ops.shaping import reshape


def index_grid(index: Any, dim: int) -> tuple[Any, ...]:
    """Index arrays that visit every position of ``index`` along ``dim``."""
    out = []
    for axis, n in enumerate(index.shape):
        lone = (1,) * axis + (n,) + (1,) * (index.ndim - axis - 1)
        out.append(index if axis == dim else np.arange(n).reshape(lone))
    return tuple(out)


def _gather_eval(x: Any, index: Any, *, dim: int) -> Any:
    check_range("gather", index, x.shape[dim], dim, wrap=False)
    return x[index_grid(index, dim)]


def _scatter_eval(x: Any, index: Any, src: Any, *, dim: int) -> Any:
    check_range("scatter", index, x.shape[dim], dim, wrap=False)
    out = x.copy()
    out[index_grid(index, dim)] = src
    return out


def _scatter_add_eval(x: Any, index: Any, src: Any, *, dim: int) -> Any:
    check_range("scatter_add", index, x.shape[dim], dim, wrap=False)
    out = x.copy()
    np.add.at(out, index_grid(index, dim), src)
    return out


def _gather_type(x: TensorType, index: TensorType, *, dim: int) -> TensorType:
    check_gather("gather", x.shape, index.shape, dim)
    return TensorType(index.shape, x.dtype)


def check_gather(name: str, x: Any, index: Any, dim: int) -> None:
    if len(x) != len(index):
        raise ShapeError(
            f"{name}: expected an index of as many dimensions as the tensor, got "
            f"shapes {x} and {index}"
        )
    for axis, (n, m) in enumerate(zip(x, index, strict=True)):
        if axis != dim and m > n:
            raise ShapeError(
                f"{name}: index shape {index} is larger than shape {x} along axis "
                f"{axis} (only dim {dim} may be)"
            )


def all_batched(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    full = [
        a if b else expand(a, (size, *a.shape))
        for a, b in zip(args, batched, strict=True)
    ]
    return bind(op, tuple(full), dict(params, dim=params["dim"] + 1))


GATHERS = (
    ((3, 4), (3, 2), 1),
    ((4, 3), (2, 3), 0),
    ((5,), (3,), 0),
    ((3, 2), (0, 2), 0),
)


def _gather_samples(rng: np.random.Generator) -> Any:
    for shape, ids, dim in GATHERS:
        index = rng.integers(0, shape[dim], ids)
        yield Sample((rng.uniform(-2, 2, shape), index), {"dim": dim})


def _loop_gather(x: Any, index: Any, *, dim: int) -> Any:
    out = np.zeros(index.shape)
    for position in np.ndindex(index.shape):
        out[position] = x[(*position[:dim], index[position], *position[dim + 1 :])]
    return out


def _gathered(k: Any, out: Any, x: Any, index: Any, *, dim: int) -> Any:
    position = k.within(index[out], x.shape[dim])
    return x[*out[:dim], position, *out[dim + 1 :]]


def _gathered_from(out: Any, *, dim: int) -> Any:
    return (*out[:dim], None, *out[dim + 1 :]), out


gather_op: Op = define(
    "gather",
    divides=dividing.along,
    refuses={"index": 10**6},
    bulk=SLOW,
    inputs="x index",
    eval=_gather_eval,
    type=_gather_type,
    cost=0,
    lower=Element(_gathered, here=_gathered_from),
    vjp={
        "x": lambda g, x_shape, index, dim: scatter_add_op(
            zeros_of(x_shape, g), index, g, dim=dim
        )
    },
    jvp={"x": lambda t, index, dim: gather_op(t, index, dim=dim)},
    batch=all_batched,
    samples=_gather_samples,
    reference=_loop_gather,
)


def _scatter_samples(rng: np.random.Generator) -> Any:
    for shape, ids, dim in GATHERS:
        order = np.argsort(rng.uniform(size=shape), dim)
        index = order[tuple(slice(0, n) for n in ids)]
        src = rng.uniform(-2, 2, ids)
        yield Sample((rng.uniform(-2, 2, shape), index, src), {"dim": dim})


def _loop_scatter(x: Any, index: Any, src: Any, *, dim: int, add: bool) -> Any:
    out = x.copy()
    for position in np.ndindex(index.shape):
        to = (*position[:dim], index[position], *position[dim + 1 :])
        out[to] = src[position] + (out[to] if add else 0)
    return out


def scattered(combine: str | None) -> Varied:
    """Loops over the updates; element by element where each line gets only one.

    ``combine`` names a scalar function; without one the last update stays.
    """

    def update(
        k: Any, at: Any, x: Any, index: Any, src: Any, *, dim: int, **params: Any
    ) -> Any:
        position = k.within(index[at], x.shape[dim])
        return (*at[:dim], position, *at[dim + 1 :]), src[at]

    def shared(x: Any, index: Any, src: Any, *, dim: int, **params: Any) -> Any:
        axes = [d for d in range(len(x.shape)) if d != dim]
        return tuple((d, d) for d in axes if same(x.shape[d], index.shape[d]))

    def element(
        k: Any, out: Any, x: Any, index: Any, src: Any, *, dim: int, **params: Any
    ) -> Any:
        at = (*out[:dim], 0, *out[dim + 1 :])
        position = k.within(index[at], x.shape[dim])
        old = x[out]
        new = src[at] if combine is None else k.call(combine, old, src[at])
        return k.call("where", k.call("eq", k.at(position), k.at(out[dim])), new, old)

    def here(out: Any, *, dim: int, **params: Any) -> Any:
        at = (*out[:dim], 0, *out[dim + 1 :])
        return out, at, at

    loops = Scatter(
        start=lambda k, out, x, index, src, **params: x[out],
        domain=lambda x, index, src, **params: index.shape,
        update=update,
        combine=combine,
        shared=shared,
    )
    lone = Element(element, here)

    def choose(x: Any, index: Any, src: Any, *, dim: int, **params: Any) -> Any:
        others = [d for d in range(len(x)) if d != dim]
        alike = all(same(x[d], index[d]) for d in others)
        return lone if is_one(index[dim]) and alike else loops

    return Varied(choose)


scatter_op: Op = define(
    "scatter",
    refuses={"index": 10**6},
    inputs="x index src",
    eval=_scatter_eval,
    lower=scattered(None),
    type=lambda x, index, src, *, dim: x,
    cost=0,
    vjp={
        "x": lambda g, index, dim: scatter_op(
            g, index, zeros_of(index.shape, g), dim=dim
        ),
        "src": lambda g, index, dim: gather_op(g, index, dim=dim),
    },
    jvp={
        "x": lambda t, index, dim: scatter_op(
            t, index, zeros_of(index.shape, t), dim=dim
        ),
        "src": lambda t, x, index, dim: scatter_op(
            zeros_of(x.shape, t), index, t, dim=dim
        ),
    },
    batch=all_batched,
    samples=_scatter_samples,
    reference=lambda x, index, src, *, dim: _loop_scatter(
        x, index, src, dim=dim, add=False
    ),
)

scatter_add_op: Op = define(
    "scatter_add",
    divides=dividing.along,
    refuses={"index": 10**6},
    bulk=SLOW,
    inputs="x index src",
    eval=_scatter_add_eval,
    lower=scattered("add"),
    type=lambda x, index, src, *, dim: x,
    flops=lambda out, x, index, src: src,
    vjp={
        "x": lambda g: g,
        "src": lambda g, index, dim: gather_op(g, index, dim=dim),
    },
    jvp={
        "x": lambda t: t,
        "src": lambda t, x, index, dim: scatter_add_op(
            zeros_of(x.shape, t), index, t, dim=dim
        ),
    },
    batch=all_batched,
    samples=_scatter_samples,
    reference=lambda x, index, src, *, dim: _loop_scatter(
        x, index, src, dim=dim, add=True
    ),
)


@public(method=True)
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Elements picked along a dimension, one for each element of ``index``.

    >>> weft.tensor([[1, 2], [3, 4]]).gather(1, weft.tensor([[1], [0]]))
    tensor([[2],
            [3]])
    """
    d = normalize_dim("gather", dim, input.ndim)
    index = as_index("gather", index)
    if input.ndim == 0 and index.ndim <= 1:
        return reshape(gather(reshape(input, (1,)), 0, as_row(index)), index.shape)
    if index.ndim != input.ndim and 0 in index.shape:  # nothing is looked up
        return zeros_of(index.shape, input)
    check_gather("gather", input.shape, index.shape, d)
    return bind(gather_op, (input, index), {"dim": d})


@public(method=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Gather along a dimension, with the other dimensions broadcast.

    >>> x = weft.tensor([[3, 1, 2]])
    >>> x.take_along_dim(x.argsort(1), 1)
    tensor([[1, 2, 3]])
    """
    if dim is None:
        return gather(input.flatten(), 0, indices.flatten())
    d = existing_dim("take_along_dim", dim, input.ndim)
    others = [(*s[:d], 1, *s[d + 1 :]) for s in (input.shape, indices.shape)]
    common = broadcast_shapes("take_along_dim", *others)
    x = expand(input, (*common[:d], input.shape[d], *common[d + 1 :]))
    ids = expand(indices, (*common[:d], indices.shape[d], *common[d + 1 :]))
    size = x.shape[d]
    ids = require_index("take_along_dim", as_index("take_along_dim", ids), size, d)
    return gather(x, d, where(ids < 0, ids + size, ids))
