"""Sessions: where a static graph runs, and where its variables live."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np

from weft.autograd.modes import no_grad
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.graph import ir
from weft.graph.interpret import Program
from weft.graph.ir import CONSTANT, READ, Node
from weft.runtime.cpu.buffers import owned
from weft.static.app import RunOptions
from weft.static.effects import pulled, running, sources_of
from weft.static.graph import (
    Graph,
    Operation,
    StaticTensor,
    get_default_graph,
    node_of,
)
from weft.static.variable import Variable


class RunMetadata:
    """The names of the nodes that a run executed, and how many of each op.

    >>> told = weft.static.RunMetadata()
    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     _ = session.run(weft.static.constant(1.0) + 1, run_metadata=told)
    >>> told.executed
    ['Const', 'add']
    """

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.counts: Counter[str] = Counter()


class _Stack(threading.local):
    def __init__(self) -> None:
        self.sessions: list[Session] = []


_stack = _Stack()


def default_session() -> Session:
    """The innermost session of a ``with`` block."""
    if not _stack.sessions:
        raise ArgumentError(
            "there is no default session; use `with static.Session() as session:`, or "
            "pass session="
        )
    return _stack.sessions[-1]


def get_default_session() -> Session | None:
    """The innermost session of a ``with`` block; None outside of one.

    >>> weft.static.get_default_session() is None
    True
    """
    return _stack.sessions[-1] if _stack.sessions else None


class Session:
    """Runs subgraphs and keeps the values of variables.

    ``run`` executes the nodes that the fetches need, no others. The plan for a set of
    fetches is made once and reused.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     x = weft.static.placeholder(weft.float32, [None])
    ...     total, twice = x.sum(), x * 2
    >>> with weft.static.Session(g) as session:
    ...     session.run({"total": total}, {x: [1.0, 2.0]})
    {'total': array(3., dtype=float32)}
    """

    def __init__(
        self, target: Any = "", graph: Graph | None = None, config: Any = None
    ) -> None:
        if not isinstance(target, str):  # the graph may come first
            target, graph = "", graph if target is None else target
        if target:
            raise ArgumentError(f"Session: expected no target, got {target!r}")
        self.graph = get_default_graph() if graph is None else graph
        if not isinstance(self.graph, Graph):
            raise DTypeError(
                f"Session: expected a static.Graph, got {type(graph).__name__}"
            )
        self.values: dict[ir.Variable, np.ndarray] = {}
        self.plans: dict[Any, Program] = {}
        self.closed = False

    def __enter__(self) -> Session:
        if self not in _stack.sessions:
            self._context = self.graph.as_default()
            self._context.__enter__()
            _stack.sessions.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self._leave()
        self.close()

    def _leave(self) -> None:
        _stack.sessions.remove(self)
        self._context.__exit__(None, None, None)

    def close(self) -> None:
        """Let go of the variables' values; the session cannot run any more."""
        self.closed = True
        self.values.clear()
        self.plans.clear()

    # -- running

    def run(
        self,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        """The values of the fetches: a node, a name, or a list, tuple or dict of them.

        ``feed_dict`` gives placeholders their values, and may give any other node
        (a variable, an intermediate result) another value for this run. ``RunOptions``
        change nothing; ``run_metadata`` is told what ran.
        """
        if options is not None and not isinstance(options, RunOptions):
            raise ArgumentError(f"run: expected no options, got {options!r}")
        if self.closed:
            raise ArgumentError("run: this session is closed; make a new one")
        leaves, structure = tree_flatten(fetches)
        if not leaves:
            return tree_unflatten([], structure)
        nodes = [self._fetch(leaf) for leaf in leaves]
        feeds = self._feeds(feed_dict)
        plan = self._plan(nodes, tuple(feeds))
        arrays = [feeds.get(node) for node in plan.fed]
        self._check_fed(plan, arrays)
        with running(self):
            results, changed = self._execute(plan, arrays)
        given = {id(a) for a in arrays}
        self.values.update((v, _kept(a, given)) for v, a in changed.items())
        if run_metadata is not None:
            self._note(plan, run_metadata)
        given.update(map(id, self.values.values()))
        out = [
            None if isinstance(leaf, Operation) else _own(node, value, given)
            for leaf, node, value in zip(leaves, nodes, results, strict=True)
        ]
        return tree_unflatten(out, structure)

    def _fetch(self, leaf: Any) -> Node:
        if isinstance(leaf, (StaticTensor, Operation, str)):
            return node_of(self.graph, leaf)
        raise DTypeError(
            "run: expected nodes of the graph or their names as fetches, got "
            f"{type(leaf).__name__}"
        )

    def _feeds(self, feed_dict: Any) -> dict[Node, np.ndarray]:
        feeds = {}
        for key, value in (feed_dict or {}).items():
            node = node_of(self.graph, key)
            if not isinstance(node.type, ir.TensorType):
                raise DTypeError(f"run: {node.name!r} has no value that could be fed")
            feeds[node] = _feed(node, value)
        return feeds

    def _plan(self, nodes: list[Node], fed: tuple[Node, ...]) -> Program:
        key = (tuple(nodes), frozenset(fed))
        plan = self.plans.get(key)
        if plan is None:
            plan = Program(self.graph.snapshot(), nodes, effects=False, fed=fed)
            self.plans[key] = plan
        return plan

    def _check_fed(self, plan: Program, arrays: list[Any]) -> None:
        missing = []
        for k, (node, array) in enumerate(zip(plan.fed, arrays, strict=True)):
            if array is not None or node not in plan.used:
                continue
            if node not in sources_of(self.graph):
                raise ArgumentError(
                    f"run: placeholder {node.name!r} ({node.type}) must be fed; pass "
                    f"it in feed_dict\n  made at {node.line}"
                )
            missing.append(k)
        found = pulled(self, [plan.fed[k] for k in missing])
        for k in missing:
            arrays[k] = _feed(plan.fed[k], found[plan.fed[k]])

    def _execute(self, plan: Program, arrays: list[Any]) -> Any:
        try:
            return plan.run(arrays, self._store(plan))
        except KeyError as error:
            if error.args[0] not in self.graph.builder.sizes.hints:
                raise
            raise ArgumentError(
                f"run: the fetches need the size {error.args[0]}, which nothing that "
                "was fed has; feed the placeholder that it belongs to"
            ) from None

    def _store(self, plan: Program) -> dict[ir.Variable, np.ndarray]:
        for variable in plan.reads:
            if variable in self.graph.starts:
                self.values.setdefault(variable, self.graph.starts[variable])
        return self.values

    @staticmethod
    def _note(plan: Program, metadata: RunMetadata) -> None:
        metadata.executed = [node.name for node in plan.nodes]
        metadata.counts = Counter(
            node.op.name for node in plan.nodes if node.op is not READ
        )

    # -- variables

    def load(self, variable: Variable, value: Any) -> None:
        """Set a variable's value directly."""
        node_of(self.graph, variable)
        self.values[variable.variable] = _feed(variable.node, value).copy()

    def update_module(self, module: Any) -> None:
        """Give a module's parameters and buffers the values that they have here.

        >>> g = weft.static.Graph()
        >>> with g.as_default(), weft.static.Session(g) as session:
        ...     layer = weft.nn.Linear(2, 1)
        ...     loss = layer(weft.static.constant([[1.0, 2.0]])).sum()
        ...     step = weft.static.train.GradientDescentOptimizer(1.0).minimize(loss)
        ...     session.run(weft.static.global_variables_initializer())
        ...     before = layer.bias.item()
        ...     session.run(step)
        ...     session.update_module(layer)
        >>> round(before - layer.bias.item(), 5)
        1.0
        """
        held = self.graph.outside.held
        with no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                _, variable = held.get(id(tensor), (None, None))
                if variable is not None and variable.variable in self.values:
                    tensor.copy_(Tensor(self.values[variable.variable]))

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.values)} variables with values"
        return f"<Session of {self.graph!r}, {state}>"


def _kept(array: np.ndarray, given: set[int]) -> np.ndarray:
    """An array that nothing else can change: no view, and no fed array."""
    return array.copy() if not owned(array) or id(array) in given else array


def _own(node: Node, array: np.ndarray, given: set[int]) -> np.ndarray:
    """A result that the caller may change without changing the graph or a variable."""
    return array.copy() if node.op is CONSTANT else _kept(array, given)


def _feed(node: Node, value: Any) -> np.ndarray:
    """A fed value as an array of the node's type."""
    want = node.type
    if isinstance(value, StaticTensor):
        raise DTypeError(
            f"run: feed of {node.name!r}: expected a value, got the node {value.name!r}"
        )
    array = value.to_host() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype != want.dtype.np:
        array = _cast(node, array)
    if len(array.shape) != len(want.shape) or any(
        have != size
        for have, size in zip(array.shape, want.shape, strict=True)
        if not isinstance(size, Size)
    ):
        raise ShapeError(
            f"run: feed of {node.name!r}: expected {want}, got shape {array.shape}"
            f"\n  made at {node.line}"
        )
    return array


def _cast(node: Node, array: np.ndarray) -> np.ndarray:
    """Numbers may widen (and floats narrow to floats); nothing else is converted."""
    want = node.type.dtype.np
    order = "biufc"
    kinds = [("b" if d == np.bool_ else d.kind) for d in (array.dtype, want)]
    ranks = [order.find("f" if k == "V" else k) for k in kinds]  # V: bfloat16
    if min(ranks) < 0 or ranks[0] > ranks[1]:
        raise DTypeError(
            f"run: feed of {node.name!r}: expected {node.type}, got {array.dtype} "
            f"values; convert them first\n  made at {node.line}"
        )
    return array.astype(want)


class InteractiveSession(Session):
    """A session that is the default from its making on.

    >>> weft.static.reset_default_graph()
    >>> session = weft.static.InteractiveSession()
    >>> float(weft.static.constant(2.0).eval())
    2.0
    >>> session.close()
    """

    def __init__(
        self, target: Any = "", graph: Graph | None = None, config: Any = None
    ) -> None:
        super().__init__(target, graph, config)
        self.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        if self in _stack.sessions:
            self._leave()
        super().close()
