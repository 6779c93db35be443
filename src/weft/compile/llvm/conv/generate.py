"""Adding convolutions to a module."""

from __future__ import annotations

from llvmlite import ir

from weft.compile.llvm.conv.direct import Direct
from weft.compile.llvm.conv.dots import Dots
from weft.compile.llvm.conv.image import Image
from weft.compile.llvm.conv.kernels import Kernels
from weft.compile.llvm.conv.parts import Parts
from weft.compile.llvm.conv.rectangles import emit_rectangles
from weft.compile.llvm.conv.tile_plans import has_winograd
from weft.compile.llvm.conv.transforms import Transforms
from weft.compile.llvm.conv.weight import Weight
from weft.compile.llvm.conv.winograd import Winograd
from weft.compile.llvm.gemm.generate import tile_for
from weft.compile.llvm.gemm.kinds import FLOATS
from weft.compile.llvm.gemm.routine import Library
from weft.compile.llvm.target import Target

RARE = "direct_tasks", "dots_tasks"  # of few channels in each group


def emit_conv(module: ir.Module, dtype: str, target: Target, *, rare: bool) -> None:
    """Add ``conv_X_tasks`` for each kind of tasks that is rare, or each that is not."""
    lib = Library(module, "conv", FLOATS[dtype], target, tile_for(dtype, target))
    parts = Parts(lib)
    if rare:
        Direct(parts).emit()
        Dots(parts).emit()
        return
    emit_rectangles(lib, "image_tasks", Image(parts).emit())
    emit_rectangles(lib, "weight_tasks", Weight(parts).emit())
    if has_winograd(lib.tile):
        tiles = Transforms(lib)
        emit_rectangles(lib, "winograd_tasks", Winograd(parts, tiles).emit())
        emit_rectangles(lib, "kernels_tasks", Kernels(parts, tiles).emit())
