"""The native loop that goes through a program's launches."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import I8, I64, VOID, function
from weft.compile.emit.flow import if_else, loop, when
from weft.compile.emit.isa import Isa, new_module, prepare_function
from weft.compile.emit.values import PTR, Pointer, Value, call, minimum, select
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
from weft.compile.targets.cpu.pool_code import BODY, emit_parallel
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

    module = loop_module(isa)
    emit_again(module, isa)
    return module


def loop_module(isa: Isa) -> ir.Module:
    """The loop over launches, what rows lead to, and loops and branches in programs."""
    module = new_module("driver", isa)
    for emit in (_emit_iterations, _emit_jobs, _emit_gang, _emit_fill, _emit_epilogue):
        emit(module, isa)
    with (
        _function(module, isa, "run", [PTR, I64, I64]) as (b, (rows, first, last)),
        loop(first, last) as k,
    ):
        row = Pointer(b, rows.ir, I64) + k * FIELDS
        count, grain, body = (row[c] for c in (4, 5, 6))
        body = body.function(BODY)
        with if_else(count > grain) as (large, small):
            with large:
                emit_parallel(b, body, row, count, grain)
            with small:
                call(body, [row, 0, count, 0])
    emit_control_flow(module, isa, BODY, module.globals["run"])
    return module


@contextmanager
def _function(
    module: ir.Module, isa: Isa, name: str, types: Sequence[Any]
) -> Iterator[tuple[Any, list[Any]]]:
    """A function without a result: its builder and its arguments."""
    with function(module, name, VOID, list(types)) as (b, new):
        prepare_function(new, isa)
        yield b, [Value(b, x) for x in new.args]
        b.ret_void()


@contextmanager
def _body(module: ir.Module, isa: Isa, name: str) -> Iterator[Any]:
    """A loop's body for the thread pool: the fields of its row, and its arguments."""
    with _function(module, isa, name, BODY.args) as (b, (row, begin, end, worker)):
        fields = Pointer(b, row.ir, I64)
        yield [fields[c] for c in (1, 2, 3, 7)], begin, end, worker


def _emit_iterations(module: ir.Module, isa: Isa) -> None:
    """A range of a kernel's iterations."""
    with _body(module, isa, "iterations") as ((kernel, table, sizes, _), begin, end, _):
        table, sizes = table.pointer(I64), sizes.pointer(I64)
        call(kernel.function(SIGNATURE), [table, sizes, begin, end])


def _emit_jobs(module: ir.Module, isa: Isa) -> None:
    """A range of the tasks of several jobs, counted through."""
    with _body(module, isa, "jobs") as (fields, begin, end, worker):
        body, jobs, tasks, length = fields
        with loop(begin // tasks, (end - 1) // tasks + 1) as j:
            low, high = begin - j * tasks, end - j * tasks
            low, high = select(low < 0, 0, low), minimum(high, tasks)
            job = (jobs + j * length).pointer(I8)
            call(body.function(BODY), [job, low, high, worker])


def _emit_gang(module: ir.Module, isa: Isa) -> None:
    """A range of the grains of several launches."""
    with (
        _body(module, isa, "gang") as ((_, rows, many, _), begin, end, worker),
        loop(many) as r,
    ):
        row = rows.pointer(I64) + r * FIELDS
        count, grain, body, start = (row[c] for c in (4, 5, 6, 8))
        grains = (count + grain - 1) // grain
        low, high = begin - start, end - start
        low, high = select(low < 0, 0, low), minimum(high, grains)
        with when(low < high):
            last = minimum(high * grain, count)
            call(body.function(BODY), [row, low * grain, last, worker])


def _emit_fill(module: ir.Module, isa: Isa) -> None:
    """Write the present addresses of slots to where launches read them."""
    with (
        _body(module, isa, "fill") as ((slots, rows, _, _), begin, end, _),
        loop(begin, end) as k,
    ):
        row = rows.pointer(I64) + k * 3
        place, slot, offset = (row[c] for c in range(3))
        place.pointer(I64)[0] = slots.pointer(I64)[slot] + offset


def _emit_epilogue(module: ir.Module, isa: Isa) -> None:
    """The epilogue of library calls: a kernel for some rows and columns.

    Its context is ``function table sizes count first width each``: the kernel, where
    among its sizes the first column and the number of columns stand (or -1), and how
    many iterations a row has.
    """
    with _function(module, isa, "follow", EPILOGUE.args) as (b, arguments):
        context, top, bottom, left, right = arguments
        words = Pointer(b, context.ir, I64)
        kernel, table, sizes, count, first, width, each = (words[k] for k in range(7))
        kernel, table = kernel.function(SIGNATURE), table.pointer(I64)
        sizes, rows = sizes.pointer(I64), [top * each, bottom * each]
        copy = Pointer(b, b.alloca(I64, MOST_SIZES), I64)
        with if_else(first < 0) as (whole, some):
            with whole:
                call(kernel, [table, sizes, *rows])
            with some:
                with loop(count) as k:
                    copy[k] = sizes[k]
                copy[first], copy[width] = left, right - left
                call(kernel, [table, copy, *rows])
