"""``weft.multiprocessing``: Python's ``multiprocessing``, with ``spawn``.

A tensor that is sent to another process is copied there (see ``weft.pickling``); it is
not memory that both share.
"""

from __future__ import annotations

import multiprocessing as _std
import traceback
from collections.abc import Callable
from typing import Any

_strategy = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """The names that ``set_sharing_strategy`` takes.

    >>> sorted(weft.multiprocessing.get_all_sharing_strategies())
    ['file_descriptor', 'file_system']
    """
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """The name that was set.

    >>> weft.multiprocessing.get_sharing_strategy()
    'file_descriptor'
    """
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Take a name; tensors are copied to other processes in either case.

    >>> weft.multiprocessing.set_sharing_strategy("file_descriptor")
    """
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        names = ", ".join(sorted(get_all_sharing_strategies()))
        raise AssertionError(
            f"set_sharing_strategy: expected one of {names}, got {new_strategy!r}"
        )
    _strategy = new_strategy


class ProcessException(Exception):
    """A spawned process that failed."""

    def __init__(self, msg: str, error_index: int, pid: int | None) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """A spawned process that raised an error; the text has its traceback."""


class ProcessExitedException(ProcessException):
    """A spawned process that ended with another status than 0."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int | None, exit_code: int
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code


def _run(fn: Any, number: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(number, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.send_bytes(traceback.format_exc().encode())
        raise SystemExit(1) from None


class ProcessContext:
    """Processes that ``spawn`` has started."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self.errors = processes, errors

    def pids(self) -> list[int]:
        """The processes' numbers."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: Any = None) -> bool:
        """Wait for one process or more; True when all have ended well.

        If one failed, the others are ended, and its error is raised.
        """
        from multiprocessing.connection import wait

        alive = [p for p in self.processes if p.exitcode is None]
        if alive:
            wait([p.sentinel for p in alive], timeout)
        for number, process in enumerate(self.processes):
            process.join(0)
            if process.exitcode not in (None, 0):
                self._fail(number, process)
        return all(p.exitcode == 0 for p in self.processes)

    def _fail(self, number: int, process: Any) -> None:
        for other in self.processes:
            if other.is_alive():
                other.terminate()
            other.join()
        if self.errors[number].poll():
            text = self.errors[number].recv_bytes().decode()
            raise ProcessRaisedException(
                f"\n\n-- Process {number} terminated with the following error:\n{text}",
                number,
                process.pid,
            )
        raise ProcessExitedException(
            f"process {number} terminated with exit code {process.exitcode}",
            number,
            process.pid,
            process.exitcode,
        )


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run ``fn(number, *args)`` in so many processes.

    >>> weft.multiprocessing.start_processes(print, nprocs=0)
    """
    context: Any = _std.get_context(start_method)
    processes, errors = [], []
    for number in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=_run, args=(fn, number, args, sender), daemon=daemon
        )
        process.start()
        processes.append(process)
        errors.append(receiver)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """``start_processes`` with processes that begin anew.

    >>> weft.multiprocessing.spawn(print, nprocs=0)
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def __getattr__(name: str) -> Any:
    return getattr(_std, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_std)})
