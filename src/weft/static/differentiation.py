"""Gradients as nodes, and registered gradients for operators by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.autograd.function import Function
from weft.core.op import Op, all_ops
from weft.errors import ArgumentError, AutogradError, DTypeError
from weft.graph import ir
from weft.graph.gradients import add_gradients
from weft.ops.creation import zeros_like
from weft.ops.joining import stack
from weft.static.graph import StaticTensor, get_default_graph, is_unranked, node_of
from weft.static.math import OVERRIDABLE
from weft.static.unranked import Recorded, Unranked, above, recorded
from weft.static.variable import Variable


def gradients(
    ys: Any, xs: Any, grad_ys: Any = None, name: str = "gradients"
) -> list[StaticTensor | None]:
    """Nodes for the gradients of the sum of ``ys`` by each of ``xs``.

    They are nodes like any others: fetched, differentiated again, optimised. ``xs``
    are any nodes or their names: variables, placeholders, intermediate results. The
    gradient by something that ``ys`` do not depend on is None. That of ``loss`` by
    ``w`` has the further name ``loss/grad/w``.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = weft.static.placeholder(weft.float32, [])
    ...     (dx,) = weft.static.gradients(x**3, x)
    ...     (ddx,) = weft.static.gradients(dx, x)
    ...     [float(v) for v in session.run([dx, ddx], {x: 2.0})]
    [12.0, 12.0]
    """
    graph = get_default_graph()
    roots = [node_of(graph, y) for y in _listed(ys)]
    seeds = None
    if grad_ys is not None:
        given = _listed(grad_ys)
        if len(given) != len(roots):
            raise ArgumentError(
                f"gradients: {len(roots)} ys but {len(given)} grad_ys were given"
            )
        seeds = [
            None if g is None else graph.lift(g) if isinstance(g, StaticTensor)
            else _refuse_seed(g)
            for g in given
        ]  # fmt: skip
    wanted = [named(graph, x) for x in _listed(xs)]
    reads = [_reads(graph, x) for x in wanted]
    flat = list(dict.fromkeys(node for nodes in reads for node in nodes))
    start = len(graph.builder.nodes)
    found = dict(zip(flat, add_gradients(graph, roots, flat, seeds), strict=True))
    totals = [_total(graph, [found[n] for n in nodes]) for nodes in reads]
    graph.derived.update(dict.fromkeys(graph.builder.nodes[start:], roots))
    for x, total in zip(wanted, totals, strict=True):
        if len(roots) == 1 and seeds is None and total is not None:
            graph.also[f"{roots[0].name}/grad/{x.name}"] = total.node
    return totals


def named(graph: Any, x: Any) -> Any:
    """The variable or node that a text names; else the value itself."""
    if not isinstance(x, str):
        return x
    found = graph.get_tensor_by_name(x)
    return next((v for v in graph.variables if v.name == found.name), found)


def _gradients_or_zeros(*args: Any, **kwargs: Any) -> list[Any]:
    """The gradients in a run that knows all ranks, with zeros instead of None."""
    given = inspect.signature(gradients).bind(*args, **kwargs).arguments
    found = gradients(*args, **kwargs)
    pairs = zip(found, _listed(given["xs"]), strict=True)
    return [zeros_like(x) if g is None else g for g, x in pairs]


def _later(made: Recorded) -> list[Any]:
    """The gradients that a run will have; None where there can be none."""
    given = inspect.signature(gradients).bind(*made.args, **made.kwargs).arguments
    made.fn = _gradients_or_zeros
    ys = _listed(given["ys"])
    return [
        Unranked(made, k) if any(depends(y, x) for y in ys) else None
        for k, x in enumerate(_listed(given["xs"]))
    ]


def depends(y: Any, x: Any) -> bool:
    """Whether a value may depend on another."""
    unranked, nodes, unknown = above(y)
    if unknown or is_unranked(x):
        return unknown or x in unranked
    return not nodes.isdisjoint(_reads(x.graph, x))


gradients = recorded(gradients, _later)


def _refuse_seed(value: Any) -> Any:
    raise DTypeError(
        f"gradients: expected nodes as grad_ys, got {type(value).__name__}; use "
        "static.constant"
    )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _reads(graph: Any, x: Any) -> list[ir.Node]:
    """The nodes of an x: a variable may be read several times."""
    node = node_of(graph, x)
    if not isinstance(x, Variable):
        return [node]
    return [
        n
        for n in graph.builder.nodes
        if n.op is ir.READ and n.params["variable"] is x.variable
    ]


def _total(graph: Any, parts: list[Any]) -> StaticTensor | None:
    some = [graph.symbol(p) for p in parts if p is not None]
    if not some:
        return None
    total = some[0]
    for part in some[1:]:
        total = total + part
    return total


def stop_gradient(input: Any) -> StaticTensor:
    """The same value, through which no gradient flows.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     x = weft.static.placeholder(weft.float32, [])
    ...     weft.static.gradients(x * weft.static.stop_gradient(x), x)[0].op.type
    'absorb'
    """
    return input.detach()


class OperationView:
    """The operation as a registered gradient function sees it."""

    def __init__(
        self, type: str, inputs: list[Any], outputs: list[Any], params: Any
    ) -> None:
        self.type = type
        self.inputs = inputs
        self.outputs = outputs
        self.params = params

    def get_attr(self, name: str) -> Any:
        """A static parameter."""
        return self.params[name]


_REGISTERED: dict[str, Callable[..., Any]] = {}  # gradients without an operator


def overriding(names: dict[str, str]) -> dict[str, Any]:
    """The registered gradients that functions have, by their types."""
    found = {}
    for kind, registered in names.items():
        if registered not in _REGISTERED:
            raise ArgumentError(
                f"gradient_override_map: no gradient is registered as {registered!r}; "
                "use RegisterGradient"
            )
        if kind not in OVERRIDABLE:
            raise ArgumentError(
                f"gradient_override_map: expected one of {sorted(OVERRIDABLE)}, got "
                f"{kind!r}; use custom_gradient for a function of other operators"
            )
        found[kind] = functools.partial(_overridden, kind, _REGISTERED[registered])
    return found


def _overridden(kind: str, gradient: Callable[..., Any], fn: Any, x: Any) -> Any:
    """A function of a tensor with a registered gradient."""

    def both(value: Any) -> Any:
        out = fn(value)
        view = OperationView(kind, [value], [out], {})
        return out, lambda *grads: gradient(view, *grads)

    return custom_gradient(both)(x)


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors that returns its result and a function for its gradient.

    >>> @weft.static.custom_gradient
    ... def halved(x):
    ...     return x * 1.0, lambda grad: grad / 2
    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.constant(3.0)
    ...     float(session.run(weft.static.gradients(halved(x), x)[0]))
    0.5
    """

    class Custom(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            out, ctx.gradient = f(*args)
            return out

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return ctx.gradient(*grads)

    return functools.wraps(f)(lambda *args: Custom.apply(*args))


def RegisterGradient(op_type: str) -> Callable[..., Any]:
    """A decorator that gives an operator a gradient, by the operator's name.

    The function takes the operation (``inputs``, ``outputs``, ``get_attr``) and a
    gradient for each output, and returns one for each input (None for none).

    >>> def same(x):
    ...     return x
    >>> cube = weft.core.op.define("cube", inputs="x", eval=lambda x: x**3, type=same)
    >>> @weft.static.RegisterGradient("cube")
    ... def _(op, grad):
    ...     return 3 * grad * op.inputs[0] ** 2
    >>> x = weft.tensor(2.0, requires_grad=True)
    >>> cube(x).backward()
    >>> x.grad
    tensor(12.)
    >>> weft.core.op.unregister("cube")
    """
    known = next((op for op in all_ops() if op.name == op_type), None)
    if known is None:  # a name for ``Graph.gradient_override_map``
        return lambda fn: _REGISTERED.setdefault(op_type, fn)
    op = known
    if op.vjp is not None:
        raise AutogradError(
            f"RegisterGradient: operator {op_type!r} has a gradient already"
        )

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _install(op, fn)
        return fn

    return register


def _install(op: Op, fn: Callable[..., Any]) -> None:
    ins, outs = len(op.inputs), len(op.outputs)
    attributes = _keywords(op.eval)

    def rule(g: Any, *values: Any) -> Any:
        given, made = list(values[:ins]), list(values[ins : ins + outs])
        params = dict(zip(attributes, values[ins + outs :], strict=True))
        view = OperationView(op.name, given, made, params)
        gradients = fn(view, *(g if type(g) is tuple else (g,)))
        several = isinstance(gradients, (tuple, list))
        gradients = tuple(gradients) if several else (gradients,)
        if len(gradients) != ins:
            raise AutogradError(
                f"the gradient registered for {op.name!r} must return {ins} "
                f"gradients, one an input, got {len(gradients)}"
            )
        return gradients

    rule.names = (*op.inputs, *op.outputs, *attributes)  # type: ignore[attr-defined]
    op.vjp = rule
    op.plans.clear()


def _keywords(fn: Callable[..., Any]) -> tuple[str, ...]:
    """The static parameters of an operator: its evaluation's keywords."""
    if isinstance(fn, np.ufunc):  # its keywords are NumPy's, not an operator's
        return ()
    try:
        given = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # nor has another function in C any of ours
        return ()
    return tuple(p.name for p in given if p.kind is inspect.Parameter.KEYWORD_ONLY)


def hessians(ys: Any, xs: Any, name: str = "hessians") -> list[StaticTensor]:
    """The second derivatives of a sum, for each x a tensor of its shape twice.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.constant([1.0, 2.0])
    ...     session.run(weft.static.hessians(weft.static.reduce_sum(x**3), x)[0])
    array([[ 6.,  0.],
           [ 0., 12.]], dtype=float32)
    """
    found = []
    for x in _listed(xs):
        (first,) = gradients(ys, x)
        if first is None:
            raise ArgumentError(f"hessians: {ys!r} does not depend on {x!r}")
        rows = [gradients(one, x)[0] for one in first.reshape(-1)]
        rows = [zeros_like(x) if row is None else row for row in rows]
        found.append(stack(rows).reshape(*x.shape, *x.shape))
    return found
