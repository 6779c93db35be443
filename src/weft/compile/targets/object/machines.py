"""The machines that object code is made for, by name.

    machine_of("aarch64-linux", None)      Machine(name, isas, suffix of libraries)

A machine has an instruction set for each level of its CPUs that code is made for.
"""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Sequence
from typing import NamedTuple

import llvmlite.binding as llvm

from weft.compile.emit.isa import Isa
from weft.compile.targets.cpu.object_code import LEVELS, host_isa
from weft.errors import ArgumentError

_TRIPLES = {
    "x86_64-linux": "x86_64-unknown-linux-gnu",
    "x86_64-windows": "x86_64-pc-windows-gnu",
    "x86_64-macos": "x86_64-apple-macosx11.0.0",
    "aarch64-linux": "aarch64-unknown-linux-gnu",
    "aarch64-macos": "arm64-apple-macosx11.0.0",
    "riscv64-linux": "riscv64-unknown-linux-gnu",
    "wasm32": "wasm32-unknown-unknown",
}
_X86 = dict(LEVELS.values())
# The CPUs that other machines have at least, their features and their vectors' bits.
_LEAST = {
    "aarch64": ("generic", "+neon", 128),
    "riscv64": ("generic-rv64", "+m,+a,+f,+d,+c", 128),
    "wasm32": ("generic", "+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint", 128),
}
_SUFFIXES = {"windows": ".dll", "macos": ".dylib", "wasm32": ".wasm"}


class Machine(NamedTuple):
    """A kind of machine, and its CPUs from the narrowest to the widest."""

    name: str
    isas: Sequence[Isa]

    @property
    def triple(self) -> str:
        return self.isas[0].triple

    @property
    def family(self) -> str:
        """The instruction set's name, such as ``x86_64``."""
        return self.name.partition("-")[0]

    @property
    def system(self) -> str:
        return self.name.partition("-")[2] or self.name

    @property
    def library_suffix(self) -> str:
        return _SUFFIXES.get(self.system, ".so")

    @property
    def pointer_bits(self) -> int:
        return 32 if self.family == "wasm32" else 64

    @property
    def has_threads(self) -> bool:
        """Whether libraries may start POSIX threads there."""
        return self.system in ("linux", "macos")

    @property
    def is_host(self) -> bool:
        return self.name == host_name()


def host_name() -> str:
    """The name of this machine among those that code is made for.

    >>> from weft.compile.targets.object.machines import host_name, machine_of
    >>> machine_of(host_name(), None).is_host
    True
    """
    family = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine())
    system = {"win32": "windows", "darwin": "macos"}.get(sys.platform, sys.platform)
    return f"{family or platform.machine()}-{system}"


def machine_of(name: str, cpu: str | Sequence[str] | None) -> Machine:
    """A machine by its name; ``cpu`` names its CPU, or several levels of them.

    >>> machine_of("x86_64-linux", ["x86-64-v2", "x86-64-v4"]).isas[1].lanes(4)
    16
    """
    if name not in _TRIPLES:
        raise ArgumentError(
            f"export: expected one of the machines {', '.join(_TRIPLES)}, got {name!r}"
        )
    _initialize()
    cpus = [cpu] if cpu is None or isinstance(cpu, str) else list(cpu)
    if not cpus:
        raise ArgumentError("export: expected a CPU, got none")
    isas = [_isa(name, one) for one in cpus]
    if len(isas) > 1 and any(isa.cpu not in _X86 for isa in isas):
        raise ArgumentError(
            f"export: several CPUs in one file are levels of x86-64, such as "
            f"{', '.join(_X86)}; got {cpus}"
        )
    return Machine(name, sorted(isas, key=lambda isa: list(_X86).index(isa.cpu))
                   if len(isas) > 1 else isas)  # fmt: skip


@functools.cache
def _initialize() -> None:
    """Let LLVM make code for all machines, and read the assembly of this one."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


def _isa(name: str, cpu: str | None) -> Isa:
    family, triple = name.partition("-")[0], _TRIPLES[name]
    if cpu in (None, "native") and name == host_name():
        return host_isa()._replace(triple=triple)
    if family != "x86_64":
        plain, features, bits = _LEAST[family]
        return Isa(triple, cpu or plain, features, bits)
    cpu = cpu or "x86-64-v3"
    if cpu not in _X86:
        known = [*_X86, *(["native"] if name == host_name() else [])]
        raise ArgumentError(
            f"export: expected one of the CPUs {', '.join(known)}, got {cpu!r}"
        )
    bits = _X86[cpu]
    return Isa(triple, cpu, "-prefer-256-bit" if bits == 512 else "", bits)
