"""Axes that an index takes apart, put together again.

A reshape between two parts of a kernel makes quotients and remainders of one position:

    x: float32[8, 64, 784]                 x: float32[8, 50176]
    x[i, (6272*j + k)//784,           →    x[i, 6272*j + k]
         (6272*j + k)%784]

Memory is in row-major order, so that they say no more than the position itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from weft.compile.loop.depend import flat_position
from weft.compile.loop.ir import Buffer, Kernel
from weft.compile.loop.rewrite import uses, with_accesses
from weft.core.size import Size, same


class Span(NamedTuple):
    """Neighbouring axes, and the position that an index takes apart over them."""

    first: int
    last: int
    position: Any


def merge_index(kernel: Kernel) -> Kernel:
    """A kernel whose buffers have no axes that some index only takes apart."""
    joined: dict[str, list[tuple[int, int]]] = {}
    for buffer, at in uses(kernel.body):
        for span in _spans(at, buffer.shape):
            joined.setdefault(buffer.name, []).append((span.first, span.last))
    if not joined:
        return kernel
    ends = {name: dict(_disjoint(spans)) for name, spans in joined.items()}

    def merged(buffer: Buffer) -> Buffer:
        axes = _axes(buffer, ends.get(buffer.name, {}))
        shape = tuple(math.prod(buffer.shape[i : j + 1]) for i, j in axes)
        return buffer._replace(shape=shape)

    def change(buffer: Buffer, at: tuple[Any, ...]) -> Any:
        spans = {span.first: span for span in _spans(at, buffer.shape)}
        axes = _axes(buffer, ends.get(buffer.name, {}))
        places = tuple(_position(at, buffer.shape, i, j, spans) for i, j in axes)
        return merged(buffer), places

    return kernel._replace(
        buffers=tuple(map(merged, kernel.buffers)),
        scratch=tuple(map(merged, kernel.scratch)),
        body=with_accesses(kernel.body, change),
    )


def _axes(buffer: Buffer, ends: dict[int, int]) -> Iterator[tuple[int, int]]:
    """The first and last of the axes that become one, for each axis to be."""
    d = 0
    while d < len(buffer.shape):
        yield d, ends.get(d, d)
        d = ends.get(d, d) + 1


def _position(
    at: tuple[Any, ...], shape: tuple[Any, ...], first: int, last: int, spans: Any
) -> Any:
    """The position of an index within axes that are one now."""
    parts, sizes, d = [], [], first
    while d <= last:
        end = spans[d].last if d in spans else d
        parts.append(spans[d].position if d in spans else at[d])
        sizes.append(math.prod(shape[d : end + 1]))
        d = end + 1
    return flat_position(tuple(parts), tuple(sizes))


def _spans(at: tuple[Any, ...], shape: tuple[Any, ...]) -> Iterator[Span]:
    """The neighbouring axes over which an index takes one position apart."""
    d = len(at) - 1
    while d > 0:
        span = _span(at, shape, d)
        if span is not None:
            yield span
            d = span.first
        d -= 1


def _span(at: tuple[Any, ...], shape: tuple[Any, ...], last: int) -> Span | None:
    position = _taken_apart(at[last], shape[last])
    if position is None:
        return None
    rest = position // shape[last]
    for d in reversed(range(last)):
        if same(at[d], rest):
            return Span(d, last, position)
        if not same(at[d], rest % shape[d]):
            return None
        rest = rest // shape[d]
    return None


def _taken_apart(index: Any, size: Any) -> Any:
    """``a`` if an index is ``a % size``."""
    if not isinstance(index, Size) or len(index.terms) != 1:
        return None
    ((atoms, factor),) = index.terms
    if factor != 1 or len(atoms) != 1 or atoms[0].kind != "%":
        return None
    return atoms[0].a if same(atoms[0].b, size) else None


def _disjoint(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that have no axis in common, in order."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if out and first <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], last)
        else:
            out.append((first, last))
    return out
