"""``weft run -n 4``: start processes on this machine, and end all of them.

Each rank is a session of its own, with its number in the environment. What it prints
gets its number in front; an error that ends it comes back over a pipe, so that the one
that came first is shown first and once, and those that only follow from it in a line.
When a rank fails, the others have ``GRACE`` seconds to notice; then they are ended. On
Linux the kernel ends them as well if the launcher itself is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, TextIO

from weft.distributed.errors import DistError

GRACE = 8.0  # seconds in which processes may end by themselves
LAST = 3.0  # seconds between asking a process to end and killing it

ERRORS = "WEFT_ERRORS"  # the descriptor for the error that ends a rank
PARENT = "WEFT_LAUNCHER"  # the launcher's process
_PR_SET_PDEATHSIG = 1


class Rank:
    """One process, and what it says."""

    def __init__(self, number: int, process: Any, errors: int) -> None:
        self.number, self.process, self.errors = number, process, errors
        self.error: dict[str, Any] | None = None
        self.ended = 0.0  # when
        self.text = b""  # of its error
        self.told_to_end = False
        self.partial: dict[int, bytes] = {}  # lines that are not complete

    @property
    def status(self) -> int | None:
        return self.process.returncode

    @property
    def failed(self) -> bool:
        return self.status not in (None, 0)

    def signal(self, number: int) -> None:
        """Send a signal to the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Launcher:
    """Several ranks of one program, from their start to the end of the last."""

    def __init__(self, output: TextIO | None = None, errors: TextIO | None = None):
        self.output, self.errors = output or sys.stdout, errors or sys.stderr
        self.ranks: list[Rank] = []
        self.selector = selectors.DefaultSelector()
        self.asked = 0  # the signal that this process got
        self.until = float("inf")  # when ranks that are left are asked to end
        self.kill_at = float("inf")

    def run(self, count: int, command: Sequence[str]) -> int:
        """Run a command as so many ranks; returns the exit status."""
        with self._signals():
            try:
                self._start(count, command)
                while self._left():
                    self._step()
            finally:
                for rank in self.ranks:
                    rank.signal(signal.SIGKILL)  # what it has started and left behind
                    rank.process.wait()
                self._drain()
        return self._report()

    # -- starting

    def _start(self, count: int, command: Sequence[str]) -> None:
        server = socket.create_server(("127.0.0.1", 0), backlog=1024)
        common = {
            **os.environ, "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1]),
            "WEFT_JOB": secrets.token_hex(8), PARENT: str(os.getpid()),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        threads = str(max(1, len(os.sched_getaffinity(0)) // count)
                      if hasattr(os, "sched_getaffinity")
                      else max(1, (os.cpu_count() or 1) // count))  # fmt: skip
        for name in ("WEFT_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            common.setdefault(name, threads)
        with server:
            for number in range(count):
                self._start_one(number, command, common, server)

    def _start_one(
        self, number: int, command: Sequence[str], common: dict[str, str], server: Any
    ) -> None:
        read, write = os.pipe()
        own = {"RANK": str(number), "LOCAL_RANK": str(number), ERRORS: str(write)}
        passed = [write]
        if number == 0:  # it listens already, so no other program takes the port
            own["WEFT_LISTENER"] = str(server.fileno())
            passed.append(server.fileno())
        process = subprocess.Popen(
            command, env={**common, **own}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=passed,
            start_new_session=True, bufsize=0,
        )  # fmt: skip
        os.close(write)
        rank = Rank(number, process, read)
        self.ranks.append(rank)
        assert process.stdout is not None
        assert process.stderr is not None
        for source, target in (
            (process.stdout.fileno(), self.output),
            (process.stderr.fileno(), self.errors),
            (read, None),
        ):
            os.set_blocking(source, False)
            self.selector.register(source, selectors.EVENT_READ, (rank, target))

    # -- running

    def _left(self) -> bool:
        return any(rank.status is None for rank in self.ranks)

    def _step(self) -> None:
        self._read(0.05)
        now = time.monotonic()
        for rank in self.ranks:
            if rank.status is None and rank.process.poll() is not None:
                rank.ended = now
                if rank.failed:
                    self.until = min(self.until, now + GRACE)
        if now > self.until:
            self._end(signal.SIGTERM)
            self.until, self.kill_at = float("inf"), now + LAST
        if now > self.kill_at:
            self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        for rank in self.ranks:
            if rank.status is None:
                rank.told_to_end = True
                rank.signal(number)
                if number == signal.SIGTERM:
                    rank.signal(signal.SIGCONT)  # one that is stopped takes no other

    def _read(self, timeout: float) -> bool:
        """Read what ranks say; whether there was anything."""
        found = self.selector.select(timeout)
        for key, _ in found:
            rank, target = key.data
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            if not data:
                self.selector.unregister(key.fd)
            if target is None:
                rank.text += data
                rank.error = rank.error or _parsed(rank.text)
                if rank.error is not None:
                    self.until = min(self.until, time.monotonic() + GRACE)
            else:
                self._print(rank, key.fd, target, data)
        return bool(found)

    def _drain(self) -> None:
        """Read what is left; a descriptor that somebody else holds open may stay."""
        until = time.monotonic() + 1
        while self.selector.get_map() and time.monotonic() < until:
            if not self._read(0.05):
                break
        for key in list(self.selector.get_map().values()):
            rank, target = key.data
            if target is not None:
                self._print(rank, key.fd, target, b"")
        self.selector.close()
        for rank in self.ranks:
            os.close(rank.errors)
            rank.process.stdout.close()
            rank.process.stderr.close()

    def _print(self, rank: Rank, source: int, target: TextIO, data: bytes) -> None:
        """Print the complete lines, each with the rank in front; at the end, all."""
        text = rank.partial.pop(source, b"") + data
        lines = text.splitlines(keepends=True)
        if data and lines and not lines[-1].endswith((b"\n", b"\r")):
            rank.partial[source] = lines.pop()
        for line in lines:
            shown = line.decode("utf-8", "replace").rstrip("\r\n")
            target.write(f"[{rank.number}] {shown}\n")
        target.flush()

    # -- signals

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Pass signals on; a second one ends everything at once."""
        names = ("SIGINT", "SIGTERM", "SIGHUP")
        known = [getattr(signal, name) for name in names if hasattr(signal, name)]
        before = {number: signal.signal(number, self._signalled) for number in known}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked:
            self.kill_at = now
        self.asked = number
        self._end(number)
        self.until = min(self.until, now + LAST)

    # -- the end

    def _report(self) -> int:
        """Show why ranks failed, the first one first; the exit status."""
        failed = [rank for rank in self.ranks if rank.failed]
        if self.asked:
            print(f"weft run: ended by {_name(self.asked)}", file=self.errors)
            return 128 + self.asked
        if not failed:
            return 0
        own = [rank for rank in failed if _is_cause(rank)]
        first = min(own or [r for r in failed if r.error] or failed, key=_when)
        same = [r.number for r in failed if r is not first and _alike(r, first)]
        if first.error is not None:
            print(f"\n{first.error['trace']}", end="", file=self.errors)
        also = f", and {_numbers(same)}" if same else ""
        print(f"weft run: rank {first.number} {_end(first)}{also}", file=self.errors)
        for rank in failed:
            if rank is not first and rank.number not in same:
                print(
                    f"weft run: then rank {rank.number} {_end(rank)}", file=self.errors
                )
        return _exit_status(first)


def _is_cause(rank: Rank) -> bool:
    """Whether a rank failed by itself, and not because another one did."""
    return not rank.told_to_end if rank.error is None else not rank.error["follows"]


def _when(rank: Rank) -> float:
    return rank.ended if rank.error is None else float(rank.error["time"])


def _alike(one: Rank, other: Rank) -> bool:
    if one.error is None or other.error is None:
        return False
    return bool(one.error["trace"] == other.error["trace"])


def _numbers(ranks: Sequence[int]) -> str:
    names = ", ".join(map(str, ranks))
    return f"rank {names} did too" if len(ranks) == 1 else f"ranks {names} did too"


def _end(rank: Rank) -> str:
    """How a rank ended, in a line."""
    if rank.error is not None:
        return f"raised {rank.error['text']}"
    status = rank.status or 0
    return f"was ended by {_name(-status)}" if status < 0 else f"exited with {status}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _exit_status(rank: Rank) -> int:
    status = rank.status or 0
    return 128 - status if status < 0 else status


def _parsed(text: bytes) -> dict[str, Any] | None:
    """The error that a rank has told, once all of it is there."""
    if not text.endswith(b"\n"):
        return None
    found = json.loads(text)
    return found if isinstance(found, dict) else None


# -- in a rank


def die_with_launcher() -> None:
    """Let the kernel end this process when its launcher ends (on Linux)."""
    parent = os.environ.pop(PARENT, "")
    if not parent or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it has ended before that
        os.kill(os.getpid(), signal.SIGKILL)


def tell_launcher() -> None:
    """Let an error that ends this process go to its launcher, if it has one."""
    given = os.environ.pop(ERRORS, "")
    if not given:
        return
    descriptor = int(given)
    os.set_inheritable(descriptor, False)

    def tell(kind: Any, error: BaseException, trace: TracebackType | None) -> None:
        lines = traceback.format_exception(kind, error, trace)
        text = traceback.format_exception_only(kind, error)[0].partition("\n")[0]
        words = {"time": time.time(), "text": text, "trace": "".join(lines),
                 "follows": issubclass(kind, DistError)}  # fmt: skip
        try:
            os.write(descriptor, json.dumps(words).encode() + b"\n")
        except OSError:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = tell
