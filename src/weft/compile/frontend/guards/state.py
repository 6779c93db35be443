"""Guards of the tensors outside that a program's variables live in."""

from __future__ import annotations

from operator import attrgetter, is_
from typing import Any

from weft.graph.capture import layout_of
from weft.graph.state_cells import Cell

_data, _node = attrgetter("_data"), attrgetter("_node")


class Tensors:
    """Shapes, dtypes and ``requires_grad`` of tensors that a function has seen."""

    def __init__(self, cells: dict[str, Cell], seen: dict[str, Any]) -> None:
        held = {id(c.tensor): c for c in cells.values() if type(c) is Cell}
        more = {name: t for name, t in seen.items() if id(t) not in held}
        self.names = [c.variable.name for c in held.values()] + list(more)
        self.tensors = [c.tensor for c in held.values()] + list(more.values())
        self.kinds = [_kind(t) for t in self.tensors]
        self._prepare()

    def _prepare(self) -> None:
        self.arrays = list(map(_data, self.tensors))
        self.nodes = list(map(_node, self.tensors))

    def holds(self) -> bool:
        tensors = self.tensors
        return (
            all(map(is_, map(_data, tensors), self.arrays))
            and all(map(is_, map(_node, tensors), self.nodes))
        ) or self.changed() is None

    def changed(self) -> str | None:
        """Which tensor is of another kind, in words."""
        for name, tensor, was in zip(self.names, self.tensors, self.kinds, strict=True):
            now = _kind(tensor)
            if now != was:
                return f"{name} is {_text(now)}, was {_text(was)}"
        self._prepare()
        return None


def _kind(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor._node is not None, layout_of(tensor._data)


def _text(kind: tuple[Any, ...]) -> str:
    dtype, shape, recorded, layout = kind
    text = f"{dtype.name}{list(shape)}" + (" with a gradient" if recorded else "")
    return text if layout is None else f"{text} that lies by {layout}"
