"""PTX: modules of LLVM IR as the assembly that NVIDIA's driver loads.

The driver, or ``ptxas``, makes machine code of it; no toolkit is needed. PTX of one
generation runs on all later ones.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from weft.compile.emit.isa import Isa
from weft.compile.program.compiler_version import sources
from weft.compile.program.phases import count_module, phase
from weft.errors import DeviceError
from weft.runtime.cpu import kernel_cache

TRIPLE = "nvptx64-nvidia-cuda"
OLDEST = (8, 0)  # the compute capability that code is made for at least
NEWEST = (9, 0)


def gpu_isa(capability: tuple[int, int]) -> Isa:
    """The instruction set of a compute capability, such as (9, 0)."""
    if capability < OLDEST:
        have, least = (".".join(map(str, c)) for c in (capability, OLDEST))
        raise DeviceError(
            f"cuda: expected a GPU of compute capability {least} or newer, got {have}"
        )
    major, minor = min(capability, NEWEST)
    return Isa(TRIPLE, f"sm_{major}{minor}", "+ptx80", 128)


def warpgroup_isa(capability: tuple[int, int]) -> Isa | None:
    """The instruction set with warpgroup instructions, which Hopper alone has."""
    if capability != NEWEST:
        return None
    return gpu_isa(capability)._replace(cpu="sm_90a")


def new_module(name: str, isa: Isa) -> ir.Module:
    """An empty module for a GPU."""
    module = ir.Module(name=name, context=ir.Context())
    module.triple = isa.triple
    module.data_layout = str(_machine(isa).target_data)
    return module


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.cache
def _machine(isa: Isa) -> Any:
    _initialize()
    found = llvm.Target.from_triple(isa.triple)
    return found.create_target_machine(cpu=isa.cpu, features=isa.features, opt=3)


def ptx(module: ir.Module | str, isa: Isa) -> str:
    """A module as PTX; it is verified first."""
    _initialize()
    parsed = llvm.parse_assembly(str(module), llvm.create_context())
    parsed.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_unrolling = True
    builder = llvm.create_pass_builder(_machine(isa), tuning)
    builder.getModulePassManager().run(parsed, builder)
    return _machine(isa).emit_assembly(parsed)


@phase("LLVM")
def known_ptx(text: str, make: Any, isa: Isa) -> str:
    """The PTX of the module that ``make`` gives, which ``text`` decides."""
    made: list[str] = []

    def build() -> bytes:
        made.append(ptx(make(), isa))
        return made[0].encode()

    key = kernel_cache.key_of(f"{sources()}\n{text}", isa.key)
    found = kernel_cache.get(key, build)
    count_module(made=bool(made))
    return made[0] if made else found.decode()
