"""Compiled graphs as functions of tensors that can be differentiated.

A ``GraphFunction`` runs a graph natively. On the tape it is one operator, whose vjp
is the GraphFunction of the graph's vjp, and so on for every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.compile.program.program import compiled
from weft.core.device import Device, cpu
from weft.core.dispatch import bind
from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.graph.custom import moved
from weft.graph.ir import ASSIGN, INPUT, READ, Graph, Node
from weft.graph.transform import vjp


class GraphFunction:
    """A graph without variables as a differentiable function of tensors."""

    def __init__(
        self,
        graph: Graph,
        write: Callable[[dict[str, Any]], None] | None = None,
        recompute: Any = None,
        device: Device = cpu,
    ) -> None:
        self.graph = graph
        self.device = device
        self.program = compiled(
            graph, recompute=recompute, kept=True, target=device.target
        )
        self.write = write  # gets the variables' new values
        self.pullbacks: dict[tuple[bool, ...], GraphFunction] = {}

    def arrays(self, tensors: Sequence[Any]) -> list[Any]:
        if self.device is cpu:
            feeds = [t.to_host() for t in tensors]
        else:
            feeds = [t.to(self.device)._data for t in tensors]
        outputs, _ = self.program.run(feeds, write=self.write)
        return outputs

    def __call__(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        names = " ".join(f"x{k}" for k in range(len(tensors)))
        op = Op(
            self.graph.name,
            inputs=names,
            outputs="*outs",
            eval=lambda *xs: tuple(
                [Tensor.on_device(a, self.device) for a in self.arrays(xs)]
            ),
            type=None,
            vjp=self._rule(len(tensors)),
            composite=True,
        )
        outputs = bind(op, tuple(tensors), {})
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def _rule(self, count: int) -> Any:
        floating = [n.dtype.is_inexact for n in self.graph.inputs]

        def pull(g: Any, need: Any, *xs: Any) -> Any:
            present = tuple([one is not None for one in g])
            cotangents = [one for one in g if one is not None]
            gradients = iter(self.pullback(present)((*xs, *cotangents)))
            return [next(gradients) if wanted else None for wanted in floating]

        pull.names = ("need", *[f"x{k}" for k in range(count)])  # type: ignore[attr-defined]
        return pull

    def pullback(self, present: tuple[bool, ...]) -> GraphFunction:
        """The vjp, a function of the arguments and of the cotangents ``present``."""
        if present not in self.pullbacks:
            pure = [node for node in self.graph.nodes if node.op is not ASSIGN]
            forward = Graph(
                self.graph.name, pure, self.graph.outputs, self.graph.sizes,
                self.graph.inputs,
            )  # fmt: skip
            self.pullbacks[present] = GraphFunction(
                vjp(forward, None, present), device=self.device
            )
        return self.pullbacks[present]


def closed(graph: Graph) -> tuple[Graph, list[Any]]:
    """The graph with its variables as further inputs, and these variables."""
    new: dict[Node, Node] = {}
    variables: dict[Any, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op is READ:
            variable = node.params["variable"]
            if variable not in variables:
                variables[variable] = Node(
                    INPUT, (), {"type": node.type}, node.type, node.name,
                    (), node.module, node.code, node.lasti,
                )  # fmt: skip
                nodes.append(variables[variable])
            new[node] = variables[variable]
            continue
        new[node] = moved(node, new)
        nodes.append(new[node])
    inputs = [new[i] for i in graph.inputs]
    outs = [new[o] for o in graph.outputs]
    whole = Graph(graph.name, nodes, outs, graph.sizes, (*inputs, *variables.values()))
    return whole, list(variables)
