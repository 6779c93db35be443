"""Warpgroups of Hopper: copies of whole tiles, barriers in memory, products of tiles.

A warpgroup is four warps that multiply together (``wgmma``): 64 rows of a left operand,
in registers or in the block's memory, by a right operand in memory. Its sums are
float32 numbers in registers, 16 rows a warp, as ``tensor_cores`` has them for one warp.

Tiles lie in memory as squares of 64 columns: rows of 128 bytes, with the chunks of 16
bytes exchanged as the copy engine and the tensor cores agree (the 128-byte swizzle).
One thread asks the engine for a tile (``cp.async.bulk.tensor``), and a ring of stages
passes tiles from those who copy to those who multiply: ``full`` when a stage's bytes
are there, ``empty`` when all warps have read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import F32, I8, I32, I64, VOID, when
from weft.compile.emit.values import Value
from weft.compile.targets.cuda.tensor_cores import (
    NAMES,
    instruction,
    several,
    shortened,
)

GROUP = 128  # threads of a warpgroup
SIDE = 64  # columns of a square
PITCH = 2 * SIDE  # bytes of its rows
_STAGED_PITCH = PITCH + 16  # bytes of a row where results are staged: no bank twice
STAGED = 16 * _STAGED_PITCH  # bytes of a warp's staged results
BARRIER = 8  # bytes
ALIGNMENT = 1024  # bytes, where squares may begin


def tile_bytes(rows: int, columns: int) -> int:
    """The bytes of a tile in a block's memory."""
    return rows * columns * 2


def declare_kernel(
    module: ir.Module, name: str, maps: int, words: int, threads: int
) -> Any:
    """A kernel of tensor maps and of 64-bit numbers, for blocks of so many threads."""
    tensor_map = ir.ArrayType(I8, 128).as_pointer()
    kind = ir.FunctionType(VOID, [tensor_map] * maps + [I64] * words)
    function = ir.Function(module, kind, name)
    function.calling_convention = "ptx_kernel"
    limits = {"maxntid": threads, "minctasm": 1}
    for key, value in limits.items():  # llvmlite does not know them
        set.add(function.attributes, f'"nvvm.{key}"="{value}"')
    for argument in function.args[:maps]:
        argument.add_attribute("byval")
        argument.attributes.align = 64
        set.add(argument.attributes, '"nvvm.grid_constant"')
    return function


def block_memory(b: Any, module: ir.Module) -> Value:
    """Where the block's memory begins, aligned for squares."""
    kind = ir.ArrayType(I8, 0)
    memory = ir.GlobalVariable(module, kind, "tile_memory", addrspace=3)
    memory.align = 128
    place = Value(b, b.trunc(b.ptrtoint(memory, I64), I32))
    return (place + (ALIGNMENT - 1)) & -ALIGNMENT


def keep_registers(b: Any, count: int, *, more: bool) -> None:
    """Let the threads of this warpgroup have more registers, or fewer."""
    how = "inc" if more else "dec"
    text = f"setmaxnreg.{how}.sync.aligned.u32 {count};"
    instruction(b, text, VOID, [], "")


# -- barriers


class Turn(NamedTuple):
    """A stage of a ring, for one round of it."""

    place: Value  # of the stage's tiles
    full: Value
    empty: Value
    parity: Value


class Ring:
    """Stages of a block's memory, and their barriers."""

    def __init__(self, place: Value, barriers: Value, stages: int, nbytes: int) -> None:
        self.b, self.place, self.barriers = place.b, place, barriers
        self.stages, self.nbytes = stages, nbytes

    @staticmethod
    def barrier_bytes(stages: int) -> int:
        return 2 * BARRIER * stages

    def prepare(self, copies: Callable[[int], int], readers: int) -> None:
        """Set the barriers up; one thread does, before all others go on.

        ``copies(stage)`` threads arrive at a stage's ``full``, and ``readers`` warps at
        its ``empty``.
        """
        for stage in range(self.stages):
            full = self.barriers + BARRIER * stage
            for place, arrivals in (
                (full, copies(stage)),
                (full + BARRIER * self.stages, readers),
            ):
                text = f"mbarrier.init.shared::cta.b64 [$0], {arrivals};"
                instruction(self.b, text, VOID, [place], "r,~{memory}")

    def turn(self, count: Value) -> Turn:
        """The stage of a tile by its number, from the block's first one on."""
        b = self.b
        rounds = Value(b, b.udiv(count.ir, count.like(self.stages).ir))
        stage = count - rounds * self.stages
        full = self.barriers + stage * BARRIER
        place = self.place + stage * self.nbytes
        return Turn(place, full, full + BARRIER * self.stages, rounds & 1)


def publish_barriers(b: Any) -> None:
    """Let the copy engine see barriers that were set up."""
    instruction(b, "fence.mbarrier_init.release.cluster;", VOID, [], "")
    instruction(b, "fence.proxy.async;", VOID, [], "")


def wait_for(place: Value, parity: Value) -> None:
    """Wait until a barrier has been passed in a round of this parity."""
    text = (
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, "
        "[$0], $1; @done bra over; bra again; over: }"
    )
    instruction(place.b, text, VOID, [place, parity], "r,r,~{memory}")


def wait_full(turn: Turn) -> None:
    """Wait until a stage's tiles are there."""
    wait_for(turn.full, turn.parity)


def wait_empty(turn: Turn) -> None:
    """Wait until what a stage had before has been read."""
    wait_for(turn.empty, turn.parity ^ 1)


def release(turn: Turn, lane: Value) -> None:
    """Say that a warp has read a stage."""
    with when(lane.b, lane.equals(0).ir):
        text = "mbarrier.arrive.shared::cta.b64 _, [$0];"
        instruction(lane.b, text, VOID, [turn.empty], "r,~{memory}")


def arrive_with_copies(place: Value) -> None:
    """Arrive at a barrier once the copies that this thread has begun are done."""
    text = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];"
    instruction(place.b, text, VOID, [place], "r,~{memory}")


# -- copies


def prefetch_map(tensor_map: Value) -> None:
    instruction(tensor_map.b, "prefetch.tensormap [$0];", VOID, [tensor_map], "l")


def expect(turn: Turn, nbytes: int) -> None:
    """Say how many bytes a stage's copies bring."""
    text = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {nbytes};"
    instruction(turn.full.b, text, VOID, [turn.full], "r,~{memory}")


def copy_box(to: Value, tensor_map: Value, at: Sequence[Value], full: Value) -> None:
    """Begin to copy a tensor map's box; ``at`` are its first indices."""
    rank = len(at)
    places = ", ".join(f"${k + 2}" for k in range(rank))
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global"
        f".mbarrier::complete_tx::bytes [$0], [$1, {{{places}}}], [${rank + 2}];"
    )
    kinds = ",".join(["r", "l", *"r" * (rank + 1), "~{memory}"])
    instruction(to.b, text, VOID, [to, tensor_map, *at, full], kinds)


# -- products


class Side(NamedTuple):
    """An operand in a block's memory, as the tensor cores are told of it."""

    descriptor: Value
    steps: list[int]  # for 16 terms of a sum each, in units of 16 bytes
    by_terms: int  # 1 where neighbours in memory belong to one term


def side(place: Value, rows: int, terms: int) -> Side:
    """An operand whose terms are its tile's columns.

    ``place`` is its first row, in a tile of so many ``rows``.
    """
    square = rows * PITCH >> 4
    steps = [k // SIDE * square + k % SIDE // 8 for k in range(0, terms, 16)]
    return Side(_descriptor(place, rows * PITCH), steps, 0)


def side_by_terms(place: Value, rows: int) -> Side:
    """An operand whose terms are its tile's rows."""
    steps = [k * PITCH >> 4 for k in range(0, rows, 16)]
    return Side(_descriptor(place, rows * PITCH), steps, 1)


def _descriptor(place: Value, leading: int) -> Value:
    """Squares are ``leading`` bytes apart, their groups of eight rows 1,024."""
    fixed = (leading >> 4) << 16 | (8 * PITCH >> 4) << 32 | 1 << 62
    return (place.shift_right(4) & 0x3FFF).convert("zext", I64) | fixed


def begin_product(
    dtype: str,
    left: Side | Sequence[Sequence[Value]],
    right: Side,
    sums: Sequence[Value],
    more: Value | bool,
) -> list[Value]:
    """Begin to add a product to sums; without ``more``, sums begin anew.

    A left operand in registers has four of them for each 16 terms. Nothing may be done
    with the sums, and registers of the operand stay as they are, before ``finish``.
    """
    b, count = right.descriptor.b, len(sums)
    given: list[Value] = [right.descriptor]
    adds = [f"add.s64 b, ${2 * count}, {{b}};"]
    if isinstance(left, Side):
        given.append(left.descriptor)
        adds.append(f"add.s64 a, ${2 * count + 1}, {{a}};")
        turned = f"{left.by_terms}, {right.by_terms}"
        operands = ["a"] * len(left.steps)
        steps = left.steps
    else:
        first = 2 * count + 1
        given += [x for four in left for x in four]
        turned = str(right.by_terms)
        operands = [
            "{" + ", ".join(f"${first + 4 * k + j}" for j in range(4)) + "}"
            for k in range(len(left))
        ]
        steps = [0] * len(left)
    flag = "0"
    lines = ["{ .reg .pred more; .reg .b64 a, b;"]
    if isinstance(more, Value):
        lines.append(f"setp.ne.b32 more, ${2 * count + len(given)}, 0;")
        given.append(more)
        flag = "more"
    elif more:
        flag = "1"
    lines.append("wgmma.fence.sync.aligned;")
    registers = ", ".join(f"${k}" for k in range(count))
    short = NAMES[dtype]
    for k, (a, step) in enumerate(zip(operands, steps, strict=True)):
        lines += [line.format(a=step, b=right.steps[k]) for line in adds]
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{2 * count}k16.f32.{short}.{short} "
            f"{{{registers}}}, {a}, b, {'1' if k else flag}, 1, 1, {turned};"
        )
    lines.append("wgmma.commit_group.sync.aligned; }")
    return _with_sums(b, " ".join(lines), sums, given)


def finish(sums: Sequence[Value], left: int) -> list[Value]:
    """The sums, once at most so many products are under way."""
    text = f"wgmma.wait_group.sync.aligned {left};"
    return _with_sums(sums[0].b, text, sums, [])


def _with_sums(
    b: Any, text: str, sums: Sequence[Value], rest: Sequence[Value]
) -> list[Value]:
    """An instruction that changes the sums where they are."""
    count = len(sums)
    wide = ["l" if x.type == I64 else "r" for x in rest]
    kinds = ["=f"] * count + [str(k) for k in range(count)] + wide
    return several(b, F32, count, text, [*sums, *rest], ",".join(kinds))


# -- results


def store_rows(
    dtype: str, sums: Sequence[Value], staged: Value, lane: Value, start: Value,
    pitch: Value, rows: Value, columns: Value,
) -> None:  # fmt: skip
    """Round a warp's sums, and store rows of 128 bytes by way of the block's memory.

    ``start`` is the address of the warp's first row, ``pitch`` the bytes from row to
    row; ``rows`` and ``columns`` say how many there are, 64-bit numbers as they are.
    """
    b = lane.b
    to = staged + (lane & 15) * _STAGED_PITCH + (lane.shift_right(4) << 4)
    row, chunk = lane.shift_right(3), lane & 7
    source = staged + row * _STAGED_PITCH + (chunk << 4)
    own, column = (x.convert("zext", I64) for x in (row, chunk << 3))
    place = start + own * pitch + (column << 1)
    for part in range(0, 2 * len(sums), SIDE):
        for near in range(0, SIDE, 16):
            at = (part + near) // 2
            words = [
                shortened(dtype, *sums[at + k : at + k + 2]) for k in range(0, 8, 2)
            ]
            text = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};"
            instruction(b, text, VOID, [to + 2 * near, *words], "r,r,r,r,r,~{memory}")
        _meet(b)
        inside = column + part < columns
        for down in range(0, 16, 4):
            words = several(
                b, I32, 4, "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];",
                [source + down * _STAGED_PITCH], "=r,=r,=r,=r,r,~{memory}",
            )  # fmt: skip
            with when(b, b.and_(inside.ir, (own + down < rows).ir)):
                text = "st.global.v4.b32 [$0], {$1, $2, $3, $4};"
                given = [place + pitch * down + 2 * part, *words]
                instruction(b, text, VOID, given, "l,r,r,r,r,~{memory}")
        _meet(b)


def _meet(b: Any) -> None:
    """Let the threads of a warp wait for one another."""
    instruction(b, "bar.warp.sync -1;", VOID, [], "~{memory}")


def flat(fours: Iterable[Sequence[Value]]) -> list[Value]:
    """Sums by 8 columns, four numbers each, in a row."""
    return [x for four in fours for x in four]


def fours(sums: Sequence[Value]) -> list[list[Value]]:
    """Sums in a row, by 8 columns."""
    return [list(sums[k : k + 4]) for k in range(0, len(sums), 4)]
