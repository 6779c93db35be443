"""Recurrent networks: training steps as loops, beside the unrolled form and peers.

    python benchmarks/recurrent.py [--threads N] [--rounds N] [--lengths N]

The first table has the time of a training step (plain gradient descent) of one layer:
compiled as a loop, compiled as an unrolled loop, PyTorch eager, and JAX's ``scan``
under ``jit``; the best of several rounds, in each of which they come in another order
(what one leaves behind, the next one meets). The second has many lengths
one after the other: compilations, and the time of all of them with compilation.
Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

import weft
from weft import nn

KINDS = ("LSTM", "GRU", "RNN")
STEPS, BATCH, INPUTS, HIDDEN = 64, 32, 128, 256
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RATE = 1e-3

Step = Callable[[np.ndarray], Any]


def weft_step(kind: str, unrolled: bool = False) -> Step:
    net = getattr(nn, kind)(INPUTS, HIDDEN)
    optimizer = weft.optim.SGD(net.parameters(), lr=RATE)

    def forward(x: weft.Tensor) -> weft.Tensor:
        if not unrolled:
            return net(x)[0]
        steps, batch = x.shape[:2]
        start = tuple(x.new_zeros(batch, HIDDEN) for _ in range(net.states))
        rows = x.reshape(steps * batch, INPUTS)
        out, _ = net._packed(rows, [batch] * steps, start, "_l0")
        return out.reshape(steps, batch, HIDDEN)

    @weft.compile
    def step(x: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        out = forward(x)
        loss = (out * out).mean()
        loss.backward()
        optimizer.step()
        return loss

    def run(x: np.ndarray) -> Any:
        return step(weft.from_numpy(x))

    run.step = step  # type: ignore[attr-defined]
    return run


def torch_step(kind: str) -> Step:
    import torch

    torch.set_num_threads(weft.get_num_threads())
    net = getattr(torch.nn, kind)(INPUTS, HIDDEN)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def run(x: np.ndarray) -> Any:
        optimizer.zero_grad()
        loss = net(torch.from_numpy(x))[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


def jax_step(kind: str) -> Step:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    rows = GATES[kind] * HIDDEN
    w = [
        jnp.asarray(rng.uniform(-0.06, 0.06, s), jnp.float32)
        for s in ((rows, INPUTS), (rows, HIDDEN), (rows,), (rows,))
    ]
    sigmoid = jax.nn.sigmoid

    def cell(w: Any, carry: Any, g: Any) -> Any:
        h, c = carry
        hh = h @ w[1].T + w[3]
        if kind == "LSTM":
            i, f, a, o = jnp.split(g + hh, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(a)
            h = sigmoid(o) * jnp.tanh(c)
        elif kind == "GRU":
            (rx, zx, nx), (rh, zh, nh) = jnp.split(g, 3, -1), jnp.split(hh, 3, -1)
            z = sigmoid(zx + zh)
            h = (1 - z) * jnp.tanh(nx + sigmoid(rx + rh) * nh) + z * h
        else:
            h = jnp.tanh(g + hh)
        return (h, c), h

    def loss(w: Any, x: Any) -> Any:
        start = jnp.zeros((x.shape[1], HIDDEN))
        gates = x @ w[0].T + w[2]
        _, out = jax.lax.scan(lambda c, g: cell(w, c, g), (start, start), gates)
        return (out * out).mean()

    @jax.jit
    def step(w: Any, x: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, x)
        return [a - RATE * b for a, b in zip(w, g, strict=True)], value

    def run(x: np.ndarray) -> Any:
        nonlocal w
        w, value = step(w, x)
        return float(value)

    return run


def there(make: Callable[[str], Step], kind: str) -> Step | None:
    try:
        return make(kind)
    except ImportError:
        return None


def candidates(kind: str) -> dict[str, Step]:
    found = {
        "loop": weft_step(kind),
        "unrolled": weft_step(kind, unrolled=True),
        "PyTorch": there(torch_step, kind),
        "JAX": there(jax_step, kind),
    }
    return {name: step for name, step in found.items() if step is not None}


def steps(rounds: int) -> None:
    x = np.random.default_rng(1).standard_normal((STEPS, BATCH, INPUTS), np.float32)
    print(
        f"\n{STEPS} steps, batch {BATCH}, {INPUTS} inputs, {HIDDEN} hidden: ms a step"
    )
    for kind in KINDS:
        runs = candidates(kind)
        best = dict.fromkeys(runs, float("inf"))
        first = {}
        for name, run in runs.items():
            start = time.perf_counter()
            run(x)
            first[name] = time.perf_counter() - start
        for _ in range(rounds):
            for name, run in random.sample(list(runs.items()), len(runs)):
                start = time.perf_counter()
                run(x)
                best[name] = min(best[name], time.perf_counter() - start)
        for name, took in best.items():
            ratio = took / best["loop"]
            print(
                f"{kind:6}{name:10}{took * 1e3:10.2f}   {ratio:5.2f} of the loop, "
                f"first call {first[name]:.2f} s"
            )


def lengths(count: int) -> None:
    print(f"\n{count} lengths one after the other, batch {BATCH}: seconds in all")
    rng = np.random.default_rng(2)
    data = [rng.standard_normal((n, BATCH, INPUTS), np.float32) for n in
            rng.permutation(np.arange(1, count + 1))]  # fmt: skip
    for kind in KINDS:
        runs = candidates(kind)
        runs.pop("unrolled")
        for name, run in runs.items():
            start = time.perf_counter()
            for x in data:
                run(x)
            took = time.perf_counter() - start
            compiled = getattr(run, "step", None)
            note = f", {len(compiled.compiles)} compilations" if compiled else ""
            print(f"{kind:6}{name:10}{took:10.2f}{note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--lengths", type=int, default=100)
    args = parser.parse_args()
    weft.set_num_threads(args.threads)
    print(f"{args.threads} threads")
    steps(args.rounds)
    lengths(args.lengths)


if __name__ == "__main__":
    main()
