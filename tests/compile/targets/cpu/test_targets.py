"""Code for machines with less than this one has."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import representative
from by_loops import kernels_of

from weft import graph as G
from weft.compile.emit.isa import new_module
from weft.compile.targets.cpu import object_code
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.object_code import (
    LEVELS,
    LevelError,
    assembly,
    compile_module,
    host_isa,
    lacking,
)
from weft.errors import ArgumentError

HERE = Path(__file__).parent
# the registers that code for a level must not use
ABOVE = {
    "baseline": r"[yz]mm\d",
    "sse4": r"[yz]mm\d",
    "avx2": r"zmm\d",
    "avx512": r"tmm\d",
}
KERNELS = ("softmax", "layer norm", "gather and scatter", "half types", "whole numbers")


@pytest.mark.parametrize("level", [None, "baseline", "sse4", "avx2"])
def test_programs_on_a_lesser_machine(level):
    """A process of its own: the pool and the native loop are made for the level too."""
    if level is None:
        assert "training" in representative.run()
        return
    if lacking(host_isa(level)):
        pytest.skip(f"this machine lacks {lacking(host_isa(level))}")
    found = subprocess.run(
        [sys.executable, str(HERE / "representative.py")],
        env={**os.environ, "WEFT_CPU": level, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split("\n")[:-1] == [*representative.programs(), "training"]


@pytest.mark.parametrize("level", LEVELS)
def test_code_uses_no_wider_registers(level):
    target = host_isa(level)
    module = new_module("level", target)
    for name in KERNELS:
        program, args = representative.programs()[name]
        native = kernels_of(G.capture(program, *args).graph, target)
        for kernel in native.lowered.kernels.values():
            kernel = kernel._replace(name=f"{name} {kernel.name}".replace(" ", "_"))
            emit_kernel(module, kernel, target)
    text = assembly(module, target)
    assert not re.search(ABOVE[level], text)
    widest = {128: "xmm", 256: "ymm", 512: "zmm"}[target.bits]
    assert (widest if target.family == "x86_64" else ".4s") in text


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_level_has(level):
    target = host_isa(level)
    modern = level in ("avx2", "avx512") or target.family == "aarch64"
    assert target.fused is target.converts_half is modern


def test_unknown_levels_are_refused():
    with pytest.raises(ArgumentError, match=r"WEFT_CPU: expected one of .* got 'mmx'"):
        host_isa("mmx")


@pytest.fixture
def narrow(monkeypatch):
    """A machine of x86-64 with SSE4, and nothing above."""
    there = dict.fromkeys(object_code._ADDED["x86-64-v2"], True)
    llvm = object_code.llvm
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: there)
    monkeypatch.setattr(llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    lacking.cache_clear()
    yield
    lacking.cache_clear()


def test_levels_above_the_machine_are_refused(narrow, monkeypatch):
    """They are told before code runs that would end the process."""
    ask = host_isa.__wrapped__
    monkeypatch.setenv("WEFT_CPU", "sse4")
    assert ask().cpu == "x86-64-v2"
    monkeypatch.setenv("WEFT_CPU", "avx2")
    text = (
        r"WEFT_CPU=avx2: expected a level that this machine has \(baseline, sse4\), "
        "got x86-64-v3; it lacks avx, avx2, bmi, .*"
    )
    with pytest.raises(LevelError, match=text):
        ask()


def test_code_above_the_machine_is_looked_at_and_not_loaded(narrow):
    target = host_isa("avx512")
    module = "define i64 @one() {\n ret i64 1\n}"
    assert "one" in assembly(module, target)
    with pytest.raises(LevelError, match=r"machine code: .* it lacks .*avx512f"):
        compile_module(module, target)


def test_another_machine_has_its_own_levels(monkeypatch):
    """The levels of x86-64 are there to be looked at."""
    triple = "aarch64-unknown-linux-gnu"
    monkeypatch.setattr(object_code.llvm, "get_process_triple", lambda: triple)
    assert object_code._level("baseline")[:2] == (triple, "generic")
    assert object_code._level("avx2").family == "x86_64"


@pytest.mark.skipif(
    not lacking(host_isa("avx512")), reason="this machine has every level"
)
def test_a_level_that_is_not_there_ends_a_program_with_words():
    code = "import weft; weft.compile(lambda x: x.exp())(weft.ones(8))"
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "WEFT_CPU": "avx512"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 1
    assert "WEFT_CPU=avx512: expected a level that this machine has" in found.stderr
