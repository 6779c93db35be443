"""New state that a check looks at is computed again behind the check, in place.

    %m = mul(%g, 0.1)                       %m = mul(%g, 0.1)
    %w = sub(read(w), %m)                   %w = sub(read(w), %m)
    %fine = all(isfinite(%w))               %fine = all(isfinite(%w))
    %check = require(%fine, %fine)     →    %check = require(%fine, %fine)
    assign(w, %w)                           %c = mul(%g, 0.1) after %check
                                            %d = sub(read(w), %c)
                                            assign(w, %d)

State is written in place only by steps after which nothing can fail. A check of the new
state itself would come too late for that: all of it would be stored and then copied.
Fusion now computes ``%w`` within the check, which stores one number, and the second
time where the state is. Element-wise functions alone are computed again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.groups import COPY, origin
from weft.compile.passes.recompute import copyable
from weft.core.lowering import Pointwise
from weft.core.op import find_op
from weft.graph.ir import ASSIGN, READ, Graph, Node, Variable

_REQUIRE = find_op("require")


def recompute_state(graph: Graph, in_place: Collection[Variable] = ()) -> Graph:
    """Let state that may be written in place be computed again behind its checks.

    >>> from weft.compile.passes.anomaly import with_checks
    >>> from weft.compile.passes.recompute_state import recompute_state
    >>> w = weft.ones(3)
    >>> def scale(x):
    ...     w.mul_(x.exp())
    >>> g = weft.graph.capture(scale, weft.ones(3)).graph
    >>> g = with_checks(g, (True, True))
    >>> made = recompute_state(g, g.variables.values())
    >>> [node.role.recomputes for node in made.nodes if node.role.is_copy]
    ['exp', 'mul']
    """
    checks = [n for n in graph.nodes if n.op is _REQUIRE]
    if not checks or not in_place:
        return graph
    checked = graph.ancestors(checks)
    writes = [
        n
        for n in _last_writes(graph)
        if n.params["variable"] in in_place and n.inputs[0] in checked
    ]
    return _moved(graph, writes, checks[-1]) if writes else graph


def _last_writes(graph: Graph) -> list[Node]:
    """The assignments that nothing in the graph comes after."""
    awaited = {other for node in graph.nodes for other in node.parents}
    seen: set[Variable] = set()
    writes: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op is ASSIGN or node.op is READ:
            variable = node.params["variable"]
            if node.op is ASSIGN and variable not in seen and node not in awaited:
                writes.append(node)
            seen.add(variable)
    return writes[::-1]


def _recomputed(graph: Graph, node: Any) -> bool:
    """Whether a value is computed again: an element-wise function, and no result."""
    if type(node) is not Node or node in graph.outputs:
        return False
    return isinstance(lowering_of(node), Pointwise) and copyable(node)


def _moved(graph: Graph, writes: list[Node], check: Node) -> Graph:
    """The graph with assignments moved behind a check, and copies of their values."""
    values = [n.inputs[0] for n in writes]
    again = {n for n in values if _recomputed(graph, n)}
    for node in reversed(graph.nodes):
        if node in again:
            inputs = [i for i in node.inputs if _recomputed(graph, i)]
            again.update(i for i in inputs if i.shape == node.shape)
    build = graph.builder()
    copies: dict[Node, Node] = {}
    for node in graph.nodes:
        if node in again:
            build.role = node.role._replace(recomputes=origin(node))
            copies[node] = _copy(build, node, copies, check)
    for node in values:
        if node not in copies:
            build.role = node.role.part
            with build.control([check]), build.deriving(node):
                copies[node] = build.add(COPY, (node,), {}, node.type)
    ends = []
    for node in writes:
        build.role = node.role
        ends.append(_copy(build, node, copies, check))
    nodes = [n for n in build.nodes if n not in writes and n not in ends]
    return Graph(graph.name, [*nodes, *ends], graph.outputs, graph.sizes, graph.inputs)


def _copy(build: Any, node: Node, copies: dict[Node, Node], check: Node) -> Node:
    """The node on copies of its inputs.

    Functions of state alone wait for their reader in any case (``fusion.groups``).
    """
    inputs = tuple([copies.get(i, i) if type(i) is Node else i for i in node.inputs])
    read = [i for i in node.inputs if type(i) is Node and i.op is not READ]
    first = read and not any(i in copies for i in read)
    with build.control([check] if first else []):
        return build.add_like(node, inputs, node.params, node.type)
