"""Programs as data: capture, print, check, transform, run and save them."""

from weft.graph.capture import Capture, Captured, Spec, capture, capturing
from weft.graph.interpret import Program
from weft.graph.ir import Builder, Graph, GraphError, Node, Variable
from weft.graph.symbol import Building, CaptureError, Symbol

__all__ = [
    "Builder",
    "Building",
    "Capture",
    "CaptureError",
    "Captured",
    "Graph",
    "GraphError",
    "Node",
    "Program",
    "Spec",
    "Symbol",
    "Variable",
    "capture",
    "capturing",
]
