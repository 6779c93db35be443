"""Programs under ``detect_anomaly``: they look at their own results.

    %y = …                              %y = …
    return %y                      →    %fine = all(isfinite(%y))
                                        %check = require(%fine, %fine)
                                        return %y

One number tells whether a run made a NaN (or an infinity). It is checked before state
is written, so that the program can then be run again, node by node, to find the first
operator that made one from finite values. New state is computed once for the check and
once more where it is kept (``recompute_state``), which is faster than a copy of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.autograd.anomaly import Wanted, anomaly_of
from weft.core.op import find_op
from weft.core.tensor import Tensor
from weft.graph.interpret import Program
from weft.graph.ir import ASSIGN, INPUT, READ, Graph, Node, Variable

ndarray = np.ndarray
_GIVEN = (INPUT, READ)


def with_checks(graph: Graph, wanted: Wanted) -> Graph:
    """The graph with a check that its results are finite.

    >>> g = weft.graph.capture(lambda x: x.log(), weft.ones(2)).graph
    >>> checked = weft.compile.passes.anomaly.with_checks(g, (True, True))
    >>> [n.op.name for n in checked][1:]
    ['log', 'isfinite', 'all', 'require']
    """
    values = _results(graph)
    if not values:
        return graph
    build = graph.builder()
    with build.deriving(values[-1]), build.scope("anomaly"):
        flags = [_flag(build, value, wanted) for value in values]
        fine = flags[0]
        for flag in flags[1:]:
            fine = build.add(find_op("bitwise_and"), (fine, flag), {})
        params = {"error": "AutogradError", "text": "a result is not finite"}
        build.add(find_op("require"), (fine, fine), params)
    return Graph(graph.name, build.nodes, graph.outputs, graph.sizes, graph.inputs)


def _results(graph: Graph) -> list[Node]:
    """The floating-point numbers that a program computes for others to see."""
    assigned = [n.inputs[0] for n in graph.nodes if n.op is ASSIGN]
    return [
        n
        for n in dict.fromkeys((*graph.outputs, *assigned))
        if type(n) is Node and n.op not in _GIVEN and n.dtype.is_inexact
    ]


def _flag(build: Any, value: Node, wanted: Wanted) -> Node:
    _, inf = wanted
    if inf:
        fine = build.add(find_op("isfinite"), (value,), {})
    else:
        fine = build.add(find_op("eq"), (value, value), {})
    dims = tuple(range(len(value.shape)))
    return build.add(find_op("all"), (fine,), {"dim": dims, "keepdim": False})


def raise_anomaly(
    graph: Graph,
    wanted: Wanted,
    reads: Sequence[Variable],
    feeds: Sequence[ndarray],
    variables: Sequence[ndarray],
) -> bool:
    """Interpret a graph up to the first operator that makes a NaN, and raise its error.

    True if no operator does, because a value that is not finite came in from outside.
    """
    names = dict(zip([v.name for v in reads], variables, strict=True))
    store = {v: names[name] for name, v in graph.variables.items() if name in names}
    _Watched(graph, wanted).run(feeds, store)
    return True


class _Watched(Program):
    """A program that checks the value of each node."""

    def __init__(self, graph: Graph, wanted: Wanted) -> None:
        super().__init__(graph, graph.outputs)
        self.wanted = wanted

    def _loop(self, steps: list[Any], env: list[Any], store: Any, changed: Any) -> None:
        for step in steps:
            _, ins, params, out, _, node = step
            super()._loop([(*step[:4], (), node)], env, store, changed)
            if step[0] is not None:
                args = [_shown(env[i]) for i in ins]
                outs = env[out] if type(env[out]) is tuple else (env[out],)
                made = [_shown(o) for o in outs]
                error = anomaly_of(node.op, args, params, made, self.wanted, node)
                if error is not None:
                    raise error


def _shown(value: Any) -> Any:
    return Tensor(value) if isinstance(value, ndarray) else value
