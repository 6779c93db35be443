"""Formulas: derivatives in closed form, and the traces of automatic ones.

x1, x2 = weft.symbolic.variables("x1 x2")
weft.symbolic.diff(weft.log(x1) + x1 * x2 - weft.sin(x2), x1)     # x2 + 1/x1
print(weft.symbolic.traces(lambda x, y: x * y + weft.sin(x), x=2.0, y=3.0))
"""

from weft.symbolic import rules
from weft.symbolic.derive import diff, expression, gradient, graph_of, variables
from weft.symbolic.expression import Expression, Size
from weft.symbolic.rules import RULES, simplify
from weft.symbolic.trace import Traces, traces

__all__ = [
    "RULES",
    "Expression",
    "Size",
    "Traces",
    "diff",
    "expression",
    "gradient",
    "graph_of",
    "rules",
    "simplify",
    "traces",
    "variables",
]
