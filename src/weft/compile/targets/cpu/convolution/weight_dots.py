"""The weights' gradient with few channels in a group: dot products over pixels.

A task is some groups. Each of their weights has a vector of sums in the workspace, to
which block after block of pixels is added, in order; the lanes are added up at the end.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import zeros
from weft.compile.emit.flow import carry, loop, when
from weft.compile.emit.values import call, fma, minimum, select
from weft.compile.emit.vectors import first_lanes, totals
from weft.compile.targets.cpu.convolution.epilogue import call_epilogue
from weft.compile.targets.cpu.convolution.patches import (
    Loader,
    by_kind,
    read_whole,
    window,
    with_loader,
)
from weft.compile.targets.cpu.convolution.tasks import JOB, Emitters
from weft.compile.targets.cpu.convolution.windows import all_whole, call_windows
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.strip import by_heights
from weft.compile.targets.cpu.matmul.tasks import TASKS, read_job

STRIP = (
    "*image i64*windows i8*masks i64*runs i64*counts step whole *gradient count *sums"
)


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
        with lib.function("dots_tasks", TASKS, public=True) as made:
            t, function = made
            s = read_job(lib, JOB, t.job, t.worker)
            with loop(t.begin, t.end, name="task") as task:
                s.first = task * s.task_groups
                s.last = minimum(s.groups, s.first + s.task_groups)
                each = s.rows * s.columns * lib.tile.lanes
                s.each = each  # elements of sums that a group has
                self._clear(s)
                with loop(0, s.pixels, s.block, name="p") as p:
                    s.p, s.end = p, minimum(s.pixels, p + s.block)
                    call_windows(self.emitters.windows, s, s.p, s.end)
                    s.whole = all_whole(s, s.p, s.end, lib.tile.lanes)
                    with (
                        loop(s.images, name="n") as n,
                        loop(s.first, s.last, name="g") as g,
                        loop(s.columns, name="o") as o,
                    ):
                        self._channel(s, n, g, o)
                self._finish(s)
        return function

    def _clear(self, s: Any) -> None:
        stop = (s.last - s.first) * s.each
        with loop(0, stop, self.lib.tile.lanes) as i:
            zero = zeros(self.lib.vector)
            s.sums[i] = zero

    def _channel(self, s: Any, n: Any, g: Any, o: Any) -> None:
        """One output channel's gradient with all elements of its windows."""
        lib = self.lib
        offset = n * s.image_step + g * s.image_group
        image = s.image + offset
        offset = n * s.other_step + g * s.other_group
        offset = offset + o * s.other_row + s.p
        gradient = s.other + offset
        row = o * s.rows * lib.tile.lanes
        start = (g - s.first) * s.each + row

        def strip(row: Any, height: int) -> None:
            windows = s.windows + row * 2
            place = start + row * lib.tile.lanes
            where = [image, windows, s.masks, s.runs, s.counts, s.step, s.whole]
            what = [gradient, s.end - s.p, s.sums + place]
            by_kind(s.step, lambda kind: call(self.strip(kind, height), where + what))

        by_heights(COST.convolution.heights, 0, s.rows, strip)

    def _finish(self, s: Any) -> None:
        """Add up the lanes of each weight's sums."""
        lib = self.lib
        out = s.out + s.first * s.out_group
        weights = s.rows * s.columns * (s.last - s.first)
        with loop(weights) as i:
            place = s.sums + i * lib.tile.lanes
            total = totals([place.load(lib.vector)])
            out[i] = total.lane(0)
        filters = s.first * s.columns, s.last * s.columns
        call_epilogue(s, filters, [0, s.rows])


def _emit_strip(lib: Library, kind: str, height: int) -> ir.Function:
    """``sums[i] += window[i, j] * gradient[j]`` for all columns j of a block."""
    lanes = lib.tile.lanes
    with lib.function(f"dots_{kind}{height}", STRIP) as (s, function):
        places = [s.sums + i * lanes for i in range(height)]
        vectors = (s.count + (lanes - 1)) // lanes
        done = 0
        if kind == "unit":
            done = select(s.whole.holds(), vectors, 0)
            with when(done > 0):
                _add_whole(lib, s, places, done)
        with loop(done, vectors, name="v") as v:
            scale = _scale(lib, s, v)

            def add(get: Loader, scale: Any = scale) -> None:
                values = [get(i) for i in range(height)]
                for value, place in zip(values, places, strict=True):
                    held = place.load(lib.vector)
                    place.store(fma(value, scale, held))

            with_loader(lib, kind, s, v, add)
    return function


def _scale(lib: Library, s: Any, v: Any) -> Any:
    """The gradient of a vector of columns; 0 beyond the last."""
    j = v * lib.tile.lanes
    mask = first_lanes(s.count - j, lib.tile.lanes)
    return (s.gradient + j).load(lib.vector, mask)


def _add_whole(lib: Library, s: Any, places: list[Any], stop: Any) -> None:
    """Vectors that are one run each, with sums held in registers."""
    rows = [window(s, i) for i in range(len(places))]

    def step(v: Any, held: list[Any]) -> list[Any]:
        scale = _scale(lib, s, v)
        values = [read_whole(lib, s, v, row) for row in rows]
        pairs = zip(values, held, strict=True)
        return [fma(value, scale, x) for value, x in pairs]

    sums = [place.load(lib.vector) for place in places]
    for total, place in zip(carry(0, stop, 1, sums, step), places, strict=True):
        place.store(total)
