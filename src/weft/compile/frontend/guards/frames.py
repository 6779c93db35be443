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

# A function that begins is told by itself, or by its frame where that is all there is.
Running = FunctionType | FrameType
Entered = Callable[[CodeType, dict[str, Any], Running], None]
TOOL = 4  # of sys.monitoring: one that no debugger or profiler claims


@contextmanager
def entering(entered: Entered) -> Iterator[None]:
    """Call ``entered(code, its globals, running)`` when functions of the user's begin.

    Only those of this thread count. Without variables of outer functions, one call is
    as good as another.
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


class _Notes:
    """Which functions have begun: a code object may run over several namespaces."""

    def __init__(self, entered: Entered) -> None:
        self.entered = entered
        self.seen: dict[tuple[int, int], Any] = {}

    def begins(
        self, code: CodeType, names: dict[str, Any], running: Running, caller: Any
    ) -> None:
        key = id(code), id(names)
        known = key in self.seen
        if (not known or code.co_freevars) and not _by_chance(code, caller):
            self.seen[key] = code, names  # whose ids stay theirs
            self.entered(code, names, running)

    def frame(self, frame: FrameType) -> None:
        if USERS[frame.f_code.co_filename]:
            self.begins(frame.f_code, frame.f_globals, frame, frame.f_back)


@contextmanager
def _evaluated(entered: Entered) -> Iterator[None]:
    notes = _Notes(entered)

    def ask(code: CodeType, names: dict[str, Any], function: FunctionType) -> bool:
        if not USERS[code.co_filename]:
            return True
        notes.begins(code, names, function, sys._getframe(1))
        return False  # it may be called over other variables later

    with native_events(ask):
        yield


@contextmanager
def _profiled(before: Any, entered: Entered) -> Iterator[None]:
    notes = _Notes(entered)

    def event(frame: FrameType, kind: str, arg: Any) -> None:
        if kind == "call":
            notes.frame(frame)
        if before is not None:
            before(frame, kind, arg)

    sys.setprofile(event)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextmanager
def _traced(entered: Entered) -> Iterator[None]:
    notes, before = _Notes(entered), sys.gettrace()

    def event(frame: FrameType, kind: str, arg: Any) -> None:
        notes.frame(frame)

    sys.settrace(event)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _monitored(monitoring: Any, entered: Entered) -> Iterator[None]:
    notes = _Notes(entered)

    def event(code: CodeType, offset: int) -> Any:
        if not USERS[code.co_filename]:
            return monitoring.DISABLE
        return notes.frame(sys._getframe(1))

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
