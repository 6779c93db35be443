"""Functions that begin, told apart by machine code: for CPython 3.11.

``sys.setprofile`` would do, but while it is set the interpreter does not specialize
instructions and runs at half the speed. Here the interpreter evaluates frames (PEP
523) by a native function. It looks up the code object in a table, and asks Python only
about those that are not there yet.

    object evaluate(thread, frame, thrown)
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.emit.control_flow import I64, POINTER, VOID, i64
from weft.compile.emit.isa import new_module
from weft.compile.targets.cpu.background import ahead
from weft.compile.targets.cpu.object_code import Library, compile_known, host_isa

SLOTS = 1 << 15  # of the table of code objects
DEEPEST = 5000  # the limit of recursion up to which calls may nest on C's stack
_I32 = ir.IntType(32)
_FUNCTION, _GLOBALS, _CODE = 0, 8, 32  # their offsets in a frame of CPython 3.11
_CALLED = ("_PyEval_EvalFrameDefault", "PyObject_Vectorcall", "Py_DecRef")
_STATE = ("table", "ask", "thread", "busy")
_FRAMES = threading.Lock()  # held by whoever evaluates them
Ask = Callable[[CodeType, dict[str, Any], FunctionType], bool]


def available() -> bool:
    """Whether frames can be evaluated natively here, and nobody does so already."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] == (3, 11)
        and sys.getrecursionlimit() <= DEEPEST
        and not _FRAMES.locked()
        and _evaluator() == _address("_PyEval_EvalFrameDefault")
    )


@contextmanager
def native_events(ask: Ask) -> Iterator[None]:
    """Call ``ask(code, its globals, function)`` when functions begin in this thread.

    Once it has said True of a code object, it is not asked about that again.
    """
    known, events = Known(ask), library()
    with _FRAMES:
        events.prepare(known)
        _evaluate_by(events.evaluate)
        try:
            yield
        finally:
            _evaluate_by(_address("_PyEval_EvalFrameDefault"))


def _address(name: str) -> int:
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return found


def _interpreter() -> Any:
    return _called("PyInterpreterState_Get", ctypes.c_void_p)()


def _called(name: str, result: Any, *kinds: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *kinds)((name, ctypes.pythonapi))


def _evaluator() -> int:
    """The function by which the interpreter evaluates frames."""
    get = "_PyInterpreterState_GetEvalFrameFunc"
    return _called(get, ctypes.c_void_p, ctypes.c_void_p)(_interpreter())


def _evaluate_by(function: int) -> None:
    put = "_PyInterpreterState_SetEvalFrameFunc"
    kinds = (ctypes.c_void_p, ctypes.c_void_p)
    _called(put, None, *kinds)(_interpreter(), function)


class Known:
    """The code objects that need not be asked about, in a hash table of addresses."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.table = np.zeros(SLOTS, np.int64)
        self.slots = self.table.data
        self.held: list[CodeType] = []  # so that their addresses stay theirs
        self.asked = self._asked  # one object, whose address the native code has

    def _asked(
        self, code: CodeType, names: dict[str, Any], function: FunctionType
    ) -> None:
        if not self.ask(code, names, function) or len(self.held) > SLOTS // 2:
            return
        self.held.append(code)
        at = (id(code) >> 4) % SLOTS
        while self.slots[at]:
            at = (at + 1) % SLOTS
        self.slots[at] = id(code)


class Events:
    """The native functions."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.evaluate = library.address("evaluate")
        kinds = [ctypes.c_void_p] * len((*_STATE, *_CALLED))
        self._prepare = ctypes.CFUNCTYPE(None, *kinds)(library.address("prepare"))

    def prepare(self, known: Known) -> None:
        """Store the table, the function to ask, the thread and CPython's functions."""
        thread = _called("PyThreadState_Get", ctypes.c_void_p)()
        state = known.table.ctypes.data, id(known.asked), thread, 0
        self._prepare(*state, *map(_address, _CALLED))


@ahead
def library() -> Events:
    """The machine code, compiled or found in the cache once."""
    return Events(compile_known("evaluate", _module, host_isa(), level=0))


def _module() -> ir.Module:
    module = new_module("frames", host_isa())
    names = (*_STATE, *_CALLED)
    variables = {
        name: ir.GlobalVariable(module, I64, name + ".place") for name in names
    }
    for variable in variables.values():
        variable.initializer, variable.linkage = i64(0), "internal"
    _emit_prepare(module, variables)
    _emit_evaluate(module, variables)
    return module


def _emit_prepare(module: ir.Module, variables: dict[str, Any]) -> None:
    kind = ir.FunctionType(VOID, [I64] * len(variables))
    function = ir.Function(module, kind, "prepare")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    for variable, value in zip(variables.values(), function.args, strict=True):
        b.store(value, variable)
    b.ret_void()


def _emit_evaluate(module: ir.Module, variables: dict[str, Any]) -> None:
    kind = ir.FunctionType(POINTER, [POINTER, POINTER, _I32])
    function = ir.Function(module, kind, "evaluate")
    thread, frame, thrown = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    fallback = variables["_PyEval_EvalFrameDefault"]
    default = b.inttoptr(b.load(fallback), kind.as_pointer())
    raised = b.alloca(_I32)
    b.store(thrown, raised)
    ours = b.icmp_unsigned("==", b.ptrtoint(thread, I64), b.load(variables["thread"]))
    idle = b.icmp_unsigned("==", b.load(variables["busy"]), i64(0))
    begins = b.icmp_unsigned("==", thrown, ir.Constant(_I32, 0))
    with b.if_then(b.and_(b.and_(ours, idle), begins), likely=True):
        table = b.inttoptr(b.load(variables["table"]), I64.as_pointer())
        code = b.load(_field(b, frame, _CODE))
        with b.if_then(b.not_(_is_known(b, table, code)), likely=False):
            _emit_ask(b, variables, frame, code, raised)
    b.ret(b.call(default, [thread, frame, b.load(raised)]))


def _field(b: Any, frame: Any, offset: int) -> Any:
    address = b.add(b.ptrtoint(frame, I64), i64(offset))
    return b.inttoptr(address, I64.as_pointer())


def _emit_ask(
    b: Any, variables: dict[str, Any], frame: Any, code: Any, raised: Any
) -> None:
    """Emit a call that asks about a code object; its error is thrown into the frame."""
    call = ir.FunctionType(I64, [I64, I64.as_pointer(), I64, I64])
    drop = ir.FunctionType(VOID, [I64])
    arguments = b.alloca(I64, 3)
    b.store(code, arguments)
    for k, offset in enumerate((_GLOBALS, _FUNCTION), 1):
        b.store(b.load(_field(b, frame, offset)), b.gep(arguments, [i64(k)]))
    b.store(i64(1), variables["busy"])  # functions that ``ask`` calls do not count
    by = b.inttoptr(b.load(variables["PyObject_Vectorcall"]), call.as_pointer())
    result = b.call(by, [b.load(variables["ask"]), arguments, i64(3), i64(0)])
    b.store(i64(0), variables["busy"])
    failed = b.icmp_unsigned("==", result, i64(0))
    with b.if_else(failed) as (then, otherwise):
        with then:
            b.store(ir.Constant(_I32, 1), raised)
        with otherwise:
            b.call(
                b.inttoptr(b.load(variables["Py_DecRef"]), drop.as_pointer()), [result]
            )


def _is_known(b: Any, table: Any, code: Any) -> Any:
    """Whether a code object is in the table, by linear probing."""
    slot = b.alloca(I64)
    b.store(b.and_(b.lshr(code, i64(4)), i64(SLOTS - 1)), slot)
    look, end = (b.append_basic_block(name) for name in ("look", "end"))
    further = b.append_basic_block("further")
    b.branch(look)
    b.position_at_end(look)
    at = b.load(slot)
    entry = b.load(b.gep(table, [at]))
    stop = b.or_(b.icmp_signed("==", entry, code), b.icmp_signed("==", entry, i64(0)))
    b.cbranch(stop, end, further)
    b.position_at_end(further)
    b.store(b.and_(b.add(at, i64(1)), i64(SLOTS - 1)), slot)
    b.branch(look)
    b.position_at_end(end)
    return b.icmp_signed("==", entry, code)
