"""An LSTM over whole sequences in eager mode: a product and a kernel for each step.

    forward     p = x V^T                                   one product for all steps
                p_t += h_{t-1} W^T                          a product
                h_t, c_t = cell(p_t + b, c_{t-1})           a kernel
    backward    d_t, dc_{t-1} = slopes(dh_t, dc_t, ...)     a kernel
                dh_{t-1} = d_t W                            a product
                dW = d^T h, dV = d^T x, dx = d V            one product each

Steps are not recorded on the tape one by one. Higher derivatives are those of the
operators that a step consists of.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.compile.eager import add_product
from weft.compile.eager.operator import composed, hints_of
from weft.core.blas import product
from weft.core.dispatch import bind
from weft.core.mode import mode
from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.runtime import allocation
from weft.runtime.cpu.buffers import Block, empty

ndarray = np.ndarray


class Kept(NamedTuple):
    """Values for a step's derivative: gates, tanh(c), the c and h before."""

    i: ndarray
    f: ndarray
    g: ndarray
    o: ndarray
    t: ndarray
    c: ndarray
    h: ndarray


def _cell(p: Tensor, b: Tensor, c: Tensor) -> Any:
    i, f, g, o = (p + b).chunk(4, -1)
    i, f, g, o = weft.sigmoid(i), weft.sigmoid(f), weft.tanh(g), weft.sigmoid(o)
    c = f * c + i * g
    t = weft.tanh(c)
    return o * t, c, i, f, g, o, t


def _slopes(
    dh: Tensor, dout: Tensor, dc: Tensor, i: Any, f: Any, g: Any, o: Any, t: Any, c: Any
) -> Any:
    dh = dh + dout
    dc = dc + dh * o * (1 - t * t)
    gates = dc * g * (i * (1 - i)), dc * c * (f * (1 - f)), dc * i * (1 - g * g)
    return weft.cat([*gates, dh * t * (o * (1 - o))], -1), dc * f


@functools.lru_cache(64)
def _programs(code: str, hidden: int, hint: int) -> tuple[Any, Any]:
    """The programs of a step and of its derivative, for batches like the hint."""
    state, gates = ("N0", hidden), ("N0", 4 * hidden)
    like = Tensor(np.zeros((), code))
    programs = []
    for fn, shapes in (
        (_cell, [gates, (4 * hidden,), state]),
        (_slopes, [state] * 9),
    ):
        step = composed(f"lstm{fn.__name__}", fn, [like] * len(shapes), shapes, [hint])
        programs.append(None if step is None else step.function.program)
    return programs[0], programs[1]


class _Run:
    """One call, and the values that its steps keep for backward."""

    def __init__(self, batch: int, backwards: bool) -> None:
        self.batch, self.backwards = batch, backwards
        self.kept: list[Kept] = []

    def slices(self, steps: int) -> list[slice]:
        """The rows of each step, in the order of time."""
        rows = [slice(t * self.batch, (t + 1) * self.batch) for t in range(steps)]
        return rows[::-1] if self.backwards else rows

    def forward(self, *arrays: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """The outputs of all steps, and the last h and c."""
        data, h, c, w_ih, w, b = arrays
        cell, _ = self._programs(h)
        gates = product(data, w_ih.T)
        out = empty((len(data), h.shape[1]), h.dtype)
        self.kept.clear()
        block = Block(8 * out.nbytes)  # otherwise each step maps and unmaps pages
        for at in self.slices(len(data) // self.batch):
            add_product(h, w.T, gates[at])
            with block:
                (new, next_c, i, f, g, o, t), _ = cell.run([gates[at], b, c])
            self.kept.append(Kept(i, f, g, o, t, c, h))
            out[at] = h = new
            c = next_c
        return out, h, c

    def backward(
        self, arrays: Sequence[ndarray], gs: Sequence[ndarray], need: Sequence[bool]
    ) -> list[Any]:
        """The gradients of all arguments that need one."""
        data, h, _, w_ih, w, _ = arrays
        _, slopes = self._programs(h)
        if not self.kept:
            self.forward(*arrays)
        dout, dh, dc = gs
        d = empty((len(data), len(w)), h.dtype)
        before = empty((len(data), h.shape[1]), h.dtype)
        slices = self.slices(len(data) // self.batch)
        for at, kept in zip(reversed(slices), reversed(self.kept), strict=True):
            (d[at], dc), _ = slopes.run([dh, dout[at], dc, *kept[:-1]])
            before[at] = kept.h
            dh = product(d[at], w)
        self.kept.clear()  # a second backward, which is rare, recomputes them
        rest = product(d.T, data), product(d.T, before), d.sum(0)
        return [product(d, w_ih) if need[0] else None, dh, dc, *rest]

    def _programs(self, h: ndarray) -> tuple[Any, Any]:
        return _programs(h.dtype.char, h.shape[1], *hints_of([self.batch]))


def lstm(
    steps: Callable[..., Any], tensors: Sequence[Tensor], batch: int, backwards: bool
) -> Any:
    """The outputs of all steps (steps * batch, hidden), and the last h and c.

    ``tensors`` are the data of all steps (steps * batch, inputs), the first h and c,
    the weights of data and of h, and the bias. ``steps(gates, (h, c), w, b)`` does the
    same by operators. None if there are no kernels.
    """
    h = tensors[1]._data
    if None in _programs(h.dtype.char, h.shape[1], *hints_of([batch])):
        return None
    run = _Run(batch, backwards)

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
        run.kept.clear()
    return out, tuple(last)


def _composed_pull(steps: Callable[..., Any], g: Any, need: Any, xs: Any) -> list[Any]:
    """The gradients of all arguments that need one, by operators on the tape."""
    data, h, c, w_ih, w, b = xs
    out, last = steps(data @ w_ih.mT, (h, c), w, b)
    wanted = [x for x, needed in zip(xs, need, strict=True) if needed]
    gradients = iter(weft.autograd.grad((out, *last), wanted, g, create_graph=True))
    return [next(gradients) if needed else None for needed in need]
