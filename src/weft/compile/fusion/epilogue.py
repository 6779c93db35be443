"""Epilogues: groups that run on each part of a library call's result at once.

    h = x @ w                 the product writes a tile of h,
    y = gelu(h + b)           and the epilogue replaces it by that of y at once

A group is the epilogue of the call that it reads, if each of its rows needs only that
row of the result, and everything else that it reads is computed before. Without
reductions it runs on any columns; with them, on whole rows. Calls say what their rows
are: those of a convolution are the channels of each image, its columns the pixels.
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


class Epilogue(NamedTuple):
    """A group that is a call's epilogue, and small ones that must come before both."""

    group: Group
    before: list[Group]


def epilogues(fusion: Fusion, library_call: LibraryCallOf) -> dict[Call, Epilogue]:
    """The epilogue of each library call that has one."""
    found: dict[Call, Epilogue] = {}
    for group in fusion.units:
        if not isinstance(group, Group) or group.alone:
            continue
        calls = [u for u in _made_by(fusion, group) if isinstance(u, Call)]
        last = max(calls, key=lambda u: u.order, default=None)
        if (
            last is None
            or last in found
            or not is_epilogue(group, last, library_call(last.node))
        ):
            continue
        before = _before(fusion, group, last)
        if before is not None:
            found[last] = Epilogue(group, before)
    return found


def _made_by(fusion: Fusion, group: Group) -> list[Any]:
    """The units that compute what a group reads, and the checks that it comes after."""
    checks = [n for one in group.nodes for n in one.after if n in fusion.checks]
    return [fusion.unit[b] for b in (*group.reads(), *checks) if b in fusion.unit]


def _before(fusion: Fusion, group: Group, call: Call) -> list[Group] | None:
    """The groups to run before a call, so that ``group`` can be its epilogue.

    None if it cannot. Such groups compute an optimizer's numbers, which all its updates
    read, or a batch norm's values for each channel.
    """
    before: list[Group] = []
    for unit in _made_by(fusion, group):
        if unit.order <= call.order or unit in before:
            continue
        if not isinstance(unit, Group) or not _small(unit):
            return None
        more = _before(fusion, unit, call)
        if more is None or any(u is call for u in _made_by(fusion, unit)):
            return None
        before += [one for one in (*more, unit) if one not in before]
    return before


def _small(group: Group) -> bool:
    if group.alone or any(isinstance(n, Size) for n in group.shape):
        return False
    return math.prod(group.shape) <= targets.current().cost.fusion.early


def is_epilogue(group: Group, unit: Call, kind: Any) -> bool:
    """Whether a group's rows need only the same rows of a library call's result."""
    node = unit.node
    if group.length or row_axes(group, node, kind) is None:
        return False
    return all(
        _reads_here(group, one, operand, index)
        for one in group.nodes
        for operand, index in zip(
            group.operands[one], indices_of(one, group.home[one]), strict=True
        )
        if isinstance(operand, Operand) and operand.base is node
    )


def _reads_here(group: Group, node: Node, operand: Operand, index: Any) -> bool:
    if index is None:
        return False
    if node in group.rows and not isinstance(node.op.lower, Reduction):
        return False
    index = operand.index(group.vars if node in group.rows else index)
    here = flat_position(group.vars, group.shape)
    return same(flat_position(index, operand.base.shape), here)


def row_axes(group: Group, node: Node, kind: Any) -> int | None:
    """The number of a group's axes that number rows of a node ``kind`` computes.

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
