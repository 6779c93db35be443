"""Tensor arrays: values that a loop writes one by one, and stacks at its end.

An array is one tensor with an axis in front; writing gives a new array with one row
changed, which compiled loops do in place. Its rows get their shape from the first value
that is written. Where that happens inside a loop, the loop is built twice: the first
time, which is undone, tells the shape.
"""

from __future__ import annotations

from typing import Any

import weft
from weft.core.mode import mode
from weft.dtype import as_dtype, float32
from weft.errors import ArgumentError, ShapeError
from weft.static.building import as_node, building
from weft.static.shapes import sizes_of


class Unshaped(Exception):
    """A value was written inside a loop to an array whose rows have no shape yet."""

    def __init__(self, array: TensorArray, shape: Any, dtype: Any) -> None:
        super().__init__("the rows of this TensorArray have no shape yet")
        self.array, self.shape, self.dtype = array, shape, dtype


class TensorArray:
    """``size`` values of one shape, for loops that write or read one a step.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     rows = weft.static.TensorArray(weft.float32, size=3)
    ...     _, rows = weft.static.while_loop(
    ...         lambda i, rows: i < 3,
    ...         lambda i, rows: (i + 1, rows.write(i, weft.static.cast(i, "float32"))),
    ...         (weft.static.constant(0), rows))
    ...     session.run(rows.stack())
    array([0., 1., 2.], dtype=float32)
    """

    def __init__(
        self, dtype: Any = float32, size: Any = None, dynamic_size: bool = False,
        clear_after_read: bool | None = None, tensor_array_name: str | None = None,
        handle: Any = None, flow: Any = None, infer_shape: bool = True,
        element_shape: Any = None, name: str | None = None,
    ) -> None:  # fmt: skip
        if dynamic_size:
            raise ArgumentError(
                "TensorArray: a size that grows in a loop depends on values, which a "
                "graph cannot have; give size= as large as the loop may need, without "
                "dynamic_size"
            )
        self.dtype, self.held = as_dtype(dtype), None
        self.count = 0 if size is None else sizes_of(size)[0]
        self.origin = self
        if element_shape is not None and None not in list(element_shape):
            self.shape_rows(tuple(element_shape))

    def shape_rows(self, shape: Any) -> None:
        """Give all rows a shape; they are zero until they are written."""
        with building():
            self.held = weft.zeros((self.count, *shape), dtype=self.dtype)

    def like(self, held: Any) -> TensorArray:
        """This array with other values."""
        new = TensorArray(self.dtype)
        new.count, new.held, new.origin = self.count, held, self.origin
        return new

    def _rows(self, what: str) -> Any:
        if self.held is None:
            raise ArgumentError(f"TensorArray.{what}: nothing was written before")
        return self.held

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array with another value at an index."""
        x = as_node(value, self.dtype)
        if self.held is None:
            if mode.capture is not None:  # in the body of a loop
                raise Unshaped(self.origin, x.shape, x.dtype)
            self.shape_rows(x.shape)
        held: Any = self.held
        if x.shape != held.shape[1:]:
            raise ShapeError(
                f"TensorArray.write: expected a value of shape {held.shape[1:]}, as "
                f"those before, got {x.shape}"
            )
        place = as_node(index).to(weft.int64).reshape(1)
        return self.like(weft.index_copy(held, 0, place, x.unsqueeze(0)))

    def read(self, index: Any, name: str | None = None) -> Any:
        """The value at an index."""
        place = as_node(index).to(weft.int64).reshape(1)
        return weft.index_select(self._rows("read"), 0, place).squeeze(0)

    def stack(self, name: str | None = None) -> Any:
        """All values, with an axis in front."""
        return self._rows("stack")

    def concat(self, name: str | None = None) -> Any:
        """All values one after the other, along their first axis."""
        rows = self._rows("concat")
        return rows.reshape(-1, *rows.shape[2:])

    def gather(self, indices: Any, name: str | None = None) -> Any:
        """The values at several indices, with an axis in front."""
        ids = as_node(indices).to(weft.int64)
        return weft.index_select(self._rows("gather"), 0, ids)

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """An array of the rows of a tensor."""
        x = as_node(value, self.dtype)
        new = self.like(x)
        new.count = x.shape[0]
        return new

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array with other values at several indices."""
        x, ids = as_node(value, self.dtype), as_node(indices).to(weft.int64)
        if self.held is None:
            self.shape_rows(x.shape[1:])
        return self.like(weft.index_copy(self.held, 0, ids, x))

    def size(self, name: str | None = None) -> Any:
        """How many values there are."""
        return as_node(self.count).to(weft.int32)

    def identity(self) -> TensorArray:
        """The same array."""
        return self

    def close(self, name: str | None = None) -> Any:
        """Do nothing: there is nothing to give back."""
        from weft.static.graph import no_op

        return no_op()
