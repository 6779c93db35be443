"""Attention and its gradients on Hopper: warpgroups fed by bulk tensor copies.

    void name(map of each array that tiles are copied of, the other arrays' addresses,
              scale, m, n, depth, inner, matrices, strides of the other arrays,
              whether the mapped arrays have other matrices: outer, inner)

The formulas and what walks over what are those of ``targets.cuda.attention``. A block
has a warpgroup that copies and two or three that multiply, each with 64 rows of the
block's own. Products are begun and waited for apart: a step's scores are being made
while the product of the step before is, and tiles of later steps are on their way.

A block walks over pairs of its own tiles, one from each end of a matrix: with a causal
mask one of them has as much less work as the other one has more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import F32, I32, I64, loop, when
from weft.compile.emit.values import Value, fma, select
from weft.compile.targets.cuda import attention as common
from weft.compile.targets.cuda import warpgroups as wg
from weft.compile.targets.cuda.attention import (
    INPUTS,
    LOG2E,
    OUTPUTS,
    STRIDES,
    Scores,
    Variables,
)
from weft.compile.targets.cuda.cost_model import COST, WarpgroupAttention
from weft.compile.targets.cuda.kernel import barrier, special
from weft.compile.targets.cuda.tensor_cores import (
    copy_later,
    exp2,
    load_pair,
    shortened,
)

# The arrays whose tiles are copied: a block's own, and those it walks over.
OWN = {"forward": ("q",), "queries": ("q", "g"), "keys": ("k", "v")}
OTHERS = {"forward": ("k", "v"), "queries": ("k", "v"), "keys": ("q", "g")}
SIZES = (*common.SIZES, "matrices")
# Of threads that copy and multiply, by groups. A launch has as many for all threads, a
# multiple of 8; together they must not be more, or the block waits for ever.
REGISTERS = {2: (24, 240), 3: (32, 160)}
_COPIED = 4  # bytes of lse and delta


class Form(NamedTuple):
    """Which function it is."""

    kind: str  # of attention.ARRAYS
    dtype: str
    depth: int  # one of attention.DEPTHS
    causal: bool

    @property
    def name(self) -> str:
        causal = "causal_" * self.causal
        return f"warpgroup_attention_{causal}{self.kind}_{self.dtype}_{self.depth}"

    @property
    def shape(self) -> WarpgroupAttention:
        return COST.warpgroup_attention[self.kind, self.depth]

    @property
    def rows(self) -> int:
        """The rows of a block's own tile."""
        return 64 * self.shape.groups

    @property
    def threads(self) -> int:
        return (self.shape.groups + 1) * wg.GROUP

    @property
    def maps(self) -> tuple[str, ...]:
        """The arrays whose tiles are copied."""
        return (*OWN[self.kind], *OTHERS[self.kind])

    @property
    def plain(self) -> tuple[str, ...]:
        """The other arrays."""
        names = (*INPUTS[self.kind], *OUTPUTS[self.kind])
        return tuple(name for name in names if name not in self.maps)

    @property
    def arguments(self) -> list[str]:
        """The names of the numbers that follow the maps."""
        strides = [f"{name}.{kind}" for name in self.plain for kind in STRIDES]
        steps = [f"{name}.{kind}" for name in self.maps for kind in STRIDES[:2]]
        return [*self.plain, *SIZES, *strides, *steps]

    @property
    def own_bytes(self) -> int:
        return len(OWN[self.kind]) * wg.tile_bytes(self.rows, self.depth)

    @property
    def stage_bytes(self) -> int:
        """The bytes of a tile of others."""
        return wg.tile_bytes(self.shape.step, self.depth)

    @property
    def number_bytes(self) -> int:
        """The bytes of lse and delta for a tile of queries."""
        return 2 * _COPIED * self.shape.step * (self.kind == "keys")

    @property
    def block_memory(self) -> int:
        """The bytes that a block's threads share."""
        own, stages, groups = self.shape.own, self.shape.stages, self.shape.groups
        return (
            own * self.own_bytes + stages * (self.stage_bytes + self.number_bytes)
            + 4 * groups * wg.STAGED + wg.Ring.barrier_bytes(own + stages)
            + wg.ALIGNMENT
        )  # fmt: skip

    def blocks(self, own: int, matrices: int) -> int:
        """How many pairs of tiles there are for so many own rows."""
        tiles = -(-own // self.rows)
        return (tiles + 1) // 2 * matrices


def emit_warpgroup_attention(module: ir.Module, form: Form) -> None:
    """Add one of the three kernels to a module."""
    kernel = _Kernel(module, form)
    b = kernel.b
    multiply = {"forward": _forward, "queries": _queries, "keys": _keys}[form.kind]
    copying, multiplying = REGISTERS[form.shape.groups]
    with b.if_else(kernel.group.equals(0).ir) as (copies, products):
        with copies:
            wg.keep_registers(b, copying, more=False)
            with when(b, (kernel.thread < 32).ir):
                kernel.copy_tiles()
        with products:
            wg.keep_registers(b, multiplying, more=True)
            multiply(kernel)
    b.ret_void()


class _Tile(NamedTuple):
    """A block's own tile: its matrix, its first row, and the steps over the others."""

    outer: Value
    inner: Value
    first: Value
    start: Value
    stop: Value


class _Kernel(Scores):
    """The parts that all three share: arguments, memory, tiles, copies."""

    def __init__(self, module: ir.Module, form: Form) -> None:
        self.form, self.shape, self.step = form, form.shape, form.shape.step
        names, maps = form.arguments, len(form.maps)
        function = wg.declare_kernel(module, form.name, maps, len(names), form.threads)
        b = self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.maps = {
            name: Value(b, b.ptrtoint(x, I64))
            for name, x in zip(form.maps, function.args, strict=False)
        }
        self.describe(names, function.args[maps:])
        self.thread = Value(b, b.trunc(special(b, "tid.x"), I32))
        self.group, self.lane = self.thread.shift_right(7), self.thread & 31
        self.pair = (self.lane & 3) << 1
        self.warp = self.thread.shift_right(5) - 4  # of those that multiply
        self.extent = 64
        self._lay_out(module)

    def _lay_out(self, module: ir.Module) -> None:
        form, shape, b = self.form, self.shape, self.b
        readers = 4 * shape.groups
        own = wg.block_memory(b, module)
        others = own + shape.own * form.own_bytes
        self.numbers = others + shape.stages * form.stage_bytes
        self.staged = self.numbers + shape.stages * form.number_bytes
        barriers = self.staged + readers * wg.STAGED
        self.own = wg.Ring(own, barriers, shape.own, form.own_bytes)
        barriers = barriers + wg.Ring.barrier_bytes(shape.own)
        self.others = wg.Ring(others, barriers, shape.stages, form.stage_bytes)
        with when(b, self.thread.equals(0).ir):
            self.own.prepare(lambda stage: 1, readers)
            self.others.prepare(self._copies, readers)
            wg.publish_barriers(b)
        barrier(b)

    def _copies(self, stage: int) -> int:
        """How many threads copy to a stage: all of a warp bring numbers of rows."""
        return 33 if self.form.number_bytes and stage % 2 == 0 else 1

    # -- own tiles

    @contextmanager
    def tiles(self) -> Iterator[_Tile]:
        """The loop over a block's own tiles, two of a matrix after another."""
        b, rows = self.b, self.form.rows
        count = self.divided(self.own_limit + (rows - 1), rows)
        pairs = (count + 1).shift_right(1)
        first, step = special(b, "ctaid.x"), special(b, "nctaid.x")
        with loop(b, first, (pairs * self.at["matrices"]).ir, step, name="pair") as i:
            number = Value(b, i)
            matrix = self.divided(number, pairs)
            near = number - matrix * pairs
            outer = self.divided(matrix, self.at["inner"])
            inner = matrix - outer * self.at["inner"]
            far = count - 1 - near
            with loop(b, I64(0), I64(2), name="half") as half:
                second = Value(b, half).equals(1)
                own = select(second, near, far)
                with when(b, b.not_(b.and_(second.ir, near.equals(far).ir))):
                    at = own * rows
                    yield _Tile(outer, inner, at, *self.steps(at, rows))

    def enter(self, tile: _Tile) -> None:
        """Let the warpgroup's rows of a tile be this thread's."""
        self.first = tile.first + (self.group - 1).convert("zext", I64) * 64
        self.arrays = {
            name: self.matrix(name, tile.outer, tile.inner) for name in self.form.plain
        }

    def own_rows(self, tile: int) -> list[Value]:
        row = (self.warp & 3) * 16 + self.lane.shift_right(2)
        first = self.first + row.convert("zext", I64)
        return [first, first + 8]

    def own_side(self, turn: wg.Turn, which: int) -> wg.Side:
        """The warpgroup's rows of one of the own arrays, as a left operand."""
        rows, depth = self.form.rows, self.form.depth
        place = turn.place + which * wg.tile_bytes(rows, depth)
        half = place + (self.group - 1) * (64 * wg.PITCH)
        return wg.side(half, rows, depth)

    # -- the copying warp

    def copy_tiles(self) -> None:
        b, form = self.b, self.form
        zero = Value(b, I32(0))
        own_count, count = Variables(b, [zero]), Variables(b, [zero])
        with when(b, self.lane.equals(0).ir):
            for tensor_map in self.maps.values():
                wg.prefetch_map(tensor_map)
        with self.tiles() as tile:
            if form.number_bytes:
                self.enter(tile)
            (at,) = own_count.load()
            turn = self.own.turn(at)
            wg.wait_empty(turn)
            with when(b, self.lane.equals(0).ir):
                wg.expect(turn, form.own_bytes)
                for which, name in enumerate(OWN[form.kind]):
                    place = turn.place + which * wg.tile_bytes(form.rows, form.depth)
                    self._copy(name, place, tile, tile.first, form.rows, turn.full)
            own_count.store([at + 1])
            with loop(b, tile.start.ir, tile.stop.ir, name="other") as i:
                first = Value(b, i) * self.step
                for which, name in enumerate(OTHERS[form.kind]):
                    (at,) = count.load()
                    turn = self.others.turn(at)
                    wg.wait_empty(turn)
                    with when(b, self.lane.equals(0).ir):
                        wg.expect(turn, form.stage_bytes)
                        self._copy(name, turn.place, tile, first, self.step, turn.full)
                    if form.number_bytes and not which:
                        self._copy_numbers(at, first, turn.full)
                    count.store([at + 1])

    def _copy(
        self, name: str, to: Value, tile: _Tile, first: Value, rows: int, full: Value
    ) -> None:
        """Begin to copy rows of a matrix, 64 features at a time."""
        far, near = (
            (number * self.at[f"{name}.{kind}"]).convert("trunc", I32)
            for number, kind in ((tile.outer, "outer"), (tile.inner, "inner"))
        )
        row = first.convert("trunc", I32)
        for column in range(0, self.form.depth, wg.SIDE):
            at = (Value(self.b, I32(column)), row, near, far)
            place = to + column // wg.SIDE * (rows * wg.PITCH)
            wg.copy_box(place, self.maps[name], at, full)

    def numbers_at(self, count: Value) -> Value:
        """Where lse and delta of a stage's queries are."""
        stage = count - self.divided(count, self.shape.stages) * self.shape.stages
        return self.numbers + stage * self.form.number_bytes

    def _copy_numbers(self, count: Value, first: Value, full: Value) -> None:
        """Begin to copy lse and delta of queries; zeros outside."""
        to = self.numbers_at(count)
        for which, name in enumerate(("lse", "delta")):
            array = self.arrays[name]
            for near in range(0, self.step, 32):
                index = self.lane + near
                row = first + index.convert("zext", I64)
                there = row < self.limit
                place = select(there, array.start + row * array.pitch, array.start)
                at = to + (index + which * self.step) * _COPIED
                copy_later(at, place, _COPIED, there)
        wg.arrive_with_copies(full)

    # -- results

    def write(self, name: str, sums: Sequence[Value], factors: Sequence[Value]) -> None:
        """Store the rows of a result, each number times its row's factor."""
        with when(self.b, self.wanted(name)):
            array = self.arrays[name]
            first = self.first + ((self.warp & 3) * 16).convert("zext", I64)
            scaled = [x * factors[k % 4 // 2] for k, x in enumerate(sums)]
            wg.store_rows(
                self.form.dtype, scaled, self.staged + self.warp * wg.STAGED,
                self.lane, array.start + first * array.pitch, array.pitch,
                self.own_limit - first, self.width,
            )  # fmt: skip

    # -- the walk of those that multiply

    def zeros(self, columns: int) -> list[Value]:
        return [Value(self.b, F32(0.0))] * (columns // 2)

    def begin_scores(self, own: wg.Side, turn: wg.Turn) -> list[Value]:
        """Begin the products of own rows with a tile's rows."""
        other = wg.side(turn.place, self.step, self.form.depth)
        sums = self.zeros(self.step)
        return wg.begin_product(self.form.dtype, own, other, sums, False)

    def begin_sums(
        self, weights: Sequence[Any], turn: wg.Turn, sums: Sequence[Value], more: Any
    ) -> list[Value]:
        """Begin to add the product of weights, made short, and a tile's rows."""
        other = wg.side_by_terms(turn.place, self.step)
        return wg.begin_product(self.form.dtype, weights, other, sums, more)

    def short(self, weights: Sequence[Value]) -> list[list[Value]]:
        """Weights as a left operand: four registers for each 16 columns."""
        pairs = [
            shortened(self.form.dtype, *weights[k : k + 2])
            for k in range(0, len(weights), 2)
        ]
        return wg.fours(pairs)

    def flag(self, condition: Any) -> Value:
        return Value(self.b, self.b.zext(condition, I32))


def _forward(kernel: _Kernel) -> None:
    """The output and the logarithms of sums, with the largest score kept apart."""
    b, form, lane = kernel.b, kernel.form, kernel.lane
    zero, lowest = Value(b, F32(0.0)), Value(b, F32(float("-inf")))
    counts = Variables(b, [Value(b, I32(0))] * 2)
    out = Variables(b, kernel.zeros(form.depth))
    tops, totals = Variables(b, [[lowest] * 2]), Variables(b, [[zero] * 2])
    none = Value(b, I32(0))
    kept = Variables(b, [[none] * 4 for _ in range(kernel.step // 16)])

    def weigh(scores: list[Value], first: Value) -> tuple[Any, Any]:
        """Weights of scores; what was summed before shrinks."""
        hidden = kernel.hide([wg.fours(scores)], first, float("-inf"))
        weights, shrink, top = common.softened(kernel, hidden, tops.load())
        totals.store(common.added(totals.load(), shrink, weights))
        tops.store(top)
        return wg.flat(weights[0]), shrink[0]

    with kernel.tiles() as tile:
        kernel.enter(tile)
        own_count, count = counts.load()
        own = kernel.own.turn(own_count)
        wg.wait_full(own)
        queries = kernel.own_side(own, 0)
        tops.store([[lowest] * 2])
        totals.store([[zero] * 2])
        turn = kernel.others.turn(count)
        wg.wait_full(turn)
        scores = wg.finish(kernel.begin_scores(queries, turn), 0)
        wg.release(turn, lane)
        weights, _ = weigh(scores, tile.start * kernel.step)
        kept.store(kernel.short(weights))
        counts.store([own_count, count + 1])
        with loop(b, (tile.start + 1).ir, tile.stop.ir, name="other") as i:
            number = Value(b, i)
            _, count = counts.load()
            values, keys = kernel.others.turn(count), kernel.others.turn(count + 1)
            wg.wait_full(keys)
            scores = kernel.begin_scores(queries, keys)
            wg.wait_full(values)
            more = kernel.flag((number > tile.start + 1).ir)
            sums = kernel.begin_sums(kept.load(), values, out.load(), more)
            scores = wg.finish(scores, 1)
            wg.release(keys, lane)
            weights, shrink = weigh(scores, number * kernel.step)
            sums = wg.finish(sums, 0)
            wg.release(values, lane)
            out.store([x * shrink[k % 4 // 2] for k, x in enumerate(sums)])
            kept.store(kernel.short(weights))
            counts.store([own_count, count + 2])
        wg.release(own, lane)
        _, count = counts.load()
        values = kernel.others.turn(count)
        wg.wait_full(values)
        more = kernel.flag((tile.stop > tile.start + 1).ir)
        sums = kernel.begin_sums(kept.load(), values, out.load(), more)
        sums = wg.finish(sums, 0)
        wg.release(values, lane)
        counts.store([own_count + 1, count + 1])
        total = common.over_rows(totals.load())
        kernel.write("o", sums, [1.0 / x for x in total[0]])
        common.write_lse(kernel, tops.load(), total)


def _queries(kernel: _Kernel) -> None:
    """The gradient of queries."""
    b, form, lane = kernel.b, kernel.form, kernel.lane
    counts = Variables(b, [Value(b, I32(0))] * 2)
    sums = Variables(b, kernel.zeros(form.depth))
    with kernel.tiles() as tile:
        kernel.enter(tile)
        rows = kernel.own_rows(0)
        lse = [kernel.number_of("lse", row) * LOG2E for row in rows]
        delta = [kernel.number_of("delta", row) for row in rows]
        own_count, _ = counts.load()
        own = kernel.own.turn(own_count)
        wg.wait_full(own)
        queries, slopes_of = kernel.own_side(own, 0), kernel.own_side(own, 1)
        with loop(b, tile.start.ir, tile.stop.ir, name="other") as i:
            number = Value(b, i)
            _, count = counts.load()
            keys, values = kernel.others.turn(count), kernel.others.turn(count + 1)
            wg.wait_full(keys)
            scores = kernel.begin_scores(queries, keys)
            wg.wait_full(values)
            slopes = kernel.begin_scores(slopes_of, values)
            scores = wg.finish(scores, 1)
            weights = [
                exp2(fma(x, kernel.factor, -lse[k % 4 // 2]))
                for k, x in enumerate(scores)
            ]
            (hidden,) = kernel.hide([wg.fours(weights)], number * kernel.step, 0.0)
            slopes = wg.finish(slopes, 0)
            wg.release(values, lane)
            slopes = [
                (x - delta[k % 4 // 2]) * p
                for k, (x, p) in enumerate(zip(slopes, wg.flat(hidden), strict=True))
            ]
            more = kernel.flag((number > tile.start).ir)
            made = kernel.begin_sums(kernel.short(slopes), keys, sums.load(), more)
            sums.store(wg.finish(made, 0))
            wg.release(keys, lane)
            counts.store([own_count, count + 2])
        wg.release(own, lane)
        _, count = counts.load()
        counts.store([own_count + 1, count])
        kernel.write("dq", sums.load(), [kernel.scale] * 2)


def _keys(kernel: _Kernel) -> None:
    """The gradients of keys and values."""
    b, form, lane = kernel.b, kernel.form, kernel.lane
    counts = Variables(b, [Value(b, I32(0))] * 2)
    empty = kernel.zeros(form.depth)
    of_keys, of_values = Variables(b, empty), Variables(b, empty)
    once = Value(b, F32(1.0))
    with kernel.tiles() as tile:
        kernel.enter(tile)
        of_keys.store(empty)  # a key that no query sees has no step
        of_values.store(empty)
        own_count, _ = counts.load()
        own = kernel.own.turn(own_count)
        wg.wait_full(own)
        keys, values = kernel.own_side(own, 0), kernel.own_side(own, 1)
        with loop(b, tile.start.ir, tile.stop.ir, name="other") as i:
            _, count = counts.load()
            queries, slopes_of = (
                kernel.others.turn(count), kernel.others.turn(count + 1)
            )  # fmt: skip
            wg.wait_full(queries)
            scores = kernel.begin_scores(keys, queries)
            wg.wait_full(slopes_of)
            slopes = kernel.begin_scores(values, slopes_of)
            numbers = kernel.numbers_at(count) + kernel.pair * _COPIED
            lse, delta = (_of_columns(kernel, numbers, which) for which in range(2))
            scores = wg.finish(scores, 1)
            weights = [
                exp2(fma(x, kernel.factor, -(n * LOG2E)))
                for x, n in zip(scores, lse, strict=True)
            ]
            (hidden,) = kernel.hide([wg.fours(weights)], Value(b, i) * kernel.step, 0.0)
            weights = wg.flat(hidden)
            made = kernel.begin_sums(
                kernel.short(weights), slopes_of, of_values.load(), True
            )
            slopes = wg.finish(slopes, 1)
            slopes = [
                (x - n) * p for x, n, p in zip(slopes, delta, weights, strict=True)
            ]
            more = kernel.begin_sums(
                kernel.short(slopes), queries, of_keys.load(), True
            )
            of_values.store(wg.finish(made, 1))
            wg.release(slopes_of, lane)
            of_keys.store(wg.finish(more, 0))
            wg.release(queries, lane)
            counts.store([own_count, count + 2])
        wg.release(own, lane)
        _, count = counts.load()
        counts.store([own_count + 1, count])
        kernel.write("dk", of_keys.load(), [kernel.scale] * 2)
        kernel.write("dv", of_values.load(), [once] * 2)


def _of_columns(kernel: _Kernel, place: Value, which: int) -> list[Value]:
    """A number of each query that a block walks over, as they are beside scores."""
    found = []
    for column in range(0, kernel.step, 8):
        pair = load_pair(kernel.b, place + (column + which * kernel.step) * _COPIED)
        found += [*pair, *pair]
    return found
