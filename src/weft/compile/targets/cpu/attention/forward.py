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

from weft.compile.emit.control_flow import zeros
from weft.compile.emit.flow import carry, loop, when
from weft.compile.emit.values import call, minimum, select
from weft.compile.emit.vectors import first_lanes, transpose
from weft.compile.targets.cpu.attention.blocks import (
    Emitters,
    exponential,
    larger,
    logarithm,
)
from weft.compile.targets.cpu.attention.record import JOB, enter_head, mask_at
from weft.compile.targets.cpu.matmul.tasks import TASKS, block_count, divide, read_job

_AT_A_TIME = 4  # rows of scores whose largest are found side by side


class Forward:
    """Emits ``forward_tasks``."""

    def __init__(self, emitters: Emitters) -> None:
        self.emitters, self.lib = emitters, emitters.lib
        self.width = self.lib.tile.width
        self.soften = self._emit_soften()
        self.cut = self._emit_cut()
        self.finish = self._emit_finish()

    def emit(self) -> ir.Function:
        """The body of a loop over tasks."""
        block = self._emit_block()
        lib = self.lib
        with (
            lib.function("forward_tasks", TASKS, public=True) as (s, function),
            loop(s.begin, s.end) as task,
        ):
            call(block, [s.job, s.worker, task])
        return function

    def _emit_block(self) -> ir.Function:
        """Some rows of one head."""
        lib, emitters = self.lib, self.emitters
        with lib.function("forward_block", "i64*job worker task") as (t, function):
            s = read_job(lib, JOB, t.job, t.worker)
            head, block = divide(t.task, block_count(s.rows, s.block_rows))
            enter_head(s, head)
            s.first = block * s.block_rows
            s.last = minimum(s.rows, s.first + s.block_rows)
            count = s.last - s.first
            q = s.q + s.first * s.q_row
            call(
                emitters.transposed_panel,
                [q, s.q_row, s.transposed, s.depth, count, s.scale],
            )
            s.is_causal = s.causal.holds()
            seen = minimum(s.keys, s.last)
            s.limit = select(s.is_causal, seen, s.keys)
            with (
                loop(0, s.limit, s.block_keys, name="j") as j,
                loop(s.first, s.last, self.width) as row,
            ):
                self._step(s, j, row)
            with loop(s.first, s.last, self.width) as row:
                p = self._panel(s, row)
                o = s.o + row * s.width
                lse = select(s.lse.is_given(), s.lse + row, s.lse)
                call(
                    self.finish,
                    [p.out, p.tops, p.sums, o, lse, s.width, s.last - row, s.zeros],
                )
        return function

    def _panel(self, s: Any, row: Any) -> Any:
        """The addresses of a panel of queries in the workspace."""
        past = row - s.first
        return SimpleNamespace(
            transposed=s.transposed + past * s.depth,
            out=s.other + past * s.width,
            tops=s.tops + past,
            sums=s.sums + past,
        )

    def _step(self, s: Any, j: Any, row: Any) -> None:
        """One block of keys for one panel of queries."""
        seen = row + self.width - j
        keys = minimum(s.block_keys, s.limit - j)
        keys = select(s.is_causal, minimum(keys, seen), keys)
        with when(keys > 0):
            self._some_keys(s, j, row, keys)

    def _some_keys(self, s: Any, j: Any, row: Any, keys: Any) -> None:
        lib, emitters, p = self.lib, self.emitters, self._panel(s, row)
        lanes = lib.tile.lanes
        rows = s.last - row
        across = select(rows <= lanes, lanes, self.width)
        k = s.k + j * s.k_row
        v = s.v + j * s.v_row
        later = (j > 0).unsigned()
        panel = [self.width, 0]
        factors = [k, s.k_row, p.transposed, *panel, s.scores, self.width]
        call(emitters.by_rows, [*factors, keys, across, s.depth, 0])
        if emitters.masked:
            self._mask(s, j, row, keys)
        hidden = j + keys > row + 1
        with when(s.is_causal & hidden):
            call(self.cut, [s.scores, row - j, keys])
        call(self.soften, [s.scores, p.tops, p.sums, p.out, keys, s.width, later])
        call(
            emitters.by_columns,
            [
                v,
                s.v_row,
                s.scores,
                *panel,
                p.out,
                self.width,
                s.width,
                across,
                keys,
                later,
            ],
        )

    def _mask(self, s: Any, j: Any, row: Any, keys: Any) -> None:
        mask = mask_at(s, row, j)
        rows = minimum(self.width, s.last - row)
        strides = [s.mask_row, s.mask_col, s.mask_kind]
        call(self.emitters.mask_transposed, [s.scores, mask, *strides, rows, keys])

    # -- parts of a panel

    def _emit_cut(self) -> ir.Function:
        """Scores of keys behind a query are -infinity; ``shift`` is query - key."""
        lib, tile = self.lib, self.lib.tile
        with lib.function("cut", "*scores shift keys") as (s, function):
            start = select(s.shift < 0, 0, s.shift)
            with loop(start, s.keys) as key:
                for v in range(tile.vectors):
                    behind = key - s.shift - v * tile.lanes
                    some = select(behind < 0, 0, behind)
                    here = self._at(s.scores, key, v)
                    mask = first_lanes(some, tile.lanes)
                    here.store(select(mask, -math.inf, here.load(lib.vector)))
        return function

    def _emit_soften(self) -> ir.Function:
        """Make weights of scores, relative to the maximum so far."""
        lib, count = self.lib, range(self.lib.tile.vectors)
        arguments = "*scores *tops *sums *out keys width later"
        with lib.function("soften", arguments) as (s, function):
            later = s.later.holds()
            places = [[self._at(p, 0, v) for v in count] for p in (s.tops, s.sums)]
            old, sums = (
                [select(later, p.load(lib.vector), first) for p in row]
                for row, first in zip(places, (-math.inf, 0.0), strict=True)
            )
            tops = self._tops(s, old)
            base = [select(t.equals(-math.inf), 0.0, t) for t in tops]
            fade = [exponential(lib, x - y) for x, y in zip(old, base, strict=True)]
            added = self._weights(s, base)
            for v in count:
                total = sums[v] * fade[v] + added[v]
                places[0][v].store(tops[v])
                places[1][v].store(total)
            self._fade(s, fade, later)
        return function

    def _at(self, pointer: Any, row: Any, v: int) -> Any:
        """A vector of a row of a panel."""
        tile = self.lib.tile
        return pointer + (row * tile.width + v * tile.lanes)

    def _tops(self, s: Any, old: list[Any]) -> list[Any]:
        """The maxima of scores, with earlier ones."""
        lib, count = self.lib, self.lib.tile.vectors
        whole = s.keys & -_AT_A_TIME

        def rise(row: Any, tops: list[Any]) -> list[Any]:
            scores = [
                self._at(s.scores, row + k // count, k % count).load(lib.vector)
                for k in range(len(tops))
            ]
            return [larger(x, y) for x, y in zip(scores, tops, strict=True)]

        tops = carry(0, whole, _AT_A_TIME, old * _AT_A_TIME, rise)
        tops = [
            larger(
                larger(tops[v], tops[v + count]),
                larger(tops[v + 2 * count], tops[v + 3 * count]),
            )
            for v in range(count)
        ]
        return carry(whole, s.keys, 1, tops, rise)

    def _weights(self, s: Any, base: list[Any]) -> list[Any]:
        """Exponentials in the place of scores, and their sums."""
        lib, count = self.lib, range(self.lib.tile.vectors)

        def row(key: Any, sums: list[Any]) -> list[Any]:
            made = []
            for v in count:
                here = self._at(s.scores, key, v)
                value = exponential(lib, here.load(lib.vector) - base[v])
                here.store(value)
                made.append(sums[v] + value)
            return made

        return carry(0, s.keys, 1, [zeros(lib.vector) for _ in count], row)

    def _fade(self, s: Any, fade: list[Any], later: Any) -> None:
        """Rescale earlier sums, unless the maxima stayed the same."""
        lib = self.lib
        moved: Any = False
        for value in fade:
            bits = value.differs(1.0).bitcast(ir.IntType(lib.tile.lanes))
            moved |= bits.differs(0)
        with when(later & moved), loop(s.width) as row:
            for v, value in enumerate(fade):
                here = self._at(s.out, row, v)
                here.store(here.load(lib.vector) * value)

    def _emit_finish(self) -> ir.Function:
        """Divide by the sums, and transpose a panel back into rows of the output."""
        lib, tile = self.lib, self.lib.tile
        arguments = "*panel *tops *sums *o *lse width rows zeros"
        with lib.function("finish", arguments) as (s, function):
            for v in range(tile.vectors):
                with when(s.rows > v * tile.lanes):
                    self._finish(s, v)
        return function

    def _finish(self, s: Any, v: int) -> None:
        lib, tile = self.lib, self.lib.tile
        sums, tops = (self._at(p, 0, v).load(lib.vector) for p in (s.sums, s.tops))
        nobody = sums.equals(0.0)
        other = select(s.zeros.holds(), zeros(lib.vector), sums.like(math.nan))
        factor = select(nobody, other, 1.0 / sums)
        rows = s.rows - v * tile.lanes
        with when(s.lse.is_given()):
            log = logarithm(lib, sums)
            total = tops + log + select(nobody, other, 0.0)
            mask = first_lanes(rows, tile.lanes)
            self._at(s.lse, 0, v).store(total, mask)
        last = s.width - 1
        with loop(0, s.width, tile.lanes, name="d") as d:
            columns = []
            for lane in range(tile.lanes):  # features beyond the last repeat it
                row = minimum(d + lane, last)
                value = self._at(s.panel, row, v).load(lib.vector)
                columns.append(value * factor)
            mask = first_lanes(s.width - d, tile.lanes)
            for lane, value in enumerate(transpose(columns)):
                with when(rows > lane):
                    place = s.width * (v * tile.lanes + lane) + d
                    (s.o + place).store(value, mask)
