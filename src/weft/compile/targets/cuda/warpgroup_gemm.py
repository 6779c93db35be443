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

from weft.compile.emit.control_flow import F32, I8, I32, I64, VOID, loop, when
from weft.compile.emit.values import Value, select
from weft.compile.targets.cuda.attention import Variables
from weft.compile.targets.cuda.kernel import barrier, special
from weft.compile.targets.cuda.tensor_cores import (
    NAMES,
    instruction,
    several,
    shortened,
)

ROWS = 128  # of C for a block
DEPTH = 64  # columns of A and rows of B in a stage: 128 bytes
GROUP = 128  # threads of a warpgroup
THREADS = 3 * GROUP
STAGES = {256: 4, 128: 6}  # by the columns of C for a block
SIZES = ("c", "m", "n", "k", "count", "pitch", "batch", "a_step", "b_step")
_SIDE = 64  # rows and columns of a swizzled square
_SQUARE = _SIDE * DEPTH * 2  # its bytes
_NEAR = 16  # rows of tiles whose columns are walked over together, for the cache
_PITCH = 2 * _SIDE + 16  # bytes of a row where results are staged: no bank twice
_STAGED = 16 * _PITCH  # bytes of a warp's staged results
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
        return (ROWS + self.width) * DEPTH * 2

    @property
    def block_memory(self) -> int:
        """The bytes that a block's threads share."""
        stages = STAGES[self.width]
        return stages * self.stage + 8 * _STAGED + 16 * stages + 1024

    def boxes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The contiguous and the other extent of what one copy of A and B brings."""
        left = (_SIDE, DEPTH) if self.left else (DEPTH, ROWS)
        right = (DEPTH, self.width) if self.right else (_SIDE, DEPTH)
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
            instruction(
                b, f"setmaxnreg.dec.sync.aligned.u32 {_REGISTERS['copies']};", VOID,
                [], "",
            )  # fmt: skip
            with when(b, kernel.thread.equals(0).ir):
                kernel.copy_tiles()
        with multiplying:
            instruction(
                b, f"setmaxnreg.inc.sync.aligned.u32 {_REGISTERS['products']};", VOID,
                [], "",
            )  # fmt: skip
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
        tensor_map = ir.ArrayType(I8, 128).as_pointer()
        kind = ir.FunctionType(VOID, [tensor_map] * 2 + [I64] * len(SIZES))
        function = ir.Function(module, kind, form.name)
        function.calling_convention = "ptx_kernel"
        limits = {"maxntid": THREADS, "minctasm": 1}
        for key, value in limits.items():  # llvmlite does not know them
            set.add(function.attributes, f'"nvvm.{key}"="{value}"')
        b = self.b = ir.IRBuilder(function.append_basic_block("entry"))
        for argument in function.args[:2]:
            argument.add_attribute("byval")
            argument.attributes.align = 64
            set.add(argument.attributes, '"nvvm.grid_constant"')
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
        self._lay_out(module)
        self._number_tiles()
        with when(b, self.thread.equals(0).ir):
            for stage in range(self.stages):
                for place, arrivals in ((self.full, 1), (self.empty, 8)):
                    text = f"mbarrier.init.shared::cta.b64 [$0], {arrivals};"
                    instruction(b, text, VOID, [place + 8 * stage], "r,~{memory}")
            instruction(b, "fence.mbarrier_init.release.cluster;", VOID, [], "")
            instruction(b, "fence.proxy.async;", VOID, [], "")
        barrier(b)

    def _lay_out(self, module: ir.Module) -> None:
        """The block's memory: stages, staged results, barriers."""
        kind = ir.ArrayType(I8, 0)
        memory = ir.GlobalVariable(module, kind, "product_memory", addrspace=3)
        memory.align = 128
        place = Value(self.b, self.b.trunc(self.b.ptrtoint(memory, I64), I32))
        self.memory = (place + 1023) & ~1023  # where swizzled squares may begin
        self.staged = self.memory + self.stages * self.form.stage
        self.full = self.staged + 8 * _STAGED
        self.empty = self.full + 8 * self.stages

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

    # -- the ring of stages

    def _arrival(self, count: Value) -> tuple[Value, Value]:
        """The stage of a step, and the parity of its turn."""
        turn = self._divided(count, self.stages)
        return count - turn * self.stages, turn & 1

    def _wait(self, place: Value, parity: Value) -> None:
        text = (
            "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, "
            "[$0], $1; @done bra over; bra again; over: }"
        )
        instruction(self.b, text, VOID, [place, parity], "r,r,~{memory}")

    # -- the copying thread

    def copy_tiles(self) -> None:
        b, form = self.b, self.form
        count = Variables(b, [Value(b, I32(0))])
        for tensor_map in self.maps:
            instruction(b, "prefetch.tensormap [$0];", VOID, [tensor_map], "l")
        with self.tiles() as number:
            tile = self.tile(number)
            with loop(b, I64(0), self.steps.convert("zext", I64).ir, name="k") as k:
                depth = Value(b, b.trunc(k, I32)) * DEPTH
                (at,) = count.load()
                stage, parity = self._arrival(at)
                self._wait(self.empty + stage * 8, parity ^ 1)
                full = self.full + stage * 8
                text = (
                    f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {form.stage};"
                )
                instruction(b, text, VOID, [full], "r,~{memory}")
                place = self.memory + stage * form.stage
                rest = depth, tile.matrix, full
                self._copy(0, form.left, ROWS, place, tile.row, *rest)
                place = place + ROWS * DEPTH * 2
                self._copy(1, not form.right, form.width, place, tile.column, *rest)
                count.store([at + 1])

    def _copy(
        self, side: int, by_depth: bool, extent: int, to: Value, first: Value,
        depth: Value, matrix: Value, full: Value,
    ) -> None:  # fmt: skip
        """Begin to copy rows of A or columns of B.

        Operands stored the other way come as squares of 64 rows or columns.
        """
        text = (
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [$0], [$1, {$2, $3, $4}], [$5];"
        )
        matrix = matrix * self.batched[side]
        for far in range(0, extent, _SIDE) if by_depth else (0,):
            where = (first + far, depth) if by_depth else (depth, first)
            given = [to + far * DEPTH * 2, self.maps[side], *where, matrix, full]
            instruction(self.b, text, VOID, given, "r,l,r,r,r,r,~{memory}")

    # -- the multiplying warpgroups

    def multiply_tiles(self) -> None:
        b, form = self.b, self.form
        zero = Value(b, I32(0))
        self.warp = self.thread.shift_right(5) - 4
        self.lane = self.thread & 31
        sums = Variables(b, [Value(b, F32(0.0))] * (form.width // 2))
        count = Variables(b, [zero])
        own = self.memory + (self.group - 1) * _SQUARE
        with self.tiles() as number:
            with loop(b, I64(0), self.steps.convert("zext", I64).ir, name="k") as k:
                (at,) = count.load()
                stage, parity = self._arrival(at)
                self._wait(self.full + stage * 8, parity)
                shift = stage * form.stage
                left = self._descriptor(own + shift, _SQUARE)
                right = self._descriptor(
                    self.memory + (shift + ROWS * DEPTH * 2), _SQUARE
                )
                more = Value(b, b.zext(b.icmp_signed("!=", k, I64(0)), I32))
                sums.store(self._multiply(sums.load(), left, right, more))
                sums.store(self._finish(sums.load(), 1))
                with when(b, b.icmp_signed("!=", k, I64(0))):
                    self._release(at - 1)
                count.store([at + 1])
            sums.store(self._finish(sums.load(), 0))
            (at,) = count.load()
            self._release(at - 1)
            self._store(self.tile(number), sums.load())

    def _release(self, at: Value) -> None:
        """Say that a warp has read the stage of a step."""
        stage, _ = self._arrival(at)
        with when(self.b, self.lane.equals(0).ir):
            text = "mbarrier.arrive.shared::cta.b64 _, [$0];"
            instruction(self.b, text, VOID, [self.empty + stage * 8], "r,~{memory}")

    def _descriptor(self, place: Value, leading: int) -> Value:
        """A tile as tensor cores are told of it: swizzled by 128 bytes.

        Squares are ``leading`` bytes apart, their groups of eight rows 1,024.
        """
        fixed = (leading >> 4) << 16 | (1024 >> 4) << 32 | 1 << 62
        return (place.shift_right(4) & 0x3FFF).convert("zext", I64) | fixed

    def _multiply(
        self, sums: list[Value], left: Value, right: Value, more: Value
    ) -> list[Value]:
        """Begin to add the product of a stage; without ``more``, sums begin anew."""
        form, size = self.form, len(sums)
        short = NAMES[form.dtype]
        by_depth = int(form.left), int(not form.right)
        steps = [16 * 128 >> 4 if one else 32 >> 4 for one in by_depth]
        registers = ", ".join(f"${k}" for k in range(size))
        a, b, flag = (f"${2 * size + k}" for k in range(3))
        lines = [
            "{ .reg .pred more; .reg .b64 a, b;",
            f"setp.ne.b32 more, {flag}, 0; mov.b64 a, {a}; mov.b64 b, {b};",
            "wgmma.fence.sync.aligned;",
        ]
        for k in range(DEPTH // 16):
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{form.width}k16.f32.{short}.{short} "
                f"{{{registers}}}, a, b, {'1' if k else 'more'}, 1, 1, "
                f"{by_depth[0]}, {by_depth[1]};"
            )
            lines.append(f"add.s64 a, a, {steps[0]}; add.s64 b, b, {steps[1]};")
        lines[-1] = "wgmma.commit_group.sync.aligned; }"
        return self._with_sums(" ".join(lines), sums, [left, right, more], ",l,l,r")

    def _finish(self, sums: list[Value], left: int) -> list[Value]:
        """Wait until at most so many products are under way."""
        return self._with_sums(f"wgmma.wait_group.sync.aligned {left};", sums, [], "")

    def _with_sums(
        self, text: str, sums: list[Value], rest: list[Value], kinds: str
    ) -> list[Value]:
        """An instruction that changes the sums where they are."""
        size = len(sums)
        same = ",".join(["=f"] * size + [str(k) for k in range(size)])
        return several(self.b, F32, size, text, [*sums, *rest], same + kinds)

    # -- results

    def _store(self, tile: _Tile, sums: list[Value]) -> None:
        """Round the sums, and store rows of 128 bytes by way of the block's memory."""
        b, lane = self.b, self.lane
        own = self.staged + self.warp * _STAGED
        to = own + (lane & 15) * _PITCH + (lane.shift_right(4) << 4)
        row, chunk = lane.shift_right(3), lane & 7
        source = own + row * _PITCH + (chunk << 4)
        first = tile.row + self.warp * 16 + row
        column = tile.column + (chunk << 3)
        start = self.c + (
            tile.matrix.convert("zext", I64) * self.batch
            + first.convert("zext", I64) * self.pitch + column.convert("zext", I64)
        ) * 2  # fmt: skip
        for part in range(0, self.form.width, _SIDE):
            for near in range(0, _SIDE, 16):
                at = (part + near) // 2
                words = [
                    shortened(self.form.dtype, *sums[at + k : at + k + 2])
                    for k in range(0, 8, 2)
                ]
                text = (
                    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};"
                )
                given = [to + 2 * near, *words]
                instruction(b, text, VOID, given, "r,r,r,r,r,~{memory}")
            instruction(b, "bar.warp.sync -1;", VOID, [], "~{memory}")
            inside = column + part < self.n
            for down in range(0, 16, 4):
                words = several(
                    b, I32, 4, "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];",
                    [source + down * _PITCH], "=r,=r,=r,=r,r,~{memory}",
                )  # fmt: skip
                there = b.and_(inside.ir, (first + down < self.m).ir)
                with when(b, there):
                    place = start + (self.pitch * down + part) * 2
                    text = "st.global.v4.b32 [$0], {$1, $2, $3, $4};"
                    instruction(b, text, VOID, [place, *words], "l,r,r,r,r,~{memory}")
            instruction(b, "bar.warp.sync -1;", VOID, [], "~{memory}")
