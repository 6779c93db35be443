"""A limit on the steps of loops: ``Session(loop_limit=1000)``.

Each ``while_loop`` of a run, also one inside another, counts its steps beside what it
carries, and stops one step after the limit; a check of the count then raises the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.dispatch import bind
from weft.core.op import TensorType
from weft.dtype import int64
from weft.graph import transform
from weft.graph.control.bodies import apply_op, graph_of, types_of
from weft.graph.control.loop import while_op
from weft.graph.ir import Graph, Node, has_graphs
from weft.ops.creation import zeros
from weft.ops.require import require

_COUNT = TensorType((), int64)


def limited(graph: Graph, limit: int) -> Graph:
    """The graph, of whose loops none takes more than ``limit`` steps."""
    if while_op not in graph.ops:
        return graph

    def fn(build: Any, args: list[Any]) -> Sequence[Any]:
        env: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
        for node in graph.nodes:
            if node not in env:
                env[node] = _applied(node, env, build, limit)
        return [env[node] for node in graph.outputs]

    inputs = [(node.name, node.type) for node in graph.inputs]
    return transform.traced(graph.name, graph, inputs, fn)


def _applied(node: Node, env: dict[Node, Any], build: Any, limit: int) -> Any:
    if not has_graphs(node.params):
        return transform.apply_node(node, env, build)
    params = {name: _inner(value, limit) for name, value in node.params.items()}
    args = [env[i] if type(i) is Node else i for i in node.inputs]
    with build.builder.deriving(node), build.builder.within(node):
        if node.op is while_op:
            return _counted(node, args, params, limit)
        return bind(node.op, tuple(args), params)


def _inner(value: Any, limit: int) -> Any:
    """A parameter with limits on the loops of graphs in it."""
    if isinstance(value, Graph):
        return limited(value, limit)
    if isinstance(value, tuple):
        return tuple(_inner(one, limit) for one in value)
    return value


def _counted(node: Node, args: list[Any], params: Any, limit: int) -> Any:
    """A loop that counts its steps, and the check that they are no more."""
    condition, body = params["condition"], params["body"]

    def ask(build: Any, xs: list[Any]) -> Sequence[Any]:
        goes_on = transform.apply(condition, xs[:-1], build)[0]
        return [goes_on & (xs[-1] <= limit)]

    def step(build: Any, xs: list[Any]) -> Sequence[Any]:
        return [*transform.apply(body, xs[:-1], build), xs[-1] + 1]

    types = [*types_of(body.inputs), _COUNT]
    steps, *carry, _ = apply_op(
        while_op, [*args, zeros((), dtype=int64)],
        condition=graph_of(condition.name, condition, types, ask),
        body=graph_of(body.name, body, types, step), fixed=params["fixed"],
    )  # fmt: skip
    text = (
        f"while_loop {node.name!r}: expected at most {limit} steps, the session's "
        "loop_limit, but its condition still holds"
    )
    return (require(steps, lambda n: n <= limit, text), *carry)
