"""``sized``: a graph in which a symbolic size is the value of a tensor.

The derivative of a ``while_loop`` is a ``scan`` over as many steps as there were. That
number is a size inside the operator's graph; no input or output depends on it, so no
tensor whose size depends on data appears in the program around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.op import Sample, TensorType, define
from weft.graph import transform
from weft.graph.control.bodies import (
    apply_op,
    batched,
    cache_of,
    check_arrays,
    check_types,
    cotangents,
    derived,
    floating,
    graph_of,
    own,
    present,
    pullback,
    runner,
    runs_natively,
    some,
    spread,
    tangents,
    types_of,
)
from weft.graph.control.branch import choose
from weft.graph.control.repeat import scan_op
from weft.graph.ir import Graph
from weft.ops.creation import arange, zeros
from weft.ops.extremes import amax
from weft.ops.joining import cat

COUNT = TensorType((), dtypes.int64)


# -- sized(n, *xs): a graph from n, x… in which the size named ``size`` is n


def _sized_eval(n: Any, *xs: Any, graph: Graph, size: str, sizes: Any) -> Any:
    check_arrays("sized", graph, (n, *xs))
    steps = _rounded(int(n)) if runs_natively() else int(n)
    call = runner(graph, (*sizes, (size, steps)), always=True)
    with np.errstate(all="ignore"):
        return own(call((n, *xs)), graph, (n, *xs))


def _rounded(n: int) -> int:
    """A size that is larger by up to a quarter, so that few sizes need memory.

    Steps beyond the count change nothing.

    >>> from weft.graph.control.sized import _rounded
    >>> [_rounded(n) for n in (0, 1, 5, 9, 17, 100, 1000)]
    [1, 1, 5, 10, 20, 112, 1024]
    """
    grain = 1 << max(n.bit_length() - 3, 0)
    return max(-(-n // grain) * grain, 1)


def _sized_type(*xs: Any, graph: Graph, size: str, sizes: Any) -> Any:
    check_types("sized", graph, xs)
    return tuple(node.type for node in graph.outputs)


def _sized_vjp(g: Any, xs: Any, need: Any, graph: Graph, size: str) -> Any:
    wanted = tuple(a and b for a, b in zip(need, floating(graph.inputs), strict=True))
    gs, given = cotangents(g, graph.outputs)
    back = pullback(graph, wanted, given)
    found = apply_op(sized_op, (*xs, *gs), graph=back, size=size)
    return spread(found, wanted)


def _sized_jvp(ts: Any, xs: Any, graph: Graph, size: str) -> Any:
    moves = present(ts)
    found = apply_op(
        sized_op, (*xs, *some(ts, moves)), graph=tangents(graph, moves), size=size
    )
    return spread(found, floating(graph.outputs))


def _sized_batch(op: Any, size: Any, args: Any, mask: Any, params: Any) -> Any:
    """Examples that differ in their count all take the largest: elements beyond an
    example's own count are masked in the graph."""
    graph = params["graph"]
    every = (True,) * len(graph.outputs)
    if not mask[0]:
        many = batched(graph, size, tuple(mask), every)[0]
        return apply_op(op, args, graph=many, size=params["size"])
    n, *xs = args
    many = _own_counts(graph, size, tuple(mask))
    most = amax(cat([n, zeros(1, dtype=n.dtype)]))
    return apply_op(op, (most, n, *xs), graph=many, size=params["size"])


@derived
def _own_counts(graph: Graph, size: Any, mask: tuple[bool, ...]) -> Graph:
    """The graph over a batch with a count for each example, after the largest."""
    many = batched(graph, size, mask, (True,) * len(graph.outputs))[0]
    types = [COUNT, *types_of(many.inputs)]
    return graph_of(
        many.name, graph, types, lambda build, xs: transform.apply(many, xs[1:], build)
    )


SOME, NONE = (TensorType((n,), dtypes.float64) for n in (2, 0))


@cache
def _sample_sized() -> tuple[Graph, str]:
    """n times h*x, and the name of its size."""
    step = captured_graph("step", lambda x, h, e: (h * x, e), SOME, SOME, NONE)
    return counted(step, 1, 2), size_name(step)


def captured_graph(name: str, fn: Any, *types: TensorType) -> Graph:
    from weft.graph.capture import Spec, capture

    return capture(fn, *[Spec(*t) for t in types], name=name).graph


def _sized_samples(rng: np.random.Generator) -> list[Sample]:
    graph, size = _sample_sized()
    params = {"graph": graph, "size": size, "sizes": ()}
    x, h = rng.uniform(0.5, 1.5, (2, 2))
    counts = (int(rng.integers(1, 4)), 0)
    return [Sample((np.asarray(n), x, h, np.zeros(0)), params) for n in counts]


sized_op = define(
    "sized",
    inputs="*xs",
    outputs="*outs",
    eval=_sized_eval,
    type=_sized_type,
    vjp=_sized_vjp,
    jvp=_sized_jvp,
    batch=_sized_batch,
    samples=_sized_samples,
    reference=lambda n, x, h, e, **_: (h * x**n, e),
)


# -- loops of a counted number of steps


def size_name(body: Graph) -> str:
    """The name of the size that is the number of steps of a body."""
    cache = cache_of(body)
    if cache.steps is None:
        taken, k = body.sizes.hints, 0
        while f"steps{k or ''}" in taken:
            k += 1
        cache.steps = f"steps{k or ''}"
        body.sizes.symbol(cache.steps)
    return cache.steps


@derived
def counted(body: Graph, fixed: int, carried: int) -> Graph:
    """n steps of a body as a scan: n, fixed…, carry… gives carry….

    The scan has as many steps as a size of its own; those from n on change nothing.
    """
    length = body.sizes.symbol(size_name(body))
    step = _masked(body, fixed)

    def fn(build: Any, args: list[Any]) -> Sequence[Any]:
        n, *rest = args
        return apply_op(
            scan_op, (*rest, arange(length) < n), body=step, fixed=fixed,
            carried=carried, length=length, reverse=False, saved=0,
        )  # fmt: skip

    return graph_of(f"{body.name}_steps", body, [COUNT, *types_of(body.inputs)], fn)


@derived
def _masked(body: Graph, fixed: int) -> Graph:
    """fixed…, carry…, on gives the next carry… where ``on`` holds, else this one."""
    types = [*types_of(body.inputs), TensorType((), dtypes.bool_)]

    def fn(build: Any, args: list[Any]) -> Sequence[Any]:
        *given, on = args
        return choose(on, transform.apply(body, given, build), given[fixed:])

    return graph_of(f"{body.name}_masked", body, types, fn)
