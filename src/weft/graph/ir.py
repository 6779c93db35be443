"""The Graph IR: a program over tensors, as data.

    graph     = name, inputs, nodes in order of execution, outputs, sizes
    node      = name : type = op(argument, …; parameter = value, …) after node, … role
    argument  = node | number | size
    role      = [gradient of node] [recomputes node] [region number, …]
    type      = dtype[size, …] | (type, …)      of an operator with several outputs
    variable  = name : type                     a cell that outlives a run

Every value is a node. An operator with several outputs is one node, and each
output a ``pick`` of it. What is not mathematics is a node too:

    input     a value given for each run        constant   an array
    read      a variable's value now            assign     gives a variable a value
    pick      one of several outputs            group      runs others, has no value
    detach    a value through which no derivative flows

Nodes are immutable; a ``Builder`` appends them, and the finished ``Graph`` only
changes by a pass that builds another one. A node's inputs and the nodes it comes
``after`` (control edges) stand before it, so there are no cycles.

A node without a role belongs to the forward program. Roles name other nodes, which
passes may have removed since. Names are for people: nothing looks into them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from operator import attrgetter
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.core.lowering import SAME
from weft.core.op import Op, TensorType
from weft.core.size import Dimension, Scope, Shape, Size, TensorShape
from weft.dtype import INT, of_array
from weft.errors import (
    INTERNAL,
    ArgumentError,
    DTypeError,
    WeftError,
    describe_line,
    module_stack,
)

if TYPE_CHECKING:
    from weft.graph.control.bodies import BodyCache

_new, _type = object.__new__, type


class GraphError(WeftError, ValueError, RuntimeError):
    """A graph that is not well formed, or a node used where it does not belong."""


class Role(NamedTuple):
    """The part that a node plays in a program; all of it survives every pass.

    A copy of a gradient is a gradient too, and a gradient is in the region of the node
    that it is the gradient of.

    >>> g = weft.graph.capture(lambda x: x.sin(), weft.ones(2)).graph
    >>> weft.graph.gradients(g)["grad/sin/absorb"].role
    Role(gradient='sin', recomputes=None, region=())
    """

    gradient: str | None = None  # the node it is a gradient of; "" where none is known
    recomputes: str | None = None  # the node whose value it computes a second time
    region: tuple[int, ...] = ()  # the checkpointed functions around it, the inner last

    @property
    def is_gradient(self) -> bool:
        return self.gradient is not None

    @property
    def is_copy(self) -> bool:
        return self.recomputes is not None

    @property
    def part(self) -> Role:
        """The role of a node that is made for one with this role, of another value."""
        return self if self.recomputes is None else self._replace(recomputes=None)

    def inside(self, outer: Role, renamed: Callable[[str], str]) -> Role:
        """The role of a node that moves to another graph and replaces a node there.

        Nodes have other names there, and regions are those of the replaced node.
        """
        if self == FORWARD:
            return outer.part
        gradient, copied = self.gradient, self.recomputes
        if gradient is None:
            gradient = outer.gradient
        elif gradient:
            gradient = renamed(gradient)
        return Role(gradient, copied and renamed(copied), outer.region)


FORWARD = Role()


class _Fields:
    """The fields of a node."""

    __slots__ = (
        "__weakref__", "after", "code", "inputs", "lasti", "module", "name", "op",
        "params", "role", "type",
    )  # fmt: skip

    op: Op
    inputs: tuple[Any, ...]
    params: dict[str, Any]
    type: Any
    name: str
    after: tuple[Node, ...]
    module: str
    code: CodeType | str | None  # a node from a file has its line as text
    lasti: int
    role: Role


class Node(_Fields):
    """One operator applied to nodes, numbers and sizes; never changed."""

    __slots__ = ()

    def __new__(
        cls,
        op: Op,
        inputs: tuple[Any, ...],
        params: dict[str, Any],
        type: Any,
        name: str,
        after: tuple[Node, ...] = (),
        module: str = "",
        code: CodeType | str | None = None,
        lasti: int = 0,
        role: Role = FORWARD,
    ) -> Node:
        if params and not _SHAPES.isdisjoint(map(_type, params.values())):
            params = {k: _plain(value) for k, value in params.items()}
        if _type(type) is TensorType and _type(type.shape) is not tuple:
            type = _plain_type(type)
        elif _type(type) is tuple:
            type = tuple([_plain_type(one) for one in type])
        node = _new(_Fields)
        node.op = op
        node.inputs = inputs
        node.params = params
        node.type = type
        node.name = name
        node.after = after
        node.module = module
        node.code = code
        node.lasti = lasti
        node.role = role
        node.__class__ = cls
        return node  # type: ignore[return-value]

    def __setattr__(self, field: str, value: Any) -> None:
        raise AttributeError(
            f"a node is never changed (setting {field!r} of {self.name!r}); a pass "
            "builds a new graph"
        )

    # Asked for so often that they are not Python functions.
    shape: tuple[Any, ...] = property(attrgetter("type.shape"))  # type: ignore[assignment]
    dtype: Any = property(attrgetter("type.dtype"))

    @property
    def parents(self) -> list[Node]:
        """The nodes that must run before this one."""
        return [*[i for i in self.inputs if type(i) is Node], *self.after]

    @property
    def line(self) -> str:
        """The user's line that made this node."""
        if isinstance(self.code, str):
            return self.code
        return describe_line(self.code, self.lasti)

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.name!r} {type_text(self.type)}>"


def type_text(type: Any) -> str:
    """A node's type as text; no type at all is ``()``."""
    if isinstance(type, TensorType):
        return str(type)
    return "(" + ", ".join(map(type_text, type or ())) + ")"


class Variable:
    """A named cell that keeps a tensor from run to run."""

    __slots__ = ("initial", "name", "trainable", "type")

    def __init__(
        self,
        name: str,
        type: TensorType,
        *,
        trainable: bool = False,
        initial: Any = None,
    ) -> None:
        self.name = name
        self.type = type
        self.trainable = trainable
        self.initial = initial  # a node that gives the first value, or None

    def __repr__(self) -> str:
        return f"@{self.name}"


# -- the nodes that are not mathematics


def unrunnable(*args: Any, **params: Any) -> Any:
    raise GraphError("this node is run by the graph's interpreter only")


def _structural(name: str, inputs: str, type: Callable[..., Any]) -> Op:
    return Op(name, inputs=inputs, eval=unrunnable, type=type)


def _assign_type(value: TensorType, *, variable: Variable) -> TensorType:
    if value != variable.type:
        raise DTypeError(
            f"assign: variable {variable.name!r} is {variable.type}, got {value}"
        )
    return value


def _pick_type(x: Any, *, index: int) -> Any:
    if isinstance(x, TensorType) or not 0 <= index < len(x):
        raise ArgumentError(f"pick: there is no output {index} of {type_text(x)}")
    return x[index]


INPUT = _structural("input", "", lambda **params: params["type"])
CONSTANT = _structural(
    "constant", "", lambda *, value: TensorType(value.shape, of_array(value))
)
READ = _structural("read", "", lambda *, variable: variable.type)
ASSIGN = _structural("assign", "value", _assign_type)
PICK = _structural("pick", "x", _pick_type)
GROUP = _structural("group", "", lambda: ())
DETACH = Op(
    "detach",
    inputs="x",
    eval=lambda x: x,
    type=lambda x: x,
    elementwise=True,
    vjp={"x": lambda g: None},
    jvp={"x": lambda t: None},
    view=True,
    lower=SAME,
)
RENEW = Op(  # memory changed where nothing is recorded: the new value, the old history
    "renew",
    inputs="x before",
    eval=lambda x, before: x.copy(),
    type=lambda x, before: x,
    elementwise=True,
    vjp={"before": lambda g: g},
    jvp={"before": lambda t: t},
)

STRUCTURAL = {
    op.name: op for op in (INPUT, CONSTANT, READ, ASSIGN, PICK, GROUP, DETACH, RENEW)
}
STATEFUL = (READ, ASSIGN)


class Builder:
    """Appends nodes: names them uniquely, types them, knows where they came from."""

    def __init__(self, name: str = "graph", scope: Scope | None = None) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.by_name: dict[str, Node] = {}
        self.variables: dict[str, Variable] = {}
        self.sizes = Scope() if scope is None else scope
        self.prefix = ""
        self.role = FORWARD  # of new nodes
        self.after: tuple[Node, ...] = ()
        self.last_call: Node | None = None  # the last node that has to keep its turn
        self._counts: dict[str, int] = {}
        self._paths: dict[tuple[int, ...], str] = {}
        self._children: dict[int, dict[int, str]] = {}  # of modules, by identity
        self.default_name = ""  # of new nodes, instead of their operator's
        self.origin: Node | None = None  # whose line and module new nodes take over
        self.known: tuple[FrameType | None, CodeType | None, int] = (None, None, 0)

    # -- names and source lines

    def unique(self, name: str) -> str:
        """The name itself if it is free, else with the next number."""
        name = self.prefix + name
        count = self._counts.get(name, 1)
        found = name
        while found in self.by_name:
            found = f"{name}_{count}"
            count += 1
        self._counts[name] = count
        return found

    @contextmanager
    def scope(self, name: str) -> Iterator[str]:
        """Let the names of the nodes made inside begin with ``name/``."""
        before = self.prefix
        self.prefix = f"{before}{name}/"
        try:
            yield self.prefix
        finally:
            self.prefix = before

    @contextmanager
    def gradient_of(self, node: Node) -> Iterator[None]:
        """Let the nodes made inside be gradients of a node, and be named so."""
        before = self.role
        self.role = Role(node.name, None, node.role.region)
        try:
            with self.scope(f"grad/{node.name}"):
                yield
        finally:
            self.role = before

    @contextmanager
    def region(self, number: int) -> Iterator[None]:
        """Let the nodes made inside be those of a checkpointed function."""
        before = self.role
        self.role = before._replace(region=(*before.region, number))
        try:
            with self.scope(f"checkpoint{number}"):
                yield
        finally:
            self.role = before

    @contextmanager
    def within(self, node: Node) -> Iterator[None]:
        """Let nodes made inside have the name and role of another graph's node."""
        before = self.prefix, self.default_name, self.role
        lead, _, self.default_name = node.name.rpartition("/")
        self.role = node.role.inside(self.role, lambda old: before[0] + old).part
        self.prefix += f"{lead}/" if lead else ""
        try:
            yield
        finally:
            self.prefix, self.default_name, self.role = before

    @contextmanager
    def control(self, nodes: Iterable[Node]) -> Iterator[None]:
        """Let the nodes made inside come after ``nodes``."""
        before = self.after
        self.after = tuple(dict.fromkeys((*before, *nodes)))
        try:
            yield
        finally:
            self.after = before

    @contextmanager
    def uncontrolled(self) -> Iterator[None]:
        """Let the nodes made inside come after none that ``control`` named."""
        before, self.after = self.after, ()
        try:
            yield
        finally:
            self.after = before

    @contextmanager
    def deriving(self, node: Node | None) -> Iterator[None]:
        """Let the nodes made inside have the line and module of ``node``."""
        before = self.origin
        self.origin = node
        try:
            yield
        finally:
            self.origin = before

    def caller(self) -> tuple[CodeType | None, int]:
        """The user's code object and instruction offset, as the tape's ``caller``.

        Looked for no further than the frame above which it is known.
        """
        known, code, lasti = self.known
        frame = sys._getframe(1)
        while frame is not known and INTERNAL[frame.f_code.co_filename]:
            back = frame.f_back
            if back is None:
                break
            frame = back
        if frame is known:
            return code, lasti
        return frame.f_code, frame.f_lasti

    def module_path(self) -> str:
        """The path of the running module, relative to the outermost one."""
        stack = module_stack()
        if not stack:
            return ""
        key = tuple(map(id, stack))
        found = self._paths.get(key)
        if found is None:
            found = self._paths[key] = self._path(stack)
        return found

    def _path(self, stack: list[Any]) -> str:
        steps = []
        for parent, child in pairwise(stack):
            names = self._children.get(id(parent))
            if names is None:
                known = {id(module): name for name, module in parent.named_children()}
                names = self._children[id(parent)] = known
            steps.append(names.get(id(child)) or type(child).__name__)
        return ".".join(steps) or type(stack[0]).__name__

    # -- nodes

    def add(
        self,
        op: Op,
        inputs: tuple[Any, ...],
        params: dict[str, Any],
        type: Any = None,
        name: str | None = None,
    ) -> Node:
        """A new node; its type is the operator's rule unless given."""
        if type is None:
            type = infer(op, inputs, params)
        origin = self.origin
        if origin is not None:
            module, code, lasti = origin.module, origin.code, origin.lasti
        else:
            module = self.module_path()
            code, lasti = self.caller()
        unique = self.unique(name or self.default_name or op.name)
        after, in_turn = self.after, keeps_turn(op, params)
        if in_turn and self.last_call is not None:
            after = tuple(dict.fromkeys((*after, self.last_call)))
        node = Node(
            op, inputs, params, type, unique, after, module, code, lasti, self.role
        )
        self.nodes.append(node)
        self.by_name[unique] = node
        if in_turn:
            self.last_call = node
        return node

    def add_like(
        self, node: Node, inputs: tuple[Any, ...], params: dict[str, Any], type: Any
    ) -> Node:
        """Add a node of the same operator, source line and module, of a known type."""
        unique = self.unique(node.op.name)
        copy = Node(
            node.op, inputs, params, type, unique, self.after, node.module, node.code,
            node.lasti, self.role,
        )  # fmt: skip
        self.nodes.append(copy)
        self.by_name[unique] = copy
        return copy

    def adopt(self, node: Node) -> Node:
        """Take over a node as it is (a pass that keeps it)."""
        if node.name in self.by_name:
            raise GraphError(
                f"two nodes are named {node.name!r}\n  made at {node.line}"
            )
        self.nodes.append(node)
        self.by_name[node.name] = node
        self._counts.setdefault(node.name, 1)
        if node.op in STATEFUL:
            self.variable(node.params["variable"])
        if keeps_turn(node.op, node.params):
            self.last_call = node
        return node

    def input(self, type: TensorType, name: str = "input") -> Node:
        type = _plain_type(type)
        return self.add(INPUT, (), {"type": type}, type, name)

    def constant(self, value: np.ndarray, name: str = "constant") -> Node:
        return self.add(CONSTANT, (), {"value": value}, name=name)

    def variable(self, variable: Variable) -> Variable:
        held = self.variables.setdefault(variable.name, variable)
        if held is not variable:
            raise GraphError(f"two variables are named {variable.name!r}")
        return variable

    def read(self, variable: Variable, name: str | None = None) -> Node:
        self.variable(variable)
        name = name or variable.name.rpartition("/")[2]
        return self.add(READ, (), {"variable": variable}, variable.type, name)

    def assign(self, variable: Variable, value: Node) -> Node:
        self.variable(variable)
        name = f"{variable.name.rpartition('/')[2]}/assign"
        return self.add(ASSIGN, (value,), {"variable": variable}, name=name)

    def pick(self, node: Node, index: int) -> Node:
        output = node.op.output_name(index)
        name = f"{node.name[len(self.prefix) :]}/{output}"
        if not node.name.startswith(self.prefix):
            name = output
        return self.add(PICK, (node,), {"index": index}, name=name)

    def finish(self, outputs: Sequence[Node]) -> Graph:
        """The graph of all nodes so far."""
        return Graph(self.name, self.nodes, outputs, self.sizes)


_SHAPES = {Shape, TensorShape, Dimension}


def _plain_type(type: Any) -> Any:
    plain = _type(type) is not TensorType or _type(type.shape) is tuple
    return type if plain else TensorType(tuple(type.shape), type.dtype)


def _plain(value: Any) -> Any:
    if isinstance(value, Dimension):
        return int(value)
    return tuple(value) if isinstance(value, Shape) else value


def infer(op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The type that an operator's rule gives for nodes and other arguments."""
    if op.type is None:
        raise GraphError(
            f"{op.name}: this operator has no type rule, so it cannot be part of a "
            "graph; give its record a `type`"
        )
    types = []
    for i in inputs:
        types.append(i.type if type(i) is Node else i)
    return op.type(*types, **params)


class Graph:
    """A finished program.

    >>> g = weft.graph.capture(lambda x: (x * 2).sum(), weft.ones(3)).graph
    >>> [node.name for node in g.nodes]
    ['x', 'mul', 'sum']
    >>> g["sum"].type
    TensorType(shape=(), dtype=weft.float32)
    """

    __slots__ = (
        "_by_name", "_ops", "cache", "inputs", "name", "nodes", "outputs", "sizes",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        nodes: Iterable[Node],
        outputs: Iterable[Node],
        sizes: Scope | None = None,
        inputs: Iterable[Node] | None = None,
    ) -> None:
        self.name = name
        self.nodes: tuple[Node, ...] = tuple(nodes)
        self.outputs: tuple[Node, ...] = tuple(outputs)
        self.sizes = Scope() if sizes is None else sizes
        self.inputs: tuple[Node, ...] = (
            tuple(n for n in self.nodes if n.op is INPUT)
            if inputs is None
            else tuple(inputs)
        )
        self._by_name: dict[str, Node] | None = None
        self._ops: tuple[frozenset[Op], bool] | None = None
        self.cache: BodyCache | None = None  # of programs that control flow makes of it

    @property
    def by_name(self) -> dict[str, Node]:
        if self._by_name is None:
            self._by_name = {node.name: node for node in self.nodes}
        return self._by_name

    @property
    def ops(self) -> frozenset[Op]:
        """The operators of its nodes, and of those of graphs in their parameters."""
        return self._survey()[0]

    @property
    def nested(self) -> bool:
        """Whether there are graphs in the parameters of its nodes."""
        return self._survey()[1]

    def _survey(self) -> tuple[frozenset[Op], bool]:
        if self._ops is None:
            own = {node.op for node in self.nodes}
            inside = [n for n in self.nodes if n.params and has_graphs(n.params)]
            below = [graph.ops for n in inside for _, graph in subgraphs(n)]
            self._ops = frozenset(own.union(*below)), bool(inside)
        return self._ops

    @property
    def variables(self) -> dict[str, Variable]:
        """The variables that the program reads or assigns, by name."""
        found = [n.params["variable"] for n in self.nodes if n.op in STATEFUL]
        return {variable.name: variable for variable in found}

    @property
    def effects(self) -> tuple[Node, ...]:
        """The nodes that run for an effect: they assign, or may raise an error."""
        return tuple(n for n in self.nodes if has_effect(n))

    def __getitem__(self, name: str) -> Node:
        node = self.by_name.get(name)
        if node is None:
            import difflib

            close = difflib.get_close_matches(name, self.by_name, 3)
            hint = f"; there is {', '.join(map(repr, close))}" if close else ""
            raise GraphError(f"graph {self.name!r} has no node named {name!r}{hint}")
        return node

    def __contains__(self, node: Any) -> bool:
        name = node.name if isinstance(node, Node) else node
        found = self.by_name.get(name)
        return found is not None and (found is node or found.name == node)

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def ancestors(self, nodes: Iterable[Node]) -> set[Node]:
        """Every node that must run for these, themselves included."""
        seen: set[Node] = set()
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack.extend(node.parents)
        return seen

    def users(self) -> dict[Node, list[Node]]:
        """For each node, the nodes that take it as an input."""
        found: dict[Node, list[Node]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for i in node.inputs:
                if type(i) is Node:
                    found[i].append(node)
        return found

    def builder(self) -> Builder:
        """A builder that goes on from this graph's nodes."""
        build = Builder(self.name, self.sizes)
        for node in self.nodes:
            build.adopt(node)
        return build

    def __str__(self) -> str:
        from weft.graph.text import print_graph

        return print_graph(self)

    def __repr__(self) -> str:
        ins = ", ".join(type_text(i.type) for i in self.inputs)
        outs = ", ".join(type_text(o.type) for o in self.outputs)
        return f"<graph {self.name}({ins}) -> ({outs}), {len(self.nodes)} nodes>"


def has_graphs(params: dict[str, Any]) -> bool:
    """Whether there are graphs among parameters."""
    for value in params.values():
        kind = type(value)
        if kind is Graph or (kind is tuple and Graph in map(type, value)):
            return True
    return False


def keeps_turn(op: Op, params: dict[str, Any]) -> bool:
    """Whether a node runs after all others like it that stand before it.

    Such are collectives, and branches and loops with collectives in them.
    """
    if op.facts.effect:
        return True
    if not params or not has_graphs(params):
        return False
    found = [value if type(value) is tuple else (value,) for value in params.values()]
    graphs = [one for some in found for one in some if type(one) is Graph]
    return any(one.facts.effect for graph in graphs for one in graph.ops)


def subgraphs(node: Node) -> Iterator[tuple[str, Graph]]:
    """The graphs among a node's parameters (the branches of ``cond``, …)."""
    for name, value in node.params.items():
        if isinstance(value, Graph):
            yield name, value
        elif isinstance(value, tuple):
            for k, one in enumerate(value):
                if isinstance(one, Graph):
                    yield f"{name}.{k}", one


def has_effect(node: Node) -> bool:
    """Whether a node does more than give a value.

    It assigns, may raise an error, or does something outside, as a collective does.

    >>> g = weft.graph.capture(lambda x, y: (x // y, x / y), 2 * weft.ones(2).int(),
    ...                        weft.ones(2).int()).graph
    >>> [node.name for node in g if weft.graph.ir.has_effect(node)]
    ['floor_divide']
    """
    if node.op is ASSIGN or node.op.facts.effect:
        return True
    for name, number in node.op.refuses.items():
        value = node.inputs[node.op.inputs.index(name)]
        if type(value) is not Node:
            if not isinstance(value, Size) and value == number:
                return True
        elif type(number) is not int or value.dtype.category == INT:
            return True
    if not node.params or not has_graphs(node.params):
        return False
    return any(graph.effects for _, graph in subgraphs(node))


def sized(value: Any) -> bool:
    """Whether a parameter or argument holds a symbolic size."""
    if isinstance(value, Size):
        return True
    if isinstance(value, (tuple, list)):
        return any(sized(v) for v in value)
    if isinstance(value, slice):
        return any(sized(v) for v in (value.start, value.stop, value.step))
    return False
