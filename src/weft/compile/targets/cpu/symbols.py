"""Where native functions are: those of kernels, and those of routines."""

from __future__ import annotations

from collections.abc import Mapping

from weft.compile.emit.isa import Isa
from weft.compile.program.executable import Symbol
from weft.compile.targets.cpu.attention.arrays import compiled as attention_code
from weft.compile.targets.cpu.convolution.arrays import compiled as convolution_code
from weft.compile.targets.cpu.matmul.arrays import named
from weft.compile.targets.cpu.object_code import Library


def address_of(symbol: Symbol, libraries: Mapping[str, Library], target: Isa) -> int:
    """The address of a function; kernels' code is among the libraries, by its key."""
    if symbol.kind == "kernel":
        return libraries[symbol.of].address(symbol.name)
    if symbol.kind == "gemm":
        return named(symbol.of, target).library.address(symbol.name)
    if symbol.kind == "conv":
        return convolution_code(symbol.of, target).address(symbol.name)
    return attention_code(symbol.of, target).address(symbol.name)
