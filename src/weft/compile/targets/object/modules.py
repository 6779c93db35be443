"""The LLVM modules of an object file: kernels, library functions, loop and pool.

Each is optimised for itself, for the CPU that it is for. Those of several CPUs are
joined to one module, in which all functions that nobody calls are left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir

from weft.compile.emit.isa import Isa, new_module
from weft.compile.program.compiler_version import sources
from weft.compile.targets.cpu.attention.generate import emit_attention, unit_of
from weft.compile.targets.cpu.convolution.generate import RARE, USUAL, emit_conv
from weft.compile.targets.cpu.convolution.plan import GEMM
from weft.compile.targets.cpu.driver import loop_module
from weft.compile.targets.cpu.executable import Symbol
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.matmul.arrays import name_of
from weft.compile.targets.cpu.matmul.generate import emit_gemm
from weft.compile.targets.cpu.object_code import machine, object_bytes, optimize, parse
from weft.compile.targets.object.target import KernelCode
from weft.config import config
from weft.runtime.cpu import kernel_cache

_NAME = re.compile(r'@"([^"]*)"')
_VARIANT = re.compile(r"(_ZGV_LLVM_[^(]*\()([^)]*)\)")  # what does the same for vectors


class Unit(NamedTuple):
    """A module to be made: its name, how to make it, and how much to optimise."""

    name: str  # before the names of its functions
    isa: Isa
    make: Callable[[], ir.Module]
    level: int
    key: str = ""  # a text that decides the module, if its code may be kept


class Functions:
    """The functions that tables call, by numbers, and the modules that have them."""

    def __init__(self, isa: Isa) -> None:
        self.common = isa  # of what is the same for all CPUs
        self.names: dict[str, int] = {}  # of functions in the joined module
        self.wanted: dict[str, set[str]] = {}  # functions of each unit, by its name
        self.units: dict[str, Unit] = {}
        self.kernels: dict[Any, str] = {}  # units of kernels, by their text

    def number(self, symbol: Symbol, isa: Isa, codes: Mapping[str, KernelCode]) -> int:
        """The number of a function for a CPU; kernels are in ``codes``."""
        unit, name = self._place(symbol, isa, codes)
        self.units.setdefault(unit.name, unit)
        self.wanted.setdefault(unit.name, set()).add(name)
        return self.names.setdefault(f"{unit.name}.{name}", len(self.names))

    def _place(
        self, symbol: Symbol, isa: Isa, codes: Mapping[str, KernelCode]
    ) -> tuple[Unit, str]:
        kind, of, name = symbol
        if kind == "kernel":
            return self._kernel(codes[of], name, isa)
        if kind in ("control", "driver"):
            isa = self.common
            return Unit("driver", isa, lambda: loop_module(isa), 2, "driver"), name
        if kind == "conv" and name == GEMM:
            kind, of, name = "gemm", name_of(of, 0, True), "gemm_tasks"
        if kind == "gemm":
            return self._unit(f"gemm {of}", isa, lambda m: _emit_gemm(m, of, isa)), name
        if kind == "conv":
            part = RARE.get(name, USUAL)
            emit = lambda m: emit_conv(m, of, isa, part=part)  # noqa: E731
            return self._unit(f"conv {of} {part}", isa, emit), f"conv_{name}"
        part = unit_of(name)
        emit = lambda m: emit_attention(m, of, isa, part)  # noqa: E731
        return self._unit(f"attention {of} {part}", isa, emit), f"attention_{name}"

    def _unit(self, text: str, isa: Isa, emit: Callable[[Any], Any]) -> Unit:
        def make() -> ir.Module:
            module = new_module(text, isa)
            emit(module)
            return module

        return Unit(f"{text} {isa.cpu}", isa, make, 0, f"{text} {isa.key} {isa.bits}")

    def _kernel(self, code: KernelCode, name: str, isa: Isa) -> tuple[Unit, str]:
        kernel = code.kernels[name]
        key = code.table.text(kernel), kernel.shared, isa.key
        unit = self.kernels.setdefault(key, f"kernel{len(self.kernels)} {isa.cpu}")
        kernel = kernel._replace(name="kernel")

        def make() -> ir.Module:
            module = new_module(unit, isa)
            emit_kernel(module, kernel, isa)
            return module

        text = f"{key} {isa.bits} strict {config.strict_ieee}"
        return Unit(unit, isa, make, 3, text), "kernel"


def _emit_gemm(module: ir.Module, of: str, isa: Isa) -> None:
    kind, shape, few = of.rsplit(" ", 2)
    emit_gemm(module, "gemm", kind, isa, shape=int(shape), few=few == "1")


# -- from modules to one object


def bitcode(unit: Unit, wanted: Iterable[str]) -> bytes:
    """A unit's optimised code, without functions that nobody wants."""
    wanted = sorted(wanted)

    def build() -> bytes:
        module = parse(_named(unit, wanted))
        module.verify()
        _reduce(module, unit.isa)
        return optimize(module, unit.isa, level=unit.level).as_bitcode()

    if not unit.key:
        return build()
    text = f"{sources()}\nbitcode {unit.name} {unit.key} {wanted}"
    key = kernel_cache.key_of(text, unit.isa.key, level=unit.level)
    return kernel_cache.get(key, build)


def _named(unit: Unit, wanted: Iterable[str]) -> str:
    """A module's text, in which names begin with the unit's and only some are seen."""
    module, wanted = unit.make(), set(wanted)
    module.data_layout = layout_of(unit.isa)
    mine = set()
    for one in module.global_values:
        if isinstance(one, ir.Function) and one.blocks:
            one.linkage = "" if one.name in wanted else "internal"
            attributes: Any = one.attributes
            set.add(attributes, f'"target-cpu"="{unit.isa.cpu}"')
            if unit.isa.features:
                set.add(attributes, f'"target-features"="{unit.isa.features}"')
            mine.add(one.name)
        elif isinstance(one, ir.GlobalVariable) and one.initializer is not None:
            mine.add(one.name)
    if not unit.name:
        return str(module)

    def renamed(name: str) -> str:
        return f"{unit.name}.{name}" if name in mine else name

    text = _NAME.sub(lambda found: f'@"{renamed(found[1])}"', str(module))
    return _VARIANT.sub(lambda found: f"{found[1]}{renamed(found[2])})", text)


@functools.cache
def layout_of(isa: Isa) -> str:
    """How a machine lays data out, as LLVM says it."""
    return str(machine(isa).target_data)


def _reduce(module: Any, isa: Isa) -> None:
    """Remove functions that nobody calls."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=0)
    builder = llvm.create_pass_builder(machine(isa), tuning)
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


def joined(parts: Iterable[bytes | str], public: Iterable[str], isa: Isa) -> bytes:
    """The object code of modules together, whose other functions nobody sees."""
    context = llvm.create_context()
    whole, *others = [
        llvm.parse_assembly(part, context) if isinstance(part, str)
        else llvm.parse_bitcode(part, context)
        for part in parts
    ]  # fmt: skip
    for other in others:
        whole.link_in(other)
    public = set(public)
    for value in (*whole.functions, *whole.global_variables):
        if not value.is_declaration and value.name not in public:
            value.linkage = "internal"
    _reduce(whole, isa)
    whole.verify()
    return object_bytes(whole, isa)
