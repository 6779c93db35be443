"""How close memory plans come to their bound, and what fresh memory costs.

    python benchmarks/arena.py

Lifetimes are those of whole training steps, one step per node of the graph: as
captured, and with every value taking over the place of an input of its size that
dies there. Then the first and later writes to 64 MB.
"""

from __future__ import annotations

import mmap
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft import graph, nn, optim
from weft.runtime.cpu.arena import Arena, Buffer, lifetimes, plan


def training_step(model: Any, loss_of: Callable[..., Any]) -> Callable[..., Any]:
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def gpt() -> Any:
    model = weft.models.GPT(65, context=128, width=256, heads=8, layers=6)
    step = training_step(
        model, lambda x, y: nn.functional.cross_entropy(x.flatten(0, 1), y.flatten())
    )
    tokens = weft.randint(0, 65, (8, 128))
    return graph.capture(step, tokens, tokens).graph


def resnet() -> Any:
    step = training_step(weft.models.resnet18(classes=10), nn.functional.cross_entropy)
    images, labels = weft.randn(8, 3, 64, 64), weft.randint(0, 10, (8,))
    return graph.capture(step, images, labels).graph


def mlp() -> Any:
    step = training_step(
        weft.models.MLP([784, 512, 512, 10]), nn.functional.cross_entropy
    )
    x, y = weft.randn(128, 784), weft.randint(0, 10, (128,))
    return graph.capture(step, x, y).graph


def sharing(buffers: list[Buffer]) -> list[Buffer]:
    """Each value takes over one of its size that dies where it is made."""
    dying: dict[tuple[int, int], list[Any]] = {}
    found = []
    for b in buffers:
        free = dying.get((b.first, b.nbytes), [])
        found.append(b._replace(shares=free.pop()) if free else b)
        if b.last > b.first:
            dying.setdefault((b.last, b.nbytes), []).append(b.id)
    return found


def show_plan(name: str, buffers: list[Buffer]) -> None:
    start = time.perf_counter()
    made = plan(buffers)
    seconds = time.perf_counter() - start
    total = sum(b.nbytes for b in buffers)
    print(
        f"{name:22} {len(buffers):5} buffers {total / 2**20:8.1f} MiB   arena "
        f"{made.nbytes / 2**20:7.1f}   bound {made.bound / 2**20:7.1f}   "
        f"over {made.overhead:6.2%}   {seconds * 1e3:6.1f} ms"
    )


def fill_times(make: Callable[[], np.ndarray], rounds: int = 7) -> tuple[float, float]:
    """Milliseconds of the first and the second write to memory."""
    first, second = [], []
    for _ in range(rounds):
        x = make()
        for times in (first, second):
            start = time.perf_counter()
            x.fill(1)
            times.append((time.perf_counter() - start) * 1e3)
        del x
    return statistics.median(first), statistics.median(second)


def small_pages(nbytes: int) -> np.ndarray:
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=private), np.float32)


def main() -> None:
    for name, make in (("MLP", mlp), ("ResNet-18", resnet), ("GPT, 6 layers", gpt)):
        buffers = lifetimes(make())
        show_plan(name, buffers)
        show_plan(f"{name}, in place", sharing(buffers))
    nbytes = 64 << 20
    kinds: dict[str, Callable[[], np.ndarray]] = {
        "arena": lambda: Arena(nbytes).view(0, (nbytes // 4,), np.float32),
        "numpy.empty": lambda: np.empty(nbytes // 4, np.float32),
        "pages of 4 KiB": lambda: small_pages(nbytes),
    }
    for name, memory in kinds.items():
        first, second = fill_times(memory)
        print(f"64 MiB, {name:16} first write {first:6.2f} ms   again {second:6.2f} ms")


if __name__ == "__main__":
    main()
