"""Train one program of the catalog for a few steps and print its losses and times.

``python one.py NAME`` is PyTorch, ``weft run one.py NAME`` Weft.
"""

import json
import sys
import time
import zlib

import numpy as np
import torch
from catalog import PROGRAMS, squares


def settle(model):
    """Give a model parameters that do not depend on who draws them, and no dropout."""
    for name, p in model.named_parameters():
        first = p.flatten()[:1]
        told = p.numel() != 1 or first.item() in (0.0, 1.0)
        if p.ndim < 2 and told and bool((p == first).all()):
            continue  # a constant: ones of a norm, zeros of a bias
        rng = np.random.default_rng(zlib.crc32(f"{name} {tuple(p.shape)}".encode()))
        fan = int(np.prod(p.shape[1:])) if p.ndim > 1 else p.numel()
        value = np.asarray(rng.normal(size=tuple(p.shape)) / max(fan, 4) ** 0.5)
        with torch.no_grad():
            p.copy_(torch.from_numpy(np.asarray(value, "float32")))
    for module in model.modules():
        if type(module).__name__.startswith("Dropout"):
            module.p = 0.0


def main():
    name, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8
    torch.set_num_threads(1)
    found = PROGRAMS[name][0]()
    model, inputs = found[:2]
    loss_of = found[2] if len(found) > 2 else squares
    settle(model)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    losses, times = [], []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        out = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
        loss = loss_of(out)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
    print("RESULT", json.dumps({"losses": losses, "times": times}))


main()
