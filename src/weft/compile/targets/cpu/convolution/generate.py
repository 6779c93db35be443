"""Adding convolutions to a module."""

from __future__ import annotations

from llvmlite import ir

from weft.compile.emit.isa import Isa
from weft.compile.targets.cpu.convolution.direct import Direct
from weft.compile.targets.cpu.convolution.image import Image
from weft.compile.targets.cpu.convolution.rectangles import emit_rectangles
from weft.compile.targets.cpu.convolution.routines import Emitters
from weft.compile.targets.cpu.convolution.weight_dots import Dots
from weft.compile.targets.cpu.convolution.weight_gradient import Weight
from weft.compile.targets.cpu.convolution.winograd import Winograd
from weft.compile.targets.cpu.convolution.winograd_plans import has_winograd
from weft.compile.targets.cpu.convolution.winograd_transforms import Transforms
from weft.compile.targets.cpu.convolution.winograd_weight import Kernels
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.generate import tile_for
from weft.compile.targets.cpu.matmul.kinds import FLOATS

RARE = "direct_tasks", "dots_tasks"  # of few channels in each group


def emit_conv(module: ir.Module, dtype: str, isa: Isa, *, rare: bool) -> None:
    """Add ``conv_X_tasks`` for each kind of tasks that is rare, or each that is not."""
    lib = Library(module, "conv", FLOATS[dtype], isa, tile_for(dtype, isa))
    emitters = Emitters(lib)
    if rare:
        Direct(emitters).emit()
        Dots(emitters).emit()
        return
    emit_rectangles(lib, "image_tasks", Image(emitters).emit())
    emit_rectangles(lib, "weight_tasks", Weight(emitters).emit())
    if has_winograd(lib.tile):
        tiles = Transforms(lib)
        emit_rectangles(lib, "winograd_tasks", Winograd(emitters, tiles).emit())
        emit_rectangles(lib, "kernels_tasks", Kernels(emitters, tiles).emit())
