"""``weft.fx``: programs as graphs of Python calls, under PyTorch's names.

``symbolic_trace`` runs a module once on proxies and gives a ``GraphModule``, which
prints as Python, can be changed node by node, and runs. Its nodes are the calls that
the user wrote; ``weft.graph`` has programs as operators, which the compiler works on.

>>> gm = weft.fx.symbolic_trace(weft.nn.Sequential(weft.nn.ReLU()))
>>> print(gm.graph)
graph():
    %input_1 : [num_users=1] = placeholder[target=input]
    %_0 : [num_users=1] = call_module[target=0](args = (%input_1,), kwargs = {})
    return _0
"""

from weft.fx.graph import Graph, PythonCode
from weft.fx.graph_module import GraphModule
from weft.fx.interpreter import Interpreter, Transformer
from weft.fx.node import Node, has_side_effect, map_arg
from weft.fx.proxy import Proxy
from weft.fx.subgraph_rewriter import replace_pattern
from weft.fx.symbolic_trace import (
    PH,
    ProxyableClassMeta,
    Tracer,
    symbolic_trace,
    wrap,
)

__all__ = [
    "PH",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "PythonCode",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]
