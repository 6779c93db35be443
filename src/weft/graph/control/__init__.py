"""Control flow that can be captured: branches and loops as functions."""

from weft.graph.control.branch import cond, switch
from weft.graph.control.loop import fori_loop, while_loop
from weft.graph.control.repeat import map, scan

__all__ = ["cond", "fori_loop", "map", "scan", "switch", "while_loop"]
