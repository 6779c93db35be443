"""Collectives as operators: with types, derivatives, and a place in every program.

    all_reduce      (x)       → the sum of all x             its own transpose
    broadcast       (x)       → x of rank src                ⟷  reduce
    all_gather      (x)       → all x, along a new axis      ⟷  reduce_scatter
    gather          (x)       → all x, on rank dst           ⟷  scatter
    all_to_all      (x)       → from each rank its piece     its own transpose

All are linear (but for the largest, smallest and product), and a derivative is the
transpose: what backward computes is the gradient of the sum of all ranks' losses. Of a
result that one rank alone gets, the others have zeros.

A collective is an effect: it runs as often as it was called, in the program's order, in
graphs and compiled steps as well. ``group`` is the group's name, ``line`` the user's.
In a group of one process, there is nothing to send. ``of`` says what is combined, and
has to be the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.op import Op, Sample, TensorType, define
from weft.distributed import groups
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from weft.ops.elementwise import elementwise_batch

LINEAR = ("sum", "avg")


def _run(
    name: str,
    x: np.ndarray,
    group: str,
    size: int,
    line: str,
    alone: Callable[[], Any],
    uneven: bool = False,
    **details: Any,
) -> Any:
    """Let the backend do it; a group of one process does it here.

    With ``uneven``, the number of rows and the details may differ between processes.
    """
    if size == 1:
        return np.array(alone())
    found = groups.named(group, size)
    method = getattr(found.world.engine, name)

    def work() -> Any:
        # Calls get their numbers when it is their turn.
        call = found.call(name, x, details, line, uneven=uneven)
        with found.world.noted(name, x.nbytes):
            return method(call, x, **details)

    return found.world.run(work)


def _check_reduce(name: str, x: TensorType, reduce: str) -> None:
    kind = x.dtype
    if reduce == "avg" and not kind.is_inexact:
        raise DTypeError(f"{name}: AVG needs floating-point numbers, got {kind.name}")
    if reduce in ("band", "bor", "bxor") and kind.is_inexact:
        raise DTypeError(f"{name}: {reduce.upper()} needs integers, got {kind.name}")
    if reduce in ("min", "max") and kind.is_complex:
        raise DTypeError(f"{name}: complex numbers have no order, got {kind.name}")


def _check_pieces(name: str, x: TensorType, size: int) -> None:
    if not x.shape or x.shape[0] != size:
        raise ShapeError(
            f"{name}: expected a first axis of {size}, a piece for each process, got "
            f"shape {tuple(x.shape)}"
        )


def _samples(pieces: bool = False, **params: Any) -> Callable[..., Any]:
    def samples(rng: np.random.Generator) -> Any:
        common = {"group": "", "size": 1, "line": "", **params}
        for shape in ((3,), (2, 3), (0, 2)) if pieces else ((3, 4), (), (0, 2)):
            full = (1, *shape) if pieces else shape
            yield Sample((rng.uniform(-2, 2, full),), common)

    return samples


def _no_gradient(name: str, reduce: str) -> AutogradError:
    return AutogradError(
        f"{name}: there is no gradient of {reduce.upper()}; use SUM or AVG, or compute "
        "it from an all_gather"
    )


# -- all get the same


def _all_reduce_grad(
    g: Any, x: Any, out: Any, reduce: str, of: str, group: str, size: int, line: str
) -> Any:
    def summed(one: Any, how: str = "sum") -> Any:
        return all_reduce_op(one, reduce=how, of=of, group=group, size=size, line=line)

    if reduce in LINEAR:
        return summed(g, reduce)
    if reduce in ("min", "max"):  # shared equally among those who have it
        has = (x == out).to(g.dtype)
        return has * summed(g) / summed(has)
    raise _no_gradient("all_reduce", reduce)


def _all_reduce_jvp(
    t: Any, x: Any, out: Any, reduce: str, of: str, group: str, size: int, line: str
) -> Any:
    def summed(one: Any, how: str = "sum") -> Any:
        return all_reduce_op(one, reduce=how, of=of, group=group, size=size, line=line)

    if reduce in LINEAR:
        return summed(t, reduce)
    if reduce in ("min", "max"):
        has = (x == out).to(t.dtype)
        return summed(has * t) / summed(has)
    raise _no_gradient("all_reduce", reduce)


def _all_reduce_type(x: TensorType, *, reduce: str, **params: Any) -> TensorType:
    _check_reduce("all_reduce", x, reduce)
    return x


all_reduce_op: Op = define(
    "all_reduce",
    inputs="x",
    eval=lambda x, *, reduce, of, group, size, line: _run(
        "all_reduce", x, group, size, line, lambda: x, reduce=reduce, of=of
    ),
    type=_all_reduce_type,
    vjp={"x": _all_reduce_grad},
    jvp={"x": _all_reduce_jvp},
    batch=elementwise_batch,
    samples=_samples(reduce="sum", of=""),
    reference=lambda x, **params: x / 1.0,
    effect=True,
)

broadcast_op: Op = define(
    "broadcast",
    inputs="x",
    eval=lambda x, *, src, group, size, line: _run(
        "broadcast", x, group, size, line, lambda: x, src=src
    ),
    type=lambda x, **params: x,
    vjp={
        "x": lambda g, src, group, size, line: reduce_op(
            g, dst=src, reduce="sum", group=group, size=size, line=line
        )
    },
    linear=True,
    batch=elementwise_batch,
    samples=_samples(src=0),
    reference=lambda x, **params: x / 1.0,
    effect=True,
)


# -- one gets what all have


def _reduce_grad(
    g: Any, dst: int, reduce: str, group: str, size: int, line: str
) -> Any:
    if reduce not in LINEAR:
        raise _no_gradient("reduce", reduce)
    out = broadcast_op(g, src=dst, group=group, size=size, line=line)
    return out / size if reduce == "avg" else out


def _reduce_jvp(t: Any, dst: int, reduce: str, group: str, size: int, line: str) -> Any:
    if reduce not in LINEAR:
        raise _no_gradient("reduce", reduce)
    return reduce_op(t, dst=dst, reduce=reduce, group=group, size=size, line=line)


def _reduce_type(x: TensorType, *, reduce: str, **params: Any) -> TensorType:
    _check_reduce("reduce", x, reduce)
    return x


reduce_op: Op = define(
    "reduce",
    inputs="x",
    eval=lambda x, *, dst, reduce, group, size, line: _run(
        "reduce", x, group, size, line, lambda: x, dst=dst, reduce=reduce
    ),
    type=_reduce_type,
    vjp={"x": _reduce_grad},
    jvp={"x": _reduce_jvp},
    batch=elementwise_batch,
    samples=_samples(dst=0, reduce="sum"),
    reference=lambda x, **params: x / 1.0,
    effect=True,
)


def _stacked(x: TensorType, *, size: int, **params: Any) -> TensorType:
    return TensorType((size, *x.shape), x.dtype)


gather_op: Op = define(
    "gather_to",
    inputs="x",
    eval=lambda x, *, dst, group, size, line: _run(
        "gather", x, group, size, line, lambda: x[None], dst=dst
    ),
    type=_stacked,
    vjp={
        "x": lambda g, dst, group, size, line: scatter_op(
            g, src=dst, group=group, size=size, line=line
        )
    },
    linear=True,
    samples=_samples(dst=0),
    reference=lambda x, **params: x[None] / 1.0,
    effect=True,
)


# -- each gets a piece


def _piece(name: str) -> Callable[..., TensorType]:
    def type(x: TensorType, *, size: int, **params: Any) -> TensorType:
        _check_pieces(name, x, size)
        if "reduce" in params:
            _check_reduce(name, x, params["reduce"])
        return TensorType(x.shape[1:], x.dtype)

    return type


scatter_op: Op = define(
    "scatter_from",
    inputs="x",
    eval=lambda x, *, src, group, size, line: _run(
        "scatter", x, group, size, line, lambda: x[0], src=src
    ),
    type=_piece("scatter"),
    vjp={
        "x": lambda g, src, group, size, line: gather_op(
            g, dst=src, group=group, size=size, line=line
        )
    },
    linear=True,
    samples=_samples(pieces=True, src=0),
    reference=lambda x, **params: x[0] / 1.0,
    effect=True,
)


def _reduce_scatter_grad(g: Any, reduce: str, group: str, size: int, line: str) -> Any:
    if reduce not in LINEAR:
        raise _no_gradient("reduce_scatter", reduce)
    out = all_gather_op(g, group=group, size=size, line=line)
    return out / size if reduce == "avg" else out


def _reduce_scatter_jvp(t: Any, reduce: str, group: str, size: int, line: str) -> Any:
    if reduce not in LINEAR:
        raise _no_gradient("reduce_scatter", reduce)
    return reduce_scatter_op(t, reduce=reduce, group=group, size=size, line=line)


all_gather_op: Op = define(
    "all_gather",
    inputs="x",
    eval=lambda x, *, group, size, line: _run(
        "all_gather", x, group, size, line, lambda: x[None]
    ),
    type=_stacked,
    vjp={
        "x": lambda g, group, size, line: reduce_scatter_op(
            g, reduce="sum", group=group, size=size, line=line
        )
    },
    linear=True,
    samples=_samples(),
    reference=lambda x, **params: x[None] / 1.0,
    effect=True,
)

reduce_scatter_op: Op = define(
    "reduce_scatter",
    inputs="x",
    eval=lambda x, *, reduce, group, size, line: _run(
        "reduce_scatter", x, group, size, line, lambda: x[0], reduce=reduce
    ),
    type=_piece("reduce_scatter"),
    vjp={"x": _reduce_scatter_grad},
    jvp={"x": _reduce_scatter_jvp},
    samples=_samples(pieces=True, reduce="sum"),
    reference=lambda x, **params: x[0] / 1.0,
    effect=True,
)


# -- each gets a piece of each


def _all_to_all_type(
    x: TensorType, *, send: tuple[int, ...], receive: tuple[int, ...], **params: Any
) -> TensorType:
    size = params["size"]
    if len(send) != size or len(receive) != size:
        raise ArgumentError(
            f"all_to_all: expected {size} sizes to send and to receive, got "
            f"{list(send)} and {list(receive)}"
        )
    if not x.shape or x.shape[0] != sum(send):
        raise ShapeError(
            f"all_to_all: expected a first axis of {sum(send)}, the sum of what is "
            f"sent, got shape {tuple(x.shape)}"
        )
    return TensorType((sum(receive), *x.shape[1:]), x.dtype)


def _all_to_all_samples(rng: np.random.Generator) -> Any:
    for shape in ((3, 2), (3,), (0, 2)):
        own = {"send": shape[:1], "receive": shape[:1]}
        params = {"group": "", "size": 1, "line": "", **own}
        yield Sample((rng.uniform(-2, 2, shape),), params)


all_to_all_op: Op = define(
    "all_to_all",
    inputs="x",
    eval=lambda x, *, send, receive, group, size, line: _run(
        "all_to_all", x, group, size, line, lambda: x, True, send=send, receive=receive
    ),
    type=_all_to_all_type,
    vjp={
        "x": lambda g, send, receive, group, size, line: all_to_all_op(
            g, send=receive, receive=send, group=group, size=size, line=line
        )
    },
    linear=True,
    samples=_all_to_all_samples,
    reference=lambda x, **params: x / 1.0,
    effect=True,
)
