"""A graph's digest: equal for graphs that compile to the same program.

Roles of nodes count, whereas names, lines and modules do not; names of variables do.
A graph has no digest if anything outside of it decides what it computes: an operator
or a function of the user's, or symbolic sizes.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from weft.core.op import TensorType, is_own
from weft.core.size import Shape
from weft.dtype import DType, of_array
from weft.graph.ir import FORWARD, STRUCTURAL, Graph, Node, Role, Variable


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
    numbering = _Numbering(graph)
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
        if node.role != FORWARD:
            row.append(numbering.role(node.role))
        number[node] = len(rows)
        rows.append(row)
    ends = [[number[n] for n in some] for some in (graph.inputs, graph.outputs)]
    return [rows, *ends]


class _Numbering:
    """Replaces the names of other nodes in roles by numbers."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {node.name: k for k, node in enumerate(self.graph.nodes)}

    def of(self, name: str | None) -> int | None:
        """A node's number; a new one, the same each time, for a node that is gone."""
        numbers = self.numbers
        return None if name is None else numbers.setdefault(name, len(numbers))

    def role(self, role: Role) -> Any:
        return self.of(role.gradient), self.of(role.recomputes), role.region


_AS_IT_IS = {int, float, bool, str, bytes, type(None), complex}


def plain(value: Any) -> Any:
    """A value as nested tuples of numbers and texts; an error if it is not data."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is tuple or kind is list or kind is Shape:
        return tuple(map(plain, value))
    convert = _PLAIN.get(kind)
    if convert is None:
        raise Unknown
    return kind.__name__, *convert(value)


def _array(array: np.ndarray) -> Any:
    data = hashlib.sha256(array.tobytes()).digest()
    return of_array(array).name, array.shape, data


_PLAIN: dict[type, Callable[[Any], Any]] = {
    DType: lambda dtype: (dtype.name,),
    TensorType: lambda kind: (plain(kind.shape), kind.dtype.name),
    Variable: lambda variable: (variable.name, plain(variable.type)),
    slice: lambda s: (plain(s.start), plain(s.stop), plain(s.step)),
    np.ndarray: _array,
    dict: lambda some: [(plain(k), plain(v)) for k, v in some.items()],
    Graph: _plain_graph,
}
