"""``cond``: one of two functions, chosen by a value.

Eagerly it is an ``if``. In a captured program it is one operator that holds both
branches as graphs and runs one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.op import Sample, define
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.func.vmap import Batched, vmap
from weft.graph import transform
from weft.graph.capture import capturing
from weft.graph.control.bodies import (
    apply_op,
    batched,
    check_arrays,
    check_types,
    cotangents,
    floating,
    own,
    present,
    pullback,
    runner,
    some,
    spread,
    tangents,
)
from weft.graph.control.staging import (
    Staged,
    as_leaf,
    check_same,
    closed_over,
    hand_on,
    unshared,
)
from weft.graph.ir import Graph
from weft.ops.select import where

# -- the operator: cond(pred, *xs), with the graphs of both branches over xs


def _eval(pred: Any, *xs: Any, then: Graph, other: Graph, sizes: Any) -> Any:
    graph = then if pred else other
    check_arrays("cond", graph, xs)
    with np.errstate(all="ignore"):
        return own(runner(graph, sizes)(xs), graph, xs)


def _type(pred: Any, *xs: Any, then: Graph, other: Graph, sizes: Any) -> Any:
    if pred.dtype is not dtypes.bool_ or tuple(pred.shape) != ():
        raise DTypeError(f"cond: expected a predicate bool[], got {pred}")
    for graph in (then, other):
        check_types("cond", graph, xs)
    return tuple(node.type for node in then.outputs)


def _vjp(g: Any, xs: Any, need: Any, then: Graph, other: Graph) -> Any:
    wanted = tuple(
        a and b for a, b in zip(need[1:], floating(then.inputs), strict=True)
    )
    gs, given = cotangents(g, then.outputs)
    found = apply_op(
        cond_op, (*xs, *gs),
        then=pullback(then, wanted, given), other=pullback(other, wanted, given),
    )  # fmt: skip
    return [None, *spread(found, wanted)]


def _jvp(ts: Any, xs: Any, then: Graph, other: Graph) -> Any:
    moves = present(ts[1:])
    found = apply_op(
        cond_op, (*xs, *some(ts[1:], moves)),
        then=tangents(then, moves), other=tangents(other, moves),
    )  # fmt: skip
    return spread(found, floating(then.outputs))


def _batch(op: Any, size: Any, args: Any, mask: Any, params: Any) -> Any:
    graphs = [params[name] for name in ("then", "other")]
    if mask[0]:
        dims = tuple(0 if m else None for m in mask)
        return vmap(_both(*graphs), dims)(*args)
    all_out = (True,) * len(graphs[0].outputs)
    then, other = (batched(g, size, tuple(mask[1:]), all_out)[0] for g in graphs)
    return apply_op(op, args, then=then, other=other)


def _both(then: Graph, other: Graph) -> Callable[..., Any]:
    """Both branches, and a choice between their results."""

    def run(pred: Any, *xs: Any) -> Any:
        pairs = zip(transform.apply(then, xs), transform.apply(other, xs), strict=True)
        return tuple(where(pred, a, b) for a, b in pairs)

    return run


@cache
def _sample_graphs() -> dict[str, Graph]:
    from weft.graph.capture import Spec, capture

    specs = (Spec((3,), dtypes.float64), Spec((2, 0), dtypes.float64))
    fns = {
        "then": lambda x, e: (x.sin() * x[0], e + 1),
        "other": lambda x, e: (x * x, e),
    }
    return {name: capture(f, *specs, name=name).graph for name, f in fns.items()}


def _samples(rng: np.random.Generator) -> list[Sample]:
    params = {**_sample_graphs(), "sizes": ()}
    x, e = rng.standard_normal(3), np.zeros((2, 0))
    chosen = rng.random() < 0.5
    return [Sample((np.asarray(c), x, e), params) for c in (chosen, not chosen)]


cond_op = define(
    "cond",
    inputs="*xs",
    outputs="*outs",
    eval=_eval,
    type=_type,
    vjp=_vjp,
    jvp=_jvp,
    batch=_batch,
    samples=_samples,
    reference=lambda pred, x, e, **_: (np.sin(x) * x[0] if pred else x * x, e),
)


# -- the function


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *args: Any,
    operands: Any = None,
) -> Any:
    """``true_fn(*operands)`` if ``pred`` holds, else ``false_fn(*operands)``.

    The operands are given as one tuple or list, or one after the other. Both
    functions must return the same structure, shapes and dtypes. Only the chosen one
    runs; under ``vmap`` with a predicate that differs by example both run, and
    gradients of the one that was not chosen are zero.

    >>> x = weft.tensor(2.0)
    >>> weft.cond(x > 0, lambda x: x * 10, lambda x: -x, (x,))
    tensor(20.)
    >>> weft.func.vmap(lambda x: weft.cond(x > 0, weft.sqrt, weft.neg, x))(
    ...     weft.tensor([4.0, -3.0]))
    tensor([2., 3.])
    """
    inputs = tuple(args) if operands is None else (*args, operands)
    if len(inputs) == 1 and type(inputs[0]) in (tuple, list):
        inputs = tuple(inputs[0])
    if not isinstance(pred, Tensor):
        return (true_fn if pred else false_fn)(*inputs)
    pred = as_predicate("cond", pred)
    outer = capturing(pred, inputs)
    if outer is not None:
        return _staged(outer, pred, true_fn, false_fn, inputs)
    if varies(pred):
        return _chosen(pred, true_fn(*inputs), false_fn(*inputs))
    return _own((true_fn if pred else false_fn)(*inputs))


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """The result of one of several functions of the operands, by its number.

    An index that is too small or too large means the first or the last function. In a
    captured program, all must give the same structure, shapes and dtypes.

    >>> weft.switch(weft.tensor(2), [weft.sin, weft.neg, weft.square], weft.tensor(3.0))
    tensor(9.)
    """
    if not branches:
        raise ArgumentError("switch: expected at least one branch, got none")
    if not isinstance(index, Tensor):
        return branches[min(max(index, 0), len(branches) - 1)](*operands)
    index = as_leaf("switch", index)
    if index.dtype.category != dtypes.INT or index.numel() != 1:
        raise DTypeError(
            "switch: expected an index that is one integer, got "
            f"{index.dtype.name} of shape {tuple(index.shape)}"
        )
    if len(branches) == 1:
        return branches[0](*operands)
    half = len(branches) // 2
    few, many = branches[:half], branches[half:]
    return cond(
        index.reshape(()) < half,
        lambda *xs: switch(index, few, *xs),
        lambda *xs: switch(index - half, many, *xs),
        operands,
    )


def _own(result: Any) -> Any:
    leaves, structure = tree_flatten(result)
    del result
    return tree_unflatten(unshared(leaves), structure)


def as_predicate(name: str, pred: Any) -> Tensor:
    """A predicate as a boolean without dimensions."""
    pred = as_leaf(name, pred)
    if pred.numel() != 1:
        raise ShapeError(
            f"{name}: expected a predicate of one element, got shape "
            f"{tuple(pred.shape)}; use .all() or .any(), or where for a choice by "
            "element"
        )
    pred = pred if pred.ndim == 0 else pred.reshape(())
    return pred if pred.dtype is dtypes.bool_ else pred != 0


def varies(pred: Any) -> bool:
    """Whether a predicate differs from example to example of a running vmap."""
    while isinstance(pred, Tracer):
        if isinstance(pred, Batched):
            return True
        pred = pred.below
    return False


def _chosen(pred: Tensor, a: Any, b: Any) -> Any:
    """Each leaf of two results, by the predicate of each example."""
    (xs, structure), (ys, other) = tree_flatten(a), tree_flatten(b)
    xs, ys = ([as_leaf("cond", leaf) for leaf in leaves] for leaves in (xs, ys))
    _check_branches((xs, structure), (ys, other))
    found = choose(pred, xs, ys)
    del a, b, xs, ys
    return tree_unflatten(unshared(found), structure)


def choose(pred: Tensor, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> list[Tensor]:
    """The first tensors where the predicate holds, else the second ones."""
    return [x if x is y else where(pred, x, y) for x, y in zip(xs, ys, strict=True)]


def _check_branches(a: Any, b: Any) -> None:
    check_same("cond", "the branches' results", a, b, ("in true_fn", "in false_fn"))


def _staged(outer: Any, pred: Any, true_fn: Any, false_fn: Any, inputs: Any) -> Any:
    leaves, structure = tree_flatten(inputs)
    operands = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    then = Staged("then", outer, true_fn, leaves, structure)
    other = Staged("other", outer, false_fn, leaves, structure)
    both = (then, other)
    _check_branches(
        (then.types, then.structure),
        (other.types, other.structure),
    )
    numbers = {key: n for one in both for key, n in one.changed().items()}
    ends = [
        [*one.outputs, *[one.number(key, n)[1] for key, n in numbers.items()]]
        for one in both
    ]
    outside = closed_over(*both)
    graphs = [
        one.finish([*one.inputs, *[one.run.input_for(x) for x in outside]], end)
        for one, end in zip(both, ends, strict=True)
    ]
    outs = apply_op(
        cond_op, (pred, *operands, *outside), then=graphs[0], other=graphs[1]
    )
    count = len(then.outputs)
    hand_on(outer, list(numbers), outs[count:])
    return tree_unflatten(outs[:count], then.structure)
