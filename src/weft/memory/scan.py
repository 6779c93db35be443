"""A scan of the tensors that are alive, with their sizes and purposes.

Nothing is noted while tensors are made: the interpreter knows its objects, and a scan
asks it. Memory that several tensors share counts once, for the first of the kinds
below that one of them is of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from weft.autograd.segment import Segment
from weft.core import heap
from weft.core.pytree import tree_flatten
from weft.core.rows import Column, Rows, nbytes
from weft.core.tape import Node
from weft.core.tensor import Tensor
from weft.memory.origins import origins
from weft.runtime import allocation

KINDS = ("parameters", "gradients", "optimizer", "buffers", "activations", "other")


class Usage(NamedTuple):
    """Bytes of live tensors by purpose."""

    parameters: int
    gradients: int
    optimizer: int  # its state and working memory
    buffers: int  # of modules, such as running statistics
    activations: int  # values that the tape holds for backward
    other: int

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        parts = [f"{k} {nbytes(v)}" for k, v in self._asdict().items() if v]
        return f"{nbytes(self.total)}" + (f" ({', '.join(parts)})" if parts else "")


class Held(NamedTuple):
    """A live piece of memory."""

    nbytes: int
    kind: str
    shape: tuple[int, ...]
    dtype: str
    name: str  # a parameter's path, or the module or operator that made it
    line: str  # where it was made, if that was recorded

    def __str__(self) -> str:
        text = f"{nbytes(self.nbytes)} {self.kind}: {self.dtype}{list(self.shape)}"
        text += f" {self.name}" if self.name else ""
        return text + (f" at {self.line}" if self.line else "")


class Scan:
    """The live tensors at one moment."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.segments: list[Segment] = []
        self.modules: list[Any] = []
        self.optimizers: list[Any] = []
        self._sort()
        # id of the owner → (owner, kind, a tensor or array over it)
        self.found: dict[int, tuple[np.ndarray, str, np.ndarray]] = {}
        for kind in KINDS:
            for array in getattr(self, f"_{kind}")():
                owner = allocation.owner(array)
                self.found.setdefault(id(owner), (owner, kind, array))

    def _sort(self) -> None:
        nn, optim = (sys.modules.get(f"weft.{n}") for n in ("nn.module", "optim"))
        kinds: list[tuple[type, list[Any]]] = [
            (Tensor, self.tensors), (Node, self.nodes), (Segment, self.segments),
        ]  # fmt: skip
        if nn is not None:
            kinds.append((nn.Module, self.modules))
        if optim is not None:
            kinds.append((optim.Optimizer, self.optimizers))
        lists: dict[type, list[Any] | None] = {}
        for thing in heap.objects():
            kind = type(thing)
            if kind not in lists:
                matching = [target for base, target in kinds if issubclass(kind, base)]
                lists[kind] = matching[0] if matching else None
            target = lists[kind]
            if target is not None:
                target.append(thing)

    # -- the kinds

    def _parameters(self) -> Iterator[np.ndarray]:
        return _arrays(t for t in self.tensors if t._parameter)

    def _gradients(self) -> Iterator[np.ndarray]:
        return _arrays(t.__dict__.get("grad") for t in self.tensors)

    def _optimizer(self) -> Iterator[np.ndarray]:
        for optimizer in self.optimizers:
            yield from _arrays(tree_flatten(list(optimizer.state.values()))[0])
            for _, _, runs in optimizer._plans.values():
                for run in runs:
                    yield from run.working()

    def _buffers(self) -> Iterator[np.ndarray]:
        for module in self.modules:
            yield from _arrays(module.__dict__.get("_buffers", {}).values())

    def _activations(self) -> Iterator[np.ndarray]:
        for node in self.nodes:
            if type(node.saved) is tuple:
                yield from _arrays(tree_flatten(node.saved)[0])
        for segment in self.segments:
            yield from _arrays(segment.values())

    def _other(self) -> Iterator[np.ndarray]:
        return _arrays(self.tensors)

    # -- results

    def usage(self) -> Usage:
        """The bytes of each kind."""
        sums = dict.fromkeys(KINDS, 0)
        for owner, kind, _ in self.found.values():
            sums[kind] += owner.nbytes
        return Usage(**sums)

    def held(self) -> Rows:
        """Every piece of memory, largest first."""
        names = self.names()
        known = origins(self.nodes)
        made = [
            self._held(owner, kind, array, names, known.get(id(owner)))
            for owner, kind, array in self.found.values()
        ]
        return Rows(
            sorted(made, key=lambda h: -h.nbytes),
            Column("bytes", lambda h: nbytes(h.nbytes)),
            Column("kind", lambda h: h.kind, number=False),
            Column("type", lambda h: f"{h.dtype}{list(h.shape)}", number=False),
            Column("name", lambda h: h.name, number=False),
            Column("line", lambda h: h.line, number=False),
        )

    def _held(
        self, owner: Any, kind: str, array: Any, names: dict[int, str], kept: Any
    ) -> Held:
        entry = None if allocation.ledger is None else allocation.ledger.origin(owner)
        name = names.get(id(owner), "")
        line = ""
        if entry is not None:
            name = name or entry.name
            line = entry.line
        if kept is not None and kind == "activations":  # the tape knows a little
            name, line = name or kept.name(names), line or kept.line
        return Held(owner.nbytes, kind, array.shape, array.dtype.name, name, line)

    def names(self) -> dict[int, str]:
        """Paths of parameters and buffers, by the memory that holds them."""
        inner = {id(child) for m in self.modules for child in m.children()}
        names: dict[int, str] = {}
        for module in self.modules:
            if id(module) in inner:
                continue
            root = type(module).__name__
            for path, tensor in (*module.named_parameters(), *module.named_buffers()):
                for array in _arrays([tensor]):
                    names.setdefault(id(allocation.owner(array)), f"{root}.{path}")
                for array in _arrays([tensor.grad]):
                    names.setdefault(id(allocation.owner(array)), f"{root}.{path}.grad")
        return names


def _arrays(values: Iterable[Any]) -> Iterator[np.ndarray]:
    """The arrays of those values that are tensors with memory on this machine."""
    for value in values:
        if isinstance(value, Tensor):
            array = value.__dict__.get("_data")
            if type(array) is np.ndarray:
                yield array
