"""The machine code of a program's kernels."""

from __future__ import annotations

from collections.abc import Iterable

from llvmlite import ir

from weft.compile.emit.isa import Isa, new_module
from weft.compile.loop.ir import Kernel
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.targets.cpu.executable import Symbol
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.library import address_of
from weft.compile.targets.cpu.object_code import Library, compile_known
from weft.config import config


class Code:
    """The functions of kernels, with variants for buffers that share memory."""

    def __init__(self, table: KernelTable, isa: Isa) -> None:
        self.table, self.isa = table, isa
        self.libraries: dict[str, Library] = {}  # machine code, by its key
        self._symbols: dict[tuple[str, tuple[tuple[str, str], ...]], Symbol] = {}

    def add(self, kernels: Iterable[Kernel]) -> None:
        """Make one library of kernels."""
        kernels = list(kernels)
        if kernels:
            library = self.library(kernels)
            for kernel in kernels:
                symbol = Symbol("kernel", library.key, kernel.name)
                self._symbols[kernel.name, kernel.shared] = symbol

    def library(self, kernels: Iterable[Kernel]) -> Library:
        """The machine code of kernels, from disk where it is known."""
        texts = [f"{kernel.name}: {self.table.text(kernel)}" for kernel in kernels]
        key = "\n".join([f"strict: {config.strict_ieee}", *texts])
        library = compile_known(key, lambda: self._module(kernels), self.isa)
        self.libraries[library.key] = library
        return library

    def _module(self, kernels: Iterable[Kernel]) -> ir.Module:
        module = new_module("kernels", self.isa)
        for kernel in kernels:
            emit_kernel(module, kernel, self.isa)
        return module

    def function(self, kernel: Kernel, shared: tuple[tuple[str, str], ...]) -> Symbol:
        """A kernel's function for arguments of which these share a buffer."""
        key = kernel.name, shared
        if key not in self._symbols:  # other buffers than planned
            library = self.library([kernel._replace(shared=shared)])
            self._symbols[key] = Symbol("kernel", library.key, kernel.name)
        return self._symbols[key]

    def address(self, symbol: Symbol) -> int:
        """Where a function begins."""
        return address_of(symbol, self.libraries, self.isa)
