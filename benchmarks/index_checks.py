"""What checking indices costs: generated code beside the same code without checks.

    python benchmarks/index_checks.py [--threads 1]

Each line gives microseconds with and without checks (medians of timings taken in
turns) and their ratio. Code without checks exists here only: an index outside would
read other memory.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import weft
from weft import graph as G
from weft.compile.fusion.elements import Builder
from weft.compile.pipeline import KERNEL_PASSES
from weft.compile.program.program import compiled

RNG = np.random.default_rng(0)
ROUNDS = 41


def rows(count: int, *shape: int) -> Any:
    return weft.tensor(RNG.integers(0, count, shape))


def numbers(*shape: int) -> Any:
    return weft.tensor(RNG.normal(size=shape).astype(np.float32))


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions that take or add elements by index, with arguments."""
    wide, tall, flat = numbers(2000, 256), numbers(2000, 16), numbers(4096)
    many, more, places = rows(2000, 8192), rows(2000, 100_000), rows(4096, 500_000)
    logits, labels = numbers(4096, 512), rows(512, 4096)
    grid = rows(512, 4096, 64)
    return {
        "rows of 256": (lambda x, i: x[i], (wide, many)),
        "rows of 16": (lambda x, i: x[i], (tall, more)),
        "single elements": (lambda x, i: x[i] * 2, (flat, places)),
        "gather along rows": (lambda x, i: x.gather(1, i), (logits, grid)),
        "cross entropy": (weft.nn.functional.cross_entropy, (logits, labels)),
        "added rows of 256": (
            lambda x, i, v: x.index_add(0, i, v), (wide, many, numbers(8192, 256)),
        ),
        "added elements": (
            lambda x, i, v: x.index_add(0, i, v), (flat, places, numbers(500_000)),
        ),
    }  # fmt: skip


@contextmanager
def unchecked() -> Iterator[None]:
    """Indices are taken as they come (negative ones still count from the end)."""
    index = Builder._index

    def sure(build: Builder, value: Any, size: Any, **how: bool) -> Any:
        return index(build, value, size, sure=True, **how)

    with mock.patch.object(Builder, "_index", sure):
        yield


def prepared(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    """A run with checks and one without."""
    graph = G.capture(fn, *args).graph
    checked = compiled(graph, passes=KERNEL_PASSES)
    with unchecked():
        plain = compiled(graph, passes=KERNEL_PASSES)
    assert any(kernel.checks for kernel in checked.kernels.values())
    assert str(checked.kernels) != str(plain.lowered.kernels)
    arrays = [a.numpy() for a in args]
    return (lambda: checked.run(arrays, {})), (lambda: plain.run(arrays, {}))


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def medians(first: Any, second: Any) -> tuple[float, float, float]:
    """Of each, and of the ratios of neighbouring timings, in both orders."""
    pairs = []
    for _ in range(ROUNDS):
        pairs.append((seconds(first), seconds(second)))
        pairs.append((seconds(second), seconds(first))[::-1])
    ratio = statistics.median(a / b for a, b in pairs[4:])
    return (*[statistics.median(times) for times in zip(*pairs, strict=True)], ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    weft.set_num_threads(parser.parse_args().threads)
    print(f"{'':20}{'checked':>10}{'unchecked':>12}{'ratio':>8}")
    for name, (fn, args) in programs().items():
        checked, plain, ratio = medians(*prepared(fn, args))
        print(f"{name:20}{checked * 1e6:10.0f}{plain * 1e6:12.0f}{ratio:8.3f}")


if __name__ == "__main__":
    main()
