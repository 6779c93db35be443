"""CPUs as targets of object code: kernels are kept as Loop IR until a file is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from weft.compile.emit.isa import Isa
from weft.compile.loop.ir import Kernel
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.targets import Replay
from weft.compile.targets.cpu.executable import Symbol
from weft.compile.targets.cpu.plan import Plan
from weft.compile.targets.cpu.target import CpuTarget
from weft.errors import ArgumentError
from weft.graph.ir import Graph


class KernelCode:
    """Kernels by the names of the functions that they will be."""

    def __init__(self, table: KernelTable) -> None:
        self.table = table
        self.kernels: dict[str, Kernel] = {}
        self.libraries: dict[str, KernelCode] = {}  # of nested programs, too
        self.key = f"{id(self):x}"
        self.libraries[self.key] = self

    def function(self, kernel: Kernel, shared: tuple[tuple[str, str], ...]) -> Symbol:
        """A kernel's function for arguments of which these share a buffer."""
        pairs = "".join(f".{a}={b}" for a, b in shared)
        name = f"{kernel.name}{pairs}"
        self.kernels.setdefault(name, kernel._replace(name=name, shared=shared))
        return Symbol("kernel", self.key, name)


@dataclass(frozen=True)
class ObjectTarget(CpuTarget):
    """A CPU that ``weft.export`` writes object code for."""

    name: str = "object"  # the key of bodies that are compiled for it
    composes_library = True

    @classmethod
    def of(cls, isa: Isa) -> ObjectTarget:
        return cls(isa, name=f"object {isa.key}")

    def start(self, graph: Graph, *, pack_weights: bool) -> None:
        """Nothing: a file is written of a whole program."""

    def emit(self, table: KernelTable, kernels: Iterable[Kernel]) -> Any:
        return KernelCode(table)

    def executor(self, plan: Plan, code: Any, replay: Replay) -> NoReturn:
        raise ArgumentError(
            "object code does not run inside Python: weft.export(f, example, 'f.so') "
            "writes it to a file"
        )

    def find(self, key: str, replay: Replay) -> None:
        """Nothing: programs are written anew."""

    def keep(self, key: str, executor: Any) -> None:
        pass
