"""Checkpointing policies: memory and time of a training step, beside PyTorch's.

    python benchmarks/checkpoint.py                (needs torch in the environment)
    python benchmarks/checkpoint.py --models chain --lib weft
    python benchmarks/checkpoint.py --deepest 32MB      (how deep a ResNet fits)

Every cell is a process of its own. Memory is the most that the process had resident
during a step, above what it had before (gradients are there already); time is the best
of a few steps, in processor seconds of one thread. Each policy cuts the model into the
same pieces for both:

    keep        nothing is computed again
    blocks      every block is checkpointed
    sqrt        about sqrt(N) segments
    selective   every block, but results of products and convolutions are kept
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import subprocess
import sys
import time

POLICIES = ("keep", "blocks", "sqrt", "selective")
WARM = 12  # steps after which all is loaded and kernels are made


def chain(nn, width=128):
    """64 layers, each a product, a norm and an activation."""
    blocks = [
        nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
        for _ in range(64)
    ]
    return blocks, (4096, width)


def resnet(nn, width, depth):
    """Blocks of two convolutions with norms, as many as asked for."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
            )  # fmt: skip
            self.last = nn.ReLU()

        def forward(self, x):
            return self.last(self.body(x) + x)

    return [Block() for _ in range(depth)]


def resnet50(nn, width=64, batch=8, size=64):
    """The true one: 16 blocks of three convolutions, between a stem and a classifier.

    The stem is pooled on average: PyTorch's and Weft's are alike then.
    """

    class Block(nn.Module):
        def __init__(self, cin, width, stride):
            super().__init__()
            out = 4 * width
            self.body = nn.Sequential(
                nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False),
                nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
            )  # fmt: skip
            self.short = nn.Sequential()
            if stride != 1 or cin != out:
                self.short = nn.Sequential(
                    nn.Conv2d(cin, out, 1, stride, bias=False), nn.BatchNorm2d(out)
                )
            self.last = nn.ReLU()

        def forward(self, x):
            return self.last(self.body(x) + self.short(x))

    stem = nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    )  # fmt: skip
    blocks, cin = [stem], width
    for k, count in enumerate((3, 4, 6, 3)):
        for at in range(count):
            stride = 2 if k and not at else 1
            blocks.append(Block(cin, width << k, stride))
            cin = 4 * (width << k)
    end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))
    return [*blocks, end], (batch, 3, size, size)


def transformer(nn, width=128, heads=4, depth=24, length=128):
    """Pre-norm blocks with attention written out."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )
            self.drop = nn.Dropout(0.1)

        def forward(self, x):
            x = x + self.drop(self.attend(self.first(x)))
            return x + self.drop(self.wide(self.second(x)))

        def attend(self, x):
            b, t, c = x.shape
            parts = (
                self.mix(x).reshape(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
            )
            q, k, v = parts[0], parts[1], parts[2]  # (B, heads, T, C / heads)
            scores = (q @ k.transpose(-2, -1)) * (c // heads) ** -0.5
            mixed = scores.softmax(-1) @ v
            return self.out(mixed.transpose(1, 2).reshape(b, t, c))

    return [Block() for _ in range(depth)], (8, length, width)


MODELS = {"chain": chain, "resnet50": resnet50, "transformer": transformer}


def runner(lib: str, blocks, policy: str):
    """A function from the input to the output, under a policy."""
    api = importlib.import_module(f"{lib}.utils.checkpoint")
    if policy == "keep":
        return lambda x: run_all(blocks, x)
    options = {"use_reentrant": False}
    if policy == "sqrt":
        count = round(len(blocks) ** 0.5)
        return lambda x: api.checkpoint_sequential(blocks, count, x, **options)
    if policy == "selective":
        options |= {"policy": "selective"} if lib == "weft" else selective(api)

    def run(x):
        for block in blocks:
            x = api.checkpoint(block, x, **options)
        return x

    return run


def selective(api):
    import torch

    ops = torch.ops.aten
    kept = [ops.mm.default, ops.addmm.default, ops.bmm.default, ops.convolution.default]
    return {
        "context_fn": lambda: api.create_selective_checkpoint_contexts(kept),
    }


def run_all(blocks, x):
    for block in blocks:
        x = block(x)
    return x


def resident(field: str) -> int:
    """Bytes of this process in memory, now (VmRSS) or at most (VmHWM)."""
    with open("/proc/self/status") as file:
        line = next(row for row in file if row.startswith(field))
    return int(line.split()[1]) * 1024


def give_back(lib: str) -> None:
    """Return memory that is free, but kept for later, to the system."""
    gc.collect()
    if lib == "weft":
        importlib.import_module("weft.runtime.cpu.buffers").release()
    ctypes.CDLL(None).malloc_trim(0)


def measure(lib: str, model: str, policy: str, steps: int) -> dict[str, float]:
    """Peak memory and time of a step."""
    library = importlib.import_module(lib)
    nn = importlib.import_module(f"{lib}.nn")
    library.manual_seed(0)
    library.set_num_threads(1)
    blocks, shape = MODELS[model](nn)
    everything = nn.Sequential(*blocks)
    run = runner(lib, blocks, policy)
    x = library.randn(*shape)

    def step(x):
        run(x).square().mean().backward()

    for p in everything.parameters():
        p.grad = library.zeros_like(p)
    for _ in range(WARM):
        step(x)
    give_back(lib)
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forget the peak
    step(x)
    peak = resident("VmHWM") - before
    times = []
    for _ in range(steps):
        start = time.process_time()
        step(x)
        times.append(time.process_time() - start)
    return {"peak": peak, "seconds": min(times)}


def deepest(limit: str) -> None:
    """The most residual blocks that can be trained under a limit, by policy."""
    import weft

    first = 0
    print(f"blocks that fit {limit}, and processor time of a step a block")
    for policy in POLICIES:
        found = 0
        step = 64
        while step:
            if fits(limit, policy, found + step):
                found += step
            else:
                step //= 2
        first = first or found
        took = seconds_of(policy, min(found, 64))
        print(f"{policy:10} {found:5} ({found / first:.1f} x) {took * 1e3:7.2f} ms")
    weft.set_memory_limit(None)


def training(policy: str, depth: int):
    """A step of a small ResNet."""
    import weft

    blocks = resnet(weft.nn, width=8, depth=depth)
    run = runner("weft", blocks, policy)
    x = weft.randn(8, 8, 16, 16)
    return lambda: run(x).square().mean().backward()


def fits(limit: str, policy: str, depth: int) -> bool:
    import weft

    weft.set_memory_limit(None)
    step = training(policy, depth)
    weft.set_memory_limit(limit)
    try:
        step()
    except weft.errors.AllocationError:
        return False
    return True


def seconds_of(policy: str, depth: int) -> float:
    import weft

    weft.set_memory_limit(None)
    step = training(policy, depth)
    times = []
    for _ in range(3):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return min(times) / depth


def apart(*words: str) -> dict[str, float]:
    """``measure`` in a process of its own."""
    command = [sys.executable, __file__, "--one", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--lib", nargs="+", default=["weft", "torch"])
    parser.add_argument("--steps", default="3")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--deepest", metavar="LIMIT")
    given = parser.parse_args()
    if given.deepest:
        deepest(given.deepest)
        return
    if given.one:
        lib, model, policy, steps = given.one
        print(json.dumps(measure(lib, model, policy, int(steps))))
        return
    for name in ("OMP", "OPENBLAS"):
        os.environ[f"{name}_NUM_THREADS"] = "1"
    head = "".join(f"{lib:>12} MB {'ms':>8} {'time':>6}" for lib in given.lib)
    print(f"{'model':12} {'policy':10}{head}")
    for model in given.models:
        base: dict[str, float] = {}
        for policy in POLICIES:
            cells = ""
            for lib in given.lib:
                got = apart(lib, model, policy, given.steps)
                first = base.setdefault(lib, got["seconds"])
                cells += f"{got['peak'] / 1e6:15.0f} {got['seconds'] * 1e3:8.0f} "
                cells += f"{got['seconds'] / first:6.2f}"
            print(f"{model:12} {policy:10}{cells}", flush=True)


if __name__ == "__main__":
    main()
