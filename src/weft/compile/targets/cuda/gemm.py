"""Matrix products of any dtype and strides, by blocks that share tiles of operands.

    void name(T* a, T* b, R* c, m, n, k, a's strides, b's strides, c's, batch strides)

A block of 256 threads computes 64 x 64 results, each thread 4 x 4 of them. Tiles of 16
columns of A and rows of B are staged in the block's memory, in the dtype of the sums.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit import scalar
from weft.compile.emit.control_flow import I64, VOID, i64, loop, when
from weft.compile.emit.isa import Isa
from weft.compile.targets.cuda.kernel import barrier, narrowed, shared_memory, special
from weft.dtype import DType

TILE = 64  # rows and columns of C for a block
DEPTH = 16  # columns of A and rows of B that are staged at a time
SIDE = 4  # rows and columns of C for a thread
THREADS = (TILE // SIDE) ** 2
SIZES = ("m", "n", "k", "am", "ak", "bk", "bn", "cm", "cn", "az", "bz", "cz")


def emit_product(
    module: ir.Module, name: str, operand: DType, result: DType, isa: Isa
) -> None:
    """Add C = A @ B to a module; strides are in elements, ``z`` numbers matrices."""
    total = result.to_total() if result.is_inexact else result
    kinds = [scalar.memory_type(d).as_pointer() for d in (operand, operand, result)]
    arguments = [*kinds, *[I64] * len(SIZES)]
    function = ir.Function(module, ir.FunctionType(VOID, arguments), name)
    function.calling_convention = "ptx_kernel"
    b = ir.IRBuilder(function.append_basic_block("entry"))
    left, right, out = function.args[:3]
    at = dict(zip(SIZES, function.args[3:], strict=True))
    register = scalar.register_type(total)
    tiles = [shared_memory(module, f"{name}.{s}", register, TILE * DEPTH) for s in "ab"]

    def widened(pointer: Any) -> Any:
        value = b.load(pointer)
        if operand.name in scalar.HALF:
            value = scalar.widened(b, value, operand, native=isa.converts_half)
        return scalar.cast(b, [value], [_register(operand)], total)

    thread, block = special(b, "tid.x"), special(b, "ctaid.x")
    across = _tiles(b, at["n"])
    each = b.mul(across, _tiles(b, at["m"]))
    matrix, inside = b.udiv(block, each), b.urem(block, each)
    top = b.mul(b.udiv(inside, across), i64(TILE))
    start = b.mul(b.urem(inside, across), i64(TILE))
    left, right, out = (
        b.gep(pointer, [b.mul(matrix, at[f"{letter}z"])])
        for pointer, letter in zip((left, right, out), "abc", strict=True)
    )
    own_row = b.mul(b.udiv(thread, i64(TILE // SIDE)), i64(SIDE))
    own_column = b.mul(b.urem(thread, i64(TILE // SIDE)), i64(SIDE))
    zero = scalar.constant(0, total)
    sums = [[b.alloca(register) for _ in range(SIDE)] for _ in range(SIDE)]
    for row in sums:
        for one in row:
            b.store(zero, one)

    def staged(tile: Any, place: Any, pointer: Any, there: Any) -> None:
        """Copy an element of an operand; outside of it, zero."""
        slot = b.gep(tile, [i64(0), place], inbounds=True)
        b.store(zero, slot)
        with when(b, there):
            b.store(widened(pointer), slot)

    with loop(b, i64(0), at["k"], i64(DEPTH), name="p") as p:
        with loop(b, thread, i64(TILE * DEPTH), i64(THREADS), name="s") as s:
            row, step = b.udiv(s, i64(DEPTH)), b.urem(s, i64(DEPTH))
            i, q = b.add(top, row), b.add(p, step)
            there = b.and_(_below(b, i, at["m"]), _below(b, q, at["k"]))
            where = b.add(b.mul(i, at["am"]), b.mul(q, at["ak"]))
            staged(tiles[0], b.add(b.mul(step, i64(TILE)), row),
                   b.gep(left, [where]), there)  # fmt: skip
            step, column = b.udiv(s, i64(TILE)), b.urem(s, i64(TILE))
            j, q = b.add(start, column), b.add(p, step)
            there = b.and_(_below(b, j, at["n"]), _below(b, q, at["k"]))
            where = b.add(b.mul(q, at["bk"]), b.mul(j, at["bn"]))
            staged(tiles[1], s, b.gep(right, [where]), there)
        barrier(b)
        for step in range(DEPTH):
            a, c = (
                [b.load(b.gep(tile, [i64(0), b.add(first, i64(step * TILE + r))]))
                 for r in range(SIDE)]
                for tile, first in zip(tiles, (own_row, own_column), strict=True)
            )  # fmt: skip
            for r in range(SIDE):
                for q in range(SIDE):
                    b.store(_fused(b, a[r], c[q], b.load(sums[r][q])), sums[r][q])
        barrier(b)
    for r in range(SIDE):
        for q in range(SIDE):
            i = b.add(b.add(top, own_row), i64(r))
            j = b.add(b.add(start, own_column), i64(q))
            with when(b, b.and_(_below(b, i, at["m"]), _below(b, j, at["n"]))):
                where = b.add(b.mul(i, at["cm"]), b.mul(j, at["cn"]))
                value = b.load(sums[r][q])
                value = scalar.cast(b, [value], [total], _register(result))
                if result.name in scalar.HALF:
                    value = narrowed(b, value, result, isa)
                b.store(value, b.gep(out, [where]))
    b.ret_void()


def _register(dtype: DType) -> DType:
    """The dtype that a half type's numbers have in registers."""
    return dtype.to_total() if dtype.name in scalar.HALF else dtype


def _tiles(b: Any, size: Any) -> Any:
    return b.udiv(b.add(size, i64(TILE - 1)), i64(TILE))


def _below(b: Any, index: Any, limit: Any) -> Any:
    return b.icmp_signed("<", index, limit)


def _fused(b: Any, x: Any, y: Any, total: Any) -> Any:
    if isinstance(x.type, ir.IntType):
        return b.add(total, b.mul(x, y))
    kind = ir.FunctionType(x.type, [x.type] * 3)
    fma = b.module.declare_intrinsic("llvm.fma", [x.type], kind)
    return b.call(fma, [x, y, total])
