"""Operators on sparse tensors: a form each, over indices and values.

``apply`` is called instead of an operator's evaluation where an argument is sparse.
An operator without a form here is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.ops.require import known
from weft.ops.sparse_products import product_op, sampled_op
from weft.sparse.tensor import (
    SparseCompressed,
    SparseCOO,
    SparseTensor,
    compressed,
    refused,
)


def apply(op: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The result of an operator of which an argument is sparse."""
    if _keeps_zero(op, args[0], params):
        x = args[0].coalesce() if isinstance(args[0], SparseCOO) else args[0]
        return x.like(op(x._held, **params))
    form = _FORMS.get(op.name)
    if form is None:
        raise refused(op.name)
    return form(*args, **params)


def _keeps_zero(op: Any, x: Any, params: dict[str, Any]) -> bool:
    """Whether an operator is a function of single elements with f(0) = 0: it needs the
    values alone."""
    if not op.facts.elementwise or len(op.inputs) != 1:
        return False
    return not np.any(op.eval(np.zeros(1, x.dtype.np), **params))


def like_layout(x: SparseCOO, other: SparseTensor) -> Any:
    """A result in the layout of an argument; by rows where its blocks do not fit."""
    block = other._blocks if isinstance(other, SparseCompressed) else ()
    if block and (x.shape[0] % block[0] or x.shape[1] % block[1]):
        return compressed(x, weft.sparse_csr)
    if isinstance(other, SparseCompressed):
        return compressed(x, other.layout, other._blocks or None)
    return x


def places(x: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    """The row, the column and the value of each element of a matrix."""
    if x.ndim != 2:
        raise ShapeError(
            f"matmul: expected a sparse matrix of two dimensions, got {x.shape}"
        )
    if isinstance(x, SparseCompressed) and not x._blocks:
        long, others = _long(x), x._others
        rows, columns = (long, others) if x._by_row else (others, long)
        return rows, columns, x._held
    x = x.coo()
    if x.dense_dim():
        raise refused("matmul", "a hybrid sparse tensor")
    return x._at[0], x._at[1], x._held


def _long(x: SparseCompressed) -> Tensor:
    """The row (or column) of each element, from where rows start; kept if known."""
    starts = x._starts
    if not known(starts):
        count = weft.arange(x._others.shape[0])
        return weft.searchsorted(starts, count, right=True) - 1
    if "_rows" not in x.__dict__:
        array = starts.array()
        each = np.repeat(np.arange(len(array) - 1), np.diff(array))
        x.__dict__["_rows"] = Tensor(each)
    return x.__dict__["_rows"]


def matmul(a: Any, b: Any) -> Any:
    """A product of which a factor, or both, are sparse."""
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ShapeError(
            f"matmul: expected inner sizes to agree, got {a.shape} and {b.shape}"
        )
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        return like_layout(_sparse_product(a.coo(), b.coo()), a)
    if isinstance(a, SparseTensor):
        if b.ndim == 1:
            return matmul(a, b.unsqueeze(1)).squeeze(1)
        if b.ndim != 2:
            raise refused("matmul", f"a sparse matrix and a tensor of {b.shape}")
        rows, columns, values = places(a)
        return product_op(rows, columns, values, b.contiguous(), size=a.shape[0])
    if a.ndim > 2:
        raise refused("matmul", f"a tensor of {a.shape} and a sparse matrix")
    if a.ndim == 1:
        return matmul(a.unsqueeze(0), b).squeeze(0)
    rows, columns, values = places(b)
    right = a.mT.contiguous()
    return product_op(columns, rows, values, right, size=b.shape[1]).mT


def _sparse_product(a: SparseCOO, b: SparseCOO) -> SparseCOO:
    """Of sparse matrices: each element of a meets the row of b at its column."""
    a, b = a.coalesce(), b.coalesce()
    if a.ndim != 2 or b.ndim != 2:
        raise refused("matmul", "sparse tensors that are no matrices")
    rows, columns = a._at.array()
    theirs, ends = b._at.array()
    starts = np.searchsorted(theirs, np.arange(b.shape[0] + 1))
    counts = (starts[1:] - starts[:-1])[columns]
    left = np.repeat(np.arange(len(rows)), counts)
    offset = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    right = starts[columns[left]] + offset
    values = a._held[Tensor(left)] * b._held[Tensor(right)]
    indices = Tensor(np.stack([rows[left], ends[right]]))
    return SparseCOO.of(indices, values, (a.shape[0], b.shape[1]), False).coalesce()


def _is_number(x: Any) -> bool:
    return not isinstance(x, Tensor) or (
        not isinstance(x, SparseTensor) and x.ndim == 0
    )


def _check_shapes(name: str, x: Any, y: Any) -> None:
    if tuple(x.shape) != tuple(y.shape):
        raise ShapeError(
            f"{name}: expected a sparse tensor and another of one shape, got "
            f"{tuple(x.shape)} and {tuple(y.shape)}"
        )


def _taken(x: SparseCOO, dense: Tensor) -> Tensor:
    """The elements of a dense tensor at a sparse one's indices."""
    return dense[tuple(x._at[k] for k in range(x.sparse_dim()))]


def mul(x: Any, y: Any) -> Any:
    """A product by element; zeros stay."""
    if not isinstance(x, SparseTensor):
        return mul(y, x)
    if _is_number(y):
        return x.like(x._held * y)
    if not isinstance(y, SparseTensor) and _repeated_number(y) is not None:
        return x.like(x._held * _repeated_number(y))
    _check_shapes("mul", x, y)
    if not isinstance(y, SparseTensor):
        a = x.coo().coalesce()
        return like_layout(a.like(a._held * _taken(a, y)), x)
    a, b = x.coo().coalesce(), y.coo().coalesce()
    _, i, j = np.intersect1d(
        a.keys(), b.keys(), assume_unique=True, return_indices=True
    )
    values = a._held[Tensor(i)] * b._held[Tensor(j)]
    indices = Tensor(np.ascontiguousarray(a._at.array()[:, i]))
    return like_layout(SparseCOO.of(indices, values, a.shape, True), x)


def _repeated_number(y: Tensor) -> Tensor | None:
    """The number that a dense tensor repeats, if that is how it was made."""
    if type(y) is Tensor and y.numel() and not any(y.array().strides):
        return y[(0,) * y.ndim]
    return None


def div(x: Any, y: Any, **params: Any) -> Any:
    """A quotient of a sparse tensor by a number."""
    if isinstance(x, SparseTensor) and not isinstance(y, SparseTensor):
        number = y if _is_number(y) else _repeated_number(y)
        if number is not None:
            return x.like(x._held / number)
    raise refused("div", "a divisor that is no number")


def power(x: Any, y: Any) -> Any:
    """A positive power."""
    number = y if _is_number(y) else None
    if isinstance(x, SparseTensor) and number is not None and float(number) > 0:
        x = x.coalesce() if isinstance(x, SparseCOO) else x
        return x.like(x._held**number)
    raise refused("pow", "an exponent that is not a positive number")


def add(x: Any, y: Any) -> Any:
    """A sum: of sparse tensors a sparse one, of a dense and a sparse one a dense."""
    if isinstance(x, SparseTensor) and isinstance(y, SparseTensor):
        _check_shapes("add", x, y)
        a, b = x.coo(), y.coo()
        indices = weft.cat([a._at, b._at], 1)
        values = weft.cat([a._held, b._held.to(a.dtype)], 0)
        joined = SparseCOO.of(indices, values, a.shape, False)
        return like_layout(joined.coalesce(), x)
    if isinstance(x, SparseTensor):
        raise ArgumentError(
            "add(sparse, dense): there is no form of it; write add(dense, sparse), "
            "which is dense, or convert with .to_dense() first"
        )
    _check_shapes("add", x, y)
    sparse = y.coo()
    return x.index_put(
        tuple(sparse._at[k] for k in range(sparse.sparse_dim())),
        sparse._held.to(x.dtype), accumulate=True,
    )  # fmt: skip


def sub(x: Any, y: Any) -> Any:
    """A difference; see ``add``."""
    if not isinstance(y, SparseTensor):
        raise refused("sub", "a sparse tensor and a dense one")
    return add(x, -y)


def total(x: SparseTensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The sum of all elements, or over some axes."""
    dims = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    gone = {d % x.ndim for d in dims}
    if len(gone) == x.ndim:
        out = x._held.sum()
        return out.reshape((1,) * x.ndim) if keepdim else out
    if keepdim:
        raise refused("sum with keepdim")
    a = x.coo()
    n = a.sparse_dim()
    values = a._held
    inner = sorted(d - n + 1 for d in gone if d >= n)
    if inner:
        values = values.sum(tuple(inner))
    kept = [d for d in range(n) if d not in gone]
    size = [a.shape[d] for d in range(a.ndim) if d not in gone]
    if not kept:
        return values.sum(0)
    indices = weft.stack([a._at[d] for d in kept])
    return SparseCOO.of(indices, values, size, False).coalesce()


def softmax(x: SparseTensor, dim: int, log: bool) -> Any:
    """The softmax of the elements that are held, along a sparse axis."""
    a = x.coo().coalesce()
    d = dim % a.ndim
    if d >= a.sparse_dim():
        values = a._held.log_softmax(d - a.ndim) if log else a._held.softmax(d - a.ndim)
        return a.like(values)
    others = [k for k in range(a.sparse_dim()) if k != d]
    key = np.zeros(a._nnz(), np.int64)
    for k in others:
        key = key * a.shape[k] + a._at.array()[k]
    lines, inverse = np.unique(key, return_inverse=True)
    at = Tensor(inverse.reshape(-1))
    empty = weft.zeros((len(lines), *a._held.shape[1:]), dtype=a.dtype)
    spread = at.reshape(-1, *(1,) * (a._held.ndim - 1)).expand(a._held.shape)
    top = empty.scatter_reduce(0, spread, a._held.detach(), "amax", include_self=False)
    shifted = a._held - top[at]
    sums = empty.index_add(0, at, shifted.exp())
    values = shifted - sums.log()[at] if log else shifted.exp() / sums[at]
    return like_layout(a.like(values), x)


def concatenated(*xs: Any, dim: int = 0) -> Any:
    """Sparse tensors side by side along a sparse axis."""
    if not all(isinstance(x, SparseTensor) for x in xs):
        raise refused("cat", "sparse and dense tensors together")
    parts = [x.coo() for x in xs]
    d = dim % parts[0].ndim
    if d >= parts[0].sparse_dim():
        raise refused("cat", "a dense axis of sparse tensors")
    shift, indices = 0, []
    for part in parts:
        rest = [a for k, a in enumerate(part.shape) if k != d]
        if rest != [a for k, a in enumerate(parts[0].shape) if k != d]:
            raise ShapeError(f"cat: {part.shape} does not fit {parts[0].shape}")
        moved = part._at.array().copy()
        moved[d] += shift
        shift += part.shape[d]
        indices.append(moved)
    size = list(parts[0].shape)
    size[d] = shift
    values = weft.cat([p._held for p in parts], 0)
    ordered = d == 0 and all(p._coalesced for p in parts)
    made = SparseCOO.of(Tensor(np.concatenate(indices, 1)), values, size, ordered)
    return like_layout(made.coalesce(), xs[0]) if ordered else made


def index_select(x: SparseTensor, dim: int, index: Any) -> Any:
    """The slices of a sparse tensor along an axis, by number."""
    a = x.coo()
    d = dim % a.ndim
    wanted = np.asarray(index.array()) % a.shape[d]
    if d >= a.sparse_dim():
        size = [*a.shape[:d], len(wanted), *a.shape[d + 1 :]]
        values = a._held.index_select(d - a.sparse_dim() + 1, index)
        return SparseCOO.of(a._at, values, size, a._coalesced)
    order = np.argsort(a._at.array()[d], kind="stable")
    have = a._at.array()[d][order]
    first = np.searchsorted(have, wanted)
    counts = np.searchsorted(have, wanted, side="right") - first
    new = np.repeat(np.arange(len(wanted)), counts)
    offset = np.arange(len(new)) - np.repeat(np.cumsum(counts) - counts, counts)
    old = order[np.repeat(first, counts) + offset]
    indices = a._at.array()[:, old].copy()
    indices[d] = new
    size = [*a.shape[:d], len(wanted), *a.shape[d + 1 :]]
    made = SparseCOO.of(Tensor(indices), a._held[Tensor(old)], size, False)
    return like_layout(made.coalesce(), x)


def select(x: SparseTensor, dim: int, index: int) -> Any:
    """One slice of a sparse tensor, without the axis."""
    d = dim % x.ndim
    if not -x.shape[d] <= index < x.shape[d]:
        raise weft.errors.OutOfRangeError(
            f"select: index {index} is out of range for axis {d} of size {x.shape[d]}"
        )
    part = index_select(x.coo(), d, Tensor(np.array([index])))
    n = part.sparse_dim()
    size = [*part.shape[:d], *part.shape[d + 1 :]]
    if d >= n:
        values = part._held.select(d - n + 1, 0)
        return SparseCOO.of(part._at, values, size, part._coalesced)
    if n == 1:
        return part._held.sum(0)
    kept = np.delete(part._at.array(), d, 0)
    return SparseCOO.of(Tensor(kept), part._held, size, True)


def unsqueezed(x: SparseTensor, dim: int) -> SparseCOO:
    """A sparse tensor with one more axis of size 1."""
    a = x.coo()
    d, n = dim % (a.ndim + 1), a.sparse_dim()
    size = [*a.shape[:d], 1, *a.shape[d:]]
    if d > n:
        return SparseCOO.of(a._at, a._held.unsqueeze(d - n + 1), size, a._coalesced)
    zero = weft.zeros((1, a._nnz()), dtype=weft.int64)
    indices = weft.cat([a._at[:d], zero, a._at[d:]], 0)
    return SparseCOO.of(indices, a._held, size, a._coalesced)


def getitem(x: SparseTensor, index: Any) -> Any:
    """``x[i]``, ``x[i, :]`` and slices of sparse tensors."""
    items = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (x.ndim - len(items) + 1)
    axis = 0
    for item in items:
        if isinstance(item, slice):
            if item != slice(None):
                numbers = np.arange(x.shape[axis])[item]
                x = index_select(x, axis, Tensor(numbers))
            axis += 1
        elif isinstance(item, (int, np.integer)):
            x = select(x, axis, int(item))
        else:
            raise refused(f"index {type(item).__name__}")
    return x


def permuted(x: Any, dims: tuple[int, ...]) -> Any:
    """The axes in another order."""
    return x.transpose(0, 1) if isinstance(x, SparseCompressed) else x.permute(dims)


def sampled_addmm(
    input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0,
    alpha: Any = 1.0,
) -> Any:  # fmt: skip
    """``alpha * (mat1 @ mat2)`` where ``input`` has elements, and ``beta * input``.

    >>> x = weft.eye(2).to_sparse_csr()
    >>> weft.sparse.sampled_addmm(x, weft.ones(2, 3), weft.ones(3, 2)).values()
    tensor([4., 4.])
    """
    rows, columns, values = places(input)
    product = sampled_op(rows, columns, mat1.contiguous(), mat2.mT.contiguous())
    return input.like(alpha * product + beta * values)


def reshaped(x: SparseTensor, shape: tuple[int, ...]) -> SparseCOO:
    """The elements of a tensor without dense axes in another shape."""
    a = x.coo()
    if a.dense_dim():
        raise refused("reshape", "a hybrid sparse tensor")
    indices = np.stack(np.unravel_index(a.keys(), shape)).astype(np.int64)
    return SparseCOO.of(Tensor(indices), a._held, shape, a._coalesced)


_FORMS: dict[str, Callable[..., Any]] = {
    "reshape": reshaped,
    "take": lambda x, index: index_select(x, 0, index),
    "slice": lambda x, index: getitem(x, index),
    "matmul": matmul,
    "mul": mul,
    "div": div,
    "add": add,
    "sub": sub,
    "pow": power,
    "sum": total,
    "permute": permuted,
    "cat": concatenated,
    "clone": lambda x, **params: x.clone(),
    "contiguous": lambda x, **params: x,
}
