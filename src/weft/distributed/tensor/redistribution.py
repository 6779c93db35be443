"""Values on their way from one placement to another, one dimension of a mesh at a time.

    Partial → Replicate   all_reduce            Replicate → Shard     nothing is sent
    Partial → Shard       reduce_scatter        Replicate → Partial   nothing is sent
    Shard → Replicate     all_gather            Shard → other Shard   all_to_all

Where two dimensions of a mesh share out one axis, the later one cuts the earlier one's
pieces: it is undone first and done last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft.core.tensor import Tensor
from weft.distributed import nn as collectives
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor.placements import (
    Partial,
    Placements,
    Replicate,
    Shard,
    piece,
)
from weft.ops.creation import full, zeros_like
from weft.ops.joining import cat, stack

Step = tuple[int, Any, Any]  # of a mesh's dimension: before, and then


def steps(before: Placements, then: Placements) -> Iterator[Step]:
    """The changes of single dimensions that lead from some placements to others."""
    now = list(before)
    for k in reversed(range(len(now))):
        if now[k] == then[k] and not _cuts_again(now, then, k):
            continue
        direct = isinstance(now[k], Partial) or _alone(now, then, k)
        if (
            isinstance(now[k], Shard | Partial)
            and isinstance(then[k], Shard)
            and direct
            and not _cut_before(now, then, k)
        ):
            yield k, now[k], then[k]
            now[k] = then[k]
        elif not isinstance(now[k], Replicate):
            yield k, now[k], Replicate()
            now[k] = Replicate()
    for k, to in enumerate(then):
        if now[k] != to:
            yield k, now[k], to


def _axes(k: int, now: Sequence[Any], then: Sequence[Any]) -> set[int]:
    return {one.dim for one in (now[k], then[k]) if isinstance(one, Shard)}


def _cuts_again(now: Sequence[Any], then: Sequence[Any], k: int) -> bool:
    """Whether a piece is of pieces that an earlier dimension is about to change."""
    mine = _axes(k, now, then)
    return any(now[j] != then[j] and mine & _axes(j, now, then) for j in range(k))


def _cut_before(now: Sequence[Any], then: Sequence[Any], k: int) -> bool:
    """Whether another dimension cuts the axis to which this one is about to change."""
    others = [j for j in range(len(now)) if j != k]
    return any(_axes(k, now, then) & _axes(j, now, then) for j in others)


def _alone(now: Sequence[Any], then: Sequence[Any], k: int) -> bool:
    return isinstance(now[k], Shard) and not _cut_before(now, then, k)


def moved(
    value: Tensor, mesh: DeviceMesh, shape: Sequence[int], before: Placements,
    then: Placements,
) -> Tensor:  # fmt: skip
    """This process's part of a tensor of a shape, after the change of placements."""
    now = list(before)
    for k, one, other in steps(before, then):
        sizes = _sizes(shape, mesh, now, k)
        value = _change(value, mesh, k, sizes, one, other)
        now[k] = other
    return value


def _sizes(
    shape: Sequence[int], mesh: DeviceMesh, now: Sequence[Any], k: int
) -> list[int]:
    """The sizes of this row's tensor, which dimension ``k`` of the mesh shares out."""
    sizes, at = list(shape), mesh.get_coordinate() or [0] * mesh.ndim
    for j, one in enumerate(now):
        if isinstance(one, Shard) and j != k:
            sizes[one.dim] = piece(sizes[one.dim], mesh.shape[j], at[j])[1]
    return sizes


def _change(
    value: Tensor, mesh: DeviceMesh, k: int, sizes: list[int], one: Any, other: Any
) -> Tensor:
    group, count = mesh.get_group(k), mesh.shape[k]
    index = mesh.get_local_rank(k)
    if isinstance(one, Partial):
        if isinstance(other, Shard):
            return _reduce_scatter(value, group, count, index, other.dim, one.reduce_op)
        return collectives.all_reduce(value, one.reduce_op, group)
    if isinstance(one, Shard):
        if isinstance(other, Shard):
            return _exchange(value, group, count, index, one.dim, other.dim, sizes)
        return gathered(value, group, count, one.dim, sizes[one.dim])
    if isinstance(other, Partial):
        if other.reduce_op == "sum":
            return value if index == 0 else zeros_like(value)
        return value
    start, length = piece(sizes[other.dim], count, index)
    return value.narrow(other.dim, start, length)


def padded(value: Tensor, dim: int, length: int) -> Tensor:
    """A piece with zeros behind it, as long as all pieces are to be."""
    missing = length - value.shape[dim]
    if not missing:
        return value
    shape = [*value.shape]
    shape[dim] = missing
    return cat([value, full(shape, 0, dtype=value.dtype)], dim)


def gathered(value: Tensor, group: Any, count: int, dim: int, size: int) -> Tensor:
    """The pieces of all processes, joined."""
    if count == 1:
        return value
    length = -(-size // count)
    pieces = collectives.all_gather(padded(value, dim, length), group)
    lengths = [piece(size, count, k)[1] for k in range(count)]
    whole = [p.narrow(dim, 0, n) for p, n in zip(pieces, lengths, strict=True) if n]
    return cat(whole, dim) if whole else pieces[0]


def _cut(value: Tensor, dim: int, count: int) -> list[Tensor]:
    """A tensor's pieces, all as long as the first."""
    size = value.shape[dim]
    length = -(-size // count)
    parts = [piece(size, count, k) for k in range(count)]
    return [padded(value.narrow(dim, a, n), dim, length) for a, n in parts]


def _reduce_scatter(
    value: Tensor, group: Any, count: int, index: int, dim: int, reduce: str
) -> Tensor:
    size = value.shape[dim]
    out = collectives.reduced_row(stack(_cut(value, dim, count)), reduce, group)
    return out.narrow(dim, 0, piece(size, count, index)[1])


def _exchange(
    value: Tensor, group: Any, count: int, index: int, dim: int, to: int,
    sizes: list[int],
) -> Tensor:  # fmt: skip
    """From pieces along one axis to pieces along another."""
    mine = piece(sizes[to], count, index)[1]
    send = [value.narrow(to, *piece(sizes[to], count, k)) for k in range(count)]
    shapes = []
    for k in range(count):
        shape = list(sizes)
        shape[dim], shape[to] = piece(sizes[dim], count, k)[1], mine
        shapes.append(shape)
    flat = cat([one.reshape(-1) for one in send])
    counts = [math.prod(one) for one in shapes]
    like = full([sum(counts)], 0, dtype=value.dtype)
    found = collectives.all_to_all_single(
        like, flat, counts, [one.numel() for one in send], group
    ).split(counts)
    return cat([one.reshape(shape) for one, shape in zip(found, shapes, strict=True)],
               dim)  # fmt: skip
