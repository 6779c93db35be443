"""Placements: what each process of a mesh's dimension has of a tensor.

Shard(0)      a piece along that axis, as ``chunk`` cuts it: the last are smaller,
              or empty, if the axis does not divide
Replicate()   all of it
Partial()     a term: the tensor is the sum of what all have
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft.core.dims import normalize_dim
from weft.distributed.device_mesh import DeviceMesh
from weft.errors import ArgumentError


class Placement:
    """The base of placements, which are equal if they say the same."""

    def _says(self) -> tuple[Any, ...]:
        return (type(self), *vars(self).values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self._says() == other._says()

    def __hash__(self) -> int:
        return hash(self._says())

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({said})"

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether this is a piece, along an axis if one is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every process has all of the tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether this is a term, of a sum if ``reduce_op`` says so."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


class Shard(Placement):
    """A piece along an axis.

    >>> weft.distributed.tensor.Shard(0).is_shard(dim=0)
    True
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim


class Replicate(Placement):
    """All of the tensor, on every process.

    >>> weft.distributed.tensor.Replicate() == weft.distributed.tensor.Replicate()
    True
    """


class Partial(Placement):
    """A term of the tensor: ``reduce_op`` combines what all processes have.

    >>> weft.distributed.tensor.Partial()
    Partial(reduce_op='sum')
    """

    def __init__(self, reduce_op: str = "sum") -> None:
        self.reduce_op = reduce_op


Placements = tuple[Any, ...]
COMBINE = ("sum", "avg", "max", "min")


def checked(
    who: str, mesh: DeviceMesh, given: Sequence[Any] | None, ndim: int
) -> Placements:
    """Placements for a mesh, one a dimension, of a tensor of ``ndim`` axes."""
    if given is None:
        return (Replicate(),) * mesh.ndim
    some = tuple(given) if not isinstance(given, Placement) else (given,)
    if len(some) != mesh.ndim:
        raise ArgumentError(
            f"{who}: expected a placement for each of the mesh's {mesh.ndim} "
            f"dimensions, got {some}"
        )
    found: list[Any] = []
    for one in some:
        if isinstance(one, Shard):
            one = Shard(normalize_dim(f"{who}: Shard", one.dim, ndim))
        elif isinstance(one, Partial):
            if one.reduce_op not in COMBINE:
                raise ArgumentError(
                    f"{who}: expected Partial of {', '.join(COMBINE)}, got {one}"
                )
        elif not isinstance(one, Replicate):
            raise ArgumentError(
                f"{who}: expected Shard(dim), Replicate() or Partial(), got {one!r}"
            )
        found.append(one)
    return tuple(found)


def piece(size: int, count: int, index: int) -> tuple[int, int]:
    """Where the piece of a process begins on an axis, and its length.

    >>> from weft.distributed.tensor.placements import piece
    >>> [piece(5, 4, k) for k in range(4)]
    [(0, 2), (2, 2), (4, 1), (5, 0)]
    """
    length = -(-size // count)
    start = min(index * length, size)
    return start, min(length, size - start)


def local_part(
    shape: Sequence[int],
    mesh: DeviceMesh,
    placements: Placements,
    at: Sequence[int] | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of what a process has of a tensor, and where it begins.

    ``at`` is the process's place in the mesh, or else this one's.
    """
    sizes, starts = list(shape), [0] * len(shape)
    at = mesh.get_coordinate() if at is None else at
    for k, one in enumerate(placements):
        if isinstance(one, Shard):
            if at is None:
                sizes[one.dim] = 0
                continue
            start, sizes[one.dim] = piece(sizes[one.dim], mesh.shape[k], at[k])
            starts[one.dim] += start
    return tuple(sizes), tuple(starts)


def pieces_of(tensor: Any) -> Iterator[tuple[int, list[int], list[int]]]:
    """The pieces of a DTensor: rank, start and shape of each; of copies the first."""
    mesh, placements = tensor.device_mesh, tensor.placements
    if any(isinstance(p, Partial) for p in placements):
        raise ArgumentError(
            f"expected a DTensor in pieces, got terms of a sum, {placements}; call "
            "redistribute before"
        )
    for at in itertools.product(*map(range, mesh.shape)):
        pairs = zip(at, placements, strict=True)
        if any(k and isinstance(p, Replicate) for k, p in pairs):
            continue
        shape, start = local_part(tensor.shape, mesh, placements, at)
        if math.prod(shape):
            yield int(mesh.mesh_array[at]), list(start), list(shape)
