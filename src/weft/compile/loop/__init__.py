"""Loops: kernels between graphs and machine code."""

from weft.compile.loop.ir import (
    Buffer,
    Call,
    Const,
    For,
    Kernel,
    Load,
    Local,
    Position,
    Set,
    Store,
)

__all__ = [
    "Buffer", "Call", "Const", "For", "Kernel", "Load", "Local", "Position", "Set",
    "Store",
]  # fmt: skip
