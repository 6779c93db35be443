"""``weft.sparse``: sparse tensors, under PyTorch's names."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

import numpy as np

import weft
from weft import layouts
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.sparse import operators
from weft.sparse.operators import sampled_addmm
from weft.sparse.tensor import (
    SparseCompressed,
    SparseCOO,
    SparseTensor,
    check_coo,
    checks,
    compressed,
)

__all__ = [
    "SparseTensor", "addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants",
    "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "spsolve", "sum",
]  # fmt: skip


_OLD_NAMES = {
    "FloatTensor": weft.float32, "DoubleTensor": weft.float64,
    "HalfTensor": weft.float16, "BFloat16Tensor": weft.bfloat16,
    "LongTensor": weft.int64, "IntTensor": weft.int32, "ShortTensor": weft.int16,
    "CharTensor": weft.int8, "ByteTensor": weft.uint8, "BoolTensor": weft.bool,
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """PyTorch's older constructors, as ``FloatTensor(indices, values, size)``."""
    if name not in _OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    dtype = _OLD_NAMES[name]

    def made(*args: Any) -> Any:
        if args and isinstance(args[0], Tensor):
            return sparse_coo_tensor(*args, dtype=dtype)
        size = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
        none = weft.zeros(len(size) or 1, 0, dtype=weft.int64)
        return sparse_coo_tensor(none, weft.zeros(0, dtype=dtype), tuple(size) or (0,))

    made.__name__ = name
    return made


_COMPRESSED = (
    layouts.sparse_csr, layouts.sparse_csc, layouts.sparse_bsr, layouts.sparse_bsc,
)  # fmt: skip


class check_sparse_tensor_invariants(ContextDecorator):
    """Whether new sparse tensors are checked, where they are not told.

    Indices of coordinate format are always checked to be inside of the shape; the
    switch adds the checks of compressed formats.

    >>> with weft.sparse.check_sparse_tensor_invariants():
    ...     weft.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    """

    def __init__(self, enable: bool = True) -> None:
        self.state = enable

    @staticmethod
    def is_enabled() -> bool:
        """Whether checks are made."""
        return checks.enabled

    @staticmethod
    def enable() -> None:
        """Make checks from now on."""
        checks.enabled = True

    @staticmethod
    def disable() -> None:
        """Make no more checks."""
        checks.enabled = False

    def __enter__(self) -> None:
        self.before, checks.enabled = checks.enabled, self.state

    def __exit__(self, *error: object) -> None:
        checks.enabled = self.before


def _tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    return weft.tensor(data, dtype=dtype, device=device)


def sparse_coo_tensor(
    indices: Any,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseCOO:
    """A sparse tensor in coordinate format; indices that come twice add up.

    >>> weft.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2))
    tensor(indices=tensor([[0, 1],
                           [1, 0]]),
           values=tensor([2., 3.]),
           size=(2, 2), nnz=2, layout=weft.sparse_coo)
    """
    if values is None:  # sparse_coo_tensor(size): nothing but zeros
        shape = tuple(indices)
        kind = weft.get_default_dtype() if dtype is None else dtype
        none = weft.zeros((len(shape), 0), dtype=weft.int64)
        return SparseCOO.of(none, weft.zeros(0, dtype=kind), shape, True)
    at = _tensor(indices).to(weft.int64)
    held = _tensor(values, dtype, device)
    if at.ndim != 2 or held.ndim < 1 or at.shape[1] != held.shape[0]:
        raise ShapeError(
            "sparse_coo_tensor: expected indices of shape (sparse_dim, nnz) and values "
            f"of shape (nnz, ...), got {tuple(at.shape)} and {tuple(held.shape)}"
        )
    if size is None:
        top = at.max(1).values + 1 if at.shape[1] else weft.zeros(at.shape[0])
        size = (*(int(n) for n in top), *held.shape[1:])
    size = tuple(size)
    if len(size) != at.shape[0] + held.ndim - 1 or size[at.shape[0] :] != tuple(
        held.shape[1:]
    ):
        raise ShapeError(
            f"sparse_coo_tensor: a size of {size} does not fit {at.shape[0]} sparse "
            f"dimensions and values of shape {tuple(held.shape)}"
        )
    if at._interpreter is None and check_invariants is not False:
        check_coo(at.array(), size)
    out = SparseCOO.of(at, held, size, bool(is_coalesced))
    if is_coalesced and check_invariants and (np.diff(out.keys()) <= 0).any():
        raise ArgumentError(
            "sparse_coo_tensor: is_coalesced=True, but indices are not in order"
        )
    return out.requires_grad_() if requires_grad else out


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> SparseCompressed:
    """A sparse matrix in the compressed format that ``layout`` names.

    >>> csr = weft.sparse_csr
    >>> x = weft.sparse_compressed_tensor([0, 1, 2], [1, 0], [2.0, 3.0], layout=csr)
    >>> x.to_dense().tolist()
    [[0.0, 2.0], [3.0, 0.0]]
    """
    if layout not in _COMPRESSED:
        raise ArgumentError(
            "sparse_compressed_tensor: expected a compressed layout, such as "
            f"weft.sparse_csr, got {layout!r}"
        )
    starts = _tensor(compressed_indices).to(weft.int64)
    others = _tensor(plain_indices).to(weft.int64)
    held = _tensor(values, dtype, device)
    name = f"{layout.name}_tensor"
    blocked = layout in (layouts.sparse_bsr, layouts.sparse_bsc)
    if starts.ndim != 1 or others.ndim != 1 or held.ndim < (3 if blocked else 1):
        raise ShapeError(
            f"{name}: expected vectors of indices and values of shape (nnz, ...), got "
            f"{starts.shape}, {others.shape} and {held.shape}; batches are not "
            "supported"
        )
    if size is None:
        size = _inferred(layout, starts, others, held)
    out = SparseCompressed.of(layout, starts, others, held, size)
    if checks.enabled if check_invariants is None else check_invariants:
        _check_compressed(name, out)
    elif others.shape[0] != held.shape[0]:
        raise ShapeError(
            f"{name}: expected an index for each value, got {others.shape[0]} and "
            f"{held.shape[0]}"
        )
    return out.requires_grad_() if requires_grad else out


def _inferred(layout: Any, starts: Tensor, others: Tensor, held: Tensor) -> Any:
    blocked = layout in (layouts.sparse_bsr, layouts.sparse_bsc)
    high, wide = held.shape[1:3] if blocked else (1, 1)
    long, short = starts.shape[0] - 1, int(others.max()) + 1 if others.numel() else 0
    by_row = layout in (layouts.sparse_csr, layouts.sparse_bsr)
    rows, columns = (long, short) if by_row else (short, long)
    return (rows * high, columns * wide, *held.shape[3 if blocked else 1 :])


def _check_compressed(name: str, x: SparseCompressed) -> None:
    starts, others = x._starts.array(), x._others.array()
    high, wide = x._blocks or (1, 1)
    counts = x.shape[0] // high, x.shape[1] // wide
    long, short = counts if x._by_row else counts[::-1]
    if len(starts) != long + 1 or starts[0] != 0 or starts[-1] != len(others):
        raise ArgumentError(
            f"{name}: expected {long + 1} compressed indices from 0 to the number of "
            f"values, {len(others)}, got {starts.tolist()}"
        )
    if (np.diff(starts) < 0).any() or (np.diff(starts) > short).any():
        raise ArgumentError(
            f"{name}: compressed indices must rise by 0 to {short}, got "
            f"{starts.tolist()}"
        )
    if len(others) and (others.min() < 0 or others.max() >= short):
        raise OutOfRangeError(
            f"{name}: an index is out of range for an axis of size {short}: "
            f"{others.tolist()}"
        )
    rows = np.repeat(np.arange(long), np.diff(starts))
    if (np.diff(rows * short + others) <= 0).any():
        raise ArgumentError(f"{name}: indices must be in order and different in a row")
    if len(others) != x._nnz():
        raise ShapeError(
            f"{name}: expected an index for each value, got {len(others)} and "
            f"{x._nnz()}"
        )


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseCompressed:
    """A matrix by rows.

    >>> weft.sparse_csr_tensor([0, 1, 2], [1, 0], [2.0, 3.0]).to_dense().tolist()
    [[0.0, 2.0], [3.0, 0.0]]
    """
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, layout=layouts.sparse_csr, **options
    )


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseCompressed:
    """A matrix by columns.

    >>> weft.sparse_csc_tensor([0, 1, 2], [1, 0], [2.0, 3.0]).to_dense().tolist()
    [[0.0, 3.0], [2.0, 0.0]]
    """
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, layout=layouts.sparse_csc, **options
    )


def sparse_bsr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseCompressed:
    """A matrix of blocks, by rows.

    >>> weft.sparse_bsr_tensor([0, 1], [1], [[[1.0], [2.0]]]).to_dense().tolist()
    [[0.0, 1.0], [0.0, 2.0]]
    """
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, layout=layouts.sparse_bsr, **options
    )


def sparse_bsc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any
) -> SparseCompressed:
    """A matrix of blocks, by columns.

    >>> weft.sparse_bsc_tensor([0, 1], [1], [[[1.0, 2.0]]]).to_dense().tolist()
    [[0.0, 0.0], [1.0, 2.0]]
    """
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, layout=layouts.sparse_bsc, **options
    )


def to_sparse(
    x: Any, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None
) -> Any:
    """A tensor of any layout in a sparse one."""
    layout = layouts.sparse_coo if layout is None else layout
    if layout is layouts.strided:
        return x.to_dense()
    if isinstance(x, SparseTensor):
        found = x.coo()
    else:
        found = _from_dense(x, x.ndim - (dense_dim or 0))
    if layout is layouts.sparse_coo:
        return found
    return compressed(found, layout, blocksize)


def _from_dense(x: Tensor, sparse_dim: int) -> SparseCOO:
    array = x.array()
    if not sparse_dim:
        return SparseCOO.of(
            weft.zeros(0, 1, dtype=weft.int64), x.unsqueeze(0), x.shape, True
        )
    seen = (array != 0).any(tuple(range(sparse_dim, x.ndim)))
    indices = Tensor(np.stack(np.nonzero(seen)).astype(np.int64))
    values = x[tuple(indices[k] for k in range(sparse_dim))]
    return SparseCOO.of(indices, values, x.shape, True)


def sparse_mask(x: Tensor, mask: SparseTensor) -> Any:
    """The elements of a tensor where a sparse one has some."""
    if not isinstance(mask, SparseTensor):
        raise DTypeError(f"sparse_mask: expected a sparse mask, got {mask.layout}")
    if tuple(x.shape) != tuple(mask.shape):
        raise ShapeError(f"sparse_mask: expected shapes to agree, got {x.shape} and "
                         f"{mask.shape}")  # fmt: skip
    at = mask.coo().coalesce()
    dense = x.to_dense() if isinstance(x, SparseTensor) else x
    return operators.like_layout(at.like(operators._taken(at, dense)), mask)


def mm(mat1: Any, mat2: Any) -> Any:
    """The product of matrices of which one, or both, are sparse.

    >>> weft.sparse.mm(weft.eye(2).to_sparse(), weft.ones(2, 1)).tolist()
    [[1.0], [1.0]]
    """
    return weft.matmul(mat1, mat2)


def dsmm(input: Any, mat2: Any) -> Any:
    """A dense matrix: the product of a sparse and a dense one.

    >>> weft.dsmm(weft.eye(2).to_sparse(), weft.ones(2, 1)).tolist()
    [[1.0], [1.0]]
    """
    return mm(input, mat2)


spmm = dsmm


def smm(input: Any, mat2: Any) -> Any:
    """A sparse matrix: the product of a sparse and a dense one.

    >>> weft.smm(weft.eye(2).to_sparse(), weft.ones(2, 1)).to_dense().tolist()
    [[1.0], [1.0]]
    """
    return mm(input, mat2).to_sparse()


def hspmm(mat1: Any, mat2: Any) -> Any:
    """A sparse matrix with dense rows: the product of a sparse and a dense one.

    >>> weft.hspmm(weft.eye(2).to_sparse(), weft.ones(2, 1)).to_dense().tolist()
    [[1.0], [1.0]]
    """
    return mm(mat1, mat2).to_sparse(1)


hsmm = hspmm


def sspaddmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """A sparse ``beta * input + alpha * (mat1 @ mat2)``; ``mat2`` is dense.

    >>> x = weft.eye(2).to_sparse()
    >>> weft.sspaddmm(x, x, weft.ones(2, 2)).to_dense().tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    return (beta * input.to_dense() + alpha * mm(mat1, mat2)).to_sparse()


saddmm = sspaddmm


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """``beta * mat + alpha * (mat1 @ mat2)``, where ``mat1`` is sparse.

    >>> x = weft.eye(2).to_sparse()
    >>> weft.sparse.addmm(weft.ones(2, 1), x, weft.ones(2, 1)).tolist()
    [[2.0], [2.0]]
    """
    return beta * mat + alpha * mm(mat1, mat2)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of all elements of a sparse tensor, or over some axes.

    >>> weft.sparse.sum(weft.eye(3).to_sparse())
    tensor(3.)
    """
    return operators.total(input if dtype is None else input.to(dtype), dim)


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The softmax of the elements that a sparse tensor has; others stay zero.

    >>> weft.sparse.softmax(weft.eye(2).to_sparse(), 1).values()
    tensor([1., 1.])
    """
    return operators.softmax(input if dtype is None else input.to(dtype), dim, False)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of ``softmax``.

    >>> weft.sparse.log_softmax(weft.eye(2).to_sparse(), 1).values()
    tensor([0., 0.])
    """
    return operators.softmax(input if dtype is None else input.to(dtype), dim, True)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Any:
    """A sparse matrix of diagonals; row i of ``diagonals`` lies ``offsets[i]`` off.

    >>> x = weft.sparse.spdiags(weft.ones(1, 3), weft.tensor([1]), (3, 3))
    >>> x.to_dense().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    rows = diagonals.reshape(1, -1) if diagonals.ndim == 1 else diagonals
    lines = np.atleast_1d(offsets.array())
    if len(lines) != rows.shape[0] or len(set(lines.tolist())) != len(lines):
        raise ArgumentError(
            f"spdiags: expected an offset, all different, for each of {rows.shape[0]} "
            f"diagonals, got {lines.tolist()}"
        )
    found: list[tuple[int, int, int]] = []
    for k, offset in enumerate(lines):
        for column in range(rows.shape[1]):
            if 0 <= column - offset < shape[0] and column < shape[1]:
                found.append((k, int(column - offset), column))
    at = np.array(found, np.int64).reshape(-1, 3).T
    values = rows[Tensor(at[0].copy()), Tensor(at[2].copy())]
    made = SparseCOO.of(Tensor(at[1:].copy()), values, shape, False).coalesce()
    return to_sparse(made, layout)


def spsolve(input: Any, other: Any, *, left: bool = True) -> Any:
    """Solutions of sparse systems, which Weft does not have (nor PyTorch on CPUs).

    >>> weft.sparse.spsolve(None, None)
    Traceback (most recent call last):
    weft.errors.ArgumentError: ...
    """
    raise operators.refused("spsolve")


def as_sparse_gradcheck(gradcheck: Any) -> Any:
    """A gradient checker that takes sparse tensors: it moves their values.

    >>> check = weft.sparse.as_sparse_gradcheck(weft.autograd.gradcheck)
    >>> x = weft.eye(2, dtype=weft.float64).to_sparse().requires_grad_()
    >>> check(lambda x: x.to_dense().sum(), x)
    True
    """

    def check(fn: Any, inputs: Any, **options: Any) -> bool:
        options.pop("masked", None)
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        dense = [x._held if isinstance(x, SparseTensor) else x for x in given]

        def over_values(*moved: Any) -> Any:
            args = [
                x.like(m) if isinstance(x, SparseTensor) else m
                for x, m in zip(given, moved, strict=True)
            ]
            out = fn(*args)
            return out._held if isinstance(out, SparseTensor) else out

        return gradcheck(over_values, dense, **options)

    return check
