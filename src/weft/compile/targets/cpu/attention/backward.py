"""The gradients of attention, from recomputed scores.

For a block of rows and a block of keys, with K and V transposed for the second:

    scores = Q @ K^T * scale           weights = exp(scores - lse)
    slopes = G @ V^T                   slopes  = weights * (slopes - delta) * scale
    dv += weights^T @ G     dk += slopes^T @ Q     dq += slopes @ K

where G is the gradient of the output and ``delta`` its product with the output, row by
row. Blocks of keys are the outer loop. With few heads, tasks are blocks of keys for dk
and dv, and blocks of rows for dq: sums have the same order, so the bits are the same.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import if_else, loop, when
from weft.compile.emit.values import call, minimum, select
from weft.compile.emit.vectors import first_lanes, splat
from weft.compile.targets.cpu.attention.blocks import Emitters, exponential, number_of
from weft.compile.targets.cpu.attention.record import JOB, enter_head, mask_at
from weft.compile.targets.cpu.matmul.tasks import TASKS, block_count, divide, read_job

_BLOCK = "i64*job worker head first last only"  # a range of blocks of keys, or of rows


class Backward:
    """Emits ``backward_tasks``."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib
        self.width = self.lib.tile.width
        self.weigh = self._emit_weigh()

    def emit(self) -> ir.Function:
        """The body of a loop over tasks."""
        lib = self.lib
        keys, rows = self._emit_keys(), self._emit_rows()
        with lib.function("backward_tasks", TASKS, public=True) as (t, function):
            s = read_job(self.lib, JOB, t.job, t.worker)
            many = block_count(s.keys, s.block_keys)
            with loop(t.begin, t.end) as task:
                head, part = divide(task, s.tasks)
                common = [t.job, t.worker, head]
                with if_else(s.apart.holds()) as (apart, whole):
                    with whole:
                        call(keys, [*common, 0, many, 0])
                    with apart:
                        past = part - many
                        with if_else(past < 0) as (one, two):
                            with one:
                                call(keys, [*common, part, part + 1, 1])
                            with two:
                                call(rows, [*common, past, 0, 0])
        return function

    def _emit_keys(self) -> ir.Function:
        """All rows for some blocks of keys: dk and dv ``only``, or dq too."""
        lib = self.lib
        with lib.function("backward_keys", _BLOCK) as (t, function):
            s = self._begin(t)
            s.with_dq = s.dq.is_given() & ~t.only.holds()
            s.with_dk, s.with_dv = s.dk.is_given(), s.dv.is_given()
            with loop(t.first, t.last, name="block") as block:
                j = block * s.block_keys
                keys = minimum(s.block_keys, s.keys - j)
                self._transpose(s, j, keys)
                self._clear(s, j, keys)
                start = select(s.is_causal, j // s.block_rows * s.block_rows, 0)
                with loop(start, s.rows, s.block_rows) as row:
                    self._square(s, row, j, keys)
        return function

    def _emit_rows(self) -> ir.Function:
        """All keys for a block of rows: dq alone."""
        lib = self.lib
        with lib.function("backward_rows", _BLOCK) as (t, function):
            s = self._begin(t)
            s.with_dq = s.dq.is_given()
            s.with_dk = s.with_dq.like(0)
            s.with_dv = s.with_dk
            row = t.first * s.block_rows
            seen = minimum(s.keys, row + s.block_rows)
            limit = select(s.is_causal, seen, s.keys)
            limit = select(s.with_dq, limit, 0)
            with loop(0, limit, s.block_keys, name="j") as j:
                keys = minimum(s.block_keys, s.keys - j)
                self._transpose(s, j, keys)
                self._square(s, row, j, keys)
        return function

    def _begin(self, t: Any) -> Any:
        s = read_job(self.lib, JOB, t.job, t.worker)
        enter_head(s, t.head)
        s.is_causal = s.causal.holds()
        return s

    def _transpose(self, s: Any, j: Any, keys: Any) -> None:
        """Transpose a block of K and of V."""
        one = ir.Constant(ir.DoubleType(), 1.0).bitcast(ir.IntType(64))
        for source, row, to, size, factor in (
            (s.k, s.k_row, s.transposed, s.depth, s.scale),
            (s.v, s.v_row, s.other, s.width, one),
        ):
            here = source + j * row
            call(self.emitters.transposed_panel, [here, row, to, size, keys, factor])

    def _clear(self, s: Any, j: Any, keys: Any) -> None:
        """Begin the sums of a block of keys."""
        for wanted, out, size in (
            (s.with_dk, s.dk, s.depth),
            (s.with_dv, s.dv, s.width),
        ):
            with when(wanted):
                here = out + j * size
                call(self.emitters.fill, [here, keys * size])

    def _square(self, s: Any, row: Any, j: Any, keys: Any) -> None:
        """One block of rows and one of keys."""
        emitters = self.emitters
        rows = minimum(s.block_rows, s.rows - row)
        seen = minimum(keys, row + rows - j)
        keys = select(s.is_causal, seen, keys)
        q, g, k = (
            pointer + place * stride
            for pointer, place, stride in (
                (s.q, row, s.q_row),
                (s.g, row, s.g_row),
                (s.k, j, s.k_row),
            )
        )
        self._scores(s, q, s.q_row, s.transposed, s.depth, s.scores, rows, keys)
        self._scores(s, g, s.g_row, s.other, s.width, s.slopes, rows, keys)
        if emitters.masked:
            mask = [mask_at(s, row, j), s.mask_row, s.mask_col, s.mask_kind]
            call(emitters.mask_rows, [s.scores, s.keys_row, *mask, rows, keys])
        lse, delta = (p + row for p in (s.lse, s.delta))
        hidden = j + keys > row + 1
        cut = (s.is_causal & hidden).unsigned()
        call(
            self.weigh,
            [
                s.scores,
                s.slopes,
                s.keys_row,
                lse,
                delta,
                rows,
                keys,
                s.scale,
                row - j,
                cut,
                s.zeros,
            ],
        )
        for wanted, left, right, right_row, out, size in (
            (s.with_dv, s.scores, g, s.g_row, s.dv, s.width),
            (s.with_dk, s.slopes, q, s.q_row, s.dk, s.depth),
        ):
            with when(wanted):
                c = out + j * size
                factors = [left, s.keys_row, right, right_row, self.width]
                call(emitters.by_columns, [*factors, c, size, keys, size, rows, 1])
        with when(s.with_dq):
            c = s.dq + row * s.depth
            later = (j > 0).unsigned()
            call(
                emitters.by_rows,
                [
                    s.slopes,
                    s.keys_row,
                    k,
                    s.k_row,
                    self.width,
                    c,
                    s.depth,
                    rows,
                    s.depth,
                    keys,
                    later,
                ],
            )

    def _scores(
        self,
        s: Any,
        left: Any,
        row: Any,
        transposed: Any,
        size: Any,
        to: Any,
        rows: Any,
        keys: Any,
    ) -> None:
        panel = self.width * size
        factors = [left, row, transposed, self.width, panel]
        call(self.emitters.by_rows, [*factors, to, s.keys_row, rows, keys, size, 0])

    def _emit_weigh(self) -> ir.Function:
        """Weights and slopes of a square; ``shift`` is its first row minus its key."""
        lib, lanes = self.lib, self.lib.tile.lanes
        arguments = "*scores *slopes row *lse *delta rows keys scale shift cut zeros"
        with lib.function("weigh", arguments) as (s, function):
            scale = splat(number_of(s.scale, lib.element), lanes)
            cut = s.cut.holds()
            with loop(s.rows) as i:
                lse, delta = (p[i] for p in (s.lse, s.delta))
                lse = select(lse.equals(-math.inf), 0.0, lse)
                lse, delta = splat(lse, lanes), splat(delta, lanes)
                seen = i + s.shift + 1  # keys that this row sees
                start = i * s.row
                with loop(0, s.keys, lanes, name="j") as j:
                    places = [p + (start + j) for p in (s.scores, s.slopes)]
                    scores, slopes = (p.load(lib.vector) for p in places)
                    weights = exponential(lib, scores - lse)
                    ahead = seen - j
                    some = select(ahead < 0, 0, ahead)
                    some = select(cut, some, lanes)
                    mask = first_lanes(some, lanes)
                    weights = select(mask, weights, 0.0)
                    slopes = weights * (slopes - delta) * scale
                    slopes = select(mask, slopes, 0.0)
                    places[0].store(weights)
                    places[1].store(slopes)
        return function
