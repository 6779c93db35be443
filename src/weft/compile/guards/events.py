"""Calls of functions, told apart by machine code: for Python before 3.12.

``sys.setprofile`` asks Python about every call and return, a million of them in a
capture. Here a native function looks for the code object in a table, and asks Python
only about those that are not there yet.

    int event(ask, frame, what, arg)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.ahead import ahead
from weft.compile.llvm.emit import I64, POINTER, VOID, i64
from weft.compile.llvm.target import Library, compile_known, host_target, new_module

SLOTS = 1 << 15  # of the table of code objects
_I32 = ir.IntType(32)
_NAMES = ("PyFrame_GetCode", "Py_DecRef", "PyObject_CallOneArg")  # what is called
Ask = Callable[[FrameType], bool]


@contextmanager
def native_events(ask: Ask) -> Iterator[None]:
    """Call ``ask(frame)`` when functions begin in this thread, until it says True.

    From then on calls of the same code are not asked about.
    """
    known, events = Known(ask), library()
    events.prepare(known.table.ctypes.data)
    _profile_by(ctypes.py_object)(events.event, known.asked)
    try:
        yield
    finally:
        _profile_by(ctypes.c_void_p)(None, None)


def _profile_by(kind: Any) -> Any:
    """``PyEval_SetProfile``, to be called with a function and what it is given."""
    made = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, kind)
    return made(("PyEval_SetProfile", ctypes.pythonapi))


class Known:
    """The code objects that need not be asked about, in a table of their addresses."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.table = np.zeros(SLOTS, np.int64)
        self.held: list[CodeType] = []  # so that their addresses stay theirs

    def asked(self, frame: FrameType) -> None:
        code = frame.f_code
        if not self.ask(frame) or len(self.held) > SLOTS // 2:
            return
        self.held.append(code)
        at = (id(code) >> 4) % SLOTS
        while self.table[at]:
            at = (at + 1) % SLOTS
        self.table[at] = id(code)


class Events:
    """The native functions."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.event = library.address("event")
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(_NAMES)))
        self._prepare = kind(library.address("prepare"))

    def prepare(self, table: int) -> None:
        """Say where the table is, and what the code calls."""
        found = [getattr(ctypes.pythonapi, name) for name in _NAMES]
        self._prepare(table, *[ctypes.cast(f, ctypes.c_void_p) for f in found])


@ahead
def library() -> Events:
    """The machine code, made or found once."""
    return Events(compile_known("events", _module, host_target(), level=1))


def _module() -> ir.Module:
    module = new_module("events", host_target())
    places = [ir.GlobalVariable(module, I64, name) for name in ("table", *_NAMES)]
    for place in places:
        place.initializer, place.linkage = i64(0), "internal"
    _emit_prepare(module, places)
    _emit_event(module, places)
    return module


def _emit_prepare(module: ir.Module, places: list[Any]) -> None:
    kind = ir.FunctionType(VOID, [I64] * len(places))
    made = ir.Function(module, kind, "prepare")
    b = ir.IRBuilder(made.append_basic_block("entry"))
    for place, value in zip(places, made.args, strict=True):
        b.store(value, place)
    b.ret_void()


def _emit_event(module: ir.Module, places: list[Any]) -> None:
    kind = ir.FunctionType(_I32, [POINTER, POINTER, _I32, POINTER])
    made = ir.Function(module, kind, "event")
    ask, frame, what, _ = made.args
    b = ir.IRBuilder(made.append_basic_block("entry"))
    with b.if_then(b.icmp_signed("!=", what, ir.Constant(_I32, 0)), likely=True):
        b.ret(ir.Constant(_I32, 0))  # no call of a Python function
    one = ir.FunctionType(POINTER, [POINTER])
    two = ir.FunctionType(POINTER, [POINTER, POINTER])
    table, get_code, drop, call = (b.load(place) for place in places)
    get_code, drop = (b.inttoptr(f, one.as_pointer()) for f in (get_code, drop))
    code = b.call(get_code, [frame])  # held for us; whoever runs it holds it too
    b.call(drop, [code])
    with b.if_then(_is_known(b, b.inttoptr(table, I64.as_pointer()), code)):
        b.ret(ir.Constant(_I32, 0))
    found = b.call(b.inttoptr(call, two.as_pointer()), [ask, frame])
    with b.if_then(b.icmp_signed("==", b.ptrtoint(found, I64), i64(0))):
        b.ret(ir.Constant(_I32, -1))  # an error is raised
    b.call(drop, [found])
    b.ret(ir.Constant(_I32, 0))


def _is_known(b: Any, table: Any, code: Any) -> Any:
    """Whether a code object is in the table: at its place, or behind in its row."""
    address = b.ptrtoint(code, I64)
    place = b.alloca(I64)
    b.store(b.and_(b.lshr(address, i64(4)), i64(SLOTS - 1)), place)
    look, end = (b.append_basic_block(name) for name in ("look", "end"))
    further = b.append_basic_block("further")
    b.branch(look)
    b.position_at_end(look)
    at = b.load(place)
    there = b.load(b.gep(table, [at]))
    stop = b.or_(
        b.icmp_signed("==", there, address), b.icmp_signed("==", there, i64(0))
    )
    b.cbranch(stop, end, further)
    b.position_at_end(further)
    b.store(b.and_(b.add(at, i64(1)), i64(SLOTS - 1)), place)
    b.branch(look)
    b.position_at_end(end)
    return b.icmp_signed("==", there, address)
