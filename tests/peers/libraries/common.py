"""Helpers of the programs in this folder, which PyTorch and Weft run unchanged.

A program declares cases: functions that return arrays by name. ``main`` runs one case
after another and writes what came out, or the error, into a file.
"""

from __future__ import annotations

import pickle
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Declare a case: a function that returns values to compare."""
    CASES[function.__name__] = function
    return function


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(*shape: int, seed: int = 0) -> Any:
    """A float32 tensor of NumPy's random numbers."""
    return torch.from_numpy(rng(seed).standard_normal(shape).astype(np.float32))


def integers(high: int, *shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(rng(seed).integers(0, high, shape))


def fill(module: Any, seed: int = 0, scale: float = 0.3) -> Any:
    """Give a module parameters and buffers that depend on names and NumPy alone."""
    with torch.no_grad():
        for index, (_, p) in enumerate(sorted(dict(module.named_parameters()).items())):
            values = rng(seed + index).standard_normal(tuple(p.shape)) * scale
            if p.dim() == 1:
                values = 1 + 0.1 * values
            p.copy_(torch.from_numpy(np.asarray(values)).to(p.dtype))
    return module


def plain(value: Any) -> Any:
    """A value without tensors: what two processes can compare."""
    if isinstance(value, torch.Tensor):
        return (
            value.detach()
            .to(torch.float64 if value.is_floating_point() else value.dtype)
            .numpy()
        )
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, complex, str, np.ndarray)):
        return value
    raise TypeError(f"expected tensors, numbers or texts, got {type(value).__name__}")


def gradients(module: Any) -> dict[str, Any]:
    return {n: p.grad for n, p in module.named_parameters() if p.grad is not None}


def train(
    module: Any, loss: Callable[[Any], Any], steps: int = 3, lr: float = 1e-3
) -> Any:
    """The first gradients, and losses of some steps of AdamW."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=lr)
    losses, first = [], None
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(module)
        value.backward()
        first = first or {n: g.clone() for n, g in gradients(module).items()}
        optimizer.step()
        losses.append(value.item())
    return {"losses": losses, "gradients": first}


def main() -> None:
    """Run all cases, or those named, and write their outcomes to the file given."""
    path, *names = sys.argv[1:]
    outcomes = {}
    for name, function in CASES.items():
        if names and name not in names:
            continue
        started = time.perf_counter()
        try:
            outcomes[name] = ("ok", plain(function()))
        except Exception:
            outcomes[name] = ("error", traceback.format_exc())
        print(
            f"{name}: {outcomes[name][0]} {time.perf_counter() - started:.2f} s",
            flush=True,
        )
        if outcomes[name][0] == "error":
            print(outcomes[name][1], flush=True)
    with open(path, "wb") as file:
        pickle.dump(outcomes, file)
