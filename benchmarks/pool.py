"""What sharing out a loop costs: the pool beside OpenMP, in one run.

    python benchmarks/pool.py [--gomp libgomp.so.1]

A native loop makes many calls whose body does nothing. ``hot``: one call after the
other. ``cold``: after a pause in which workers went to sleep. ``shared``: two chunks
of some microseconds, less the time of one: what it takes until the other thread has
begun and is known to be done. ``idle``: the share of a core that waiting workers use.
OpenMP's figures need a libgomp.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I32, I64, POINTER, VOID, function, i64, loop
from weft.compile.emit.isa import new_module
from weft.compile.targets.cpu.object_code import Library, compile_module, host_isa
from weft.compile.targets.cpu.pool_code import BODY
from weft.runtime.cpu.pool import Pool

GOMP_BODY = ir.FunctionType(VOID, [POINTER])


def _constant(b: Any, address: int, kind: Any) -> Any:
    return b.inttoptr(i64(address), kind.as_pointer())


def _body(module: ir.Module, kind: Any, pauses: int) -> ir.Function:
    """A body that waits for some pauses of the CPU."""
    pause = ir.Function(module, ir.FunctionType(VOID, []), "llvm.x86.sse2.pause")
    with function(module, "body", VOID, list(kind.args)) as (b, made):
        with loop(b, i64(0), i64(pauses)):
            b.call(pause, [])
        b.ret_void()
    return made


def repeated(pool: Pool, chunks: int, pauses: int = 0, gomp: int = 0) -> Library:
    """A function that calls the pool (or OpenMP) as many times as it is told."""
    module = new_module("calls", host_isa())
    null = POINTER(None)
    with function(module, "calls", VOID, [I64]) as (b, made):
        with loop(b, i64(0), made.args[0]):
            if gomp:
                body = _body(module, GOMP_BODY, pauses)
                kinds = [GOMP_BODY.as_pointer(), POINTER, I32, I32]
                call = _constant(b, gomp, ir.FunctionType(VOID, kinds))
                b.call(call, [body, null, I32(chunks), I32(0)])
            else:
                body = _body(module, BODY, pauses)
                kinds = [POINTER, BODY.as_pointer(), POINTER, I64, I64]
                address = pool.addresses.parallel_chunks
                call = _constant(b, address, ir.FunctionType(VOID, kinds))
                block = b.inttoptr(i64(pool.addresses.pool), POINTER)
                b.call(call, [block, body, null, i64(chunks), i64(1)])
        b.ret_void()
    return compile_module(module)


def microseconds(calls: Any, number: int) -> float:
    start = time.perf_counter()
    calls(number)
    return (time.perf_counter() - start) / number * 1e6


def middle(calls: Any) -> float:
    """The median of single calls: others may use this machine's cores."""
    return statistics.median(microseconds(calls, 1) for _ in range(300))


def show(name: str, what: str, times: list[float]) -> None:
    typical = statistics.median(times)
    print(f"{name:10} {what:18} {typical:8.2f} µs   best {min(times):8.2f}")


def idle_share(seconds: float = 0.5) -> float:
    start, used = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - used) / (time.perf_counter() - start)


def measure(calls: dict[str, Any]) -> dict[str, float]:
    """One round of one contestant."""
    time.sleep(0.005)
    found = {"cold": microseconds(calls["2 chunks"], 1)}
    for name in calls:
        if "chunks" in name:
            calls[name](100)
            found[f"hot, {name}"] = microseconds(calls[name], 2000)
    calls["both"](100)
    found["shared"] = middle(calls["both"]) - middle(calls["one"])
    return found


def contestants(pool: Pool, gomp: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64)
    pauses = 300
    sizes = {f"{n} chunks": repeated(pool, n) for n in (2, 16, 64)}
    sizes |= {"both": repeated(pool, 2, pauses), "one": repeated(pool, 1, pauses)}
    keep.extend(sizes.values())
    yield "weft", {n: kind(lib.address("calls")) for n, lib in sizes.items()}
    if gomp:
        found = ctypes.CDLL(gomp).GOMP_parallel
        at = ctypes.cast(found, ctypes.c_void_p).value or 0
        sizes = {"2 chunks": repeated(pool, 2, gomp=at)}
        sizes |= {"both": repeated(pool, 2, pauses, at)}
        sizes |= {"one": repeated(pool, 1, pauses, at)}
        keep.extend(sizes.values())
        yield "libgomp", {n: kind(lib.address("calls")) for n, lib in sizes.items()}


keep: list[Library] = []


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--gomp", help="a libgomp to compare with")
    arguments.add_argument("--rounds", type=int, default=15)
    options = arguments.parse_args()
    pool = Pool(2)
    calls = dict(contestants(pool, options.gomp))
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.rounds):
        for name in calls:
            for what, value in measure(calls[name]).items():
                times.setdefault((name, what), []).append(value)
    for (name, what), values in sorted(times.items()):
        show(name, what, values)
    time.sleep(0.01)
    print(f"idle workers use {idle_share():.2%} of a core; {pool.sleepers} sleep")


if __name__ == "__main__":
    main()
