"""Images with few channels in a group: windows are multiplied unpacked.

Packing a window pays when many rows of weights use it. With few (as in depthwise
convolutions, one) each vector of pixels is read, multiplied and forgotten.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I64, i64, loop
from weft.compile.emit.vectors import (
    at,
    carry,
    choose,
    first_lanes,
    fma,
    minimum,
    splat,
    store,
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
from weft.compile.targets.cpu.matmul.tasks import block_count, divide

_COST = COST.convolution
STRIP = (
    "*image *windows *masks *runs *counts step whole *weights weights_row *order k "
    "*bias *to to_row count"
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
        with lib.function("direct_tasks", "*job begin end worker", public=True) as made:
            b, t, function = made
            s = read_job(b, t.job, t.worker)
            across = block_count(b, s.columns, s.task_columns)
            chunks = block_count(b, s.groups, s.task_groups)
            with loop(b, t.begin, t.end, name="task") as task:
                rest, chunk = divide(b, task, chunks)
                n, column = divide(b, rest, across)
                with b.if_then(b.icmp_signed("<", n, s.images)):
                    s.begin = b.mul(column, s.task_columns)
                    end = b.add(s.begin, s.task_columns)
                    s.end = minimum(b, s.columns, end)
                    call_windows(b, self.emitters.windows, s, s.begin, s.end)
                    s.whole = all_whole(b, s, s.begin, s.end, lib.tile.lanes)
                    first = b.mul(chunk, s.task_groups)
                    last = minimum(b, s.groups, b.add(first, s.task_groups))
                    with loop(b, first, last, name="g") as g:
                        self._group(b, s, n, g)
                    start = b.mul(n, s.groups)
                    channels = [b.mul(b.add(start, g), s.rows) for g in (first, last)]
                    call_epilogue(b, s, channels, [s.begin, s.end])
        return function

    def _group(self, b: Any, s: Any, n: Any, g: Any) -> None:
        element = self.lib.element
        offset = b.add(b.mul(n, s.image_step), b.mul(g, s.image_group))
        image = at(b, s.image, offset, element)
        weights = at(b, s.other, b.mul(g, s.other_group), element)
        offset = b.add(b.mul(n, s.out_step), b.mul(g, s.out_group))
        out = at(b, s.out, offset, element)
        plain = b.icmp_unsigned("==", b.ptrtoint(s.spots, I64), i64(0))
        biased = b.icmp_unsigned("!=", b.ptrtoint(s.bias, I64), i64(0))
        channel = b.select(biased, b.mul(g, s.rows), i64(0))
        bias = at(b, s.bias, channel, element)
        count = b.sub(s.end, s.begin)
        to = b.select(plain, at(b, out, s.begin, element), s.sums)
        to_row = b.select(plain, s.out_row, s.sums_row)
        where = [image, s.windows, s.masks, s.runs, s.counts, s.step, s.whole]

        def strip(row: Any, height: int) -> None:
            start = at(b, weights, b.mul(row, s.other_row), element)
            here = at(b, to, b.mul(row, to_row), element)
            first = at(b, bias, b.select(biased, row, i64(0)), element)
            what = [start, s.other_row, s.order, s.k, first, here, to_row, count]
            by_kind(
                b, s.step, lambda kind: b.call(self.strip(kind, height), where + what)
            )

        by_heights(b, _COST.heights, i64(0), s.rows, strip)
        with b.if_then(b.not_(plain)):
            spots = at(b, s.spots, s.begin, I64)
            rest = [out, s.out_row, spots, s.rows, count, s.begin, s.spot_run]
            b.call(self.emitters.deliver.scatter, [s.sums, s.sums_row, *rest])


def _emit_strip(lib: Library, kind: str, height: int) -> ir.Function:
    """``to[i, j] = bias[i] + sum over k of weights[i, order[k]] * window[k, j]``."""
    lanes, element = lib.tile.lanes, lib.element
    with lib.function(f"direct_{kind}{height}", STRIP) as (b, s, function):
        starts = [at(b, s.weights, b.mul(s.weights_row, i64(i)), element)
                  for i in range(height)]  # fmt: skip
        bias = _biases(b, lib, s, height)
        vectors = b.sdiv(b.add(s.count, i64(lanes - 1)), i64(lanes))
        done = i64(0)
        if kind == "unit":
            done = _several(b, lib, s, vectors, starts, bias)
        with loop(b, done, vectors, name="v") as v:
            j = b.mul(v, i64(lanes))
            mask = first_lanes(b, b.sub(s.count, j), lanes)
            to = at(b, s.to, j, element)

            def sums(b: Any, get: Loader, to: Any = to, mask: Any = mask) -> None:
                def step(k: Any, held: list[Any]) -> list[Any]:
                    value = get(b, k)
                    place = b.load(at(b, s.order, k, I64), typ=I64)
                    items = [at(b, start, place, element) for start in starts]
                    scales = [splat(b, b.load(i, typ=element), lanes) for i in items]
                    pairs = zip(scales, held, strict=True)
                    return [fma(b, scale, value, x) for scale, x in pairs]

                for i, total in enumerate(carry(b, i64(0), s.k, 1, bias, step)):
                    here = at(b, to, b.mul(s.to_row, i64(i)), element)
                    store(b, total, here, mask)

            with_loader(b, lib, kind, s, v, sums)
    return function


def _several(
    b: Any, lib: Library, s: Any, vectors: Any, starts: list[Any], bias: list[Any]
) -> Any:
    """Whole vectors, some at a time for each element of the windows; how many."""
    lanes, element = lib.tile.lanes, lib.element
    wide = min(4, _COST.direct_sums // len(starts))
    some = b.mul(b.sdiv(vectors, i64(wide)), i64(wide))
    stop = b.select(b.trunc(s.whole, I1), some, i64(0))
    with loop(b, i64(0), stop, i64(wide), name="v") as v:
        numbers = [b.add(v, i64(u)) for u in range(wide)]

        def step(k: Any, held: list[Any]) -> list[Any]:
            element_ = window(b, s, k)
            values = [read_whole(b, lib, s, u, element_) for u in numbers]
            place = b.load(at(b, s.order, k, I64), typ=I64)
            updated: list[Any] = []
            for start in starts:
                item = b.load(at(b, start, place, element), typ=element)
                scale = splat(b, item, lanes)
                updated += [fma(b, scale, x, held[len(updated) + u])
                         for u, x in enumerate(values)]  # fmt: skip
            return updated

        first = [value for value in bias for _ in range(wide)]
        for at_, total in enumerate(carry(b, i64(0), s.k, 1, first, step)):
            row, u = divmod(at_, wide)
            j = b.mul(numbers[u], i64(lanes))
            place = b.add(b.mul(s.to_row, i64(row)), j)
            mask = first_lanes(b, b.sub(s.count, j), lanes)
            store(b, total, at(b, s.to, place, element), mask)
    return stop


def _biases(b: Any, lib: Library, s: Any, height: int) -> list[Any]:
    """The start of each row's sums: its bias, or 0."""
    there = b.icmp_unsigned("!=", b.ptrtoint(s.bias, I64), i64(0))
    zeros = [ir.Constant(lib.element, 0.0)] * height

    def given() -> list[Any]:
        places = [at(b, s.bias, i64(i), lib.element) for i in range(height)]
        return [b.load(place, typ=lib.element) for place in places]

    values = choose(b, there, zeros, given)
    return [splat(b, value, lib.tile.lanes) for value in values]
