"""The level of x86-64 that a CPU has, asked when a library is used.

The levels are those of the psABI: v2 with SSE4.2, v3 with AVX2 and FMA, v4 with
AVX-512. A level counts if the system saves the registers that it needs.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I32, I64

_EBX, _ECX, _EDX = range(1, 4)
# For each level: the leaf of CPUID, the register, and the bits that must be set there.
_NEEDED = {
    "x86-64": (),
    "x86-64-v2": ((1, _ECX, (0, 9, 13, 19, 20, 23)), (0x80000001, _ECX, (0,))),
    "x86-64-v3": (
        (1, _ECX, (12, 22, 27, 28, 29)), (7, _EBX, (3, 5, 8)), (0x80000001, _ECX, (5,)),
    ),
    "x86-64-v4": ((7, _EBX, (16, 17, 28, 30, 31)),),
}  # fmt: skip
_SAVED = {"x86-64-v3": 0x6, "x86-64-v4": 0xE6}  # bits of XCR0


def emit_level(module: ir.Module, cpus: list[str]) -> ir.Function:
    """``level()``: the last of some CPUs, from narrow to wide, that this CPU is.

    CPUID takes long on virtual machines, so it is asked once.
    """
    made = ir.Function(module, ir.FunctionType(I64, []), "level")
    made.linkage = "internal"
    b = ir.IRBuilder(made.append_basic_block("entry"))
    if len(cpus) == 1:
        b.ret(I64(0))
        return made
    before = ir.GlobalVariable(module, I64, "known_level")
    before.initializer = I64(-1)
    known_level = b.load_atomic(before, "monotonic", 8)
    with b.if_then(b.icmp_signed(">=", known_level, I64(0))):
        b.ret(known_level)
    found: Any = I64(0)
    enough: Any = ir.IntType(1)(1)
    known: dict[int, Any] = {}
    for cpu in _NEEDED:
        if cpu > cpus[-1]:
            break
        for leaf, register, bits in _NEEDED[cpu]:
            if leaf not in known:
                known[leaf] = _cpuid(b, leaf)
            mask = I32(sum(1 << bit for bit in bits))
            value = b.and_(b.extract_value(known[leaf], register), mask)
            enough = b.and_(enough, b.icmp_unsigned("==", value, mask))
        if cpu in _SAVED:
            enough = _saved(b, enough, _SAVED[cpu])
        if cpu in cpus:
            found = b.select(enough, I64(cpus.index(cpu)), found)
    b.store_atomic(found, before, "monotonic", 8)
    b.ret(found)
    return made


def _cpuid(b: Any, leaf: int) -> Any:
    kind = ir.LiteralStructType([I32] * 4)
    names = "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"
    asm = ir.InlineAsm(ir.FunctionType(kind, [I32, I32]), "cpuid", names, True)
    return b.call(asm, [I32(leaf), I32(0)])


def _saved(b: Any, enough: Any, bits: int) -> Any:
    """Whether the system saves registers; asked only of CPUs that can tell."""
    before = b.block
    with b.if_then(enough):
        kind = ir.LiteralStructType([I32, I32])
        names = "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"
        asm = ir.InlineAsm(ir.FunctionType(kind, [I32]), "xgetbv", names, True)
        low = b.extract_value(b.call(asm, [I32(0)]), 0)
        has = b.icmp_unsigned("==", b.and_(low, I32(bits)), I32(bits))
        inside = b.block
    phi = b.phi(ir.IntType(1))
    phi.add_incoming(ir.IntType(1)(0), before)
    phi.add_incoming(has, inside)
    return phi
