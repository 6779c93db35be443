"""Adding attention to a module."""

from __future__ import annotations

from llvmlite import ir

from weft.compile.llvm.attention.backward import Backward
from weft.compile.llvm.attention.few import Few
from weft.compile.llvm.attention.forward import Forward
from weft.compile.llvm.attention.parts import Parts
from weft.compile.llvm.gemm.generate import tile_for
from weft.compile.llvm.gemm.kinds import FLOATS
from weft.compile.llvm.gemm.routine import Library
from weft.compile.llvm.target import Target


def emit_attention(module: ir.Module, dtype: str, target: Target) -> None:
    """Add ``attention_X_tasks`` with X ``forward``, ``few`` and ``backward``."""
    tile = tile_for(dtype, target)
    lib = Library(module, "attention", FLOATS[dtype], target, tile)
    parts = Parts(lib)
    Forward(parts).emit()
    Few(parts).emit()
    Backward(parts).emit()
