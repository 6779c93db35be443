"""``weft serve`` under load, beside the same program called in the process.

    python -m benchmarks.serving              requests per second and latencies
    python -m benchmarks.serving --abuse 600  the same while other clients misbehave

Clients, server and the program share the machine's processors. Good clients keep their
connections and send the next request when they have their answer; every answer is
compared with the program's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import numpy as np

import weft
from weft import nn

SECONDS = 5.0
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"


class Load(NamedTuple):
    """What clients saw."""

    answers: int
    wrong: int
    seconds: float
    times: list[float]

    def line(self, name: str) -> str:
        times = sorted(self.times)
        half, most = (
            times[min(len(times) - 1, int(q * len(times)))] for q in (0.5, 0.99)
        )
        rate = self.answers / self.seconds
        return (
            f"{name:<24}{rate:>10,.0f}{half * 1e3:>11.2f}{most * 1e3:>11.2f}"
            f"{self.wrong:>8}"
        )


def network() -> nn.Module:
    """A network for digits of 8 x 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    ).eval()  # fmt: skip


async def client(
    port: int, requests: list[tuple[bytes, np.ndarray]], until: float, load: list[Load]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times, wrong, k = [], 0, random.randrange(len(requests))
    while time.monotonic() < until:
        text, expected = requests[k % len(requests)]
        k += 1
        began = time.perf_counter()
        writer.write(text)
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(found[1]) if found else 0)
        times.append(time.perf_counter() - began)
        if not head.startswith(b"HTTP/1.1 200"):
            wrong += 1
            continue
        out = np.array(json.loads(body)["outputs"]["out"])
        wrong += not np.allclose(out, expected, rtol=1e-4, atol=1e-5)
    writer.close()
    load.append(Load(len(times), wrong, 0, times))


async def nuisance(port: int, until: float) -> None:
    """Clients that hang, abort, send garbage, or much too much."""
    while time.monotonic() < until:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            kind = random.randrange(5)
            if kind == 0:
                await asyncio.sleep(random.uniform(0, 5))  # says nothing
            elif kind == 1:
                writer.write(
                    b"POST /v1/predict HTTP/1.1\r\nContent-Length: 999\r\n\r\nx"
                )
                await writer.drain()
                await asyncio.sleep(random.uniform(0, 5))  # says half
            elif kind == 2:
                writer.write(random.randbytes(random.randrange(1, 5000)))
                await writer.drain()
            elif kind == 3:
                writer.write(HEAD % (9, b'{"inputs"'))
                await reader.read(200)
            else:
                writer.write(HEAD % (1 << 40, b"x" * 10_000))
                await reader.read(200)
            if random.random() < 0.5:
                writer.transport.abort()
            writer.close()
        except OSError:
            await asyncio.sleep(0.01)


async def load_of(
    port: int, requests: list[tuple[bytes, np.ndarray]], count: int, seconds: float,
    bad: int = 0,
) -> Load:  # fmt: skip
    until, found, began = time.monotonic() + seconds, [], time.perf_counter()
    others = [nuisance(port, until) for _ in range(bad)]
    good = [client(port, requests, until, found) for _ in range(count)]
    await asyncio.gather(*good, *others)
    took = time.perf_counter() - began
    times = [t for one in found for t in one.times]
    answers, wrong = sum(one.answers for one in found), sum(one.wrong for one in found)
    return Load(answers, wrong, took, times)


def resident(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def in_process(program: object, x: np.ndarray, seconds: float) -> Load:
    times, until, began = [], time.monotonic() + seconds, time.perf_counter()
    run = weft.serve.served(program)
    while time.monotonic() < until:
        start = time.perf_counter()
        run([x])
        times.append(time.perf_counter() - start)
    return Load(len(times), 0, time.perf_counter() - began, times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--abuse", type=float, metavar="SECONDS", help="and for how long"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    options = parser.parse_args()
    weft.manual_seed(0)
    net, x = network(), weft.randn(16, 1, 8, 8)
    program = weft.graph.capture(net, x, dynamic={"input": {0: "rows"}})
    path = os.path.join(tempfile.mkdtemp(), "digits.weft")
    weft.save(program, path)
    with weft.no_grad():
        expected = net(x).numpy()
    bodies = [json.dumps({"inputs": [one]}).encode() for one in x.tolist()]
    requests = [
        (HEAD % (len(body), body), out)
        for body, out in zip(bodies, expected, strict=True)
    ]
    print(f"{'':<24}{'answers/s':>10}{'median ms':>11}{'p99 ms':>11}{'wrong':>8}")
    for rows in (1, 16):
        print(
            in_process(program, x[:rows].numpy(), 1.0).line(f"in-process, {rows} rows")
        )
    command = [sys.executable, "-m", "weft", "serve", path, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rsplit(":", 1)[1])
            time.sleep(1)
            if options.abuse is None:
                for count in (1, 8, 64):
                    load = asyncio.run(load_of(port, requests, count, options.seconds))
                    print(load.line(f"{count} clients"), flush=True)
                return
            done = 0.0
            while done < options.abuse:
                part = min(30.0, options.abuse - done)
                load = asyncio.run(load_of(port, requests, 8, part, bad=32))
                done += part
                name = f"8 + 32 bad, {done:.0f} s"
                print(load.line(name), f"{resident(process.pid):.0f} MB", flush=True)
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
