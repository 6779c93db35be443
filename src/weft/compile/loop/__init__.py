"""Loops: kernels between graphs and machine code."""

from weft.compile.loop.ir import (
    Buffer,
    Call,
    Choice,
    Const,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
)

__all__ = [
    "Buffer", "Call", "Choice", "Const", "For", "Kernel", "Let", "Load", "Local",
    "Position", "Set", "Store", "When",
]  # fmt: skip
