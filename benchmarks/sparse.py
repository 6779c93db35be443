"""Sparse products beside PyTorch's.

    python benchmarks/sparse.py [--size 100000 --nnz 1000000 --columns 64]

Each line gives milliseconds of both (the best of rounds that are taken in turns), and
their ratio. Both use as many threads.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch

import weft

ROUNDS = 7


def problem(size: int, nnz: int, columns: int) -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    indices = rng.integers(0, size, (2, nnz))
    values = rng.standard_normal(nnz).astype(np.float32)
    dense = rng.standard_normal((size, columns)).astype(np.float32)
    ours = weft.sparse_coo_tensor(indices, values, (size, size)).coalesce()
    theirs = torch.sparse_coo_tensor(
        torch.tensor(indices), torch.tensor(values), (size, size)
    ).coalesce()
    x, y = weft.tensor(dense), torch.tensor(dense)
    csr, their_csr = ours.to_sparse_csr(), theirs.to_sparse_csr()
    return {
        "coo @ dense": (lambda: ours @ x, lambda: theirs @ y),
        "csr @ dense": (lambda: csr @ x, lambda: their_csr @ y),
        "csr @ vector": (lambda: csr @ x[:, 0], lambda: their_csr @ y[:, 0]),
        "coo * number": (lambda: ours * 2.0, lambda: theirs * 2.0),
    }


def once(act: Any) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--nnz", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=64)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse CSR")
    torch.set_num_threads(weft.get_num_threads())
    for name, (ours, theirs) in problem(given.size, given.nnz, given.columns).items():
        pairs = [(once(ours), once(theirs)) for _ in range(ROUNDS)]
        a, b = (min(column) * 1e3 for column in zip(*pairs, strict=True))
        print(f"{name:14} {a:9.2f} ms  PyTorch {b:9.2f} ms  {b / a:6.2f}x")


if __name__ == "__main__":
    main()
