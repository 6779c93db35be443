"""Control flow as nodes, with TensorFlow 1's names and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.core.pytree import tree_flatten, tree_map, tree_unflatten
from weft.errors import ArgumentError
from weft.static.building import with_scalars
from weft.static.graph import get_default_graph
from weft.static.math import _node
from weft.static.tensor_array import TensorArray, Unshaped
from weft.static.unranked import record_all, recorded, several


def cond(
    pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any], name: str = ""
) -> Any:
    """The results of ``true_fn`` if the predicate holds in a run, else ``false_fn``'s.

    Only the chosen branch runs. Gradients flow through it.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = weft.static.placeholder(weft.float32, [])
    ...     y = weft.static.cond(x > 0, lambda: x * 2, lambda: x * 10)
    ...     [float(session.run(y, {x: v})) for v in (3.0, -1.0)]
    [6.0, -10.0]
    """
    return weft.cond(pred, true_fn, false_fn)


def while_loop(
    cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any,
    shape_invariants: Any = None, parallel_iterations: int = 10,
    back_prop: bool = True, swap_memory: bool = False, name: str | None = None,
    maximum_iterations: Any = None, return_same_structure: bool = False,
) -> Any:  # fmt: skip
    """Run ``body`` on the loop variables while ``cond`` of them holds.

    Variables are tensors, tensor arrays, or lists, tuples and dictionaries of them. The
    loop stops after ``maximum_iterations``, a number or a node, if that is given. See
    ``Session(loop_limit=)`` for a limit that is an error. One variable in a list comes
    back alone.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     n = weft.static.placeholder(weft.int64, [])
    ...     start = [weft.static.constant(0), weft.static.constant(1.0)]
    ...     i, x = weft.static.while_loop(
    ...         lambda i, x: i < n, lambda i, x: [i + 1, x * 2], start)
    ...     [float(session.run(x, {n: v})) for v in (0, 3)]
    [1.0, 8.0]
    """
    before = _State()
    try:
        out = _loop(cond, body, loop_vars, maximum_iterations)
    except Unshaped as missing:
        before.restore()
        missing.array.shape_rows(missing.shape)
        return while_loop(
            cond, body, loop_vars, maximum_iterations=maximum_iterations,
            return_same_structure=return_same_structure,
        )  # fmt: skip
    if len(out) == 1 and not return_same_structure:
        return out[0]
    return list(out) if isinstance(loop_vars, list) else out


def _loop(cond: Any, body: Any, loop_vars: Any, most: Any) -> tuple[Any, ...]:
    """The loop over the tensors in the loop variables."""
    leaves, structure = tree_flatten(tuple(loop_vars))
    start = tuple([_held(leaf) for leaf in leaves])

    def given(values: Any) -> Any:
        pairs = zip(leaves, values, strict=True)
        return tree_unflatten([_like(leaf, value) for leaf, value in pairs], structure)

    def step(*values: Any) -> Any:
        found = tree_flatten(tuple(_listed(body(*given(values)))))[0]
        if len(found) != len(leaves):
            raise ArgumentError(
                f"while_loop: expected {len(leaves)} loop variables from the body, as "
                f"there are, got {len(found)}"
            )
        return tuple([_held(leaf) for leaf in found])

    if most is None:
        out = weft.while_loop(lambda *v: cond(*given(v)), step, start)
    else:
        limit = _node(most).to(weft.int64)
        out = weft.while_loop(
            lambda k, *v: (k < limit) & cond(*given(v)),
            lambda k, *v: (k + 1, *step(*v)),
            (_node(0), *start),
        )[1:]
    return tuple(given(out))


def _held(leaf: Any) -> Any:
    """The tensor of a loop variable; of an array without rows, a stand-in."""
    if not isinstance(leaf, TensorArray):
        return _node(leaf)
    return _node(0) if leaf.held is None else leaf.held


def _like(leaf: Any, value: Any) -> Any:
    if not isinstance(leaf, TensorArray):
        return value
    return leaf.like(None if leaf.held is None else value)


class _State:
    """The additions of a loop to its graph, so that they can be undone."""

    def __init__(self) -> None:
        self.graph = graph = get_default_graph()
        builder = graph.builder
        self.count, self.names = len(builder.nodes), dict(builder.by_name)
        self.counts, self.held = dict(builder._counts), dict(builder.variables)
        self.variables = list(graph.variables)
        self.collections = {key: list(v) for key, v in graph.collections.items()}
        kept = graph.store
        self.store = None if kept is None else _copied(vars(kept))

    def restore(self) -> None:
        graph = self.graph
        del graph.builder.nodes[self.count :]
        graph.builder.by_name, graph.builder._counts = self.names, self.counts
        graph.builder.variables = self.held
        graph.variables[:] = self.variables
        graph.collections = self.collections
        if self.store is None:
            graph.store = None
        else:
            vars(graph.store).update(self.store)


def _copied(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: dict(v) if isinstance(v, dict) else v for k, v in fields.items()}


def _listed(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else [value]


def case(
    pred_fn_pairs: Any, default: Callable[[], Any] | None = None, name: str = ""
) -> Any:
    """The first branch whose predicate holds, else the default.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = weft.static.placeholder(weft.float32, [])
    ...     y = weft.static.case(
    ...         [(x < 0, lambda: -x), (x < 1, lambda: x * 0)], default=lambda: x)
    ...     [float(session.run(y, {x: v})) for v in (-3.0, 0.5, 2.0)]
    [3.0, 0.0, 2.0]
    """
    pairs = (
        list(pred_fn_pairs.items())
        if isinstance(pred_fn_pairs, dict)
        else list(pred_fn_pairs)
    )
    if not pairs:
        raise ArgumentError("case: expected at least one (predicate, function) pair")
    if default is None:
        default = pairs.pop()[1]
    chosen = default
    for pred, fn in reversed(pairs):
        chosen = _branch(pred, fn, chosen)
    return chosen()


def _branch(pred: Any, fn: Any, otherwise: Any) -> Callable[[], Any]:
    return lambda: cond(pred, fn, otherwise)


def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    name: str = "",
    reverse: bool = False,
) -> Any:
    """The successive values of ``fn(accumulated, element)`` along the first axis.

    Without an initial value, the first element is the first accumulated value.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = weft.static.constant([1.0, 2.0, 3.0])
    ...     sums = weft.static.scan(lambda a, e: a + e, x, weft.static.constant(0.0))
    ...     session.run([sums, weft.static.scan(lambda a, e: a * e, x)])
    [array([1., 3., 6.], dtype=float32), array([1., 2., 6.], dtype=float32)]
    """

    def step(carry: Any, element: Any) -> Any:
        new = fn(carry, element)
        return new, new

    elems = tree_map(_node, elems)
    if initializer is not None:
        start = tree_map(_node, initializer)
        return weft.scan(step, start, elems, reverse=reverse)[1]
    first, rest = (-1, slice(-1)) if reverse else (0, slice(1, None))
    begin = tree_map(lambda x: x[first], elems)
    found = weft.scan(step, begin, tree_map(lambda x: x[rest], elems), reverse=reverse)
    order = -1 if reverse else 1

    def joined(one: Any, others: Any) -> Any:
        return weft.cat([one.unsqueeze(0), others][::order])

    return tree_map(joined, begin, found[1])


def map_fn(fn: Callable[[Any], Any], elems: Any, name: str = "") -> Any:
    """``fn`` of each element along the first axis.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = weft.static.constant([1.0, 2.0])
    ...     session.run(weft.static.map_fn(lambda v: v * v, x))
    array([1., 4.], dtype=float32)
    """
    return weft.map(fn, tree_map(_node, elems))


def foldl(
    fn: Callable[[Any, Any], Any], elems: Any, initializer: Any = None, name: str = "",
    **options: Any,
) -> Any:  # fmt: skip
    """The last value of ``fn(accumulated, element)`` along the first axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.constant([5.0, 1.0, 2.0])
    ...     float(session.run(weft.static.foldl(lambda a, x: a - x, x)))
    2.0
    """
    found = scan(fn, elems, initializer)
    return tree_map(lambda x: x[-1], found)


def foldr(
    fn: Callable[[Any, Any], Any], elems: Any, initializer: Any = None, name: str = "",
    **options: Any,
) -> Any:  # fmt: skip
    """The last value of ``fn(accumulated, element)``, from the end of the first axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.constant([5.0, 1.0, 8.0])
    ...     float(session.run(weft.static.foldr(lambda a, x: a - x, x)))
    2.0
    """
    found = scan(fn, elems, initializer, reverse=True)
    return tree_map(lambda x: x[0], found)


while_loop = recorded(
    while_loop, several(lambda c, b, loop_vars, *_, **k: len(loop_vars))
)
record_all(globals())
cond = with_scalars("pred")(cond)
