"""The native loop that goes through a program's launches."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import I64, POINTER, VOID, i64, loop
from weft.compile.emit.isa import Isa, new_module, prepare_function
from weft.compile.targets.cpu import interrupts
from weft.compile.targets.cpu.background import ahead
from weft.compile.targets.cpu.control_flow.native import GLOBALS, emit_control_flow
from weft.compile.targets.cpu.kernel import SIGNATURE
from weft.compile.targets.cpu.matmul.epilogue import EPILOGUE
from weft.compile.targets.cpu.object_code import (
    Library,
    compile_known,
    host_isa,
    is_known,
)
from weft.config import config

FIELDS = 9  # of a row of the native loop's table
MOST_SIZES = 64  # of an epilogue's kernel: they are copied for each call


class Driver(NamedTuple):
    """The native loop over launches, and addresses of what rows lead to."""

    run: Any  # run(rows, first, last)
    again: int  # the function of the fast path: see ``frontend.fast_path.emit``
    iterations: int
    jobs: int
    gang: int
    fill: int
    epilogue: int
    library: Library


@ahead
def driver() -> Driver:
    """The loop over launches.

    A row is a launch's context for the pool:

        status function table sizes count grain body -      start    of a kernel
        status function jobs  tasks count grain body length start    of a library call
        status -        rows  many  count grain body -      -        of a gang
        status slots    rows  -     count grain body -      -        of addresses

    where ``tasks`` says how many each job has, and ``length`` how many bytes. A gang
    runs the launches of ``rows`` side by side: its iterations are their grains, and
    those of one begin at ``start``. Addresses are filled in before launches: a row is
    the address to write to, the number of a slot, and an offset in bytes.
    """
    from weft.runtime.cpu import pool

    isa = host_isa()
    limit = config.loop_limit_word.ctypes.data
    pool.link()
    # The loops are small and gain nothing by vectors; LLVM's passes would take longest.
    library = compile_known("driver", lambda: _module(isa), isa, level=0)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        library.address("run")
    )
    at = library.address
    for name, value in zip(GLOBALS, (limit, *interrupts.addresses()), strict=True):
        ctypes.c_int64.from_address(at(name)).value = value
    bodies = at("iterations"), at("jobs"), at("gang"), at("fill")
    return Driver(run, at("again"), *bodies, at("follow"), library)


def start_if_missing() -> None:
    """Compile the loop in the background, unless its code is on disk."""
    if not is_known("driver", host_isa(), level=0):
        driver.start()


def _module(isa: Isa) -> ir.Module:
    from weft.compile.frontend.fast_path.emit import emit_again
    from weft.compile.targets.cpu.pool_code import BODY, emit_parallel

    module = new_module("driver", isa)
    _emit_iterations(module, isa, BODY)
    _emit_jobs(module, isa, BODY)
    _emit_gang(module, isa, BODY)
    _emit_fill(module, isa, BODY)
    _emit_epilogue(module, isa)
    emit_again(module, isa)
    kind = ir.FunctionType(VOID, [I64.as_pointer(), I64, I64])
    run = ir.Function(module, kind, "run")
    prepare_function(run, isa)
    b = ir.IRBuilder(run.append_basic_block("entry"))
    rows, first, last = run.args
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
    emit_control_flow(module, isa, BODY, run)
    return module


def _body(module: ir.Module, isa: Isa, kind: Any, name: str) -> Any:
    """A loop's body: its builder, the fields of its row, and its arguments."""
    function = ir.Function(module, kind, name)
    prepare_function(function, isa)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    row = b.bitcast(function.args[0], I64.as_pointer())
    fields = [b.load(b.gep(row, [i64(c)])) for c in (1, 2, 3, 7)]
    return b, fields, function.args


def _emit_iterations(module: ir.Module, isa: Isa, kind: Any) -> None:
    """A range of a kernel's iterations."""
    b, fields, (_, begin, end, _) = _body(module, isa, kind, "iterations")
    function = b.inttoptr(fields[0], SIGNATURE.as_pointer())
    table = b.inttoptr(fields[1], SIGNATURE.args[0])
    sizes = b.inttoptr(fields[2], SIGNATURE.args[1])
    b.call(function, [table, sizes, begin, end])
    b.ret_void()


def _emit_jobs(module: ir.Module, isa: Isa, kind: Any) -> None:
    """A range of the tasks of several jobs, counted through."""
    b, fields, (_, begin, end, worker) = _body(module, isa, kind, "jobs")
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


def _emit_gang(module: ir.Module, isa: Isa, kind: Any) -> None:
    """A range of the grains of several launches."""
    b, fields, (_, begin, end, worker) = _body(module, isa, kind, "gang")
    rows = b.inttoptr(fields[1], I64.as_pointer())
    with loop(b, i64(0), fields[2]) as r:
        row = b.gep(rows, [b.mul(r, i64(FIELDS))])
        count, grain, body, start = (b.load(b.gep(row, [i64(c)])) for c in (4, 5, 6, 8))
        many = b.sdiv(b.sub(b.add(count, grain), i64(1)), grain)
        low, high = b.sub(begin, start), b.sub(end, start)
        low = b.select(b.icmp_signed("<", low, i64(0)), i64(0), low)
        high = b.select(b.icmp_signed("<", high, many), high, many)
        with b.if_then(b.icmp_signed("<", low, high)):
            last = b.mul(high, grain)
            last = b.select(b.icmp_signed("<", last, count), last, count)
            body = b.inttoptr(body, kind.as_pointer())
            b.call(body, [b.bitcast(row, POINTER), b.mul(low, grain), last, worker])
    b.ret_void()


def _emit_fill(module: ir.Module, isa: Isa, kind: Any) -> None:
    """Write the present addresses of slots to where launches read them."""
    b, fields, (_, begin, end, _) = _body(module, isa, kind, "fill")
    slots, rows = (b.inttoptr(f, I64.as_pointer()) for f in fields[:2])
    with loop(b, begin, end) as k:
        row = b.gep(rows, [b.mul(k, i64(3))])
        place, slot, offset = (b.load(b.gep(row, [i64(c)])) for c in range(3))
        value = b.add(b.load(b.gep(slots, [slot])), offset)
        b.store(value, b.inttoptr(place, I64.as_pointer()))
    b.ret_void()


def _emit_epilogue(module: ir.Module, isa: Isa) -> None:
    """The epilogue of library calls: a kernel for some rows and columns.

    Its context is ``function table sizes count first width each``: the kernel, where
    among its sizes the first column and the number of columns stand (or -1), and how
    many iterations a row has.
    """
    epilogue = ir.Function(module, EPILOGUE, "follow")
    prepare_function(epilogue, isa)
    b = ir.IRBuilder(epilogue.append_basic_block("entry"))
    context, top, bottom, left, right = epilogue.args
    words = b.inttoptr(b.ptrtoint(context, I64), I64.as_pointer())
    values = [b.load(b.gep(words, [i64(k)])) for k in range(7)]
    function, table, sizes, count, first, width, each = values
    function = b.inttoptr(function, SIGNATURE.as_pointer())
    table = b.inttoptr(table, SIGNATURE.args[0])
    sizes = b.inttoptr(sizes, SIGNATURE.args[1])
    rows = [b.mul(top, each), b.mul(bottom, each)]
    copy = b.alloca(I64, MOST_SIZES)
    with b.if_else(b.icmp_signed("<", first, i64(0))) as (whole, some):
        with whole:
            b.call(function, [table, sizes, *rows])
        with some:
            with loop(b, i64(0), count) as k:
                b.store(b.load(b.gep(sizes, [k])), b.gep(copy, [k]))
            b.store(left, b.gep(copy, [first]))
            b.store(b.sub(right, left), b.gep(copy, [width]))
            b.call(function, [table, copy, *rows])
    b.ret_void()
