"""Errors that say what was expected, what came, and where in the user's code.

Each class also derives from the built-in exceptions that PyTorch and Python
users already catch.
"""

from __future__ import annotations

import contextlib
import itertools
import linecache
import os
import sys
import threading
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy as np

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class _Internal(dict[str, bool]):
    """Remembers, file by file, whether code belongs to this package.

    So does what Python's context managers put between its functions.
    """

    def __missing__(self, filename: str) -> bool:
        ours = filename.startswith(_PACKAGE) or filename == contextlib.__file__
        self[filename] = ours
        return ours


INTERNAL = _Internal()
_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")
_NUMPY = os.path.join(os.path.dirname(np.__file__), "")


def is_installed(filename: str) -> bool:
    """Whether a file is of a package that was installed (Debian has its own folder)."""
    return "site-packages" in filename or "dist-packages" in filename


def is_library(filename: str) -> bool:
    """Whether a file is of Python's own library, or of NumPy."""
    if filename.startswith(_NUMPY):
        return True
    return not is_installed(filename) and filename.startswith(("<frozen", _LIBRARY))


def called_by_user(frame: FrameType | None) -> bool:
    """Whether a frame is of the user's code, or of a library's that it called."""
    while frame is not None:
        file = frame.f_code.co_filename
        if INTERNAL[file] or file == linecache.__file__ or "importlib" in file:
            return False
        if not is_library(file):
            return True
        frame = frame.f_back
    return False


def user_frame() -> FrameType | None:
    """The innermost frame that is not the package's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and INTERNAL[frame.f_code.co_filename]:
        frame = frame.f_back
    return frame


def describe_line(code: CodeType | None, lasti: int) -> str:
    """``file:line, in function`` and the source, from a code object and offset."""
    if code is None:
        return "an unknown line"
    return _describe(code, _line_at(code, lasti))


def _line_at(code: CodeType, lasti: int) -> int:
    for start, stop, line in code.co_lines():
        if start <= lasti < stop and line is not None:
            return line
    return code.co_firstlineno


def _describe(code: CodeType, line: int) -> str:
    place = f"{code.co_filename}:{line}, in {code.co_name}"
    source = linecache.getline(code.co_filename, line).strip()
    return f"{place}\n    {source}" if source else place


def user_line() -> str:
    """The user's line that runs now."""
    frame = user_frame()
    if frame is None:
        return "an unknown line"
    return _describe(frame.f_code, frame.f_lineno)


def shorten(error: BaseException) -> None:
    """Take the package's own frames out of an error's traceback, and the errors that
    it met on the way. ``WEFT_TRACEBACK=full`` in the environment keeps them.

    Whoever catches an error to shorten it goes on with a bare ``raise``, which adds no
    frame.
    """
    if os.environ.get("WEFT_TRACEBACK") == "full":
        return
    error.__traceback__ = _users_part(error.__traceback__)
    before = error.__context__
    while before is not None and before.__traceback__ is not None:
        before.__traceback__ = _users_part(before.__traceback__)
        if before.__traceback__ is None:  # nothing that the user's code has seen
            error.__suppress_context__ = error.__cause__ is None
            break
        before = before.__context__


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    found = []
    while trace is not None:
        if not INTERNAL[trace.tb_frame.f_code.co_filename]:
            found.append(trace)
        trace = trace.tb_next
    made = None
    for one in reversed(found):
        made = TracebackType(made, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return made


class _Calls(threading.local):
    def __init__(self) -> None:
        self.modules: list[Any] = []


_calls = _Calls()


def module_stack() -> list[Any]:
    """The modules whose ``forward`` is running in this thread, outermost first."""
    return _calls.modules


def module_path() -> str:
    """The path of the running module, such as ``model.blocks[3].fc1``; "" outside."""
    stack = _calls.modules
    if not stack:
        return ""
    path = _variable_name(stack[0])
    for parent, child in itertools.pairwise(stack):
        names = [name for name, module in parent.named_children() if module is child]
        step = names[0] if names else type(child).__name__
        for part in step.split("."):
            path += f"[{part}]" if part.isdigit() else f".{part}"
    return f"{path} ({type(stack[-1]).__name__})"


def _variable_name(value: Any) -> str:
    """The name of a value in the user's code, or its class."""
    frame = user_frame()
    while frame is not None:
        code = frame.f_code  # a method's self tells nothing
        own = code.co_varnames[: min(code.co_argcount, 1)]
        if INTERNAL[code.co_filename]:
            own = code.co_varnames
        for name, held in (*frame.f_locals.items(), *frame.f_globals.items()):
            if held is value and name not in own and not name.startswith("_"):
                return name
        frame = frame.f_back
    return type(value).__name__


class WeftError(Exception):
    """Base of all errors raised by Weft.

    The text ends with the user's line and, inside a model, the module's path.
    """

    def __init__(self, message: str) -> None:
        path = module_path()
        inside = f"\n  in {path}" if path else ""
        super().__init__(f"{message}{inside}\n  at {user_line()}")


class ShapeError(WeftError, ValueError, RuntimeError):
    """Shapes, ranks or sizes that do not fit the operator."""


class RankError(ShapeError, IndexError):
    """Too few dimensions, or one without elements: PyTorch looks it up and fails."""


class DTypeError(WeftError, TypeError, NotImplementedError):
    """Element types or Python types that the operator does not take.

    PyTorch raises a ``TypeError`` for the latter, and a ``RuntimeError`` or a
    ``NotImplementedError``, which is one, for the former.
    """


class OutOfRangeError(WeftError, IndexError, RuntimeError):
    """An index or a dimension outside its axis or rank."""


class ArgumentError(WeftError, ValueError, RuntimeError):
    """A value that the operator does not take."""


class ChoiceError(ArgumentError, NotImplementedError):
    """A mode or another choice that there is not."""


class LayoutError(ShapeError, NotImplementedError):
    """A number of dimensions that a mode has no kernel for."""


class MemberError(ArgumentError, KeyError):
    """A name or a key that a dictionary cannot have, or lacks."""

    __str__ = Exception.__str__  # which does not quote the text


class SharedMemoryError(ArgumentError):
    """An argument that a program changes while another shares its memory."""


class ExportError(WeftError, BufferError):
    """A tensor that cannot be handed over as memory."""


class DeviceError(WeftError, RuntimeError):
    """Devices that differ, or a device that is not there."""


class AbsentDeviceError(DeviceError, AssertionError):
    """A device of a kind that is not here; PyTorch's CPU build asserts that it is."""


class AutogradError(WeftError, RuntimeError):
    """A gradient that cannot be computed."""


class AllocationError(WeftError, MemoryError, RuntimeError):
    """A tensor too large for this machine's memory."""


class FileFormatError(WeftError, ValueError):
    """A file that is damaged, hostile or of another format."""
