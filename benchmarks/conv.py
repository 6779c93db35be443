"""Generated convolutions and their gradients beside PyTorch's (oneDNN), in one run.

    python benchmarks/conv.py [--threads 2] [network ...]

Each line is one convolution of a network: GFLOP/s of Weft and of PyTorch and how many
times as fast Weft is, for the result, the input's and the weights' gradient. Times are
medians, taken in turns: the thread's own with one thread, so that other programs on
the machine disturb little, else by the clock on the wall. The last line of a network
weighs each by how often the network has it. Threads sleep while they wait: else those
of the one library would disturb the other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before PyTorch starts threads

import numpy as np
import torch

from weft.compile.targets.cpu.convolution.arrays import compiled
from weft.compile.targets.cpu.convolution.job_builder import Plan
from weft.compile.targets.cpu.convolution.shape import shape_of
from weft.compile.targets.cpu.object_code import host_isa
from weft.runtime.cpu import pool

SECONDS = 0.3  # of timing for each convolution and library
KINDS = ("forward", "input_grad", "weight_grad")


class Layer(NamedTuple):
    """A square convolution, and how many of them a network has."""

    channels: int
    size: int
    filters: int
    kernel: int
    stride: int
    count: int
    groups: int = 1

    def __str__(self) -> str:
        kernel = f"{self.kernel}x{self.kernel}" + f"/{self.stride}" * (self.stride > 1)
        groups = f" g{self.groups}" if self.groups > 1 else ""
        return f"{self.channels}x{self.size} -> {self.filters} {kernel}{groups}"


RESNET18 = [
    Layer(3, 32, 64, 3, 1, 1), Layer(64, 32, 64, 3, 1, 4), Layer(64, 32, 128, 3, 2, 1),
    Layer(64, 32, 128, 1, 2, 1), Layer(128, 16, 128, 3, 1, 3),
    Layer(128, 16, 256, 3, 2, 1), Layer(128, 16, 256, 1, 2, 1),
    Layer(256, 8, 256, 3, 1, 3), Layer(256, 8, 512, 3, 2, 1),
    Layer(256, 8, 512, 1, 2, 1), Layer(512, 4, 512, 3, 1, 3),
]  # fmt: skip
RESNET50 = [
    Layer(3, 224, 64, 7, 2, 1), Layer(64, 56, 64, 1, 1, 1), Layer(64, 56, 64, 3, 1, 3),
    Layer(64, 56, 256, 1, 1, 4), Layer(256, 56, 64, 1, 1, 2),
    Layer(256, 56, 128, 1, 1, 1), Layer(128, 56, 128, 3, 2, 1),
    Layer(256, 56, 512, 1, 2, 1), Layer(128, 28, 512, 1, 1, 4),
    Layer(512, 28, 128, 1, 1, 3), Layer(128, 28, 128, 3, 1, 3),
    Layer(512, 28, 256, 1, 1, 1), Layer(256, 28, 256, 3, 2, 1),
    Layer(512, 28, 1024, 1, 2, 1), Layer(256, 14, 1024, 1, 1, 6),
    Layer(1024, 14, 256, 1, 1, 5), Layer(256, 14, 256, 3, 1, 5),
    Layer(1024, 14, 512, 1, 1, 1), Layer(512, 14, 512, 3, 2, 1),
    Layer(1024, 14, 2048, 1, 2, 1), Layer(512, 7, 2048, 1, 1, 3),
    Layer(2048, 7, 512, 1, 1, 2), Layer(512, 7, 512, 3, 1, 2),
]  # fmt: skip
GROUPED = [
    Layer(32, 112, 32, 3, 1, 1, 32), Layer(96, 112, 96, 3, 2, 1, 96),
    Layer(192, 28, 192, 3, 1, 1, 192), Layer(576, 14, 576, 3, 1, 1, 576),
    Layer(128, 56, 128, 3, 1, 1, 32), Layer(512, 14, 512, 3, 1, 1, 32),
]  # fmt: skip
NETWORKS = {
    "resnet18-32": (32, RESNET18),
    "resnet50-1": (1, RESNET50),
    "resnet50-8": (8, RESNET50),
    "grouped-8": (8, GROUPED),
}


def weft_run(kind: str, shape: object, arrays: list[np.ndarray], threads: int):
    """A call that carries out a plan, with its memory made before."""
    code = compiled("float32", host_isa())
    plan: Plan = code.plan(kind, shape, threads)
    memory = np.empty(threads * plan.workspace + 64, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 64
    table = np.array(plan.jobs)
    for field, array in zip(plan.pointers, arrays, strict=True):
        table[:, field] = array.ctypes.data
    table[:, -2:] = start, plan.workspace
    address = code.address(plan.function)
    places = [row.ctypes.data for row in table]
    shared = pool.default()

    def run(held: object = (memory, table, plan, arrays)) -> None:
        for place in places:
            shared.run(address, place, plan.tasks)

    return run


def medians(runs: list[Callable[[], object]], threads: int) -> list[float]:
    """Seconds of each, taken in turns."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    start = time.perf_counter()
    for run in runs:
        run()
        run()
    guess = (time.perf_counter() - start) / (2 * len(runs))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(max(5, min(51, int(SECONDS / guess)))):
        for run, taken in zip(runs, times, strict=True):
            start = clock()
            run()
            taken.append(clock() - start)
    return [statistics.median(taken) for taken in times]


def measure(layer: Layer, batch: int, threads: int) -> list[list[float]]:
    """Seconds of Weft and PyTorch for each kind."""
    stride, pad = (layer.stride,) * 2, layer.kernel // 2
    x = torch.randn(batch, layer.channels, layer.size, layer.size)
    each = layer.channels // layer.groups
    w = torch.randn(layer.filters, each, layer.kernel, layer.kernel)
    options = (stride, (pad, pad), (1, 1))
    want = torch.nn.functional.conv2d(x, w, None, *options, layer.groups)
    y = torch.randn_like(want)
    shape = shape_of(x.shape, w.shape, stride, ((pad, pad),) * 2, (1, 1), layer.groups)
    outs = [np.empty(t.shape, np.float32) for t in (want, x, w)]
    given = [(x, w), (y, w), (x, y)]

    def backward(*mask: bool) -> list[torch.Tensor]:
        return torch.ops.aten.convolution_backward(
            y, x, w, None, *options, False, (0, 0), layer.groups, mask
        )

    theirs = [
        lambda: torch.nn.functional.conv2d(x, w, None, *options, layer.groups),
        lambda: backward(True, False, False)[0],
        lambda: backward(False, True, False)[1],
    ]
    found = []
    for kind, pair, out, other in zip(KINDS, given, outs, theirs, strict=True):
        arrays = [t.numpy() for t in pair] + [out]
        found.append(medians([weft_run(kind, shape, arrays, threads), other], threads))
        reference = other().numpy()
        scale = np.abs(reference).max()
        np.testing.assert_allclose(out, reference, rtol=1e-3, atol=1e-4 * scale)
    return found


def network(name: str, threads: int) -> None:
    batch, layers = NETWORKS[name]
    print(f"-- {name}, threads {threads}:  " + "   ".join(KINDS))
    total = np.zeros((3, 2))
    for layer in layers:
        times = np.array(measure(layer, batch, threads))
        total += layer.count * times
        pad = layer.kernel // 2
        pixels = ((layer.size + 2 * pad - layer.kernel) // layer.stride + 1) ** 2
        k = layer.channels // layer.groups * layer.kernel**2
        flops = 2e-9 * batch * pixels * layer.filters * k
        text = "   ".join(
            f"{flops / own:6.1f} {flops / other:6.1f} x {other / own:4.2f}"
            for own, other in times
        )
        print(f"{layer!s:30} {text}", flush=True)
    text = "   ".join(
        f"{1e3 * own:5.1f} {1e3 * other:5.1f}ms x {other / own:4.2f}"
        for own, other in total
    )
    print(f"{'all of the network':30} {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("networks", nargs="*", help=f"some of {', '.join(NETWORKS)}")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    pool.set_num_threads(given.threads)
    for name in given.networks or NETWORKS:
        network(name, given.threads)


if __name__ == "__main__":
    main()
