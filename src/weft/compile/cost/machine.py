"""The machine's peak, measured once: the roof over every kernel.

    bandwidth    ``a + 2 * b`` on arrays of several sizes, compiled and on all threads
                 as kernels are: bytes a second, from caches or from memory
    peak         independent fused multiply-adds in registers, on all threads

A kernel cannot take less time than its bytes take at that bandwidth, nor than its
operations take at that peak.
"""

from __future__ import annotations

import ctypes
import functools
import math
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from weft.compile.emit.control_flow import F32, i64, loop
from weft.compile.emit.isa import Isa, new_module, prepare_function
from weft.compile.emit.values import Value, fma
from weft.compile.pipeline import KERNEL_PASSES
from weft.compile.program.program import Program, compiled
from weft.compile.targets.cpu.kernel import SIGNATURE
from weft.compile.targets.cpu.object_code import compile_module, host_isa
from weft.core.rows import nbytes, scaled

MOVED = (1 << 16, 1 << 19, 1 << 22, 1 << 25, 1 << 27)  # bytes, of three arrays
CHAINS = 12  # multiply-adds that do not wait for each other
LENGTH = 2048  # of a chain, in one iteration
ITERATIONS = 128  # for each thread


class Machine(NamedTuple):
    """Measured limits of this machine with so many threads."""

    threads: int
    bandwidth: tuple[tuple[int, float], ...]  # (bytes moved, bytes a second)
    peak: float  # float32 operations a second

    def bandwidth_at(self, moved: float) -> float:
        """Bytes a second for a kernel that moves so many, interpolated."""
        sizes, rates = zip(*self.bandwidth, strict=True)
        at = math.log(max(moved, 1))
        return float(np.interp(at, np.log(sizes), rates))

    def least_seconds(self, moved: float, flops: float, itemsize: int = 4) -> float:
        """The time that bytes and operations take at least."""
        computing = flops * itemsize / 4 / self.peak
        return max(moved / self.bandwidth_at(moved), computing)

    def __str__(self) -> str:
        rates = [f"{scaled(rate, 'B/s')} at {nbytes(n)}" for n, rate in self.bandwidth]
        return (
            f"{self.threads} threads, {scaled(self.peak, 'FLOP/s')} (float32), "
            + ", ".join(rates[1:])
        )


def machine() -> Machine:
    """This machine; measured when first asked for each number of threads."""
    from weft.runtime.cpu.pool import get_num_threads

    return _measured(get_num_threads())


@functools.cache
def _measured(threads: int) -> Machine:
    program = _triad()
    rates = [_bandwidth(program, moved) for moved in reversed(MOVED)]
    # Less data is never slower; where it seemed so, threads had started late.
    roof = reversed(list(accumulate(rates, max)))
    bandwidth = tuple(zip(MOVED, roof, strict=True))
    return Machine(threads, bandwidth, _peak(host_isa(), threads))


def _triad() -> Program:
    from weft.core.tensor import Tensor
    from weft.graph.capture import capture

    x = Tensor(np.zeros(4, np.float32))
    dynamic = {"a": {0: "N"}, "b": {0: "N"}}
    graph = capture(lambda a, b: a + 2 * b, x, x, dynamic=dynamic).graph
    return compiled(graph, passes=KERNEL_PASSES)


def _bandwidth(program: Program, moved: int) -> float:
    count = moved // 12
    feeds = [np.ones(count, np.float32) for _ in range(2)]
    executor, steps = program.timed({"N": count})
    rounds = max(3, min(50, (1 << 27) // moved))
    return moved / min(sum(executor.timed(steps, feeds, [])) for _ in range(rounds))


# -- multiply-adds


def _peak(target: Isa, threads: int) -> float:
    lanes = target.lanes(4)
    module = new_module("peak", target)
    _emit_peak(module, target, lanes)
    library = compile_module(module, target)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)
    function = kind(library.address("peak"))
    out = np.zeros((threads * ITERATIONS, lanes), np.float32)
    table = np.array([out.ctypes.data], np.int64).ctypes.data

    def share(thread: int) -> None:  # foreign code runs without the GIL
        first = thread * ITERATIONS
        function(table, None, first, first + ITERATIONS)

    with ThreadPoolExecutor(threads) as pool:
        best = min(_seconds(pool, share, threads) for _ in range(10))
    return 2 * CHAINS * LENGTH * lanes * len(out) / best


def _seconds(pool: ThreadPoolExecutor, share: Any, threads: int) -> float:
    start = time.perf_counter()
    list(pool.map(share, range(threads)))
    return time.perf_counter() - start


def _emit_peak(module: ir.Module, target: Isa, lanes: int) -> None:
    """``out[p] = sum of chains x = x * x' + x'``, for p from begin to end."""
    kind = ir.VectorType(F32, lanes)
    function = ir.Function(module, SIGNATURE, "peak")
    prepare_function(function, target)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    table, _, begin, end = function.args
    out = b.bitcast(b.load(table), kind.as_pointer())
    chains = [b.alloca(kind) for _ in range(CHAINS)]
    factor = ir.Constant(kind, [0.5] * lanes)
    with loop(b, begin, end) as p:
        for k, chain in enumerate(chains):  # in registers, once LLVM is done
            b.store(ir.Constant(kind, [float(k)] * lanes), chain)
        with loop(b, i64(0), i64(LENGTH)):
            for chain in chains:
                b.store(fma(Value(b, b.load(chain)), factor, factor), chain)
        total = functools.reduce(b.fadd, [b.load(chain) for chain in chains])
        b.store(total, b.gep(out, [p]), align=4)
    b.ret_void()
