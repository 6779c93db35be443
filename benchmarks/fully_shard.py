"""A training step with ``fully_shard`` in two processes, beside PyTorch's over gloo.

    python benchmarks/fully_shard.py --peer PYTHON    a Python that has PyTorch

One script runs on both, in turns: with ``weft run`` and with ``torchrun``, eager; with
Weft also compiled. Six blocks of layer norm and two linear layers, each sharded, and
AdamW. Times are the best round's medians; a thread a process.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

WIDTH, BLOCKS, ROWS = 256, 6, 256


def measure():
    """In a process: the median time of a step."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.up, self.down = (
                nn.Linear(WIDTH, 4 * WIDTH),
                nn.Linear(4 * WIDTH, WIDTH),
            )

        def forward(self, x):
            return x + self.down(torch.relu(self.up(self.norm(x))))

    net = nn.Sequential(*[Block() for _ in range(BLOCKS)])
    for block in net:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.randn(ROWS, WIDTH)

    def step():
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    times = {}
    ways = {"eager": step}
    if os.environ.get("BENCH_COMPILED"):
        ways["compiled"] = torch.compile(step)
    for name, way in ways.items():
        for _ in range(3):
            way()
        found = []
        for _ in range(15):
            dist.barrier()
            start = time.perf_counter()
            way()
            found.append(time.perf_counter() - start)
        times[name] = statistics.median(found)
    if dist.get_rank() == 0:
        print("times", json.dumps(times), flush=True)
    dist.destroy_process_group()


def run(command, compiled):
    """The times that rank 0 prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if compiled:
        environment["BENCH_COMPILED"] = "1"
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = [line for line in found.stdout.splitlines() if "times {" in line]
    if not lines:
        raise SystemExit(found.stderr)
    return json.loads(lines[0].split("times ")[1])


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--peer", help="a Python that has PyTorch")
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    here = str(pathlib.Path(__file__))
    ways = {"weft": [sys.executable, "-m", "weft", "run", "-n", "2", here]}
    if options.peer:
        launch = [options.peer, "-m", "torch.distributed.run", "--nproc-per-node"]
        ways["PyTorch"] = [*launch, "2", here]
    best = {}
    for _ in range(options.rounds):
        for name, command in ways.items():
            for way, seconds in run(command, name == "weft").items():
                key = f"{name}, {way}"
                best[key] = min(best.get(key, seconds), seconds)
    for name, seconds in best.items():
        print(f"{name:>20} {seconds * 1e3:>8.1f} ms")


if __name__ == "__main__":
    measure() if "RANK" in os.environ else main()
