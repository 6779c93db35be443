"""Tensor cores, and the copies that feed them: instructions of PTX as functions.

A warp multiplies matrices of 16 x 16 and 16 x 8 half-precision numbers, and adds the
product to 16 x 8 float32 sums. Each of its 32 threads has a part of them in registers:
with ``row = lane // 4`` and ``pair = 2 * (lane % 4)``,

    sums    (row, pair), (row, pair + 1), (row + 8, pair), (row + 8, pair + 1)
    left    pairs of neighbours at (row, pair), (row + 8, pair), (row, pair + 8),
            (row + 8, pair + 8)
    right   pairs of neighbours, one above the other, at (pair, row), (pair + 8, row)

so that two sums of neighbouring columns, made short, are the left operand of another
product. ``Tile`` is the memory of a block from which the parts are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import F32, I32, I64, VOID
from weft.compile.emit.values import Value, select

CHUNK = 8  # half-precision numbers that are copied at once: 16 bytes
NAMES = {"float16": "f16", "bfloat16": "bf16"}  # of dtypes, in PTX


def instruction(
    b: Any, text: str, result: Any, inputs: Sequence[Value], constraints: str
) -> Any:
    """An instruction of PTX that all threads of a warp run together."""
    kind = ir.FunctionType(result, [x.type for x in inputs])
    code = ir.InlineAsm(kind, text, constraints, side_effect=True)
    return b.call(code, [x.ir for x in inputs], attrs=("convergent", "nounwind"))


def several(b: Any, element: Any, count: int, *rest: Any) -> list[Value]:
    """The results of an instruction that has several."""
    text, inputs, constraints = rest
    made = instruction(b, text, ir.LiteralStructType([element] * count), inputs,
                       constraints)  # fmt: skip
    return [Value(b, b.extract_value(made, k)) for k in range(count)]


def multiply_add(
    name: str, left: Sequence[Value], right: Sequence[Value], sums: Sequence[Value]
) -> list[Value]:
    """The sums with a product added; ``name`` is the operands' dtype."""
    short = NAMES[name]
    return several(
        sums[0].b, F32, 4,
        f"mma.sync.aligned.m16n8k16.row.col.f32.{short}.{short}.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
        [*left, *right, *sums], "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
    )  # fmt: skip


def shortened(name: str, low: Value, high: Value) -> Value:
    """Two float32 numbers as a pair of half-precision ones."""
    text = f"cvt.rn.{NAMES[name]}x2.f32 $0, $2, $1;"
    return Value(low.b, instruction(low.b, text, I32, [low, high], "=r,f,f"))


def exp2(x: Value) -> Value:
    """``2**x`` within 2 units of the last place; results below 2**-126 are zero."""
    return Value(x.b, instruction(x.b, "ex2.approx.ftz.f32 $0, $1;", F32, [x], "=f,f"))


def of_other_lane(x: Value, step: int) -> Value:
    """The number of the lane whose own number differs in one bit."""
    text = f"shfl.sync.bfly.b32 $0, $1, {step}, 31, -1;"
    return Value(x.b, instruction(x.b, text, F32, [x], "=f,f"))


def load_pair(b: Any, place: Value) -> list[Value]:
    """Two neighbouring float32 numbers of a block's memory."""
    return several(b, F32, 2, "ld.shared.v2.f32 {$0, $1}, [$2];", [place], "=f,=f,r")


def copy_later(to: Value, source: Value, nbytes: int, there: Value) -> None:
    """Begin to copy from memory to the block's; zeros, where it is not ``there``."""
    how = "cg" if nbytes == 16 else "ca"
    text = f"cp.async.{how}.shared.global [$0], [$1], {nbytes}, $2;"
    size = select(there, Value(to.b, ir.Constant(I32, nbytes)), 0)
    instruction(to.b, text, VOID, [to, source, size], "r,l,r")


def end_copies(b: Any) -> None:
    """Let the copies that were begun be one group."""
    instruction(b, "cp.async.commit_group;", VOID, [], "")


def wait_for_copies(b: Any, left: int = 0) -> None:
    """Wait until at most so many groups of copies are under way."""
    instruction(b, f"cp.async.wait_group {left};", VOID, [], "")


class Threads:
    """The threads of a block: their numbers, as values of 32 bits."""

    def __init__(self, b: Any, thread: Value, count: int) -> None:
        self.b, self.count, self.thread = b, count, thread
        self.lane, self.warp = thread & 31, thread.shift_right(5)
        self.row = self.lane.shift_right(2)
        self.pair = (self.lane & 3) << 1


class Tile:
    """A matrix of half-precision numbers in a block's memory, row by row.

    The chunks of a row are exchanged by the last bits of its number, so that a load of
    the same chunk of eight rows finds them in different banks.
    """

    def __init__(self, threads: Threads, place: Value, rows: int, width: int) -> None:
        self.threads, self.place = threads, place
        self.rows, self.width = rows, width
        self.pitch = 2 * width
        self.nbytes = rows * self.pitch

    def at(self, place: Value) -> Tile:
        """A tile of the same shape elsewhere."""
        return Tile(self.threads, place, self.rows, self.width)

    def fill(
        self, source: Value, pitch: Value, first: Value, limit: Value, width: Value
    ) -> None:
        """Begin to copy rows from ``first`` on, where they are below ``limit``.

        ``source`` is the address of row 0, ``pitch`` the bytes from row to row; of each
        row ``width`` numbers exist, a multiple of a chunk. All else becomes zero.
        """
        t, chunks = self.threads, self.width // CHUNK
        chunk, row = t.thread & (chunks - 1), t.thread.shift_right(_log2(chunks))
        step = t.count // chunks
        if self.rows % step:
            raise ValueError(f"{t.count} threads cannot fill {self.rows} rows evenly")
        exists = (chunk * CHUNK).convert("zext", I64) < width
        to = self.place + row * self.pitch + ((chunk ^ (row & 7)) << 4)
        place = first + row.convert("zext", I64)
        near = source + (chunk << 4).convert("zext", I64)
        for k in range(0, self.rows, step):
            there = Value(t.b, t.b.and_((place + k < limit).ir, exists.ir))
            at = select(there, near + (place + k) * pitch, source)
            copy_later(to + k * self.pitch, at, 2 * CHUNK, there)

    def left(self, row: Any, column: int) -> list[Value]:
        """The part of 16 x 16 numbers that is a thread's, as a left operand."""
        lane = self.threads.lane
        return self._parts(lane & 15, lane.shift_right(4), row, column, "")

    def right(self, row: int, column: int) -> list[list[Value]]:
        """The parts of two right operands: 16 rows, each a column of the operand."""
        lane = self.threads.lane
        own = (lane & 7) + (lane.shift_right(4) << 3)
        four = self._parts(own, lane.shift_right(3) & 1, row, column, "")
        return [four[:2], four[2:]]

    def right_by_rows(self, row: int, column: int) -> list[list[Value]]:
        """The parts of two right operands that lie beside one another."""
        lane = self.threads.lane
        four = self._parts(lane & 15, lane.shift_right(4), row, column, ".trans")
        return [four[:2], four[2:]]

    def _parts(
        self, own: Value, beside: Value, row: Any, column: int, how: str
    ) -> list[Value]:
        """Four matrices of 8 x 8; ``own`` and ``beside`` say which row a lane names."""
        place = self.place + (own + row) * self.pitch
        chunk = (beside ^ (own & 7)) ^ (column // CHUNK)
        text = (
            f"ldmatrix.sync.aligned.m8n8.x4{how}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
        )
        return several(
            self.threads.b, I32, 4, text, [place + (chunk << 4)], "=r,=r,=r,=r,r"
        )


def _log2(n: int) -> int:
    return n.bit_length() - 1
