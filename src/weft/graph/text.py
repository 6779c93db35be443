"""Graphs as text: a program that can be read aloud, and parsed back.

    graph   = graph name(%name: type, …) sizes(B like 32, …) assuming(B != 1, …) {
                state @name: type trainable initial %node
                %name: type = op(argument, …, parameter=value, …) after %node, … role
                return %node, …
              }
    role    = [gradient [of %node]] [recomputes %node] [region number, …]

Only the outermost graph declares ``state``, the variables of all graphs in it. A
graph in a parameter has the sizes of the one around it unless it declares its own.
``read``, ``assign`` and ``constant`` take their variable or elements first. A node of
the forward program has no role; the nodes that roles name need not be there. Regions
are checkpointed functions, the outermost first.
"""

from __future__ import annotations

import os

from weft.core.size import Scope
from weft.errors import ArgumentError
from weft.graph.ir import (
    ASSIGN,
    CONSTANT,
    FORWARD,
    INPUT,
    READ,
    Graph,
    Node,
    Role,
    Variable,
    type_text,
)
from weft.graph.tokens import name_text, word_text
from weft.graph.values import Writer

WIDTH = 88
COLUMN = 64  # where comments begin


def print_graph(graph: Graph, *, lines: bool = False, constants: str = "small") -> str:
    """The graph as text.

    ``lines`` adds each node's module and source line as a comment. Constants of
    more than a few elements are left out (``...``) unless ``constants="full"``,
    the form that ``parse_graph`` reads back exactly.

    >>> step = weft.graph.capture(lambda x: (x * 2).sum(), weft.ones(3), name="step")
    >>> print(weft.graph.print_graph(step.graph))
    graph step(%x: float32[3]) {
      %mul: float32[3] = mul(%x, 2)
      %sum: float32[] = sum(%mul, dim=(0,), keepdim=False)
      return %sum
    }
    """
    if constants not in ("small", "full"):
        raise ArgumentError(
            f"print_graph: expected constants='small' or 'full', got {constants!r}"
        )
    return GraphWriter(constants=constants, lines=lines).graph(graph)


def node_text(node: Node) -> str:
    """One node as the line that it is in its graph's text.

    >>> g = weft.graph.capture(lambda x: x + 1, weft.ones(3)).graph
    >>> weft.graph.text.node_text(g["add"])
    '%add: float32[3] = add(%x, 1)'
    """
    return GraphWriter()._node(node)


def role_text(role: Role) -> str:
    """A role as it stands behind a node.

    >>> weft.graph.text.role_text(weft.graph.ir.Role("exp", region=(0, 2)))
    ' gradient of %exp region 0, 2'
    """
    text = ""
    if role.gradient is not None:
        of = f" of %{name_text(role.gradient)}" if role.gradient else ""
        text += f" gradient{of}"
    if role.recomputes is not None:
        text += f" recomputes %{name_text(role.recomputes)}"
    if role.region:
        text += f" region {', '.join(map(str, role.region))}"
    return text


class GraphWriter(Writer):
    """Writes a graph and, indented, those in its parameters."""

    def __init__(self, constants: str = "small", lines: bool = False) -> None:
        super().__init__(constants)
        self.lines = lines
        self.indent = ""
        self.scopes: list[Scope] = []

    def graph(self, graph: Graph) -> str:
        before, self.indent = self.indent, self.indent + "  "
        header = self._header(graph, before)
        self.scopes.append(graph.sizes)
        given = set(graph.inputs)
        body = [self._node(node) for node in graph.nodes if node not in given]
        self.scopes.pop()
        outputs = ", ".join([self.value(o) for o in graph.outputs])
        state = [] if self.scopes else self._state(graph)
        end = f"{self.indent}return {outputs}".rstrip()
        self.indent = before
        return "\n".join([header, *state, *body, end, f"{before}}}"])

    def _header(self, graph: Graph, indent: str) -> str:
        inputs = [f"{self.value(i)}: {type_text(i.type)}" for i in graph.inputs]
        lead = f"graph {word_text(graph.name)}("
        rest = f"){self._sizes(graph.sizes)} {{"
        if len(indent) + len(lead) + len(", ".join(inputs)) + len(rest) <= WIDTH:
            return f"{lead}{', '.join(inputs)}{rest}"
        gap = f"\n{indent}    "
        return f"{lead}{gap}{f',{gap}'.join(inputs)}\n{indent}{rest}"

    def _sizes(self, scope: Scope) -> str:
        if (self.scopes and scope is self.scopes[-1]) or not scope.hints:
            return ""
        names = [n if h is None else f"{n} like {h}" for n, h in scope.hints.items()]
        found = f" sizes({', '.join(names)})"
        if scope.assumptions:
            found += f" assuming({', '.join(scope.assumptions)})"
        return found

    def _state(self, graph: Graph) -> list[str]:
        return [self._variable(v, graph) for v in self.variables.values()]

    def _variable(self, variable: Variable, graph: Graph) -> str:
        text = f"  state {self.variable(variable)}: {variable.type}"
        if variable.trainable:
            text += " trainable"
        if variable.initial is not None and variable.initial in graph:
            text += f" initial {self.value(variable.initial)}"
        return text

    def _node(self, node: Node) -> str:
        call = f"{node.op.name}({', '.join(self._arguments(node))})"
        text = f"{self.indent}{self.value(node)}: {type_text(node.type)} = {call}"
        if node.after:
            text += f" after {self.each(node.after)}"
        if node.role != FORWARD:
            text += role_text(node.role)
        return self._commented(text, node) if self.lines else text

    def _arguments(self, node: Node) -> list[str]:
        params = node.params
        if node.op is INPUT:
            return []
        if node.op is CONSTANT:
            return [self.data(params["value"])]
        inputs = [self.value(i) for i in node.inputs]
        if node.op is READ or node.op is ASSIGN:
            return [self.value(params["variable"]), *inputs]
        return inputs + [f"{k}={self.value(v)}" for k, v in params.items()]

    def _commented(self, text: str, node: Node) -> str:
        notes = [node.module] if node.module else []
        if node.code is not None:
            notes.append(os.path.basename(node.line.partition(", in ")[0]))
        return f"{text.ljust(COLUMN)}  # {'  '.join(notes)}" if notes else text
