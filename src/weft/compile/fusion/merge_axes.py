"""Proofs that loops over axes that are reduced together can stay one loop.

    for i < 8:                      for k < 64:
      for j < 8:            →         t = t + x[k]
        t = t + x[i, j]

They can if every access continues with the same stride from one row to the next. The
loop decides the order in which numbers are added up. A recomputed value, which is part
of other loops than the original, must therefore not be what splits the loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from weft.compile.loop.depend import flat_position
from weft.compile.loop.ranges import coefficient
from weft.core.size import same

Access = tuple[tuple[Any, ...] | None, tuple[Any, ...]]  # an index, of a shape


def mergeable(
    accesses: Iterable[Access], axes: tuple[int, ...], shape: tuple[Any, ...]
) -> bool:
    """Whether accesses let neighbouring axes of a shape be one loop.

    Indices are expressions in the variables ``i0``, ``i1``, … of the shape's axes.

    >>> from weft.core.size import Scope
    >>> from weft.compile.fusion.merge_axes import mergeable
    >>> i, j = map(Scope().symbol, ["i0", "i1"])
    >>> mergeable([((i, j), (4, 8))], (0, 1), (4, 8))
    True
    >>> mergeable([((j,), (8,))], (0, 1), (4, 8))
    False
    """
    pairs = [(a, b) for a, b in itertools.pairwise(axes) if b == a + 1]
    pairs = [(a, b) for a, b in pairs if not same(shape[a], 1)]
    return not pairs or all(
        at is not None and _goes_on(flat_position(at, whole), a, b, shape[b])
        for at, whole in accesses
        for a, b in pairs
    )


def _goes_on(flat: Any, outer: int, inner: int, count: Any) -> bool:
    """Whether the outer stride is the extent of the inner axis times its stride."""
    high, low = coefficient(flat, f"i{outer}"), coefficient(flat, f"i{inner}")
    if high is None or low is None:
        return False
    return same(count, 1) or same(high, low * count)
