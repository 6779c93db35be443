"""An LSTM over whole sequences in eager mode: a program forward and one backward.

    forward     p = x V^T                                   for all steps
                h_t, c_t = cell(p_t + h_{t-1} W^T + b, c_{t-1})     a loop
    backward    d_t, dc_{t-1} = slopes(dh_t, dc_t, ...)     a loop the other way
                dh_{t-1} = d_t W
                dW = d^T h, dV = d^T x, dx = d V            for all steps

Steps are not recorded on the tape one by one. Higher derivatives are those of the
operators that a step consists of.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft.compile.eager.operator import composed, hints_of
from weft.core.dispatch import bind
from weft.core.mode import mode
from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.runtime import allocation

ndarray = np.ndarray


def _forward(
    data: Tensor,
    h: Tensor,
    c: Tensor,
    w_ih: Tensor,
    w: Tensor,
    b: Tensor,
    reverse: bool,
) -> Any:
    """Outputs, the last h and c; of all steps the h and c before, gates and tanh(c)."""

    def step(state: Any, p: Tensor) -> Any:
        h, c = state
        i, f, g, o = (p + h @ w.mT + b).chunk(4, -1)
        i, f, g, o = weft.sigmoid(i), weft.sigmoid(f), weft.tanh(g), weft.sigmoid(o)
        new = f * c + i * g
        t = weft.tanh(new)
        return (o * t, new), (o * t, h, c, i, f, g, o, t)

    last, (out, *kept) = weft.scan(step, (h, c), data @ w_ih.mT, reverse=reverse)
    return (out, *last, *kept)


def _backward(
    dout: Tensor, dh: Tensor, dc: Tensor, data: Tensor, w_ih: Tensor, w: Tensor,
    before: Tensor, *kept: Tensor, reverse: bool, need: bool,
) -> Any:  # fmt: skip
    """The gradients of the first h and c, of weights and bias, and of the data."""

    def step(state: Any, values: Any) -> Any:
        (dh, dc), (dout, c, i, f, g, o, t) = state, values
        dh = dh + dout
        dc = dc + dh * o * (1 - t * t)
        gates = dc * g * (i * (1 - i)), dc * c * (f * (1 - f)), dc * i * (1 - g * g)
        d = weft.cat([*gates, dh * t * (o * (1 - o))], -1)
        return (d @ w, dc * f), d

    last, d = weft.scan(step, (dh, dc), (dout, *kept), reverse=not reverse)
    rows = d.flatten(0, 1)
    weights = rows.mT @ data.flatten(0, 1), rows.mT @ before.flatten(0, 1)
    return (*last, *weights, rows.sum(0), *([d @ w_ih] if need else []))


@functools.lru_cache(64)
def _program(
    code: str, inputs: int, hidden: int, hints: Any, reverse: bool, need: bool | None
) -> Any:
    """The program forward (``need`` is None) or backward, for sizes like the hints."""
    every = "N0", "N1"  # steps, batch
    data, state, steps = (*every, inputs), ("N1", hidden), (*every, hidden)
    w_ih, w = (4 * hidden, inputs), (4 * hidden, hidden)
    fn: Any = functools.partial(_forward, reverse=reverse)
    shapes: list[Any] = [data, state, state, w_ih, w, (4 * hidden,)]
    if need is not None:
        fn = functools.partial(_backward, reverse=reverse, need=need)
        shapes = [steps, state, state, data, w_ih, w, *[steps] * 7]
    like = Tensor(np.zeros((), code))
    found = composed("lstm", fn, [like] * len(shapes), shapes, hints)
    return None if found is None else found.function.program


class _Run:
    """One call, and the values that its steps keep for backward."""

    def __init__(self, batch: int, backwards: bool) -> None:
        self.batch, self.backwards = batch, backwards
        self.kept: list[ndarray] = []

    def program(self, arrays: Sequence[ndarray], need: bool | None = None) -> Any:
        data, h = arrays[:2]
        hints = hints_of([len(data) // self.batch, self.batch])
        width, hidden = data.shape[1], h.shape[1]
        return _program(h.dtype.char, width, hidden, hints, self.backwards, need)

    def _by_steps(self, rows: ndarray) -> ndarray:
        return rows.reshape(-1, self.batch, rows.shape[1])

    def forward(self, *arrays: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """The outputs of all steps, and the last h and c."""
        data, *rest = arrays
        found, _ = self.program(arrays).run([self._by_steps(data), *rest])
        out, h, c, *self.kept = found
        return out.reshape(len(data), -1), h, c

    def backward(
        self, arrays: Sequence[ndarray], gs: Sequence[ndarray], need: Sequence[bool]
    ) -> list[Any]:
        """The gradients of all arguments that need one."""
        if not self.kept:
            self.forward(*arrays)
        data, _, _, w_ih, w, _ = arrays
        feeds = [self._by_steps(gs[0]), *gs[1:], self._by_steps(data), w_ih, w]
        found, _ = self.program(arrays, need[0]).run([*feeds, *self.kept])
        self.kept = []  # a second backward, which is rare, recomputes them
        dh, dc, dw_ih, dw, db, *rest = found
        dx = rest[0].reshape(data.shape) if rest else None
        return [dx, dh, dc, dw_ih, dw, db]


def lstm(
    steps: Callable[..., Any], tensors: Sequence[Tensor], batch: int, backwards: bool
) -> Any:
    """The outputs of all steps (steps * batch, hidden), and the last h and c.

    ``tensors`` are the data of all steps (steps * batch, inputs), the first h and c,
    the weights of data and of h, and the bias. ``steps(gates, (h, c), w, b)`` does the
    same by operators. None if there are no kernels.
    """
    run = _Run(batch, backwards)
    if run.program([t._data for t in tensors]) is None:
        return None

    def pull(g: Any, need: Any, *xs: Any) -> Any:
        if mode.recording:  # the derivative is differentiated in turn
            return _composed_pull(steps, g, need, xs)
        arrays = [np.ascontiguousarray(x.to_host()) for x in xs]
        gs = [np.ascontiguousarray(one.to_host()) for one in g]
        gradients = run.backward(arrays, gs, need)
        return [None if one is None else Tensor(one) for one in gradients]

    names = "data h c w_ih w b"
    pull.names = ("need", *names.split())  # type: ignore[attr-defined]

    def forward(*xs: Any) -> Any:
        outs = run.forward(*[np.ascontiguousarray(x.to_host()) for x in xs])
        if allocation.ledger is not None:
            for one in outs:
                allocation.noted(one, "lstm")
        return tuple(map(Tensor, outs))

    op = Op(
        "lstm", inputs=names, outputs="out h_last c_last", eval=forward, type=None,
        vjp=pull, composite=True,
    )  # fmt: skip
    out, *last = bind(op, tuple(tensors), {})
    op.plans.clear()  # they refer to the operator: a cycle would keep the values alive
    if out._node is None:
        run.kept = []
    return out, tuple(last)


def _composed_pull(steps: Callable[..., Any], g: Any, need: Any, xs: Any) -> list[Any]:
    """The gradients of all arguments that need one, by operators on the tape."""
    data, h, c, w_ih, w, b = xs
    out, last = steps(data @ w_ih.mT, (h, c), w, b)
    wanted = [x for x, needed in zip(xs, need, strict=True) if needed]
    gradients = iter(weft.autograd.grad((out, *last), wanted, g, create_graph=True))
    return [next(gradients) if needed else None for needed in need]
