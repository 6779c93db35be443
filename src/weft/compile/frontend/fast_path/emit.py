"""The native function that goes through a table's rows, and then runs the program.

It is called with the GIL held and changes no object. It reads attributes of tensors and
arrays where CPython and NumPy keep them (``cpython_layout``), and calls one function of
CPython for items of dictionaries. The GIL is released while the program runs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.emit.control_flow import I32, I64, VOID, i64, loop
from weft.compile.emit.isa import Isa, prepare_function
from weft.compile.frontend.fast_path import cpython_layout
from weft.compile.frontend.fast_path.guard_table import (
    ARGUMENT,
    FIELDS,
    GRADIENT,
    ITEM,
    NEVER,
    VERSION,
    WORD,
)

# The words of a header, which is the array that the function is a method of.
HEADER = (
    "rows", "count", "arguments", "tensor", "array", "lease", "none", "get", "values",
    "tag", "data", "node", "interpreter", "spans", "many", "end",
    "data_name", "node_name", "interpreter_name", "grad_name", "wanted", "threads",
    "results", "made", "run", "launches", "first", "last", "save", "restore", "went",
    "number",
)  # fmt: skip
HOLDS = -1
WENT = HEADER.index("went")  # 1 if the last call has run the program
_WRITEABLE = 0x0400
_GET = ir.FunctionType(I64, [I64, I64])
_RUN = ir.FunctionType(VOID, [I64, I64, I64])
_SAVE, _RESTORE = ir.FunctionType(I64, []), ir.FunctionType(VOID, [I64])
_NUMBER = ir.FunctionType(I64, [I64])
_FASTCALL = 0x80  # CPython's flag for a function that gets its arguments in a row


class _Method(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("at", ctypes.c_void_p),
        ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


@functools.cache
def _method(at: int) -> _Method:
    """The method definition of a function; it lives as long as the process."""
    return _Method(b"again", at, _FASTCALL, None)


def method(at: int, header: np.ndarray) -> Any:
    """``again(arguments, results)`` for a header; a tenth of the cost of ctypes."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p)
    return make(ctypes.byref(_method(at)), header, None)


def python(name: str) -> int:
    """The address of a function of CPython."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


class Words:
    """A header's words, and memory by address."""

    def __init__(self, b: Any, header: Any) -> None:
        self.b = b
        pointers = {name: b.gep(header, [i64(k)]) for k, name in enumerate(HEADER)}
        self._named = {name: b.load(at, name=name) for name, at in pointers.items()}

    def __getattr__(self, name: str) -> Any:
        return self._named[name]

    def at(self, address: Any, offset: Any = 0) -> Any:
        """The word at an address and an offset in bytes."""
        b = self.b
        offset = i64(offset) if isinstance(offset, int) else offset
        return b.load(b.inttoptr(b.add(address, offset), I64.as_pointer()))

    def half(self, address: Any, offset: int) -> Any:
        """Four bytes, as a word."""
        b = self.b
        pointer = b.inttoptr(b.add(address, i64(offset)), I32.as_pointer())
        return b.zext(b.load(pointer), I64)


def emit_again(module: ir.Module, isa: Isa) -> None:
    """Emit the method of a header that takes two tuples: arguments and results.

    It returns HOLDS, after running the program into these results if the header has
    its launches; or the number of the first row that fails. If the number of arguments
    or of threads is another one, it returns the number of rows.
    """
    kind = ir.FunctionType(I64, [I64, I64.as_pointer(), I64])
    function = ir.Function(module, kind, "again")
    prepare_function(function, isa)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    array, arguments, _ = function.args
    given, results = (b.load(b.gep(arguments, [i64(k)])) for k in range(2))
    data = b.inttoptr(b.add(array, i64(cpython_layout.ARRAY_DATA)), I64.as_pointer())
    header = b.inttoptr(b.load(data), I64.as_pointer())
    h = Words(b, header)
    went = b.gep(header, [i64(WENT)])
    b.store(i64(0), went)
    index, group = _variable(b), _variable(b)
    failed = function.append_basic_block("failed")
    many = b.icmp_signed("==", h.at(given, cpython_layout.TUPLE_SIZE), h.arguments)
    threads = b.icmp_signed("==", h.half(h.wanted, 0), h.threads)
    with _unless(b, b.and_(many, threads)):
        _answer(b, h, h.count)
    head, done = (function.append_basic_block(name) for name in ("head", "done"))
    b.branch(head)
    b.position_at_end(head)
    row = b.add(h.rows, b.mul(b.load(index), i64(8 * FIELDS)))
    fields = [h.at(row, 8 * k) for k in range(FIELDS)]
    following = function.append_basic_block("following")
    emitters = {
        WORD: _word, VERSION: _version, ITEM: _item, ARGUMENT: _argument,
        GRADIENT: _gradient,
    }  # fmt: skip
    body = function.append_basic_block("row")
    b.cbranch(b.icmp_signed("<", b.load(index), h.count), body, done)
    b.position_at_end(body)
    switch = b.switch(fields[0], failed)
    for kind, emit in emitters.items():
        block = function.append_basic_block(emit.__name__.strip("_"))
        switch.add_case(i64(kind), block)
        b.position_at_end(block)
        emit(b, h, fields, _State(given, row, index, group, failed))
        b.branch(following)
    b.position_at_end(following)
    b.store(b.add(b.load(index), i64(1)), index)
    b.branch(head)
    b.position_at_end(failed)
    with b.if_then(b.icmp_signed("!=", b.load(group), i64(0))):
        version = b.inttoptr(b.add(b.load(group), i64(16)), I64.as_pointer())
        b.store(i64(NEVER), version)
    _answer(b, h, b.load(index))
    b.position_at_end(done)
    _store_results(b, h, results)
    with b.if_then(b.icmp_signed("!=", h.run, i64(0))):
        b.store(i64(1), went)
        _go(b, h)
    _answer(b, h, i64(HOLDS))


def _answer(b: Any, h: Any, number: Any) -> None:
    b.ret(b.call(b.inttoptr(h.number, _NUMBER.as_pointer()), [number]))


def _store_results(b: Any, h: Any, results: Any) -> None:
    """Store the addresses of a tuple's arrays in their slots."""
    with loop(b, i64(0), h.made) as k:
        byte = b.mul(k, i64(8))
        array = h.at(b.add(results, byte), cpython_layout.TUPLE_ITEMS)
        slot = b.inttoptr(h.at(h.results, byte), I64.as_pointer())
        b.store(h.at(array, cpython_layout.ARRAY_DATA), slot)


def _go(b: Any, h: Any) -> None:
    """Run all launches, with the GIL released."""
    thread = b.call(b.inttoptr(h.save, _SAVE.as_pointer()), [])
    run = b.inttoptr(h.run, _RUN.as_pointer())
    b.call(run, [h.launches, h.first, h.last])
    b.call(b.inttoptr(h.restore, _RESTORE.as_pointer()), [thread])


def _variable(b: Any) -> Any:
    """A local variable that is zero at first."""
    with b.goto_entry_block():
        made = b.alloca(I64)
    b.store(i64(0), made)
    return made


class _State:
    """The loop's present row, and the blocks and variables around it."""

    def __init__(self, given: Any, row: Any, index: Any, group: Any, failed: Any):
        self.given, self.row, self.index = given, row, index
        self.group, self.failed = group, failed


@contextmanager
def _unless(b: Any, condition: Any) -> Iterator[None]:
    """Emit a block that ends the function unless a condition holds."""
    other = b.append_basic_block("other")
    then = b.append_basic_block("then")
    b.cbranch(condition, then, other)
    b.position_at_end(other)
    yield
    b.position_at_end(then)


def _need(b: Any, state: _State, condition: Any) -> None:
    """Continue if a condition holds; else the row fails."""
    then = b.append_basic_block("then")
    b.cbranch(condition, then, state.failed)
    b.position_at_end(then)


def _same(b: Any, state: _State, one: Any, other: Any) -> None:
    other = i64(other) if isinstance(other, int) else other
    _need(b, state, b.icmp_signed("==", one, other))


def _word(b: Any, h: Any, fields: Any, state: _State) -> None:
    _, at, expected, _ = fields
    _same(b, state, h.at(at), expected)


def _version(b: Any, h: Any, fields: Any, state: _State) -> None:
    """Skip a dictionary's rows if it has not changed; else store its version."""
    _, at, expected, many = fields
    now = h.at(at)
    with b.if_else(b.icmp_signed("==", now, expected)) as (same, other):
        with same:
            b.store(b.add(b.load(state.index), many), state.index)
        with other:
            b.store(now, b.inttoptr(b.add(state.row, i64(16)), I64.as_pointer()))
            b.store(state.row, state.group)


def _item(b: Any, h: Any, fields: Any, state: _State) -> None:
    _, source, key, expected = fields
    get = b.inttoptr(h.get, _GET.as_pointer())
    _same(b, state, b.call(get, [source, key]), expected)


def _argument(b: Any, h: Any, fields: Any, state: _State) -> None:
    """Check a plain tensor that requires no gradient and overlaps no state."""
    _, number, kind, slot = fields
    tensor = h.at(b.add(state.given, b.mul(number, i64(8))), cpython_layout.TUPLE_ITEMS)
    array, node, traced = _attributes(b, h, tensor, state)
    for one in (node, traced):
        unset = b.icmp_signed("==", one, i64(0))  # as the class has it: None
        _need(b, state, b.or_(unset, b.icmp_signed("==", one, h.none)))
    _like(b, h, array, kind, state)
    data = h.at(array, cpython_layout.ARRAY_DATA)
    _apart(b, h, data, kind, state)
    b.store(data, b.inttoptr(slot, I64.as_pointer()))


def _attributes(b: Any, h: Any, tensor: Any, state: _State) -> list[Any]:
    """A plain tensor's array, node and interpreter; 0 for an attribute of the class."""
    _same(b, state, h.at(tensor, cpython_layout.TYPE), h.tensor)
    pointer = h.at(tensor, h.values)
    start = b.add(pointer, h.tag)
    aligned = b.icmp_signed("==", b.and_(start, i64(7)), i64(0))
    inline = b.and_(aligned, b.icmp_signed("!=", pointer, i64(0)))
    names = ("data", "node", "interpreter")
    variables = [_variable(b) for _ in names]
    with b.if_else(inline) as (values, other):
        with values:
            for name, at in zip(names, variables, strict=True):
                b.store(h.at(start, getattr(h, name)), at)
        with other:
            own = h.at(tensor, cpython_layout.DICT)
            _need(b, state, b.icmp_signed("!=", own, i64(0)))
            get = b.inttoptr(h.get, _GET.as_pointer())
            for name, at in zip(names, variables, strict=True):
                b.store(b.call(get, [own, getattr(h, f"{name}_name")]), at)
    array = b.load(variables[0])
    _need(b, state, b.icmp_signed("!=", array, i64(0)))
    _same(b, state, h.at(array, cpython_layout.TYPE), h.array)
    return [b.load(at) for at in variables]


def _like(b: Any, h: Any, array: Any, kind: Any, state: _State) -> None:
    """Check that an array has the dtype, shape and strides of a description."""
    _same(b, state, h.at(array, cpython_layout.ARRAY_DTYPE), h.at(kind))
    rank = h.at(kind, 8)
    _same(b, state, h.half(array, cpython_layout.ARRAY_NDIM), rank)
    shape = h.at(array, cpython_layout.ARRAY_SHAPE)
    strides = h.at(array, cpython_layout.ARRAY_STRIDES)
    differs = _variable(b)
    with loop(b, i64(0), rank) as k:
        byte = b.mul(k, i64(8))
        wanted = b.add(kind, byte)
        steps = h.at(b.add(wanted, b.mul(rank, i64(8))), 24)
        one = b.xor(h.at(shape, byte), h.at(wanted, 24))
        both = b.or_(one, b.xor(h.at(strides, byte), steps))
        b.store(b.or_(b.load(differs), both), differs)
    _same(b, state, b.load(differs), 0)


def _apart(b: Any, h: Any, data: Any, kind: Any, state: _State) -> None:
    """Check that an array's memory overlaps no state that the program writes."""
    within = _variable(b)
    with b.if_then(b.icmp_unsigned("<", data, h.end)):
        last = b.add(data, h.at(kind, 16))
        with loop(b, i64(0), h.many) as k:
            span = b.add(h.spans, b.mul(k, i64(16)))
            before = b.icmp_unsigned("<=", last, h.at(span))
            behind = b.icmp_unsigned("<=", h.at(span, 8), data)
            among = b.zext(b.not_(b.or_(before, behind)), I64)
            b.store(b.or_(b.load(within), among), within)
    _same(b, state, b.load(within), 0)


def _gradient(b: Any, h: Any, fields: Any, state: _State) -> None:
    """Check a gradient that only its tensor holds, with memory of its own."""
    _, own, kind, slot = fields
    gradient = b.call(b.inttoptr(h.get, _GET.as_pointer()), [own, h.grad_name])
    _need(b, state, b.icmp_signed("!=", gradient, i64(0)))
    array, _, _ = _attributes(b, h, gradient, state)
    _same(b, state, h.at(gradient), 1)
    _same(b, state, h.at(array), 1)
    _like(b, h, array, kind, state)
    flags = h.half(array, cpython_layout.ARRAY_FLAGS)
    _need(b, state, b.icmp_signed("!=", b.and_(flags, i64(_WRITEABLE)), i64(0)))
    base = h.at(array, cpython_layout.ARRAY_BASE)
    with b.if_then(b.icmp_signed("!=", base, i64(0))):
        _same(b, state, h.at(base, cpython_layout.TYPE), h.lease)
    b.store(h.at(array, cpython_layout.ARRAY_DATA), b.inttoptr(slot, I64.as_pointer()))
