"""The emitters that all kinds of tasks share."""

from __future__ import annotations

from weft.compile.targets.cpu.convolution.patches import Patches
from weft.compile.targets.cpu.convolution.windows import emit_windows
from weft.compile.targets.cpu.convolution.write_back import Deliver
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.pack import Packing
from weft.compile.targets.cpu.matmul.strip import Strips


class Emitters:
    """The functions that a module of convolutions has once."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib
        self.windows = emit_windows(lib)
        self.patches = Patches(lib)
        self.packing = Packing(lib)
        self.strips = Strips(lib)
        self.deliver = Deliver(lib, self.packing)
