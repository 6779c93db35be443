"""Telling which functions are entered while something runs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

from weft.compile.guards.kinds import USERS

Entered = Callable[[FrameType], None]
TOOL = 4  # of sys.monitoring: one that no debugger or profiler claims


@contextmanager
def entering(entered: Entered) -> Iterator[None]:
    """Call ``entered(frame)`` when the user's functions begin in this thread."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None and monitoring.get_tool(TOOL) is None:
        with _monitored(monitoring, entered):
            yield
        return
    before = sys.getprofile()
    if before is not None and type(before) is not FunctionType:
        with _traced(entered):  # a profiler is running, which is not for us to stop
            yield
        return
    if before is None and sys.implementation.name == "cpython":
        with _asked(entered):
            yield
        return
    with _profiled(entered, before):
        yield


def _by_chance(frame: FrameType | None) -> bool:
    """Whether a function runs because memory is being collected, not as called."""
    codes = {getattr(f, "__code__", None) for f in gc.callbacks}
    while frame is not None:
        if frame.f_code in codes or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


@contextmanager
def _asked(entered: Entered) -> Iterator[None]:
    from weft.compile.guards.events import native_events

    def ask(frame: FrameType) -> bool:
        users = USERS[frame.f_code.co_filename]
        if users and _by_chance(frame):
            return False  # it may be called for other reasons later
        if users:
            entered(frame)
        return True

    with native_events(ask):
        yield


@contextmanager
def _profiled(entered: Entered, before: Any) -> Iterator[None]:
    seen: set[CodeType] = set()

    def event(frame: FrameType, kind: str, arg: Any) -> None:
        if kind == "call" and frame.f_code not in seen:
            users = USERS[frame.f_code.co_filename]
            if not users or not _by_chance(frame):
                seen.add(frame.f_code)
                if users:
                    entered(frame)
        if before is not None:
            before(frame, kind, arg)

    sys.setprofile(event)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextmanager
def _traced(entered: Entered) -> Iterator[None]:
    before = sys.gettrace()

    def event(frame: FrameType, kind: str, arg: Any) -> None:
        if USERS[frame.f_code.co_filename] and not _by_chance(frame):
            entered(frame)

    sys.settrace(event)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _monitored(monitoring: Any, entered: Entered) -> Iterator[None]:
    def event(code: CodeType, offset: int) -> Any:
        if USERS[code.co_filename]:
            frame = sys._getframe(1)
            if _by_chance(frame):
                return None
            entered(frame)
        return monitoring.DISABLE

    start = monitoring.events.PY_START
    monitoring.use_tool_id(TOOL, "weft.compile")
    monitoring.register_callback(TOOL, start, event)
    monitoring.restart_events()
    monitoring.set_events(TOOL, start)
    try:
        yield
    finally:
        monitoring.set_events(TOOL, 0)
        monitoring.register_callback(TOOL, start, None)
        monitoring.free_tool_id(TOOL)
