"""The routines that all kinds of tasks are made of."""

from __future__ import annotations

from weft.compile.llvm.conv.deliver import Deliver
from weft.compile.llvm.conv.patches import Patches
from weft.compile.llvm.conv.windows import emit_windows
from weft.compile.llvm.gemm.pack import Packing
from weft.compile.llvm.gemm.routine import Library
from weft.compile.llvm.gemm.strip import Strips


class Parts:
    """What a module of convolutions has once."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib
        self.windows = emit_windows(lib)
        self.patches = Patches(lib)
        self.packing = Packing(lib)
        self.strips = Strips(lib)
        self.deliver = Deliver(lib, self.packing)
