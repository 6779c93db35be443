"""Windows of an image as rows of vectors: what a product packs instead of a matrix.

An element of a window (a channel and a tap) is a row; it has an offset in the image
and a row of masks. Pixels outside of the image are zero and not touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I32, I64, zeros
from weft.compile.emit.flow import carry, if_else, loop
from weft.compile.emit.values import PTR, call, declared, itemsize, suffix
from weft.compile.emit.vectors import mask_of, shuffle, splat
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library

FILL = "*image i64*windows i8*masks i64*runs i64*counts begin end rows *to to_row step"
KINDS = ("unit", "second", "any")  # steps between neighbours of 1, of 2, of more
Loader = Callable[[Any], Any]  # row -> vector


class Patches:
    """The functions that read windows, emitted when first called."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib

    @functools.cached_property
    def fills(self) -> list[ir.Function]:
        """``to[row, lane]`` = the pixel of each of some vectors of columns, by kind."""
        return [_emit_fill(self.lib, kind) for kind in KINDS]

    def fill(self, s: Any, image: Any, first: Any, rest: list[Any]) -> None:
        """Fill from a row on; ``rest`` is begin, end, rows, to and to_row."""
        rows = s.windows + first * 2
        common = [image, rows, s.masks, s.runs, s.counts, *rest, s.step]
        by_kind(s.step, lambda k: call(self.fills[KINDS.index(k)], common))


def by_kind(step: Any, run: Callable[[str], Any]) -> None:
    """Do something for the kind of step that it is."""
    with if_else(step.equals(1)) as (unit, other):
        with unit:
            run("unit")
        with other, if_else(step.equals(2)) as (second, more):
            with second:
                run("second")
            with more:
                run("any")


def _emit_fill(lib: Library, kind: str) -> ir.Function:
    lanes = lib.tile.lanes
    with (
        lib.function(f"fill_{kind}", FILL) as (s, function),
        loop(s.begin, s.end, name="v") as v,
    ):
        to = s.to + (v - s.begin) * lanes

        def copy(get: Loader, to: Any = to) -> None:
            def rows(count: int, start: Any, stop: Any) -> None:
                with loop(start, stop, count, name="r") as r:
                    places = [r + i for i in range(count)]
                    values = [get(place) for place in places]
                    for place, value in zip(places, values, strict=True):
                        here = to + place * s.to_row
                        here.store(value)

            count = COST.convolution.patch_rows
            whole = s.rows & -count
            rows(count, 0, whole)
            rows(1, whole, s.rows)

        with_loader(lib, kind, s, v, copy)
    return function


def window(s: Any, row: Any) -> tuple[Any, Any]:
    """An element of a window: its offset, and where its row of masks begins."""
    place = s.windows + row * 2
    offset = place.load()
    return offset, place[1]


def read_whole(lib: Library, s: Any, v: Any, window: tuple[Any, Any]) -> Any:
    """An element of a window for a vector of columns that is one run, step 1."""
    offset, mask = window
    first = s.runs[v * (2 * lib.tile.lanes)]
    place = s.image + (first + offset)
    word = s.masks + (mask + v * 4)
    return _read(lib, "unit", None, place, word.load(I32))


def with_loader(
    lib: Library, kind: str, s: Any, v: Any, use: Callable[[Loader], None]
) -> None:
    """Emit ``use`` for a vector of columns that is one run, and for any other."""
    runs = s.runs + v * (2 * lib.tile.lanes)
    count = s.counts[v]
    masks = s.masks + v * 4
    read = functools.partial(_read, lib, kind, s.step)

    def entry(row: Any) -> tuple[Any, Any]:
        offset, mask = window(s, row)
        return offset, (masks + mask).load(I32)

    with if_else(count.equals(1)) as (one, several):
        with one:
            start = s.image + runs.load()

            def straight(row: Any) -> Any:
                offset, bits = entry(row)
                return read(start + offset, bits)

            use(straight)
        with several:

            def pieces(row: Any) -> Any:
                offset, bits = entry(row)
                return _join(lib, read, s.image + offset, bits, runs, count)

            use(pieces)


def _join(lib: Library, read: Any, start: Any, bits: Any, runs: Any, count: Any) -> Any:
    """A vector from several runs: lanes that no run has are zero."""

    def add(i: Any, held: list[Any]) -> list[Any]:
        run = runs + i * 2
        value = read(start + run[0], bits & run[1].cut(I32))
        return [(held[0].bits() | value.bits()).as_float()]

    (joined,) = carry(0, count, 1, [zeros(lib.vector)], add)
    return joined


def _read(lib: Library, kind: str, step: Any, pointer: Any, bits: Any) -> Any:
    """The lanes whose bits are set, from where lane 0 would be; the others are 0."""
    lanes = lib.tile.lanes
    if kind == "unit":
        return pointer.load(lib.vector, mask_of(bits, lanes))
    if kind == "second":
        low = pointer.load(lib.vector, mask_of(bits, lanes))
        far = pointer + lanes
        high = far.load(lib.vector, mask_of(bits.shift_right(I32(lanes)), lanes))
        return shuffle(low, high, range(0, 2 * lanes, 2))
    return _gather(lib, step, pointer, mask_of(bits, lanes))


def _gather(lib: Library, step: Any, pointer: Any, mask: Any) -> Any:
    lanes = lib.tile.lanes
    size = itemsize(lib.element)
    counts = [size * lane for lane in range(lanes)]
    bytes_ = ir.Constant(ir.VectorType(I64, lanes), counts) * splat(step, lanes)
    places = bytes_ + splat(pointer.address(), lanes)
    pointers = places.convert("inttoptr", PTR)
    kind = ir.FunctionType(
        lib.vector,
        [ir.VectorType(PTR, lanes), I32, ir.VectorType(I1, lanes), lib.vector],
    )
    name = f"llvm.masked.gather.{suffix(lib.vector)}.v{lanes}p0"
    zero = zeros(lib.vector)
    return call(declared(step.b, name, kind), [pointers, I32(size), mask, zero])
