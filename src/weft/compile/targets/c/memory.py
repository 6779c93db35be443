"""The memory of a program in C: one workspace, for known or for open sizes.

Where all sizes are known, so are all offsets. Where some are open, values whose
lifetimes do not overlap take turns in regions, and a run adds up how large these are.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from weft.compile.program.lowered import Lowered
from weft.compile.program.memory_layout import MemoryLayout
from weft.compile.program.steps import KernelLaunch, Step
from weft.core.size import Size, larger, same
from weft.graph.ir import Node
from weft.runtime.cpu.address import round_up
from weft.runtime.cpu.arena import Buffer

ALIGNMENT = 64


def lay_out(lowered: Lowered, sizes: Mapping[str, int]) -> CLayout:
    """Choose memory for each value of a lowered graph."""
    layout = CLayout(lowered, sizes)
    layout.name_slots()
    layout.plan_arena()
    return layout


class Region(NamedTuple):
    """Memory in which values take turns: their sizes in bytes, and their waves."""

    sizes: list[Any]
    waves: list[tuple[int, int]]

    def free(self, first: int, last: int) -> bool:
        return all(last < a or b < first for a, b in self.waves)


class Place(NamedTuple):
    """Memory in the workspace: a region, or its beginning, and bytes behind that."""

    region: int | None
    offset: Any


class CLayout(MemoryLayout):
    """A memory layout whose sizes may be open, with the scratch memory of kernels."""

    regions: list[Region]

    def __init__(self, lowered: Lowered, sizes: Mapping[str, int]) -> None:
        known = {*sizes}
        self.open = any(
            not size.symbols <= known
            for node in lowered.graph.nodes
            for kind in _types(node)
            for size in kind.shape
            if isinstance(size, Size)
        )
        self.regions = []
        super().__init__(lowered, sizes)

    @property
    def nbytes(self) -> Any:
        """The size of the workspace."""
        return self.starts[-1] if self.open else self.layout.nbytes

    @property
    def starts(self) -> list[Any]:
        """Where each region begins, and where the last one ends."""
        sizes = [functools.reduce(larger, region.sizes) for region in self.regions]
        return list(itertools.accumulate(sizes, initial=0))

    def number(self, size: Any) -> Any:
        """A size for the known sizes, or as it is."""
        return size if self.open or not isinstance(size, Size) else (
            size.evaluate(self.sizes)
        )  # fmt: skip

    def runs(self, use: KernelLaunch) -> bool:
        return True if self.open else super().runs(use)

    def shape_of(self, node: Node) -> tuple[Any, ...]:
        return tuple(map(self.number, node.shape))

    def scratch_of(self, step: Step) -> Any:
        if not isinstance(step, KernelLaunch):
            return super().scratch_of(step)
        return sum(self.scratch_sizes(step))

    def scratch_sizes(self, step: KernelLaunch) -> list[Any]:
        """The bytes of each scratch buffer of a kernel, rounded up."""
        return [
            rounded(math.prod(map(self.number, b.shape)) * b.dtype.itemsize)
            for b in step.kernel.scratch
        ]

    def place(self, buffers: list[Buffer]) -> None:
        if not self.open:
            super().place(buffers)
            self.places_of = {k: Place(None, at) for k, at in self.offsets.items()}
            return
        self.places_of = {}
        spans = {b.id: [b.first, b.last] for b in buffers}
        origin: dict[Any, Any] = {}
        for b in buffers:  # a value that takes over another's memory comes after it
            origin[b.id] = b.id if b.shares is None else origin[b.shares]
            spans[origin[b.id]][1] = max(spans[origin[b.id]][1], b.last)
        for b in buffers:
            if b.shares is None:
                region = self._region(rounded(b.nbytes), *spans[b.id])
                self.places_of[b.id] = Place(region, 0)
        for b in buffers:
            self.places_of[b.id] = self.places_of[origin[b.id]]
        for node, piece in self.inside.items():
            start = piece.start * node.dtype.itemsize
            self.places_of[node] = Place(self.places_of[piece.whole].region, start)

    def _region(self, nbytes: Any, first: int, last: int) -> int:
        """A region that is free for some waves, best one of the same size."""
        free = [k for k, r in enumerate(self.regions) if r.free(first, last)]
        alike = [k for k in free if any(same(nbytes, n) for n in self.regions[k].sizes)]
        if not free:
            self.regions.append(Region([], []))
            free = [len(self.regions) - 1]
        chosen = (alike or free)[0]
        region = self.regions[chosen]
        region.waves.append((first, last))
        if not alike:
            region.sizes.append(nbytes)
        return chosen


def rounded(nbytes: Any) -> Any:
    """Bytes rounded up to whole lines; open sizes keep a quotient."""
    if isinstance(nbytes, Size):
        return (nbytes + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
    return round_up(int(nbytes), ALIGNMENT)


def _types(node: Node) -> list[Any]:
    kinds = node.type if type(node.type) is tuple else (node.type,)
    return [kind for kind in kinds if hasattr(kind, "shape")]
