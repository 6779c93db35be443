"""Kernels that wait for memory, compiled, beside PyTorch's and beside a copy.

    python benchmarks/memory_bound.py [part of a name ...] [--threads 1 2] [--mb 16 64]

For each: gigabytes a second (of what must be read and written at least), what share
that is of a copy's in the same run, and how many times PyTorch's time it takes: below
1 is faster. Medians of runs in turn. PyTorch must be there.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as peer

import weft
from weft.nn import functional as F

RNG = np.random.default_rng(0)
ROUNDS = 12
aten = torch.ops.aten


class Case(NamedTuple):
    """The same work by either library, and the bytes that it moves at least."""

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    nbytes: float


def keep_memory() -> None:
    """Let freed memory stay with the process: else large results cost page faults."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-4, 0)  # M_MMAP_MAX
    libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def case(name: str, passes: float, ours: Any, theirs: Any, *arrays: Any) -> Case:
    """``passes`` over the first array are what must be moved."""
    mine = [weft.tensor(a) for a in arrays]
    other = [torch.from_numpy(a) for a in arrays]
    made = weft.compile(ours)
    return Case(
        name, lambda: made(*mine), lambda: theirs(*other), passes * arrays[0].nbytes
    )


def same(name: str, passes: float, both: Any, *arrays: Any) -> Case:
    return case(name, passes, both, both, *arrays)


def elementwise(n: int) -> Iterator[Case]:
    x, y, z = floats(n), floats(n), floats(n)
    yield same("scale", 2, lambda x: x * 2, x)
    yield same("chain (x*y+z)*x-y", 4, lambda x, y, z: (x * y + z) * x - y, x, y, z)
    yield case("gelu", 2, F.gelu, peer.gelu, x)
    yield case(
        "gelu tanh", 2, lambda x: F.gelu(x, approximate="tanh"),
        lambda x: peer.gelu(x, approximate="tanh"), x,
    )  # fmt: skip
    yield case("silu", 2, F.silu, peer.silu, x)
    yield case(
        "dropout", 2, lambda x: F.dropout(x, 0.1), lambda x: peer.dropout(x, 0.1), x
    )
    mask = x > 0.5
    yield case(
        "masked fill", 2.25, lambda x, m: x.masked_fill(m, -1.0),
        lambda x, m: x.masked_fill(m, -1.0), x, mask,
    )  # fmt: skip
    yield case("where", 3, lambda x, y: weft.where(x > 0, x, y),
               lambda x, y: torch.where(x > 0, x, y), x, y)  # fmt: skip


def rows(n: int) -> Iterator[Case]:
    x = floats(n // 1024, 1024)
    w, b = floats(1024), floats(1024)
    yield case("softmax", 2, lambda x: F.softmax(x, -1),
               lambda x: peer.softmax(x, -1), x)  # fmt: skip
    ids = RNG.integers(0, 1024, n // 1024)
    yield case(
        "log-softmax + nll", 1, lambda x, t: F.cross_entropy(x, t),
        lambda x, t: peer.cross_entropy(x, t), x, ids,
    )  # fmt: skip
    yield case(
        "layer norm", 2, lambda x, w, b: F.layer_norm(x, (1024,), w, b),
        lambda x, w, b: peer.layer_norm(x, (1024,), w, b), x, w, b,
    )  # fmt: skip
    yield layer_norm_backward(x, floats(*x.shape), w, b)


def layer_norm_backward(x: Any, g: Any, w: Any, b: Any) -> Case:
    def ours(x: Any, g: Any, w: Any, b: Any) -> Any:
        _, pull = weft.func.vjp(lambda *a: F.layer_norm(a[0], (1024,), *a[1:]), x, w, b)
        return pull(g)

    tensors = [torch.from_numpy(a) for a in (x, w, b)]
    _, mean, rstd = aten.native_layer_norm(tensors[0], [1024], *tensors[1:], 1e-5)

    def theirs(x: Any, g: Any, w: Any, b: Any) -> Any:
        return aten.native_layer_norm_backward(
            g, x, [1024], mean, rstd, w, b, [True, True, True]
        )

    return case("layer norm backward", 3, ours, theirs, x, g, w, b)


def reductions(n: int) -> Iterator[Case]:
    x = floats(n // 1024, 1024)
    cube = x.reshape(-1, 32, 256)
    image = x.reshape(-1, 64, 32, 32)
    yield same("sum over axis 0", 1, lambda x: x.sum(0), x)
    yield same("sum over the middle", 1, lambda x: x.sum(1), cube)
    yield same("sum over rows", 1, lambda x: x.sum(1), x)
    yield same("sum of all", 1, lambda x: x.sum(), x)
    yield same("max over rows", 1, lambda x: x.amax(1), x)
    yield same("max over axis 0", 1, lambda x: x.amax(0), x)
    yield same("max of all", 1, lambda x: x.amax(), x)
    yield same("mean and var of rows", 1, lambda x: (x.mean(1), x.var(1)), x)
    yield same(
        "batch statistics", 1, lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))), image
    )
    yield same("cumsum over rows", 2, lambda x: x.cumsum(1), x)
    yield same("cumsum over axis 0", 2, lambda x: x.cumsum(0), x)


def copies(n: int) -> Iterator[Case]:
    side = 1 << (n.bit_length() // 2 - 1)
    x = floats(n // side, side)
    heads = x.reshape(-1, 128, 8, 64)
    yield case(
        "transpose", 2, lambda x: x.T.contiguous(), lambda x: x.T.contiguous(), x
    )
    yield case("transpose and scale", 2, lambda x: x.T * 2,
               lambda x: x.T.contiguous() * 2, x)  # fmt: skip
    yield same("[B,T,H,D] to [B,H,T,D]", 2,
               lambda x: x.transpose(1, 2).contiguous(), heads)  # fmt: skip
    yield case("cat along rows", 2, lambda x: weft.cat([x[:, 7:], x[:, :7]], 1),
               lambda x: torch.cat([x[:, 7:], x[:, :7]], 1), x)  # fmt: skip
    yield same("slice", 1, lambda x: x[:, : x.shape[1] // 2].clone(), x)
    table, ids = floats(n // 512, 512), RNG.integers(0, n // 512, n // 512)
    yield case("embedding", 2, lambda t, i: F.embedding(i, t),
               lambda t, i: peer.embedding(i, t), table, ids)  # fmt: skip
    grads = floats(n // 512, 512)
    count = len(table)
    yield case(
        "embedding gradient", 3,
        lambda g, i: weft.zeros(count, 512).index_add(0, i, g),
        lambda g, i: aten.embedding_dense_backward(g, i, count, -1, False), grads, ids,
    )  # fmt: skip


def updates(n: int) -> Iterator[Case]:
    """An optimizer's step: four arrays are read, and three written in their place."""
    values, g = floats(10_000_000) * 0.1, floats(10_000_000) * 0.1
    mine = weft.nn.Parameter(weft.tensor(values.copy()))
    optimizer = weft.optim.AdamW([mine], lr=1e-3)

    def step(g: Any) -> None:
        optimizer.zero_grad()
        (mine * g).sum().backward()
        optimizer.step()

    parameter = torch.nn.Parameter(torch.from_numpy(values.copy()))
    parameter.grad = torch.from_numpy(g)
    peers = torch.optim.AdamW([parameter], lr=1e-3, fused=True)
    yield case("AdamW of 10M", 7, step, lambda *_: peers.step(), g)


PARTS = (elementwise, rows, reductions, copies, updates)


def copy(n: int) -> Case:
    """A copy into memory that is there, by the fastest of three; one doubles it."""
    source = floats(n)
    to = np.empty_like(source)
    a, b = torch.from_numpy(source), torch.from_numpy(to)
    double = weft.compile(lambda x: x * 2)
    x = weft.tensor(source)
    runs = [lambda: np.copyto(to, source), lambda: b.copy_(a), lambda: double(x)]
    best = min(runs, key=lambda run: statistics.median(times([run])[0]))
    return Case("copy", best, best, 2 * source.nbytes)


def times(runs: list[Callable[[], Any]], rounds: int = ROUNDS) -> list[list[float]]:
    """Seconds of each, taken in turns; the first two now and then change places, as
    what runs after another one finds its memory in the cache."""
    for run in runs:
        run()
    found: list[list[float]] = [[] for _ in runs]
    for k in range(rounds):
        pairs = list(zip(runs, found, strict=True))
        if k % 2:
            pairs[:2] = pairs[:2][::-1]
        for run, taken in pairs:
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return found


def report(case: Case, base: Case) -> None:
    runs = times([case.ours, case.theirs, base.ours])
    ours, theirs, plain = map(statistics.median, runs)
    rate, best = case.nbytes / ours / 1e9, base.nbytes / plain / 1e9
    print(
        f"{case.name:24} {ours * 1e3:8.2f} {theirs * 1e3:8.2f} ms  {rate:6.1f} GB/s "
        f"{100 * rate / best:4.0f} % of a copy   x {ours / theirs:5.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--mb", type=int, nargs="*", default=[16, 64])
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    keep_memory()
    for threads in given.threads:
        weft.set_num_threads(threads)
        torch.set_num_threads(threads)
        for size in given.mb:
            n = size << 18
            print(f"\n{size} MB, {threads} thread{'s' * (threads > 1)}")
            base = copy(n)
            for part in PARTS:
                for one in part(n):
                    if not given.names or any(w in one.name for w in given.names):
                        report(one, base)


if __name__ == "__main__":
    main()
