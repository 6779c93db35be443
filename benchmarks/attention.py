"""Compiled attention beside PyTorch's, in one run.

    python benchmarks/attention.py [--threads 2] [--heads 48] [--depth 64] [length ...]

Each line is one length, causal or not: GFLOP/s of Weft and of PyTorch and how many
times as fast Weft is, forward alone and forward with backward (two and seven products;
of a causal one, half). Programs are whole: memory for results is part of the time in
both. Times are medians, taken in turns: the thread's own with one thread, so that other
programs on the machine disturb little, else by the clock on the wall. The last columns
are the bytes that a training step of Weft keeps besides operands and results, with the
threads' workspaces, and those that one matrix of scores would take.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before PyTorch starts threads

import numpy as np
import torch

import weft

SECONDS = 1.0  # of timing for each line and library
LENGTHS = (128, 256, 512, 1024, 2048)


def run(T, tensors, g, causal: bool, backward: bool):
    """Attention of a library, and its gradients."""
    attention = T.nn.functional.scaled_dot_product_attention
    if not backward:
        with T.no_grad():
            return attention(*tensors, is_causal=causal)
    out = attention(*tensors, is_causal=causal)
    return out.detach(), *T.autograd.grad(out, tensors, g)


def medians(runs: list[Callable[[], object]], threads: int) -> list[float]:
    """Seconds of each, taken in turns."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    for one in runs:
        one()
        one()
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + SECONDS * len(runs)
    while len(times[0]) < 5 or time.perf_counter() < end:
        for one, taken in zip(runs, times, strict=True):
            start = clock()
            one()
            taken.append(clock() - start)
    return [statistics.median(taken) for taken in times]


def check(ours, theirs) -> None:
    """Both computed the same."""
    for a, b in zip(ours, theirs, strict=True):
        off = np.abs(a.numpy() - b.numpy()).max()
        assert off <= 1e-4 * max(1.0, np.abs(b.numpy()).max()), off


def kept(fn) -> int:
    """Bytes of a compiled program's own memory."""
    native = fn.latest.program
    return native.latest.arena.nbytes + native.latest.jobs.memory.nbytes


def line(length: int, heads: int, depth: int, causal: bool, threads: int) -> str:
    shape = (1, heads, length, depth)
    *us, g = [weft.randn(*shape) for _ in range(4)]
    them = [torch.from_numpy(x.numpy().copy()).requires_grad_() for x in us]
    grad = torch.from_numpy(g.numpy().copy())
    us = [x.requires_grad_() for x in us]
    text, flops = "", 4.0 * heads * length * length * depth / (2 if causal else 1)
    for backward, work in ((False, flops), (True, 3.5 * flops)):
        fn = weft.compile(lambda *x, b=backward: run(weft, x[:3], x[3], causal, b))
        ours = functools.partial(fn, *us, g)
        theirs = functools.partial(run, torch, them, grad, causal, backward)
        if backward:
            check(ours(), theirs())
        else:
            check([ours()], [theirs()])
        mine, peer = medians([ours, theirs], threads)
        rates = f"{work / mine / 1e9:6.0f} {work / peer / 1e9:6.0f}"
        text += f" | {rates}   x {peer / mine:5.2f}"
    scores = heads * length * length * 4
    memory = f"{kept(fn) / 1e6:7.1f} {scores / 1e6:7.1f} MB"
    return f"{length:5} {'causal' if causal else 'whole':6}{text} | {memory}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--heads", type=int, default=48)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("lengths", type=int, nargs="*", default=LENGTHS)
    given = parser.parse_args()
    weft.set_num_threads(given.threads)
    torch.set_num_threads(given.threads)
    print("                 forward: weft torch      | with backward          | memory")
    for length in given.lengths:
        for causal in (False, True):
            sizes = given.heads, given.depth
            print(line(length, *sizes, causal, given.threads), flush=True)


if __name__ == "__main__":
    main()
