"""Compiled pooling, sorting and resampling beside PyTorch's, in one run.

    python benchmarks/lowerings.py [part ...]     (PyTorch must be there)

Each line gives milliseconds of both (medians of timings taken in turns) and how many
times PyTorch's time Weft takes: below 1 is faster. Sizes are those of ResNet-50 and
of residual networks for images of 32x32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as peer

import weft
from weft import nn

RNG = np.random.default_rng(0)
ROUNDS = 15
F = nn.functional


class Case(NamedTuple):
    """A function of either library, and the shape of its argument."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    shape: tuple[int, ...]


def both(name: str, shape: tuple[int, ...], *args: Any, **kwargs: Any) -> Case:
    """A function that both libraries call the same."""
    return Case(
        name,
        lambda x: getattr(F, name)(x, *args, **kwargs),
        lambda x: getattr(peer, name)(x, *args, **kwargs),
        shape,
    )


def pooling() -> Iterator[Case]:
    yield both("max_pool2d", (16, 64, 112, 112), 3, 2, 1)
    yield both("max_pool2d", (16, 64, 32, 32), 2)
    yield both("max_pool2d", (64, 16, 32, 32), 3, 2, 1)
    yield both("avg_pool2d", (16, 64, 112, 112), 3, 2, 1)
    yield both("avg_pool2d", (16, 64, 32, 32), 2)
    yield both("adaptive_avg_pool2d", (16, 2048, 7, 7), 1)
    yield both("adaptive_avg_pool2d", (64, 64, 8, 8), 1)
    yield both("adaptive_avg_pool2d", (16, 256, 14, 14), 6)
    yield both("adaptive_max_pool2d", (16, 256, 14, 14), 6)


def resampling() -> Iterator[Case]:
    for mode in ("nearest", "bilinear", "bicubic"):
        yield both(
            "interpolate", (4, 64, 56, 56), scale_factor=2, mode=mode
        )  # fmt: skip
    yield both("interpolate", (4, 64, 56, 56), size=(75, 33), mode="bilinear")
    yield Case(
        "grid_sample",
        lambda x: F.grid_sample(x, weft.tensor(_GRID), align_corners=False),
        lambda x: peer.grid_sample(x, torch.tensor(_GRID), align_corners=False),
        (4, 64, 56, 56),
    )


_GRID = RNG.uniform(-1, 1, (4, 56, 56, 2)).astype(np.float32)


def sorting() -> Iterator[Case]:
    for shape in ((512, 100), (64, 1000), (16, 50257), (1, 1_000_000)):
        yield Case("sort", lambda x: x.sort(-1)[0], lambda x: x.sort(-1)[0], shape)
    yield Case("topk", lambda x: x.topk(5)[0], lambda x: x.topk(5)[0], (256, 1000))
    yield Case("sort 0", lambda x: x.sort(0)[0], lambda x: x.sort(0)[0], (1000, 64))
    for name in ("cummax", "logcumsumexp"):
        yield Case(name, _running(name), _running(name), (256, 1000))


def _running(name: str) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        found = getattr(x, name)(1) if name == "cummax" else x.logcumsumexp(1)
        return found[0] if name == "cummax" else found

    return run


PARTS: dict[str, Callable[[], Iterator[Case]]] = {
    "pooling": pooling,
    "resampling": resampling,
    "sorting": sorting,
}


def our_gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        x = x.detach().requires_grad_()
        fn(x).square().sum().backward()
        return x.grad

    return run


their_gradient = our_gradient  # it reads the same


def milliseconds(run: Callable[[], Any], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        run()
    return (time.perf_counter() - start) / number * 1e3


def compared(case: Case, *, gradient: bool) -> tuple[float, float]:
    """Milliseconds of Weft and of PyTorch."""
    array = RNG.normal(size=case.shape).astype(np.float32)
    x, y = weft.tensor(array), torch.tensor(array)
    ours, theirs = case.ours, case.theirs
    if gradient:
        ours, theirs = our_gradient(ours), their_gradient(theirs)
    compiled = weft.compile(ours)
    runs = [lambda: compiled(x), lambda: theirs(y)]
    got, want = (run().detach().numpy() for run in runs)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    number = max(1, int(20 / max(milliseconds(runs[1], 1), 0.05)))
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for run, found in zip(runs, times, strict=True):
            found.append(milliseconds(run, number))
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    weft.set_num_threads(chosen.threads)
    torch.set_num_threads(chosen.threads)
    for part in chosen.parts or PARTS:
        for case in PARTS[part]():
            for gradient in (False, True):
                ours, theirs = compared(case, gradient=gradient)
                name = f"{case.name}{' gradient' * gradient} {case.shape}"
                print(f"{name:44} {ours:9.3f} {theirs:9.3f} {ours / theirs:7.2f}")


if __name__ == "__main__":
    main()
