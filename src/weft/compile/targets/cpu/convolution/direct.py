"""Images with few channels in a group: windows are multiplied unpacked.

Packing a window pays when many rows of weights use it. With few (as in depthwise
convolutions, one) each vector of pixels is read, multiplied and forgotten.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import carry, loop, when
from weft.compile.emit.values import call, fma, minimum, select
from weft.compile.emit.vectors import first_lanes, splat
from weft.compile.targets.cpu.convolution.epilogue import biases, call_epilogue
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
from weft.compile.targets.cpu.matmul.tasks import TASKS, block_count, divide, read_job

_COST = COST.convolution
STRIP = (
    "*image i64*windows i8*masks i64*runs i64*counts step whole *weights "
    "weights_row i64*order k *bias *to to_row count"
)


class Direct:
    """Emits ``direct_tasks``: a task is some groups of a block of an image's pixels."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib

    @functools.cache  # noqa: B019  an emitter lives as long as its module
    def strip(self, kind: str, height: int) -> ir.Function:
        """Some rows of C over all of a block's columns."""
        return _emit_strip(self.lib, kind, height)

    def emit(self) -> ir.Function:
        """The tasks' function: numbered by groups, then columns, then images."""
        lib = self.lib
        with lib.function("direct_tasks", TASKS, public=True) as made:
            t, function = made
            s = read_job(lib, JOB, t.job, t.worker)
            across = block_count(s.columns, s.task_columns)
            chunks = block_count(s.groups, s.task_groups)
            with loop(t.begin, t.end, name="task") as task:
                rest, chunk = divide(task, chunks)
                n, column = divide(rest, across)
                with when(n < s.images):
                    s.begin = column * s.task_columns
                    end = s.begin + s.task_columns
                    s.end = minimum(s.columns, end)
                    call_windows(self.emitters.windows, s, s.begin, s.end)
                    s.whole = all_whole(s, s.begin, s.end, lib.tile.lanes)
                    first = chunk * s.task_groups
                    last = minimum(s.groups, first + s.task_groups)
                    with loop(first, last, name="g") as g:
                        self._group(s, n, g)
                    start = n * s.groups
                    channels = [(start + g) * s.rows for g in (first, last)]
                    call_epilogue(s, channels, [s.begin, s.end])
        return function

    def _group(self, s: Any, n: Any, g: Any) -> None:
        offset = n * s.image_step + g * s.image_group
        image = s.image + offset
        weights = s.other + g * s.other_group
        offset = n * s.out_step + g * s.out_group
        out = s.out + offset
        plain = ~s.spots.is_given()
        biased = s.bias.is_given()
        channel = select(biased, g * s.rows, 0)
        bias = s.bias + channel
        count = s.end - s.begin
        to = select(plain, out + s.begin, s.sums)
        to_row = select(plain, s.out_row, s.sums_row)
        where = [image, s.windows, s.masks, s.runs, s.counts, s.step, s.whole]

        def strip(row: Any, height: int) -> None:
            start = weights + row * s.other_row
            here = to + row * to_row
            first = bias + select(biased, row, 0)
            what = [start, s.other_row, s.order, s.k, first, here, to_row, count]
            by_kind(s.step, lambda kind: call(self.strip(kind, height), where + what))

        by_heights(_COST.heights, 0, s.rows, strip)
        with when(~plain):
            spots = s.spots + s.begin
            rest = [out, s.out_row, spots, s.rows, count, s.begin, s.spot_run]
            call(self.emitters.deliver.scatter, [s.sums, s.sums_row, *rest])


def _emit_strip(lib: Library, kind: str, height: int) -> ir.Function:
    """``to[i, j] = bias[i] + sum over k of weights[i, order[k]] * window[k, j]``."""
    lanes = lib.tile.lanes
    with lib.function(f"direct_{kind}{height}", STRIP) as (s, function):
        starts = [s.weights + s.weights_row * i for i in range(height)]
        bias = biases(lib, s.bias.is_given(), s.bias, height)
        vectors = (s.count + (lanes - 1)) // lanes
        done = 0
        if kind == "unit":
            done = _several(lib, s, vectors, starts, bias)
        with loop(done, vectors, name="v") as v:
            j = v * lanes
            mask = first_lanes(s.count - j, lanes)
            to = s.to + j

            def sums(get: Loader, to: Any = to, mask: Any = mask) -> None:
                def step(k: Any, held: list[Any]) -> list[Any]:
                    value = get(k)
                    place = s.order[k]
                    items = [start + place for start in starts]
                    scales = [splat(i.load(), lanes) for i in items]
                    pairs = zip(scales, held, strict=True)
                    return [fma(scale, value, x) for scale, x in pairs]

                for i, total in enumerate(carry(0, s.k, 1, bias, step)):
                    here = to + s.to_row * i
                    here.store(total, mask)

            with_loader(lib, kind, s, v, sums)
    return function


def _several(
    lib: Library, s: Any, vectors: Any, starts: list[Any], bias: list[Any]
) -> Any:
    """Whole vectors, some at a time for each element of the windows; how many."""
    lanes = lib.tile.lanes
    wide = min(4, _COST.direct_sums // len(starts))
    some = vectors // wide * wide
    stop = select(s.whole.holds(), some, 0)
    with loop(0, stop, wide, name="v") as v:
        numbers = [v + u for u in range(wide)]

        def step(k: Any, held: list[Any]) -> list[Any]:
            element_ = window(s, k)
            values = [read_whole(lib, s, u, element_) for u in numbers]
            place = s.order[k]
            updated: list[Any] = []
            for start in starts:
                item = start[place]
                scale = splat(item, lanes)
                updated += [
                    fma(scale, x, held[len(updated) + u]) for u, x in enumerate(values)
                ]
            return updated

        first = [value for value in bias for _ in range(wide)]
        for at_, total in enumerate(carry(0, s.k, 1, first, step)):
            row, u = divmod(at_, wide)
            j = numbers[u] * lanes
            place = s.to_row * row + j
            mask = first_lanes(s.count - j, lanes)
            (s.to + place).store(total, mask)
    return stop
