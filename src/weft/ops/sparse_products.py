"""Products of sparse matrices with dense ones, as operators over their parts.

A sparse matrix is here the row, the column and the value of each of its elements.
The two operators are each other's derivatives:

    out[r, :] += values[k] * dense[c, :]       for the k-th element, at (r, c)
    out[k] = sum(a[r, :] * b[c, :])            the elements of a @ b' at (r, c)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.eager_kernels import SLOW
from weft.core.lowering import Fold, Scatter
from weft.core.op import Op, Sample, TensorType, define
from weft.errors import ArgumentError, ShapeError

_ROWS = 4096  # elements at a time, so that products stay in the cache


def _product_eval(
    rows: Any, columns: Any, values: Any, dense: Any, *, size: int
) -> Any:
    out = np.zeros((size, dense.shape[1]), dense.dtype)
    for k in range(0, len(rows), _ROWS):
        some = slice(k, k + _ROWS)
        part = values[some, None] * dense[columns[some]]
        np.add.at(out, rows[some], part)
    return out


def _product_type(
    rows: TensorType, columns: TensorType, values: TensorType, dense: TensorType, *,
    size: int,
) -> TensorType:  # fmt: skip
    if not (rows.shape == columns.shape == values.shape and len(rows.shape) == 1):
        raise ShapeError(
            "sparse_product: expected a row, a column and a value for each element, "
            f"got {rows.shape}, {columns.shape} and {values.shape}"
        )
    if len(dense.shape) != 2 or dense.dtype is not values.dtype:
        raise ArgumentError(
            f"sparse_product: expected a matrix of {values.dtype.name}, got {dense}"
        )
    return TensorType((size, dense.shape[1]), dense.dtype)


def _product_update(
    k: Any, at: Any, rows: Any, columns: Any, values: Any, dense: Any, *, size: int
) -> Any:
    row = k.within(rows[at[0],], size)
    column = k.within(columns[at[0],], dense.shape[0])
    return (row, at[1]), k.call("mul", values[at[0],], dense[column, at[1]])


def _samples(rng: np.random.Generator, shape: tuple[int, int], count: int) -> Any:
    rows = rng.integers(0, shape[0], count)
    return rows, rng.integers(0, shape[1], count)


def _product_samples(rng: np.random.Generator) -> Any:
    for shape, count, width in (((3, 4), 6, 2), ((2, 2), 0, 3), ((4, 3), 5, 1)):
        at = _samples(rng, shape, count)
        dense = rng.uniform(-2, 2, (shape[1], width))
        yield Sample((*at, rng.uniform(-2, 2, count), dense), {"size": shape[0]})


def _loop_product(
    rows: Any, columns: Any, values: Any, dense: Any, *, size: int
) -> Any:
    matrix = np.zeros((size, dense.shape[0]))
    for r, c, v in zip(rows, columns, values, strict=True):
        matrix[r, c] += v
    return matrix @ dense


product_op: Op = define(
    "sparse_product",
    inputs="rows columns values dense",
    refuses={"rows": 10**6, "columns": 10**6},
    bulk=SLOW,
    eval=_product_eval,
    type=_product_type,
    lower=Scatter(
        start=lambda k, out, rows, columns, values, dense, size: k.number(0, dense.dtype),
        domain=lambda rows, columns, values, dense, size: (
            rows.shape[0], dense.shape[1],
        ),
        update=_product_update,
        combine="add",
        shared=lambda rows, columns, values, dense, size: ((1, 1),),
    ),
    flops=lambda out, rows, columns, values, dense: (2, *values, dense[1]),
    vjp={
        "values": lambda g, rows, columns, dense: sampled_op(rows, columns, g, dense),
        "dense": lambda g, rows, columns, values, dense_shape: product_op(
            columns, rows, values, g, size=dense_shape[0]
        ),
    },
    jvp={
        "values": lambda t, rows, columns, dense, size: product_op(
            rows, columns, t, dense, size=size
        ),
        "dense": lambda t, rows, columns, values, size: product_op(
            rows, columns, values, t, size=size
        ),
    },
    samples=_product_samples,
    reference=_loop_product,
)  # fmt: skip


def _sampled_eval(rows: Any, columns: Any, a: Any, b: Any) -> Any:
    out = np.empty(len(rows), a.dtype)
    for k in range(0, len(rows), _ROWS):
        some = slice(k, k + _ROWS)
        out[some] = (a[rows[some]] * b[columns[some]]).sum(1)
    return out


def _sampled_type(
    rows: TensorType, columns: TensorType, a: TensorType, b: TensorType
) -> TensorType:
    if len(a.shape) != 2 or len(b.shape) != 2 or a.dtype is not b.dtype:
        raise ArgumentError(f"sampled_product: expected two matrices, got {a} and {b}")
    return TensorType(rows.shape, a.dtype)


def _sampled_step(
    k: Any, out: Any, at: Any, states: Any, rows: Any, columns: Any, a: Any, b: Any
) -> Any:
    row = k.within(rows[out], a.shape[0])
    column = k.within(columns[out], b.shape[0])
    term = k.call("mul", a[row, at[0]], b[column, at[0]])
    return (k.call("add", states[0], term),)


def _sampled_samples(rng: np.random.Generator) -> Any:
    for shape, count, width in (((3, 4), 6, 2), ((2, 2), 0, 3), ((4, 3), 5, 1)):
        at = _samples(rng, shape, count)
        a, b = (rng.uniform(-2, 2, (n, width)) for n in shape)
        yield Sample((*at, a, b))


sampled_op: Op = define(
    "sampled_product",
    inputs="rows columns a b",
    refuses={"rows": 10**6, "columns": 10**6},
    bulk=SLOW,
    eval=_sampled_eval,
    type=_sampled_type,
    lower=Fold(
        domain=lambda rows, columns, a, b: (a.shape[1],),
        start=lambda k, out, rows, columns, a, b: (k.number(0, a.dtype),),
        step=_sampled_step,
        end=lambda k, out, states, rows, columns, a, b: states[0],
    ),
    flops=lambda out, rows, columns, a, b: (2, *out, a[1]),
    vjp={
        "a": lambda g, rows, columns, a_shape, b: product_op(
            rows, columns, g, b, size=a_shape[0]
        ),
        "b": lambda g, rows, columns, a, b_shape: product_op(
            columns, rows, g, a, size=b_shape[0]
        ),
    },
    jvp={
        "a": lambda t, rows, columns, b: sampled_op(rows, columns, t, b),
        "b": lambda t, rows, columns, a: sampled_op(rows, columns, a, t),
    },
    samples=_sampled_samples,
    reference=lambda rows, columns, a, b: np.array(
        [a[r] @ b[c] for r, c in zip(rows, columns, strict=True)]
    ).reshape(len(rows)),
)
