"""Kernels that follow products: run on each part of one while it is in a cache.

    h = x @ w                 the product writes some rows and columns of h,
    y = gelu(h + b)           and at once the kernel replaces them by those of y

A group follows the product that it reads, if each of its rows needs only that row of
the product, and all else that it reads is there before. Without reductions it runs on
any columns; with them, on whole rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from weft.compile.fuse import Call, Fusion, Group, Operand, indices_of
from weft.compile.launches import Use
from weft.compile.loop.depend import flat_position
from weft.compile.loop.ir import For, Kernel, Store
from weft.compile.lower import Lowering, lower, replaced
from weft.compile.products import is_product
from weft.core.lowering import Reduction
from weft.core.size import same, smaller
from weft.graph.ir import Node

FIRST, WIDTH = "first", "width"  # of the columns that a call is for


class Following(NamedTuple):
    """A group that follows a product, and small ones that must come before both."""

    group: Group
    before: list[Group]


def followers(fusion: Fusion) -> dict[Call, Following]:
    """The group that follows each product, if one does."""
    found: dict[Call, Following] = {}
    for group in fusion.units:
        if not isinstance(group, Group) or group.alone:
            continue
        calls = [u for u in _made_by(fusion, group) if isinstance(u, Call)]
        last = max(calls, key=lambda u: u.order, default=None)
        if last is None or last in found or not follows(group, last):
            continue
        before = _before(fusion, group, last)
        if before is not None:
            found[last] = Following(group, before)
    return found


def _made_by(fusion: Fusion, group: Group) -> list[Any]:
    """The units that make what a group reads."""
    return [fusion.unit[b] for b in group.reads() if b in fusion.unit]


def _before(fusion: Fusion, group: Group, call: Call) -> list[Group] | None:
    """Groups to run before a call, so that another can follow it; None if it cannot.

    Such are an optimizer's numbers, which all its updates read.
    """
    found: list[Group] = []
    for unit in _made_by(fusion, group):
        if unit.order <= call.order or unit in found:
            continue
        if not isinstance(unit, Group) or not _small(unit):
            return None
        more = _before(fusion, unit, call)
        if more is None or any(u is call for u in _made_by(fusion, unit)):
            return None
        found += [one for one in (*more, unit) if one not in found]
    return found


def _small(group: Group) -> bool:
    sizes = [n for n in group.shape if not same(n, 1)]
    return not sizes and not group.alone


def follows(group: Group, unit: Call) -> bool:
    """Whether a group's rows need only the same rows of a product."""
    node = unit.node
    if not is_product(node) or _lead(group, node) is None:
        return False
    return all(
        _reads_here(group, one, operand, place)
        for one in group.nodes
        for operand, place in zip(
            group.operands[one], indices_of(one, group.home[one]), strict=True
        )
        if isinstance(operand, Operand) and operand.base is node
    )


def _reads_here(group: Group, node: Node, operand: Operand, place: Any) -> bool:
    if place is None or (node in group.rows and node not in _reductions(group)):
        return False
    index = operand.index(group.vars if node in group.rows else place)
    here = flat_position(group.vars, group.shape)
    return same(flat_position(index, operand.base.shape), here)


def _reductions(group: Group) -> set[Node]:
    return {n for n in group.rows if isinstance(n.op.lower, Reduction)}


def _lead(group: Group, node: Node) -> int | None:
    """How many of a group's axes number the product's rows; None if none do."""
    rows, columns = math.prod(node.shape[:-1]), node.shape[-1]
    for lead in range(len(group.shape) - 1, -1, -1):
        if same(math.prod(group.shape[lead:]), columns):
            fits = same(math.prod(group.shape[:lead]), rows)
            inside = all(d >= lead for d in group.reduced or ())
            return lead if fits and inside else None
    return None


class Follower(Use):
    """The use of a kernel that follows a product."""

    def __init__(self, group: Group, node: Node) -> None:
        lead = _lead(group, node)
        assert lead is not None
        if group.reduced is None:
            lowering = StripLoops(group, "kernel")
            lowering.lead = lead
            super().__init__(lowering.loops(), lowering.owners, group)
            inner: list[int] = []
        else:
            super().__init__(*lower(group, "kernel"), group)
            inner = [d for d in group.kept if d >= lead]
        self.whole = group.reduced is not None or lead < len(group.shape) - 1
        self.each = math.prod(group.shape[d] for d in inner)  # iterations of a row

    @property
    def fits(self) -> bool:
        """Whether the kernel's iterations are the product's rows, in order."""
        names = [name for name, _ in self.kernel.parallel]
        rows = names == [f"i{d}" for d in self.group.kept]
        return not self.kernel.checks and (rows or self.group.reduced is None)


class StripLoops(Lowering):
    """A group without reductions: parallel over rows, some columns of each."""

    lead = 0  # axes that are rows

    def loops(self) -> Kernel:
        group, memo = self.group, {}  # type: ignore[var-annotated]
        body: list[Any] = [
            Store(self.buffer(n), group.home[n], self.value(n, 0, memo))
            for n in group.nodes
            if n in self.stored
        ]
        body = self.with_lets(body)
        pairs = [(f"i{d}", n) for d, n in enumerate(self._sizes(group.shape))]
        inner = pairs[self.lead :]
        if len(inner) == 1:
            return self._made(tuple(pairs[: self.lead]), [self._some(body, *inner[0])])
        for var, extent in reversed(inner):
            body = [For(var, extent, body)]
        return self._made(tuple(pairs[: self.lead]), body)

    def _some(self, body: list[Any], var: str, extent: Any) -> For:
        """A loop over a range of columns that each call gives."""
        scope = self.group.scope
        scope.bounds[FIRST] = extent
        first, width, place = (scope.symbol(name) for name in (FIRST, WIDTH, "j"))
        self.given = ((FIRST, 0), (WIDTH, extent))
        memo: dict[int, Any] = {}
        moved = [replaced(s, var, first + place, memo) for s in body]
        return For("j", smaller(extent - first, width), moved)
