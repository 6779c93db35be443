"""Methods about a tensor's layout: to sparse ones, and back."""

from __future__ import annotations

from typing import Any

from weft import late, layouts
from weft.errors import ArgumentError


def _only_sparse(name: str) -> Any:
    """A method that a dense tensor does not have, and says so."""

    def method(self: Any) -> Any:
        raise ArgumentError(
            f"{name}: expected a sparse tensor, got a dense one; x.to_sparse() makes "
            "one of it"
        )

    method.__name__ = name
    method.__doc__ = f"""``{name.strip("_")}`` of a sparse tensor; a dense one has none.

    >>> weft.eye(2).{name}()
    Traceback (most recent call last):
        ...
    weft.errors.ArgumentError: ...
    """
    return method


class Layouts:
    """Layouts of a tensor."""

    def to_dense(self: Any, dtype: Any = None, *, masked_grad: Any = None) -> Any:
        """The same numbers in the strided layout: a dense tensor itself.

        >>> weft.eye(2).to_sparse().to_dense().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        return self if dtype is None else self.to(dtype)

    def to_sparse(
        self: Any, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None,
        dense_dim: int | None = None,
    ) -> Any:  # fmt: skip
        """The tensor in a sparse layout: coordinates, unless another is named.

        >>> weft.tensor([0.0, 3.0]).to_sparse().values()
        tensor([3.])
        """
        if isinstance(sparse_dim, int):
            dense_dim = self.ndim - sparse_dim
        return late.find("sparse").to_sparse(self, layout, blocksize, dense_dim)

    def to_sparse_coo(self: Any) -> Any:
        """The tensor in coordinate format.

        >>> weft.eye(2).to_sparse_coo().is_coalesced()
        True
        """
        return self.to_sparse()

    def to_sparse_csr(self: Any, dense_dim: int | None = None) -> Any:
        """The matrix in compressed format by rows.

        >>> weft.eye(2).to_sparse_csr().col_indices()
        tensor([0, 1])
        """
        return self.to_sparse(layout=layouts.sparse_csr, dense_dim=dense_dim)

    def to_sparse_csc(self: Any, dense_dim: int | None = None) -> Any:
        """The matrix in compressed format by columns.

        >>> weft.eye(2).to_sparse_csc().row_indices()
        tensor([0, 1])
        """
        return self.to_sparse(layout=layouts.sparse_csc, dense_dim=dense_dim)

    def to_sparse_bsr(self: Any, blocksize: Any, dense_dim: int | None = None) -> Any:
        """The matrix in blocks, by rows.

        >>> weft.eye(4).to_sparse_bsr((2, 2)).values().shape
        (2, 2, 2)
        """
        return self.to_sparse(
            layout=layouts.sparse_bsr, blocksize=blocksize, dense_dim=dense_dim
        )

    def to_sparse_bsc(self: Any, blocksize: Any, dense_dim: int | None = None) -> Any:
        """The matrix in blocks, by columns.

        >>> weft.eye(4).to_sparse_bsc((2, 2)).values().shape
        (2, 2, 2)
        """
        return self.to_sparse(
            layout=layouts.sparse_bsc, blocksize=blocksize, dense_dim=dense_dim
        )

    def sparse_mask(self: Any, mask: Any) -> Any:
        """The elements where a sparse tensor has some, in its layout.

        >>> weft.ones(2, 2).sparse_mask(weft.eye(2).to_sparse()).values()
        tensor([1., 1.])
        """
        return late.find("sparse").sparse_mask(self, mask)

    def smm(self: Any, mat2: Any) -> Any:
        """The product of a sparse matrix and another, as a sparse tensor.

        >>> weft.eye(2).to_sparse().smm(weft.ones(2, 1)).is_sparse
        True
        """
        return late.find("sparse").mm(self, mat2).to_sparse()

    def sparse_dim(self: Any) -> int:
        """The number of axes with indices: none of a dense tensor.

        >>> weft.eye(2).to_sparse().sparse_dim()
        2
        """
        return 0

    def dense_dim(self: Any) -> int:
        """The number of other axes: all of a dense tensor.

        >>> weft.eye(2).dense_dim()
        2
        """
        return self.ndim

    coalesce = _only_sparse("coalesce")
    is_coalesced = _only_sparse("is_coalesced")
    indices = _only_sparse("indices")
    values = _only_sparse("values")
    _indices = _only_sparse("_indices")
    _values = _only_sparse("_values")
    _nnz = _only_sparse("_nnz")
    crow_indices = _only_sparse("crow_indices")
    col_indices = _only_sparse("col_indices")
    ccol_indices = _only_sparse("ccol_indices")
    row_indices = _only_sparse("row_indices")
