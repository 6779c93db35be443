"""Adding convolutions to a module."""

from __future__ import annotations

from llvmlite import ir

from weft.compile.emit.isa import Isa
from weft.compile.targets.cpu.convolution.direct import Direct
from weft.compile.targets.cpu.convolution.image import Image
from weft.compile.targets.cpu.convolution.tasks import Emitters, emit_rectangles
from weft.compile.targets.cpu.convolution.weight_dots import Dots
from weft.compile.targets.cpu.convolution.weight_gradient import Weight
from weft.compile.targets.cpu.convolution.winograd import Winograd
from weft.compile.targets.cpu.convolution.winograd_plans import has_winograd
from weft.compile.targets.cpu.convolution.winograd_transforms import SCHEMES, Transforms
from weft.compile.targets.cpu.convolution.winograd_weight import Kernels
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.generate import tile_for
from weft.compile.targets.cpu.matmul.kinds import FLOATS

USUAL = "usual"
# modules of their own, and their functions
RARE = {
    "direct_tasks": "few",  # channels in each group
    "dots_tasks": "few",
    "winograd_5x5_tasks": "5x5",
    "kernels_5x5_tasks": "5x5",
}


def emit_conv(module: ir.Module, dtype: str, isa: Isa, *, part: str = USUAL) -> None:
    """Add ``conv_X_tasks`` for each kind of tasks in a part of the library."""
    lib = Library(module, "conv", FLOATS[dtype], isa, tile_for(dtype, isa))
    emitters = Emitters(lib)
    if part == "few":
        Direct(emitters).emit()
        Dots(emitters).emit()
        return
    if part == USUAL:
        emit_rectangles(lib, "image_tasks", Image(emitters).emit())
        emit_rectangles(lib, "weight_tasks", Weight(emitters).emit())
    if has_winograd(lib.tile):
        tiles = Transforms(lib, SCHEMES[3 if part == USUAL else 5])
        one, two = (f"{n}{tiles.scheme.name}_tasks" for n in ("winograd", "kernels"))
        emit_rectangles(lib, one, Winograd(emitters, tiles).emit())
        emit_rectangles(lib, two, Kernels(emitters, tiles).emit())
