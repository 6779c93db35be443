"""Sparse tensors: the indices and values of some elements; the others are zero.

A sparse tensor is made of dense ones. Its gradient is that of its values. An operator
that has no sparse form is refused (``weft.sparse.operators`` has the forms): nothing
becomes dense unless ``to_dense`` is called.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft import layouts
from weft.core.dispatch import Interpreter
from weft.core.pytree import custom_node, register_pytree_node
from weft.core.size import Shape
from weft.core.tensor import Tensor
from weft.core.tensor_of_values import TensorOfValues
from weft.errors import ArgumentError, OutOfRangeError, ShapeError

_LAYOUT = layouts.layout


class _Sparse(Interpreter):
    """Sends operators on sparse tensors to their forms."""

    name = "sparse"
    composes = True  # results are made of recorded operators already

    def process(self, op: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        from weft.sparse.operators import apply

        return apply(op, args, params)


SPARSE = _Sparse()
SPARSE.level = 1 << 30  # before transforms: forms are programs over dense tensors


class checks:
    """Whether new sparse tensors are checked, where they are not told."""

    enabled = False


class SparseTensor(TensorOfValues):
    """The base of sparse tensors.

    >>> x = weft.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    >>> isinstance(x, weft.Tensor), x.layout, x._nnz()
    (True, weft.sparse_coo, 2)
    """

    _interpreter = SPARSE
    _node = None
    _size: tuple[int, ...]
    _layout: _LAYOUT

    @property
    def layout(self) -> _LAYOUT:
        """The layout."""
        return self._layout

    def __init__(self) -> None:
        raise ArgumentError(
            "SparseTensor: make one with weft.sparse_coo_tensor or x.to_sparse()"
        )

    @property
    def shape(self) -> Shape:
        return Shape(self._size)

    @property
    def ndim(self) -> int:
        return len(self._size)

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is ``weft.sparse_coo``."""
        return self.layout is layouts.sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is ``weft.sparse_csr``."""
        return self.layout is layouts.sparse_csr

    def _nnz(self) -> int:
        """The number of elements (or blocks) that are held."""
        return self._held.shape[0]

    def coo(self) -> SparseCOO:
        """The same tensor in coordinate format."""
        raise NotImplementedError

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The same numbers as a dense tensor.

        >>> weft.eye(2).to_sparse().to_dense().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        out = self.coo()._scattered()
        return out if dtype is None else out.to(dtype)

    def alias(self, node: Any = None) -> Any:
        return self.like(self._held.alias(node))

    def become(self, other: Any) -> None:
        """Take over another's elements: a change in place."""
        if type(other) is not type(self):
            raise refused("a change in place to another layout")
        self.__dict__.update(other.__dict__)

    def hold(self, other: Any) -> None:
        """Take over another's elements, but no derivative."""
        self.become(other)

    def spread(self) -> None:
        """Nothing shares a sparse tensor's elements."""

    def array(self) -> np.ndarray:
        raise refused("array")

    def index_select(self, dim: int, index: Tensor) -> Any:
        from weft.sparse.operators import index_select

        return index_select(self, dim, index)

    def select(self, dim: int, index: int) -> Any:
        from weft.sparse.operators import select

        return select(self, dim, index)

    def unsqueeze(self, dim: int) -> Any:  # type: ignore[override]
        from weft.sparse.operators import unsqueezed

        return unsqueezed(self, dim)

    def relu(self) -> Any:
        return self.like(self._held.relu())

    def __iter__(self) -> Any:
        return (self[k] for k in range(self._size[0]))

    def __getitem__(self, index: Any) -> Any:
        from weft.sparse.operators import getitem

        return getitem(self, index)

    def __len__(self) -> int:
        return self._size[0]

    def __repr__(self) -> str:
        from weft.sparse.printing import text

        return text(self)

    def backward(self, *args: Any, **options: Any) -> None:
        raise refused("backward")

    def __reduce_ex__(self, protocol: Any = 2) -> Any:
        parts, rest = custom_node(type(self))[0](self)
        return _rebuilt, (type(self), parts, rest)

    def __deepcopy__(self, memo: Any) -> Any:
        return self.clone().detach().requires_grad_(self.requires_grad)


def _rebuilt(kind: type, parts: Any, rest: Any) -> Any:
    """A sparse tensor from a pickle."""
    return custom_node(kind)[1](parts, rest)


def refused(name: str, what: str = "a sparse tensor") -> ArgumentError:
    """The error of an operation that has no sparse form."""
    return ArgumentError(
        f"{name}: there is no form of it for {what}; convert with .to_dense() first"
    )


class SparseCOO(SparseTensor):
    """A tensor in coordinate format: indices (sparse_dim, nnz) and values (nnz, ...).

    >>> weft.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2)).to_dense().tolist()
    [[0.0, 2.0], [3.0, 0.0]]
    """

    _layout = layouts.sparse_coo

    @staticmethod
    def of(indices: Tensor, values: Tensor, size: Any, coalesced: bool) -> SparseCOO:
        out = object.__new__(SparseCOO)
        out._at, out._held, out._size = indices, values, tuple(size)
        out._coalesced = coalesced or indices.shape[1] < 2
        return out

    _at: Tensor
    _coalesced: bool

    def like(self, values: Tensor) -> SparseCOO:
        return SparseCOO.of(self._at, values, self._size, self._coalesced)

    def coo(self) -> SparseCOO:
        return self

    def sparse_dim(self) -> int:
        """The number of axes with indices."""
        return self._at.shape[0]

    def dense_dim(self) -> int:
        """The number of axes inside each value."""
        return self.ndim - self.sparse_dim()

    def _indices(self) -> Tensor:
        """The indices, whether or not an element has several."""
        return self._at

    def _values(self) -> Tensor:
        """The values, whether or not an element has several."""
        return self._held

    def indices(self) -> Tensor:
        """The indices of a coalesced tensor, in order."""
        self._check_coalesced("indices")
        return self._at

    def values(self) -> Tensor:
        """The values of a coalesced tensor, in the order of their indices."""
        self._check_coalesced("values")
        return self._held

    def _check_coalesced(self, name: str) -> None:
        if not self._coalesced:
            raise ArgumentError(
                f"{name}: this tensor is not coalesced (an element may have several "
                f"values); call .coalesce() first, or ._{name}() for what it holds"
            )

    def is_coalesced(self) -> bool:
        """Whether every element has one value, and indices are in order."""
        return self._coalesced

    def _coalesced_(self, coalesced: bool) -> SparseCOO:
        self._coalesced = coalesced
        return self

    def keys(self) -> np.ndarray:
        """The position of each value in row-major order of the sparse axes."""
        sizes = self._size[: self.sparse_dim()]
        key = np.zeros(self._nnz(), np.int64)
        for row, size in zip(self._at.array(), sizes, strict=True):
            key = key * size + row
        return key

    def coalesce(self) -> SparseCOO:
        """The same tensor with one value for each element, in order.

        >>> x = weft.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,))
        >>> x.coalesce().values()
        tensor([3.])
        """
        if self._coalesced:
            return self
        _, first, inverse = np.unique(
            self.keys(), return_index=True, return_inverse=True
        )
        indices = Tensor(np.ascontiguousarray(self._at.array()[:, first]))
        values = _added(self._held, inverse.reshape(-1), len(first))
        return SparseCOO.of(indices, values, self._size, True)

    def _scattered(self) -> Tensor:
        """The dense tensor."""
        n = self.sparse_dim()
        rows, inner = math.prod(self._size[:n]), self._size[n:]
        return _added(self._held, self.keys(), rows).reshape((*self._size[:n], *inner))

    def transpose(self, dim0: int, dim1: int) -> SparseCOO:
        """The tensor with two of its sparse axes exchanged."""
        order = list(range(self.ndim))
        a, b = dim0 % self.ndim, dim1 % self.ndim
        order[a], order[b] = order[b], order[a]
        return self.permute(order)

    def permute(self, *dims: Any) -> SparseCOO:  # type: ignore[override]
        """The tensor with its sparse axes in another order."""
        given = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
        order, n = [d % self.ndim for d in given], self.sparse_dim()
        if sorted(order) != list(range(self.ndim)):
            raise ShapeError(f"permute: expected every axis once, got {list(given)}")
        if order[n:] != list(range(n, self.ndim)):
            raise refused("permute", "the dense axes of a sparse tensor")
        size = [self._size[d] for d in order]
        same = order == list(range(self.ndim))
        indices = Tensor(np.ascontiguousarray(self._at.array()[order[:n]]))
        return SparseCOO.of(indices, self._held, size, same and self._coalesced)

    def t(self) -> SparseCOO:
        """The transpose of a matrix."""
        if self.ndim > 2:
            raise ShapeError(f"t: expected at most 2 dimensions, got {self.ndim}")
        return self.transpose(0, 1) if self.ndim == 2 else self

    @property
    def T(self) -> SparseCOO:
        """The transpose of a matrix."""
        return self.t()

    @property
    def mT(self) -> SparseCOO:
        """The tensor with its last two axes exchanged: a batch of transposes."""
        if self.ndim < 2:
            raise ShapeError(f"mT: expected at least 2 dimensions, got {self._size}")
        return self.transpose(-2, -1)

    def sparse_resize_(self, size: Any, sparse_dim: int, dense_dim: int) -> SparseCOO:
        """Change the shape; what is held stays where it is."""
        if sparse_dim != self.sparse_dim() or dense_dim != self.dense_dim():
            raise ShapeError(
                f"sparse_resize_: expected {self.sparse_dim()} sparse and "
                f"{self.dense_dim()} dense dimensions, which do not change"
            )
        if any(n < m for n, m in zip(size, self._size, strict=True)) and self._nnz():
            raise ShapeError(
                f"sparse_resize_: {tuple(size)} is smaller than {self._size} somewhere"
            )
        self._size = tuple(size)
        return self


def _added(values: Tensor, places: np.ndarray, count: int) -> Tensor:
    """Rows of values added up by their places among ``count`` rows."""
    start = weft.zeros((count, *values.shape[1:]), dtype=values.dtype,
                       device=values.device)  # fmt: skip
    if values.dtype is weft.bool:
        return start.to(weft.uint8).index_add(
            0, Tensor(places), values.to(weft.uint8)
        ).to(weft.bool)  # fmt: skip
    return start.index_add(0, Tensor(places), values)


_BY_ROW = {"sparse_csr": True, "sparse_bsr": True, "sparse_csc": False,
           "sparse_bsc": False}  # fmt: skip


_TURNED = {
    "sparse_csr": layouts.sparse_csc, "sparse_csc": layouts.sparse_csr,
    "sparse_bsr": layouts.sparse_bsc, "sparse_bsc": layouts.sparse_bsr,
}  # fmt: skip


class SparseCompressed(SparseTensor):
    """A matrix in a compressed format: CSR, CSC, BSR or BSC.

    >>> weft.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr().crow_indices()
    tensor([0, 1, 2])
    """

    _starts: Tensor  # crow_indices or ccol_indices
    _others: Tensor  # col_indices or row_indices

    @staticmethod
    def of(
        layout: _LAYOUT, starts: Tensor, others: Tensor, values: Tensor, size: Any
    ) -> SparseCompressed:
        out = object.__new__(SparseCompressed)
        out._layout, out._starts, out._others = layout, starts, others
        out._held, out._size = values, tuple(size)
        return out

    def like(self, values: Tensor) -> SparseCompressed:
        return SparseCompressed.of(
            self.layout, self._starts, self._others, values, self._size
        )

    @property
    def _by_row(self) -> bool:
        return _BY_ROW[self.layout.name]

    @property
    def _blocks(self) -> tuple[int, ...]:
        """The shape of a block, of a blocked layout."""
        blocked = self.layout in (layouts.sparse_bsr, layouts.sparse_bsc)
        return tuple(self._held.shape[1:3]) if blocked else ()

    def _index(self, name: str, by_row: bool, found: Tensor) -> Tensor:
        if self._by_row is not by_row:
            raise ArgumentError(f"{name}: a {self.layout!r} tensor has no such indices")
        return found

    def crow_indices(self) -> Tensor:
        """The position of each row's first element."""
        return self._index("crow_indices", True, self._starts)

    def col_indices(self) -> Tensor:
        """The column of each element."""
        return self._index("col_indices", True, self._others)

    def ccol_indices(self) -> Tensor:
        """The position of each column's first element."""
        return self._index("ccol_indices", False, self._starts)

    def row_indices(self) -> Tensor:
        """The row of each element."""
        return self._index("row_indices", False, self._others)

    def values(self) -> Tensor:
        """The values, in the order of their indices."""
        return self._held

    def sparse_dim(self) -> int:
        """The number of axes with indices."""
        return 2

    def dense_dim(self) -> int:
        """The number of axes inside each value."""
        return self.ndim - 2

    def coo(self) -> SparseCOO:
        starts, others = self._starts.array(), self._others.array()
        long = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        rows, columns = (long, others) if self._by_row else (others, long)
        values, block = self._held, self._blocks
        if block:
            inner = np.indices(block).reshape(2, -1)
            rows = (rows[:, None] * block[0] + inner[0]).reshape(-1)
            columns = (columns[:, None] * block[1] + inner[1]).reshape(-1)
            values = values.reshape((rows.shape[0], *values.shape[3:]))
        indices = Tensor(np.stack([rows, columns]).astype(np.int64))
        ordered = self.layout is layouts.sparse_csr
        return SparseCOO.of(indices, values, self._size, ordered)

    def transpose(self, dim0: int, dim1: int) -> SparseCompressed:
        """The transpose: rows become columns, and the layout turns with them."""
        if {dim0 % self.ndim, dim1 % self.ndim} != {0, 1}:
            raise refused("transpose", "the dense axes of a sparse tensor")
        kind = _TURNED[self.layout.name]
        values = self._held.transpose(1, 2) if self._blocks else self._held
        size = (self._size[1], self._size[0], *self._size[2:])
        return SparseCompressed.of(kind, self._starts, self._others, values, size)

    def t(self) -> SparseCompressed:
        """The transpose of a matrix."""
        return self.transpose(0, 1)

    @property
    def T(self) -> SparseCompressed:
        """The transpose of a matrix."""
        return self.transpose(0, 1)

    mT = T


def compressed(
    x: SparseCOO, layout: _LAYOUT, blocksize: Any = None
) -> SparseCompressed:
    """A matrix in coordinate format as a compressed one."""
    if x.sparse_dim() != 2:
        raise ShapeError(
            f"to_{layout.name}: expected a matrix (two sparse dimensions), got "
            f"{x.sparse_dim()}"
        )
    x = x.coalesce()
    values, by_row = x._held, _BY_ROW[layout.name]
    rows, columns = x._at.array()
    sizes = x._size[:2]
    if layout in (layouts.sparse_bsr, layouts.sparse_bsc):
        return _blocked(x, layout, blocksize)
    long, others = (rows, columns) if by_row else (columns, rows)
    order = np.lexsort((others, long))
    starts = np.searchsorted(long[order], np.arange(sizes[0 if by_row else 1] + 1))
    if not by_row:
        values = values[Tensor(order)]
    parts = Tensor(starts.astype(np.int64)), Tensor(others[order].astype(np.int64))
    return SparseCompressed.of(layout, *parts, values, x._size)


def _blocked(x: SparseCOO, layout: _LAYOUT, blocksize: Any) -> SparseCompressed:
    if blocksize is None or len(blocksize) != 2:
        raise ArgumentError(
            f"to_{layout.name}: expected blocksize, the two sizes of a block, got "
            f"{blocksize!r}"
        )
    high, wide = blocksize
    if x._size[0] % high or x._size[1] % wide:
        raise ShapeError(
            f"to_{layout.name}: blocks of {tuple(blocksize)} do not divide "
            f"{x._size[:2]}"
        )
    rows, columns = x._at.array()
    by_row = _BY_ROW[layout.name]
    block = rows // high, columns // wide
    long, others = block if by_row else block[::-1]
    width = x._size[1] // wide if by_row else x._size[0] // high
    keys, inverse = np.unique(long * width + others, return_inverse=True)
    place = inverse.reshape(-1) * high * wide + rows % high * wide + columns % wide
    values = _added(x._held, place, len(keys) * high * wide)
    values = values.reshape((len(keys), high, wide, *x._held.shape[1:]))
    count = x._size[0] // high if by_row else x._size[1] // wide
    starts = np.searchsorted(keys // width, np.arange(count + 1))
    parts = Tensor(starts.astype(np.int64)), Tensor((keys % width).astype(np.int64))
    return SparseCompressed.of(layout, *parts, values, x._size)


def check_coo(indices: np.ndarray, size: tuple[int, ...]) -> None:
    """Refuse indices that are outside of a shape."""
    for axis, (row, n) in enumerate(zip(indices, size, strict=False)):
        bad = np.flatnonzero((row < 0) | (row >= n))
        if len(bad):
            raise OutOfRangeError(
                f"sparse_coo_tensor: index {row[bad[0]]} at position {bad[0]} is out "
                f"of range for axis {axis} of size {n}"
            )


# Programs take the parts of a sparse tensor as their arguments.
register_pytree_node(
    SparseCOO,
    lambda x: ([x._at, x._held], (x._size, x._coalesced)),
    lambda parts, rest: SparseCOO.of(*parts, *rest),
)
register_pytree_node(
    SparseCompressed,
    lambda x: ([x._starts, x._others, x._held], (x.layout, x._size)),
    lambda parts, rest: SparseCompressed.of(
        rest[0], parts[0], parts[1], parts[2], rest[1]
    ),
)
