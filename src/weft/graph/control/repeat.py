"""``scan``: a function applied step after step, over what it carries along.

Eagerly it is a ``for``. In a captured program it is one operator, whose body is a
graph: its derivative is a scan backwards over the carries of the way there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dispatch import type_of
from weft.core.mode import mode
from weft.core.op import Sample, TensorType, define
from weft.core.pytree import Structure, tree_flatten, tree_unflatten
from weft.core.size import Size, is_integer, same
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.graph.capture import capturing
from weft.graph.control.backward import keeping, step_back, step_forward
from weft.graph.control.bodies import (
    apply_op,
    batched,
    cache_of,
    check_arrays,
    check_types,
    floating,
    own,
    present,
    runner,
    shape_of,
    some,
    split,
    spread,
    to_batch,
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
from weft.ops.creation import arange, zeros, zeros_like
from weft.ops.joining import stack
from weft.ops.shaping import movedim

# -- the operator: scan(*fixed, *carry, *xs) gives (*carry, *ys); its body is a graph
#    from fixed…, carry…, x… to carry…, y…. The last ``saved`` of the ys are for its
#    derivative only. Of the carries in ``stacked`` it gives all values, from the first
#    to the last, in place of the last: a pass makes such scans.


def _eval(
    *args: Any, body: Graph, fixed: int, carried: int, length: int, reverse: bool,
    saved: int, sizes: Any, stacked: tuple[int, ...] = (),
) -> Any:  # fmt: skip
    start = fixed + carried
    first, carry, xs = args[:fixed], list(args[fixed:start]), args[start:]
    rows = [x[0, ...] if len(x) else np.empty(x.shape[1:], x.dtype) for x in xs]
    check_arrays("scan", body, (*first, *carry, *rows))
    call = runner(body, sizes)
    ys = [
        np.empty((length, *shape_of(n.type, sizes)), n.type.dtype.np)
        for n in body.outputs[carried:]
    ]
    stacks = {
        k: np.empty((length + 1, *carry[k].shape), carry[k].dtype) for k in stacked
    }
    for k, one in stacks.items():
        one[length if reverse else 0] = carry[k]
    steps = range(length - 1, -1, -1) if reverse else range(length)
    with np.errstate(all="ignore"):
        for k in steps:
            found = call([*first, *carry, *[x[k, ...] for x in xs]])
            carry = found[:carried]
            for y, row in zip(ys, found[carried:], strict=True):
                y[k] = row
            for j, one in stacks.items():
                one[k if reverse else k + 1] = carry[j]
    last = own(carry, body, args)
    return (*[stacks.get(k, one) for k, one in enumerate(last)], *ys)


def _type(
    *args: Any, body: Graph, fixed: int, carried: int, length: Any, reverse: bool,
    saved: int, sizes: Any, stacked: tuple[int, ...] = (),
) -> Any:  # fmt: skip
    start = fixed + carried
    for x in args[start:]:
        if not x.shape or not same(x.shape[0], length):
            raise ShapeError(f"scan: expected {length} steps of each input, got {x}")
    rows = [TensorType(x.shape[1:], x.dtype) for x in args[start:]]
    check_types("scan", body, (*args[:start], *rows))
    types = [node.type for node in body.outputs]
    rows = [TensorType((length, *t.shape), t.dtype) for t in types[carried:]]
    for k in stacked:
        types[k] = TensorType((length + 1, *types[k].shape), types[k].dtype)
    return (*types[:carried], *rows)


def _vjp(
    g: Any, xs: Any, outs: Any, need: Any, body: Graph, fixed: int, carried: int,
    length: Any, reverse: bool, saved: int,
) -> Any:  # fmt: skip
    wanted = tuple(a and b for a, b in zip(need, floating(body.inputs), strict=True))
    shown = len(outs) - saved
    saves: Any = None
    if not any(present(g[shown:])):  # as in a first derivative: nobody else has them
        body, saves = _plain(body, shown)
    g_carry, g_ys = split(g[: len(body.outputs)], carried)
    g_carry = some(g_carry, floating(body.outputs[:carried]))
    g_ys = some(g_ys, floating(body.outputs[carried:]))
    step = step_back(body, fixed, carried, wanted, present(g_carry), present(g_ys))
    how = {"fixed": fixed, "length": length, "saved": 0}
    kept = outs[shown:]
    if saves != step.kept:
        again = keeping(body, step, body.outputs[:carried])
        kept = apply_op(
            scan_op, xs, body=again, carried=carried, reverse=reverse, **how
        )[carried:]
    first, _, rows = split(xs, fixed, carried)
    want_first, want_carry, want_rows = split(wanted, fixed, carried)
    ends = some(body.outputs[:carried], floating(body.outputs[:carried]))
    starts = [
        zeros(node.shape, dtype=node.dtype) if one is None else one
        for one, node, has in zip(g_carry, ends, step.carries, strict=True)
        if has
    ]
    sums = [zeros_like(x) for x in some(first, want_first)]
    steps = arange(length)
    counts = [steps if reverse else length - 1 - steps] if step.counts else []
    gradients = apply_op(
        scan_op,
        (*first, *starts, *sums, *kept, *some(rows, step.rows),
         *some(g_ys, present(g_ys)), *counts),
        body=step.back, carried=len(starts) + len(sums), reverse=not reverse, **how,
    )  # fmt: skip
    at_start, at_first, at_rows = split(gradients, len(starts), len(sums))
    at_carry = spread(at_start, step.carries)
    every = spread(at_carry, floating(body.outputs[:carried]))
    return [
        *spread(at_first, want_first),
        *[g if want else None for g, want in zip(every, want_carry, strict=True)],
        *spread(at_rows, want_rows),
    ]


def _plain(body: Graph, shown: int) -> tuple[Graph, Any]:
    """The body without saved outputs, and their nodes (None: unknown)."""
    cache = cache_of(body)
    if cache.plain is None:
        outs = body.outputs[:shown]
        plain = Graph(body.name, body.nodes, outs, body.sizes, body.inputs)
        cache.plain = (body if shown == len(body.outputs) else plain), None
    return cache.plain


def _saving(body: Graph, fixed: int, carried: int, args: Sequence[Any]) -> Any:
    """The body with the values that its derivative needs as further outputs, and their
    number.

    It is used if the tape records; otherwise the derivative runs the body once more.
    """
    need = [mode.recording and x._node is not None for x in args]
    if not any(need):
        return body, 0
    wanted = tuple(a and b for a, b in zip(need, floating(body.inputs), strict=True))
    has_g, has_gy = (
        (True,) * sum(floating(outs)) for outs in split(body.outputs, carried)
    )
    step = step_back(body, fixed, carried, wanted, has_g, has_gy)
    full = keeping(body, step, body.outputs)
    cache_of(full).plain = body, step.kept
    return full, len(step.kept)


def _jvp(
    ts: Any, xs: Any, body: Graph, fixed: int, carried: int, length: Any, reverse: bool
) -> Any:
    t_first, t_carry, t_rows = split(ts, fixed, carried)
    first, carry, rows = split(xs, fixed, carried)
    moving = floating(body.inputs[fixed : fixed + carried])
    forward = step_forward(body, fixed, carried, present(t_first), present(t_rows))
    starts = [
        zeros_like(x) if t is None else t
        for x, t, m in zip(carry, t_carry, moving, strict=True)
        if m
    ]
    fixed_all = [*first, *some(t_first, present(t_first))]
    outputs = apply_op(
        scan_op,
        (*fixed_all, *carry, *starts, *rows, *some(t_rows, present(t_rows))),
        body=forward, fixed=len(fixed_all), carried=carried + len(starts),
        length=length, reverse=reverse, saved=0,
    )  # fmt: skip
    return spread(outputs[carried:], floating(body.outputs))


def _batch(op: Any, size: Any, args: Any, mask: Any, params: Any) -> Any:
    body, fixed, carried = params["body"], params["fixed"], params["carried"]
    first, carry, rows = split(mask, fixed, carried)
    graph, ends = batched_step(body, size, first, carry, rows)
    start = fixed + carried
    given = list(args)
    for k, (m, have) in enumerate(zip(ends[:carried], carry, strict=True)):
        if m and not have:
            given[fixed + k] = to_batch(given[fixed + k], size)
    for k, m in enumerate(rows):
        if m:
            given[start + k] = movedim(given[start + k], 1, 0)
    found = apply_op(op, given, **{**params, "body": graph})
    outs = []
    for k, (out, m) in enumerate(zip(found, ends, strict=True)):
        if not m:
            outs.append(to_batch(out, size))
        else:
            outs.append(out if k < carried else movedim(out, 0, 1))
    return tuple(outs)


def batched_step(
    body: Graph, size: Any, first: Sequence[bool], carry: Sequence[bool],
    rows: Sequence[bool],
) -> tuple[Graph, tuple[bool, ...]]:  # fmt: skip
    """A body over a batch, and which outputs are batched.

    A carry that is batched after a step is so from the start.
    """
    rest = (False,) * (len(body.outputs) - len(carry))
    while True:
        now = tuple(carry)
        graph, ends = batched(body, size, (*first, *now, *rows), (*now, *rest))
        carry = ends[: len(now)]
        if tuple(carry) == now:
            return graph, ends


@cache
def _sample_body() -> Graph:
    from weft.graph.capture import Spec, capture

    one = Spec((2,), dtypes.float64)
    count = Spec((), dtypes.int64)
    return capture(
        lambda a, h, k, x: ((a * h + x).sin(), k + 1, h * x),
        one, one, count, one, name="body",
    ).graph  # fmt: skip


def _samples(rng: np.random.Generator) -> list[Sample]:
    shared = {"body": _sample_body(), "fixed": 1, "carried": 2, "saved": 0, "sizes": ()}
    a, h, x = (
        rng.standard_normal(2),
        rng.standard_normal(2),
        rng.standard_normal((3, 2)),
    )
    args = (a, h, np.asarray(4))
    return [
        Sample((*args, x), {**shared, "length": 3, "reverse": False}),
        Sample((*args, x), {**shared, "length": 3, "reverse": True}),
        Sample((*args, x[:0]), {**shared, "length": 0, "reverse": False}),
    ]


def _reference(a: Any, h: Any, k: Any, x: Any, *, reverse: bool, **_: Any) -> Any:
    ys = np.zeros(x.shape)
    for i in reversed(range(len(x))) if reverse else range(len(x)):
        ys[i] = h * x[i]
        h = np.sin(a * h + x[i])
    return h, k + len(x), ys


scan_op = define(
    "scan",
    inputs="*xs",
    outputs="*outs",
    eval=_eval,
    type=_type,
    vjp=_vjp,
    jvp=_jvp,
    batch=_batch,
    samples=_samples,
    reference=_reference,
)


# -- the functions


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Apply ``carry, y = f(carry, x)`` along the first axis of ``xs``.

    Returns the last carry and the stacked ``y``. The carry keeps its structure,
    shapes and dtypes; ``xs`` and ``y`` may be trees of tensors, or None (then
    ``length`` says how many steps there are). ``reverse`` starts at the end.

    >>> add = lambda total, x: (total + x, total + x)
    >>> weft.scan(add, weft.tensor(0.0), weft.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([1., 3., 6.]))
    """
    leaves, structure = tree_flatten(init)
    carry = [as_leaf("scan", leaf) for leaf in leaves]
    rows, shape = tree_flatten(xs)
    rows = [as_leaf("scan", x) for x in rows]
    steps = _length(rows, length)
    outer = capturing(carry, rows)
    if outer is not None:
        return _staged(outer, f, carry, structure, rows, shape, steps, reverse)
    return _run(f, carry, structure, rows, shape, steps, reverse)


def _length(rows: list[Tensor], length: Any) -> Any:
    if length is not None and not is_integer(length):
        raise ArgumentError(
            f"scan: expected length to be an int, got {type(length).__name__}; for a "
            "number of steps that is a tensor use fori_loop or while_loop"
        )
    for x in rows:
        if x.ndim == 0:
            raise ShapeError("scan: xs must have an axis to go along, got a 0-d tensor")
    sizes = [length] * (length is not None) + [x.shape[0] for x in rows]
    if not sizes:
        raise ArgumentError("scan: expected xs or length")
    if any(size != sizes[0] for size in sizes[1:]):
        texts = ", ".join([str(size) for size in sizes])
        raise ShapeError(f"scan: expected one number of steps, got {texts}")
    if not isinstance(sizes[0], Size) and sizes[0] < 0:
        raise ArgumentError(f"scan: expected a length of at least 0, got {sizes[0]}")
    return sizes[0]


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise ArgumentError(
            "scan: expected f to return (carry, y), got "
            f"{type(result).__name__}; return (carry, None) for no y"
        )
    return result[0], result[1]


ORDER = ("in a step", "in the one before")


def check_carry(name: str, before: Any, after: Any) -> None:
    words = ("before a step", "after it")
    check_same(name, "what is carried", before, after, words)


def _run(
    f: Any, carry: Any, structure: Any, rows: Any, shape: Any, steps: int, reverse: bool
) -> Any:
    """The loop itself, on tensors that have values."""
    if not steps:
        return _no_steps(f, carry, structure, rows, shape)
    types = [type_of(c) for c in carry]
    order = range(steps - 1, -1, -1) if reverse else range(steps)
    columns: list[list[Any]] = []
    y_shape: Any = None
    for k in order:
        x = tree_unflatten([row[k] for row in rows], shape)
        after, y = _pair(f(tree_unflatten(carry, structure), x))
        leaves, now = tree_flatten(after)
        carry = [as_leaf("scan", leaf) for leaf in leaves]
        check_carry("scan", (types, structure), (carry, now))
        y_leaves, y_now = tree_flatten(y)
        if y_shape is not None and y_now != y_shape:
            check_same("scan", "y", (y_leaves, y_now), (columns[0], y_shape), ORDER)
        y_shape = y_now
        columns.append(y_leaves)
    if reverse:
        columns.reverse()
    ys = [
        stack([as_leaf("scan", y) for y in column])
        for column in zip(*columns, strict=True)
    ]
    del after, y, leaves, y_leaves, columns
    return tree_unflatten(unshared(carry), structure), tree_unflatten(ys, y_shape)


def _stage(
    f: Any, outer: Any, carry: Any, structure: Any, rows: Any, shape: Any
) -> Any:
    """The body on symbols, its carry's outputs first; and the structure of its y."""
    structures: list[Structure] = []

    def body(state: Any, x: Any) -> Any:
        after, y = _pair(f(state, x))
        structures.extend((tree_flatten(after)[1], tree_flatten(y)[1]))
        return after, y

    kinds = [TensorType(row.shape[1:], row.dtype) for row in rows]
    both = Structure(tuple, None, (structure, shape))
    staged = Staged("body", outer, body, [*carry, *kinds], both)
    after = staged.types[: structures[0].num_leaves]
    check_carry("scan", (carry, structure), (after, structures[0]))
    return staged, structures[1]


def _no_steps(f: Any, carry: Any, structure: Any, rows: Any, shape: Any) -> Any:
    """The results of no step at all: the outputs of f without rows."""
    staged, y_shape = _stage(f, None, carry, structure, rows, shape)
    types = staged.types[len(carry) :]
    ys = [zeros((0, *t.shape), dtype=t.dtype) for t in types]
    return tree_unflatten(unshared(carry), structure), tree_unflatten(ys, y_shape)


def _staged(
    outer: Any, f: Any, carry: Any, structure: Any, rows: Any, shape: Any, steps: Any,
    reverse: bool,
) -> Any:  # fmt: skip
    staged, y_shape = _stage(f, outer, carry, structure, rows, shape)
    count = len(carry)
    numbers = staged.changed()
    ends = [staged.number(key, n) for key, n in numbers.items()]
    outside = closed_over(staged, without=list(numbers.values()))
    fixed = [staged.run.input_for(x) for x in outside]
    body = staged.finish(
        [*fixed, *staged.inputs[:count], *[e[0] for e in ends], *staged.inputs[count:]],
        [*staged.outputs[:count], *[e[1] for e in ends], *staged.outputs[count:]],
    )
    args = (*outside, *carry, *numbers.values(), *rows)
    carried = count + len(numbers)
    body, saved = _saving(body, len(fixed), carried, args)
    outs = apply_op(
        scan_op, args, body=body, fixed=len(fixed), carried=carried, length=steps,
        reverse=reverse, saved=saved,
    )  # fmt: skip
    final, moved_on, ys = split(outs[: len(outs) - saved], count, len(numbers))
    hand_on(outer, list(numbers), moved_on)
    return tree_unflatten(final, structure), tree_unflatten(ys, y_shape)


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """``f`` of each element along the first axis, one after the other, stacked.

    As ``vmap``, but in the memory of one element at a time.

    >>> weft.map(lambda x: x * x, weft.tensor([1.0, 2.0, 3.0]))
    tensor([1., 4., 9.])
    """
    return scan(lambda _, x: (None, f(x)), None, xs)[1]
