"""A step of training on few rows, layer by layer: its bytes and its time.

    forward     what a layer leaves for backward, and the most that it needs meanwhile
    backward    what it lets go, the gradients that it makes, and the most meanwhile
    times       of both

A step on some rows and one on more say what grows with the batch. Operators on many
elements may work otherwise than on few, so that bytes are counted for each size of a
microbatch. The loss is the last of the layers.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import weft
from weft.core.tensor import Tensor
from weft.distributed import collectives, groups
from weft.nn import Module

OFTEN = 5  # steps of which the shortest time counts
Mark = tuple[bool, int, Any]  # backward, layer, the clock


class Linear(NamedTuple):
    """A cost: a part that any batch has, and a part for each row."""

    fixed: float
    row: float

    def of(self, rows: float) -> float:
        """The cost of so many rows."""
        return self.fixed + self.row * rows


class Profile(NamedTuple):
    """A layer's bytes: what stays and the most, in forward and in backward.

    ``freed`` is what backward lets go, less the gradients that it makes.
    """

    kept: Linear
    forward: Linear
    freed: Linear
    backward: Linear


class Times(NamedTuple):
    """A layer's seconds."""

    forward: Linear
    backward: Linear


class Example(NamedTuple):
    """A module, and what it is called on: the last is the target if there is a loss."""

    module: Module
    batch: tuple[Any, ...]
    loss_fn: Callable[..., Any] | None
    names: tuple[str, ...]  # of its layers

    def rows(self, count: int) -> tuple[Any, ...]:
        """The batch with so many rows."""

        def some(x: Any) -> Any:
            if not isinstance(x, Tensor) or not x.ndim or not x.shape[0]:
                return x
            times = math.ceil(count / x.shape[0])
            return (x[:count] if times == 1 else weft.cat([x] * times)[:count]).clone()

        return tuple(map(some, self.batch))


class Profiles:
    """The bytes of layers, and at the end of the loss, by the rows of a microbatch.

    Steps that would take more than ``limit`` bytes are not tried: what they would take
    is that of smaller ones, and more of it. If this ``clocks``, there are seconds too:
    all processes measure at the same time, and the slowest one's count.
    """

    def __init__(self, example: Example, limit: float, clocks: bool = False) -> None:
        self.example, self.limit, self.clocks = example, limit, clocks
        self.clocked: dict[int, list[tuple[float, ...]]] = {}
        self.found: dict[int, tuple[Profile, ...]] = {}
        self.counted: dict[int, tuple[float, list[tuple[float, ...]]]] = {}

    def of(self, rows: int) -> tuple[Profile, ...]:
        """The bytes for microbatches of so many rows."""
        if rows not in self.found:
            self.found[rows] = self._of(rows)
        return self.found[rows]

    def seconds(self, rows: int) -> tuple[Times, ...]:
        """The seconds for microbatches of so many rows; none if this clocks none."""
        if not self.clocks:
            return ()
        self.of(rows)
        most = max(size for size in self.counted if size <= max(rows, 2))
        sizes = (max(1, most // 2), max(2, most))
        one, other = map(self._clock, sizes)
        return tuple(
            Times(*(_growing(sizes, *both) for both in zip(*pair, strict=True)))
            for pair in zip(one, other, strict=True)
        )

    def _clock(self, rows: int) -> list[tuple[float, ...]]:
        if rows not in self.clocked:
            with _undone(self.example):
                self.clocked[rows] = _times(self.example, self.example.rows(rows))
        return self.clocked[rows]

    def _of(self, rows: int) -> tuple[Profile, ...]:
        half = max(1, rows // 2)
        if rows > 1:
            self.of(half)  # smaller ones come first
            if half not in self.counted or 2 * self.counted[half][0] > self.limit:
                return self.found[half]
        a, b = (half, rows) if rows > 1 else (1, 2)
        one, other = self._count(a)[1], self._count(b)[1]
        return tuple(
            Profile(*(_line((a, x), (b, y)) for x, y in zip(*pair, strict=True)))
            for pair in zip(one, other, strict=True)
        )

    def _count(self, rows: int) -> tuple[float, list[tuple[float, ...]]]:
        if rows not in self.counted:
            args = self.example.rows(rows)
            with _undone(self.example):
                _bytes(self.example, args)  # makes what is kept
                self.counted[rows] = _bytes(self.example, args)
        return self.counted[rows]


class _undone:
    """A block after which gradients and random numbers are as before."""

    def __init__(self, example: Example) -> None:
        self.module = example.module

    def __enter__(self) -> None:
        self.random = weft.get_rng_state()
        self.grads = [(p, p.grad) for p in self.module.parameters()]

    def __exit__(self, *error: object) -> None:
        weft.set_rng_state(self.random)
        for p, g in self.grads:
            p.grad = g


def _line(one: tuple[int, float], other: tuple[int, float]) -> Linear:
    row = (other[1] - one[1]) / (other[0] - one[0])
    return Linear(one[1] - row * one[0], row)


def _growing(sizes: tuple[int, int], one: float, other: float) -> Linear:
    """As ``_line`` with neither part below zero; the larger step's is right."""
    row = min(max(other - one, 0.0) / (sizes[1] - sizes[0]), other / sizes[1])
    return Linear(other - row * sizes[1], row)


def _marked(
    example: Example, args: tuple[Any, ...], clock: Callable[[], Any]
) -> list[Mark]:
    """Readings of the clock where layers begin, in forward and in backward."""
    module, _, loss_fn, names = example
    for p in module.parameters():
        p.grad = None
    marks: list[Mark] = []
    handles = []

    def leave(k: int, out: Any) -> None:
        for one in weft.tree_flatten(out)[0]:
            if isinstance(one, Tensor) and one.requires_grad:
                one.register_hook(lambda g: marks.append((True, k, clock())))

    for k, name in enumerate(names):
        layer = module.get_submodule(name)
        handles += [
            layer.register_forward_pre_hook(
                lambda m, a, k=k: marks.append((False, k, clock()))
            ),
            layer.register_forward_hook(lambda m, a, out, k=k: leave(k, out)),
        ]
    try:
        with weft.enable_grad():
            out = module(*(args if loss_fn is None else args[:-1]))
            marks.append((False, len(names), clock()))
            loss = _mean(out) if loss_fn is None else loss_fn(out, args[-1])
            del out
            marks.append((True, len(names), clock()))
            loss.backward()
    finally:
        for handle in handles:
            handle.remove()
    marks.append((True, -1, clock()))
    return marks


def _mean(out: Any) -> Tensor:
    tensors = [x for x in weft.tree_flatten(out)[0] if isinstance(x, Tensor)]
    return sum((x.mean() for x in tensors if x.requires_grad), weft.zeros(()))


def _bytes(
    example: Example, args: tuple[Any, ...]
) -> tuple[float, list[tuple[float, ...]]]:
    """The peak, and what each layer keeps and needs at most, forward and backward."""
    found = [[0.0, 0.0, 0.0, 0.0] for _ in range(len(example.names) + 1)]
    with weft.memory.record() as memory:
        marks = _marked(example, args, lambda: len(memory.bytes) - 1)
        live = list(memory.bytes)
    for (back, k, start), (_, _, end) in itertools.pairwise(marks):
        at, most = found[k], 2 * back + 1
        high = at[most - 1] + max(live[start : end + 1]) - live[start]
        at[most] = max(at[most], high)
        at[most - 1] += live[end] - live[start]
    return float(max(live)), [(a, b, -c, d) for a, b, c, d in found]


def _times(example: Example, args: tuple[Any, ...]) -> list[tuple[float, ...]]:
    """The seconds of each layer, forward and backward."""
    count = len(example.names) + 1
    every: list[list[float]] = []
    for _ in range(OFTEN + 1):
        found = [0.0] * (2 * count)
        if groups.initialized():
            collectives.barrier()
        for (back, k, start), (_, _, end) in itertools.pairwise(
            _marked(example, args, time.perf_counter)
        ):
            found[back * count + k] += end - start
        every.append(found)
    least = [min(some) for some in zip(*every[1:], strict=True)]
    slowest = weft.tensor(least, dtype=weft.float64)
    if groups.initialized():
        collectives.all_reduce(slowest, collectives.ReduceOp.MAX)
    both = slowest.tolist()
    return list(zip(both[:count], both[count:], strict=True))
