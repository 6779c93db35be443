"""A layered layout: rows from top to bottom, few crossings, boxes near their kin.

    1. rows      each item below all it needs, first forward, then backward, then
                 update; what only feeds moves down to its user
    2. bends     an edge over several rows gets a position in each row it crosses
    3. order     sweeps down and up, each row sorted by the mean position of its kin
    4. positions each item as near to the mean of its kin as its row allows

Steps 1 to 3 look at one group alone, so they are done once; positions depend on the
groups that are open. Each step takes time in proportion to items, edges and bends.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from weft.graph.ir import INPUT
from weft.graph.views.outline import KINDS, PASSIVE, Edge, Outline

SWEEPS = 6
GAP_X, GAP_Y = 18, 44
Pair = tuple[int, int]


class Rows(NamedTuple):
    """The items of a group in rows. Bends are negative numbers."""

    rows: list[list[int]]
    links: list[Pair]  # between neighbouring rows, upper end first
    bends: dict[Pair, list[int]]  # of an edge between two items, from its start


def rows_of_groups(outline: Outline) -> list[Rows]:
    """The rows of every group."""
    lifted: list[dict[Pair, None]] = [{} for _ in outline.groups]
    for edge in outline.edges:
        group, pair = lift(outline, edge)
        lifted[group][pair] = None
    keys, phases = _keys(outline), _phases(outline)
    return [
        _rows(group.items, list(lifted[number]), keys, phases)
        for number, group in enumerate(outline.groups)
    ]


def lift(outline: Outline, edge: Edge) -> tuple[int, Pair]:
    """The innermost group around both ends, and the items in it that hold them."""
    a, b = outline.chain(edge.source), outline.chain(edge.target)
    while len(a) > 1 and len(b) > 1 and a[-1] == b[-1]:
        a.pop()
        b.pop()
    return max(outline.group_of(a[-1]), 0), (a[-1], b[-1])


def _keys(outline: Outline) -> list[int]:
    """The step at which each item begins to run; inputs of others come first."""
    boxes, never = len(outline.boxes), len(outline.boxes) + 1
    keys = [never] * (boxes + len(outline.groups))
    for number, box in enumerate(outline.boxes):
        passive = box.node.op in PASSIVE or box.node.op is INPUT
        keys[number] = -1 if passive else number
        if not passive:
            for item in outline.chain(number)[1:]:
                keys[item] = min(keys[item], number)
    return keys


def _phases(outline: Outline) -> list[int]:
    """0 before the backward part, 1 in it, 2 in the update."""
    kinds = [b.kind for b in outline.boxes] + [g.kind for g in outline.groups]
    return [max(KINDS.index(kind) - KINDS.index("forward"), 0) for kind in kinds]


def _rows(
    items: list[int], pairs: list[Pair], keys: list[int], phases: list[int]
) -> Rows:
    # Groups may need each other; then the one that runs first stands above.
    ordered = sorted(items, key=lambda i: (keys[i], i))
    place = {item: k for k, item in enumerate(ordered)}
    down = [(a, b) if place[a] < place[b] else (b, a) for a, b in pairs]
    row = _row_numbers(ordered, down, phases)
    links, bends = _bend(down, row, len(items))
    rows: list[list[int]] = [[] for _ in range(max(row.values(), default=-1) + 1)]
    for item in row:
        rows[row[item]].append(item)
    _sort(rows, links)
    ways = bends | {(b, a): way[::-1] for (a, b), way in bends.items()}
    return Rows(rows, links, {pair: ways[pair] for pair in pairs if ways[pair]})


def _row_numbers(
    ordered: list[int], down: list[Pair], phases: list[int]
) -> dict[int, int]:
    above, below = neighbours(down)
    phase: dict[int, int] = {}
    for item in ordered:
        phase[item] = max([phases[item], *[phase[other] for other in above[item]]])
    row = dict.fromkeys(ordered, 0)
    base = 0
    for number in range(3):
        here = [item for item in ordered if phase[item] == number]
        for item in here:
            row[item] = max([base, *[row[other] + 1 for other in above[item]]])
        base = max([base, *[row[item] + 1 for item in here]])
    for item in ordered:
        if below[item] and not above[item]:
            row[item] = min(row[other] for other in below[item]) - 1
    return _folded(row, len(ordered))


def _folded(row: dict[int, int], count: int) -> dict[int, int]:
    """Rows that are too wide become several."""
    widest = max(8, math.ceil(1.5 * math.sqrt(count)))
    members = defaultdict(list)
    for item, number in row.items():
        members[number].append(item)
    found, at = {}, 0
    for number in sorted(members):
        for k, item in enumerate(members[number]):
            found[item] = at + k // widest
        at = found[members[number][-1]] + 1
    return found


def _bend(
    down: list[Pair], row: dict[int, int], count: int
) -> tuple[list[Pair], dict[Pair, list[int]]]:
    """Links between neighbouring rows; edges of one start share their bends.

    The number of bends is limited: edges that would need most go straight.
    """
    users = defaultdict(list)
    for a, b in dict.fromkeys(down):
        users[a].append(b)
    span = {a: max(row[b] for b in found) - row[a] - 1 for a, found in users.items()}
    links: list[Pair] = []
    left, bends, fresh = 8 * count + 100, {}, -1
    for a in sorted(users, key=lambda a: span[a]):
        chain = []
        if span[a] <= left:
            left -= span[a]
            chain = list(range(fresh, fresh - span[a], -1))
            fresh -= span[a]
            row.update(zip(chain, range(row[a] + 1, row[a] + 1 + span[a]), strict=True))
        links += zip([a, *chain], chain, strict=False)
        for b in users[a]:
            way = bends[a, b] = chain[: row[b] - row[a] - 1]
            links.append((way[-1] if way else a, b))
    return links, bends


def _sort(rows: list[list[int]], links: list[Pair]) -> None:
    above, below = neighbours(links)
    spot: dict[int, float] = {}
    for line in rows:
        _spread(line, spot)
    for sweep in range(SWEEPS):
        upwards = sweep % 2
        kin = below if upwards else above
        for line in reversed(rows) if upwards else rows:
            line.sort(key=lambda i: mean([spot[j] for j in kin[i]], spot[i]))
            _spread(line, spot)


def _spread(line: list[int], spot: dict[int, float]) -> None:
    for k, item in enumerate(line):
        spot[item] = (k + 0.5) / len(line)


Kin = defaultdict[int, list[int]]


def neighbours(links: Iterable[Pair]) -> tuple[Kin, Kin]:
    """The items that each item is linked to, above and below."""
    above: Kin = defaultdict(list)
    below: Kin = defaultdict(list)
    for a, b in links:
        below[a].append(b)
        above[b].append(a)
    return above, below


def mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


# -- positions


class Placed(NamedTuple):
    """Centres of items and the middle of their rows, from the top left corner."""

    x: dict[int, float]
    y: dict[int, float]
    height: dict[int, float]  # of each item's row
    width: float
    bottom: float


def place(rows: Rows, sizes: Mapping[int, tuple[float, float]]) -> Placed:
    """The positions of items, given their widths and heights (bends have none)."""
    x: dict[int, float] = {}
    width = {i: sizes[i][0] if i >= 0 else 4.0 for line in rows.rows for i in line}
    for line in rows.rows:
        _align(line, width, dict.fromkeys(line, 0.0), x)
    above, below = neighbours(rows.links)
    for sweep in range(SWEEPS):
        kin = below if sweep % 2 else above
        for line in reversed(rows.rows) if sweep % 2 else rows.rows:
            wish = {i: mean([x[j] for j in kin[i]], x[i]) for i in line}
            _align(line, width, wish, x)
    return _stack(rows, sizes, x, width)


def _align(
    line: list[int],
    width: dict[int, float],
    wish: dict[int, float],
    x: dict[int, float],
) -> None:
    """Positions as near to the wished ones as order and spacing allow.

    Pushing from the left and pushing from the right each keep the gaps, so their
    mean does.
    """
    right: list[float] = []
    for k, item in enumerate(line):
        at = wish[item]
        if k:
            at = max(at, right[-1] + _apart(width, line[k - 1], item))
        right.append(at)
    bound = math.inf
    for k in range(len(line) - 1, -1, -1):
        at = min(wish[line[k]], bound)
        x[line[k]] = (at + right[k]) / 2
        bound = at - _apart(width, line[k - 1], line[k])


def _apart(width: dict[int, float], a: int, b: int) -> float:
    return (width[a] + width[b]) / 2 + GAP_X


def _stack(
    rows: Rows, sizes: Mapping[int, tuple[float, float]], x: dict[int, float],
    width: dict[int, float],
) -> Placed:  # fmt: skip
    left = min((x[i] - width[i] / 2 for i in x), default=0.0)
    right = max((x[i] + width[i] / 2 for i in x), default=0.0)
    y, height, top = {}, {}, 0.0
    for line in rows.rows:
        tall = max((sizes[i][1] for i in line if i >= 0), default=0.0)
        for item in line:
            y[item], height[item] = top + tall / 2, tall
        top += tall + GAP_Y
    moved = {i: at - left for i, at in x.items()}
    return Placed(moved, y, height, right - left, max(top - GAP_Y, 0.0))
