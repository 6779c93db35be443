"""Eager execution beside PyTorch, in one run: small operators, tapes, large arrays.

    python benchmarks/eager.py            (needs torch in the environment)

Each line times Weft and PyTorch in turns and reports the best of each and their
ratio (below 1: Weft is faster). Two threads each.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
import torch

import weft

torch.set_num_threads(2)
Thunk = Callable[[], object]


def seconds(run: Thunk, number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        run()
    return (time.perf_counter() - start) / number


def compare(name: str, ours: Thunk, theirs: Thunk, number: int, rounds: int) -> float:
    """Best times of both, taken in turns, and their ratio."""
    best = [float("inf"), float("inf")]
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for k, run in enumerate((ours, theirs)):
            best[k] = min(best[k], seconds(run, number))
    gc.enable()
    ratio = best[0] / best[1]
    unit, scale = ("µs", 1e6) if best[1] < 1e-3 else ("ms", 1e3)
    print(
        f"{name:44} weft {best[0] * scale:9.2f} {unit}   "
        f"torch {best[1] * scale:9.2f} {unit}   ratio {ratio:5.2f}"
    )
    return ratio


def matrices(lib: object, count: int = 2) -> list:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(4, 4)).astype(np.float32) for _ in range(count)]
    make = weft.tensor if lib is weft else torch.tensor
    return [make(a, requires_grad=True) for a in arrays]


def five(a, b):
    """Five operators forward, and backward through them."""

    def run():
        y = ((a + b) * a).tanh() @ b
        y.sum().backward()

    return run


def chain(a, b, length: int):
    x = a
    for _ in range(length // 2):
        x = x * b
        x = x + b
    return x.sum()


def small(rounds: int) -> None:
    print("recorded operators on 4x4 float32 matrices")
    a, b = matrices(weft)
    c, d = matrices(torch)
    compare("a + b", lambda: a + b, lambda: c + d, 20000, rounds)
    compare("a * b", lambda: a * b, lambda: c * d, 20000, rounds)
    compare("a @ b", lambda: a @ b, lambda: c @ d, 20000, rounds)
    data = [1.0, 2.0, 3.0]
    compare(
        "tensor([1., 2., 3.])",
        lambda: weft.tensor(data), lambda: torch.tensor(data), 20000, rounds,
    )  # fmt: skip
    compare("zeros(3)", lambda: weft.zeros(3), lambda: torch.zeros(3), 20000, rounds)
    compare("five operators, forward + backward", five(a, b), five(c, d), 1000, rounds)


def indexing(rounds: int) -> None:
    print("indexing a 100x20 float32 matrix")
    array = np.random.default_rng(0).normal(size=(100, 20)).astype(np.float32)
    ids, mask = np.array([1, 5, 7]), array[:, 0] > 0.5

    def cases(make: Callable) -> dict[str, Thunk]:
        x, i, m, row = make(array), make(ids), make(mask), make(array[0])

        def write(index: object, value: object) -> Thunk:
            return lambda: x.__setitem__(index, value)

        return {
            "x[3]": lambda: x[3],
            "x[3, 4]": lambda: x[3, 4],
            "x[1:3]": lambda: x[1:3],
            "x[:, 2]": lambda: x[:, 2],
            "x[ids]": lambda: x[i],
            "x[mask]": lambda: x[m],
            "x[3] = 1.5": write(3, 1.5),
            "x[1:3] = 1.5": write(slice(1, 3), 1.5),
            "x[3] = row": write(3, row),
            "x[mask] = 1.5": write(m, 1.5),
        }

    for (name, ours), theirs in zip(
        cases(weft.tensor).items(), cases(torch.tensor).values(), strict=True
    ):
        compare(name, ours, theirs, 2000, rounds)


def recurrent(rounds: int) -> None:
    print("a training step of an LSTM from 28 to 128, 28 steps of 128 sequences")
    data = np.random.default_rng(0).normal(size=(28, 128, 28)).astype(np.float32)

    def step(lib: Any) -> Thunk:
        net, x = lib.nn.LSTM(28, 128), lib.tensor(data)
        optimizer = lib.optim.SGD(net.parameters(), lr=0.01)

        def run() -> None:
            optimizer.zero_grad()
            net(x)[0].square().sum().backward()
            optimizer.step()

        return run

    for threads in (1, 2):
        weft.set_num_threads(threads)
        torch.set_num_threads(threads)
        name = f"forward, backward and SGD, {threads} threads"
        compare(name, step(weft), step(torch), 1, 3 * rounds)


def tapes(rounds: int) -> None:
    print("a tape of 10,000 operators (multiply and add, 4x4)")
    a, b = matrices(weft)
    c, d = matrices(torch)
    compare(
        "forward", lambda: chain(a, b, 10000), lambda: chain(c, d, 10000), 1, rounds
    )
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for k, pair in enumerate(((a, b), (c, d))):
            loss = chain(*pair, 10000)
            start = time.perf_counter()
            loss.backward()
            best[k] = min(best[k], time.perf_counter() - start)
    print(
        f"{'backward':44} weft {best[0] * 1e3:9.2f} ms   torch {best[1] * 1e3:9.2f} ms"
        f"   ratio {best[0] / best[1]:5.2f}"
    )


def per_operator(a, b, length: int, rounds: int) -> tuple[float, float]:
    """Best forward and backward time of an operator on a tape of some length."""
    forward = backward = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        loss = chain(a, b, length)
        middle = time.perf_counter()
        loss.backward()
        backward = min(backward, (time.perf_counter() - middle) / length)
        forward = min(forward, (middle - start) / length)
    return forward, backward


def growth(rounds: int) -> None:
    print("cost per operator as tapes grow and tensors pile up (weft alone)")
    print("  (Python's cycle collector visits every live object now and then: its")
    print("  share is amortised, and levels off; without it the cost is flat)")
    a, b = matrices(weft)
    for length in (100, 1000, 10000, 100000, 400000):
        parts = []
        for collector in (True, False):
            (gc.enable if collector else gc.disable)()
            forward, backward = per_operator(a, b, length, rounds)
            name = "with" if collector else "without"
            parts.append(
                f"{name} collector {forward * 1e6:4.2f} + {backward * 1e6:4.2f} µs"
            )
        print(f"  tape of {length:7,}: {', '.join(parts)} (forward + backward)")
    gc.enable()
    for alive in (0, 1000, 100000):
        held = [weft.ones(1, requires_grad=True) * 2 for _ in range(alive)]
        best = min(seconds(lambda: a + b, 20000) for _ in range(rounds))
        print(f"  {alive:7,} tensors alive: a + b takes {best * 1e6:5.2f} µs")
        del held


def large(rounds: int) -> None:
    print("large float32 arrays, by the compiler's kernels")
    arrays(rounds)
    layers(rounds)


def arrays(rounds: int) -> None:
    n = 16_000_000
    array = np.random.default_rng(0).normal(size=n).astype(np.float32)
    x, y = weft.tensor(array), weft.tensor(array)
    u, v = torch.tensor(array), torch.tensor(array)
    compare("add, 16 M", lambda: x + y, lambda: u + v, 1, rounds)
    compare("exp, 16 M", lambda: x.exp(), lambda: u.exp(), 1, rounds)
    compare("sum, 16 M", lambda: x.sum(), lambda: u.sum(), 1, rounds)
    p, q = x.reshape(4000, 4000), u.reshape(4000, 4000)
    compare(
        "softmax, 4000 x 4000", lambda: p.softmax(1), lambda: q.softmax(1), 1, rounds
    )
    m, k = x[: 2048 * 2048].reshape(2048, 2048), u[: 2048 * 2048].reshape(2048, 2048)
    compare("matmul, 2048 cubed", lambda: m @ m, lambda: k @ k, 1, rounds)


def layers(rounds: int) -> None:
    """Common layers, forward, and some of them forward and backward."""
    rng = np.random.default_rng(0)
    functions = weft.nn.functional, torch.nn.functional

    def pair(*shape):
        array = rng.normal(size=shape).astype(np.float32)
        return weft.tensor(array), torch.tensor(array)

    def forward(name, call, *given):
        ours, theirs = zip(*given, strict=True)
        calls = [
            lambda f=f, xs=xs: call(f, *xs)
            for f, xs in zip(functions, (ours, theirs), strict=True)
        ]
        compare(name, *calls, 1, rounds)

    def both(name, call, *given):
        def run(f, *xs):
            xs = [x.detach().requires_grad_() for x in xs]
            call(f, *xs).sum().backward()

        forward(f"{name}, forward + backward", run, *given)

    x, image, small = pair(4096, 1024), pair(32, 64, 28, 28), pair(64, 64, 3, 3)
    forward("gelu, 4 M", lambda f, x: f.gelu(x), x)
    forward("softplus, 4 M", lambda f, x: f.softplus(x), x)
    forward("dropout, 4 M", lambda f, x: f.dropout(x, 0.5, True), x)
    both("softmax, 4096 x 1024", lambda f, x: f.softmax(x, 1).square(), x)
    both("layer norm, 4096 x 1024", lambda f, x: f.layer_norm(x, (1024,)).square(), x)
    forward("sort, 4096 x 1024", lambda f, x: x.sort(1)[0], x)
    forward("topk(10), 4096 x 1024", lambda f, x: x.topk(10, 1)[0], x)
    forward("max pooling", lambda f, x: f.max_pool2d(x, 2), image)
    forward(
        "convolution, 3 x 3", lambda f, x, w: f.conv2d(x, w, padding=1), image, small
    )
    both("convolution", lambda f, x, w: f.conv2d(x, w, padding=1), image, small)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="timings taken of each")
    parts = {
        "small": small, "indexing": indexing, "recurrent": recurrent, "tapes": tapes,
        "growth": growth, "large": large,
    }  # fmt: skip
    parser.add_argument("--only", choices=list(parts))
    options = parser.parse_args()
    for name, part in parts.items():
        if options.only in (None, name):
            part(options.rounds)


if __name__ == "__main__":
    main()
