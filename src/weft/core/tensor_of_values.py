"""Tensors that are a dense one with a structure: sparse and nested tensors."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor


class TensorOfValues(Tensor):
    """A tensor whose numbers are another tensor's, and whose gradient is that one's."""

    _node = None
    _held: Tensor  # the values

    def like(self, held: Tensor) -> Any:
        """A tensor of the same structure over other values."""
        raise NotImplementedError

    @property
    def dtype(self) -> Any:
        return self._held.dtype

    @property
    def device(self) -> Any:  # type: ignore[override]
        return self._held.device

    @property
    def requires_grad(self) -> bool:
        return self._held.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._held.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        self._held.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        return self._held.is_leaf

    @property
    def grad_fn(self) -> Any:
        return self._held.grad_fn

    @property
    def grad(self) -> Any:
        """The gradient: a tensor of the same structure."""
        return None if self._held.grad is None else self.like(self._held.grad)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._held.grad = None if value is None else value._held

    def detach(self) -> Any:
        return self.like(self._held.detach())

    def clone(self, *, memory_format: Any = None) -> Any:
        return self.like(self._held.clone())

    def to(self, *args: Any, **options: Any) -> Any:
        return self.like(self._held.to(*args, **options))
