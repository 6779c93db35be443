"""Offsets of windows in an image, and the pixels of them that lie outside.

For a block of columns, this writes to the workspace

    counts  a vector of columns: how many runs its lanes have
    runs    each run: the offset of the element that its lane 0 would have, its lanes
    masks   a tap and a vector: the lanes whose pixel under that tap exists

A run is lanes whose elements are contiguous in memory. Lanes are bits. In images
that are read at every second element, bit ``2 i`` stands for lane i.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I8, I32, I64, i64, loop
from weft.compile.emit.vectors import (
    at,
    carry,
    first_lanes,
    minimum,
    splat,
    while_less,
)  # fmt: skip
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.tasks import divide

ARGUMENTS = (
    "*places places_row pixels image_step size0 size1 size2 step *taps tap_count "
    "*masks masks_row *runs *counts begin end"
)
PLACES = ("size0", "size1", "size2", "left", "image")  # the rows of ``places``
# Masks for spreading bits to every second place, the widest distance first.
_SPREAD = ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555))


def emit_windows(lib: Library) -> ir.Function:
    """The windows of columns ``begin`` to ``end``."""
    lanes = lib.tile.lanes
    with (
        lib.function("windows", ARGUMENTS) as (b, s, function),
        loop(b, s.begin, s.end, i64(lanes), name="j") as j,
    ):
        s.v = b.sdiv(b.sub(j, s.begin), i64(lanes))
        s.n, s.q = divide(b, j, s.pixels)
        s.count = minimum(b, i64(lanes), b.sub(s.end, j))
        _runs(b, lib, s)
        _masks(b, lib, s)
    return function


def call_windows(b: Any, function: ir.Function, s: Any, begin: Any, end: Any) -> None:
    """Windows of some of a job's columns."""
    names = [word.lstrip("*") for word in ARGUMENTS.split()[:-2]]
    b.call(function, [*[getattr(s, name) for name in names], begin, end])


def all_whole(b: Any, s: Any, begin: Any, end: Any, lanes: int) -> Any:
    """Whether each vector of some columns is one run, as an integer."""
    rest = b.add(b.sub(end, begin), i64(lanes - 1))

    def step(v: Any, held: list[Any]) -> list[Any]:
        count = b.load(at(b, s.counts, v, I64), typ=I64)
        return [b.and_(held[0], b.zext(b.icmp_signed("==", count, i64(1)), I64))]

    (whole,) = carry(b, i64(0), b.sdiv(rest, i64(lanes)), 1, [i64(1)], step)
    return whole


def _place(b: Any, s: Any, what: str, q: Any) -> Any:
    """The address of a number of a pixel."""
    row = b.mul(s.places_row, i64(PLACES.index(what)))
    return at(b, s.places, b.add(row, q), I32)


def _runs(b: Any, lib: Library, s: Any) -> None:
    """Follow the lanes from run to run."""
    first = b.mul(s.v, i64(2 * lib.tile.lanes))
    count = at(b, s.counts, s.v, I64)
    b.store(i64(0), count)
    with while_less(b, i64(0), s.count) as (lane, advance):
        q = b.add(s.q, lane)
        d, h, w, left, image = (
            b.sext(b.load(_place(b, s, what, q), typ=I32), I64) for what in PLACES
        )
        length = minimum(b, left, b.sub(s.count, lane))
        row = b.add(b.mul(b.add(b.mul(d, s.size1), h), s.size2), w)
        offset = b.add(row, b.mul(b.add(s.n, image), s.image_step))
        bits = b.shl(b.sub(b.shl(i64(1), length), i64(1)), lane)
        found = b.load(count, typ=I64)
        entry = at(b, s.runs, b.add(first, b.mul(found, i64(2))), I64)
        b.store(b.sub(offset, b.mul(lane, s.step)), entry)
        b.store(_spread(b, s, bits), at(b, entry, i64(1), I64))
        b.store(b.add(found, i64(1)), count)
        advance(length)


def _masks(b: Any, lib: Library, s: Any) -> None:
    """Compare each lane's pixel under each tap with the image's sizes."""
    lanes = lib.tile.lanes
    vector = ir.VectorType(I32, lanes)
    sizes = [getattr(s, what) for what in PLACES[:3]]
    limits = [splat(b, b.trunc(size, I32), lanes) for size in sizes]
    starts = [b.load(_place(b, s, w, s.q), align=4, typ=vector) for w in PLACES[:3]]
    there = first_lanes(b, s.count, lanes)
    row = at(b, s.masks, b.mul(s.v, i64(4)), I8)
    with loop(b, i64(0), s.tap_count, name="t") as t:
        inside = there
        for axis, (start, limit) in enumerate(zip(starts, limits, strict=True)):
            entry = b.add(b.mul(t, i64(3)), i64(axis))
            moved = b.load(at(b, s.taps, entry, I32), typ=I32)
            place = b.add(start, splat(b, moved, lanes))  # below 0 is very large
            inside = b.and_(inside, b.icmp_unsigned("<", place, limit))
        bits = b.zext(b.bitcast(inside, ir.IntType(lanes)), I64)
        word = at(b, row, b.mul(t, s.masks_row), I8)
        b.store(b.trunc(_spread(b, s, bits), I32), word)


def _spread(b: Any, s: Any, bits: Any) -> Any:
    """Bits at every second place, if elements are read so."""
    far = bits
    for distance, mask in _SPREAD:
        far = b.and_(b.or_(far, b.shl(far, i64(distance))), i64(mask))
    return b.select(b.icmp_signed("==", s.step, i64(2)), far, bits)
