"""Instruction sets: the CPUs that code is generated for."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

RECIPE = 5  # of optimize(): another number means other code from the same IR


class Isa(NamedTuple):
    """A CPU to generate code for."""

    triple: str
    cpu: str
    features: str
    bits: int  # of the widest vector that pays

    @property
    def family(self) -> str:
        """The kind of instruction set, such as ``x86_64`` or ``aarch64``."""
        name = self.triple.partition("-")[0]
        return "aarch64" if name == "arm64" else name  # as Apple calls it

    def lanes(self, itemsize: int) -> int:
        """The elements of a size that fill a vector."""
        return self.bits // (8 * itemsize)

    @property
    def fused(self) -> bool:
        """Whether it surely has a fused multiply-add."""
        named = self.cpu in ("x86-64-v3", "x86-64-v4")
        listed = "+fma" in self.features.split(",")
        return named or listed or self.family in ("aarch64", "nvptx64")

    @property
    def converts_half(self) -> bool:
        """Whether it surely has instructions to and from float16."""
        named = self.cpu in ("x86-64-v3", "x86-64-v4")
        listed = "+f16c" in self.features.split(",")
        return named or listed or self.family in ("aarch64", "nvptx64")

    @property
    def key(self) -> str:
        """A text of all that object code depends on, for keys of caches."""
        return f"{self.triple}|{self.cpu}|{self.features}|{RECIPE}"


def new_module(name: str, isa: Isa) -> ir.Module:
    """An empty module for an instruction set."""
    module = ir.Module(name=name, context=ir.Context())
    module.triple = isa.triple
    return module


def prepare_function(function: ir.Function, isa: Isa) -> None:
    """Let LLVM use vectors of the full width."""
    attributes: Any = function.attributes
    attributes.add("nounwind")
    width = str(isa.bits)
    for name in ("prefer-vector-width", "min-legal-vector-width"):
        set.add(attributes, f'"{name}"="{width}"')  # llvmlite knows plain ones only
