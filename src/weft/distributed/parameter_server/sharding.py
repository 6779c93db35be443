"""Shares of servers: ranges of dense parameters, and rows of tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from weft.ops.random import philox

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


class Piece(NamedTuple):
    """The elements ``start`` to ``stop`` of a parameter, read as one row."""

    name: str
    start: int
    stop: int


def cut(sizes: Mapping[str, tuple[int, int]], servers: int) -> list[list[Piece]]:
    """The pieces of each server, of as many bytes as the others' but for an element.

    ``sizes`` has the elements of each parameter, and the bytes of an element. All
    parameters are laid end to end and cut at equal distances.

    >>> from weft.distributed.parameter_server.sharding import cut
    >>> cut({"w": (6, 4), "b": (2, 4)}, 2)
    [[Piece(name='w', start=0, stop=4)], [Piece(name='w', start=4, stop=6), \
Piece(name='b', start=0, stop=2)]]
    """
    total = sum(count * size for count, size in sizes.values())
    ends = [total * k // servers for k in range(servers + 1)]
    found: list[list[Piece]] = [[] for _ in range(servers)]
    at = 0
    for name, (count, size) in sizes.items():
        cuts = [min(max(-((at - end) // size), 0), count) for end in ends]
        for pieces, start, stop in zip(found, cuts, cuts[1:], strict=False):
            if start < stop:
                pieces.append(Piece(name, start, stop))
        at += count * size
    return found


def summed(rows: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different rows in order, with the sums of the values that each of them has.

    >>> summed(np.array([7, 2, 7]), np.array([[1.0], [2.0], [4.0]]))
    (array([2, 7]), array([[2.],
           [5.]]))
    """
    order = np.argsort(rows, kind="stable")
    rows, values = rows[order], values[order]
    first = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 1))
    if len(first) == len(rows):
        return rows, values
    return rows[first], np.add.reduceat(values, first, axis=0)


def initial_rows(rows: np.ndarray, width: int, std: float, seed: int) -> np.ndarray:
    """The values that rows of a table begin with: normal, and the same at any time.

    >>> some, all = initial_rows(np.array([5]), 3, 0.1, 0), np.arange(9)
    >>> bool((initial_rows(all, 3, 0.1, 0)[5] == some).all())
    True
    """
    if not std:
        return np.zeros((len(rows), width))
    blocks = -(-width // 4)
    row = rows.astype(np.uint64)[:, None]
    block = np.broadcast_to(np.arange(blocks, dtype=np.uint64), (len(rows), blocks))
    counter = (block, row & _LOW, row >> _32, np.zeros_like(block))
    words = philox(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    unit = [(word + 0.5) * 2.0**-32 for word in words]
    pairs = [
        np.sqrt(-2 * np.log(unit[k])) * turn(2 * math.pi * unit[k + 1])
        for k in (0, 2)
        for turn in (np.cos, np.sin)
    ]
    return std * np.stack(pairs, -1).reshape(len(rows), 4 * blocks)[:, :width]
