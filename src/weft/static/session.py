"""Sessions: where a static graph runs, and where its variables live."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.autograd.modes import no_grad
from weft.config import config
from weft.core.device import device as device_named
from weft.core.pytree import LEAF, tree_flatten, tree_map, tree_unflatten
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.graph import ir
from weft.graph.interpret import Program
from weft.graph.ir import READ, Node
from weft.static.app import RunOptions
from weft.static.effects import pulled, running
from weft.static.feeds import feed_array
from weft.static.graph import (
    Graph,
    Operation,
    StaticTensor,
    get_default_graph,
    node_of,
)
from weft.static.runs import Run
from weft.static.sparse import fed
from weft.static.text import has_texts, with_texts
from weft.static.unranked import at_ranks, ranks_of
from weft.static.variable import Variable

if TYPE_CHECKING:
    from weft.compile.explain import Explanation


class RunMetadata:
    """The nodes that a run was asked for, and the graph that ran in their place.

    ``executed`` has the names of the nodes that the fetches need, ``counts`` says how
    many there are of each operator, and ``partition_graphs`` has the graph after all
    passes, in which nodes are folded, merged and removed.

    >>> told = weft.static.RunMetadata()
    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     _ = session.run(weft.static.constant(1.0) + 1, run_metadata=told)
    >>> told.executed
    ['Const', 'add']
    """

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.counts: Counter[str] = Counter()
        self.partition_graphs: list[ir.Graph] = []

    def tell(self, run: Run, feeds: list[np.ndarray]) -> None:
        """Note what a run was made of."""
        nodes = run.plan.nodes
        self.executed = [node.name for node in nodes]
        self.counts = Counter(node.op.name for node in nodes if node.op is not READ)
        self.partition_graphs = [run.optimized(feeds)]


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

    ``run`` executes the nodes that the fetches need, no others, as one native program
    that is compiled once for a set of fetches and feeds. With ``compiled=False`` they
    are interpreted one by one. ``loop_limit`` is that of ``weft.config`` in its runs:
    a loop of more steps is an error.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     x = weft.static.placeholder(weft.float32, [None])
    ...     total, twice = x.sum(), x * 2
    >>> with weft.static.Session(g) as session:
    ...     session.run({"total": total}, {x: [1.0, 2.0]})
    {'total': array(3., dtype=float32)}
    """

    def __init__(
        self,
        target: Any = "",
        graph: Graph | None = None,
        config: Any = None,
        *,
        compiled: bool = True,
        loop_limit: int | None = None,
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
        self.compiled, self.loop_limit = compiled, loop_limit
        self.values: dict[ir.Variable, np.ndarray] = {}
        self.states: dict[Any, Any] = {}  # queues and places in data sets, by owner
        self.closed = False
        self._calls: dict[Any, Call] = {}
        self._sourced: dict[Any, list[Node]] = {}  # placeholders that sources feed
        self._lock = threading.RLock()  # one run at a time

    def __enter__(self) -> Session:
        if self not in _stack.sessions:
            self._context = self.graph.as_default()
            self._context.__enter__()
            _stack.sessions.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self._leave()
        self.close()

    @contextmanager
    def as_default(self) -> Iterator[Session]:
        """Make this the default session in a ``with`` block that does not close it.

        >>> session = weft.static.Session(weft.static.Graph())
        >>> with session.as_default():
        ...     weft.static.get_default_session() is session
        True
        """
        context = self.graph.as_default()
        with context:
            _stack.sessions.append(self)
            try:
                yield self
            finally:
                _stack.sessions.reverse()
                _stack.sessions.remove(self)
                _stack.sessions.reverse()

    @property
    def graph_def(self) -> ir.Graph:
        """The graph so far, as ``Graph.as_graph_def`` gives it."""
        return self.graph.as_graph_def()

    @property
    def sess_str(self) -> str:
        """Nothing: there is no server."""
        return ""

    def list_devices(self) -> list[Any]:
        """The one device that runs are on."""
        return [device_named("cpu")]

    def make_callable(self, fetches: Any, feed_list: Any = None) -> Any:
        """A function of the fed values, in the order of ``feed_list``.

        >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
        ...     x = weft.static.placeholder(weft.float32, [])
        ...     float(session.make_callable(x + 1, [x])(2.0))
        3.0
        """
        feeds = list(feed_list or ())
        return lambda *values: self.run(fetches, dict(zip(feeds, values, strict=True)))

    def _leave(self) -> None:
        _stack.sessions.remove(self)
        self._context.__exit__(None, None, None)

    def close(self) -> None:
        """Let go of the variables' values; the session cannot run any more."""
        self.closed = True
        self.values.clear()
        self._calls.clear()
        self._sourced.clear()

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
        if self.graph.texts and has_texts(fetches):
            return with_texts(
                fetches, lambda rest: self.run(rest, feed_dict, options, run_metadata)
            )
        feeds = fed(feed_dict or {})
        drawn: dict[Any, Any] = {}  # from sources: once, also if the run begins again
        with self._lock, self._limits():
            if not self.graph.unranked:
                return self._run(fetches, feeds, run_metadata, drawn)
            try:
                ranked = self._ranked(fetches, feeds, False)
                return self._run(*ranked, run_metadata, drawn)
            except ShapeError:  # the nodes that were built for these ranks do not fit
                pass
            return self._run(*self._ranked(fetches, feeds, True), run_metadata, drawn)

    def _limits(self) -> Any:
        if self.loop_limit is None:
            return nullcontext()
        return config.using(loop_limit=self.loop_limit)

    def explain(
        self, fetches: Any, feed_dict: Any = None, *, measure: bool = False
    ) -> Explanation:
        """Explain the program of a run: its kernels, passes and memory.

        It is compiled, but not run. The explanation is that of ``weft.compile``;
        ``measure`` also times every kernel.

        >>> g = weft.static.Graph()
        >>> with g.as_default(), weft.static.Session(g) as session:
        ...     x = weft.static.placeholder(weft.float32, [None])
        ...     y = weft.static.reduce_sum(weft.static.exp(x) + 1)
        ...     session.explain(y, {x: np.ones(100)}).kernels[0].operators
        ['exp', 'add', 'sum']
        """
        feeds = feed_dict or {}
        if self.graph.unranked:
            fetches, feeds = self._ranked(fetches, feeds, False)
        call = self._call(fetches, feeds)
        name = ", ".join(node.name for node in call.run.roots)
        arrays = call.arrays(feeds)
        return call.run.explanation(name, arrays, self.values, measure=measure)

    def _ranked(self, fetches: Any, feed_dict: Any, exact: bool) -> tuple[Any, Any]:
        """The fetches and feeds, with nodes for what is unranked."""
        named = self._by_name
        feeds = {named(key): value for key, value in feed_dict.items()}
        ranks, feeds = ranks_of(feeds, exact)
        return tree_map(lambda leaf: at_ranks(named(leaf), ranks), fetches), feeds

    def _by_name(self, value: Any) -> Any:
        """The unranked placeholder that a text names, else the value itself."""
        if not isinstance(value, str):
            return value
        return self.graph.unranked.get(value.removesuffix(":0"), value)

    def _run(
        self, fetches: Any, feed_dict: Any, run_metadata: Any, drawn: dict[Any, Any]
    ) -> Any:
        if self.graph.sources:
            feed_dict = self._with_sources(fetches, feed_dict, drawn)
        call = self._call(fetches, feed_dict)
        feeds = call.arrays(feed_dict)
        with running(self):
            results = call.run(feeds, self.values)
        if run_metadata is not None:
            run_metadata.tell(call.run, feeds)
        return call.result(results)

    def _with_sources(self, fetches: Any, feed_dict: Any, drawn: Any) -> Any:
        """The feeds, with the values of placeholders that have a source."""
        fed = [node_of(self.graph, key) for key in feed_dict]
        key = _key(fetches), *fed
        wanted = self._sourced.get(key)
        if wanted is None:
            roots = [self._fetch(leaf) for leaf in tree_flatten(fetches)[0]]
            plan = Program(self.graph.snapshot(), roots, effects=False, fed=fed)
            used = plan.used.intersection(self.graph.sources).difference(fed)
            wanted = self._sourced[key] = sorted(
                used, key=self.graph.builder.nodes.index
            )
        if not wanted:
            return feed_dict
        symbols = {node: self.graph.symbol(node) for node in wanted}
        # what else is not fed is an error before a source is asked
        self._call(fetches, {**feed_dict, **dict.fromkeys(symbols.values())})
        found = pulled(self, wanted, drawn)
        return {**feed_dict, **{symbols[node]: found[node] for node in wanted}}

    def _call(self, fetches: Any, feed_dict: Any) -> Call:
        """The run of these fetches with these feeds, prepared when it is first asked
        for."""
        if self.closed:
            raise ArgumentError("run: this session is closed; make a new one")
        try:
            key = _key(fetches), *[feed.node for feed in feed_dict]
        except AttributeError:  # names
            fed = [node_of(self.graph, feed) for feed in feed_dict]
            key = _key(fetches), *fed
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = self._prepare(fetches, feed_dict)
        return found

    def _prepare(self, fetches: Any, feed_dict: Any) -> Call:
        leaves, structure = tree_flatten(fetches)
        nodes = [self._fetch(leaf) for leaf in leaves]
        fed = tuple([node_of(self.graph, key) for key in feed_dict])
        for node in fed:
            if not isinstance(node.type, ir.TensorType):
                raise DTypeError(f"run: {node.name!r} has no value that could be fed")
            if fed.count(node) > 1:
                raise ArgumentError(f"run: {node.name!r} is fed twice in feed_dict")
        wanted = [
            None if isinstance(leaf, Operation) or node.type == () else node
            for leaf, node in zip(leaves, nodes, strict=True)
        ]
        run = Run(
            self.graph.snapshot(), filter(None, wanted), nodes, fed,
            native=self.compiled,
        )  # fmt: skip
        for variable in run.plan.reads:
            if variable in self.graph.starts:
                start = self.graph.starts[variable]
                self.values.setdefault(variable, start.copy())
        return Call(run, wanted, structure)

    def _fetch(self, leaf: Any) -> Node:
        if isinstance(leaf, (StaticTensor, Operation, str)):
            return node_of(self.graph, leaf)
        raise DTypeError(
            "run: expected nodes of the graph or their names as fetches, got "
            f"{type(leaf).__name__}"
        )

    # -- variables

    def load(self, variable: Variable, value: Any) -> None:
        """Set a variable's value directly."""
        node_of(self.graph, variable)
        self.values[variable.variable] = np.array(feed_array(variable.node, value))

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


class Call:
    """Fetches and feeds of ``Session.run``: what runs, and the form of its result."""

    def __init__(self, run: Run, wanted: list[Node | None], structure: Any) -> None:
        self.run = run
        self.structure = structure
        places = {node: k for k, node in enumerate(run.fetches)}
        self.places = [None if node is None else places[node] for node in wanted]
        self.alone = structure == LEAF and self.places == [0]
        self.again = [  # fetched before: a copy is the caller's own
            at
            for at, place in enumerate(self.places)
            if place is not None and place in self.places[:at]
        ]

    def arrays(self, feed_dict: Any) -> list[np.ndarray]:
        """The fed values, as arrays of the nodes' types."""
        pairs = zip(self.run.fed, feed_dict.values(), strict=True)
        return [feed_array(node, value) for node, value in pairs]

    def result(self, arrays: list[np.ndarray]) -> Any:
        """The arrays of the fetched nodes in the structure of the fetches."""
        if self.alone:
            return arrays[0]
        leaves = [None if k is None else arrays[k] for k in self.places]
        for at in self.again:
            leaves[at] = leaves[at].copy()  # type: ignore[union-attr]
        return tree_unflatten(leaves, self.structure)


def _key(fetches: Any) -> Any:
    """A key of fetches by their nodes; of names, their text."""
    if isinstance(fetches, StaticTensor):
        return fetches.node
    if isinstance(fetches, Operation):
        return Operation, fetches.node
    if isinstance(fetches, dict):
        return dict, *[(key, _key(value)) for key, value in fetches.items()]
    if isinstance(fetches, (list, tuple)):
        return type(fetches), *map(_key, fetches)
    return type(fetches), fetches


class InteractiveSession(Session):
    """A session that is the default from its making on.

    >>> weft.static.reset_default_graph()
    >>> session = weft.static.InteractiveSession()
    >>> float(weft.static.constant(2.0).eval())
    2.0
    >>> session.close()
    """

    def __init__(self, target: Any = "", *args: Any, **options: Any) -> None:
        super().__init__(target, *args, **options)
        self.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        if self in _stack.sessions:
            self._leave()
        super().close()
