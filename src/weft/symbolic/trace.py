"""Traces of automatic differentiation, step by step, as three tables.

    forward    each step's formula and value
    tangent    how each step moves when one input does (forward mode, a table an input)
    adjoint    how the output moves with each step (reverse mode, from the output back)

The values come from ``weft.func.jvp`` and ``weft.graph.gradients``; the formulas beside
them from the same operators' rules, one step at a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError
from weft.func.jvp import jvp
from weft.graph.gradients import add_gradients
from weft.graph.interpret import run_graph
from weft.graph.ir import INPUT, Graph, Node
from weft.graph.transform import apply
from weft.symbolic.derive import derivative, read, variables
from weft.symbolic.expression import Expression, product, total, variable


class Row(NamedTuple):
    """One step: what it is called, by which formula, and its value."""

    name: str
    formula: str
    value: float


class Traces(NamedTuple):
    """The tables of one function at one point.

    >>> weft.symbolic.traces(lambda x: x * x, x=3.0).adjoint[-1]
    Row(name='gx', formula='2*gout*x', value=6.0)
    """

    forward: list[Row]
    tangents: dict[str, list[Row]]
    adjoint: list[Row]

    def __str__(self) -> str:
        parts = [_table("forward", self.forward)]
        for name, rows in self.tangents.items():
            parts.append(_table(f"tangent, d{name} = 1", rows))
        parts.append(_table("adjoint", self.adjoint))
        return "\n\n".join(parts)


def _table(title: str, rows: list[Row]) -> str:
    names = max(len(r.name) for r in rows)
    wide = max(len(r.formula) for r in rows)
    lines = [f"  {r.name:{names}} = {r.formula:{wide}}  {r.value: .10g}" for r in rows]
    return "\n".join([title, *lines])


def traces(fn: Callable[..., Any], **at: float) -> Traces:
    """The forward, tangent and adjoint traces of a function of numbers.

    The steps between the inputs and the output are numbered after the inputs.

    >>> print(weft.symbolic.traces(lambda x, y: x * y + weft.sin(x), x=2.0, y=3.0))
    forward
      x   = 2         2
      y   = 3         3
      v3  = x*y       6
      v4  = sin(x)    0.9092974268
      out = v3 + v4   6.909297427
    <BLANKLINE>
    tangent, dx = 1
      dx   = 1             1
      dy   = 0             0
      dv3  = dx*y + dy*x   3
      dv4  = dx*cos(x)    -0.4161468365
      dout = dv3 + dv4     2.583853163
    <BLANKLINE>
    tangent, dy = 1
      dx   = 0             0
      dy   = 1             1
      dv3  = dx*y + dy*x   2
      dv4  = dx*cos(x)     0
      dout = dv3 + dv4     2
    <BLANKLINE>
    adjoint
      gout = 1                    1
      gv4  = gout                 1
      gv3  = gout                 1
      gy   = gv3*x                2
      gx   = gv3*y + gv4*cos(x)   2.583853163
    """
    steps = _Steps(fn, at)
    return Traces(steps.forward(), {n: steps.tangent(n) for n in at}, steps.adjoint())


class _Steps:
    """A function's graph at a point, with names for its nodes."""

    def __init__(self, fn: Callable[..., Any], at: dict[str, float]) -> None:
        given = list(inspect.signature(fn).parameters)
        if sorted(given) != sorted(at):
            raise ArgumentError(
                f"traces: expected values for {', '.join(given)}, got "
                f"{', '.join(at) or 'none'}"
            )
        symbols = variables(" ".join(given))
        self.build = symbols[0]._interpreter
        out = self.build.lift(fn(*symbols))
        self.at = {n: float(at[n]) for n in given}
        whole = self.build.builder.finish([out])
        self.out = out
        needed = whole.ancestors([out])
        self.nodes = [n for n in whole.nodes if n in needed or n.op is INPUT]
        self.graph = Graph("trace", self.nodes, self.nodes, whole.sizes)
        self.names = self._named()
        self.letters = {n: variable(self.names[n]) for n in self.nodes}

    def _named(self) -> dict[Node, str]:
        names, k = {}, len(self.graph.inputs)
        for node in self.nodes:
            if node.op is INPUT:
                names[node] = node.name
            elif node is self.out:
                names[node] = "out"
            else:
                k += 1
                names[node] = f"v{k}"
        return names

    def _arrays(self) -> list[np.ndarray]:
        return [np.asarray(self.at[n.name]) for n in self.graph.inputs]

    def _step(self, node: Node) -> Expression:
        """A node's formula in the names of the nodes it takes."""
        return read(node, {n: e for n, e in self.letters.items() if n is not node})

    def _slopes(self, node: Node) -> list[tuple[Node, Expression]]:
        """The step's derivatives by what it takes, by the operator's rule."""
        step = self._step(node)
        parents = dict.fromkeys(i for i in node.inputs if type(i) is Node)
        return [(p, derivative(step, self.names[p]).simplify()) for p in parents]

    def forward(self) -> list[Row]:
        values = run_graph(self.graph, self._arrays())
        return [
            Row(self.names[n], self._given(n) or str(self._step(n)), v.item() + 0.0)
            for n, v in zip(self.nodes, values, strict=True)
        ]

    def _given(self, node: Node) -> str:
        return f"{self.at[node.name]:g}" if node.op is INPUT else ""

    def tangent(self, by: str) -> list[Row]:
        from weft.core.tensor import Tensor

        primals = tuple(Tensor(a) for a in self._arrays())
        moves = tuple(
            Tensor(np.asarray(float(n.name == by))) for n in self.graph.inputs
        )
        _, moved = jvp(lambda *xs: tuple(apply(self.graph, xs)), primals, moves)
        rows = []
        for node, value in zip(self.nodes, moved, strict=True):
            text = str(self._moves(node))
            if node.op is INPUT:
                text = "1" if node.name == by else "0"
            rows.append(Row(f"d{self.names[node]}", text, value.item() + 0.0))
        return rows

    def _moves(self, node: Node) -> Expression:
        parts = [
            product(slope, variable(f"d{self.names[p]}"))
            for p, slope in self._slopes(node)
        ]
        return total(*parts).simplify()

    def adjoint(self) -> list[Row]:
        found = add_gradients(self.build, [self.out], self.nodes)
        kept = [g for g in found if g is not None]
        whole = self.build.builder.finish(kept)
        values = iter(run_graph(whole, self._arrays()))
        numbers = [0.0 if g is None else next(values).item() for g in found]
        back = self._pulls()
        rows = []
        for node, value in reversed(list(zip(self.nodes, numbers, strict=True))):
            text = "1" if node is self.out else str(total(*back[node]).simplify())
            rows.append(Row(f"g{self.names[node]}", text, value + 0.0))
        return rows

    def _pulls(self) -> dict[Node, list[Expression]]:
        """The terms of each node's adjoint, one for each use."""
        found: dict[Node, list[Expression]] = {n: [] for n in self.nodes}
        for node in reversed(self.nodes):
            for parent, slope in self._slopes(node):
                found[parent].append(product(slope, variable(f"g{self.names[node]}")))
        return found
