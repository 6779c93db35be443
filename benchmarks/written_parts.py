"""Parts of tensors that are written: compiled, eager, and by PyTorch.

    python -m benchmarks.written_parts

cache      a row of a buffer of 8 x 1024 x 4096, and a sum over another one
halves     even and odd columns of 4096 x 1024 from two tensors
frame      the inside of a 2048 x 2048 picture, whose border stays

Microseconds, the least of some rounds in turns; PyTorch without a compiler, if it is
there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import weft


def cache(lib: Any) -> Callable[[], Any]:
    class Cache(lib.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", lib.zeros(8, 1024, 4096))

        def forward(self, row: Any) -> Any:
            self.kept[:, 3] = row
            return self.kept[0, 5].sum()

    return bound(lib, Cache(), lib.ones(8, 4096))


def halves(lib: Any) -> Callable[[], Any]:
    def put(a: Any, b: Any) -> Any:
        out = lib.zeros(4096, 1024)
        out[:, 0::2] = a
        out[:, 1::2] = b
        return out

    return bound(lib, put, lib.ones(4096, 512), lib.ones(4096, 512))


def frame(lib: Any) -> Callable[[], Any]:
    def put(x: Any, y: Any) -> Any:
        out = x * 2
        out[1:-1, 1:-1] = y
        return out

    return bound(lib, put, lib.ones(2048, 2048), lib.ones(2046, 2046))


def bound(lib: Any, fn: Any, *args: Any) -> Callable[[], Any]:
    """A call; of Weft's, the compiled one is its ``compiled``."""

    def run() -> Any:
        with lib.no_grad():
            return fn(*args)

    if lib is weft:
        program = weft.compile(fn)
        run.compiled = lambda: program(*args)  # type: ignore[attr-defined]
    return run


def least(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of each, the least of all rounds, taken in turns."""
    found = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    peer = (
        importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    )
    for case in (cache, halves, frame):
        ours = case(weft)
        runs = {"compiled": ours.compiled, "eager": ours}  # type: ignore[attr-defined]
        if peer is not None:
            runs["PyTorch"] = case(peer)
        times = least(runs, options.rounds)
        line = "   ".join(f"{name} {t * 1e6:9.1f} µs" for name, t in times.items())
        print(f"{case.__name__:8} {line}", flush=True)


if __name__ == "__main__":
    main()
