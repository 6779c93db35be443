"""The weights' gradient with few channels in a group: dot products over pixels.

A task is some groups. Each of their weights has a vector of sums in the workspace, to
which block after block of pixels is added, in order; the lanes are added up at the end.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I32, I64, i64, loop, zeros
from weft.compile.emit.vectors import (
    at,
    carry,
    first_lanes,
    fma,
    load,
    minimum,
    store,
    totals,
)  # fmt: skip
from weft.compile.targets.cpu.convolution.epilogue import call_epilogue
from weft.compile.targets.cpu.convolution.patches import (
    Loader,
    by_kind,
    read_whole,
    window,
    with_loader,
)
from weft.compile.targets.cpu.convolution.record import read_job
from weft.compile.targets.cpu.convolution.routines import Emitters
from weft.compile.targets.cpu.convolution.windows import all_whole, call_windows
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.strip import by_heights

STRIP = "*image *windows *masks *runs *counts step whole *gradient count *sums"


class Dots:
    """Emits ``dots_tasks``."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib

    @functools.cache  # noqa: B019  an emitter lives as long as its module
    def strip(self, kind: str, height: int) -> ir.Function:
        """The sums of some weights of one channel."""
        return _emit_strip(self.lib, kind, height)

    def emit(self) -> ir.Function:
        """The tasks' function."""
        lib = self.lib
        with lib.function("dots_tasks", "*job begin end worker", public=True) as made:
            b, t, function = made
            s = read_job(b, t.job, t.worker)
            with loop(b, t.begin, t.end, name="task") as task:
                s.first = b.mul(task, s.task_groups)
                s.last = minimum(b, s.groups, b.add(s.first, s.task_groups))
                each = b.mul(b.mul(s.rows, s.columns), i64(lib.tile.lanes))
                s.each = each  # elements of sums that a group has
                self._clear(b, s)
                with loop(b, i64(0), s.pixels, s.block, name="p") as p:
                    s.p, s.end = p, minimum(b, s.pixels, b.add(p, s.block))
                    call_windows(b, self.emitters.windows, s, s.p, s.end)
                    s.whole = all_whole(b, s, s.p, s.end, lib.tile.lanes)
                    with (
                        loop(b, i64(0), s.images, name="n") as n,
                        loop(b, s.first, s.last, name="g") as g,
                        loop(b, i64(0), s.columns, name="o") as o,
                    ):
                        self._channel(b, s, n, g, o)
                self._finish(b, s)
        return function

    def _clear(self, b: Any, s: Any) -> None:
        stop = b.mul(b.sub(s.last, s.first), s.each)
        with loop(b, i64(0), stop, i64(self.lib.tile.lanes)) as i:
            zero = zeros(self.lib.vector)
            store(b, zero, at(b, s.sums, i, self.lib.element))

    def _channel(self, b: Any, s: Any, n: Any, g: Any, o: Any) -> None:
        """One output channel's gradient with all elements of its windows."""
        lib = self.lib
        offset = b.add(b.mul(n, s.image_step), b.mul(g, s.image_group))
        image = at(b, s.image, offset, lib.element)
        offset = b.add(b.mul(n, s.other_step), b.mul(g, s.other_group))
        offset = b.add(b.add(offset, b.mul(o, s.other_row)), s.p)
        gradient = at(b, s.other, offset, lib.element)
        row = b.mul(b.mul(o, s.rows), i64(lib.tile.lanes))
        start = b.add(b.mul(b.sub(g, s.first), s.each), row)

        def strip(row: Any, height: int) -> None:
            windows = at(b, s.windows, b.mul(row, i64(2)), I64)
            place = b.add(start, b.mul(row, i64(lib.tile.lanes)))
            where = [image, windows, s.masks, s.runs, s.counts, s.step, s.whole]
            what = [gradient, b.sub(s.end, s.p), at(b, s.sums, place, lib.element)]
            by_kind(
                b, s.step, lambda kind: b.call(self.strip(kind, height), where + what)
            )

        by_heights(b, COST.convolution.heights, i64(0), s.rows, strip)

    def _finish(self, b: Any, s: Any) -> None:
        """Add up the lanes of each weight's sums."""
        lib = self.lib
        out = at(b, s.out, b.mul(s.first, s.out_group), lib.element)
        weights = b.mul(b.mul(s.rows, s.columns), b.sub(s.last, s.first))
        with loop(b, i64(0), weights) as i:
            place = at(b, s.sums, b.mul(i, i64(lib.tile.lanes)), lib.element)
            total = totals(b, [load(b, place, lib.vector)])
            b.store(b.extract_element(total, I32(0)), at(b, out, i, lib.element))
        filters = b.mul(s.first, s.columns), b.mul(s.last, s.columns)
        call_epilogue(b, s, filters, [i64(0), s.rows])


def _emit_strip(lib: Library, kind: str, height: int) -> ir.Function:
    """``sums[i] += window[i, j] * gradient[j]`` for all columns j of a block."""
    lanes, element = lib.tile.lanes, lib.element
    with lib.function(f"dots_{kind}{height}", STRIP) as (b, s, function):
        places = [at(b, s.sums, i64(i * lanes), element) for i in range(height)]
        vectors = b.sdiv(b.add(s.count, i64(lanes - 1)), i64(lanes))
        done = i64(0)
        if kind == "unit":
            done = b.select(b.trunc(s.whole, I1), vectors, i64(0))
            with b.if_then(b.icmp_signed(">", done, i64(0))):
                _add_whole(b, lib, s, places, done)
        with loop(b, done, vectors, name="v") as v:
            scale = _scale(b, lib, s, v)

            def add(b: Any, get: Loader, scale: Any = scale) -> None:
                values = [get(b, i64(i)) for i in range(height)]
                for value, place in zip(values, places, strict=True):
                    held = load(b, place, lib.vector)
                    store(b, fma(b, value, scale, held), place)

            with_loader(b, lib, kind, s, v, add)
    return function


def _scale(b: Any, lib: Library, s: Any, v: Any) -> Any:
    """The gradient of a vector of columns; 0 beyond the last."""
    j = b.mul(v, i64(lib.tile.lanes))
    mask = first_lanes(b, b.sub(s.count, j), lib.tile.lanes)
    return load(b, at(b, s.gradient, j, lib.element), lib.vector, mask)


def _add_whole(b: Any, lib: Library, s: Any, places: list[Any], stop: Any) -> None:
    """Vectors that are one run each, with sums held in registers."""
    rows = [window(b, s, i64(i)) for i in range(len(places))]

    def step(v: Any, held: list[Any]) -> list[Any]:
        scale = _scale(b, lib, s, v)
        values = [read_whole(b, lib, s, v, row) for row in rows]
        pairs = zip(values, held, strict=True)
        return [fma(b, value, scale, x) for value, x in pairs]

    sums = [load(b, place, lib.vector) for place in places]
    for total, place in zip(carry(b, i64(0), stop, 1, sums, step), places, strict=True):
        store(b, total, place)
