"""Cheap values that a group computes again, where reading them takes more bytes.

    group 1   %c = cast(%x); %s = sum(%c)        stores c and s
    group 2   %d = sub(%c, %m)                   reads c and m
    →
    group 1   %c = cast(%x); %s = sum(%c)        stores s
    group 2   %c = cast(%x); %d = sub(%c, %m)    reads x, of half the bytes, and m

On a target whose threads wait for memory, operations on what is loaded are free. The
same operator on the same values gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from weft import dtype as dtypes
from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.groups import (
    Call,
    Fusion,
    Group,
    Operand,
    Unit,
    indices_of,
    operands_of,
)
from weft.core.lowering import Pointwise, Reduction
from weft.core.size import hinted, same_shape
from weft.graph.ir import Node

MOST = 24  # cost of the operations that are added for one value
FAR = 24  # operations in a row before a value; one that is further away is read


class Way(NamedTuple):
    """A way to have a value in a group: what is computed there, and what is read."""

    nodes: tuple[Node, ...]  # in order
    reads: frozenset[Node]

    @property
    def cost(self) -> int:
        return sum(node.op.facts.cost for node in self.nodes)


def recompute_reads(fusion: Fusion) -> None:
    """Let groups compute values that they read, where that moves fewer bytes.

    A value that is in memory anyway is read. Others are stored first, for this reader
    or another one: they count twice.
    """
    if not fusion.cost.recomputed_reads:
        return
    units, unit = fusion.units, fusion.unit
    order = {node: k for k, node in enumerate(n for one in units for n in one.nodes)}
    stored = {Operand(node).base for node in fusion.graph.outputs}
    for one in units:
        if isinstance(one, Call) or one.alone:
            inputs = [i for node in one.nodes for i in node.inputs if type(i) is Node]
            stored.update([Operand(i).base for i in inputs])
    for one in units:
        if isinstance(one, Group) and not one.alone and not one.closed:
            _Reader(one, unit, stored, order).run()
    fusion.find_outputs()


class _Reader:
    """One group, and the values that it reads."""

    def __init__(
        self, group: Group, unit: Mapping[Node, Unit], stored: Collection[Node],
        order: Mapping[Node, int],
    ) -> None:  # fmt: skip
        self.group, self.unit, self.stored, self.order = group, unit, stored, order
        self.own = list(group.nodes)
        self.known: dict[Node, Way] = {}  # the best ways, for the group as it is

    def run(self) -> None:
        for node in sorted(self.group.reads(), key=_bytes, reverse=True):
            if self._may_compute(node) and self._read_in_place(node):
                way = self._best(node)
                if node not in way.reads:
                    self._add(way)

    def _best(self, node: Node, far: int = 0) -> Way:
        """The way that moves the fewest bytes; many ways lead to a value."""
        if far > FAR:
            return Way((), frozenset([node]))
        if node not in self.known:
            self.known[node] = self._found(node, far)
        return self.known[node]

    def _found(self, node: Node, far: int) -> Way:
        read = Way((), frozenset([node]))
        if node in self.group.home:
            return Way((), frozenset())
        if not self._may_compute(node):
            return read
        parts = [
            self._best(o.base, far + 1)
            for o in operands_of(node)
            if isinstance(o, Operand)
        ]
        nodes = [one for part in parts for one in part.nodes]
        reads = frozenset().union(*[part.reads for part in parts])
        made = Way((*dict.fromkeys(nodes), node), reads)
        much = made.cost > MOST or self._moved(made, node) > self._moved(read, node)
        return read if much else made

    def _moved(self, way: Way, instead: Node) -> int:
        """The bytes that are moved for a way alone."""
        others = self.group.reads() - {instead}
        return sum(
            _bytes(node) * (1 if self._is_stored(node) else 2)
            for node in way.reads - others
        )

    def _is_stored(self, node: Node) -> bool:
        """Whether a value is in memory, whoever reads it."""
        return node in self.stored or not isinstance(self.unit.get(node), Group)

    def _may_compute(self, node: Node) -> bool:
        """Whether a value of another group can be computed at this group's indices."""
        made = self.unit.get(node)
        if not isinstance(made, Group) or made.alone or made.closed:
            return False
        if node in made.rows or not isinstance(lowering_of(node), Pointwise):
            return False
        if node.dtype.category == dtypes.INT or not hinted(node.shape):
            return False  # indices that were checked are not computed anew
        slot = self.group.slot(node)
        if slot is None or slot[1]:
            return False
        pairs = zip(operands_of(node), indices_of(node, slot[0]), strict=True)
        for operand, index in pairs:
            if isinstance(operand, Operand) and index is not None:
                base = operand.base
                if self._may_be_here(base) and not same_shape(
                    operand.index(index), self.group.full_index(base)
                ):
                    return False
        inner = self.group.inner
        return len(inner) < 2 or not self.group.divides(node, slot[0], inner)

    def _may_be_here(self, base: Node) -> bool:
        slot = self.group.slot(base)
        return slot is not None and not slot[1]

    def _read_in_place(self, value: Node) -> bool:
        """Whether all that read a value read the element at the group's own index."""
        here = self.group.full_index(value)
        return all(same_shape(index, here) for index in self._indices(value))

    def _indices(self, value: Node) -> Iterator[tuple[object, ...]]:
        group = self.group
        for node in group.nodes:
            home = group.home[node]
            if isinstance(lowering_of(node), Reduction):
                home = group.vars
            pairs = zip(group.operands[node], indices_of(node, home), strict=True)
            for operand, index in pairs:
                if isinstance(operand, Operand) and operand.base is value:
                    yield () if index is None else operand.index(index)

    def _add(self, way: Way) -> None:
        """Add the nodes of a way before the group's own."""
        group = self.group
        for node in way.nodes:
            if node not in group.home:
                group.add(node, group.full_index(node), row=False)
        self.known.clear()
        added = [node for node in group.nodes if node not in self.own]
        group.nodes = [*sorted(added, key=self.order.__getitem__), *self.own]


def _bytes(node: Node) -> int:
    return math.prod(hinted(node.shape) or (1,)) * node.dtype.itemsize
