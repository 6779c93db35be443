"""Graphs as functions: run on any tensors, and transformed by ``weft.func``.

``apply`` runs a graph node by node through the one dispatch point, so it works on
concrete tensors, on tracers and on symbols of another graph. Every transform of
functions is therefore one of graphs: trace ``transform(apply(graph))``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.core.dispatch import bind
from weft.core.op import TensorType
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.graph.ir import (
    ASSIGN,
    CONSTANT,
    DETACH,
    INPUT,
    PICK,
    READ,
    Builder,
    Graph,
    Node,
)
from weft.graph.symbol import Building


def apply(
    graph: Graph, args: Sequence[Any], build: Building | None = None
) -> list[Any]:
    """The graph's outputs for these tensors.

    Variables are read and assigned in ``build``, where there is one.

    >>> g = weft.graph.capture(lambda x: x * 2, weft.ones(2)).graph
    >>> weft.graph.apply(g, [weft.tensor([1.0, 2.0])])
    [tensor([2., 4.])]
    """
    if len(args) != len(graph.inputs):
        raise ArgumentError(
            f"{graph.name}: expected {len(graph.inputs)} tensors, got {len(args)}"
        )
    env: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
    for node in graph.nodes:
        if node not in env:
            env[node] = apply_node(node, env, build)
    return [env[o] for o in graph.outputs]


def apply_node(node: Node, env: dict[Node, Any], build: Building | None) -> Any:
    """The value of one node, given its inputs' values."""
    if build is None:
        return _apply(node, env, None)
    with build.builder.deriving(node), build.builder.within(node):
        return _apply(node, env, build)


def _apply(node: Node, env: dict[Node, Any], build: Building | None) -> Any:
    args = tuple([env[i] if type(i) is Node else i for i in node.inputs])
    if node.op is PICK:
        return args[0][node.params["index"]]
    if node.op is CONSTANT:
        if build is None:
            return Tensor(node.params["value"])
        return build.symbol(build.builder.constant(node.params["value"]))
    if node.op is DETACH:
        return args[0].stopped()
    if node.op in (READ, ASSIGN):
        return _stateful(node, args, build)
    if node.op is INPUT:
        raise ArgumentError(f"input {node.name!r} got no value")
    return bind(node.op, args, node.params)


def _stateful(node: Node, args: tuple[Any, ...], build: Building | None) -> Any:
    variable = node.params["variable"]
    if build is None:
        raise ArgumentError(
            f"node {node.name!r} uses variable {variable.name!r}; a graph with "
            "variables is run by a session or by what captured it"
        )
    if node.op is READ:
        return build.symbol(build.builder.read(variable))
    build.builder.assign(variable, build.lift(args[0]))
    return args[0]


def traced(
    name: str,
    like: Graph,
    inputs: Sequence[tuple[str, TensorType]],
    fn: Callable[[Building, list[Any]], Sequence[Any]],
) -> Graph:
    """The graph of ``fn`` over inputs of these types, in the sizes of ``like``."""
    build = Building(Builder(name, like.sizes))
    with build, build.taking():
        symbols = [build.symbol(build.builder.input(t, n)) for n, t in inputs]
        outs = [build.lift(out) for out in fn(build, symbols)]
    return build.builder.finish(outs)


def _typed(graph: Graph, lead: str = "") -> list[tuple[str, TensorType]]:
    return [(lead + node.name, node.type) for node in graph.inputs]


def jvp(graph: Graph, moves: Sequence[bool] | None = None) -> Graph:
    """The graph of values and tangents: inputs x…, dx…; outputs y…, dy….

    Only floating-point inputs have tangents; ``moves`` says which (all, unless given).

    >>> g = weft.graph.capture(lambda x: x * x, weft.ones(3)).graph
    >>> weft.graph.jvp(g).inputs
    (<input 'x' float32[3]>, <input 'dx' float32[3]>)
    """
    from weft.func.jvp import jvp as push

    moving = [node.dtype.is_inexact for node in graph.inputs]
    if moves is not None:
        moving = [a and b for a, b in zip(moving, moves, strict=True)]
    tangents = [t for t, m in zip(_typed(graph, "d"), moving, strict=True) if m]
    count = len(graph.inputs)

    def fn(build: Building, args: list[Any]) -> Sequence[Any]:
        primals, moves = args[:count], args[count:]

        def run(*xs: Any) -> Any:
            some = iter(xs)
            pairs = zip(primals, moving, strict=True)
            full = [next(some) if moves else p for p, moves in pairs]
            return tuple(apply(graph, full, build))

        own = tuple(p for p, m in zip(primals, moving, strict=True) if m)
        ys, dys = push(run, own, tuple(moves))
        return (*ys, *dys)

    return traced(f"{graph.name}_jvp", graph, [*_typed(graph), *tangents], fn)


def vmap(graph: Graph, size: Any, in_dims: Sequence[int | None] | None = None) -> Graph:
    """The graph over a batch: mapped inputs get an axis of ``size`` in front.

    >>> g = weft.graph.capture(lambda x: x.sum(), weft.ones(3)).graph
    >>> weft.graph.vmap(g, 5)
    <graph program_vmap(float32[5, 3]) -> (float32[5]), 2 nodes>
    """
    from weft.func.vmap import vmap as batch

    dims = tuple(0 for _ in graph.inputs) if in_dims is None else tuple(in_dims)
    inputs = [
        (n, t if d is None else TensorType((size, *t.shape), t.dtype))
        for (n, t), d in zip(_typed(graph), dims, strict=True)
    ]

    def fn(build: Building, args: list[Any]) -> Sequence[Any]:
        def run(*xs: Any) -> Any:
            return tuple(apply(graph, xs, build))

        return batch(run, in_dims=dims, randomness="different")(*args)

    return traced(f"{graph.name}_vmap", graph, inputs, fn)


def vjp(
    graph: Graph,
    wanted: Sequence[bool] | None = None,
    given: Sequence[bool] | None = None,
) -> Graph:
    """The graph of cotangents: inputs x…, gy…; outputs the floating inputs' gx….

    ``wanted`` says which inputs' cotangents are asked for (all, unless given), and
    ``given`` which outputs have one. An output without a cotangent is no part of the
    derivative, whereas a cotangent of zeros gives NaN where it meets an infinity.

    >>> g = weft.graph.capture(lambda x: x * x, weft.ones(3)).graph
    >>> weft.graph.vjp(g)
    <graph program_vjp(float32[3], float32[3]) -> (float32[3]), 5 nodes>
    """
    from weft.graph.gradients import add_gradients, or_zeros
    from weft.graph.passes import dead_code

    there = [True] * len(graph.outputs) if given is None else given
    ends = zip(graph.outputs, there, strict=True)
    floating = [o for o, has in ends if has and o.dtype.is_inexact]
    build = Building(graph.builder())
    builder = build.builder
    gs = [builder.input(o.type, f"g{o.name}") for o in floating]
    asked = [True] * len(graph.inputs) if wanted is None else wanted
    pairs = zip(graph.inputs, asked, strict=True)
    xs = [n for n, want in pairs if want and n.dtype.is_inexact]
    found = add_gradients(build, floating, xs, gs)
    outs = [or_zeros(build, x, g) for x, g in zip(xs, found, strict=True)]
    whole = Graph(f"{graph.name}_vjp", builder.nodes, outs, graph.sizes,
                  (*graph.inputs, *gs))  # fmt: skip
    return dead_code(whole)
