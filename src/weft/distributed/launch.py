"""``weft run -n 4``: start processes on this machine, and end all of them.

Each rank is a session of its own, with its number in the environment. What it prints
gets its number in front; an error that ends it comes back over a pipe, so that the one
that came first is shown first and once, and those that only follow from it in a line.
When a rank fails, the others have ``GRACE`` seconds to notice; then they are ended. On
Linux the kernel ends them as well if the launcher itself is killed.

With restarts, all ranks are ended at once when one fails, and start again, with memory
that has what they kept (``weft.distributed.Recovery``).

With parameter servers, these and a coordinator are started as well, by the same command
with another role in the environment. A server that is killed starts again by itself, if
restarts are left; when all ranks have ended, so do the servers.
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
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, MappingProxyType, TracebackType
from typing import Any, NamedTuple, TextIO

from weft.distributed import snapshots
from weft.distributed.errors import DistError
from weft.errors import ArgumentError
from weft.runtime import system
from weft.runtime.cpu.threads import cores

GRACE = 8.0  # seconds in which processes may end by themselves
SHORT = 0.2  # the same where they are to start again
FINISH = 1.0  # seconds in which servers may end once all ranks have
LAST = 3.0  # seconds between asking a process to end and killing it

ERRORS = "WEFT_ERRORS"  # the descriptor for the error that ends a rank
PARENT = "WEFT_LAUNCHER"  # the launcher's process
_PR_SET_PDEATHSIG = 1


class Rank:
    """One process, and what it says."""

    def __init__(
        self, number: int, process: Any, errors: int, role: str = "worker"
    ) -> None:
        self.number, self.process, self.errors = number, process, errors
        self.role = role
        self.replaced = False  # by one that goes on in its place
        self.error: dict[str, Any] | None = None
        self.ended = 0.0  # when
        self.text = b""  # of its error
        self.told_to_end = False
        self.partial: dict[int, bytes] = {}  # lines that are not complete

    @property
    def status(self) -> int | None:
        return self.process.returncode

    @property
    def name(self) -> str:
        if self.role == "coordinator":
            return self.role
        return f"{'rank' if self.is_worker else self.role} {self.number}"

    @property
    def label(self) -> str:
        return str(self.number) if self.is_worker else self.name

    @property
    def is_worker(self) -> bool:
        return self.role == "worker"

    @property
    def failed(self) -> bool:
        """Whether it ended badly; a helper that was told to end did not."""
        if self.replaced or (self.told_to_end and not self.is_worker):
            return False
        return self.status not in (None, 0)

    def signal(self, number: int) -> None:
        """Send a signal to the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Place(NamedTuple):
    """Where the ranks of a machine stand among all, in one start of them."""

    nodes: tuple[int, ...]  # ranks on each machine
    node: int  # the number of this machine
    address: tuple[str, int]  # where rank 0 waits for the others
    job: str
    start: int  # how often the ranks were started before
    servers: int = 0

    @property
    def first(self) -> int:
        """The number of the machine's first rank."""
        return sum(self.nodes[: self.node])


class Launcher:
    """The ranks of one machine, from their start to the end of the last.

    ``memories`` are two for each rank, which it finds again when it is started again.
    """

    def __init__(
        self, output: TextIO | None = None, errors: TextIO | None = None
    ) -> None:
        if system.WINDOWS:
            raise ArgumentError(
                "weft run -n: processes are started for one another on Linux and macOS "
                "alone. On Windows, start each yourself, with RANK, WORLD_SIZE, "
                "MASTER_ADDR and MASTER_PORT in its environment"
            )
        self.output, self.errors = output or sys.stdout, errors or sys.stderr
        self.memories: list[tuple[int, int]] = []
        self.grace = GRACE
        self.failure: str | None = None  # the error that ended the ranks
        self.asked = 0  # the signal that this process got
        self.ranks: list[Rank] = []
        self.selector: selectors.BaseSelector
        self.stopping = False
        self.until = self.kill_at = 0.0  # when ranks that are left are asked to end
        self.again = Restarts(self, 0)
        self.command: Sequence[str] = ()
        self.helpers: dict[str, str] = {}  # the environment of servers

    def run(
        self, count: int, command: Sequence[str], restarts: int = 0, servers: int = 0,
        state: str | None = None,
    ) -> int:  # fmt: skip
        """Run a command as so many ranks; returns the exit status.

        ``restarts`` is how often all start again when one has failed. Parameter
        ``servers`` keep their state in the folder ``state``, or as long as this runs.
        """
        again = self.again = Restarts(self, restarts)
        with (
            self.signals(), self.memory(count if restarts else 0),
            _folder(state, servers) as folder,
        ):  # fmt: skip
            self.helpers = {"WEFT_STATE": folder}
            while True:
                server = socket.create_server(("127.0.0.1", 0), backlog=1024)
                place = Place(
                    (count,), 0, server.getsockname(), secrets.token_hex(8),
                    again.done, servers,
                )  # fmt: skip
                status = self.once(place, command, server)
                if not status or self.asked or not again.allowed():
                    return status

    @contextlib.contextmanager
    def memory(self, count: int) -> Iterator[None]:
        """Have memories for so many ranks."""
        pairs = [(snapshots.new_memory(), snapshots.new_memory()) for _ in range(count)]
        self.memories = pairs
        try:
            yield
        finally:
            for descriptor in (one for pair in pairs for one in pair):
                os.close(descriptor)

    def once(
        self,
        place: Place,
        command: Sequence[str],
        server: socket.socket | None,
        look: Callable[[], None] = lambda: None,
    ) -> int:
        """Start all ranks, and wait for their end; ``look`` is called meanwhile.

        ``server`` listens at the address already, where rank 0 is one of them.
        """
        self.ranks, self.selector = [], selectors.DefaultSelector()
        self.stopping = False
        self.until = self.kill_at = float("inf")
        try:
            self._start(place, command, server)
            while self._left():
                self._step()
                look()
        finally:
            for rank in self.ranks:
                rank.signal(signal.SIGKILL)  # what it has started and left behind
                rank.process.wait()
            self._drain()
        return self._report()

    def stop(self) -> None:
        """Let the ranks end: not because of one of them."""
        if not self.stopping:
            self.stopping, self.until = True, time.monotonic()

    def say(self, text: str) -> None:
        """Print a line to the user."""
        print(f"weft run: {text}", file=self.errors, flush=True)

    # -- starting

    def _start(
        self, place: Place, command: Sequence[str], server: socket.socket | None
    ) -> None:
        count = place.nodes[place.node]
        common = {
            **os.environ, "WORLD_SIZE": str(sum(place.nodes)),
            "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": place.address[0],
            "MASTER_PORT": str(place.address[1]), "WEFT_JOB": place.job,
            PARENT: str(os.getpid()), "PYTHONUNBUFFERED": "1",
            "GROUP_RANK": str(place.node), snapshots.RESTARTS: str(place.start),
            snapshots.NODES: ",".join(map(str, place.nodes)),
        }  # fmt: skip
        threads = str(max(1, cores().threads // count))
        for name in ("WEFT_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            common.setdefault(name, threads)
        self.command = command
        if place.servers:
            self._start_helpers(place, common)
        with server or contextlib.nullcontext():
            for local in range(count):
                own = {"LOCAL_RANK": str(local)}
                passed = []
                number = place.first + local
                if number == 0 and server is not None:
                    own["WEFT_LISTENER"] = str(server.fileno())
                    passed.append(server.fileno())  # no other program takes the port
                if self.memories:
                    own[snapshots.MEMORY] = ":".join(map(str, self.memories[local]))
                    passed += self.memories[local]
                self._start_one(number, {**common, **own}, passed)

    def _start_helpers(self, place: Place, common: dict[str, str]) -> None:
        """Start the coordinator and the servers; ranks are told of them."""
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
            host, port = server.getsockname()
            common |= {
                "WEFT_ROLE": "worker", "WEFT_WORKERS": str(sum(place.nodes)),
                "WEFT_SERVERS": str(place.servers),
                "WEFT_COORDINATOR": f"{host}:{port}", "WEFT_SERVER_JOB": place.job,
            }  # fmt: skip
            self.helpers |= common
            own = {"WEFT_LISTENER": str(server.fileno())}
            self._start_helper("coordinator", 0, own, [server.fileno()])
        for number in range(place.servers):
            self._start_helper("server", number)

    def _start_helper(
        self, role: str, number: int, own: Mapping[str, str] = MappingProxyType({}),
        passed: Sequence[int] = (),
    ) -> None:  # fmt: skip
        environment = {**self.helpers, "WEFT_ROLE": role, **own}
        self._start_one(number, environment, passed, role)

    def _start_one(
        self, number: int, environment: Mapping[str, str], passed: Sequence[int],
        role: str = "worker",
    ) -> None:  # fmt: skip
        read, write = os.pipe()
        process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            env={**environment, "RANK": str(number), ERRORS: str(write)},
            stderr=subprocess.PIPE, pass_fds=[*passed, write],
            start_new_session=True, bufsize=0,
        )  # fmt: skip
        os.close(write)
        rank = Rank(number, process, read, role)
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

    def _start_again(self, rank: Rank) -> bool:
        """Start a server that was killed again, if restarts are left."""
        killed = rank.status is not None and rank.status < 0 and not rank.told_to_end
        if rank.role != "server" or not killed or not self.again.one(rank.name):
            return False
        rank.replaced = True
        self._start_helper(rank.role, rank.number)
        return True

    def _step(self) -> None:
        self._read(0.05)
        now = time.monotonic()
        for rank in list(self.ranks):
            if rank.status is None and rank.process.poll() is not None:
                rank.ended = now
                if rank.failed and not self._start_again(rank):
                    grace = self.grace if rank.is_worker else SHORT
                    self.until = min(self.until, now + grace)
        workers = [rank for rank in self.ranks if rank.is_worker]
        if all(
            rank.status is not None for rank in workers
        ):  # helpers end by themselves
            failed = any(rank.failed for rank in workers)
            self.until = min(self.until, now + (SHORT if failed else FINISH))
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
                    self.until = min(self.until, time.monotonic() + self.grace)
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
            target.write(f"[{rank.label}] {shown}\n")
        target.flush()

    # -- signals

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
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
        self.failure = None
        if self.asked:
            self.say(f"ended by {_name(self.asked)}")
            return 128 + self.asked
        if not failed:
            return 0
        if self.stopping and not any(map(_is_cause, failed)):
            return 128 + signal.SIGTERM
        first = _first(failed)
        self.failure = None if first.error is None else str(first.error["text"])
        same = [r for r in failed if r is not first and _alike(r, first)]
        if first.error is not None:
            print(f"\n{first.error['trace']}", end="", file=self.errors)
        also = f", and {_numbers([r.number for r in same])}" if same else ""
        self.say(f"{first.name} {_end(first)}{also}")
        for rank in failed:
            if rank is not first and rank not in same:
                self.say(f"then {rank.name} {_end(rank)}")
        return _exit_status(first)


class Restarts:
    """How often the ranks of a launcher may start again, and whether it makes sense."""

    def __init__(self, launcher: Launcher, most: int) -> None:
        self.launcher, self.most = launcher, most
        self.done = 0
        self._last: tuple[str, int] | None = None
        launcher.grace = SHORT if most else GRACE

    def allowed(self) -> bool:
        """Count a failure; say whether the ranks start again."""
        if self.done >= self.most:
            return False
        last, failure = self._last, self.launcher.failure
        memories = [one for pair in self.launcher.memories for one in pair]
        step = max(map(snapshots.step_of, memories), default=-1)
        self._last = None if failure is None else (failure, step)
        if failure is not None and self._last == last:
            self.launcher.say("the same error came again at the same step")
            return False
        self._count()
        self.launcher.say(f"all ranks start again (restart {self.done} of {self.most})")
        return True

    def one(self, name: str) -> bool:
        """Count a server that was killed; say whether it starts again."""
        if self.done >= self.most:
            return False
        self._count()
        self.launcher.say(
            f"{name} was killed, and starts again (restart {self.done} of {self.most})"
        )
        return True

    def _count(self) -> None:
        self.done += 1
        if self.done == self.most:
            self.launcher.grace = GRACE


@contextlib.contextmanager
def _folder(given: str | None, servers: int) -> Iterator[str]:
    """The folder of servers' states; without one, a folder for as long as it runs."""
    if given is not None or not servers:
        yield os.path.abspath(given or "")
        return
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        yield folder


def _first(ranks: Sequence[Rank]) -> Rank:
    """The rank that failed first, and by itself if one did."""
    failed = [rank for rank in ranks if rank.failed]
    own = [rank for rank in failed if _is_cause(rank)]
    return min(own or [rank for rank in failed if rank.error] or failed, key=_when)


def _is_cause(rank: Rank) -> bool:
    """Whether a rank failed by itself, and not because another one did."""
    return not rank.told_to_end if rank.error is None else not rank.error["follows"]


def _when(rank: Rank) -> float:
    return rank.ended if rank.error is None else float(rank.error["time"])


def _alike(one: Rank, other: Rank) -> bool:
    if one.error is None or other.error is None or one.role != other.role:
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
    if status < 0 and rank.error is not None:
        return 1  # it was ended after it had told its error
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
