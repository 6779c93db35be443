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

from weft.compile.emit.control_flow import I32
from weft.compile.emit.flow import carry, loop, while_less
from weft.compile.emit.values import call, minimum, select
from weft.compile.emit.vectors import first_lanes, splat
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.tasks import divide

ARGUMENTS = (
    "i32*places places_row pixels image_step size0 size1 size2 step i32*taps tap_count "
    "i8*masks masks_row i64*runs i64*counts begin end"
)
PLACES = ("size0", "size1", "size2", "left", "image")  # the rows of ``places``
# Masks for spreading bits to every second place, the widest distance first.
_SPREAD = ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555))


def emit_windows(lib: Library) -> ir.Function:
    """The windows of columns ``begin`` to ``end``."""
    lanes = lib.tile.lanes
    with (
        lib.function("windows", ARGUMENTS) as (s, function),
        loop(s.begin, s.end, lanes, name="j") as j,
    ):
        s.v = (j - s.begin) // lanes
        s.n, s.q = divide(j, s.pixels)
        s.count = minimum(lanes, s.end - j)
        _runs(lib, s)
        _masks(lib, s)
    return function


def call_windows(function: ir.Function, s: Any, begin: Any, end: Any) -> None:
    """Windows of some of a job's columns."""
    names = [word.rpartition("*")[2] for word in ARGUMENTS.split()[:-2]]
    call(function, [*[getattr(s, name) for name in names], begin, end])


def all_whole(s: Any, begin: Any, end: Any, lanes: int) -> Any:
    """Whether each vector of some columns is one run, as an integer."""
    rest = end - begin + (lanes - 1)

    def step(v: Any, held: list[Any]) -> list[Any]:
        count = s.counts[v]
        return [held[0] & count.equals(1).unsigned()]

    (whole,) = carry(0, rest // lanes, 1, [1], step)
    return whole


def _place(s: Any, what: str, q: Any) -> Any:
    """The address of a number of a pixel."""
    row = s.places_row * PLACES.index(what)
    return s.places + (row + q)


def _runs(lib: Library, s: Any) -> None:
    """Follow the lanes from run to run."""
    first = s.v * (2 * lib.tile.lanes)
    count = s.counts + s.v
    count.store(0)
    with while_less(0, s.count) as (lane, advance):
        q = s.q + lane
        d, h, w, left, image = (
            _place(s, what, q).load(I32).signed() for what in PLACES
        )
        length = minimum(left, s.count - lane)
        row = (d * s.size1 + h) * s.size2 + w
        offset = row + (s.n + image) * s.image_step
        bits = (1 << length) - 1 << lane
        found = count.load()
        entry = s.runs + (first + found * 2)
        entry.store(offset - lane * s.step)
        (entry + 1).store(_spread(s, bits))
        count.store(found + 1)
        advance(length)


def _masks(lib: Library, s: Any) -> None:
    """Compare each lane's pixel under each tap with the image's sizes."""
    lanes = lib.tile.lanes
    vector = ir.VectorType(I32, lanes)
    sizes = [getattr(s, what) for what in PLACES[:3]]
    limits = [splat(size.cut(I32), lanes) for size in sizes]
    starts = [_place(s, what, s.q).load(vector) for what in PLACES[:3]]
    there = first_lanes(s.count, lanes)
    row = s.masks + s.v * 4
    with loop(s.tap_count, name="t") as t:
        inside = there
        for axis, (start, limit) in enumerate(zip(starts, limits, strict=True)):
            entry = t * 3 + axis
            moved = s.taps[entry]
            place = start + splat(moved, lanes)  # below 0 is very large
            inside = inside & place.below(limit)
        bits = inside.bitcast(ir.IntType(lanes)).unsigned()
        word = row + t * s.masks_row
        word.store(_spread(s, bits).cut(I32))


def _spread(s: Any, bits: Any) -> Any:
    """Bits at every second place, if elements are read so."""
    far = bits
    for distance, mask in _SPREAD:
        far = (far | far << distance) & mask
    return select(s.step.equals(2), far, bits)
