"""The orders of schedules, as plain data: what a process does, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Action(NamedTuple):
    """A microbatch's forward (``F``) or backward (``B``) in a stage."""

    kind: str
    stage: int
    microbatch: int


def gpipe(stage: int, count: int) -> Iterator[Action]:
    """All microbatches forward, then all backward."""
    for kind in "FB":
        for k in range(count):
            yield Action(kind, stage, k)


def one_forward_one_backward(stage: int, stages: int, count: int) -> Iterator[Action]:
    """As many forward as stages follow, then a backward before each.

    >>> from weft.distributed.pipelining.orders import one_forward_one_backward
    >>> [kind + str(k) for kind, _, k in one_forward_one_backward(0, 2, 3)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    ahead = min(count, stages - stage)
    for k in range(ahead):
        yield Action("F", stage, k)
    for k in range(count):
        yield Action("B", stage, k)
        if k + ahead < count:
            yield Action("F", stage, k + ahead)


def interleaved(rank: int, size: int, many: int, count: int) -> Iterator[Action]:
    """1F1B of a process that has ``many`` stages: ``rank``, ``rank + size``, …"""
    together = count // max(1, count // size)  # microbatches of a stage, one by one
    every = many * count
    ahead = min((many - 1) * together + 2 * (size - 1 - rank) + 1, every)
    done = {(kind, local): 0 for kind in "FB" for local in range(many)}

    def action(kind: str, number: int) -> Action:
        local = (number // together) % many
        if kind == "B":
            local = many - 1 - local
        k = done[kind, local]
        done[kind, local] += 1
        return Action(kind, local * size + rank, k)

    for number in range(ahead):
        yield action("F", number)
    for number in range(every):
        yield action("B", number)
        if number + ahead < every:
            yield action("F", number + ahead)
