"""Attention without its matrix of scores: blocks of keys, one after the other.

Scores are held transposed, a panel of as many queries as a register tile is wide:

    scores[key, query] = K @ Q^T          K as it is, Q transposed once
    top[query]         = max              of all keys so far
    scores             = exp(scores - top)
    sums[query]        = sums * exp(old top - top) + sum of scores
    out[feature, query] = out * exp(old top - top) + V^T @ scores

so that all of softmax goes along vectors, and neither K nor V is packed. The result is
transposed back when it is divided by the sums.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, i64, loop, zeros
from weft.compile.emit.math import emit
from weft.compile.emit.vectors import (
    at,
    carry,
    first_lanes,
    load,
    minimum,
    store,
    transpose,
)  # fmt: skip
from weft.compile.targets.cpu.attention.blocks import (
    Emitters,
    exponential,
    filled,
    flag,
    larger,
)
from weft.compile.targets.cpu.attention.record import (
    enter_head,
    given,
    mask_at,
    read_job,
)
from weft.compile.targets.cpu.matmul.tasks import block_count, divide

_AT_A_TIME = 4  # rows of scores whose largest are found side by side


class Forward:
    """Emits ``forward_tasks``."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib
        self.width = i64(self.lib.tile.width)
        self.soften = self._emit_soften()
        self.cut = self._emit_cut()
        self.finish = self._emit_finish()

    def emit(self) -> ir.Function:
        """The body of a loop over tasks."""
        block = self._emit_block()
        lib = self.lib
        arguments = "*job begin end worker"
        with (
            lib.function("forward_tasks", arguments, public=True) as (b, s, function),
            loop(b, s.begin, s.end) as task,
        ):
            b.call(block, [s.job, s.worker, task])
        return function

    def _emit_block(self) -> ir.Function:
        """Some rows of one head."""
        lib, emitters = self.lib, self.emitters
        with lib.function("forward_block", "*job worker task") as (b, t, function):
            s = read_job(b, t.job, t.worker)
            head, block = divide(b, t.task, block_count(b, s.rows, s.block_rows))
            enter_head(b, s, head, lib.element)
            s.first = b.mul(block, s.block_rows)
            s.last = minimum(b, s.rows, b.add(s.first, s.block_rows))
            count = b.sub(s.last, s.first)
            q = at(b, s.q, b.mul(s.first, s.q_row), lib.element)
            b.call(
                emitters.transposed_panel,
                [q, s.q_row, s.transposed, s.depth, count, s.scale],
            )
            s.is_causal = b.trunc(s.causal, I1)
            seen = minimum(b, s.keys, s.last)
            s.limit = b.select(s.is_causal, seen, s.keys)
            with (
                loop(b, i64(0), s.limit, s.block_keys, name="j") as j,
                loop(b, s.first, s.last, self.width) as row,
            ):
                self._step(b, s, j, row)
            with loop(b, s.first, s.last, self.width) as row:
                p = self._panel(b, s, row)
                o = at(b, s.o, b.mul(row, s.width), lib.element)
                lse = at(b, s.lse, row, lib.element)
                lse = b.select(given(b, s.lse), lse, s.lse)
                b.call(self.finish, [p.out, p.tops, p.sums, o, lse, s.width,
                                     b.sub(s.last, row), s.zeros])  # fmt: skip
        return function

    def _panel(self, b: Any, s: Any, row: Any) -> Any:
        """The addresses of a panel of queries in the workspace."""
        element, past = self.lib.element, b.sub(row, s.first)
        return SimpleNamespace(
            transposed=at(b, s.transposed, b.mul(past, s.depth), element),
            out=at(b, s.other, b.mul(past, s.width), element),
            tops=at(b, s.tops, past, element),
            sums=at(b, s.sums, past, element),
        )

    def _step(self, b: Any, s: Any, j: Any, row: Any) -> None:
        """One block of keys for one panel of queries."""
        seen = b.sub(b.add(row, self.width), j)
        keys = minimum(b, s.block_keys, b.sub(s.limit, j))
        keys = b.select(s.is_causal, minimum(b, keys, seen), keys)
        with b.if_then(b.icmp_signed(">", keys, i64(0))):
            self._some_keys(b, s, j, row, keys)

    def _some_keys(self, b: Any, s: Any, j: Any, row: Any, keys: Any) -> None:
        lib, emitters, p = self.lib, self.emitters, self._panel(b, s, row)
        lanes = i64(lib.tile.lanes)
        rows = b.sub(s.last, row)
        across = b.select(b.icmp_signed("<=", rows, lanes), lanes, self.width)
        k = at(b, s.k, b.mul(j, s.k_row), lib.element)
        v = at(b, s.v, b.mul(j, s.v_row), lib.element)
        later = flag(b, b.icmp_signed(">", j, i64(0)))
        panel = [self.width, i64(0)]
        factors = [k, s.k_row, p.transposed, *panel, s.scores, self.width]
        b.call(emitters.by_rows, [*factors, keys, across, s.depth, i64(0)])
        if emitters.masked:
            self._mask(b, s, j, row, keys)
        hidden = b.icmp_signed(">", b.add(j, keys), b.add(row, i64(1)))
        with b.if_then(b.and_(s.is_causal, hidden)):
            b.call(self.cut, [s.scores, b.sub(row, j), keys])
        b.call(
            self.soften,
            [s.scores, p.tops, p.sums, p.out, keys, s.width, later],
        )
        b.call(emitters.by_columns, [v, s.v_row, s.scores, *panel, p.out, self.width,
                                  s.width, across, keys, later])  # fmt: skip

    def _mask(self, b: Any, s: Any, j: Any, row: Any, keys: Any) -> None:
        mask = mask_at(b, s, row, j, self.lib.element)
        rows = minimum(b, self.width, b.sub(s.last, row))
        strides = [s.mask_row, s.mask_col, s.mask_kind]
        b.call(self.emitters.mask_transposed, [s.scores, mask, *strides, rows, keys])

    # -- parts of a panel

    def _emit_cut(self) -> ir.Function:
        """Scores of keys behind a query are -infinity; ``shift`` is query - key."""
        lib, tile = self.lib, self.lib.tile
        low = filled(lib.vector, -math.inf)
        with lib.function("cut", "*scores shift keys") as (b, s, function):
            start = b.select(b.icmp_signed("<", s.shift, i64(0)), i64(0), s.shift)
            with loop(b, start, s.keys) as key:
                for v in range(tile.vectors):
                    behind = b.sub(b.sub(key, s.shift), i64(v * tile.lanes))
                    some = b.select(b.icmp_signed("<", behind, i64(0)), i64(0), behind)
                    place = b.add(b.mul(key, self.width), i64(v * tile.lanes))
                    here = at(b, s.scores, place, lib.element)
                    mask = first_lanes(b, some, tile.lanes)
                    store(b, b.select(mask, low, load(b, here, lib.vector)), here)
        return function

    def _emit_soften(self) -> ir.Function:
        """Make weights of scores, relative to the maximum so far."""
        lib, count = self.lib, range(self.lib.tile.vectors)
        arguments = "*scores *tops *sums *out keys width later"
        with lib.function("soften", arguments) as (b, s, function):
            later = b.trunc(s.later, I1)
            low, none = filled(lib.vector, -math.inf), zeros(lib.vector)
            places = [[self._at(b, p, 0, v) for v in count] for p in (s.tops, s.sums)]
            old, sums = (
                [b.select(later, load(b, p, lib.vector), first) for p in row]
                for row, first in zip(places, (low, none), strict=True)
            )
            tops = self._tops(b, s, old)
            base = [b.select(b.fcmp_ordered("==", t, low), none, t) for t in tops]
            fade = [
                exponential(b, lib, b.fsub(x, y))
                for x, y in zip(old, base, strict=True)
            ]
            added = self._weights(b, s, base, none)
            for v in count:
                total = b.fadd(b.fmul(sums[v], fade[v]), added[v])
                store(b, tops[v], places[0][v])
                store(b, total, places[1][v])
            self._fade(b, s, fade, later)
        return function

    def _at(self, b: Any, pointer: Any, row: Any, v: int) -> Any:
        """A vector of a row of a panel."""
        tile = self.lib.tile
        start = (
            i64(row * tile.width) if isinstance(row, int) else b.mul(row, self.width)
        )
        return at(b, pointer, b.add(start, i64(v * tile.lanes)), self.lib.element)

    def _tops(self, b: Any, s: Any, old: list[Any]) -> list[Any]:
        """The maxima of scores, with earlier ones."""
        lib, count = self.lib, self.lib.tile.vectors
        whole = b.and_(s.keys, i64(-_AT_A_TIME))

        def rise(row: Any, tops: list[Any]) -> list[Any]:
            scores = [
                load(b, self._at(b, s.scores, b.add(row, i64(k // count)), k % count),
                     lib.vector)
                for k in range(len(tops))
            ]  # fmt: skip
            return [larger(b, x, y) for x, y in zip(scores, tops, strict=True)]

        tops = carry(b, i64(0), whole, _AT_A_TIME, old * _AT_A_TIME, rise)
        tops = [
            larger(b, larger(b, tops[v], tops[v + count]),
                    larger(b, tops[v + 2 * count], tops[v + 3 * count]))
            for v in range(count)
        ]  # fmt: skip
        return carry(b, whole, s.keys, 1, tops, rise)

    def _weights(self, b: Any, s: Any, base: list[Any], none: Any) -> list[Any]:
        """Exponentials in the place of scores, and their sums."""
        lib, count = self.lib, range(self.lib.tile.vectors)

        def row(key: Any, sums: list[Any]) -> list[Any]:
            made = []
            for v in count:
                here = self._at(b, s.scores, key, v)
                value = exponential(b, lib, b.fsub(load(b, here, lib.vector), base[v]))
                store(b, value, here)
                made.append(b.fadd(sums[v], value))
            return made

        return carry(b, i64(0), s.keys, 1, [none for _ in count], row)

    def _fade(self, b: Any, s: Any, fade: list[Any], later: Any) -> None:
        """Rescale earlier sums, unless the maxima stayed the same."""
        lib = self.lib
        one = filled(lib.vector, 1.0)
        moved = ir.Constant(I1, 0)
        for value in fade:
            mask = b.fcmp_unordered("!=", value, one)
            bits = b.bitcast(mask, ir.IntType(lib.tile.lanes))
            moved = b.or_(moved, b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)))
        with b.if_then(b.and_(later, moved)), loop(b, i64(0), s.width) as row:
            for v, value in enumerate(fade):
                here = self._at(b, s.out, row, v)
                store(b, b.fmul(load(b, here, lib.vector), value), here)

    def _emit_finish(self) -> ir.Function:
        """Divide by the sums, and transpose a panel back into rows of the output."""
        lib, tile = self.lib, self.lib.tile
        arguments = "*panel *tops *sums *o *lse width rows zeros"
        with lib.function("finish", arguments) as (b, s, function):
            for v in range(tile.vectors):
                some = b.icmp_signed(">", s.rows, i64(v * tile.lanes))
                with b.if_then(some):
                    self._finish(b, s, v)
        return function

    def _finish(self, b: Any, s: Any, v: int) -> None:
        lib, tile = self.lib, self.lib.tile
        zero, one = zeros(lib.vector), filled(lib.vector, 1.0)
        sums, tops = (
            load(b, self._at(b, p, 0, v), lib.vector) for p in (s.sums, s.tops)
        )
        nobody = b.fcmp_ordered("==", sums, zero)
        wrong = filled(lib.vector, math.nan)
        other = b.select(b.trunc(s.zeros, I1), zero, wrong)
        factor = b.select(nobody, other, b.fdiv(one, sums))
        rows = b.sub(s.rows, i64(v * tile.lanes))
        with b.if_then(given(b, s.lse)):
            log = emit("log", b, sums, fused=lib.isa.fused)
            total = b.fadd(b.fadd(tops, log), b.select(nobody, other, zero))
            mask = first_lanes(b, rows, tile.lanes)
            store(b, total, self._at(b, s.lse, 0, v), mask)
        last = b.sub(s.width, i64(1))
        with loop(b, i64(0), s.width, i64(tile.lanes), name="d") as d:
            columns = []
            for lane in range(tile.lanes):  # features beyond the last repeat it
                row = minimum(b, b.add(d, i64(lane)), last)
                value = load(b, self._at(b, s.panel, row, v), lib.vector)
                columns.append(b.fmul(value, factor))
            mask = first_lanes(b, b.sub(s.width, d), tile.lanes)
            for lane, value in enumerate(transpose(b, columns)):
                with b.if_then(b.icmp_signed(">", rows, i64(lane))):
                    place = b.add(b.mul(s.width, i64(v * tile.lanes + lane)), d)
                    store(b, value, at(b, s.o, place, lib.element), mask)
