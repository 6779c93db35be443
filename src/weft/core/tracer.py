"""Tracers: tensors inside a transform, which wrap values of the level below.

A kind of tracer says what it carries (``parts``) and which of those values gives
its dtype and device (``below``); the rest is derived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.device import Device
from weft.core.tensor import Tensor
from weft.dtype import DType


class Tracer(Tensor):
    """Base of tracers, made from the values that it carries and its interpreter."""

    def __init__(self, *parts: Any, interpreter: Any) -> None:
        self.parts = parts
        self._interpreter = interpreter
        self._node = None

    def shows(self, base: Any, op: Any, params: dict[str, Any]) -> bool:
        """Whether this is a view of ``base``, as a reshape of which it was made."""
        return True

    def layout_array(self) -> Any:
        return self.below.layout_array()

    @property
    def below(self) -> Tensor:
        """The value of the level below."""
        return self.parts[0]

    @property
    def dtype(self) -> DType:
        return self.below.dtype

    @property
    def device(self) -> Device:  # type: ignore[override]
        return self.below.device

    def _with(self, parts: Any, node: Any) -> Any:
        twin = type(self)(*parts, interpreter=self._interpreter)
        twin._node = node
        return twin

    def has_tangent(self) -> bool:
        """Whether forward mode differentiates by this value."""
        return any(isinstance(p, Tracer) and p.has_tangent() for p in self.parts)

    def plain(self) -> Tensor:
        """The value of the level below where that is all there is, else this one."""
        return self

    def alias(self, node: Any = None) -> Tensor:
        twin = self._with(self.parts, node)
        twin._storage = self.storage_record
        return twin

    def freeze(self) -> None:
        self._storage = None

    def hold(self, other: Any) -> None:
        """Take over a value, but keep the derivative: a change under ``no_grad``."""
        self.become(other)

    def spread(self) -> None:
        """Called after a change in place, as others may share the value."""

    def relinked(self, keep: Callable[[Any], bool]) -> Tensor:
        parts = [p.relinked(keep) if isinstance(p, Tensor) else p for p in self.parts]
        return self._with(parts, self._node if keep(self._node) else None)
