"""Graphs as parameters: how operators of control flow run and transform them.

Every rule of ``cond``, ``scan`` and ``while_loop`` is the same operator applied to
graphs that were derived from its own. A derived graph is kept with the one it came
from (``BodyCache``), so that a body is differentiated once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft import late
from weft.autograd.modes import enable_grad
from weft.core.dispatch import bind
from weft.core.op import Op, TensorType
from weft.core.size import Scope, Size, same_shape
from weft.core.tensor import Tensor
from weft.dtype import of_array
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.func.vmap import Batched, Batching
from weft.graph import transform
from weft.graph.interpret import Program, resolve
from weft.graph.ir import CONSTANT, Graph, Node
from weft.graph.passes import dead_code
from weft.runtime.cpu.buffers import owned

Call = Callable[[Sequence[Any]], list[np.ndarray]]


# -- the cache of a graph


class BodyCache:
    """Programs and graphs that were made of one graph, a body or a branch.

    The graph holds its cache, and both are freed together. Entries refer to the graph,
    so a table outside, by weak references to graphs, would never free one.
    """

    __slots__ = ("derived", "native", "plain", "program", "steps")

    def __init__(self) -> None:
        self.program: Program | None = None
        self.native: dict[Any, Any] = {}  # compiled programs
        self.plain: tuple[Graph, tuple[Node, ...] | None] | None = None  # of a scan
        self.steps: str | None = None  # the size that is a loop's number of steps
        self.derived: dict[tuple[Any, ...], Any] = {}  # by function and arguments


_lock = threading.Lock()


def cache_of(graph: Graph) -> BodyCache:
    """The cache of a graph, the same for every thread."""
    if graph.cache is None:
        with _lock:
            if graph.cache is None:
                graph.cache = BodyCache()
    return graph.cache


# -- running


_run = threading.local()


@contextmanager
def natively() -> Iterator[None]:
    """Let bodies that are worth it run as machine code inside the block."""
    before = getattr(_run, "native", False)
    _run.native = True
    try:
        yield
    finally:
        _run.native = before


def runs_natively() -> bool:
    """Whether bodies that are worth it run as machine code."""
    return getattr(_run, "native", False)


def cannot_round(graph: Graph) -> bool:
    """Whether a graph must not run natively for more steps than there are."""
    if not runs_natively():
        return True
    return late.find("native_body")(graph, True).may_fail


def runner(
    graph: Graph, sizes: Iterable[tuple[str, int]], *, always: bool = False
) -> Call:
    """A graph as a function of arrays.

    In a compiled program it is machine code, if that is worth it or ``always``.
    """
    if runs_natively():
        native = late.find("native_body")(graph, always)
        if native is not None:
            known = dict(sizes)
            return lambda feeds: native.run_named(feeds, {}, known=known)[0]
    cache = cache_of(graph)
    if cache.program is None:
        cache.program = Program(graph, graph.outputs)
    return cache.program.function(dict(sizes))


def shape_of(kind: TensorType, sizes: Iterable[tuple[str, int]]) -> tuple[int, ...]:
    return resolve(kind.shape, dict(sizes))


def check_arrays(name: str, graph: Graph, arrays: Sequence[Any]) -> None:
    """Refuse arrays that the graph was not made for."""
    for node, array in zip(graph.inputs, arrays, strict=True):
        if of_array(np.asarray(array)) is not node.type.dtype:
            raise DTypeError(
                f"{name}: input {node.name!r} is {node.type}, got {array.dtype}"
            )
        if len(array.shape) != len(node.type.shape):
            raise ShapeError(
                f"{name}: input {node.name!r} is {node.type}, got shape {array.shape}"
            )


def own(outs: Sequence[Any], graph: Graph, given: Sequence[Any]) -> tuple[Any, ...]:
    """Results that share no memory with arguments or constants."""
    taken = set(map(id, given))
    found = []
    for out, node in zip(outs, graph.outputs, strict=False):
        shared = not owned(out) or id(out) in taken or node.op is CONSTANT
        taken.add(id(out))
        found.append(out.copy() if shared else out)
    return tuple(found)


def sizes_of(*graphs: Graph, without: Sequence[str] = ()) -> tuple[Any, ...]:
    """The symbolic sizes that graphs need to run: (name, size) pairs."""
    sizes: dict[str, Any] = {}
    for graph in graphs:
        for value in _values(graph):
            for size in _sizes(value):
                for name in size.symbols:
                    if name not in without:
                        sizes.setdefault(name, graph.sizes.symbol(name))
    return tuple(sorted(sizes.items(), key=lambda pair: pair[0]))


def _values(graph: Graph) -> Iterable[Any]:
    for node in graph.nodes:
        yield from node.inputs
        yield from node.params.values()
    yield from (node.type.shape for node in graph.outputs)


def _sizes(value: Any) -> Iterable[Size]:
    if isinstance(value, Size):
        yield value
    elif isinstance(value, slice):
        yield from _sizes((value.start, value.stop, value.step))
    elif isinstance(value, (tuple, list)) and not isinstance(value, TensorType):
        for one in value:
            yield from _sizes(one)


def check_types(name: str, graph: Graph, given: Sequence[Any]) -> None:
    """Refuse types that are not those of the graph's inputs."""
    if len(given) != len(graph.inputs):
        raise ArgumentError(
            f"{name}: {graph.name!r} takes {len(graph.inputs)} tensors, got "
            f"{len(given)}"
        )
    for node, kind in zip(graph.inputs, given, strict=True):
        if kind.dtype is not node.type.dtype:
            raise DTypeError(f"{name}: {node.name!r} is {node.type}, got {kind}")
        if not same_shape(tuple(kind.shape), tuple(node.type.shape)):
            raise ShapeError(f"{name}: {node.name!r} is {node.type}, got {kind}")


def apply_op(op: Op, args: Iterable[Any], **params: Any) -> tuple[Any, ...]:
    """Bind an operator of control flow, with the sizes that its graphs need."""
    graphs = [p for p in params.values() if isinstance(p, Graph)]
    known = (params["size"],) if "size" in params else ()
    sizes = sizes_of(*graphs, without=known)
    return bind(op, tuple(args), {**params, "sizes": sizes})


def with_sizes(params: dict[str, Any], scope: Scope | None = None) -> dict[str, Any]:
    """Parameters whose graphs have the values of ``sizes`` in place of their names.

    ``scope`` is that of values that are open sizes themselves.
    """
    given = dict(params["sizes"])
    graphs = {
        k: _replaced(v, given, scope) for k, v in params.items() if type(v) is Graph
    }
    known = (params["size"],) if "size" in params else ()
    sizes = sizes_of(*graphs.values(), without=known)
    return {**params, **graphs, "sizes": sizes}


def _replaced(graph: Graph, sizes: dict[str, Any], scope: Scope | None) -> Graph:
    made: dict[Node, Node] = {}

    def value(x: Any) -> Any:
        if type(x) is Node:
            return made[x]
        if type(x) is Graph:
            return _replaced(x, sizes, scope)
        if type(x) is TensorType:
            return TensorType(value(tuple(x.shape)), x.dtype)
        if type(x) is tuple:
            return tuple(map(value, x))
        if type(x) is slice:
            return slice(*map(value, (x.start, x.stop, x.step)))
        if isinstance(x, Size) and x.symbols <= sizes.keys():
            return x.evaluate(sizes)
        return x

    for node in graph.nodes:
        params = {k: value(v) for k, v in node.params.items()}
        made[node] = Node(
            node.op, value(node.inputs), params, value(node.type), node.name,
            value(node.after), node.module, node.code, node.lasti, node.role,
        )  # fmt: skip
    outputs, inputs = value(graph.outputs), value(graph.inputs)
    return Graph(graph.name, made.values(), outputs, scope, inputs)


def split(values: Sequence[Any], *counts: int) -> list[list[Any]]:
    """The values in groups of these sizes; the last takes the rest."""
    out, start = [], 0
    for count in counts:
        out.append(list(values[start : start + count]))
        start += count
    return [*out, list(values[start:])]


# -- deriving


def derived(make: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the result of a function of a graph with that graph."""

    def find(graph: Graph, *key: Any) -> Any:
        known, entry = cache_of(graph).derived, (make, *key)
        result = known.get(entry)
        if result is None:
            with enable_grad():
                result = known[entry] = make(graph, *key)
        return result

    return find


def floating(nodes: Iterable[Node]) -> tuple[bool, ...]:
    return tuple(node.type.dtype.is_inexact for node in nodes)


def some(values: Iterable[Any], which: Iterable[bool]) -> list[Any]:
    """The wanted values."""
    return [v for v, w in zip(values, which, strict=True) if w]


def spread(values: Iterable[Any], which: Iterable[bool]) -> list[Any]:
    """The values at the wanted positions, None elsewhere."""
    rest = iter(values)
    return [next(rest) if w else None for w in which]


def graph_of(
    name: str,
    like: Graph,
    types: Iterable[TensorType],
    fn: Callable[[Any, list[Any]], Sequence[Any]],
) -> Graph:
    """The graph of ``fn(build, symbols)`` over inputs of these types."""
    return dead_code(transform.traced(name, like, [("x", t) for t in types], fn))


def types_of(nodes: Iterable[Node], which: Iterable[bool] | None = None) -> list[Any]:
    types = [node.type for node in nodes]
    return types if which is None else some(types, which)


@derived
def pullback(
    graph: Graph, wanted: tuple[bool, ...], given: tuple[bool, ...] | None = None
) -> Graph:
    """Inputs x…, g of the given outputs; outputs the wanted inputs' cotangents."""
    return transform.vjp(graph, wanted, given)


@derived
def pushforward(graph: Graph, moves: tuple[bool, ...]) -> Graph:
    """Inputs x…, dx of those that move; outputs y…, dy of the floating ones."""
    both = transform.jvp(graph, moves)
    count = len(graph.outputs)
    tangents = some(both.outputs[count:], floating(graph.outputs))
    outs = (*both.outputs[:count], *tangents)
    return dead_code(Graph(both.name, both.nodes, outs, both.sizes, both.inputs))


@derived
def tangents(graph: Graph, moves: tuple[bool, ...]) -> Graph:
    """The graph of ``pushforward`` with the floating outputs' tangents only."""
    both = pushforward(graph, moves)
    outs = both.outputs[len(graph.outputs) :]
    return dead_code(Graph(both.name, both.nodes, outs, both.sizes, both.inputs))


@derived
def batched(
    graph: Graph, size: Any, mask: tuple[bool, ...], force: tuple[bool, ...]
) -> tuple[Graph, tuple[bool, ...]]:
    """The graph over a batch of some inputs, and which outputs are batched then.

    Outputs in ``force`` get the batch's axis in any case.
    """
    types = [
        TensorType((size, *node.type.shape), node.type.dtype) if m else node.type
        for node, m in zip(graph.inputs, mask, strict=True)
    ]
    mapped: list[bool] = []

    def fn(build: Any, args: list[Any]) -> list[Any]:
        with Batching(size, "different") as run:
            pairs = zip(args, mask, strict=True)
            inner = [Batched(x, interpreter=run) if m else x for x, m in pairs]
            outs = transform.apply(graph, inner, build)
            mapped.extend(_belongs(o, run) for o in outs)
            lifted = [f or m for f, m in zip(mapped, force, strict=True)]
            return [run.lift(o) if w else o for o, w in zip(outs, lifted, strict=True)]

    made = graph_of(f"{graph.name}_vmap", graph, types, fn)
    return made, tuple(f or m for f, m in zip(mapped, force, strict=True))


def _belongs(value: Any, run: Batching) -> bool:
    return type(value) is Batched and value._interpreter is run


def to_batch(value: Tensor, size: Any) -> Tensor:
    """A value repeated for each example."""
    return value.expand((size, *value.shape))


def present(values: Iterable[Any]) -> tuple[bool, ...]:
    """A flag for each tangent or cotangent: whether there is one."""
    return tuple(value is not None for value in values)


def cotangents(
    g: Iterable[Any], outs: Iterable[Node]
) -> tuple[list[Any], tuple[bool, ...]]:
    """The cotangents of the floating outputs, and which outputs have one."""
    pairs = zip(g, outs, strict=True)
    given = tuple(one is not None and node.dtype.is_inexact for one, node in pairs)
    return some(g, given), given
