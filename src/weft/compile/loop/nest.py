"""Nests of loops: what the schedules of all targets ask of them and do to them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from weft.compile.loop.depend import symbols_of
from weft.compile.loop.ir import (
    Choice,
    For,
    Kernel,
    Load,
    Position,
    statements,
    subvalues,
    values_of,
)
from weft.compile.loop.rewrite import uses, with_accesses
from weft.compile.loop.schedule import fuse, parallelise
from weft.core.size import Size, same, same_shape
from weft.graph.ir import GraphError


def nest_of(kernel: Kernel) -> list[For]:
    """The perfect nest of loops that a body begins with."""
    nest: list[For] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], For):
        nest.append(body[0])
        body = body[0].body
    return nest


def is_empty(kernel: Kernel) -> bool:
    """Whether nothing is done at all."""
    return any(same(loop.extent, 0) for loop in nest_of(kernel))


def fused(kernel: Kernel) -> Kernel:
    """Fuse as many loops as can be."""
    names = [loop.var for loop in nest_of(kernel)]
    while len(names) > 1:
        inner = names.pop()
        try:
            kernel = fuse(kernel, names[-1], inner, name=names[-1])
        except GraphError:
            continue
    return kernel


def in_parallel(kernel: Kernel, names: list[str]) -> Kernel:
    for name in names:
        kernel = parallelise(kernel, name)
    return kernel


def apart(kernel: Kernel, count: int) -> Kernel:
    """The outer loops in parallel, where positions are too intricate for a proof.

    Each index of a group's shape has elements of its own, and writes no others.
    """
    for loop in nest_of(kernel)[:count]:
        parallel = (*kernel.parallel, (loop.var, loop.extent))
        kernel = kernel._replace(parallel=parallel, body=loop.body)
    return kernel


def one_column(kernel: Kernel, names: list[str]) -> tuple[Kernel, list[str]]:
    """The loops over kept axes, with those at the end as one: columns side by side."""
    names = list(names)
    while len(names) > 1:
        try:
            kernel = fuse(kernel, names[-2], names[-1], name=names[-2])
        except GraphError:
            break
        names.pop()
    return kernel, names


def neighbours(axes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pairs of axes next to one another, from the back."""
    pairs = itertools.pairwise(axes)
    return [(a, b) for a, b in pairs if b == a + 1][::-1]


def counted_by_launch(kernel: Kernel, loop: For) -> Kernel:
    """Make the extent an argument of the launch, if only own positions are used."""
    place, count = kernel.scope.symbol(loop.var), kernel.scope.symbol("count")
    here = {b.name for b, at in uses(loop.body) if mentions(at, loop.var)}
    for buffer, at in uses(loop.body):
        own = same_shape(at, (place,)) and same_shape(buffer.shape, (loop.extent,))
        if buffer.name in here and not own:
            return kernel
    if any(isinstance(v, Choice) for v in values_in(kernel)):
        return kernel

    def counted(buffer: Any) -> Any:
        return buffer._replace(shape=(count,)) if buffer.name in here else buffer

    body = with_accesses(loop.body, lambda buffer, at: (counted(buffer), at))
    return kernel._replace(
        buffers=tuple(map(counted, kernel.buffers)),
        body=[loop._replace(extent=count, body=body)],
        given=(("count", loop.extent),),
    )


def mentions(index: tuple[Any, ...], name: str) -> bool:
    return any(name in symbols_of(i) for i in index)


def values_in(kernel: Kernel) -> Iterator[Any]:
    return subvalues(v for stmt in statements(kernel.body) for v in values_of(stmt))


def is_linear(kernel: Kernel) -> bool:
    """Whether no index is a quotient or a remainder."""
    return not any(
        atom.a is not None
        for _, at in uses(kernel.body)
        for index in at
        if isinstance(index, Size)
        for atoms, _ in index.terms
        for atom in atoms
    )


def divisors_of(kernel: Kernel, var: str) -> set[Any]:
    """The numbers that an index with a variable is divided by."""
    found: set[Any] = set()
    for value in values_in(kernel):
        if isinstance(value, (Load, Position)):
            at = value.at if isinstance(value, Load) else (value.at,)
            terms = [term for i in at if isinstance(i, Size) for term in i.terms]
            atoms = [atom for atoms, _ in terms for atom in atoms]
            found |= {
                atom.b
                for atom in atoms
                if atom.kind in ("//", "%") and var in symbols_of(atom.a)
            }
    return found
