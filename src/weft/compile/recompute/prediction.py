"""Prediction: what a step will need, before any of it is allocated.

    plan = weft.plan(step, x, y)        x, y: tensors, or ``weft.graph.Spec``s
    plan.peak, plan.parts               bytes, in all and by kind
    plan.fits("8GB")                    whether it stays within that
    plan.largest_batch("8GB")           the most rows that do

The step is captured and its memory laid out as ``weft.compile`` would; there is no
arena, no machine code, and nothing runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.compile.explain.memory import Memory
from weft.compile.frontend.function import function_of
from weft.compile.frontend.graph_function import closed
from weft.compile.frontend.specialization import adapting
from weft.compile.pipeline import run as run_passes
from weft.compile.program.phases import uncollected
from weft.compile.recompute.draft import Draft
from weft.compile.recompute.footprint import Footprint, footprint
from weft.compile.recompute.lean import lean
from weft.compile.recompute.policies import Memory as Policy
from weft.compile.recompute.policies import memory_of
from weft.core.dispatch import Evaluator, type_of
from weft.core.mode import mode
from weft.core.op import Op, TensorType
from weft.core.pytree import tree_flatten, tree_map
from weft.core.rows import Rows
from weft.core.tensor import Tensor
from weft.errors import AllocationError, ArgumentError
from weft.graph.capture import Spec, capture
from weft.memory.sizes import parse_bytes

MOST = 1 << 40  # rows that are considered


class Plan:
    """The memory that a compiled step will need; see ``weft.plan``."""

    def __init__(
        self, step: Callable[..., Any], args: Any, kwargs: Any, memory: Policy | None
    ) -> None:
        self.step, self.args, self.kwargs, self.policy = step, args, kwargs, memory
        with _states_undone(), uncollected(), _Imagined():
            captured = capture(step, *args, **kwargs)
            self.name = captured.graph.name
            graph, own = captured.graph, set()
            if any((*captured.wanting, *[r.recorded for r in captured.rewritten])):
                graph, _ = closed(graph)  # state is an argument and a result
            else:
                own = {c.variable for c in captured.cells.values() if c.has_memory}
            graph = run_passes(graph)
            adapt = adapting(captured, memory) or lean
            graph = adapt(graph, own)
            draft = Draft(graph, own)
            self.parts: Footprint = footprint(captured, draft)
            self.memory: Memory = draft.memory

    @property
    def peak(self) -> int:
        """The most bytes that are needed at once."""
        return self.parts.total

    @property
    def top(self) -> Rows:
        """The values that make up the peak of the activations, largest first."""
        return self.memory.top

    def fits(self, limit: Any) -> bool:
        """Whether the step stays within a limit, in bytes or as a text.

        >>> double = weft.plan(lambda x: x * 2, weft.ones(1000))
        >>> double.fits("1MB"), double.fits(2000)
        (True, False)
        """
        return self.peak <= parse_bytes(limit, "fits")

    def largest_batch(self, limit: Any) -> int:
        """The most rows of the arguments with which the step stays within a limit.

        Rows are the first axis of the first tensor, and of all others that have as
        many. 0 if not even one fits.

        >>> plan = weft.plan(lambda x: (x * 2).exp(), weft.graph.Spec((8, 250)))
        >>> plan.largest_batch("1MB")
        499
        """
        most = parse_bytes(limit, "largest_batch")
        rows = self._rows()
        known = {rows: self.peak}
        low, high = 0, MOST
        guess = rows
        while high - low > 1:
            if guess not in known:
                known[guess] = self._peak_of(rows, guess)
            if known[guess] <= most:
                low = guess
            else:
                high = guess
            guess = _next(known, most, low, high)
        return low

    def _rows(self) -> int:
        """The batch size."""
        leaves = [x for x in tree_flatten((self.args, self.kwargs))[0] if _shape(x)]
        if not leaves or not isinstance(_shape(leaves[0])[0], int):
            raise ArgumentError(
                "largest_batch: expected an argument with a first axis of rows, got "
                f"{[_shape(x) for x in leaves]}"
            )
        return _shape(leaves[0])[0]

    def _peak_of(self, rows: int, other: int) -> int:
        """The peak for another number of rows."""

        def resized(x: Any) -> Any:
            shape = _shape(x)
            if not shape:
                return x
            first = other if shape[0] == rows else shape[0]
            return Spec((first, *shape[1:]), x.dtype)

        args, kwargs = tree_map(resized, (self.args, self.kwargs))
        try:
            return Plan(self.step, args, kwargs, self.policy).peak
        except AllocationError:  # more than the policy's own budget
            return sys.maxsize

    def __str__(self) -> str:
        text = f"{self.name} needs {self.parts}"
        if not len(self.top):
            return text
        return f"{text}\nwhat makes the peak of the activations:\n{self.top.table(8)}"

    __repr__ = __str__


def _next(known: dict[int, int], most: int, low: int, high: int) -> int:
    """The number of rows to try next: memory grows almost linearly with them."""
    sizes = sorted(known)
    if len(sizes) < 2:
        return 2 * sizes[0] if high == MOST else max(sizes[0] // 2, 1)
    below = [n for n in sizes if n <= low] or sizes[:1]
    a, b = (below[-1], next((n for n in sizes if n > below[-1]), 0))
    if not b:
        a, b = sizes[-2:]
    slope = (known[b] - known[a]) / (b - a)
    guess = a + int((most - known[a]) / slope) if slope > 0 else 2 * high
    if low in known and guess == low:
        guess = low + 1
    return min(max(guess, low + 1), high - 1)


def _shape(x: Any) -> Any:
    """The shape of a tensor or of a ``Spec``; empty for anything else."""
    return tuple(x.shape) if isinstance(x, (Tensor, Spec)) else ()


class _Imagined(Evaluator):
    """Gives results of the right type without memory: all elements are the same one.

    An optimizer makes its first state by its own rule while a step is captured; that
    state is counted, and never read.
    """

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.type is None or op.composite:
            return super().process(op, args, params)
        kind = op.type(*[type_of(a) for a in args], **params)
        if isinstance(kind, TensorType):
            return _imagined(kind)
        return tuple([_imagined(one) for one in kind])


def _imagined(kind: TensorType) -> Tensor:
    element = np.zeros((), kind.dtype.np)
    strides = (0,) * len(kind.shape)
    return Tensor(np.lib.stride_tricks.as_strided(element, kind.shape, strides))


@contextmanager
def _states_undone() -> Iterator[None]:
    """Restore the state of optimizers when the block ends."""
    before: dict[int, Any] = {}

    def note(optimizer: Any) -> None:
        values = {p: dict(s) for p, s in optimizer.state.items()}
        before.setdefault(id(optimizer), (optimizer.state, values))

    mode.states = note
    try:
        yield
    finally:
        mode.states = None
        for state, values in before.values():
            for p in [p for p in state if p not in values]:
                del state[p]
            for p, own in values.items():
                state[p].clear()  # others refer to this very dictionary
                state[p].update(own)


def plan(
    step: Callable[..., Any], *examples: Any, memory: Any = None, **kwargs: Any
) -> Plan:
    """Predict the memory of a compiled step, without running or allocating it.

    ``examples`` are tensors like those it will be called with, or ``weft.graph.Spec``s
    with their shapes. ``memory`` is the option of ``weft.compile``; a compiled function
    has its own.

    >>> model = weft.nn.Linear(100, 10)
    >>> def step(x):
    ...     model(x).sum().backward()
    >>> needs = weft.plan(step, weft.graph.Spec((64, 100)))
    >>> needs.parts.parameters, needs.parts.arguments
    (4040, 25600)
    >>> needs.fits("100MB")
    True
    """
    policy = None if memory is None else memory_of(memory)
    compiled = function_of(step)
    if compiled is not None:
        policy = compiled.memory if policy is None else policy
        step = compiled.fn
    return Plan(step, examples, kwargs, policy)


__all__ = ["Footprint", "Plan", "plan"]
