"""Rename size symbols that clash with loop variables.

    %x: float32[i0, 4]      →  %x: float32[i0', 4]

A kernel's loop variables and its sizes are symbols of one scope. Loop variables have
names in small letters, ``i0`` or ``block``, and a program may name a size so too. The
sizes that ``weft.compile`` names itself, ``s0``, never clash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.core.op import TensorType
from weft.core.size import Assumption, Scope, Size
from weft.graph.ir import Graph, Node

_LIKE_A_LOOP = re.compile(r"(?!s\d+$)[a-z]+\d*[a-z]*_*")


def spelling(name: str) -> str:
    """The name of a size in kernels.

    >>> from weft.compile.passes.rename_sizes import spelling
    >>> [spelling(name) for name in ("B", "i0", "block", "s0", "x_0")]
    ['B', "i0'", "block'", 's0', 'x_0']
    """
    return f"{name}'" if _LIKE_A_LOOP.fullmatch(name) else name


def both_spellings(sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes by their names in the program and by those in kernels."""
    return {**{spelling(name): n for name, n in sizes.items()}, **sizes}


def rename_sizes(graph: Graph) -> Graph:
    """Rename size symbols that clash with loop variables.

    >>> from weft.compile.passes.rename_sizes import rename_sizes
    >>> made = weft.graph.capture(
    ...     lambda x: x * 2, weft.ones(3, 4), dynamic={"x": {0: "i0"}})
    >>> rename_sizes(made.graph).outputs
    (<mul 'mul' float32[i0', 4]>,)
    """
    names = graph.sizes.hints
    if all(spelling(name) == name for name in names):
        return graph
    scope = Scope()
    for name, hint in names.items():
        scope.symbol(spelling(name), hint)
    scope.equal = {spelling(a): spelling(b) for a, b in graph.sizes.equal.items()}
    for old in graph.sizes.assumptions.values():
        left, right = (_renamed(side, scope) for side in (old.left, old.right))
        renamed = Assumption(left, old.relation, right, old.line)
        scope.assumptions[str(renamed)] = renamed
    new: dict[Any, Any] = {}
    for node in graph.nodes:
        args = [new[i] if type(i) is Node else _renamed(i, scope) for i in node.inputs]
        new[node] = Node(
            node.op, tuple(args), _renamed(node.params, scope),
            _renamed(node.type, scope), node.name, tuple(new[i] for i in node.after),
            node.module, node.code, node.lasti, node.role,
        )  # fmt: skip
    outputs, inputs = ([new[n] for n in some] for some in (graph.outputs, graph.inputs))
    return Graph(graph.name, new.values(), outputs, scope, inputs)


def _renamed(value: Any, scope: Scope) -> Any:
    """A type, a parameter or a size in the symbols of another scope."""
    if isinstance(value, Size):
        return value.renamed(spelling, scope)
    if isinstance(value, TensorType):
        return TensorType(_renamed(value.shape, scope), value.dtype)
    if type(value) is dict:
        return {key: _renamed(one, scope) for key, one in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_renamed(one, scope) for one in value)
    if type(value) is slice:
        return slice(
            *(_renamed(v, scope) for v in (value.start, value.stop, value.step))
        )
    return value
