"""Half-precision matrix products on Hopper: warpgroups fed by bulk tensor copies.

    void name(map of A, map of B, T* c, m, n, k, count, c's pitch and batch stride,
              whether A is another one for each matrix, and B)

A block is three warpgroups. One thread of the first copies tiles of the operands into a
ring of stages in the block's memory (``cp.async.bulk.tensor``); the other two multiply
them (``wgmma``), 64 rows of the block's 128 each, and keep float32 sums in registers.
Barriers in memory pass the stages to and fro: ``full`` when a stage's bytes are there,
``empty`` when the warps of both warpgroups have read it. Blocks walk over tiles of C
until there are none; while sums are rounded and stored, the next tile is being copied.

Tiles are 128 bytes wide in memory, with the chunks of 16 bytes exchanged as the copy
engine and the tensor cores agree (the 128-byte swizzle). An operand may have its rows
or its columns contiguous, and is read as it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import F32, I32, I64, loop, when
from weft.compile.emit.values import Value, select
from weft.compile.targets.cuda import warpgroups as wg
from weft.compile.targets.cuda.attention import Variables
from weft.compile.targets.cuda.kernel import barrier, special

ROWS = 128  # of C for a block
DEPTH = wg.SIDE  # columns of A and rows of B in a stage
THREADS = 3 * wg.GROUP
STAGES = {256: 4, 128: 6}  # by the columns of C for a block
SIZES = ("c", "m", "n", "k", "count", "pitch", "batch", "a_step", "b_step")
_NEAR = 16  # rows of tiles whose columns are walked over together, for the cache
_REGISTERS = {"copies": 24, "products": 240}  # of a thread


class Form(NamedTuple):
    """Which function it is."""

    dtype: str
    left: bool  # whether A is stored by columns
    right: bool  # whether B is
    width: int  # columns of C for a block, one of STAGES

    @property
    def name(self) -> str:
        sides = "".join("ct"[by_columns] for by_columns in (self.left, self.right))
        return f"warpgroup_product_{self.dtype}_{sides}_{self.width}"

    @property
    def stage(self) -> int:
        """The bytes of a stage."""
        return wg.tile_bytes(ROWS + self.width, DEPTH)

    @property
    def block_memory(self) -> int:
        """The bytes that a block's threads share."""
        stages = STAGES[self.width]
        barriers = wg.Ring.barrier_bytes(stages)
        return stages * self.stage + 8 * wg.STAGED + barriers + wg.ALIGNMENT

    def boxes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The contiguous and the other extent of what one copy of A and B brings."""
        left = (wg.SIDE, DEPTH) if self.left else (DEPTH, ROWS)
        right = (DEPTH, self.width) if self.right else (wg.SIDE, DEPTH)
        return left, right

    def tiles(self, m: int, n: int, count: int) -> int:
        """The number of tiles of C."""
        return -(-m // ROWS) * -(-n // self.width) * count


def emit_warpgroup_product(module: ir.Module, form: Form) -> None:
    """Add C = A @ B to a module; ``count`` matrices follow one another."""
    kernel = _Kernel(module, form)
    b = kernel.b
    with b.if_else((kernel.group.equals(0)).ir) as (copying, multiplying):
        with copying:
            wg.keep_registers(b, _REGISTERS["copies"], more=False)
            with when(b, kernel.thread.equals(0).ir):
                kernel.copy_tiles()
        with multiplying:
            wg.keep_registers(b, _REGISTERS["products"], more=True)
            kernel.multiply_tiles()
    b.ret_void()


class _Tile(NamedTuple):
    """A tile of C: its matrix, and where it begins."""

    matrix: Value
    row: Value
    column: Value


class _Kernel:
    def __init__(self, module: ir.Module, form: Form) -> None:
        self.form, self.stages = form, STAGES[form.width]
        function = wg.declare_kernel(module, form.name, 2, len(SIZES), THREADS)
        b = self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.maps = [Value(b, b.ptrtoint(x, I64)) for x in function.args[:2]]
        at = {
            name: Value(b, arg)
            for name, arg in zip(SIZES, function.args[2:], strict=True)
        }
        self.c, self.pitch, self.batch = at["c"], at["pitch"], at["batch"]
        self.m, self.n, k, self.count = (
            at[name].convert("trunc", I32) for name in ("m", "n", "k", "count")
        )
        self.batched = [at[name].convert("trunc", I32) for name in ("a_step", "b_step")]
        self.steps = (k + (DEPTH - 1)).shift_right(6)
        self.thread = Value(b, b.trunc(special(b, "tid.x"), I32))
        self.group = self.thread.shift_right(7)
        memory = wg.block_memory(b, module)
        self.staged = memory + self.stages * form.stage
        barriers = self.staged + 8 * wg.STAGED
        self.ring = wg.Ring(memory, barriers, self.stages, form.stage)
        self._number_tiles()
        with when(b, self.thread.equals(0).ir):
            self.ring.prepare(lambda stage: 1, readers=8)
            wg.publish_barriers(b)
        barrier(b)

    # -- tiles of C

    def _number_tiles(self) -> None:
        self.down = self._divided(self.m + (ROWS - 1), ROWS)
        self.across = self._divided(self.n + (self.form.width - 1), self.form.width)
        self.each = self.down * self.across

    def _divided(self, x: Value, by: Any) -> Value:
        return Value(self.b, self.b.udiv(x.ir, x.like(by).ir))

    def tiles(self) -> Any:
        """The loop over the tiles of a block."""
        first, step = special(self.b, "ctaid.x"), special(self.b, "nctaid.x")
        total = (self.each * self.count).convert("zext", I64)
        return loop(self.b, first, total.ir, step, name="tile")

    def tile(self, number: Any) -> _Tile:
        """A tile by its number: some rows of tiles at a time, column by column."""
        b = self.b
        number = Value(b, b.trunc(number, I32))
        matrix = self._divided(number, self.each)
        inside = number - matrix * self.each
        many = self.across * _NEAR
        band = self._divided(inside, many)
        left = self.down - band * _NEAR
        height = select(left < _NEAR, left, left.like(_NEAR))
        inside = inside - band * many
        column = self._divided(inside, height)
        row = band * _NEAR + (inside - column * height)
        return _Tile(matrix, row * ROWS, column * self.form.width)

    # -- the copying thread

    def copy_tiles(self) -> None:
        b, form = self.b, self.form
        count = Variables(b, [Value(b, I32(0))])
        for tensor_map in self.maps:
            wg.prefetch_map(tensor_map)
        with self.tiles() as number:
            tile = self.tile(number)
            with loop(b, I64(0), self.steps.convert("zext", I64).ir, name="k") as k:
                depth = Value(b, b.trunc(k, I32)) * DEPTH
                (at,) = count.load()
                turn = self.ring.turn(at)
                wg.wait_empty(turn)
                wg.expect(turn, form.stage)
                rest = depth, tile.matrix, turn.full
                self._copy(0, form.left, ROWS, turn.place, tile.row, *rest)
                place = turn.place + wg.tile_bytes(ROWS, DEPTH)
                self._copy(1, not form.right, form.width, place, tile.column, *rest)
                count.store([at + 1])

    def _copy(
        self, side: int, by_depth: bool, extent: int, to: Value, first: Value,
        depth: Value, matrix: Value, full: Value,
    ) -> None:  # fmt: skip
        """Begin to copy rows of A or columns of B.

        Operands stored the other way come as squares of 64 rows or columns.
        """
        matrix = matrix * self.batched[side]
        for far in range(0, extent, wg.SIDE) if by_depth else (0,):
            where = (first + far, depth) if by_depth else (depth, first)
            place = to + far * wg.PITCH
            wg.copy_box(place, self.maps[side], (*where, matrix), full)

    # -- the multiplying warpgroups

    def multiply_tiles(self) -> None:
        b, form = self.b, self.form
        zero = Value(b, I32(0))
        self.warp = self.thread.shift_right(5) - 4
        self.lane = self.thread & 31
        sums = Variables(b, [Value(b, F32(0.0))] * (form.width // 2))
        count = Variables(b, [zero])
        with self.tiles() as number:
            with loop(b, I64(0), self.steps.convert("zext", I64).ir, name="k") as k:
                (at,) = count.load()
                turn = self.ring.turn(at)
                wg.wait_full(turn)
                more = Value(b, b.zext(b.icmp_signed("!=", k, I64(0)), I32))
                sides = self._sides(turn.place)
                sums.store(wg.begin_product(form.dtype, *sides, sums.load(), more))
                sums.store(wg.finish(sums.load(), 1))
                with when(b, b.icmp_signed("!=", k, I64(0))):
                    wg.release(self.ring.turn(at - 1), self.lane)
                count.store([at + 1])
            sums.store(wg.finish(sums.load(), 0))
            (at,) = count.load()
            wg.release(self.ring.turn(at - 1), self.lane)
            self._store(self.tile(number), sums.load())

    def _sides(self, place: Value) -> tuple[wg.Side, wg.Side]:
        """The operands of a stage: 64 rows of A for each warpgroup, and all of B."""
        form = self.form
        half = place + (self.group - 1) * wg.tile_bytes(wg.SIDE, DEPTH)
        right = place + wg.tile_bytes(ROWS, DEPTH)
        return (
            wg.side_by_terms(half, DEPTH) if form.left else wg.side(half, ROWS, DEPTH),
            wg.side(right, form.width, DEPTH) if form.right
            else wg.side_by_terms(right, DEPTH),
        )  # fmt: skip

    # -- results

    def _store(self, tile: _Tile, sums: list[Value]) -> None:
        row, column, matrix = (
            x.convert("zext", I64)
            for x in (tile.row + self.warp * 16, tile.column, tile.matrix)
        )
        start = self.c + (matrix * self.batch + row * self.pitch + column) * 2
        wg.store_rows(
            self.form.dtype, sums, self.staged + self.warp * wg.STAGED, self.lane,
            start, self.pitch * 2, self.m.convert("zext", I64) - row,
            self.n.convert("zext", I64) - column,
        )  # fmt: skip
