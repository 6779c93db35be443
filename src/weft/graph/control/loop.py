"""``while_loop`` and ``fori_loop``: as many steps as values say.

Eagerly these are loops. In a captured program ``while_loop`` is one operator that
also counts its steps. Its derivative knows that count, and so is a ``scan`` (inside
the operator ``sized``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.config import config
from weft.core.dispatch import type_of
from weft.core.op import Sample, TensorType, define
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.size import is_integer
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.errors import ArgumentError, DTypeError
from weft.graph import transform
from weft.graph.capture import capturing
from weft.graph.control.backward import step_forward
from weft.graph.control.bodies import (
    apply_op,
    batched,
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
    split,
    spread,
    to_batch,
    types_of,
)
from weft.graph.control.branch import as_predicate, choose, varies
from weft.graph.control.repeat import (
    batched_step,
    check_carry,
    scan,
)
from weft.graph.control.sized import (
    COUNT,
    NONE,
    SOME,
    captured_graph,
    counted,
    size_name,
    sized_op,
)
from weft.graph.control.staging import (
    Staged,
    as_leaf,
    closed_over,
    hand_on,
    unshared,
)
from weft.graph.ir import Graph
from weft.ops.creation import arange, zeros, zeros_like

# -- while_loop(*fixed, *carry) gives (steps, *carry); both graphs take fixed…, carry…


def _eval(*args: Any, condition: Graph, body: Graph, fixed: int, sizes: Any) -> Any:
    check_arrays("while_loop", body, args)
    first, carry = args[:fixed], list(args[fixed:])
    goes_on, call = runner(condition, sizes), runner(body, sizes)
    steps = 0
    with np.errstate(all="ignore"):
        while goes_on([*first, *carry])[0]:
            check_limit(steps)
            carry = call([*first, *carry])
            steps += 1
    return (np.asarray(steps, np.int64), *own(carry, body, args))


def _type(*args: Any, condition: Graph, body: Graph, fixed: int, sizes: Any) -> Any:
    for graph in (condition, body):
        check_types("while_loop", graph, args)
    return (COUNT, *[node.type for node in body.outputs])


def _vjp(g: Any, xs: Any, outs: Any, need: Any, body: Graph, fixed: int) -> Any:
    wanted = tuple(a and b for a, b in zip(need, floating(body.inputs), strict=True))
    graph, size = counted(body, fixed, len(body.outputs)), size_name(body)
    gs, given = cotangents(g[1:], body.outputs)
    back = pullback(graph, (False, *wanted), given)
    found = apply_op(sized_op, (outs[0], *xs, *gs), graph=back, size=size)
    return spread(found, wanted)


def _jvp(ts: Any, xs: Any, condition: Graph, body: Graph, fixed: int) -> Any:
    carried = len(body.outputs)
    first, carry = split(xs, fixed)
    t_first, t_carry = split(ts, fixed)
    moving = floating(body.outputs)
    forward = step_forward(body, fixed, carried, present(t_first), ())
    asks = _condition_forward(condition, fixed, present(t_first), moving)
    starts = [
        zeros_like(x) if t is None else t
        for x, t, m in zip(carry, t_carry, moving, strict=True)
        if m
    ]
    fixed_all = [*first, *[t for t in t_first if t is not None]]
    found = apply_op(
        while_op, (*fixed_all, *carry, *starts), condition=asks, body=forward,
        fixed=len(fixed_all),
    )  # fmt: skip
    return [None, *spread(found[1 + carried :], moving)]


@derived
def _condition_forward(
    condition: Graph,
    fixed: int,
    first_moves: tuple[bool, ...],
    moving: tuple[bool, ...],
) -> Graph:
    """The condition of values that have tangents beside them."""
    first, carry = split(condition.inputs, fixed)
    types = [
        *types_of(first), *types_of(first, first_moves), *types_of(carry),
        *types_of(carry, moving),
    ]  # fmt: skip

    def fn(build: Any, args: list[Any]) -> Sequence[Any]:
        a, _, c, _ = split(args, fixed, sum(first_moves), len(carry))
        return transform.apply(condition, [*a, *c], build)

    return graph_of(f"{condition.name}_forward", condition, types, fn)


def _batch(op: Any, size: Any, args: Any, mask: Any, params: Any) -> Any:
    condition, body, fixed = params["condition"], params["body"], params["fixed"]
    first, carry = split(mask, fixed)
    graph, ends = batched_step(body, size, first, carry, ())
    asks, (differs,) = batched(condition, size, (*first, *ends), (False,))
    if differs:
        return _batch_masked(size, args, mask, condition, body, fixed)
    given = _with_batches(args, fixed, carry, ends, size)
    found = apply_op(op, given, condition=asks, body=graph, fixed=fixed)
    whole = (False, *ends)
    return tuple(
        out if m else to_batch(out, size) for out, m in zip(found, whole, strict=True)
    )


def _with_batches(
    args: Any, fixed: int, have: Sequence[bool], want: Sequence[bool], size: Any
) -> list[Any]:
    """The arguments with the carries repeated that a batch needs."""
    given = list(args)
    for k, (h, w) in enumerate(zip(have, want, strict=True)):
        if w and not h:
            given[fixed + k] = to_batch(given[fixed + k], size)
    return given


def _batch_masked(
    size: Any, args: Any, mask: Any, condition: Graph, body: Graph, fixed: int
) -> Any:
    """Examples that differ in their number of steps: go on while any does, and let
    those that are done keep what they have."""
    first, carry = split(mask, fixed)
    every = (True,) * len(carry)
    given = _with_batches(args, fixed, carry, every, size)
    asks = batched(condition, size, (*first, *every), (True,))[0]
    step = batched(body, size, (*first, *every), every)[0]
    start = transform.apply(asks, given)[0]
    counts = zeros((size,), dtype=dtypes.int64)
    found = apply_op(
        while_op, (*given, start, counts), condition=_any(asks, fixed),
        body=_step_where(step, asks, fixed), fixed=fixed,
    )  # fmt: skip
    *outs, _, steps = found[1:]
    return (steps, *outs)


@derived
def _any(asks: Graph, fixed: int) -> Graph:
    """fixed…, carry…, on, counts gives whether any example goes on."""
    types = [*types_of(asks.inputs), asks.outputs[0].type, _counts_type(asks)]
    return graph_of("condition_any", asks, types, lambda build, xs: [xs[-2].any()])


def _counts_type(asks: Graph) -> TensorType:
    return TensorType(asks.outputs[0].type.shape, dtypes.int64)


def _step_where(step: Graph, asks: Graph, fixed: int) -> Graph:
    """One step of the examples that go on: … on, counts gives … on, counts."""
    types = [*types_of(asks.inputs), asks.outputs[0].type, _counts_type(asks)]

    def fn(build: Any, args: list[Any]) -> Sequence[Any]:
        *given, on, counts = args
        first, carry = split(given, fixed)
        new = transform.apply(step, given, build)
        kept = [_where_rows(on, a, b) for a, b in zip(new, carry, strict=True)]
        still = transform.apply(asks, [*first, *kept], build)[0]
        return [*kept, on & still, counts + on.to(dtypes.int64)]

    return graph_of(f"{step.name}_where", step, types, fn)


def _where_rows(on: Tensor, a: Tensor, b: Tensor) -> Tensor:
    rows = on.reshape((*on.shape, *[1] * (a.ndim - on.ndim)))
    return choose(rows, [a], [b])[0]


@cache
def _sample_loop() -> dict[str, Graph]:
    fns = {
        "condition": lambda a, h, e, k: k < 3,
        "body": lambda a, h, e, k: (h * a + h.sin(), e, k + 1),
    }
    types = (SOME, SOME, NONE, COUNT)
    return {name: captured_graph(name, f, *types) for name, f in fns.items()}


def _samples(rng: np.random.Generator) -> list[Sample]:
    params = {**_sample_loop(), "fixed": 1, "sizes": ()}
    a, h = rng.uniform(0.5, 1.5, (2, 2))
    starts = (int(rng.integers(0, 3)), 3)
    return [Sample((a, h, np.zeros(0), np.asarray(k)), params) for k in starts]


def _reference(a: Any, h: Any, e: Any, k: Any, **_: Any) -> Any:
    steps = 0
    while k < 3:
        h, k, steps = h * a + np.sin(h), k + 1, steps + 1
    return steps, h, e, k


while_op = define(
    "while_loop",
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


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
) -> Any:
    """Apply ``body_fn`` to the carry while ``cond_fn`` of it holds.

    A tuple or list is passed as separate arguments, anything else as one. The carry
    keeps its structure, shapes and dtypes. Gradients flow through the steps that
    were taken; under ``vmap`` each example takes as many as it needs.

    >>> half = lambda x, n: (x / 2, n + 1)
    >>> weft.while_loop(lambda x, n: x > 1, half, (weft.tensor(10.0), 0))
    (tensor(0.6250), tensor(4))
    """
    several = type(carried_inputs) in (tuple, list)

    def ask(c: Any) -> Tensor:
        return as_predicate("while_loop", cond_fn(*c) if several else cond_fn(c))

    def step(c: Any) -> Any:
        return _listed(body_fn(*c), len(c)) if several else body_fn(c)

    leaves, structure = tree_flatten(carried_inputs)
    carry = [as_leaf("while_loop", leaf) for leaf in leaves]
    outer = capturing(carry)
    if outer is None:
        on = ask(tree_unflatten(carry, structure))
        outer = capturing(on)
    if outer is not None:
        return _staged(outer, ask, step, carry, structure)
    return _run(on, ask, step, carry, structure)


def check_limit(steps: int) -> None:
    """Refuse a step beyond ``weft.config.loop_limit``."""
    limit = config.loop_limit
    if limit is not None and steps >= limit:
        raise ArgumentError(
            f"while_loop: the condition still holds after {steps} steps, which is "
            "weft.config.loop_limit"
        )


def _listed(result: Any, count: int) -> Any:
    """The results of a body over several arguments; one value need be in no tuple."""
    if count == 1 and not isinstance(result, (tuple, list)):
        return (result,)
    return result


def _run(on: Any, ask: Any, step: Any, carry: Any, structure: Any) -> Any:
    """The loop itself, on tensors that have values."""
    types, steps = [type_of(c) for c in carry], 0
    while _any_goes_on(on):
        check_limit(steps)
        steps += 1
        leaves, now = tree_flatten(step(tree_unflatten(carry, structure)))
        after = [as_leaf("while_loop", leaf) for leaf in leaves]
        check_carry("while_loop", (types, structure), (after, now))
        differs = varies(on)
        carry = choose(on, after, carry) if differs else after
        still = ask(tree_unflatten(carry, structure))
        on = on & still if differs else still
        del leaves, after
    return tree_unflatten(unshared(carry), structure)


def _any_goes_on(on: Any) -> bool:
    while isinstance(on, Tracer):
        on = on.below
    return bool(on.array().any())


def _staged(outer: Any, ask: Any, step: Any, carry: Any, structure: Any) -> Any:
    whole = type(structure)(tuple, None, (structure,))
    asked = Staged("condition", outer, ask, carry, whole)
    stepped = Staged("body", outer, step, carry, whole)
    inner = stepped.structure
    check_carry("while_loop", (carry, structure), (stepped.types, inner))
    if asked.changed():
        raise ArgumentError(
            "while_loop: cond_fn draws random numbers; draw them in body_fn and carry "
            "them along"
        )
    numbers = stepped.changed()
    ends = [stepped.number(key, n) for key, n in numbers.items()]
    starts = [asked.run.input_for(n) for n in numbers.values()]
    outside = closed_over(asked, stepped, without=list(numbers.values()))
    condition, body = (
        one.finish([*[one.run.input_for(x) for x in outside], *one.inputs, *more], outs)
        for one, more, outs in (
            (asked, starts, asked.outputs),
            (stepped, [e[0] for e in ends], [*stepped.outputs, *[e[1] for e in ends]]),
        )
    )
    found = apply_op(
        while_op, (*outside, *carry, *numbers.values()), condition=condition, body=body,
        fixed=len(outside),
    )  # fmt: skip
    _, final, moved_on = split(found, 1, len(carry))
    hand_on(outer, list(numbers), moved_on)
    return tree_unflatten(final, structure)


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any
) -> Any:
    """Apply ``carry = body_fun(i, carry)`` for each ``i`` from lower up to upper.

    The bounds are ints, or integer tensors without dimensions, for a number of steps
    that is known only when the program runs.

    >>> weft.fori_loop(0, 4, lambda i, total: total + i, 0)
    tensor(6)
    """
    for bound in (lower, upper):
        if not is_integer(bound) and not isinstance(bound, (Tensor, np.integer)):
            raise DTypeError(
                "fori_loop: expected bounds that are ints or integer tensors, got "
                f"{type(bound).__name__}"
            )
    if not isinstance(lower, Tensor) and not isinstance(upper, Tensor):
        return _fori_known(lower, upper, body_fun, init_val)
    start, stop = (as_leaf("fori_loop", b).to(dtypes.int64) for b in (lower, upper))
    return while_loop(
        lambda i, carry: i < stop,
        lambda i, carry: (i + 1, body_fun(i, carry)),
        (start, init_val),
    )[1]


def _fori_known(lower: Any, upper: Any, body_fun: Any, init_val: Any) -> Any:
    from weft.core.size import larger

    indices = arange(lower, larger(lower, upper))
    return scan(lambda c, i: (body_fun(i, c), None), init_val, indices)[0]
