"""Hand-written derivatives inside graphs.

A ``Function`` (or a layer with its own backward) that is applied to symbols leaves the
nodes of its forward program and one node more:

    %y' = custom(%x, …, %y, …; backward=graph)

whose value is y, and whose derivative is not that of the nodes before it but the
backward graph, the function's own.
"""

from __future__ import annotations

from typing import Any

from weft.core.dispatch import type_of
from weft.core.op import Op
from weft.graph import transform
from weft.graph.ir import STRUCTURAL, Graph, Node
from weft.graph.symbol import Building


def _eval(*xs: Any, count: int, outs: int, places: Any, backward: Graph) -> Any:
    return tuple(xs[count : count + outs])


def _type(*xs: Any, count: int, outs: int, places: Any, backward: Graph) -> Any:
    return tuple(xs[count : count + outs])


def _vjp(
    g: Any, xs: Any, need: Any, count: int, outs: int, places: Any, backward: Graph
) -> list[Any]:
    from weft.ops.creation import zeros_like

    gs = [
        zeros_like(xs[count + k]) if one is None else one
        for k, one in enumerate(g)
        if xs[count + k].dtype.is_inexact
    ]
    found = transform.apply(backward, [*gs, *xs])
    back: list[Any] = [None] * len(xs)
    for place, one in zip(places, found, strict=True):
        back[place] = one
    return back


def _batch(op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]) -> Any:
    """The outputs of the forward program, which is batched itself."""
    from weft.graph.control.bodies import to_batch

    first, count = params["count"], params["outs"]
    pairs = list(zip(args, batched, strict=True))[first : first + count]
    return tuple(value if b else to_batch(value, size) for value, b in pairs)


custom_op: Op = Op(
    "custom",
    inputs="*xs",
    outputs="*outs",
    eval=_eval,
    type=_type,
    vjp=_vjp,
    batch=_batch,
)
STRUCTURAL[custom_op.name] = custom_op


def keep_backward(build: Building, op: Op, args: tuple[Any, ...], out: Any) -> Any:
    """The outputs of a composite operator, with its own backward attached."""
    from weft.core.pytree import tree_flatten
    from weft.graph.control.staging import Staged, closed_over

    outs = list(out) if type(out) is tuple else [out]
    count = len(args)
    leaving = [type_of(o) for o in outs if o.dtype.is_inexact]
    places: list[int] = []

    def pull(*values: Any) -> tuple[Any, ...]:
        gs, rest = list(values[: len(leaving)]), values[len(leaving) :]
        full = [gs.pop(0) if o.dtype.is_inexact else None for o in outs]
        known = {f"x{k}": v for k, v in enumerate(rest[:count])}
        known |= {f"out{k}": v for k, v in enumerate(rest[count:])}
        rule: Any = op.vjp
        named = [known[name] for name in rule.names if name in known]
        need = tuple(True for _ in args)
        found = rule(tuple(full) if type(out) is tuple else full[0], need, *named)
        places.extend(k for k, one in enumerate(found) if one is not None)
        return tuple(one for one in found if one is not None)

    given = [*leaving, *args, *outs]
    structure = tree_flatten(tuple(range(len(given))))[1]
    staged = Staged(f"{op.name}_backward", build, pull, given, structure)
    extra = closed_over(staged)
    inputs = [*staged.inputs, *[staged.run.input_for(t) for t in extra]]
    backward = staged.finish(inputs, staged.outputs)
    params = {"count": count, "outs": len(outs), "places": tuple(places),
              "backward": backward}  # fmt: skip
    nodes = tuple(build.lift(x) for x in (*args, *outs, *extra))
    made = build.wrap(build.builder.add(custom_op, nodes, params, name=op.name))
    return made if type(out) is tuple else made[0]


def without_backward(graph: Graph) -> Graph:
    """The graph with ``custom`` nodes replaced by the values that they stand for.

    It is made when nothing will be differentiated any more.
    """
    if not any(node.op is custom_op for node in graph.nodes):
        return graph
    replaced: dict[Node, Node] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        if node.op is custom_op:
            continue
        source = node.inputs[0] if node.inputs else None
        if type(source) is Node and source.op is custom_op:
            place = source.params["count"] + node.params["index"]
            replaced[node] = replaced[source.inputs[place]]
            continue
        replaced[node] = moved(node, replaced)
        kept.append(replaced[node])
    outs = [replaced[o] for o in graph.outputs]
    return Graph(
        graph.name, kept, outs, graph.sizes, [replaced[i] for i in graph.inputs]
    )


def moved(node: Node, made: dict[Node, Node]) -> Node:
    """The node with its inputs replaced as ``made`` says."""
    inputs = tuple(made.get(i, i) if type(i) is Node else i for i in node.inputs)
    after = tuple(made.get(a, a) for a in node.after)
    if inputs == node.inputs and after == node.after:
        return node
    return Node(
        node.op, inputs, node.params, node.type, node.name, after, node.module,
        node.code, node.lasti, node.role,
    )  # fmt: skip
