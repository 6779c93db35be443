"""Epilogues: groups that run on each part of a library call's result at once.

    h = x @ w                 the product writes some rows and columns of h,
    y = gelu(h + b)           and at once the kernel replaces them by those of y

A group is the epilogue of the call that it reads, if each of its rows needs only that
row of the result, and all else that it reads is there before. Without reductions it
runs on any columns; with them, on whole rows. Calls say what their rows are: those of
a convolution are the channels of each image, its columns pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.compile import targets
from weft.compile.fusion.groups import Call, Fusion, Group, Operand, indices_of
from weft.compile.loop.depend import flat_position
from weft.core.lowering import Reduction
from weft.core.size import Size, same
from weft.graph.ir import Node

LibraryCallOf = Callable[[Node], Any]  # the kind of library call for a node, if any


class Following(NamedTuple):
    """A group that follows a routine, and small ones that must come before both."""

    group: Group
    before: list[Group]


def epilogues(fusion: Fusion, library_call: LibraryCallOf) -> dict[Call, Following]:
    """The group that follows each routine, if one does."""
    found: dict[Call, Following] = {}
    for group in fusion.units:
        if not isinstance(group, Group) or group.alone:
            continue
        calls = [u for u in _made_by(fusion, group) if isinstance(u, Call)]
        last = max(calls, key=lambda u: u.order, default=None)
        if (
            last is None
            or last in found
            or not follows(group, last, library_call(last.node))
        ):
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

    Such are an optimizer's numbers, which all its updates read, and what a batch norm
    computes for each channel.
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
    if group.alone or any(isinstance(n, Size) for n in group.shape):
        return False
    return math.prod(group.shape) <= targets.default().cost.fusion.early


def follows(group: Group, unit: Call, kind: Any) -> bool:
    """Whether a group's rows need only the same rows of a library call's result."""
    node = unit.node
    if group.length or row_axes(group, node, kind) is None:
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


def row_axes(group: Group, node: Node, kind: Any) -> int | None:
    """How many of a group's axes number the rows of a node that ``kind`` computes.

    None if none do.
    """
    axes = None if kind is None else kind.row_axes(node)
    if axes is None:
        return None
    rows, columns = math.prod(node.shape[:axes]), math.prod(node.shape[axes:])
    for lead in range(len(group.shape) - 1, -1, -1):
        if same(math.prod(group.shape[lead:]), columns):
            fits = same(math.prod(group.shape[:lead]), rows)
            inside = all(d >= lead for d in group.reduced or ())
            return lead if fits and inside else None
    return None
