"""Generated matrix products beside NumPy's (OpenBLAS) and PyTorch's, in one run.

    python benchmarks/gemm.py [part ...]      (PyTorch is left out if it is not there)

Each line gives GFLOP/s of each library (medians of timings taken in turns) and how
many times as fast as the faster peer Weft is. One thread each, timed by the thread's
own clock, so that other programs on the machine disturb little; `threads` gives the
best by the clock on the wall.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from llvmlite import ir

import weft
from weft.compile.emit.control_flow import F32, VOID, function, i64
from weft.compile.emit.flow import carry
from weft.compile.emit.isa import new_module, prepare_function
from weft.compile.emit.values import PTR, Pointer, Value, fma
from weft.compile.targets.cpu.matmul.arrays import Gemm, compiled
from weft.compile.targets.cpu.matmul.kinds import RESULTS
from weft.compile.targets.cpu.matmul.tasks import Split, split
from weft.compile.targets.cpu.object_code import compile_module, host_isa  # fmt: skip
from weft.runtime.cpu import pool

try:
    import torch
except ImportError:
    torch = None

Thunk = Callable[[], object]
Clock = Callable[[], float]
RNG = np.random.default_rng(0)
SECONDS = 0.4  # of timing for each line and library


def seconds(run: Thunk, number: int, clock: Clock = time.thread_time) -> float:
    start = clock()
    for _ in range(number):
        run()
    return (clock() - start) / number


def timings(
    runs: list[Thunk], guess: float, clock: Clock = time.thread_time
) -> list[list[float]]:
    """Times of each, taken in turns; ``guess`` is about what one takes."""
    number = max(1, int(0.002 / guess))
    rounds = max(5, min(101, int(SECONDS / (guess * number))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, taken in zip(runs, times, strict=True):
            taken.append(seconds(run, number, clock))
    return times


def medians(runs: list[Thunk], guess: float) -> list[float]:
    return [statistics.median(taken) for taken in timings(runs, guess)]


def report(name: str, flops: float, times: dict[str, float]) -> None:
    rates = {who: flops / t / 1e9 for who, t in times.items()}
    peers = max(rate for who, rate in rates.items() if who != "weft")
    text = "  ".join(f"{who} {rate:7.2f}" for who, rate in rates.items())
    print(f"{name:34} {text}  GFLOP/s   x {rates['weft'] / peers:5.2f}", flush=True)


def matrix(rows: int, columns: int, dtype: str = "float32") -> np.ndarray:
    return RNG.normal(size=(rows, columns)).astype(dtype)


def product(name: str, a: np.ndarray, b: np.ndarray) -> None:
    """One product of whole arrays, by each library."""
    out, other = (np.empty((*a.shape[:-1], b.shape[-1]), a.dtype) for _ in range(2))
    gemm = compiled(a.dtype.name, host_isa())
    batch = a.shape[0] if a.ndim == 3 else 1
    m, n, k = *out.shape[-2:], a.shape[-1]
    cut = split(gemm.tile, m, n, k, batch=batch)
    job = gemm.job(a, b, out, cut)
    place, tasks = job.ctypes.data, cut.tasks

    runs: dict[str, Thunk] = {
        "weft": lambda: gemm.run(place, 0, tasks, 0),
        "numpy": lambda: np.matmul(a, b, out=other),
    }
    if torch is not None:
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        z = torch.empty(out.shape, dtype=x.dtype)
        runs["torch"] = lambda: torch.matmul(x, y, out=z)
    flops = 2.0 * batch * m * n * k
    times = medians(list(runs.values()), flops / 5e10 + 1e-6)
    np.testing.assert_allclose(out, other, rtol=1e-3, atol=1e-2)
    shape = f"{batch}x " * (batch > 1) + f"{m}x{n}x{k}"
    report(f"{name} {shape}", flops, dict(zip(runs, times, strict=True)))


def peak() -> None:
    """What the machine's multiply-add units give with nothing else to do."""
    target = host_isa()
    module = new_module("peak", target)
    vector = ir.VectorType(F32, target.lanes(4))
    chains, rounds = 12, 1_000_000
    with function(module, "peak", VOID, [PTR]) as (b, made):
        prepare_function(made, target)
        half = vector([0.5] * target.lanes(4))
        start = [vector([float(i)] * target.lanes(4)) for i in range(chains)]
        limit, out = Value(b, i64(rounds)), Pointer(b, made.args[0], F32)
        sums = carry(0, limit, 1, start, lambda k, x: [fma(v, half, v) for v in x])
        for i, x in enumerate(sums):
            out[i * 16] = x
        b.ret_void()
    library = compile_module(module, target, level=0)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("peak"))
    memory = np.zeros(256, np.float32)
    times = [seconds(lambda: run(memory.ctypes.data), 1) for _ in range(20)]
    flops = 2.0 * chains * rounds * target.lanes(4)
    best, middle = min(times), statistics.median(times)
    print(
        f"peak, float32: {flops / best / 1e9:.1f} (median {flops / middle / 1e9:.1f})"
    )


def square() -> None:
    for size in (64, 100, 128, 256, 500, 512, 1024, 2048):
        product("square", matrix(size, size), matrix(size, size))


def transposed() -> None:
    for size in (64, 256, 1024):
        product("A.T @ B", matrix(size, size).T, matrix(size, size))
        product("A @ B.T", matrix(size, size), matrix(size, size).T)
        product("A.T @ B.T", matrix(size, size).T, matrix(size, size).T)


def doubles() -> None:
    for size in (64, 256, 1024):
        a, b = (matrix(size, size, "float64") for _ in range(2))
        product("float64", a, b)
        product("float64, A @ B.T", a, b.T)


def halves() -> None:
    """bfloat16 with float32 results, beside PyTorch's (bfloat16) and its float32."""
    for m, n, k in NARROW:
        for name, turned in (("A @ B", False), ("A @ B.T", True)):
            narrow(f"bfloat16, {name}", "bfloat16", m, n, k, turned)


def bytes_() -> None:
    """int8 with int32 results, beside torch._int_mm."""
    for m, n, k in NARROW:
        for name, turned in (("A @ B", False), ("A @ B.T", True)):
            narrow(f"int8, {name}", "int8", m, n, k, turned)


NARROW = [
    (64, 64, 64), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (500, 501, 503),
    (32, 1024, 1024), (64, 4096, 1024), (1, 4096, 4096), (4, 4096, 4096),
]  # fmt: skip


def narrow(name: str, dtype: str, m: int, n: int, k: int, turned: bool) -> None:
    """A product of two matrices of short elements, beside float32's and PyTorch's."""
    kind = np.dtype(dtype) if dtype == "int8" else weft.bfloat16.np
    shape = (n, k) if turned else (k, n)
    wide = [RNG.integers(-127, 128, s).astype(np.float32) for s in ((m, k), shape)]
    a, b = (x.astype(kind) for x in wide)
    gemm, floats = (compiled(kind, host_isa()) for kind in (dtype, "float32"))
    out, other = (np.empty((m, n), kind) for kind in (RESULTS[dtype], np.float32))
    right = b.T if turned else b
    jobs = [
        one.job(x, y.T if turned else y, to, split(gemm.tile, m, n, k))
        for one, x, y, to in ((gemm, a, b, out), (floats, *wide, other))
    ]
    runs: dict[str, Thunk] = {
        "weft": lambda: gemm.run(jobs[0].ctypes.data, 0, 1, 0),
        "float32": lambda: floats.run(jobs[1].ctypes.data, 0, 1, 0),
    }
    if torch is not None:
        raw = [torch.from_numpy(x).to(getattr(torch, dtype)) for x in wide]
        x, y = raw[0], raw[1].T if turned else raw[1]
        runs["torch"] = lambda: (torch.mm if dtype != "int8" else torch._int_mm)(x, y)
    times = medians(list(runs.values()), 2.0 * m * n * k / 1e11 + 1e-6)
    exact = a.astype(np.float64) @ right.astype(np.float64)
    np.testing.assert_allclose(out, exact, rtol=1e-4, atol=10.0)
    report(f"{name} {m}x{n}x{k}", 2.0 * m * n * k, dict(zip(runs, times, strict=True)))


def skinny() -> None:
    shapes = [
        (4096, 64, 1024), (64, 4096, 1024), (4096, 16, 4096), (16, 4096, 4096),
        (4096, 4, 4096), (4, 4096, 4096), (4096, 1, 4096), (1, 4096, 4096),
        (32, 1024, 1024), (8, 1024, 1024), (1, 1024, 1024), (128, 10, 784),
    ]  # fmt: skip
    for m, n, k in shapes:
        product("A @ B", matrix(m, k), matrix(k, n))
        product("A @ B.T", matrix(m, k), matrix(n, k).T)
        product("A.T @ B", matrix(k, m).T, matrix(k, n))


def small() -> None:
    """Calls from Python, and what the native function itself takes."""
    for m, n, k in [(4, 4, 4), (8, 32, 16), (16, 16, 16), (32, 32, 32), (64, 64, 64)]:
        a, b = matrix(m, k), matrix(k, n)
        product("call from Python", a, b)
        native(a, b)


def native(a: np.ndarray, b: np.ndarray, count: int = 1000) -> None:
    """One product many times in one call, beside NumPy's operator."""
    gemm = compiled("float32", host_isa())
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    many = [np.broadcast_to(x, (count, *x.shape)) for x in (a, b, out)]
    job = gemm.job(*many, Split(*out.shape, count))
    place = job.ctypes.data
    own, theirs = medians([lambda: gemm.run(place, 0, count, 0), lambda: a @ b], 1e-4)
    times = f"{own / count * 1e9:6.0f} ns, numpy's a @ b {theirs * 1e9:6.0f} ns"
    print(f"{'  the native function alone':34} {times}")


def batched() -> None:
    shapes = [
        (1000, 8, 8, 8), (256, 16, 16, 16), (256, 32, 32, 32), (64, 64, 64, 64),
        (96, 128, 128, 64), (96, 128, 64, 128),
    ]  # fmt: skip
    for batch, m, n, k in shapes:
        a = RNG.normal(size=(batch, m, k)).astype(np.float32)
        b = RNG.normal(size=(batch, n, k)).astype(np.float32).swapaxes(1, 2)
        product("batched", a, np.ascontiguousarray(b))
        product("batched, A @ B.T", a, b)


def threads() -> None:
    """Two threads beside one, from the pool and as two threads of Python."""
    shapes = [
        (256, 256, 256), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 64, 1024),
        (64, 4096, 1024),
    ]  # fmt: skip
    for m, n, k in shapes:
        two_threads(matrix(m, k), matrix(k, n))


def two_threads(a: np.ndarray, b: np.ndarray) -> None:
    gemm = compiled("float32", host_isa())
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    out = np.empty((m, n), np.float32)
    one, two = (split(gemm.tile, m, n, k, threads=count) for count in (1, 2))
    jobs = [gemm.job(a, b, out, cut, workers=2) for cut in (one, two)]
    single, double = (job.ctypes.data for job in jobs)
    half = two.tasks // 2
    shared = pool.default()

    def python() -> None:
        other = executor.submit(gemm.run, double, half, two.tasks, 1)
        gemm.run(double, 0, half, 0)
        other.result()

    with ThreadPoolExecutor(1) as executor:
        times = timings(
            [
                lambda: gemm.run(single, 0, one.tasks, 0),
                lambda: shared.run(gemm.address, double, two.tasks),
                python,
            ],
            2.0 * m * n * k / 5e10,
            time.perf_counter,
        )
    rates = [2.0 * m * n * k / min(taken) / 1e9 for taken in times]
    text = "  ".join(
        f"{name} {rate:6.1f}"
        for name, rate in zip(["one", "two (pool)", "two (Python)"], rates, strict=True)
    )
    print(f"{f'{m}x{n}x{k}':20} {text}  GFLOP/s   x {rates[1] / rates[0]:4.2f}")


def compiling() -> None:
    """What it takes to generate and compile a library."""
    target = host_isa()
    for dtype in ("float32", "float64"):
        for known in (
            {},
            {"a_col": 1, "b_col": 1, "keep": 0, "m": 64, "n": 64, "k": 64},
        ):
            times = []
            for _ in range(5):
                start = time.perf_counter()
                made = Gemm(dtype, target, known=known)
                times.append(time.perf_counter() - start)
            what = "one shape" if known else "all shapes"
            size = len(made.library.code)
            print(f"{dtype}, {what}: {min(times) * 1e3:.0f} ms, {size} bytes")


def main() -> None:
    parts: dict[str, Callable[[], None]] = {
        "peak": peak, "square": square, "transposed": transposed, "doubles": doubles,
        "bfloat16": halves, "int8": bytes_,
        "skinny": skinny, "small": small, "batched": batched, "threads": threads,
        "compiling": compiling,
    }  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(parts)}")
    if torch is not None:
        torch.set_num_threads(1)
    for name in parser.parse_args().parts or parts:
        print(f"-- {name}")
        parts[name]()


if __name__ == "__main__":
    main()
