"""RNN, GRU and LSTM with the options of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft import Tensor
from weft.nn import functional as F
from weft.onnx.errors import ModelError
from weft.onnx.registry import operator

Function = Callable[[Tensor], Tensor]

_ACTIVATIONS: dict[str, Callable[[float | None, float | None], Function]] = {
    "relu": lambda a, b: weft.relu,
    "tanh": lambda a, b: weft.tanh,
    "sigmoid": lambda a, b: weft.sigmoid,
    "softsign": lambda a, b: lambda x: x / (1 + x.abs()),
    "softplus": lambda a, b: lambda x: weft.logaddexp(x, weft.zeros_like(x)),
    "affine": lambda a, b: lambda x: _or(a, 1.0) * x + _or(b, 0.0),
    "elu": lambda a, b: lambda x: F.elu(x, _or(a, 1.0)),
    "leakyrelu": lambda a, b: lambda x: weft.where(x < 0, _or(a, 0.01) * x, x),
    "thresholdedrelu": lambda a, b: (
        lambda x: weft.where(x > _or(a, 1.0), x, weft.zeros_like(x))
    ),
    "hardsigmoid": lambda a, b: lambda x: (_or(a, 0.2) * x + _or(b, 0.5)).clamp(0, 1),
    "scaledtanh": lambda a, b: lambda x: _or(a, 1.0) * weft.tanh(_or(b, 1.0) * x),
}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _functions(
    names: Any, defaults: list[str], directions: int, alpha: Any, beta: Any
) -> list[list[Function]]:
    """The activations of each direction."""
    names = list(names or defaults * directions)
    if len(names) != len(defaults) * directions:
        raise ModelError(
            f"expected {len(defaults) * directions} activations, got {names}"
        )
    first, second, found = list(alpha or ()), list(beta or ()), []
    takes = {"affine": 2, "elu": 1, "leakyrelu": 1, "thresholdedrelu": 1,
             "hardsigmoid": 2, "scaledtanh": 2}  # fmt: skip
    for name in (n.lower() for n in names):
        if name not in _ACTIVATIONS:
            raise ModelError(f"the activation {name!r} is unknown")
        a = first.pop(0) if first and takes.get(name, 0) > 0 else None
        b = second.pop(0) if second and takes.get(name, 0) > 1 else None
        found.append(_ACTIVATIONS[name](a, b))
    n = len(defaults)
    return [found[k * n : k * n + n] for k in range(directions)]


def _clipped(x: Tensor, clip: float | None) -> Tensor:
    return x if clip is None else x.clamp(-clip, clip)


def _run(
    x: Tensor, lengths: Any, states: list[Tensor], step: Any, backwards: bool
) -> tuple[Tensor, list[Tensor]]:
    """A scan over time: the first state after each step, and the last states."""
    at = weft.arange(x.shape[0])  # (T,)

    def body(carry: Any, given: Any) -> Any:
        now, value = given
        new = step(value, carry)
        if lengths is None:
            return new, new[0]
        runs = (now < lengths).unsqueeze(1)  # (B, 1)
        kept = tuple(weft.where(runs, n, c) for n, c in zip(new, carry, strict=True))
        return kept, weft.where(runs, new[0], weft.zeros_like(new[0]))

    last, every = weft.scan(body, tuple(states), (at, x), reverse=backwards)
    return every, list(last)


def _layer(
    x: Tensor, lengths: Any, initial: Sequence[Any], directions: str, hidden: int,
    layout: int, make: Any,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """All directions: ``make(k)`` gives the input's part and the step of one."""
    if layout:
        x = x.transpose(0, 1)
        initial = [None if s is None else s.transpose(0, 1) for s in initial]
    kinds = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if directions not in kinds:
        raise ModelError(f"the direction {directions!r} is unknown")
    if lengths is not None:
        lengths = lengths.long()
    every, last = [], []
    for k, backwards in enumerate(kinds[directions]):
        gates, step = make(k, x)
        states = [
            weft.zeros((x.shape[1], hidden), dtype=x.dtype) if s is None else s[k]
            for s in initial
        ]
        out, end = _run(gates, lengths, states, step, backwards)
        every.append(out)
        last.append(end)
    y = weft.stack(every, 1)  # (T, D, B, H)
    ends = [weft.stack(state) for state in zip(*last, strict=True)]  # (D, B, H)
    if layout:
        y, ends = y.permute(2, 0, 1, 3), [s.transpose(0, 1) for s in ends]
    return y, ends


def _bias(b: Any, k: int, w: Tensor) -> tuple[Any, Any]:
    if b is None:
        zero = weft.zeros(w.shape[1], dtype=w.dtype)
        return zero, zero
    return b[k].chunk(2)


def _count(direction: str) -> int:
    return 2 if direction == "bidirectional" else 1


@operator("RNN")
def rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None,
    initial: Any = None, *, hidden_size: Any = None, direction: str = "forward",
    activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: Any = None, layout: int = 0, output_sequence: int = 1,
) -> Any:  # fmt: skip
    """A recurrent layer of one gate."""
    functions = _functions(activations, ["Tanh"], _count(direction), activation_alpha,
                           activation_beta)  # fmt: skip

    def make(k: int, x: Tensor) -> Any:
        wb, rb = _bias(b, k, w)
        (f,) = functions[k]
        step = lambda g, s: (f(_clipped(g + s[0] @ r[k].T, clip)),)  # noqa: E731
        return x @ w[k].T + (wb + rb), step

    y, (h,) = _layer(x, lengths, [initial], direction, r.shape[-1], layout, make)
    return y, h


@operator("GRU")
def gru(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None,
    initial: Any = None, *, hidden_size: Any = None, direction: str = "forward",
    activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: Any = None, layout: int = 0, linear_before_reset: int = 0,
    output_sequence: int = 1,
) -> Any:  # fmt: skip
    """A layer of gated recurrent units."""
    functions = _functions(activations, ["Sigmoid", "Tanh"], _count(direction),
                           activation_alpha, activation_beta)  # fmt: skip

    def make(k: int, x: Tensor) -> Any:
        wb, rb = _bias(b, k, w)
        f, g = functions[k]
        rz, rr, rh = r[k].chunk(3)
        bz, br, bh = rb.chunk(3)

        def step(gates: Tensor, states: Any) -> Any:
            (h,) = states
            z, reset, new = gates.chunk(3, -1)
            z = f(_clipped(z + h @ rz.T + bz, clip))
            reset = f(_clipped(reset + h @ rr.T + br, clip))
            if linear_before_reset:
                inner = reset * (h @ rh.T + bh)
            else:
                inner = (reset * h) @ rh.T + bh
            new = g(_clipped(new + inner, clip))
            return ((1 - z) * new + z * h,)

        return x @ w[k].T + wb, step

    y, (h,) = _layer(x, lengths, [initial], direction, r.shape[-1], layout, make)
    return y, h


@operator("LSTM")
def lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None,
    initial_h: Any = None, initial_c: Any = None, p: Any = None, *,
    hidden_size: Any = None, direction: str = "forward", activations: Any = None,
    activation_alpha: Any = None, activation_beta: Any = None, clip: Any = None,
    layout: int = 0, input_forget: int = 0, output_sequence: int = 1,
) -> Any:  # fmt: skip
    """A layer of long short-term memory, with peepholes ``p``."""
    functions = _functions(activations, ["Sigmoid", "Tanh", "Tanh"], _count(direction),
                           activation_alpha, activation_beta)  # fmt: skip

    def make(k: int, x: Tensor) -> Any:
        wb, rb = _bias(b, k, w)
        f, g, h_ = functions[k]
        peep = None if p is None else p[k].chunk(3)

        def step(gates: Tensor, states: Any) -> Any:
            h, c = states
            i, o, forget, new = (gates + h @ r[k].T).chunk(4, -1)
            if peep is not None:
                i, forget = i + peep[0] * c, forget + peep[2] * c
            i = f(_clipped(i, clip))
            forget = 1 - i if input_forget else f(_clipped(forget, clip))
            c = forget * c + i * g(_clipped(new, clip))
            if peep is not None:
                o = o + peep[1] * c
            return f(_clipped(o, clip)) * h_(c), c

        return x @ w[k].T + (wb + rb), step

    initial = [initial_h, initial_c]
    y, (h, c) = _layer(x, lengths, initial, direction, r.shape[-1], layout, make)
    return y, h, c
