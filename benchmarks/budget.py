"""Compiled training steps within budgets: memory and time, beside PyTorch's policies.

    python benchmarks/budget.py                    (torch too: --torch PYTHON)
    python benchmarks/budget.py --models chain --parts 0 0.5 1 --policies keep
    python benchmarks/budget.py --deepest 16MB     (how deep a ResNet fits)

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


MODELS = checkpoint.MODELS


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


def deep(depth: int):
    """A step of the residual network of ``checkpoint.py --deepest``, and its input."""
    import weft

    net = weft.nn.Sequential(*checkpoint.resnet(weft.nn, width=8, depth=depth))

    def step(x):
        for p in net.parameters():
            p.grad = None
        net(x).square().mean().backward()

    return step, weft.randn(8, 8, 16, 16)


def deepest(limit: str) -> None:
    """The most residual blocks whose compiled step fits a limit, and their time.

    Which fit is planned. The deepest of each policy is run.
    """
    import weft

    weft.set_num_threads(1)
    print(f"blocks that fit {limit}, and processor time of a step a block")
    first, base = 0, 0.0
    for name, memory in (("keep", "keep"), ("usual", None), ("budget", limit)):
        found = most(lambda depth, memory=memory: may(limit, depth, memory))
        first = first or found
        step, x = deep(found)
        compiled = weft.compile(step, memory=memory)
        times = []
        for _ in range(4):
            start = time.process_time()
            compiled(x)
            times.append(time.process_time() - start)
        took = min(times) / found
        base = base or took
        print(f"{name:10} {found:5} ({found / first:.1f} x) {took * 1e3:7.2f} ms "
              f"({took / base:.2f} x)", flush=True)  # fmt: skip


def may(limit: str, depth: int, memory: str | None) -> bool:
    """Whether a step of so many blocks fits, by its plan."""
    import weft

    step, x = deep(depth)
    try:
        return weft.plan(step, x, memory=memory).fits(limit)
    except weft.errors.AllocationError:
        return False


def most(fits) -> int:
    """The largest number that fits, to within a twentieth."""
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > max(low // 20, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


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
    parser.add_argument("--deepest", metavar="LIMIT")
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
    if given.deepest:
        deepest(given.deepest)
        return
    for name in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{name}_NUM_THREADS"] = "1"
    for model in given.models:
        table(model, given)


if __name__ == "__main__":
    main()
