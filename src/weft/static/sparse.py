"""Sparse tensors: indices, values and a shape, fed and multiplied as in TensorFlow 1.

The sizes of a fed sparse tensor come from the value that is fed: each axis has a
placeholder of its own, whose length is the size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import weft
from weft.core.size import Size
from weft.dtype import as_dtype
from weft.errors import ArgumentError
from weft.static.building import as_node, function
from weft.static.graph import placeholder
from weft.static.shapes import sizes_of


class SparseTensorValue(NamedTuple):
    """The value of a sparse tensor: what ``feed_dict`` takes.

    >>> weft.static.SparseTensorValue([[0, 1]], [2.0], [2, 2]).values
    [2.0]
    """

    indices: Any
    values: Any
    dense_shape: Any


class _Parts(NamedTuple):
    indices: Any
    values: Any
    dense_shape: Any


class SparseTensor(_Parts):
    """Values at rows of indices of a tensor whose other elements are zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.SparseTensor([[0, 1]], [2.0], [2, 2])
    ...     session.run(weft.static.sparse_tensor_to_dense(x))
    array([[0., 2.],
           [0., 0.]], dtype=float32)
    """

    extents: Any = ()  # placeholders whose lengths are the sizes

    def __new__(cls, indices: Any, values: Any, dense_shape: Any) -> SparseTensor:
        ids = as_node(indices, weft.int64)
        made = super().__new__(cls, ids, as_node(values), as_node(dense_shape))
        made.sizes = None if isinstance(dense_shape, weft.Tensor) else dense_shape
        return made

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes; those that a run decides are symbols."""
        if self.extents:
            return tuple(one.shape.numel() for one in self.extents)
        return sizes_of(self.dense_shape if self.sizes is None else self.sizes)

    def get_shape(self) -> Any:
        """The sizes, with None for those that a run decides."""
        from weft.core.size import TensorShape

        return TensorShape([None if isinstance(n, Size) else n for n in self.shape])

    def feeds(self, value: Any) -> dict[Any, Any]:
        """The feeds of the parts for a fed value, checked."""
        try:
            indices, values, shape = value
        except (TypeError, ValueError):
            raise ArgumentError(
                "run: a sparse placeholder is fed a SparseTensorValue (indices, "
                f"values, dense_shape), got {type(value).__name__}"
            ) from None
        rank = len(self.extents)
        if len(shape) != rank:
            raise ArgumentError(
                f"run: expected a sparse value with {rank} axes, got shape {shape}"
            )
        rows = np.asarray(indices, np.int64).reshape(-1, rank)
        if ((rows < 0) | (rows >= np.asarray(shape))).any():
            raise ArgumentError(f"run: a sparse index is outside of the shape {shape}")
        found = {self.indices: rows, self.values: values, self.dense_shape: shape}
        ends = zip(self.extents, shape, strict=True)
        return found | {e: np.zeros(n, np.bool_) for e, n in ends}


def sparse_placeholder(
    dtype: Any, shape: Any = None, name: str = "sparse"
) -> SparseTensor:
    """A sparse tensor that every run feeds; it has two axes unless a shape says more.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     a = weft.static.sparse_placeholder(weft.float32)
    ...     y = weft.static.sparse_tensor_dense_matmul(a, [[1.0], [10.0]])
    ...     session.run(y, {a: weft.static.SparseTensorValue([[1, 0]], [3.0], [2, 2])})
    array([[0.],
           [3.]], dtype=float32)
    """
    sizes = [None, None] if shape is None else list(shape)
    indices = placeholder(weft.int64, [None, len(sizes)], f"{name}/indices")
    values = placeholder(
        as_dtype(dtype), [indices.shape[0].symbol_name], f"{name}/values"
    )
    made = SparseTensor(
        indices, values, placeholder(weft.int64, [len(sizes)], f"{name}/shape")
    )
    made.extents = [
        placeholder(weft.bool, [n], f"{name}/size{k}") for k, n in enumerate(sizes)
    ]
    return made


def fed(feed_dict: Any) -> Any:
    """Feeds in which sparse tensors are replaced by their parts."""
    if not any(isinstance(key, SparseTensor) for key in feed_dict):
        return feed_dict
    found: dict[Any, Any] = {}
    for key, value in feed_dict.items():
        sparse = isinstance(key, SparseTensor)
        found |= key.feeds(value) if sparse else {key: value}
    return found


def _flat(sp: SparseTensor) -> Any:
    position: Any = 0
    for k, n in enumerate(sp.shape):
        position = position * n + sp.indices[:, k]
    return position


@function
def sparse_tensor_to_dense(
    sp_input: Any, default_value: Any = 0, validate_indices: bool = True
) -> Any:
    """A sparse tensor with all of its elements.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.SparseTensor([[1]], [2.0], [3])
    ...     session.run(weft.static.sparse_tensor_to_dense(x, -1.0))
    array([-1.,  2., -1.], dtype=float32)
    """
    count: Any = 1
    for n in sp_input.shape:
        count = count * n
    start = weft.full((count,), default_value, dtype=sp_input.dtype)
    return weft.index_copy(start, 0, _flat(sp_input), sp_input.values).reshape(
        sp_input.shape
    )


@function
def sparse_to_dense(
    sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any = 0,
    validate_indices: bool = True,
) -> Any:  # fmt: skip
    """A tensor of one number, with other values at rows of indices.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.sparse_to_dense([[0], [2]], [3], 5.0))
    array([5., 0., 5.], dtype=float32)
    """
    ids, values = as_node(sparse_indices, weft.int64), as_node(sparse_values)
    sizes = sizes_of(output_shape)
    ids = ids.reshape(-1, len(sizes))
    values = weft.broadcast_to(values, (ids.shape[0],))
    sparse = SparseTensor(ids, values, output_shape)
    return sparse_tensor_to_dense(sparse, default_value)


@function
def sparse_tensor_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False
) -> Any:
    """A sparse matrix times a dense one.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     a = weft.static.SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])
    ...     session.run(weft.static.sparse_tensor_dense_matmul(a, [[1.0], [10.0]]))
    array([[10.],
           [ 2.]], dtype=float32)
    """
    right = as_node(b)
    right = right.mT if adjoint_b else right
    rows, columns = (sp_a.indices[:, k] for k in ((1, 0) if adjoint_a else (0, 1)))
    height = sp_a.shape[1 if adjoint_a else 0]
    terms = sp_a.values.unsqueeze(1) * weft.index_select(right, 0, columns)
    start = weft.zeros((height, right.shape[1]), dtype=terms.dtype)
    return weft.index_add(start, 0, rows, terms)


@function
def sparse_reduce_sum(sp_input: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The sum of a sparse tensor over axes, as a dense one.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.SparseTensor([[0, 1], [0, 0]], [1.0, 2.0], [2, 2])
    ...     session.run(weft.static.sparse_reduce_sum(x, 1))
    array([3., 0.], dtype=float32)
    """
    dense = sparse_tensor_to_dense(sp_input)
    dims = tuple(range(dense.ndim)) if axis is None else axis
    return dense.sum(dims, keepdim=keepdims)
