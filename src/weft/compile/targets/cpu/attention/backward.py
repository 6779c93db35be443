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

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, i64, loop, zeros
from weft.compile.emit.vectors import (
    at,
    first_lanes,
    load,
    minimum,
    splat,
    store,
)  # fmt: skip
from weft.compile.targets.cpu.attention.blocks import (
    Emitters,
    exponential,
    flag,
    number_of,
)
from weft.compile.targets.cpu.attention.record import (
    enter_head,
    given,
    mask_at,
    read_job,
)
from weft.compile.targets.cpu.matmul.tasks import block_count, divide

_BLOCK = "*job worker head first last only"  # a range of blocks of keys, or of rows


class Backward:
    """Emits ``backward_tasks``."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib
        self.width = i64(self.lib.tile.width)
        self.weigh = self._emit_weigh()

    def emit(self) -> ir.Function:
        """The body of a loop over tasks."""
        lib = self.lib
        keys, rows = self._emit_keys(), self._emit_rows()
        arguments = "*job begin end worker"
        with lib.function("backward_tasks", arguments, public=True) as (b, t, function):
            s = read_job(b, t.job, t.worker)
            many = block_count(b, s.keys, s.block_keys)
            with loop(b, t.begin, t.end) as task:
                head, part = divide(b, task, s.tasks)
                common = [t.job, t.worker, head]
                with b.if_else(b.trunc(s.apart, I1)) as (apart, whole):
                    with whole:
                        b.call(keys, [*common, i64(0), many, i64(0)])
                    with apart:
                        past = b.sub(part, many)
                        with b.if_else(b.icmp_signed("<", past, i64(0))) as (one, two):
                            with one:
                                b.call(
                                    keys, [*common, part, b.add(part, i64(1)), i64(1)]
                                )
                            with two:
                                b.call(rows, [*common, past, i64(0), i64(0)])
        return function

    def _emit_keys(self) -> ir.Function:
        """All rows for some blocks of keys: dk and dv ``only``, or dq too."""
        lib = self.lib
        with lib.function("backward_keys", _BLOCK) as (b, t, function):
            s = self._begin(b, t)
            s.with_dq = b.and_(given(b, s.dq), b.not_(b.trunc(t.only, I1)))
            s.with_dk, s.with_dv = given(b, s.dk), given(b, s.dv)
            with loop(b, t.first, t.last, name="block") as block:
                j = b.mul(block, s.block_keys)
                keys = minimum(b, s.block_keys, b.sub(s.keys, j))
                self._transpose(b, s, j, keys)
                self._clear(b, s, j, keys)
                start = b.mul(b.sdiv(j, s.block_rows), s.block_rows)
                start = b.select(s.is_causal, start, i64(0))
                with loop(b, start, s.rows, s.block_rows) as row:
                    self._square(b, s, row, j, keys)
        return function

    def _emit_rows(self) -> ir.Function:
        """All keys for a block of rows: dq alone."""
        lib = self.lib
        with lib.function("backward_rows", _BLOCK) as (b, t, function):
            s = self._begin(b, t)
            s.with_dq, s.with_dk = given(b, s.dq), ir.Constant(I1, 0)
            s.with_dv = s.with_dk
            row = b.mul(t.first, s.block_rows)
            seen = minimum(b, s.keys, b.add(row, s.block_rows))
            limit = b.select(s.is_causal, seen, s.keys)
            limit = b.select(s.with_dq, limit, i64(0))
            with loop(b, i64(0), limit, s.block_keys, name="j") as j:
                keys = minimum(b, s.block_keys, b.sub(s.keys, j))
                self._transpose(b, s, j, keys)
                self._square(b, s, row, j, keys)
        return function

    def _begin(self, b: Any, t: Any) -> Any:
        s = read_job(b, t.job, t.worker)
        enter_head(b, s, t.head, self.lib.element)
        s.is_causal = b.trunc(s.causal, I1)
        return s

    def _transpose(self, b: Any, s: Any, j: Any, keys: Any) -> None:
        """Transpose a block of K and of V."""
        one = ir.Constant(ir.DoubleType(), 1.0).bitcast(ir.IntType(64))
        for source, row, to, size, factor in (
            (s.k, s.k_row, s.transposed, s.depth, s.scale),
            (s.v, s.v_row, s.other, s.width, one),
        ):
            here = at(b, source, b.mul(j, row), self.lib.element)
            b.call(self.emitters.transposed_panel, [here, row, to, size, keys, factor])

    def _clear(self, b: Any, s: Any, j: Any, keys: Any) -> None:
        """Begin the sums of a block of keys."""
        for wanted, out, size in (
            (s.with_dk, s.dk, s.depth),
            (s.with_dv, s.dv, s.width),
        ):
            with b.if_then(wanted):
                here = at(b, out, b.mul(j, size), self.lib.element)
                b.call(self.emitters.fill, [here, b.mul(keys, size)])

    def _square(self, b: Any, s: Any, row: Any, j: Any, keys: Any) -> None:
        """One block of rows and one of keys."""
        element, emitters = self.lib.element, self.emitters
        rows = minimum(b, s.block_rows, b.sub(s.rows, row))
        seen = minimum(b, keys, b.sub(b.add(row, rows), j))
        keys = b.select(s.is_causal, seen, keys)
        q, g, k = (
            at(b, pointer, b.mul(place, stride), element)
            for pointer, place, stride in (
                (s.q, row, s.q_row), (s.g, row, s.g_row), (s.k, j, s.k_row),
            )
        )  # fmt: skip
        self._scores(b, s, q, s.q_row, s.transposed, s.depth, s.scores, rows, keys)
        self._scores(b, s, g, s.g_row, s.other, s.width, s.slopes, rows, keys)
        if emitters.masked:
            mask = [mask_at(b, s, row, j, element), s.mask_row, s.mask_col, s.mask_kind]
            b.call(emitters.mask_rows, [s.scores, s.keys_row, *mask, rows, keys])
        lse, delta = (at(b, p, row, element) for p in (s.lse, s.delta))
        hidden = b.icmp_signed(">", b.add(j, keys), b.add(row, i64(1)))
        cut = flag(b, b.and_(s.is_causal, hidden))
        b.call(self.weigh, [s.scores, s.slopes, s.keys_row, lse, delta, rows, keys,
                            s.scale, b.sub(row, j), cut, s.zeros])  # fmt: skip
        for wanted, left, right, right_row, out, size in (
            (s.with_dv, s.scores, g, s.g_row, s.dv, s.width),
            (s.with_dk, s.slopes, q, s.q_row, s.dk, s.depth),
        ):
            with b.if_then(wanted):
                c = at(b, out, b.mul(j, size), element)
                factors = [left, s.keys_row, right, right_row, self.width]
                b.call(
                    emitters.by_columns, [*factors, c, size, keys, size, rows, i64(1)]
                )
        with b.if_then(s.with_dq):
            c = at(b, s.dq, b.mul(row, s.depth), element)
            later = flag(b, b.icmp_signed(">", j, i64(0)))
            b.call(emitters.by_rows, [s.slopes, s.keys_row, k, s.k_row, self.width, c,
                                   s.depth, rows, s.depth, keys, later])  # fmt: skip

    def _scores(
        self, b: Any, s: Any, left: Any, row: Any, transposed: Any, size: Any, to: Any,
        rows: Any, keys: Any,
    ) -> None:  # fmt: skip
        panel = b.mul(self.width, size)
        factors = [left, row, transposed, self.width, panel]
        b.call(
            self.emitters.by_rows, [*factors, to, s.keys_row, rows, keys, size, i64(0)]
        )

    def _emit_weigh(self) -> ir.Function:
        """Weights and slopes of a square; ``shift`` is its first row minus its key."""
        lib, lanes = self.lib, self.lib.tile.lanes
        arguments = "*scores *slopes row *lse *delta rows keys scale shift cut zeros"
        with lib.function("weigh", arguments) as (b, s, function):
            scale = splat(b, number_of(b, s.scale, lib.element), lanes)
            cut = b.trunc(s.cut, I1)
            with loop(b, i64(0), s.rows) as i:
                lse, delta = (
                    b.load(at(b, p, i, lib.element), typ=lib.element)
                    for p in (s.lse, s.delta)
                )
                none = ir.Constant(lib.element, 0.0)
                low = ir.Constant(lib.element, float("-inf"))
                lse = b.select(b.fcmp_ordered("==", lse, low), none, lse)
                lse, delta = splat(b, lse, lanes), splat(b, delta, lanes)
                seen = b.add(b.add(i, s.shift), i64(1))  # keys that this row sees
                start = b.mul(i, s.row)
                with loop(b, i64(0), s.keys, i64(lanes), name="j") as j:
                    places = [
                        at(b, p, b.add(start, j), lib.element)
                        for p in (s.scores, s.slopes)
                    ]
                    scores, slopes = (load(b, p, lib.vector) for p in places)
                    weights = exponential(b, lib, b.fsub(scores, lse))
                    ahead = b.sub(seen, j)
                    some = b.select(b.icmp_signed("<", ahead, i64(0)), i64(0), ahead)
                    some = b.select(cut, some, i64(lanes))
                    mask = first_lanes(b, some, lanes)
                    weights = b.select(mask, weights, zeros(lib.vector))
                    slopes = b.fmul(b.fmul(weights, b.fsub(slopes, delta)), scale)
                    slopes = b.select(mask, slopes, zeros(lib.vector))
                    store(b, weights, places[0])
                    store(b, slopes, places[1])
        return function
