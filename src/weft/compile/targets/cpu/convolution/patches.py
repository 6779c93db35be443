"""Windows of an image as rows of vectors: what a product packs instead of a matrix.

An element of a window (a channel and a tap) is a row; it has an offset in the image
and a row of masks. Pixels outside of the image are zero and not touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I8, I32, I64, i64, loop, zeros
from weft.compile.emit.vectors import (
    PTR,
    at,
    intrinsic,
    itemsize,
    load,
    mask_of,
    splat,
    store,
    suffix,
)  # fmt: skip
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library

FILL = "*image *windows *masks *runs *counts begin end rows *to to_row step"
KINDS = ("unit", "second", "any")  # steps between neighbours of 1, of 2, of more
Loader = Callable[[Any, Any], Any]  # (builder, row) -> vector


class Patches:
    """The functions that read windows, emitted when first called."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib

    @functools.cached_property
    def fills(self) -> list[ir.Function]:
        """``to[row, lane]`` = the pixel of each of some vectors of columns, by kind."""
        return [_emit_fill(self.lib, kind) for kind in KINDS]

    def fill(self, b: Any, s: Any, image: Any, first: Any, rest: list[Any]) -> None:
        """Fill from a row on; ``rest`` is begin, end, rows, to and to_row."""
        rows = at(b, s.windows, b.mul(first, i64(2)), I64)
        common = [image, rows, s.masks, s.runs, s.counts, *rest, s.step]
        by_kind(b, s.step, lambda k: b.call(self.fills[KINDS.index(k)], common))


def by_kind(b: Any, step: Any, run: Callable[[str], Any]) -> None:
    """Do something for the kind of step that it is."""
    with b.if_else(b.icmp_signed("==", step, i64(1))) as (unit, other):
        with unit:
            run("unit")
        with other, b.if_else(b.icmp_signed("==", step, i64(2))) as (second, more):
            with second:
                run("second")
            with more:
                run("any")


def _emit_fill(lib: Library, kind: str) -> ir.Function:
    lanes = lib.tile.lanes
    with (
        lib.function(f"fill_{kind}", FILL) as (b, s, function),
        loop(b, s.begin, s.end, name="v") as v,
    ):
        to = at(b, s.to, b.mul(b.sub(v, s.begin), i64(lanes)), lib.element)

        def copy(b: Any, get: Loader, to: Any = to) -> None:
            def rows(count: int, start: Any, stop: Any) -> None:
                with loop(b, start, stop, i64(count), name="r") as r:
                    places = [b.add(r, i64(i)) for i in range(count)]
                    values = [get(b, place) for place in places]
                    for place, value in zip(places, values, strict=True):
                        here = at(b, to, b.mul(place, s.to_row), lib.element)
                        store(b, value, here)

            count = COST.convolution.patch_rows
            whole = b.and_(s.rows, i64(-count))
            rows(count, i64(0), whole)
            rows(1, whole, s.rows)

        with_loader(b, lib, kind, s, v, copy)
    return function


def window(b: Any, s: Any, row: Any) -> tuple[Any, Any]:
    """An element of a window: its offset, and where its row of masks begins."""
    place = at(b, s.windows, b.mul(row, i64(2)), I64)
    offset = b.load(place, typ=I64)
    return offset, b.load(at(b, place, i64(1), I64), typ=I64)


def read_whole(b: Any, lib: Library, s: Any, v: Any, window: tuple[Any, Any]) -> Any:
    """An element of a window for a vector of columns that is one run, step 1."""
    offset, mask = window
    first = b.load(at(b, s.runs, b.mul(v, i64(2 * lib.tile.lanes)), I64), typ=I64)
    place = at(b, s.image, b.add(first, offset), lib.element)
    word = at(b, s.masks, b.add(mask, b.mul(v, i64(4))), I8)
    return _read(lib, "unit", None, b, place, b.load(word, typ=I32))


def with_loader(
    b: Any, lib: Library, kind: str, s: Any, v: Any, use: Callable[[Any, Loader], None]
) -> None:
    """Emit ``use`` for a vector of columns that is one run, and for any other."""
    runs = at(b, s.runs, b.mul(v, i64(2 * lib.tile.lanes)), I64)
    count = b.load(at(b, s.counts, v, I64), typ=I64)
    masks = at(b, s.masks, b.mul(v, i64(4)), I8)
    read = functools.partial(_read, lib, kind, s.step)

    def entry(b: Any, row: Any) -> tuple[Any, Any]:
        offset, mask = window(b, s, row)
        return offset, b.load(at(b, masks, mask, I8), typ=I32)

    with b.if_else(b.icmp_signed("==", count, i64(1))) as (one, several):
        with one:
            start = at(b, s.image, b.load(runs, typ=I64), lib.element)

            def straight(b: Any, row: Any) -> Any:
                offset, bits = entry(b, row)
                return read(b, at(b, start, offset, lib.element), bits)

            use(b, straight)
        with several:

            def pieces(b: Any, row: Any) -> Any:
                offset, bits = entry(b, row)
                from_row = at(b, s.image, offset, lib.element)
                return _join(b, lib, read, from_row, bits, runs, count)

            use(b, pieces)


def _join(
    b: Any, lib: Library, read: Any, start: Any, bits: Any, runs: Any, count: Any
) -> Any:
    """A vector from several runs: lanes that no run has are zero."""
    before = b.block
    head, body, done = (b.append_basic_block(f"join.{n}") for n in "hbd")
    b.branch(head)
    b.position_at_end(head)
    i, held = b.phi(I64), b.phi(lib.vector)
    b.cbranch(b.icmp_signed("<", i, count), body, done)
    b.position_at_end(body)
    run = at(b, runs, b.mul(i, i64(2)), I64)
    here = at(b, start, b.load(run, typ=I64), lib.element)
    lanes = b.trunc(b.load(at(b, run, i64(1), I64), typ=I64), I32)
    value = read(b, here, b.and_(bits, lanes))
    whole = ir.VectorType(I32 if itemsize(lib.element) == 4 else I64, lib.tile.lanes)
    both = b.or_(b.bitcast(held, whole), b.bitcast(value, whole))
    joined = b.bitcast(both, lib.vector)
    for phi, first, later in (
        (i, i64(0), b.add(i, i64(1))),
        (held, zeros(lib.vector), joined),
    ):
        phi.add_incoming(first, before)
        phi.add_incoming(later, b.block)
    b.branch(head)
    b.position_at_end(done)
    return held


def _read(lib: Library, kind: str, step: Any, b: Any, pointer: Any, bits: Any) -> Any:
    """The lanes whose bits are set, from where lane 0 would be; the others are 0."""
    lanes = lib.tile.lanes
    if kind == "unit":
        return load(b, pointer, lib.vector, mask_of(b, bits, lanes))
    if kind == "second":
        low = load(b, pointer, lib.vector, mask_of(b, bits, lanes))
        far = at(b, pointer, i64(lanes), lib.element)
        high = load(b, far, lib.vector, mask_of(b, b.lshr(bits, I32(lanes)), lanes))
        even = ir.Constant(ir.VectorType(I32, lanes), [2 * i for i in range(lanes)])
        return b.shuffle_vector(low, high, even)
    return _gather(b, lib, step, pointer, mask_of(b, bits, lanes))


def _gather(b: Any, lib: Library, step: Any, pointer: Any, mask: Any) -> Any:
    lanes = lib.tile.lanes
    size = itemsize(lib.element)
    counts = [size * lane for lane in range(lanes)]
    bytes_ = b.mul(
        ir.Constant(ir.VectorType(I64, lanes), counts), splat(b, step, lanes)
    )
    places = b.add(bytes_, splat(b, b.ptrtoint(pointer, I64), lanes))
    pointers = b.inttoptr(places, ir.VectorType(PTR, lanes))
    kind = ir.FunctionType(
        lib.vector,
        [ir.VectorType(PTR, lanes), I32, ir.VectorType(I1, lanes), lib.vector],
    )
    name = f"llvm.masked.gather.{suffix(lib.vector)}.v{lanes}p0"
    zero = zeros(lib.vector)
    return b.call(intrinsic(b, name, kind), [pointers, I32(size), mask, zero])
