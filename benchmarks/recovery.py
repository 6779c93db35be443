"""Training under losses: what snapshots cost, how long a loss takes, and a long run.

    python -m benchmarks.recovery [--steps 10000] [--between 200] [--ranks 4]

Prints the times of a step and of its snapshot, for a perceptron and a GPT. Then the
perceptron is trained undisturbed, and again with a rank killed every so many steps on
average: the seconds from a kill to the next step, the largest memory of a rank, and
whether both runs end with the same bits.
"""

import argparse
import os
import pathlib
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
import zlib

BLOCK = 9  # snapshots that are timed


def network(kind):
    """A network, and the loss of a step."""
    import weft
    from weft import nn

    weft.manual_seed(0)
    loss = nn.functional.cross_entropy
    if kind == "gpt":
        x = weft.randint(0, 256, (4, 256))
        return weft.models.GPT(256), lambda net, step: loss(
            net(x).reshape(-1, 256), x.reshape(-1)
        )
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    images, labels = weft.randn(16, 64, 784), weft.randint(0, 10, (16, 64))
    return net, lambda net, step: loss(net(images[step % 16]), labels[step % 16])


def train(kind, steps):
    """What one rank does."""
    import weft
    import weft.distributed as dist
    from weft import nn, optim

    dist.init_process_group()
    net, loss_of = network(kind)
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = optim.AdamW(net.parameters(), lr=1e-4)

    @weft.compile
    def update(step):
        optimizer.zero_grad()
        loss = loss_of(net, step)
        loss.backward()
        optimizer.step()
        return loss

    recovery = dist.Recovery({"net": net, "optimizer": optimizer})
    first, times = recovery.restore(), []
    for step in recovery.steps(steps):
        start = time.perf_counter()
        loss = update(weft.tensor(step))
        times.append(time.perf_counter() - start)
        if step == first:
            print(f"begins {time.time()}", flush=True)
    check = 0
    for p in net.parameters():
        check = zlib.crc32(p.detach().numpy().tobytes(), check)
    print(f"ends {check} with {loss.item()}", flush=True)
    kept = []
    for _ in range(BLOCK):
        dist.barrier()
        start = time.perf_counter()
        recovery.keep()
        kept.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"times {statistics.median(times)} {statistics.median(kept)} {peak}")
    dist.destroy_process_group()


def started(ranks, kind, steps):
    command = [
        sys.executable, "-m", "weft", "run", "-n", str(ranks), "--max-restarts",
        str(steps), str(pathlib.Path(__file__)), "--rank", kind, "--steps", str(steps),
    ]  # fmt: skip
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


class Run:
    """A run of all ranks, whose output is read as it comes."""

    def __init__(self, ranks, kind, steps, pauses=None):
        self.process = started(ranks, kind, steps)
        self.begun, self.ends, self.times, self.waits = [], set(), [], []
        killer = threading.Thread(target=self.kill, args=(pauses,), daemon=True)
        killer.start()
        for line in self.process.stdout:
            word, *rest = line.split()[1:]
            if word == "begins" and line.startswith("[0]"):
                self.begun.append(float(rest[0]))
            elif word == "ends":
                self.ends.add(" ".join(rest))
            elif word == "times":
                self.times.append([float(one) for one in rest])
        self.status = self.process.wait()
        killer.join(2)

    def kill(self, pauses):
        """Kill a rank after each pause, counted from where training goes on."""
        draw = random.Random(0)
        for number, pause in enumerate(pauses or ()):
            while len(self.begun) <= number:
                time.sleep(0.01)
            time.sleep(pause)
            if self.ends or self.process.poll() is not None:
                return
            children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
            with open(children) as file:
                pids = [int(pid) for pid in re.findall(r"\d+", file.read())]
            killed = time.time()
            os.kill(draw.choice(pids), signal.SIGKILL)
            while len(self.begun) <= number + 1:
                time.sleep(0.01)
            self.waits.append(self.begun[number + 1] - killed)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--steps", type=int, default=10000)
    options.add_argument("--between", type=int, default=200)
    options.add_argument("--rank", help="be a rank that trains this network")
    options = options.parse_args()
    if options.rank:
        return train(options.rank, options.steps)
    for kind, steps in (("mlp", 200), ("gpt", 14)):
        step, keep, _ = Run(options.ranks, kind, steps).times[0]
        print(f"{kind}: step {1e3 * step:.2f} ms, snapshot {1e3 * keep:.2f} ms "
              f"({keep / step:.1%})", flush=True)  # fmt: skip
    start = time.time()
    whole = Run(options.ranks, "mlp", options.steps)
    seconds = (time.time() - start) / options.steps * options.between
    draw = random.Random(1)
    pauses = [draw.expovariate(1 / seconds) for _ in range(options.steps)]
    lossy = Run(options.ranks, "mlp", options.steps, pauses)
    print(f"{options.steps} steps of {options.ranks} ranks, {len(lossy.waits)} killed; "
          f"status {whole.status} and {lossy.status}")  # fmt: skip
    print("the same bits" if whole.ends == lossy.ends else "OTHER BITS")
    print(f"from a kill to the next step: {statistics.median(lossy.waits):.1f} s, at "
          f"most {max(lossy.waits):.1f}")  # fmt: skip
    for name, one in (("undisturbed", whole), ("with kills", lossy)):
        print(f"largest rank {name}: {max(peak for *_, peak in one.times):.0f} MB")
    return None


if __name__ == "__main__":
    main()
