"""Checking a graph: what every pass may rely on, and must leave true.

names     no two nodes, and no two variables, have one name
order     inputs and control edges lead to earlier nodes of the same graph
calls     each operator has as many inputs as its record says, and its parameters
types     each node's type is what its operator's rule says
sizes     each symbolic size is declared, and each assumption noted
roles     an input has none, a copy is what it copies, and regions nest in one way
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from weft.core.op import Op, TensorType
from weft.core.size import Scope, Size, same_shape
from weft.errors import WeftError
from weft.graph.ir import (
    FORWARD,
    INPUT,
    STATEFUL,
    Graph,
    GraphError,
    Node,
    Role,
    Variable,
    sized,
    subgraphs,
    type_text,
)
from weft.graph.values import WORDS


def verify(graph: Graph) -> None:
    """Raise a GraphError that names the first node which is not well formed.

    >>> weft.graph.verify(weft.graph.capture(lambda x: x + 1, weft.ones(2)).graph)
    """
    _Verifier(graph, {}).run()


class Unassuming:
    """Undoes assumptions about sizes that are made inside, and tells of them."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._assumed = False

    def __enter__(self) -> Unassuming:
        self._before = dict(self.scope.assumptions), dict(self.scope.equal)
        return self

    @property
    def assumed(self) -> bool:
        return self._assumed or len(self.scope.assumptions) > len(self._before[0])

    def __exit__(self, *error: object) -> None:
        self._assumed = self.assumed
        self.scope.assumptions, self.scope.equal = self._before


class _Verifier:
    """One graph; ``variables`` are those of the graphs around it too."""

    def __init__(self, graph: Graph, variables: dict[str, Variable]) -> None:
        self.graph = graph
        self.variables = variables
        self.seen: set[Node] = set()
        self.names: set[str] = set()
        self.around: dict[int, tuple[int, ...]] = {}  # a region: those it lies in

    def run(self) -> None:
        scope = self.graph.sizes
        self.declared(scope)
        with Unassuming(scope) as sizes:
            for node in self.graph.nodes:
                self.node(node)
                if sizes.assumed:
                    found = list(scope.assumptions)[-1]
                    self.fail(node, f"this holds only if {found}, which is not assumed")
        self.ends()

    def declared(self, scope: Scope) -> None:
        for name in scope.hints:
            if not name.isidentifier() or name in WORDS:
                raise GraphError(
                    f"graph {self.graph.name!r}: a size cannot be named {name!r}; use "
                    "a word such as 'B'"
                )

    def fail(self, node: Node, problem: str) -> NoReturn:
        raise GraphError(
            f"graph {self.graph.name!r}, node {node.name!r}: {problem}"
            f"\n  made at {node.line}"
        )

    def node(self, node: Node) -> None:
        if node.name in self.names:
            self.fail(node, "another node has this name")
        self.names.add(node.name)
        self.edges(node)
        self.call(node)
        for name, inner in subgraphs(node):
            self.inner(node, name, inner)
        self.type(node)
        if node.op in STATEFUL:
            self.variable(node, node.params["variable"])
        if node.role != FORWARD:
            self.role(node, node.role)
        self.seen.add(node)

    # -- order

    def edges(self, node: Node) -> None:
        seen = self.seen
        for other in node.inputs:
            if type(other) is Node and other not in seen:
                self.misplaced(node, other, "input")
        for other in node.after:
            if other not in seen:
                self.misplaced(node, other, "control edge")

    def misplaced(self, node: Node, other: Node, what: str) -> NoReturn:
        if not any(other is one for one in self.graph.nodes):
            self.fail(node, f"its {what} {other.name!r} belongs to another graph")
        cycle = _cycle(node)
        if cycle:
            names = " → ".join(repr(one.name) for one in cycle)
            self.fail(node, f"these nodes wait for each other: {names}")
        self.fail(node, f"its {what} {other.name!r} stands after it")

    # -- calls

    def call(self, node: Node) -> None:
        op, got = node.op, len(node.inputs)
        if not op.variadic and got != len(op.inputs):
            wants = f"{len(op.inputs)} ({', '.join(op.inputs)})" if op.inputs else "no"
            self.fail(node, f"{op.name} takes {wants} inputs, got {got}")
        known = _parameters(op)
        for key in node.params:
            if not known.open and key not in known.names:
                have = ", ".join(sorted(known.names)) or "none"
                self.fail(
                    node, f"{op.name} has no parameter {key!r} (its parameters: {have})"
                )
        missing = known.required - node.params.keys()
        if missing:
            self.fail(node, f"{op.name} needs the parameter {min(missing)!r}")

    def inner(self, node: Node, name: str, graph: Graph) -> None:
        try:
            _Verifier(graph, self.variables).run()
        except GraphError as error:
            text = str(error).partition("\n  at ")[0]
            raise GraphError(f"in {name!r} of node {node.name!r}: {text}") from None

    # -- types

    def type(self, node: Node) -> None:
        rule = node.op.type
        if rule is None:
            self.fail(node, f"{node.op.name} has no type rule")
        args = [i.type if type(i) is Node else i for i in node.inputs]
        try:
            inferred = rule(*args, **node.params)
        except GraphError:
            raise
        except WeftError as error:
            self.fail(node, str(error).partition("\n  at ")[0])
        except (TypeError, AttributeError, ValueError, KeyError, IndexError) as error:
            self.fail(node, f"{node.op.name} does not take these arguments ({error})")
        if inferred is not node.type and not same_type(inferred, node.type):
            self.fail(
                node,
                f"its type is {type_text(node.type)}, but {node.op.name} gives "
                f"{type_text(inferred)}",
            )
        self.sizes(node)

    def sizes(self, node: Node) -> None:
        scope = self.graph.sizes
        for size in _sizes(node.type):
            self.size(node, size, scope)
        for value in (*node.inputs, *node.params.values()):
            if sized(value):
                for size in _sizes(value):
                    self.size(node, size, scope)

    def size(self, node: Node, size: Size, scope: Scope) -> None:
        for name in size.symbols:
            if name not in scope.hints:
                have = ", ".join(scope.hints) or "none"
                self.fail(
                    node, f"the size {name!r} is not declared (there are: {have})"
                )

    def variable(self, node: Node, variable: Variable) -> None:
        held = self.variables.setdefault(variable.name, variable)
        if held is not variable:
            self.fail(node, f"another variable is named {variable.name!r}")
        if not same_type(variable.type, node.type):
            self.fail(
                node,
                f"variable {variable.name!r} is {variable.type}, the node "
                f"{type_text(node.type)}",
            )

    # -- roles

    def role(self, node: Node, role: Role) -> None:
        if node.op is INPUT:
            self.fail(node, "an input has no role, for it is given")
        if node.name in (role.gradient, role.recomputes):
            self.fail(node, "its role names the node itself")
        if role.recomputes is not None:
            self.copy(node, self.graph.by_name.get(role.recomputes))
        region = role.region
        for k, number in enumerate(region):
            if self.around.setdefault(number, region[:k]) != region[:k]:
                self.fail(
                    node,
                    f"region {number} lies in {_regions(self.around[number])} "
                    f"elsewhere, and in {_regions(region[:k])} here",
                )

    def copy(self, node: Node, of: Node | None) -> None:
        """Check a node against the one that it recomputes, unless that is gone."""
        if of is None:
            return
        if of.role.is_copy:
            self.fail(node, f"it recomputes {of.name!r}, which is a copy itself")
        if of.op is not node.op:
            self.fail(
                node,
                f"it is a node of {node.op.name}, and recomputes {of.name!r}, a node "
                f"of {of.op.name}",
            )
        if not same_type(of.type, node.type):
            self.fail(
                node,
                f"its type is {type_text(node.type)}, that of {of.name!r}, which it "
                f"recomputes, {type_text(of.type)}",
            )

    # -- inputs and outputs

    def ends(self) -> None:
        for what, nodes in (
            ("output", self.graph.outputs),
            ("input", self.graph.inputs),
        ):
            for node in nodes:
                if node not in self.seen:
                    self.fail(node, f"this {what} is not one of the graph's nodes")
        for node in self.graph.inputs:
            if node.op is not INPUT:
                self.fail(node, f"an input cannot be a node of {node.op.name}")


def _regions(some: tuple[int, ...]) -> str:
    return f"region {', '.join(map(str, some))}" if some else "no other"


def same_type(a: Any, b: Any) -> bool:
    """Whether two types are surely equal; no size is assumed to find out."""
    if isinstance(a, TensorType):
        return (
            isinstance(b, TensorType)
            and a.dtype is b.dtype
            and same_shape(a.shape, b.shape)
        )
    if isinstance(b, TensorType) or len(a or ()) != len(b or ()):
        return False
    return all(map(same_type, a or (), b or ()))


def _sizes(value: Any) -> list[Size]:
    """The symbolic sizes in a type, an argument or a parameter."""
    if isinstance(value, Size):
        return [value]
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    if isinstance(value, (tuple, list)):
        return [size for one in value for size in _sizes(one)]
    return []


class _Parameters(NamedTuple):
    names: frozenset[str]
    required: frozenset[str]
    open: bool  # any other name is taken too


@lru_cache(None)
def _parameters(op: Op) -> _Parameters:
    """The parameters of a record, by its evaluation or type rule."""
    found = _signature(op, op.eval)
    return _signature(op, op.type) if found.open else found


def _signature(op: Op, function: Any) -> _Parameters:
    if isinstance(function, np.ufunc):
        return _Parameters(frozenset(), frozenset(), False)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return _Parameters(frozenset(), frozenset(), True)
    plain = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    extra = [] if op.variadic else plain[len(op.inputs) :]
    named = [*extra, *[p for p in parameters if p.kind is p.KEYWORD_ONLY]]
    return _Parameters(
        frozenset(p.name for p in named),
        frozenset(p.name for p in named if p.default is p.empty),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _cycle(start: Node) -> list[Node]:
    """The nodes from ``start`` back to itself, or none."""
    came: dict[Node, Node] = {}
    stack = [start]
    while stack:
        node = stack.pop()
        for other in node.parents:
            if other is start:
                path = [node]
                while path[-1] is not start:
                    path.append(came[path[-1]])
                return [*path[::-1], start][::-1]
            if other not in came:
                came[other] = node
                stack.append(other)
    return []
