"""Notes of the functions that are entered while something runs."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

from weft.compile.frontend.guards.events import available, native_events
from weft.compile.frontend.guards.kinds import USERS
from weft.graph.capture import captured_call

Entered = Callable[[CodeType, dict[str, Any]], None]
TOOL = 4  # of sys.monitoring: one that no debugger or profiler claims


@contextmanager
def entering(entered: Entered) -> Iterator[None]:
    """Call ``entered(code, its globals)`` when functions of the user's begin.

    Only those of this thread count.
    """
    with _way()(entered):
        yield


def _way() -> Any:
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None and monitoring.get_tool(TOOL) is None:
        return functools.partial(_monitored, monitoring)
    if monitoring is None and available():
        return _evaluated
    before = sys.getprofile()
    if before is not None and type(before) is not FunctionType:
        return _traced  # a profiler is running, which is not for us to stop
    return functools.partial(_profiled, before)


def _by_chance(code: CodeType, frame: FrameType | None) -> bool:
    """Whether a function runs for garbage collection or an import, not as called."""
    codes = {getattr(f, "__code__", None) for f in gc.callbacks}
    while code not in codes and code.co_name != "__del__":
        if code.co_filename.startswith("<frozen importlib"):
            return True
        if frame is None or code is captured_call:
            return False
        code, frame = frame.f_code, frame.f_back
    return True


@contextmanager
def _evaluated(entered: Entered) -> Iterator[None]:
    def ask(code: CodeType, names: dict[str, Any]) -> bool:
        users = USERS[code.co_filename]
        if users and _by_chance(code, sys._getframe(1)):
            return False  # it may be called for other reasons later
        if users:
            entered(code, names)
        return True

    with native_events(ask):
        yield


@contextmanager
def _profiled(before: Any, entered: Entered) -> Iterator[None]:
    seen: set[CodeType] = set()

    def event(frame: FrameType, kind: str, arg: Any) -> None:
        if kind == "call" and frame.f_code not in seen:
            users = USERS[frame.f_code.co_filename]
            if not users or not _by_chance(frame.f_code, frame.f_back):
                seen.add(frame.f_code)
                if users:
                    entered(frame.f_code, frame.f_globals)
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
        code = frame.f_code
        if USERS[code.co_filename] and not _by_chance(code, frame.f_back):
            entered(code, frame.f_globals)

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
            if _by_chance(code, frame.f_back):
                return None
            entered(code, frame.f_globals)
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
