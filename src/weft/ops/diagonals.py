"""Diagonals and triangles of matrices.

The primitive is ``diagonal``, a view.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft.core.device import cpu
from weft.core.dims import as_int, normalize_dim
from weft.core.dispatch import bind
from weft.core.lowering import View
from weft.core.mode import mode
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import larger, smaller
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.ops.comparison import ge, le
from weft.ops.creation import arange
from weft.ops.index import add_at
from weft.ops.indexing import getitem, setitem
from weft.ops.joining import cat
from weft.ops.operands import tensor_list
from weft.ops.padding import pad
from weft.ops.public import public
from weft.ops.select import where
from weft.ops.shaping import atleast_2d, movedim, reshape

# -- triangles


@public(method=True, inplace="")
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle, zeros elsewhere.

    >>> weft.ones(2, 2).tril()
    tensor([[1., 0.],
            [1., 1.]])
    """
    return _triangle("tril", input, le, diagonal)


@public(method=True, inplace="")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle, zeros elsewhere.

    >>> weft.ones(2, 2).triu()
    tensor([[1., 1.],
            [0., 1.]])
    """
    return _triangle("triu", input, ge, diagonal)


def _triangle(name: str, x: Tensor, keep: Any, diagonal: int) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected at least 2 dimensions, got shape {x.shape}")
    diagonal = as_int(name, diagonal, "`diagonal` to be an int")
    zero = x.dtype.np.type(
        0
    ).item()  # of the same kind, which where() has a short way for
    return where(_mask(x, keep, diagonal), x, zero)


def _mask(x: Tensor, keep: Any, diagonal: int) -> Tensor:
    """Where the triangle is; a program counts it out instead of holding it."""
    *_, n, m = x.shape
    if mode.capture is None and x.device is cpu:
        shown = _seen if n * m <= _MOST_SEEN else _seen.__wrapped__
        return Tensor(shown(n, m, diagonal, keep is le))
    rows, columns = arange(n, device=x.device), arange(m, device=x.device)
    return keep(columns, rows.unsqueeze(1) + diagonal)


_MOST_SEEN = 1 << 16  # elements of a mask that is kept for another time


@functools.lru_cache(maxsize=32)
def _seen(n: int, m: int, diagonal: int, lower: bool) -> np.ndarray:
    found = np.tri(n, m, diagonal if lower else diagonal - 1, dtype=bool)
    found = found if lower else ~found
    found.flags.writeable = False
    return found


# -- blocks


@public()
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere.

    >>> weft.block_diag(weft.tensor([[1, 2]]), weft.tensor([3]))
    tensor([[1, 2, 0],
            [0, 0, 3]])
    """
    blocks = [atleast_2d(x) for x in tensor_list("block_diag", tensors)]
    for k, x in enumerate(blocks):
        if x.ndim > 2:
            raise ShapeError(
                f"block_diag: expected at most 2 dimensions, got shape {x.shape} at "
                f"position {k}"
            )
    total = sum(x.shape[1] for x in blocks)
    rows, done = [], 0
    for x in blocks:
        rows.append(pad(x, (done, total - done - x.shape[1])))
        done += x.shape[1]
    return cat(rows, 0)


# -- diagonals


def _diagonal_eval(x: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    out = np.diagonal(x, offset, dim1, dim2)
    if x.flags.writeable:
        out.flags.writeable = True
    return out


def _diagonal_type(x: TensorType, *, offset: int, dim1: int, dim2: int) -> TensorType:
    count = _diagonal_length(x.shape[dim1], x.shape[dim2], offset)
    rest = [n for axis, n in enumerate(x.shape) if axis not in (dim1, dim2)]
    return TensorType((*rest, count), x.dtype)


def _diagonal_back(
    g: Tensor, x_shape: tuple[int, ...], offset: int, dim1: int, dim2: int
) -> Tensor:
    """Zeros with ``g`` on the diagonal."""
    n, m = x_shape[dim1], x_shape[dim2]
    first = max(-offset, 0) * m + max(offset, 0)
    along = arange(_diagonal_length(n, m, offset), device=g.device)
    positions = along * (m + 1) + first
    flat = add_at(movedim(g, -1, 0), positions, size=n * m)
    return movedim(reshape(flat, (n, m, *g.shape[:-1])), (0, 1), (dim1, dim2))


def _diagonal_reference(x: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    moved = np.moveaxis(x, (dim1, dim2), (0, 1))
    pairs = [(i, i + offset) for i in range(len(moved))]
    kept = [moved[i, j] for i, j in pairs if 0 <= j < moved.shape[1]]
    rest = moved.shape[2:]
    return np.moveaxis(np.array(kept).reshape(len(kept), *rest), 0, -1)


def _diagonal_at(
    out: Any, x_shape: Any, *, offset: int, dim1: int, dim2: int
) -> tuple[Any, ...]:
    """The index in the matrix of an element of the diagonal."""
    rest, along = list(out[:-1]), out[-1]
    position = {dim1: along - min(offset, 0), dim2: along + max(offset, 0)}
    return tuple(
        position[d] if d in position else rest.pop(0) for d in range(len(x_shape))
    )


diagonal_op: Op = define(
    "diagonal",
    inputs="x",
    lower=View(_diagonal_at),
    eval=_diagonal_eval,
    type=_diagonal_type,
    vjp={
        "x": lambda g, x_shape, offset, dim1, dim2: _diagonal_back(
            g, x_shape, offset, dim1, dim2
        )
    },
    linear=True,
    view=True,
    batch=lambda op, size, args, batched, params: diagonal_op(
        args[0],
        offset=params["offset"],
        dim1=params["dim1"] + 1,
        dim2=params["dim2"] + 1,
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, s),), {"offset": k, "dim1": a, "dim2": b})
        for s, k, a, b in (
            ((3, 4), 0, 0, 1),
            ((3, 4), -1, 0, 1),
            ((2, 3, 4), 1, 2, 0),
            ((0, 2), 0, 0, 1),
        )
    ],
    reference=_diagonal_reference,
)


@public(method=True)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, as the last dimension, without copying.

    >>> weft.tensor([[1, 2], [3, 4]]).diagonal()
    tensor([1, 4])
    """
    a = normalize_dim("diagonal", dim1, input.ndim)
    b = normalize_dim("diagonal", dim2, input.ndim)
    if a == b:
        raise ArgumentError(
            f"diagonal: expected two different dims of shape {input.shape}, got {dim1} "
            f"and {dim2}"
        )
    return bind(diagonal_op, (input,), {"offset": offset, "dim1": a, "dim2": b})


def _diagonal_length(n: Any, m: Any, offset: int) -> Any:
    return larger(smaller(n + min(offset, 0), m - max(offset, 0)), 0)


def _diagonal_indices(n: int, m: int, offset: int) -> tuple[Any, Any]:
    count = _diagonal_length(n, m, offset)
    return np.arange(count) + max(-offset, 0), np.arange(count) + max(offset, 0)


@public(method=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix's diagonal, or a matrix with the given diagonal.

    >>> weft.diag(weft.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise ShapeError(f"diag: expected 1 or 2 dimensions, got shape {input.shape}")
    rows, cols = _diagonal_indices(input.shape[0], input.shape[1], diagonal)
    return getitem(
        input, (Tensor(rows).to(input.device), Tensor(cols).to(input.device))
    )


@public(method=True)
def diag_embed(
    input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Tensor:
    """Matrices with the last dimension on their diagonals.

    >>> weft.diag_embed(weft.ones(2, 3)).shape
    (2, 3, 3)
    """
    if input.ndim == 0:
        raise ShapeError(
            "diag_embed: expected at least one dimension, got a 0-d tensor"
        )
    a, b = (normalize_dim("diag_embed", d, input.ndim + 1) for d in (dim1, dim2))
    if a == b:
        raise ArgumentError(f"diag_embed: dim1 and dim2 are both {a}")
    n = input.shape[-1] + abs(offset)
    rows, cols = _diagonal_indices(n, n, offset)
    positions = Tensor(rows * n + cols).to(input.device)
    flat = add_at(movedim(input, -1, 0), positions, size=n * n)
    out = reshape(flat, (n, n, *input.shape[:-1]))
    return movedim(out, (0, 1), (a, b))


@public(method=True)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements on its diagonal.

    >>> weft.tensor([[1, 2]]).diagflat()
    tensor([[1, 0],
            [0, 2]])
    """
    return diag_embed(reshape(input, (input.numel(),)), offset)


@public(method=True)
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal.

    >>> weft.trace(weft.eye(3))
    tensor(3.)
    """
    if input.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, got shape {input.shape}")
    return diag(input).sum()


@public(method=True)
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy with the diagonal replaced.

    >>> weft.zeros(2, 2).diagonal_scatter(weft.ones(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    out = input.clone()
    setitem(diagonal(out, offset, dim1, dim2), ..., src)
    return out
