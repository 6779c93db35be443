"""A worker's connections to the servers, and the processes that are none."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from weft.distributed import environment
from weft.distributed.environment import Role
from weft.distributed.errors import (
    DistNetworkError,
    DistStoreError,
    ParameterServerError,
)
from weft.distributed.exchange import patience
from weft.distributed.groups import Ending
from weft.distributed.links import TICK, Link, Message
from weft.distributed.parameter_server.connections import Post, hello
from weft.distributed.parameter_server.coordinator import Coordinator
from weft.distributed.parameter_server.server import Server
from weft.distributed.rendezvous import Address, listener, reached, shown
from weft.errors import ArgumentError

FOLDER = "WEFT_STATE"  # where servers keep their logs
_PAUSE = 0.1  # seconds between attempts to reach a server


class Request(NamedTuple):
    """A question to a server, and the arrays that go with it."""

    words: dict[str, Any]
    arrays: Sequence[np.ndarray] = ()


class Store:
    """A worker's connections to all servers; ``connect`` makes it.

    A server that is lost is waited for, and is asked again what it has not answered.
    """

    def __init__(self, role: Role, timeout: float) -> None:
        self.role = role
        self.rank, self.workers, self.servers = role.rank, role.workers, role.servers
        self.steps = 0  # pushes so far
        self.closed = False
        self.helpers: Callable[[], None] = lambda: None  # ends those of this process
        self._post = Post()
        self._links: dict[int, Link] = {}
        self._reached: dict[int, Address] = {}  # where the servers were at last
        self._lost: dict[int, float] = {}  # servers, and since when
        self._tried = self._looked = 0.0  # when
        self._stopped: dict[int, float] = {}  # servers, and since when
        self._why: dict[int, str] = {}  # a server could not be reached
        self._asked: dict[int, deque[Request]] = {
            k: deque() for k in range(self.servers)
        }
        self._answers: dict[int, list[Message]] = {}
        self._known: dict[str, Any] = {"servers": {}}  # what the coordinator says
        self._number = 0
        self._ending = Ending()
        try:
            self._connect(timeout)
        except BaseException:
            self.closed = True
            self._ending.close()
            self._post.close()
            raise
        atexit.register(self.close)

    # -- the start

    def _connect(self, timeout: float) -> None:
        """Reach the coordinator, wait until it knows all servers, and reach them."""
        until = time.monotonic() + timeout
        channel = reached(self.role.coordinator, until, self._unreachable)
        self._coordinator = self._post.add(channel)
        self._coordinator.put(hello(self.role))
        while missing := [k for k in range(self.servers) if self._address(k) is None]:
            self._read()
            if time.monotonic() > until:
                names = ", ".join(map(str, missing))
                raise DistStoreError(
                    f"connect: of {self.servers} servers, {names} did not come in "
                    f"{timeout:g} seconds; the coordinator at "
                    f"{shown(self.role.coordinator)} waits for them"
                )
        for server in range(self.servers):
            self._lost[server] = time.monotonic()
        self._reach_lost()
        while self._lost:
            self._read()
            self._reach_lost()

    def _unreachable(self, why: str) -> str:
        return (
            f"connect: cannot reach the coordinator at {shown(self.role.coordinator)} "
            f"({why}). Check WEFT_COORDINATOR, and that the process there runs"
        )

    def _address(self, server: int) -> Address | None:
        found = self._known["servers"].get(str(server))
        return None if found is None else (found["host"], found["port"])

    # -- requests

    def ask(
        self, requests: Mapping[int, Sequence[Request]]
    ) -> dict[int, list[Message]]:
        """Ask servers, and wait for their answers, which are in the order of requests.

        An error of one is raised when all have answered.
        """
        if self.closed:
            raise ParameterServerError("the connections to the servers are closed")
        self._answers = {server: [] for server in requests}
        for server, some in requests.items():
            for request in some:
                self._number += 1
                one = Request({**request.words, "id": self._number}, request.arrays)
                self._asked[server].append(one)
                if server in self._links:
                    self._send(server, one)
        try:
            while any(self._asked.values()):
                self._read()
                self._reach_lost()
                self._look_for_stopped()
        finally:  # an interrupted call waits for nothing any more
            for asked in self._asked.values():
                asked.clear()
        for messages in self._answers.values():
            for message in messages:
                if "error" in message.header:
                    raise ParameterServerError(message.header["error"])
        return self._answers

    def _send(self, server: int, request: Request) -> None:
        self._links[server].put(request.words, *request.arrays)

    def _read(self) -> None:
        """Read what has come, or wait a moment for it."""
        for link, message in self._post.wait():
            if link is self._coordinator:
                self._hear(message)
            elif message is None:
                self._lose(link.rank)
            elif "late" in message.header:
                text = f"warning: {message.header['late']}"
                print(f"weft.distributed: {text}", file=sys.stderr, flush=True)
            else:
                asked = self._asked[link.rank]
                if asked and message.header["id"] == asked[0].words["id"]:
                    asked.popleft()
                    self._answers[link.rank].append(message)

    def _hear(self, message: Message | None) -> None:
        """Take what the coordinator says."""
        if message is None:
            self._fail(DistNetworkError(
                f"the coordinator at {shown(self.role.coordinator)} is gone"
            ))  # fmt: skip
        if "error" in message.header:
            self._fail(DistStoreError(f"connect: {message.header['error']}"))
        self._known = message.header

    def _fail(self, error: Exception) -> NoReturn:
        """Raise an error after which there is nothing left to ask."""
        self._ending.text = f"it lost the servers: {error}"
        self.close()
        raise error

    # -- servers that are lost

    def _lose(self, server: int) -> None:
        if server in self._links:
            del self._links[server]
            self._lost[server] = time.monotonic()

    def _reach_lost(self) -> None:
        """Connect to servers that are lost, as soon as they are back."""
        now = time.monotonic()
        if not self._lost or (now - self._tried < _PAUSE and not self._news()):
            return
        self._tried = now
        for server, since in list(self._lost.items()):
            address = self._address(server)
            if address is not None and self._reach(server, address):
                del self._lost[server]
                for request in self._asked[server]:
                    self._send(server, request)
            elif now - since > patience.lost and not self._recovers(server):
                self._fail(self._error(server))

    def _news(self) -> bool:
        """Whether a lost server listens at a new address."""
        return any(
            self._address(k) not in (None, self._reached.get(k)) for k in self._lost
        )

    def _look_for_stopped(self) -> None:
        """Raise an error if a server is stopped that has not answered."""
        now = time.monotonic()
        if now < self._looked + TICK:
            return
        self._looked = now
        for server, link in self._links.items():
            if not self._asked[server] or link.state() != "stopped":
                self._stopped.pop(server, None)
            elif now - self._stopped.setdefault(server, now) > patience.stopped:
                place = shown(self._reached[server])
                self._fail(DistNetworkError(
                    f"server {server} at {place} is stopped (process "
                    f"{link.about['pid']})"
                ))  # fmt: skip

    def _recovers(self, server: int) -> bool:
        """Whether a server is there again, and not ready yet."""
        return str(server) in self._known["servers"] and self._address(server) is None

    def _reach(self, server: int, address: Address) -> bool:
        self._reached[server] = address
        try:
            channel = socket.create_connection(address, timeout=2)
        except OSError as error:
            self._why[server] = error.strerror or str(error)
            return False
        link = self._links[server] = self._post.add(channel, server)
        link.about = self._known["servers"][str(server)]["process"]
        link.put(hello(self.role))
        return True

    def _error(self, server: int) -> DistNetworkError:
        where = self._reached.get(server)
        place = "" if where is None else f" at {shown(where)}"
        why = self._why.get(server, "it was killed or crashed")
        return DistNetworkError(
            f"server {server}{place} is gone ({why}), and has not come back in "
            f"{patience.lost:g} seconds; 'weft run --max-restarts 9' starts one again"
        )

    # -- the end

    def close(self) -> None:
        """Tell the coordinator that this worker has ended; the servers end with the
        last one."""
        if self.closed:
            return
        self.closed = True
        atexit.unregister(self.close)
        words = {"do": "end", "steps": self.steps, "error": self._ending.close()}
        self._coordinator.put(words)
        self._post.close()
        self.helpers()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            first = str(error).partition("\n")[0]
            self._ending.text = f"it raised {kind.__name__}: {first}"
        self.close()


def get_role() -> str:
    """The role of this process: ``"worker"``, ``"server"`` or ``"coordinator"``.

    >>> weft.distributed.parameter_server.get_role()
    'worker'
    """
    found = environment.role()
    return "worker" if found is None else found.name


def connect(
    *, servers: int = 1, folder: str | None = None, timeout: float = 60.0
) -> Store:
    """Find the servers that the launcher's environment tells of.

    In a process whose role is a server's or the coordinator's, this call does its work,
    and ends the process with it. Without a launcher this process is the only worker:
    ``servers`` run in threads, and keep their state in ``folder`` if there is one.

    >>> from weft.distributed import parameter_server
    >>> with parameter_server.connect(servers=2) as store:
    ...     store.rank, store.workers, store.servers
    (0, 1, 2)
    """
    role = environment.role()
    if role is None:
        place = environment.place()
        if place is not None and place.size > 1:
            raise ArgumentError(
                f"connect: there are {place.size} processes and no servers; start them "
                f"with 'weft run -n {place.size} --servers 1', or see WEFT_ROLE"
            )
        if servers < 1:
            raise ArgumentError(f"connect: expected servers=1 or more, got {servers}")
        return _alone(servers, folder, timeout)
    if role.name != "worker":
        serve(role)
        sys.exit(0)
    return Store(role, timeout)


def serve(role: Role) -> None:
    """Do the work of a server or of the coordinator, until all workers have ended."""
    if role.name == "coordinator":
        who = "the coordinator"
        Coordinator(role, listener(role.coordinator, who, "WEFT_COORDINATOR")).run()
        return
    folder = os.environ.get(FOLDER)
    with contextlib.ExitStack() as stack:
        if not folder:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-"))
        Server(role, _folder(folder, role.rank)).run()


def _folder(folder: Any, rank: int) -> str:
    return os.path.join(folder, f"server-{rank}")


def _alone(servers: int, folder: str | None, timeout: float) -> Store:
    """A store whose servers and coordinator are threads of this process."""
    temporary = None if folder else tempfile.mkdtemp(prefix="weft-")
    place = socket.create_server(("127.0.0.1", 0))
    role = Role("worker", 0, 1, servers, place.getsockname())
    jobs = [Coordinator(role._replace(name="coordinator"), place, 0.0).run]
    for rank in range(servers):
        one = role._replace(name="server", rank=rank)
        jobs.append(Server(one, _folder(folder or temporary, rank)).run)
    threads = [
        threading.Thread(target=job, name="weft.distributed", daemon=True)
        for job in jobs
    ]
    for thread in threads:
        thread.start()

    def end() -> None:
        for thread in threads:
            thread.join(5)
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)

    store = Store(role, timeout)
    store.helpers = end
    return store
