"""Compiled training steps within budgets: memory and time, beside PyTorch's policies.

    python benchmarks/budget.py                    (torch too: --torch PYTHON)
    python benchmarks/budget.py --models chain --parts 0 0.5 1 --policies keep

"usual" is what a step keeps that was told nothing.

Every cell is a process of its own. Memory is what a step needs beside parameters,
gradients and arguments: of a compiled step, its arena, workspaces and results; of
PyTorch, the most that was resident, as ``checkpoint.py`` measures it. Time is the best
of a few steps, in processor seconds of one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import checkpoint

POLICIES = ("keep", "usual", "selective", "sqrt", "recompute")
PARTS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)  # of the way from least to most


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


MODELS = {
    "chain": checkpoint.chain,
    "resnet50": resnet50,
    "transformer": checkpoint.transformer,
}
checkpoint.MODELS = MODELS


def training(model: str):
    """A step of a model that leaves gradients, and its parameters."""
    import weft
    from weft import nn

    weft.manual_seed(0)
    weft.set_num_threads(1)
    blocks, shape = MODELS[model](nn)
    everything = nn.Sequential(*blocks)
    x = weft.randn(*shape)

    def step(x):
        for p in everything.parameters():
            p.grad = None
        loss = everything(x).square().mean()
        loss.backward()
        return loss

    return everything, step, x


def measure(model: str, memory: str, steps: int) -> dict[str, float]:
    """Memory and time of a compiled step under a policy or within a budget."""
    import weft

    _, step, x = training(model)
    given = int(memory) if memory.isdigit() else memory
    compiled = weft.compile(step, memory=None if memory == "usual" else given)
    start = time.process_time()
    for _ in range(2):
        loss = compiled(x)
    ready = time.process_time() - start
    times = []
    for _ in range(steps):
        start = time.process_time()
        compiled(x)
        times.append(time.process_time() - start)
    (instance,) = compiled.latest.program._instances.values()
    peak = instance.arena.nbytes + instance.jobs.memory.nbytes
    return {
        "peak": peak, "seconds": min(times), "ready": ready, "loss": loss.item(),
    }  # fmt: skip


def bounds(model: str) -> dict[str, float]:
    """The least and the most that a step can need, and what it has besides."""
    import weft
    from weft.compile.pipeline import run as run_passes
    from weft.compile.recompute.budget import Budget
    from weft.compile.recompute.footprint import fixed_bytes
    from weft.graph.capture import capture

    _, step, x = training(model)
    captured = capture(step, x)
    own = {c.variable for c in captured.cells.values() if c.has_memory}
    start = time.process_time()
    budget = Budget(run_passes(captured.graph), own)
    found = {
        "least": budget.least.needs, "most": budget.all.needs,
        "fixed": fixed_bytes(captured, budget.all),
    }  # fmt: skip
    return {
        **found,
        "seconds": time.process_time() - start,
        "version": weft.__version__,
    }


def apart(python: str, *words: str) -> dict[str, float]:
    """A function of this file in a process of its own."""
    command = [python, __file__, "--one", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def table(model: str, given: argparse.Namespace) -> None:
    me, steps = sys.executable, given.steps
    known = apart(me, "bounds", model)
    least, most, fixed = (int(known[k]) for k in ("least", "most", "fixed"))
    print(f"\n{model}: {fixed / 1e6:.0f} MB besides; {most / 1e6:.0f} MB at most, "
          f"{least / 1e6:.0f} MB at least")  # fmt: skip
    base = None
    rows = []
    for policy in given.policies:
        got = apart(me, "weft", model, policy, steps)
        base = base or got["seconds"]
        rows.append((policy, got))
    for part in given.parts:
        limit = round(least + part * (most - least)) + fixed + 64
        got = apart(me, "weft", model, str(limit), steps)
        if got["peak"] > limit - fixed:
            raise SystemExit(f"{model}: {got['peak']} bytes exceed the budget {limit}")
        rows.append((f"{(limit - fixed) / 1e6:.0f} MB", got))
    for name, got in rows:
        show("weft", name, got, base)
    if len({got["loss"] for _, got in rows}) > 1:
        raise SystemExit(f"{model}: results differ")
    base = None
    for policy in checkpoint.POLICIES if given.torch else ():
        got = apart(given.torch, "torch", model, policy, steps)
        base = base or got["seconds"]
        show("torch", policy, got, base)


def show(lib: str, name: str, got: dict[str, float], base: float) -> None:
    memory, took = got["peak"] / 1e6, got["seconds"]
    figures = f"{memory:8.0f} MB {took * 1e3:8.0f} ms {took / base:6.2f}"
    print(f"{lib:6} {name:10} {figures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--parts", nargs="+", type=float, default=PARTS)
    parser.add_argument("--policies", nargs="+", default=POLICIES, choices=POLICIES)
    parser.add_argument("--steps", default="3")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has it")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, *rest = given.one
        if kind == "bounds":
            found = bounds(*rest)
        elif kind == "weft":
            found = measure(rest[0], rest[1], int(rest[2]))
        else:
            found = checkpoint.measure("torch", rest[0], rest[1], int(rest[2]))
        print(json.dumps(found))
        return
    for name in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{name}_NUM_THREADS"] = "1"
    for model in given.models:
        table(model, given)


if __name__ == "__main__":
    main()
