"""Adding convolutions to a module."""

from __future__ import annotations

from llvmlite import ir

from weft.compile.llvm.conv.image import Image
from weft.compile.llvm.conv.patches import Patches
from weft.compile.llvm.conv.rectangles import emit_rectangles
from weft.compile.llvm.conv.weight import Weight
from weft.compile.llvm.conv.windows import emit_windows
from weft.compile.llvm.gemm.generate import ELEMENTS, tile_for
from weft.compile.llvm.gemm.pack import Packing
from weft.compile.llvm.gemm.routine import Library
from weft.compile.llvm.gemm.strip import Strips
from weft.compile.llvm.target import Target


def emit_conv(module: ir.Module, dtype: str, target: Target) -> None:
    """Add the functions ``conv_image_tasks`` and ``conv_weight_tasks``."""
    lib = Library(module, "conv", ELEMENTS[dtype], target, tile_for(dtype, target))
    parts = emit_windows(lib), Patches(lib), Packing(lib), Strips(lib)
    emit_rectangles(lib, "image_tasks", Image(lib, *parts).emit())
    emit_rectangles(lib, "weight_tasks", Weight(lib, *parts).emit())
