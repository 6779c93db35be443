"""A matrix product: three Python loops, the compiler's loops, machine code.

    python examples/generations/compiled_matmul.py [--size 64]

The first is what one would write down; the second says the same for whole arrays, and
the compiler makes three loops of it again, but in vector instructions.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import weft

Rows = list[list[float]]


def by_hand(a: Rows, b: Rows) -> Rows:
    """Three loops over lists."""
    c = [[0.0] * len(b[0]) for _ in a]
    for i in range(len(a)):
        for j in range(len(b[0])):
            for k in range(len(b)):
                c[i][j] += a[i][k] * b[k][j]
    return c


def by_arrays(a: weft.Tensor, b: weft.Tensor) -> weft.Tensor:
    """All products at once, then sums; nothing of that size is ever stored."""
    return (a[:, :, None] * b[None, :, :]).sum(1)


def timed(name: str, fn, *args):
    start = time.perf_counter()
    out = fn(*args)
    print(f"{name}: {(time.perf_counter() - start) * 1e3:.2f} ms")
    return out


def main(arguments: list[str] | None = None) -> tuple[float, str]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64)
    size = parser.parse_args(arguments).size
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(size, size)) for _ in range(2))
    want = np.array(timed("three loops in Python", by_hand, a.tolist(), b.tolist()))
    x, y = weft.tensor(a), weft.tensor(b)
    compiled = weft.compile(by_arrays)
    compiled(x, y)  # the first call compiles
    got = timed("the compiled loops", compiled, x, y)
    gap = float(np.abs(got.numpy() - want).max())
    print(f"largest difference: {gap:.1e}")

    (kernel,) = compiled.explain().programs[0].kernels
    print(f"\nthe loops:\n{kernel.loops}")
    code = kernel.assembly
    lines = [s.strip() for s in code.splitlines() if "mulpd" in s]
    print("\nin the machine code:", *lines[:2], sep="\n  ")
    return gap, code


if __name__ == "__main__":
    main()
