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
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.object_code import LEVELS, assembly, host_isa
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
    assert widest in text


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_level_has(level):
    target = host_isa(level)
    modern = level in ("avx2", "avx512")
    assert target.fused is target.converts_half is modern


def test_unknown_levels_are_refused():
    with pytest.raises(ArgumentError, match=r"WEFT_CPU: expected one of .* got 'mmx'"):
        host_isa("mmx")
