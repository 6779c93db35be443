"""Steps of training as planned and as measured, on 2 and 4 processes of this machine.

    python benchmarks/plans.py

Each process measures the machine with the others, plans, and runs the best plan of each
kind: data, tensor and pipeline parallel, and what is in parts. The table has the time
of a step as predicted and as measured (the best of several, of the slowest process),
the most memory of a process over the plan's, and whether each process sent to each
other one as many bytes as theory says. Plans are in the order of their predictions.
"""

import argparse
import gc
import json
import math
import os
import pathlib
import subprocess
import sys
import time

STEPS = 8


def made(kind):
    """A model and a whole batch."""
    import weft
    from weft import nn

    weft.manual_seed(0)
    if kind == "gpt":
        net = weft.models.GPT(vocab=256, context=64, width=192, heads=6, layers=6)
        return net, *(weft.randint(0, 256, (16, 64)) for _ in range(2))
    width, rows = {"mlp": (512, 512), "wide": (1024, 64)}[kind]
    layers = [m for _ in range(8) for m in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers), weft.randn(rows, width), weft.randint(0, 9, (rows,))


def loss_of(out, target):
    from weft.nn import functional as F

    return F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))


def planned(kind, cluster):
    import weft

    net, x, t = made(kind)
    optimizer = weft.optim.AdamW(net.parameters(), lr=1e-3)
    plan = weft.parallel(
        net, (x, t), loss_fn=loss_of, optimizer=optimizer, cluster=cluster
    )
    return plan, x, t


def kinds_of(plan):
    """The best plan of each kind, the fastest first."""
    best = {}
    for strategy, estimate in plan.found:
        key = strategy.data, strategy.tensor, strategy.pipeline, strategy.sharding
        best.setdefault(key, (strategy, estimate))
    return list(best.values())


def measured(kind, strategy):
    """The time of a step, the most memory, and whether bytes are those of theory."""
    import weft
    import weft.distributed as dist
    from weft.distributed.planning import Cluster, traffic

    gc.collect()
    others = weft.memory.live().total
    plan, x, t = planned(kind, Cluster(flops=1e9, near=1e9))  # of which nothing is used
    work = plan.model.work(strategy.tensor)
    step = plan.training_step(strategy=strategy)
    del plan
    links = dist.groups.world().links
    best = math.inf
    for _ in range(STEPS):
        dist.barrier()
        start = time.perf_counter()
        step(x, t)
        seconds = weft.tensor([time.perf_counter() - start])
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        best = min(best, seconds.item())
    before = {rank: link.sent for rank, link in links.links.items()}
    gc.collect()
    with weft.memory.record() as memory:
        step(x, t)
    sent = {rank: link.sent - before[rank] for rank, link in links.links.items()}
    theory = traffic(work, strategy)[links.rank]
    exact = all(theory[rank] == size for rank, size in sent.items())
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, [memory.peak - others, exact])
    peaks, right = zip(*every, strict=True)
    return best, max(peaks), all(right)


def worker(kind):
    """In a process: all kinds of plans, one after the other."""
    import weft.distributed as dist

    dist.init_process_group()
    plan, _, _ = planned(kind, None)
    kinds = kinds_of(plan)
    del plan
    rows = []
    for strategy, estimate in kinds:
        seconds, peak, exact = measured(kind, strategy)
        rows.append(
            [strategy, estimate.seconds, seconds, peak / estimate.memory, exact]
        )
    if dist.get_rank() == 0:
        print("rows", json.dumps(rows), flush=True)
    dist.destroy_process_group()


def shown(rows):
    """The table, and how the order of the three best ones compares."""
    names = "data tensor pipeline microbatch sharding predicted measured ratio memory"
    print("  ".join(f"{name:>10}" for name in [*names.split(), "bytes"]))
    for strategy, predicted, seconds, memory, exact in rows:
        data, tensor, pipeline, microbatch, _, sharding, *_ = strategy
        cells = [
            data, tensor, pipeline, microbatch, sharding, f"{predicted * 1e3:.1f} ms",
            f"{seconds * 1e3:.1f} ms", f"{seconds / predicted:.2f}", f"{memory:.3f}",
            "exact" if exact else "differ",
        ]  # fmt: skip
        print("  ".join(f"{cell!s:>10}" for cell in cells))
    order = sorted(range(len(rows)), key=lambda k: rows[k][2])
    print(f"the three fastest as measured are numbers {[k + 1 for k in order[:3]]}")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kinds", default="gpt,mlp,wide")
    options.add_argument("--processes", default="2,4")
    options = options.parse_args()
    for count in options.processes.split(","):
        for kind in options.kinds.split(","):
            command = [sys.executable, "-m", "weft", "run", "-n", count,
                       str(pathlib.Path(__file__))]  # fmt: skip
            environment = {**os.environ, "BENCH_KIND": kind, "WEFT_NUM_THREADS": "1",
                           "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
            found = subprocess.run(
                command, capture_output=True, text=True, env=environment
            )
            lines = [line for line in found.stdout.splitlines() if "rows [" in line]
            if not lines:
                raise SystemExit(found.stderr)
            rows = json.loads(lines[0].split("rows ", 1)[1])
            print(f"\n{kind} on {count} processes")
            shown(rows)


if __name__ == "__main__":
    worker(os.environ["BENCH_KIND"]) if "RANK" in os.environ else main()
