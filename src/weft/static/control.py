"""Control flow as nodes, with TensorFlow 1's names and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.core.pytree import tree_map
from weft.errors import ArgumentError
from weft.static.building import with_scalars
from weft.static.math import _node
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
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    name: str = "",
    maximum_iterations: Any = None,
) -> Any:
    """Run ``body`` on the loop variables while ``cond`` of them holds.

    It stops after ``maximum_iterations``, a number or a node, if that is given. See
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
    variables = tuple(_node(one) for one in loop_vars)
    if maximum_iterations is None:
        out = weft.while_loop(cond, lambda *v: tuple(_listed(body(*v))), variables)
    else:
        most = _node(maximum_iterations).to(weft.int64)
        out = weft.while_loop(
            lambda k, *v: (k < most) & cond(*v),
            lambda k, *v: (k + 1, *_listed(body(*v))),
            (_node(0), *variables),
        )[1:]
    if len(out) == 1:
        return out[0]
    return list(out) if isinstance(loop_vars, list) else out


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
