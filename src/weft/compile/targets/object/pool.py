"""The pool of a library: threads that wait for work, or none."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I8, I64, loop
from weft.compile.emit.isa import new_module
from weft.compile.targets.cpu.pool_code import (
    FIELDS,
    SLOT,
    SLOTS,
    PoolModule,
    declare_chunks,
)
from weft.compile.targets.object.machines import Machine

SPINS = 1000  # pauses of a thread that waits, before it sleeps: some 10 to 50 us
# Signals of faults, which must reach the thread that made them, by their numbers.
_FAULTS = {"linux": (4, 5, 6, 7, 8, 11, 31), "macos": (4, 5, 6, 8, 10, 11, 12)}
# The first words of a mutex and of a condition variable; elsewhere they are zero.
_MACOS = {"mutex": 0x32AAABA7, "condition": 0x3CB0B1BB}


def pool_module(machine: Machine, threads: int) -> ir.Module:
    """The module of ``weft_parallel_chunks`` for some threads."""
    if threads == 1:
        return _serial(machine)
    waiting = "futex" if machine.system == "linux" else "condition"
    made = PoolModule(machine.isas[0], waiting, threads)
    size = SLOTS + SLOT * threads
    made.block.initializer = ir.Constant(
        ir.ArrayType(I8, size), _first(machine, threads, size)
    )
    return made.module


def _first(machine: Machine, threads: int, size: int) -> bytearray:
    """The block of a pool before its first use."""
    block = bytearray(size)

    def put(name: str, value: int, nbytes: int = 4) -> None:
        at = FIELDS[name][0]
        block[at : at + nbytes] = value.to_bytes(nbytes, "little")

    put("wanted", threads)
    put("spins", SPINS)
    faults = sum(1 << number - 1 for number in _FAULTS[machine.system])
    put("signals", (1 << 1024) - 1 & ~faults, 128)
    if machine.system == "macos":
        for name, value in _MACOS.items():
            put(name, value)
    return block


def _serial(machine: Machine) -> ir.Module:
    """All of a loop on the caller's thread, chunk by chunk."""
    module = new_module("pool", machine.isas[0])
    block = ir.GlobalVariable(module, I8, "weft_pool")
    block.initializer = ir.Constant(I8, 0)
    made = declare_chunks(module)
    b: Any = ir.IRBuilder(made.append_basic_block("entry"))
    _, body, context, count, grain = made.args
    with loop(b, I64(0), count, grain) as begin:
        end = b.add(begin, grain)
        end = b.select(b.icmp_signed("<", end, count), end, count)
        b.call(body, [context, begin, end, I64(0)])
    b.ret_void()
    return module
