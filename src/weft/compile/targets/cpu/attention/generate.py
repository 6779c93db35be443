"""Adding attention to a module."""

from __future__ import annotations

from llvmlite import ir

from weft.compile.emit.isa import Isa
from weft.compile.targets.cpu.attention.backward import Backward
from weft.compile.targets.cpu.attention.blocks import Emitters
from weft.compile.targets.cpu.attention.few_queries import Few
from weft.compile.targets.cpu.attention.forward import Forward
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.generate import tile_for
from weft.compile.targets.cpu.matmul.kinds import FLOATS

UNITS = "few", "blocks", "masked_blocks"


def unit_of(function: str) -> str:
    """The unit of code that has a function, of ``UNITS``.

    >>> from weft.compile.targets.cpu.attention.generate import unit_of
    >>> unit_of("masked_backward_tasks")
    'masked_blocks'
    """
    if function.startswith("masked_"):
        return "masked_blocks"
    return "few" if function.startswith("few_") else "blocks"


def emit_attention(module: ir.Module, dtype: str, isa: Isa, unit: str) -> None:
    """Add functions ``attention_X_tasks``.

    X is ``few``, or ``forward`` and ``backward``, or these behind ``masked_``: code
    without masks is half as large.
    """
    masked = unit == "masked_blocks"
    tile = tile_for(dtype, isa)
    name = "attention_masked" if masked else "attention"
    emitters = Emitters(Library(module, name, FLOATS[dtype], isa, tile), masked=masked)
    if unit == "few":
        Few(emitters).emit()
    else:
        Forward(emitters).emit()
        Backward(emitters).emit()
