"""``weft.profiler``: the time of every eager operator, under PyTorch's names.

>>> with weft.profiler.profile() as prof:
...     with weft.profiler.record_function("forward"):
...         _ = weft.ones(4, 4) @ weft.ones(4, 4)
>>> {event.key for event in prof.key_averages()} >= {"forward", "matmul"}
True

The kernels of compiled functions are shown by ``f.explain(measure=True)``.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from weft.core.dispatch import Evaluator
from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.errors import ArgumentError


class ProfilerActivity(enum.Enum):
    """What can be recorded; only the CPU is here."""

    CPU = 0
    CUDA = 2
    XPU = 1


class ProfilerAction(enum.Enum):
    """What a schedule asks for in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """The activities that can be recorded here.

    >>> weft.profiler.supported_activities()
    {<ProfilerActivity.CPU: 0>}
    """
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """False: the recorder is Weft's own.

    >>> weft.profiler.kineto_available()
    False
    """
    return False


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0
) -> Callable[[int], ProfilerAction]:
    """Which steps are recorded: after some that are skipped, so many of each cycle.

    >>> plan = weft.profiler.schedule(wait=1, warmup=1, active=1)
    >>> [plan(step).name for step in range(3)]
    ['NONE', 'WARMUP', 'RECORD_AND_SAVE']
    """

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        cycle = wait + warmup + active
        if step < 0 or (repeat > 0 and step // cycle >= repeat):
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == cycle - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


# -- recording


class FunctionEvent:
    """An operator or a named block that ran once; times are microseconds."""

    def __init__(self, name: str, start: float, shapes: Any, thread: int) -> None:
        self.name = self.key = name
        self.start, self.end, self.inner = start, start, 0.0
        self.input_shapes, self.thread, self.nbytes = shapes, thread, 0

    @property
    def cpu_time_total(self) -> float:
        """Microseconds from its begin to its end."""
        return self.end - self.start

    @property
    def self_cpu_time_total(self) -> float:
        """The same without what ran inside of it."""
        return self.cpu_time_total - self.inner


_running: list[profile] = []  # innermost last
_open = threading.local()


def _begin(name: str, shapes: Any = ()) -> FunctionEvent:
    now = time.perf_counter() * 1e6
    event = FunctionEvent(name, now, shapes, threading.get_ident())
    stack = _open.__dict__.setdefault("stack", [])
    stack.append(event)
    return event


def _end(event: FunctionEvent) -> None:
    event.end = time.perf_counter() * 1e6
    stack = _open.stack
    stack.pop()
    if stack:
        stack[-1].inner += event.cpu_time_total
    for one in _running:
        if one.recording:
            one.found.append(event)


class _Timer(Evaluator):
    """Times every operator of its thread."""

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        shapes = [list(a.shape) if isinstance(a, Tensor) else [] for a in args]
        event = _begin(op.name, shapes)
        try:
            out = super().process(op, args, params)
            if not op.view:
                results = out if isinstance(out, (tuple, list)) else (out,)
                event.nbytes = sum(
                    r.numel() * r.element_size()
                    for r in results
                    if isinstance(r, Tensor)
                )
            return out
        finally:
            _end(event)


class record_function:
    """A block, or a decorated function, that profiles show under a name.

    >>> with weft.profiler.record_function("load"):
    ...     pass
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args

    def __enter__(self) -> record_function:
        self._event = _begin(self.name)
        return self

    def __exit__(self, *error: object) -> None:
        _end(self._event)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def named(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return fn(*args, **kwargs)

        return named


class profile:
    """Records the operators of this thread in a block, all or those of a schedule."""

    def __init__(
        self, activities: Iterable[ProfilerActivity] | None = None, *,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
        **options: Any,
    ) -> None:  # fmt: skip
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.profile_memory = profile_memory
        self.found: list[FunctionEvent] = []
        self.step_num = 0
        self.recording = False

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin."""
        _running.append(self)
        self._timer = _Timer()
        self._timer.__enter__()
        self._set(self._action())

    def stop(self) -> None:
        """End; a trace that is under way is ready now."""
        _running.remove(self)
        self._timer.__exit__()
        was, self.recording = self.recording, False
        if was and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """Tell that the next step begins."""
        done = self._action()
        if done is ProfilerAction.RECORD_AND_SAVE and self.on_trace_ready is not None:
            self.on_trace_ready(self)
        self.step_num += 1
        following = self._action()
        if done is not ProfilerAction.RECORD and following in _RECORDS:
            self.found = []  # a new cycle
        self._set(following)

    def _action(self) -> ProfilerAction:
        return self.schedule(self.step_num) if self.schedule else ProfilerAction.RECORD

    def _set(self, action: ProfilerAction) -> None:
        self.recording = action in _RECORDS

    def events(self) -> list[FunctionEvent]:
        """What ran, in the order in which it ended."""
        return list(self.found)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> EventList:
        """What ran, by name (and shapes), with counts and times."""
        groups: dict[Any, list[FunctionEvent]] = {}
        for event in self.found:
            shapes = str(event.input_shapes) if group_by_input_shape else ""
            groups.setdefault((event.name, shapes), []).append(event)
        return EventList(
            Average.of(name, shapes, events)
            for (name, shapes), events in groups.items()
        )

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a file for chrome://tracing and Perfetto."""
        write_trace(path, [
            trace_row(e.name, e.start, e.end, os.getpid(), e.thread, "cpu_op",
                      {"Input Dims": e.input_shapes})
            for e in self.found
        ])  # fmt: skip


def trace_row(
    name: str, start: float, end: float, process: int, thread: int, kind: str, more: Any
) -> dict[str, Any]:
    """Something that ran, as a row of a Chrome trace; times are microseconds."""
    return {
        "name": name, "ph": "X", "cat": kind, "pid": process, "tid": thread,
        "ts": start, "dur": end - start, "args": more,
    }  # fmt: skip


def write_trace(path: str | os.PathLike[str], rows: list[dict[str, Any]]) -> None:
    """Write rows as a file for chrome://tracing and Perfetto."""
    pathlib.Path(path).write_text(json.dumps({"traceEvents": rows}), "utf-8")


@dataclasses.dataclass(frozen=True)
class Average:
    """All runs of one name; times are microseconds."""

    key: str
    input_shapes: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    self_cpu_memory_usage: int

    @classmethod
    def of(cls, key: str, shapes: str, events: list[FunctionEvent]) -> Average:
        total = sum(e.cpu_time_total for e in events)
        own = sum(e.self_cpu_time_total for e in events)
        return cls(key, shapes, len(events), total, own, sum(e.nbytes for e in events))

    @property
    def cpu_time(self) -> float:
        """Microseconds a run."""
        return self.cpu_time_total / self.count


def _time(microseconds: float) -> str:
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


class EventList(list[Average]):
    """Rows of a profile, which print as a table."""

    def total_average(self) -> Average:
        """All rows as one."""
        own = sum(row.self_cpu_time_total for row in self)
        nbytes = sum(row.self_cpu_memory_usage for row in self)
        return Average("Total", "", sum(r.count for r in self), own, own, nbytes)

    def table(
        self, sort_by: str | None = None, row_limit: int = 100,
        max_src_column_width: int = 75, max_name_column_width: int = 55,
        header: str | None = None, top_level_events_only: bool = False,
    ) -> str:  # fmt: skip
        """The rows as text, by a column such as "cpu_time_total", largest first."""
        rows = list(self)
        if sort_by is not None:
            column = _column(sort_by)
            rows.sort(key=lambda row: -getattr(row, column))
        total = self.total_average().self_cpu_time_total or 1.0
        cells = [_HEAD] + [
            [
                row.key[:max_name_column_width],
                f"{100 * row.self_cpu_time_total / total:.2f}%",
                _time(row.self_cpu_time_total),
                f"{100 * row.cpu_time_total / total:.2f}%",
                _time(row.cpu_time_total), _time(row.cpu_time),
                f"{row.self_cpu_memory_usage} b", str(row.count), row.input_shapes,
            ]
            for row in (rows if row_limit < 0 else rows[:row_limit])
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        rule = "  ".join("-" * width for width in widths)
        lines = [
            "  ".join(
                cell.rjust(width) for cell, width in zip(row, widths, strict=True)
            )
            for row in cells
        ]
        body = [rule, lines[0], rule, *lines[1:], rule]
        end = f"Self CPU time total: {_time(total)}"
        return "\n".join([header or "", *body, end, ""]).lstrip("\n")

    __str__ = table


_HEAD = [
    "Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg",
    "CPU Mem", "# of Calls", "Input Shapes",
]  # fmt: skip


def _column(sort_by: str) -> str:
    name = sort_by.replace("cuda", "cpu").replace("device", "cpu")
    if name == "cpu_memory_usage":
        name = "self_cpu_memory_usage"
    fields = [*[f.name for f in dataclasses.fields(Average)][2:], "cpu_time"]
    if name not in fields:
        names = ", ".join(fields)
        raise ArgumentError(f"table: expected sort_by in {names}, got {sort_by!r}")
    return name


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """A function for ``on_trace_ready`` that writes each trace into a folder.

    >>> callable(weft.profiler.tensorboard_trace_handler("traces"))
    True
    """

    def write(prof: profile) -> None:
        folder = pathlib.Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns() // 10**6}.pt.trace.json"
        prof.export_chrome_trace(folder / name)

    return write
