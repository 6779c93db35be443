"""``all_reduce`` from 1 kB to 64 MB in two processes, beside PyTorch's gloo.

    python benchmarks/distributed.py --peer PYTHON    a Python that has PyTorch

One script runs on both, in turns: with ``weft run`` and with ``torchrun``. Times are
the best round's medians; a thread a process.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SIZES = [1 << k for k in range(10, 27, 4)]  # bytes


def measure():
    """In a process: the median time of a call for each size."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    times = {}
    for size in SIZES:
        x = torch.zeros(size // 4)
        found = []
        for _ in range(5 if size > 1 << 20 else 50):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(x)
            found.append(time.perf_counter() - start)
        times[size] = statistics.median(found)
    if dist.get_rank() == 0:
        print("times", json.dumps(times), flush=True)
    dist.destroy_process_group()


def run(command):
    """The times that rank 0 prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = [line for line in found.stdout.splitlines() if "times {" in line]
    if not lines:
        raise SystemExit(found.stderr)
    return {int(k): v for k, v in json.loads(lines[0].split("times ")[1]).items()}


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--peer", help="a Python that has PyTorch")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--processes", type=int, default=2)
    options = options.parse_args()
    here, count = str(pathlib.Path(__file__)), str(options.processes)
    ways = {"weft": [sys.executable, "-m", "weft", "run", "-n", count, here]}
    if options.peer:
        launch = [options.peer, "-m", "torch.distributed.run", "--nproc-per-node"]
        ways["gloo"] = [*launch, count, here]
    best = {}
    for _ in range(options.rounds):
        for name, command in ways.items():
            for size, seconds in run(command).items():
                key = name, size
                best[key] = min(best.get(key, seconds), seconds)
    print(f"{'bytes':>10}" + "".join(f"{name:>12}  GB/s" for name in ways))
    for size in SIZES:
        cells = [best[name, size] for name in ways]
        print(f"{size:>10}" + "".join(
            f"{t * 1e6:>9.0f} µs {size / t / 1e9:>5.2f}" for t in cells
        ))  # fmt: skip


if __name__ == "__main__":
    measure() if "RANK" in os.environ else main()
