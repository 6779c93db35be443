"""Ways to divide operators among processes: pieces of operands make those of results.

A record's ``divides`` is a rule: ``rule(size, out, *inputs, **params)``, of types,
gives the ways to divide the operator into ``size`` parts. A way is a pair of tuples,
one entry for each input and one for each output, that say what a process has of it:

    0, 1, …   a piece along that axis
    None      all of it
    "sum"     a term: the tensor is the sum of what all have ("max" and "min" alike)

The way in which all have all of everything is always there. So an operator without a
rule is computed as a whole by every process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from weft.core.op import TensorType

Entry = int | str | None
Way = tuple[tuple[Entry, ...], tuple[Entry, ...]]
Rule = Callable[..., Iterator[Way]]


def elementwise(
    size: int, out: TensorType, /, *xs: Any, terms: str = "", **params: Any
) -> Iterator[Way]:
    """Every axis divides; ``terms`` says in which operands the operator is linear."""
    tensors = [isinstance(x, TensorType) for x in xs]
    for d in range(len(out.shape)):
        yield tuple(d if t else None for t in tensors), (d,)
    if not out.dtype.is_inexact:
        return
    if terms == "all" and all(tensors):
        yield ("sum",) * len(xs), ("sum",)
    for k in range(len(xs) if terms == "each" else terms == "first"):
        if tensors[k]:
            yield tuple("sum" if i == k else None for i in range(len(xs))), ("sum",)


def reduction(combine: str = "") -> Rule:
    """Axes that stay divide; so does one that is reduced, if results combine."""

    def rule(
        size: int, out: TensorType, x: TensorType, /, *, dim: Any,
        keepdim: bool = False, **params: Any,
    ) -> Iterator[Way]:  # fmt: skip
        dims = dim if isinstance(dim, tuple) else (dim,)
        for d in range(len(x.shape)):
            if d not in dims:
                yield (d,), (d if keepdim else d - sum(e < d for e in dims),)
            elif combine == "sum" or (combine and _all_filled(x.shape[d], size)):
                yield (d,), (combine,)
        if combine == "sum":
            yield ("sum",), ("sum",)

    return rule


def _all_filled(length: int, size: int) -> bool:
    """Whether no piece of an axis is empty, as ``chunk`` cuts it."""
    return -(-length // size) * (size - 1) < length


def along(
    size: int, out: TensorType, /, *xs: TensorType, dim: int, **params: Any
) -> Iterator[Way]:
    """Lines along ``dim`` are computed as a whole, and all have the same sizes."""
    for d in range(len(out.shape)):
        if d != dim and all(x.shape[d] == out.shape[d] for x in xs):
            yield (d,) * len(xs), (d,)


def joined(
    size: int, out: TensorType, /, *xs: TensorType, dim: int, **params: Any
) -> Iterator[Way]:
    """As ``along``, for an operator that moves elements."""
    yield from along(size, out, *xs, dim=dim)
    yield ("sum",) * len(xs), ("sum",)


def permuted(
    size: int, out: TensorType, x: TensorType, /, *, dims: tuple[int, ...]
) -> Iterator[Way]:
    """An axis is divided wherever it goes."""
    for to, d in enumerate(dims):
        yield (d,), (to,)
    yield ("sum",), ("sum",)


def flipped(
    size: int, out: TensorType, x: TensorType, /, *, dims: tuple[int, ...]
) -> Iterator[Way]:
    """Axes that are not turned round divide."""
    for d in range(len(x.shape)):
        if d not in dims:
            yield (d,), (d,)
    yield ("sum",), ("sum",)


def reshaped(
    size: int, out: TensorType, x: TensorType, /, *, shape: tuple[int, ...]
) -> Iterator[Way]:
    """The first of the axes that become others divides, if all pieces are equal."""
    yield ("sum",), ("sum",)
    for mine, theirs in _groups(x.shape, out.shape):
        if len(mine) == len(theirs) == 1:
            yield (mine[0],), (theirs[0],)
        elif mine and theirs:
            a, b = x.shape[mine[0]], out.shape[theirs[0]]
            if a % size == 0 and b % size == 0:
                yield (mine[0],), (theirs[0],)


def _groups(
    one: tuple[int, ...], other: tuple[int, ...]
) -> Iterator[tuple[list[int], list[int]]]:
    """Axes of two shapes, but those of size 1, that have as many elements."""
    if math.prod(one) == 0:
        return
    left = [d for d, n in enumerate(one) if n != 1]
    right = [d for d, n in enumerate(other) if n != 1]
    while left and right:
        mine, theirs = [left.pop(0)], [right.pop(0)]
        a, b = one[mine[0]], other[theirs[0]]
        while a != b:
            if a < b:
                mine.append(left.pop(0))
                a *= one[mine[-1]]
            else:
                theirs.append(right.pop(0))
                b *= other[theirs[-1]]
        yield mine, theirs


def expanded(
    size: int, out: TensorType, x: TensorType, /, *, shape: tuple[int, ...]
) -> Iterator[Way]:
    """Axes that are not repeated divide."""
    lead = len(out.shape) - len(x.shape)
    for d, n in enumerate(x.shape):
        if out.shape[lead + d] == n:
            yield (d,), (lead + d,)
    yield ("sum",), ("sum",)


def is_whole(item: Any, n: Any) -> bool:
    """Whether an index takes an axis as it is."""
    return (
        isinstance(item, slice)
        and item.start in (None, 0)
        and item.stop in (None, n)
        and item.step in (None, 1)
    )


def _kept(shape: tuple[int, ...], index: tuple[Any, ...]) -> Iterator[tuple[int, int]]:
    """Axes that an index takes as they are, and where they are then."""
    rest = sum(item is not None for item in index)
    d = to = 0
    for item in (*index, *[slice(None)] * (len(shape) - rest)):
        if item is None:
            to += 1
            continue
        if is_whole(item, shape[d]):
            yield d, to
        d += 1
        to += isinstance(item, slice)


def sliced(
    size: int, out: TensorType, x: TensorType, /, *, index: tuple[Any, ...]
) -> Iterator[Way]:
    """Axes of which nothing is cut off divide."""
    for d, to in _kept(x.shape, index):
        yield (d,), (to,)
    yield ("sum",), ("sum",)


def placed(
    size: int, out: TensorType, x: TensorType, /, *, shape: Any, index: tuple[Any, ...]
) -> Iterator[Way]:
    """The transpose of ``sliced``."""
    for d, to in _kept(out.shape, index):
        yield (to,), (d,)
    yield ("sum",), ("sum",)


def taken(
    size: int, out: TensorType, x: TensorType, index: TensorType, /
) -> Iterator[Way]:
    """Rows by their indices: the indices divide, and what a row has."""
    lead = len(index.shape)
    for d in range(lead):
        yield (None, d), (d,)
    for d in range(1, len(x.shape)):
        yield (d, None), (lead + d - 1,)
    yield ("sum", None), ("sum",)


def added_at(
    size: int, out: TensorType, x: TensorType, index: TensorType, /, **params: Any
) -> Iterator[Way]:
    """The transpose of ``taken``."""
    lead = len(index.shape)
    for d in range(lead):
        yield (d, d), ("sum",)
    for d in range(lead, len(x.shape)):
        yield (d, None), (d - lead + 1,)
    yield ("sum", None), ("sum",)


def multiplied(
    size: int, out: TensorType, x: TensorType, y: TensorType, /, **params: Any
) -> Iterator[Way]:
    """A matrix product: rows, columns, what is summed over, and batches divide."""
    rows, columns = len(out.shape) - 2, len(out.shape) - 1
    yield (rows, None), (rows,)
    yield (None, columns), (columns,)
    yield (columns, rows), ("sum",)
    for d in range(rows):
        yield (d, d), (d,)
    yield ("sum", None), ("sum",)
    yield (None, "sum"), ("sum",)


def attended(
    size: int, out: tuple[TensorType, ...], /, *xs: TensorType, **params: Any
) -> Iterator[Way]:
    """Attention: the axes before rows and columns divide."""
    for d in range(len(xs[0].shape) - 2):
        yield (d,) * len(xs), (d,) * len(out)


def ways(
    facts: Any, linear: bool, size: int, out: Any, types: Any, params: Any
) -> Iterator[Way]:
    """The ways of an operator, of whose record these are the facts, on some types."""
    if facts.divides is not None:
        yield from facts.divides(size, out, *types, **params)
    elif facts.elementwise:
        terms = "first" if linear else facts.terms
        yield from elementwise(size, out, *types, terms=terms)
