"""Errors that say what was expected, what came, and where in the user's code.

Each class also derives from the built-in exceptions that PyTorch and Python
users already catch.
"""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, FrameType

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class _Internal(dict[str, bool]):
    """Remembers, file by file, whether code belongs to this package."""

    def __missing__(self, filename: str) -> bool:
        known = self[filename] = filename.startswith(_PACKAGE)
        return known


INTERNAL = _Internal()


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
    """Where the user's code stands now."""
    frame = user_frame()
    if frame is None:
        return "an unknown line"
    return _describe(frame.f_code, frame.f_lineno)


class WeftError(Exception):
    """Base of all errors raised by Weft; the text ends with the user's line."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}\n  at {user_line()}")


class ShapeError(WeftError, ValueError, RuntimeError):
    """Shapes, ranks or sizes that do not fit the operator."""


class DTypeError(WeftError, TypeError, RuntimeError):
    """Element types or Python types that the operator does not take."""


class OutOfRangeError(WeftError, IndexError):
    """An index or a dimension outside its axis or rank."""


class ArgumentError(WeftError, ValueError, RuntimeError):
    """A value that the operator does not take."""


class DeviceError(WeftError, RuntimeError):
    """Devices that differ, or a device that is not there."""


class AutogradError(WeftError, RuntimeError):
    """A gradient that was asked for and cannot be had."""


class AllocationError(WeftError, MemoryError, RuntimeError):
    """A tensor too large for this machine's memory."""


class FileFormatError(WeftError, ValueError):
    """A file that is damaged, hostile or of another format."""
