"""The native loop that goes through a program's launches."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.llvm.emit import I64, POINTER, VOID, i64, loop
from weft.compile.llvm.kernel import SIGNATURE
from weft.compile.llvm.target import (
    Library,
    Target,
    compile_module,
    host_target,
    new_module,
    prepare_function,
)

FIELDS = 8  # of a row of the native loop's table


class Driver(NamedTuple):
    """The native loop over launches, and the two kinds of bodies."""

    run: Any  # run(rows, first, last)
    iterations: int
    jobs: int
    library: Library


@functools.cache
def driver() -> Driver:
    """The loop over launches.

    A row is a launch's context for the pool:

        status  function  table  sizes  count  grain  body  -        of a kernel
        status  function  jobs   tasks  count  grain  body  length   of a routine

    where ``tasks`` says how many each job has, and ``length`` how many bytes.
    """
    from weft.runtime import pool
    from weft.runtime.pool_code import BODY, emit_parallel

    target = host_target()
    pool.link()
    module = new_module("driver", target)
    _emit_iterations(module, target, BODY)
    _emit_jobs(module, target, BODY)
    kind = ir.FunctionType(VOID, [I64.as_pointer(), I64, I64])
    made = ir.Function(module, kind, "run")
    prepare_function(made, target)
    b = ir.IRBuilder(made.append_basic_block("entry"))
    rows, first, last = made.args
    with loop(b, first, last) as k:
        row = b.gep(rows, [b.mul(k, i64(FIELDS))])
        count, grain, body = (b.load(b.gep(row, [i64(c)])) for c in (4, 5, 6))
        body = b.inttoptr(body, BODY.as_pointer())
        context = b.bitcast(row, POINTER)
        with b.if_else(b.icmp_signed(">", count, grain)) as (large, small):
            with large:
                emit_parallel(b, body, context, count, grain)
            with small:
                b.call(body, [context, i64(0), count, i64(0)])
    b.ret_void()
    library = compile_module(module, target)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        library.address("run")
    )
    iterations, jobs = map(library.address, ("iterations", "jobs"))
    return Driver(run, iterations, jobs, library)


def _body(module: ir.Module, target: Target, kind: Any, name: str) -> Any:
    """A loop's body: its builder, the fields of its row, and its arguments."""
    made = ir.Function(module, kind, name)
    prepare_function(made, target)
    b = ir.IRBuilder(made.append_basic_block("entry"))
    row = b.bitcast(made.args[0], I64.as_pointer())
    fields = [b.load(b.gep(row, [i64(c)])) for c in (1, 2, 3, 7)]
    return b, fields, made.args


def _emit_iterations(module: ir.Module, target: Target, kind: Any) -> None:
    """A range of a kernel's iterations."""
    b, fields, (_, begin, end, _) = _body(module, target, kind, "iterations")
    function = b.inttoptr(fields[0], SIGNATURE.as_pointer())
    table = b.inttoptr(fields[1], SIGNATURE.args[0])
    sizes = b.inttoptr(fields[2], SIGNATURE.args[1])
    b.call(function, [table, sizes, begin, end])
    b.ret_void()


def _emit_jobs(module: ir.Module, target: Target, kind: Any) -> None:
    """A range of the tasks of several jobs, counted through."""
    b, fields, (_, begin, end, worker) = _body(module, target, kind, "jobs")
    function, jobs, tasks, length = fields
    function = b.inttoptr(function, kind.as_pointer())
    past = b.add(b.sdiv(b.sub(end, i64(1)), tasks), i64(1))
    with loop(b, b.sdiv(begin, tasks), past) as j:
        start = b.mul(j, tasks)
        low, high = b.sub(begin, start), b.sub(end, start)
        low = b.select(b.icmp_signed("<", low, i64(0)), i64(0), low)
        high = b.select(b.icmp_signed("<", high, tasks), high, tasks)
        job = b.inttoptr(b.add(jobs, b.mul(j, length)), POINTER)
        b.call(function, [job, low, high, worker])
    b.ret_void()
