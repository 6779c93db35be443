"""Programs as data: capture, print, check, transform, run and save them."""

from weft.graph import custom, passes, rewrite, values
from weft.graph.capture import Spec, capture, capturing
from weft.graph.captured_program import Captured
from weft.graph.gradients import add_gradients, gradients
from weft.graph.interpret import Program
from weft.graph.ir import Builder, Graph, GraphError, Node, Variable
from weft.graph.outside_tensors import Capture
from weft.graph.parse import parse_graph
from weft.graph.symbol import Building, CaptureError, Symbol
from weft.graph.text import print_graph
from weft.graph.transform import apply, jvp, vjp, vmap
from weft.graph.verify import verify
from weft.graph.views import to_dot, to_html, to_svg

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
    "add_gradients",
    "apply",
    "capture",
    "capturing",
    "custom",
    "gradients",
    "jvp",
    "parse_graph",
    "passes",
    "print_graph",
    "rewrite",
    "to_dot",
    "to_html",
    "to_svg",
    "values",
    "verify",
    "vjp",
    "vmap",
]
