"""``Blob``: a value and its gradient, in memory that stays where it is."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from weft import as_tensor, empty, zeros
from weft.core.mode import mode
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.dtype import DType, default_dtype
from weft.errors import ShapeError
from weft.graph.capture import paused
from weft.graph.symbol import made_outside, refusal
from weft.layers.keeping import Keeping


class Blob(Keeping):
    """The unit that Caffe's layers read and fill: ``data``, and its gradient ``diff``.

    A blob is made from a tensor, from a shape, or empty. Filling it keeps its memory
    as long as the shape and the dtype stay the same.

    >>> blob = weft.layers.Blob(shape=(2,))
    >>> before = blob.data
    >>> blob.fill(weft.tensor([1.0, 2.0]))
    >>> blob.data is before, blob.data
    (True, tensor([1., 2.]))
    """

    def __init__(
        self, data: Any = None, *, shape: Any = None, dtype: DType | None = None
    ) -> None:
        self._data: Tensor | None = None if data is None else as_tensor(data).detach()
        self._diff: Tensor | None = None
        if shape is not None:
            self.reshape(*shape, dtype=dtype)

    @property
    def data(self) -> Tensor:
        """The value; an empty blob has none of size 0."""
        if self._data is None:
            self._allocate("_data", empty, (0,))
        return self._data  # type: ignore[return-value]

    @data.setter
    def data(self, value: Any) -> None:
        self.fill(as_tensor(value))

    @property
    def diff(self) -> Tensor:
        """The gradient: zeros until it is filled."""
        if self._diff is None:
            value = self.data
            self._allocate("_diff", zeros, value.shape, value.dtype)
        return self._diff  # type: ignore[return-value]

    @diff.setter
    def diff(self, value: Any) -> None:
        self.fill_diff(as_tensor(value))

    @property
    def shape(self) -> tuple[int, ...]:
        """The value's shape."""
        return self.data.shape

    def reshape(self, *shape: int, dtype: DType | None = None) -> None:
        """Allocate memory for a value of this shape, if there is none yet."""
        held = self._data
        dtype = dtype or (default_dtype() if held is None else held.dtype)
        if held is None or held.shape != shape or held.dtype is not dtype:
            self._allocate("_data", empty, shape, dtype)

    def _allocate(self, name: str, make: Any, shape: Any, dtype: Any = None) -> None:
        """Make room for the value or the gradient.

        Room in a blob from outside is there before a captured program runs, as it is
        after an eager call, and the program fills it.
        """
        outside = mode.capture is not None and not self._made_inside
        if outside and any(isinstance(n, Size) for n in shape):
            raise refusal(
                f"compile: a blob is filled with a value of shape {shape}, whose sizes "
                "differ from call to call; use forward(inputs), which returns it"
            )
        with paused() if outside else nullcontext():
            setattr(self, name, make(shape, dtype=dtype))
            if name == "_data":
                self._diff = None
        if outside:
            raise made_outside()

    def fill(self, value: Tensor) -> None:
        """Copy a value in."""
        self.reshape(*value.shape, dtype=value.dtype)
        self.data.copy_(value.detach())

    def fill_diff(self, value: Tensor) -> None:
        """Copy a gradient in; it must have the value's shape."""
        if value.shape != self.shape:
            raise ShapeError(
                f"Blob: expected a gradient of the value's shape {self.shape}, got "
                f"{value.shape}"
            )
        self.diff.copy_(value.detach())

    def __repr__(self) -> str:
        return f"Blob(shape={self.shape}, dtype={self.data.dtype.name})"
