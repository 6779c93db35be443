"""Attention of few queries, one after the other: it waits for K and V, not for sums.

A vector of scores is made of as many keys at once, each of which is a product of rows.
The rest is as in `forward`, along a row of scores instead of down a panel of them.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I32, i64, loop, zeros
from weft.compile.emit.math import emit
from weft.compile.emit.vectors import (
    at,
    carry,
    first_lanes,
    fma,
    load,
    minimum,
    prefetch,
    splat,
    store,
    totals,
)  # fmt: skip
from weft.compile.targets.cpu.attention.blocks import (
    Emitters,
    exponential,
    filled,
    larger,
    number_of,
)
from weft.compile.targets.cpu.attention.record import (
    enter_head,
    given,
    mask_at,
    read_job,
)
from weft.compile.targets.cpu.cost_model import COST


class Few:
    """Emits ``few_tasks``: a task is a head."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib
        self.lanes = self.lib.tile.lanes
        self.none = zeros(self.lib.vector)
        self.low = filled(self.lib.vector, -math.inf)

    def emit(self) -> ir.Function:
        """The body of a loop over tasks."""
        row = self._emit_row()
        arguments = "*job begin end worker"
        with (
            self.lib.function("few_tasks", arguments, public=True) as (b, t, function),
            loop(b, t.begin, t.end) as head,
        ):
            s = read_job(b, t.job, t.worker)
            with loop(b, i64(0), s.rows) as i:
                b.call(row, [t.job, t.worker, head, i])
        return function

    def _emit_row(self) -> ir.Function:
        lib, element = self.lib, self.lib.element
        steps = [self._emit_dots(), self._emit_soften(), self._emit_add()]
        with lib.function("few_row", "*job worker head row") as (b, t, function):
            s = read_job(b, t.job, t.worker)
            enter_head(b, s, t.head, element)
            s.row = t.row
            s.q = at(b, s.q, b.mul(s.row, s.q_row), element)
            seen = minimum(b, s.keys, b.add(s.row, i64(1)))
            limit = b.select(b.trunc(s.causal, I1), seen, s.keys)
            self._begin(b, s)
            with loop(b, i64(0), limit, s.block_keys, name="j") as j:
                keys = minimum(b, s.block_keys, b.sub(limit, j))
                self._block(b, s, j, keys, steps)
            self._finish(b, s)
        return function

    def _begin(self, b: Any, s: Any) -> None:
        """Initialise the largest score, the sums by lanes, and the output."""
        store(b, self.low, s.tops)
        store(b, self.none, s.sums)
        with loop(b, i64(0), s.width, i64(self.lanes)) as d:
            store(b, self.none, at(b, s.other, d, self.lib.element))

    def _block(self, b: Any, s: Any, j: Any, keys: Any, steps: list[Any]) -> None:
        element, (dots, soften, add) = self.lib.element, steps
        k = at(b, s.k, b.mul(j, s.k_row), element)
        v = at(b, s.v, b.mul(j, s.v_row), element)
        b.call(dots, [s.q, k, s.k_row, s.scores, s.depth, keys, s.scale])
        with b.if_then(b.icmp_signed("!=", s.mask_kind, i64(0))):
            mask = mask_at(b, s, s.row, j, element)
            strides = [s.mask_row, s.mask_col, s.mask_kind]
            rest = [mask, *strides, i64(1), keys]
            b.call(self.emitters.mask_rows, [s.scores, s.keys_row, *rest])
        b.call(soften, [s.scores, s.tops, s.sums, s.other, keys, s.width])
        b.call(add, [s.scores, v, s.v_row, s.other, s.width, keys])

    def _emit_dots(self) -> ir.Function:
        """``scores[j] = sum(q * k[j]) * scale``."""
        lib, lanes = self.lib, self.lanes
        arguments = "*q *k k_row *scores depth keys scale"
        with lib.function("few_dots", arguments) as (b, s, function):
            scale = splat(b, number_of(b, s.scale, lib.element), lanes)
            last, ahead = b.sub(s.keys, i64(1)), b.mul(s.k_row, i64(lanes))
            with loop(b, i64(0), s.keys, i64(lanes), name="j") as j:
                rows = []
                for one in range(lanes):  # keys beyond the last repeat it
                    key = minimum(b, b.add(j, i64(one)), last)
                    rows.append(at(b, s.k, b.mul(key, s.k_row), lib.element))

                def step(d: Any, sums: list[Any], rows: Any = rows) -> list[Any]:
                    mask = first_lanes(b, b.sub(s.depth, d), lanes)
                    q = load(b, at(b, s.q, d, lib.element), lib.vector, mask)
                    places = [at(b, row, d, lib.element) for row in rows]
                    for place in places:  # in an order that no machine foresees
                        prefetch(b, at(b, place, ahead, lib.element))
                    right = [load(b, p, lib.vector, mask) for p in places]
                    return [fma(b, q, x, y) for x, y in zip(right, sums, strict=True)]

                sums = carry(b, i64(0), s.depth, lanes, [self.none] * lanes, step)
                found = b.fmul(totals(b, sums), scale)
                store(b, found, at(b, s.scores, j, lib.element))
        return function

    def _emit_soften(self) -> ir.Function:
        """Make weights of scores, relative to the maximum so far; rescale old sums."""
        lib, lanes = self.lib, self.lanes
        arguments = "*scores *tops *sums *out keys width"
        with lib.function("few_soften", arguments) as (b, s, function):
            old = load(b, s.tops, lib.vector)

            def scores(j: Any) -> Any:
                mask = first_lanes(b, b.sub(s.keys, j), lanes)
                value = load(b, at(b, s.scores, j, lib.element), lib.vector)
                return b.select(mask, value, self.low)

            tops = carry(b, i64(0), s.keys, lanes, [old],
                         lambda j, held: [larger(b, scores(j), held[0])])  # fmt: skip
            top = self._spread(b, tops[0])
            empty = b.fcmp_ordered("==", top, self.low)
            base = b.select(empty, self.none, top)
            fade = exponential(b, lib, b.fsub(old, base))

            def weigh(j: Any, held: list[Any]) -> list[Any]:
                value = exponential(b, lib, b.fsub(scores(j), base))
                store(b, value, at(b, s.scores, j, lib.element))
                return [b.fadd(held[0], value)]

            sums = b.fmul(load(b, s.sums, lib.vector), fade)
            sums = carry(b, i64(0), s.keys, lanes, [sums], weigh)[0]
            store(b, sums, s.sums)
            store(b, top, s.tops)
            with loop(b, i64(0), s.width, i64(lanes)) as d:
                here = at(b, s.out, d, lib.element)
                store(b, b.fmul(load(b, here, lib.vector), fade), here)
        return function

    def _spread(self, b: Any, vector: Any) -> Any:
        """The largest of a vector's lanes, in all lanes."""
        distance = self.lanes // 2
        while distance:
            order = [i ^ distance for i in range(self.lanes)]
            kind = ir.VectorType(I32, self.lanes)
            other = b.shuffle_vector(vector, vector, ir.Constant(kind, order))
            vector = larger(b, other, vector)
            distance //= 2
        return vector

    def _emit_add(self) -> ir.Function:
        """``out += sum(weights[j] * v[j])``."""
        lib, lanes, count = self.lib, self.lanes, COST.attention.feature_vectors
        arguments = "*weights *v v_row *out width keys"
        with lib.function("few_add", arguments) as (b, s, function):
            step = i64(count * lanes)
            with loop(b, i64(0), s.width, step, name="d") as d:
                starts = [b.add(d, i64(v * lanes)) for v in range(count)]
                masks = [self._some(b, b.sub(s.width, start)) for start in starts]
                places = [at(b, s.out, start, lib.element) for start in starts]

                def more(j: Any, sums: Any, places: Any = (starts, masks)) -> list[Any]:
                    weight = b.load(at(b, s.weights, j, lib.element), typ=lib.element)
                    weight = splat(b, weight, lanes)
                    row = at(b, s.v, b.mul(j, s.v_row), lib.element)
                    values = [
                        load(b, at(b, row, start, lib.element), lib.vector, mask)
                        for start, mask in zip(*places, strict=True)
                    ]
                    pairs = zip(values, sums, strict=True)
                    return [fma(b, weight, value, x) for value, x in pairs]

                held = [
                    load(b, p, lib.vector, m)
                    for p, m in zip(places, masks, strict=True)
                ]
                sums = carry(b, i64(0), s.keys, 1, held, more)
                for value, place, mask in zip(sums, places, masks, strict=True):
                    store(b, value, place, mask)
        return function

    def _some(self, b: Any, count: Any) -> Any:
        """A mask of the first lanes; none if the count is negative."""
        least = b.select(b.icmp_signed("<", count, i64(0)), i64(0), count)
        return first_lanes(b, least, self.lanes)

    def _finish(self, b: Any, s: Any) -> None:
        """Divide by the sum."""
        lib, lanes = self.lib, self.lanes
        total = totals(b, [load(b, s.sums, lib.vector)])
        total = splat(b, b.extract_element(total, I32(0)), lanes)
        nobody = b.fcmp_ordered("==", total, self.none)
        wrong = filled(lib.vector, math.nan)
        other = b.select(b.trunc(s.zeros, I1), self.none, wrong)
        factor = b.fdiv(filled(lib.vector, 1.0), total)
        factor = b.select(nobody, other, factor)
        with b.if_then(given(b, s.lse)):
            log = emit("log", b, total, fused=lib.isa.fused)
            value = b.fadd(b.fadd(load(b, s.tops, lib.vector), log),
                           b.select(nobody, other, self.none))  # fmt: skip
            one = b.extract_element(value, I32(0))
            b.store(one, at(b, s.lse, s.row, lib.element))
        with loop(b, i64(0), s.width, i64(lanes)) as d:
            mask = first_lanes(b, b.sub(s.width, d), lanes)
            value = load(b, at(b, s.other, d, lib.element), lib.vector)
            place = b.add(b.mul(s.row, s.width), d)
            store(b, b.fmul(value, factor), at(b, s.o, place, lib.element), mask)
