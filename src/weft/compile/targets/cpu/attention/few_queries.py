"""Attention of few queries, one after the other: it waits for K and V, not for sums.

A vector of scores is made of as many keys at once, each of which is a product of rows.
The rest is as in `forward`, along a row of scores instead of down a panel of them.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import zeros
from weft.compile.emit.flow import carry, loop, when
from weft.compile.emit.values import call, fma, minimum, select
from weft.compile.emit.vectors import (
    filled,
    first_lanes,
    prefetch,
    shuffle,
    splat,
    totals,
)
from weft.compile.targets.cpu.attention.blocks import (
    Emitters,
    exponential,
    larger,
    logarithm,
    number_of,
)
from weft.compile.targets.cpu.attention.record import JOB, enter_head, mask_at
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.tasks import TASKS, read_job


class Few:
    """Emits ``few_tasks``: a task is a head."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib
        self.lanes = self.lib.tile.lanes
        self.none = zeros(self.lib.vector)

    def emit(self) -> ir.Function:
        """The body of a loop over tasks."""
        row = self._emit_row()
        with (
            self.lib.function("few_tasks", TASKS, public=True) as (t, function),
            loop(t.begin, t.end) as head,
        ):
            s = read_job(self.lib, JOB, t.job, t.worker)
            with loop(s.rows) as i:
                call(row, [t.job, t.worker, head, i])
        return function

    def _emit_row(self) -> ir.Function:
        lib = self.lib
        steps = [self._emit_dots(), self._emit_soften(), self._emit_add()]
        with lib.function("few_row", "i64*job worker head row") as (t, function):
            s = read_job(lib, JOB, t.job, t.worker)
            enter_head(s, t.head)
            s.row = t.row
            s.q = s.q + s.row * s.q_row
            seen = minimum(s.keys, s.row + 1)
            limit = select(s.causal.holds(), seen, s.keys)
            self._begin(s)
            with loop(0, limit, s.block_keys, name="j") as j:
                keys = minimum(s.block_keys, limit - j)
                self._block(s, j, keys, steps)
            self._finish(s)
        return function

    def _begin(self, s: Any) -> None:
        """Initialise the largest score, the sums by lanes, and the output."""
        s.tops.store(filled(self.lib.vector, -math.inf))
        s.sums.store(self.none)
        with loop(0, s.width, self.lanes) as d:
            s.other[d] = self.none

    def _block(self, s: Any, j: Any, keys: Any, steps: list[Any]) -> None:
        dots, soften, add = steps
        k = s.k + j * s.k_row
        v = s.v + j * s.v_row
        call(dots, [s.q, k, s.k_row, s.scores, s.depth, keys, s.scale])
        with when(s.mask_kind.differs(0)):
            mask = mask_at(s, s.row, j)
            strides = [s.mask_row, s.mask_col, s.mask_kind]
            rest = [mask, *strides, 1, keys]
            call(self.emitters.mask_rows, [s.scores, s.keys_row, *rest])
        call(soften, [s.scores, s.tops, s.sums, s.other, keys, s.width])
        call(add, [s.scores, v, s.v_row, s.other, s.width, keys])

    def _emit_dots(self) -> ir.Function:
        """``scores[j] = sum(q * k[j]) * scale``."""
        lib, lanes = self.lib, self.lanes
        arguments = "*q *k k_row *scores depth keys scale"
        with lib.function("few_dots", arguments) as (s, function):
            scale = splat(number_of(s.scale, lib.element), lanes)
            last, ahead = s.keys - 1, s.k_row * lanes
            with loop(0, s.keys, lanes, name="j") as j:
                rows = []
                for one in range(lanes):  # keys beyond the last repeat it
                    key = minimum(j + one, last)
                    rows.append(s.k + key * s.k_row)

                def step(d: Any, sums: list[Any], rows: Any = rows) -> list[Any]:
                    mask = first_lanes(s.depth - d, lanes)
                    q = (s.q + d).load(lib.vector, mask)
                    places = [row + d for row in rows]
                    for place in places:  # in an order that no machine foresees
                        prefetch(place + ahead)
                    right = [p.load(lib.vector, mask) for p in places]
                    return [fma(q, x, y) for x, y in zip(right, sums, strict=True)]

                sums = carry(0, s.depth, lanes, [self.none] * lanes, step)
                s.scores[j] = totals(sums) * scale
        return function

    def _emit_soften(self) -> ir.Function:
        """Make weights of scores, relative to the maximum so far; rescale old sums."""
        lib, lanes = self.lib, self.lanes
        arguments = "*scores *tops *sums *out keys width"
        with lib.function("few_soften", arguments) as (s, function):
            old = s.tops.load(lib.vector)

            def scores(j: Any) -> Any:
                mask = first_lanes(s.keys - j, lanes)
                value = (s.scores + j).load(lib.vector)
                return select(mask, value, -math.inf)

            def rise(j: Any, held: list[Any]) -> list[Any]:
                return [larger(scores(j), held[0])]

            tops = carry(0, s.keys, lanes, [old], rise)
            top = self._spread(tops[0])
            base = select(top.equals(-math.inf), 0.0, top)
            fade = exponential(lib, old - base)

            def weigh(j: Any, held: list[Any]) -> list[Any]:
                value = exponential(lib, scores(j) - base)
                s.scores[j] = value
                return [held[0] + value]

            sums = s.sums.load(lib.vector) * fade
            sums = carry(0, s.keys, lanes, [sums], weigh)[0]
            s.sums.store(sums)
            s.tops.store(top)
            with loop(0, s.width, lanes) as d:
                here = s.out + d
                here.store(here.load(lib.vector) * fade)
        return function

    def _spread(self, vector: Any) -> Any:
        """The largest of a vector's lanes, in all lanes."""
        distance = self.lanes // 2
        while distance:
            order = [i ^ distance for i in range(self.lanes)]
            vector = larger(shuffle(vector, vector, order), vector)
            distance //= 2
        return vector

    def _emit_add(self) -> ir.Function:
        """``out += sum(weights[j] * v[j])``."""
        lib, lanes, count = self.lib, self.lanes, COST.attention.feature_vectors
        arguments = "*weights *v v_row *out width keys"
        with (
            lib.function("few_add", arguments) as (s, function),
            loop(0, s.width, count * lanes, name="d") as d,
        ):
            starts = [d + v * lanes for v in range(count)]
            masks = [self._some(s.width - start) for start in starts]
            places = [s.out + start for start in starts]

            def more(j: Any, sums: Any, places: Any = (starts, masks)) -> list[Any]:
                weight = splat(s.weights[j], lanes)
                row = s.v + j * s.v_row
                values = [
                    (row + start).load(lib.vector, mask)
                    for start, mask in zip(*places, strict=True)
                ]
                pairs = zip(values, sums, strict=True)
                return [fma(weight, value, x) for value, x in pairs]

            held = [p.load(lib.vector, m) for p, m in zip(places, masks, strict=True)]
            sums = carry(0, s.keys, 1, held, more)
            for value, place, mask in zip(sums, places, masks, strict=True):
                place.store(value, mask)
        return function

    def _some(self, count: Any) -> Any:
        """A mask of the first lanes; none if the count is negative."""
        return first_lanes(select(count < 0, 0, count), self.lanes)

    def _finish(self, s: Any) -> None:
        """Divide by the sum."""
        lib, lanes = self.lib, self.lanes
        total = totals([s.sums.load(lib.vector)])
        total = splat(total.lane(0), lanes)
        nobody = total.equals(0.0)
        other = select(s.zeros.holds(), self.none, total.like(math.nan))
        factor = select(nobody, other, 1.0 / total)
        with when(s.lse.is_given()):
            log = logarithm(lib, total)
            value = s.tops.load(lib.vector) + log + select(nobody, other, 0.0)
            s.lse[s.row] = value.lane(0)
        with loop(0, s.width, lanes) as d:
            mask = first_lanes(s.width - d, lanes)
            value = (s.other + d).load(lib.vector)
            place = s.row * s.width + d
            (s.o + place).store(value * factor, mask)
