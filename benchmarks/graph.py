"""How long graphs take: to capture, print, parse, verify, differentiate, save, run.

    python benchmarks/graph.py

First a 12-layer transformer's training step, captured and run beside the eager one;
then chains of growing length, to see that every cost grows in line with it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import weft
from weft import graph as G
from weft import nn, optim


def best(run: Callable[[], Any], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def transformer_step() -> tuple[Any, Any, Any]:
    weft.manual_seed(0)
    model = weft.models.GPT(65, context=32, width=64, heads=4, layers=12)
    optimizer = optim.SGD(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step, weft.randint(0, 65, (4, 16)), weft.randint(0, 65, (4, 16))


def show_step() -> None:
    step, x, y = transformer_step()
    seconds = best(lambda: G.capture(step, x, y))
    captured = G.capture(step, x, y)
    print(f"12-layer transformer, training step: {len(captured.graph)} nodes")
    print(f"  capture      {seconds * 1e3:8.1f} ms")
    captured(x, y)
    for _ in range(2):  # in turns: the machine may be noisy
        eager, graph = best(lambda: step(x, y)), best(lambda: captured(x, y))
    count = len(captured.graph)
    print(f"  eager step   {eager * 1e3:8.1f} ms")
    print(f"  graph step   {graph * 1e3:8.1f} ms   ratio {graph / eager:.2f}")
    small = G.capture(lambda x: chain(x, 2000), weft.ones(4))
    x = weft.ones(4)
    with weft.no_grad():
        eager = best(lambda: chain(x, 2000)) / 2000
    graph = best(lambda: small(x)) / 2000
    print(
        f"  a node of 4 elements: eager {eager * 1e6:.2f} µs, interpreted "
        f"{graph * 1e6:.2f} µs, ratio {graph / eager:.2f}  ({count} nodes)"
    )


def chain(x: Any, length: int) -> Any:
    for k in range(length // 2):
        x = weft.tanh(x + k)
    return x


def show_growth() -> None:
    print("\nmicroseconds a node")
    print(f"{'nodes':>8}" + "".join(f"{n:>15}" for n in WORK))
    for length in (1_000, 10_000, 100_000):
        captured = G.capture(lambda x, n=length: chain(x, n), weft.ones(4))
        row = [best(partial(w, captured, length), 2) for w in WORK.values()]
        print(f"{length:>8}" + "".join(f"{t / length * 1e6:>15.2f}" for t in row))


def save(captured: Any, length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        weft.save(captured, os.path.join(folder, "graph.safetensors"))


WORK: dict[str, Callable[[Any, int], Any]] = {
    "capture": lambda c, n: G.capture(lambda x: chain(x, n), weft.ones(4)),
    "print": lambda c, n: G.print_graph(c.graph),
    "parse": lambda c, n: G.parse_graph(G.print_graph(c.graph), check=False),
    "verify": lambda c, n: G.verify(c.graph),
    "differentiate": lambda c, n: G.gradients(c.graph),
    "save": save,
}

if __name__ == "__main__":
    show_step()
    show_growth()
