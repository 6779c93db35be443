"""Pushes and pulls of parameter servers, beside what the sockets carry.

    python benchmarks/parameter_server.py                 10 MB, and rows of a table
    python benchmarks/parameter_server.py --servers 2 --workers 2

A step pushes gradients and pulls values. Servers log what is pushed, and move the
parameters with plain SGD. The sockets' rate is that of two processes that send one
another as many bytes, without anything else. Medians of the best round.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

DENSE = 10_000_000  # bytes
ROWS, WIDTH, TABLE = 2000, 64, 10_000_000
HOT = 20_000  # rows that batches have
STEPS = 30


def timed(work, count=STEPS):
    """The median time of a call."""
    for _ in range(3):
        work()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure():
    """In a worker: the median times of a dense step, and of a lookup and its push."""
    import numpy as np

    import weft
    from weft import nn, optim
    from weft.distributed import parameter_server

    store = parameter_server.connect()
    p = nn.Parameter(weft.zeros(DENSE // 4))
    table = parameter_server.Embedding(TABLE, WIDTH, std=0.01)
    optimizer = parameter_server.Optimizer(store, [p, table.weight], optim.SGD, lr=0.1)
    p.grad = weft.ones(DENSE // 4)
    times = {"dense": timed(optimizer.step)}
    p.grad = None
    rng = np.random.default_rng(store.rank)

    def rows():
        table.lookup(weft.from_numpy(rng.integers(0, HOT, ROWS)))

    def pushed():
        values, _ = table.lookup(weft.from_numpy(rng.integers(0, HOT, ROWS)))
        values.grad = weft.ones_like(values)
        optimizer.push()

    for _ in range(40):  # so that servers have nearly all of the rows
        pushed()
    times["rows and push"] = timed(pushed)
    with weft.no_grad():
        times["rows"] = timed(rows)
    if store.rank == 0:
        print("times", json.dumps(times), flush=True)
    store.close()


def weft_times(workers, servers):
    """What worker 0 measures."""
    here = str(pathlib.Path(__file__))
    command = [sys.executable, "-m", "weft", "run", "-n", str(workers)]
    command += ["--servers", str(servers), here]
    found = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in found.stdout.splitlines() if "times {" in line]
    if not lines:
        raise SystemExit(found.stderr)
    return json.loads(lines[0].split("times ")[1])


def echo(server):
    """Take as many bytes as there are, and send as many back."""
    channel, _ = server.accept()
    buffer = bytearray(DENSE)
    with channel:
        while fill(channel, buffer):
            channel.sendall(buffer)


def fill(channel, buffer):
    view = memoryview(buffer)
    while view:
        count = channel.recv_into(view)
        if not count:
            return False
        view = view[count:]
    return True


def socket_time():
    """The median time in which 10 MB go to another process and come back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if not child:
            echo(server)
            os._exit(0)
        buffer = bytearray(DENSE)
        with socket.create_connection(server.getsockname()) as channel:

            def both():
                channel.sendall(buffer)
                fill(channel, buffer)

            found = timed(both)
        os.waitpid(child, 0)
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--servers", type=int, default=1)
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    plain, best = [], {}
    for _ in range(options.rounds):
        plain.append(socket_time())
        for name, seconds in weft_times(options.workers, options.servers).items():
            best[name] = min(best.get(name, seconds), seconds)
    rate = 2 * DENSE / min(plain)
    print(f"sockets alone: {rate / 1e9:.2f} GB/s")
    row = WIDTH * 4 + 8
    sizes = {
        "dense": 2 * DENSE,
        "rows": ROWS * row,
        "rows and push": 2 * ROWS * row,
    }
    print(f"{'a step of':<16}{'ms':>8}{'per s':>10}{'GB/s':>8}{'of sockets':>12}")
    for name, seconds in best.items():
        carried = sizes[name] / seconds
        print(
            f"{name:<16}{seconds * 1e3:>8.2f}{1 / seconds:>10.1f}{carried / 1e9:>8.2f}"
            f"{carried / rate:>12.0%}"
        )


if __name__ == "__main__":
    measure() if "WEFT_ROLE" in os.environ else main()
