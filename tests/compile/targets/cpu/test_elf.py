"""Object code that is put into memory without LLVM."""

import ctypes
import platform
import random
import sys

import numpy as np
import pytest
from llvmlite import ir

import weft
from weft.compile.emit.control_flow import (
    F32,
    F64,
    I64,
    POINTER,
    VOID,
    function,
    i64,
    loop,
)
from weft.compile.emit.isa import new_module
from weft.compile.targets.cpu import elf
from weft.compile.targets.cpu.object_code import Library, host_isa, object_code

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="ELF for x86-64 is what is loaded here; LLVM loads the others",
)


def sums():
    """A loop, a table of constants, and a function of the system's that is far away."""
    module = new_module("sums", host_isa())
    kind = ir.FunctionType(POINTER, [POINTER, ir.IntType(32), I64])
    clear = ir.Function(module, kind, "memset")
    values = ir.ArrayType(F64, 64)
    table = ir.GlobalVariable(module, values, "table")
    table.initializer = ir.Constant(values, [float(k * k) for k in range(64)])
    table.global_constant, table.linkage = True, "internal"
    pointers = [F64.as_pointer(), F32.as_pointer(), I64]
    with function(module, "sums", VOID, pointers) as (b, made):
        out, room, count = made.args
        b.call(clear, [b.bitcast(room, POINTER), ir.Constant(ir.IntType(32), 0), count])
        with loop(b, i64(0), i64(64)) as k:
            value = b.load(b.gep(table, [i64(0), k]))
            b.store(b.fadd(b.load(out), value), out)
        b.ret_void()
    return module


def caller():
    """A module that calls a function of another one, and reads something of ours."""
    module = new_module("caller", host_isa())
    pointers = [F64.as_pointer(), F32.as_pointer(), I64]
    other = ir.Function(module, ir.FunctionType(VOID, pointers), "sums")
    ours = ir.GlobalVariable(module, F64, "weft_test_number")
    with function(module, "twice", VOID, pointers) as (b, made):
        b.call(other, made.args)
        b.call(other, made.args)
        b.store(b.fmul(b.load(made.args[0]), b.load(ours)), made.args[0])
        b.ret_void()
    return module


@pytest.fixture(scope="module")
def codes():
    return [object_code(make(), host_isa()) for make in (sums, caller)]


@pytest.fixture
def number(monkeypatch):
    """What code may name: it lies far from any code."""
    held = np.array([0.5])
    monkeypatch.setitem(elf.given, "weft_test_number", held.ctypes.data)
    return held


def called(address):
    out, room = np.zeros(1), np.ones(8, np.float32)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    kind(address)(out.ctypes.data, room.ctypes.data, 16)
    return out[0], room.tolist()


def test_functions_that_call_others(codes, number):
    loaded = elf.load(codes)
    total = sum(float(k * k) for k in range(64))
    assert called(loaded.functions["sums"]) == (total, [0.0] * 4 + [1.0] * 4)
    assert called(loaded.functions["twice"])[0] == total
    number[0] = 3.0
    assert called(loaded.functions["twice"])[0] == 6 * total


def test_memory_that_is_run_is_not_written(codes, number):
    loaded = elf.load(codes)
    at = loaded.functions["sums"]
    with open("/proc/self/maps") as file:
        rows = [line.split()[:2] for line in file]
    spans = [(*(int(end, 16) for end in span.split("-")), how) for span, how in rows]
    (how,) = [how for start, stop, how in spans if start <= at < stop]
    assert how.startswith("r-x")


def test_names_that_nobody_knows(codes):
    with pytest.raises(elf.Unknown, match="weft_test_number is not known"):
        elf.load(codes)


def test_libraries_find_what_there_is(codes, number):
    library = Library(codes, host_isa())
    assert called(library.address("sums"))[0] == sum(float(k * k) for k in range(64))
    with pytest.raises(weft.errors.ArgumentError, match="no function 'other'"):
        library.address("other")


def test_llvm_loads_the_rest(codes, monkeypatch):
    def refuse(codes):
        raise elf.Unknown("of another kind")

    loaded = elf.load(codes[:1])
    want = called(loaded.functions["sums"])
    monkeypatch.setattr(elf, "load", refuse)
    library = Library(codes[0], host_isa())
    assert called(library.address("sums")) == want


def test_damaged_code_is_refused_or_loaded(codes, number):
    """Nothing else is raised and nothing written outside, whatever the bytes."""
    chance = random.Random(0)
    refused = 0
    for _ in range(1500):
        code = bytearray(codes[chance.randrange(2)])
        for _ in range(chance.randrange(1, 4)):
            code[chance.randrange(len(code))] = chance.randrange(256)
        if chance.random() < 0.2:
            del code[chance.randrange(len(code)) :]
        try:
            elf.load([bytes(code)])
        except elf.Unknown:
            refused += 1
    assert 100 < refused < 1500
