"""A graph's digest: equal for graphs that compile to the same program.

Names of nodes count as far as passes read them: whether a node is a gradient, and of
which value it is a copy. Lines and modules do not count; names of variables do. A graph
that something outside of it decides has no digest: an operator or a function of the
user's, sizes that are open.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compile.fusion.groups import AGAIN, is_copy, origin
from weft.compile.passes.recompute import is_gradient
from weft.core.op import TensorType, is_own
from weft.dtype import DType, of_array
from weft.graph.ir import STRUCTURAL, Graph, Node, Variable


class Unknown(Exception):
    """A graph that has no digest."""


def digest(graph: Graph) -> str | None:
    """The digest of a graph, or None if it has none.

    >>> from weft.compile.program.graph_digest import digest
    >>> some = [
    ...     digest(weft.graph.capture(lambda x: x * n + 1, weft.ones(3)).graph)
    ...     for n in (2, 2, 3)
    ... ]
    >>> some[0] == some[1], some[0] == some[2]
    (True, False)
    """
    try:
        data = marshal.dumps(_plain_graph(graph), 2)
    except Unknown:
        return None
    return hashlib.sha256(data).hexdigest()


def _plain_graph(graph: Graph) -> Any:
    number: dict[Node, int] = {}
    rows: list[Any] = []
    known = set(STRUCTURAL.values())
    named = any(AGAIN in node.name for node in graph.nodes)  # perhaps as copies
    origins: dict[str, int] = {}
    for node in graph.nodes:
        if node.op not in known:
            if not is_own(node.op):
                raise Unknown
            known.add(node.op)
        inputs = [number[i] if type(i) is Node else (plain(i),) for i in node.inputs]
        row: list[Any] = [node.op.name, inputs]
        if node.params:
            row.append([(k, plain(v)) for k, v in node.params.items()])
        if node.after:
            row.append([number[i] for i in node.after])
        if named:
            first = origins.setdefault(origin(node), len(rows))
            row.append((is_copy(node), first))
        if "grad" in node.name and is_gradient(node):
            row.append("gradient")
        number[node] = len(rows)
        rows.append(row)
    ends = [[number[n] for n in some] for some in (graph.inputs, graph.outputs)]
    return [rows, *ends]


_AS_IT_IS = {int, float, bool, str, bytes, type(None), complex}


def plain(value: Any) -> Any:
    """A value as numbers, texts and tuples of such; an error if it is not data."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is tuple or kind is list:
        return tuple(map(plain, value))
    found = _PLAIN.get(kind)
    if found is None:
        raise Unknown
    return kind.__name__, *found(value)


def _variable(variable: Variable) -> Any:
    return variable.name, plain(variable.type)


def _array(array: np.ndarray) -> Any:
    data = hashlib.sha256(array.tobytes()).digest()
    return of_array(array).name, array.shape, data


_PLAIN: dict[type, Callable[[Any], Any]] = {
    DType: lambda dtype: (dtype.name,),
    TensorType: lambda kind: (plain(kind.shape), kind.dtype.name),
    Variable: _variable,
    slice: lambda s: (plain(s.start), plain(s.stop), plain(s.step)),
    np.ndarray: _array,
    dict: lambda some: [(plain(k), plain(v)) for k, v in some.items()],
    Graph: _plain_graph,
}
