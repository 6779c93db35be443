"""The graph that a define-then-run program builds, and what its nodes are.

Building computes nothing. There is always a default graph; ``as_default`` makes
another one the default for a while. Every node is a tensor, so all of Weft's
operators, functions and modules can be applied to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.core.mode import mode
from weft.core.op import TensorType
from weft.core.pytree import tree_map
from weft.core.size import TensorShape
from weft.core.tensor import Tensor
from weft.dtype import DType, as_dtype, float32
from weft.errors import DTypeError
from weft.graph import ir
from weft.graph.capture import paused
from weft.graph.ir import Builder, GraphError, Node
from weft.graph.symbol import Building, Symbol
from weft.static.outside import Outside
from weft.static.sizes import OpenScope

_SKIP = 1 << 32  # blocks of random numbers: more than one draw can take


class StaticTensor(Symbol):
    """A node of a static graph, as the program sees it."""

    unranked = False  # whether its number of dimensions is known only in a run

    # ``x += y`` is ``x = x + y``: other names for the node keep their meaning
    __iadd__, __isub__ = Tensor.__add__, Tensor.__sub__
    __imul__, __itruediv__ = Tensor.__mul__, Tensor.__truediv__
    __ipow__, __imatmul__ = Tensor.__pow__, Tensor.__matmul__
    __ifloordiv__, __imod__ = Tensor.__floordiv__, Tensor.__mod__
    __iand__, __ixor__ = Tensor.__and__, Tensor.__xor__
    __ior__ = Tensor.__or__  # type: ignore[assignment]

    @property
    def graph(self) -> Graph:
        """The graph this node belongs to."""
        return self._interpreter

    @property
    def shape(self) -> TensorShape:  # type: ignore[override]
        """The sizes; those that a run decides are symbols."""
        return TensorShape(self.node.type.shape)

    @property
    def static_shape(self) -> TensorShape:
        """The sizes, with None for those that a run decides."""
        return TensorShape(self.shape.as_list())

    def get_shape(self) -> TensorShape:
        """The sizes known so far, under TensorFlow's name.

        >>> g = weft.static.Graph()
        >>> with g.as_default():
        ...     weft.static.placeholder(weft.float32, [None, 3]).get_shape()
        (None, 3)
        """
        return TensorShape(self.static_shape.dims)

    def set_shape(self, shape: Any) -> None:
        """Make sizes known that were not; a run with other ones is refused.

        >>> with weft.static.Graph().as_default():
        ...     x = weft.static.placeholder(weft.float32, [None, 3])
        ...     y = x * 2
        ...     y.set_shape([5, 3])
        >>> y.get_shape()
        (5, 3)
        """
        self.shape.merge_with(shape)
        pairs = zip(self.shape, shape, strict=True)
        known = [m if n is None else int(n) for m, n in pairs]
        if TensorShape(known).as_list() != self.shape.as_list():
            self.node = self.reshape(known).node

    @property
    def op(self) -> Any:
        """The operation whose result this tensor is."""
        return Operation(self.graph, self.node)

    def consumers(self) -> list[Operation]:
        """The operations that take this tensor."""
        nodes = self.graph.builder.nodes
        return [Operation(self.graph, n) for n in nodes if self.node in n.parents]

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """The value, computed by a session (the default one unless given)."""
        from weft.static.session import default_session

        return (session or default_session()).run(self, feed_dict)

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Refused: the gradients of a static graph are nodes of it."""
        raise GraphError(
            f"{self!r} is a node of a static graph: use static.gradients(y, xs) or an "
            f"optimizer's minimize(loss)\n  made at {self.node.line}"
        )

    def become(self, other: Any) -> None:
        if self.node.op is ir.INPUT:
            raise GraphError(
                f"placeholder {self.name!r} cannot be changed in place; use the "
                f"out-of-place form\n  made at {self.node.line}"
            )
        super().become(other)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self.refuse()

    def renewed(self, name: str = "Identity") -> StaticTensor:
        """A new node with the same value, after the control inputs of this moment."""
        from weft.ops.copies import alias_op

        graph = self.graph
        node = graph.builder.add(alias_op, (graph.lift(self),), {}, name=name)
        return graph.symbol(node)  # type: ignore[return-value]

    def refuse(self) -> Any:
        raise GraphError(
            f"{self!r} has no value while the graph is built; get one with "
            "session.run(node, feed_dict), and use static.cond or static.while_loop "
            f"instead of Python's `if` and `while`.\n  made at {self.node.line}"
        )


class BufferTensor(StaticTensor):
    """A module's buffer while the module runs, which may change in place."""

    __iadd__, __isub__ = Tensor.__iadd__, Tensor.__isub__
    __imul__, __itruediv__ = Tensor.__imul__, Tensor.__itruediv__
    __ipow__, __imatmul__ = Tensor.__ipow__, Tensor.__imatmul__
    __ifloordiv__, __imod__ = Tensor.__ifloordiv__, Tensor.__imod__
    __iand__, __ixor__ = Tensor.__iand__, Tensor.__ixor__
    __ior__ = Tensor.__ior__  # type: ignore[assignment]


class Operation:
    """A node that is run for its effect: a group, an initializer, a train step.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.Variable(1.0, name="w").initializer
    <assign 'w/Assign'>
    """

    unranked = False  # whether it is known only in a run which node it is

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph = graph
        self.node = node
        self.gradients: dict[Any, Any] = {}  # of a train step

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def type(self) -> str:
        """The operator's name."""
        return self.node.op.name

    @property
    def inputs(self) -> list[StaticTensor]:
        """The tensors this operation takes."""
        ins = [i for i in self.node.inputs if type(i) is Node]
        return [self.graph.symbol(i) for i in ins]  # type: ignore[misc]

    @property
    def outputs(self) -> list[StaticTensor]:
        """The tensors this operation gives."""
        if not isinstance(self.node.type, TensorType):
            return []
        return [self.graph.symbol(self.node)]  # type: ignore[list-item]

    @property
    def control_inputs(self) -> list[Operation]:
        """The operations that come before this one, although it takes none of them."""
        return [Operation(self.graph, node) for node in self.node.after]

    def values(self) -> list[StaticTensor]:
        """The tensors this operation gives, under TensorFlow's other name."""
        return self.outputs

    def get_attr(self, name: str) -> Any:
        """A static parameter of the operator."""
        if name not in self.node.params:
            raise ValueError(
                f"{self!r} has no attribute {name!r}, but {sorted(self.node.params)}"
            )
        return self.node.params[name]

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Run it in a session (the default one unless given)."""
        from weft.static.session import default_session

        (session or default_session()).run(self, feed_dict)

    def __repr__(self) -> str:
        return f"<{self.type} {self.name!r}>"


class StaticBuilder(Builder):
    """A builder that can be told to take no more nodes."""

    finalized = False
    mark = 0  # nodes from here on were made by the call that is running

    def add(
        self,
        op: Any,
        inputs: tuple[Any, ...],
        params: dict[str, Any],
        type: Any = None,
        name: str | None = None,
    ) -> Node:
        if self.finalized:
            raise GraphError(
                f"graph {self.name!r} is finalized and takes no more nodes, but a node "
                f"{name or op.name!r} was to be added; build everything before finalize"
            )
        return super().add(op, inputs, params, type, name)

    def renamed(self, node: Node, name: str) -> Node | None:
        """The node under another name; None if others may know it by its own."""
        if len(self.nodes) <= self.mark or self.nodes[-1] is not node:
            return None
        del self.by_name[self.nodes.pop().name]
        new = Node(
            node.op, node.inputs, node.params, node.type, self.unique(name), node.after,
            node.module, node.code, node.lasti, node.role,
        )  # fmt: skip
        self.nodes.append(new)
        self.by_name[new.name] = new
        return new

    @contextmanager
    def at_top(self) -> Iterator[None]:
        """Let the names of the nodes made inside begin with no scope."""
        before, self.prefix = self.prefix, ""
        try:
            yield
        finally:
            self.prefix = before


class Graph(Building):
    """A static graph under construction.

    >>> graph = weft.static.Graph()
    >>> with graph.as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 2], name="x")
    ...     y = weft.square(x) + 1
    >>> y
    <add 'add' float32[x_0, 2]>
    >>> [op.name for op in graph.get_operations()]
    ['x', 'square', 'add']
    """

    name = "a static graph"
    symbols = StaticTensor
    builder: StaticBuilder

    def __init__(self, name: str = "graph") -> None:
        super().__init__(StaticBuilder(name, OpenScope(self)))
        self.variables: list[Any] = []
        self.summaries: dict[str, Any] = {}
        self.collections: dict[str, list[Any]] = {}
        self.store: Any = None  # of ``get_variable``: see ``scopes``
        self.sources: dict[Node, tuple[Any, int]] = {}  # placeholders that are not fed
        self.starts: dict[ir.Variable, np.ndarray] = {}  # of its own variables
        self._numbers: dict[Any, Any] = {}
        self._bumps: tuple[Node, ...] = ()
        self._scopes: set[str] = set()
        self.derived: dict[Node, list[Node]] = {}  # gradient nodes → what they are of
        self.also: dict[str, Node] = {}  # nodes by further names: loss/grad/w
        self.outside = Outside(self)
        self.unranked: dict[str, Any] = {}  # placeholders without a shape
        self.waits: tuple[Any, ...] = ()  # control inputs that are unranked
        self.texts = False  # whether there are constants that are texts
        self.overrides: dict[str, Any] = {}  # gradients by TensorFlow's type
        self.ranks: Any = None  # while recorded calls are made: see ``unranked``

    # -- building

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Make this the graph that new placeholders and variables go to."""
        _stack.graphs.append(self)
        try:
            yield self
        finally:
            # the last one of its kind: an interactive session may close out of order
            last = len(_stack.graphs) - 1 - _stack.graphs[::-1].index(self)
            del _stack.graphs[last]

    @contextmanager
    def gradient_override_map(self, op_type_map: dict[str, str]) -> Iterator[None]:
        """Let the nodes made inside have registered gradients, by TensorFlow's types.

        >>> @weft.static.RegisterGradient("Straight")
        ... def _(op, grad):
        ...     return grad
        >>> graph = weft.static.Graph()
        >>> with graph.as_default(), weft.static.Session() as session:
        ...     x = weft.static.constant([0.5, -2.0])
        ...     with graph.gradient_override_map({"Sign": "Straight"}):
        ...         y = weft.static.sign(x)
        ...     session.run(weft.static.gradients(y, x)[0])
        array([1., 1.], dtype=float32)
        """
        from weft.static.differentiation import overriding

        before = self.overrides
        self.overrides = {**before, **overriding(op_type_map)}
        try:
            yield
        finally:
            self.overrides = before

    def process(self, op: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        with self.builder.control(self._bumps):
            self._bumps = ()
            return super().process(op, args, params)

    @contextmanager
    def control(self, inputs: Iterable[Any]) -> Iterator[None]:
        """Let the nodes made inside come after these."""
        inputs, before = list(inputs), self.waits
        later = [c for c in inputs if self.ranks is None and is_unranked(c)]
        nodes = [node_of(self, c) for c in inputs if not any(c is x for x in later)]
        self.waits = (*before, *later)
        try:
            with self.builder.control(nodes):
                yield
        finally:
            self.waits = before

    @contextmanager
    def uncontrolled(self) -> Iterator[None]:
        """Let the nodes made inside come after none that ``control`` named."""
        before, self.waits = self.waits, ()
        try:
            with self.builder.uncontrolled():
                yield
        finally:
            self.waits = before

    @contextmanager
    def at_ranks(self, ranks: Any) -> Iterator[None]:
        """Let unranked tensors be the nodes that they are for some ranks."""
        before = self.ranks, self.waits, self.builder.finalized
        self.ranks, self.waits, self.builder.finalized = ranks, (), False
        try:
            yield
        finally:
            self.ranks, self.waits, self.builder.finalized = before

    def finalize(self) -> None:
        """Refuse further nodes."""
        self.builder.finalized = True

    @property
    def finalized(self) -> bool:
        """Whether further nodes are refused."""
        return self.builder.finalized

    # -- tensors from outside, and modules

    def concrete(self, value: Tensor) -> Node:
        return self.outside.node(value)

    def embody(self, tensor: Tensor, node: Node) -> None:
        super().embody(tensor, node)
        tensor.__class__ = BufferTensor

    def touch(self, tensor: Tensor) -> None:
        self.outside.change(tensor, "in-place operator")

    def change(self, tensor: Tensor, name: str) -> None:
        self.outside.change(tensor, name)

    def run_module(self, module: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Apply a module to nodes: its parameters and buffers become variables."""
        if mode.capture is self:  # inside another module of the model
            return module._run_forward(args, kwargs)
        lead = self.outside.meet(module)
        if mode.capture is not None:  # in a branch or body, whose graph takes it
            return module._run_forward(args, kwargs)
        lead = lead or self.unique_scope(type(module).__name__)
        updates: list[Node] = []
        with self.builder.scope(lead.removeprefix(self.builder.prefix)), self.taking():
            with self.outside.called(updates):
                out = module._run_forward(args, kwargs)
            if not updates:
                return out
            with self.builder.control(updates):
                return tree_map(_renewed, out)

    # -- random numbers: a counter that every draw moves on

    def number(
        self, key: Any, name: str, get: Any, set: Any, on: Any, dtype: DType
    ) -> Any:
        if key not in self._numbers:
            with self.builder.at_top(), self.builder.uncontrolled():
                cell = ir.Variable(self.builder.unique(name), TensorType((), dtype))
                self.starts[cell] = np.asarray(get(), dtype.np)
                self._numbers[key] = cell, self.symbol(self.builder.read(cell))
        return self._numbers[key][1]

    def set_number(self, key: Any, value: Any) -> None:
        cell, before = self._numbers[key]
        if any(map(_sized, (value.node, *value.node.parents))):
            # later draws must not need the sizes of this one: skip more than it takes
            value = before + _SKIP
        self._bumps = (*self._bumps, self.builder.assign(cell, self.lift(value)))
        self._numbers[key] = cell, value

    # -- looking up

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation with this name."""
        return Operation(self, self._node(name))

    def get_tensor_by_name(self, name: str) -> StaticTensor:
        """The tensor with this name (``x`` or, as in TensorFlow, ``x:0``)."""
        name = name.removesuffix(":0")
        if name in self.unranked:
            return self.unranked[name]
        return self.symbol(self._node(name))  # type: ignore[return-value]

    def get_operations(self) -> list[Operation]:
        """All operations, each after those it depends on."""
        return [Operation(self, node) for node in self.builder.nodes]

    def add_to_collection(self, name: str, value: Any) -> None:
        """Put a value into a collection of this graph."""
        from weft.static.collections import add_to_collection

        with self.as_default():
            add_to_collection(name, value)

    def get_collection(self, name: str, scope: str | None = None) -> list[Any]:
        """The values of a collection of this graph."""
        from weft.static.collections import get_collection

        with self.as_default():
            return get_collection(name, scope)

    def get_collection_ref(self, name: str) -> list[Any]:
        """A collection of this graph itself, which may be changed."""
        return self.collections.setdefault(name, [])

    def get_all_collection_keys(self) -> list[str]:
        """The names of the collections that have values."""
        return [key for key, values in self.collections.items() if values]

    def clear_collection(self, name: str) -> None:
        """Take all values out of a collection."""
        self.collections.pop(name, None)

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """``static.name_scope`` for the nodes of this graph."""
        with self.as_default(), name_scope(name) as full:
            yield full

    @contextmanager
    def control_dependencies(self, control_inputs: Any) -> Iterator[None]:
        """``static.control_dependencies`` for the nodes of this graph."""
        with self.as_default(), control_dependencies(control_inputs):
            yield

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Any:
        """The tensor or operation that a value or a name stands for."""
        if not isinstance(obj, str):
            check_member(self, obj)
            return obj
        if ":" in obj or not allow_operation:
            return self.get_tensor_by_name(obj)
        return self.get_operation_by_name(obj)

    def _node(self, name: str) -> Node:
        found = self.builder.by_name.get(name) or self.also.get(name)
        return self.snapshot()[name] if found is None else found

    def __getitem__(self, name: str) -> StaticTensor:
        return self.get_tensor_by_name(name)

    def snapshot(self) -> ir.Graph:
        """The graph so far, as the IR that passes, printers and files take."""
        return ir.Graph(self.builder.name, self.builder.nodes, (), self.builder.sizes)

    def as_graph_def(self) -> ir.Graph:
        """The graph so far: TensorFlow's name for ``snapshot``."""
        return self.snapshot()

    def unique_scope(self, name: str) -> str:
        """A scope's full name that no other scope and no node has; now taken."""
        name = unique = self.builder.prefix + name
        k = 0
        while unique in self._scopes or unique in self.builder.by_name:
            k += 1
            unique = f"{name}_{k}"
        self._scopes.add(unique)
        return unique

    def unique_name(self, name: str) -> str:
        """The name that a node asking for ``name`` would get."""
        return self.builder.unique(name)

    def __str__(self) -> str:
        return str(self.snapshot())

    def __repr__(self) -> str:
        return f"<static graph {self.builder.name!r}, {len(self.builder.nodes)} nodes>"


def _sized(node: Node) -> bool:
    return any(ir.sized(v) for v in (*node.inputs, *node.params.values()))


def _renewed(leaf: Any) -> Any:
    return leaf.renewed() if isinstance(leaf, StaticTensor) else leaf


class _Stack(threading.local):
    def __init__(self) -> None:
        self.graphs: list[Graph] = [Graph("default")]


_stack = _Stack()


def current() -> Graph:
    return _stack.graphs[-1]


def is_unranked(value: Any) -> bool:
    """Whether a value's number of dimensions is known only in a run."""
    return getattr(type(value), "unranked", False)


def get_default_graph() -> Graph:
    """The graph that new nodes go to.

    >>> with weft.static.Graph("mine").as_default():
    ...     weft.static.get_default_graph()
    <static graph 'mine', 0 nodes>
    """
    return _stack.graphs[-1]


def reset_default_graph() -> None:
    """Begin anew with an empty default graph.

    >>> weft.static.reset_default_graph()
    """
    if len(_stack.graphs) > 1:
        raise GraphError("reset_default_graph: not inside `with graph.as_default()`")
    _stack.graphs[0] = Graph("default")


def placeholder(
    dtype: Any = float32, shape: Any = None, name: str = "Placeholder"
) -> StaticTensor:
    """A value that every run must feed; None in the shape is any size.

    Without a shape, it is fed with any number of dimensions: see ``unranked``.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.placeholder(weft.float32, [None, 2], name="x")
    <input 'x' float32[x_0, 2]>
    """
    graph = get_default_graph()
    if shape is None:
        return _unranked_placeholder(graph, as_dtype(dtype), name)
    unique = graph.builder.unique(name)
    sizes: list[Any] = []
    for axis, n in enumerate(shape):
        if n is None or n == -1:
            # 2 is the size for which questions about it are answered; each answer
            # is checked when the graph runs
            sizes.append(graph.builder.sizes.symbol(_size_name(unique, axis), 2))
        elif isinstance(n, str):
            sizes.append(graph.builder.sizes.symbol(n, 2))
        else:
            sizes.append(int(n))
    short = unique.removeprefix(graph.builder.prefix)
    node = graph.builder.input(TensorType(tuple(sizes), as_dtype(dtype)), short)
    return graph.symbol(node)  # type: ignore[return-value]


def _unranked_placeholder(graph: Graph, dtype: DType, name: str) -> StaticTensor:
    from weft.static.unranked import UnrankedPlaceholder

    with graph.uncontrolled():
        origin = graph.builder.add(ir.GROUP, (), {}, (), name)
    made = UnrankedPlaceholder(graph, dtype, origin)
    graph.unranked[origin.name] = made
    return made


def _size_name(name: str, axis: int) -> str:
    plain = "".join(c if c.isalnum() else "_" for c in name)
    return f"{plain}_{axis}"


def constant(
    value: Any, dtype: Any = None, name: str = "Const", shape: Any = None
) -> StaticTensor:
    """A node with a fixed value; with a shape, one number fills it.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.constant([1.0, 2.0])
    <constant 'Const' float32[2]>
    """
    from weft.ops.creation import tensor
    from weft.static.text import Text, is_text

    if is_text(value):
        get_default_graph().texts = True
        return Text(value, name)  # type: ignore[return-value]
    with paused():
        array = tensor(value, dtype=dtype).to_host()
    if shape is not None:
        full = np.broadcast_to if array.size == 1 else np.reshape
        array = np.array(full(array, tuple(shape)))
    graph = get_default_graph()
    return graph.symbol(graph.builder.constant(array, name))  # type: ignore[return-value]


@contextmanager
def name_scope(
    name: str | None, default_name: str | None = None, values: Any = None
) -> Iterator[str]:
    """Let the names of the nodes made inside begin with ``name/``.

    A name that was taken gets a number; one that ends in ``/`` (such as a scope that
    was yielded before) is entered as it is. None stands for ``default_name``.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     for _ in range(2):
    ...         with weft.static.name_scope("layer"):
    ...             weft.static.constant(1.0).name
    'layer/Const'
    'layer_1/Const'
    """
    graph = get_default_graph()
    name = (default_name if name is None else name) or "/"
    if name == "/":  # as in TensorFlow: an empty name leaves all scopes
        with graph.builder.at_top():
            yield ""
        return
    if name.endswith("/"):
        with graph.builder.at_top(), graph.builder.scope(name[:-1]) as lead:
            yield lead
        return
    full = graph.unique_scope(name)
    with graph.builder.scope(full.removeprefix(graph.builder.prefix)) as lead:
        yield lead


@contextmanager
def control_dependencies(control_inputs: Iterable[Any] | None) -> Iterator[None]:
    """Let the nodes made inside run after these, and only with them.

    None instead of a list lifts the control dependencies around it.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     count = weft.static.Variable(0, name="count")
    ...     with weft.static.control_dependencies([count.assign_add(1)]):
    ...         now = weft.static.identity(count.read_value())
    >>> with weft.static.Session(g) as session:
    ...     session.run(count.initializer)
    ...     int(session.run(now)), int(session.run(now))
    (1, 2)
    """
    graph = get_default_graph()
    if control_inputs is None:
        with graph.uncontrolled():
            yield
        return
    with graph.control(control_inputs):
        yield


def node_of(graph: Graph, value: Any) -> Node:
    """The node of anything that names one, which must be this graph's."""
    if isinstance(value, str):
        return graph.get_tensor_by_name(value).node
    if isinstance(value, (Operation, StaticTensor)):
        if value.graph is not graph:
            raise _foreign(graph, value.name, value.graph, value.node)
        return value.node
    raise DTypeError(
        "expected a node of the graph (a tensor, a variable, an operation or a name), "
        f"got {type(value).__name__}"
    )


def check_member(graph: Graph, value: Any) -> None:
    """Refuse what is no node of this graph."""
    if not is_unranked(value) or value.graph is not graph:
        node_of(graph, value)


def _foreign(graph: Graph, name: str, owner: Graph, node: Node) -> GraphError:
    return GraphError(
        f"{name!r} belongs to {owner!r}, not to {graph!r}; build it inside "
        f"`with graph.as_default()`\n  made at {node.line}"
    )


def group(*inputs: Any, name: str = "group_deps") -> Operation:
    """An operation that runs all of these.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     a, b = (weft.static.Variable(0.0, name=n) for n in "ab")
    ...     weft.static.group(a.assign(1.0), b.assign(2.0))
    <group 'group_deps'>
    """
    graph = get_default_graph()
    if graph.ranks is None and (graph.waits or any(map(is_unranked, inputs))):
        from weft.static.unranked import Recorded, UnrankedOperation

        return UnrankedOperation(Recorded(graph, group, inputs, {"name": name}))
    with graph.control(inputs):
        return Operation(graph, graph.builder.add(ir.GROUP, (), {}, (), name))


def no_op(name: str = "NoOp") -> Operation:
    """An operation that does nothing (but comes after its control inputs).

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.no_op()
    <group 'NoOp'>
    """
    return group(name=name)
