"""Hints that LLVM is given about a loop."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.ir.values import MDValue

from weft.compile.emit.control_flow import I1, I32


class LoopHint(MDValue):
    """A loop's own node: distinct, and its own first operand."""

    def descr(self, buf: list[str]) -> None:
        operands = ", ".join(op.get_reference() for op in (self, *self.operands))
        buf += (f"distinct !{{ {operands} }}", "\n")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def vector_hint(module: ir.Module, width: int, *, masked: bool = False) -> LoopHint:
    """The hint that so many iterations of a loop are to be one vector.

    If it is ``masked``, the last vector may reach beyond the loop's end.
    """
    wanted = {
        "llvm.loop.vectorize.enable": ir.Constant(I1, 1),
        "llvm.loop.vectorize.width": ir.Constant(I32, width),
    }
    if masked:
        wanted["llvm.loop.vectorize.predicate.enable"] = ir.Constant(I1, 1)
        wanted["llvm.loop.interleave.count"] = ir.Constant(I32, 1)
    return _hint(module, wanted)


def strip_hint(module: ir.Module, width: int, count: int) -> LoopHint:
    """The hint that a short loop is to be so many vectors of a width, if it can be."""
    return _hint(
        module,
        {
            "llvm.loop.vectorize.width": ir.Constant(I32, width),
            "llvm.loop.interleave.count": ir.Constant(I32, count),
            "llvm.loop.unroll.disable": None,  # which comes before
        },
    )


def scalar_hint(module: ir.Module, count: int) -> LoopHint:
    """The hint that a loop stays scalar, unrolled to so many iterations."""
    return _hint(
        module,
        {
            "llvm.loop.vectorize.width": ir.Constant(I32, 1),
            "llvm.loop.interleave.count": ir.Constant(I32, 1),
            "llvm.loop.unroll.count": ir.Constant(I32, count),
        },
    )


def _hint(module: ir.Module, wanted: dict[str, Any]) -> LoopHint:
    nodes = [
        module.add_metadata([ir.MetaDataString(module, name), *_operands(value)])
        for name, value in wanted.items()
    ]
    return LoopHint(module, nodes, name=str(len(module.metadata)))


def _operands(value: Any) -> list[Any]:
    return [] if value is None else [value]
