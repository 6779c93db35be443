"""``weft run --nnodes``: a launcher on each machine, which start their ranks together.

The launcher of the machine whose address is the endpoint listens there; it is the head.
The others tell it how many ranks they have, and it tells them when these start and end.

    to the head     hello (count, identity)   ended (status, failure)
    from the head   start (place)   stop   finish (status)   refuse (text)

When a rank fails, or a launcher is gone with its machine, all ranks end, and those of
the machines that are left start again. A launcher that comes later joins in the same
way. If the head is gone, all end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.distributed.errors import DistNetworkError, DistStoreError
from weft.distributed.launch import GRACE, SHORT, Launcher, Place, Restarts
from weft.distributed.links import keep_alive

JOIN = 600.0  # seconds to wait for enough machines
SETTLE = 3.0  # seconds to wait for more than enough
ANSWER = 15.0  # seconds in which a launcher ends its ranks
_LONGEST = 1 << 16
_MAGIC = "weft-launcher-1"


class Wanted(NamedTuple):
    """What ``weft run`` was asked for."""

    endpoint: tuple[str, int]
    identity: str  # of the job: launchers with another one are refused
    least: int  # machines
    most: int
    restarts: int


class Channel:
    """Lines of JSON to and from another launcher."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.open = connection, True
        self.count = 0  # ranks on the machine, once it has said so
        self.running = False  # whether its ranks are
        self.ended: dict[str, Any] = {}  # how its last ones did
        self._text = b""
        connection.setblocking(False)
        keep_alive(connection)

    def say(self, **words: Any) -> None:
        """Send a line; who is gone is found out when reading."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(words).encode() + b"\n")

    def heard(self) -> list[dict[str, Any]]:
        """The lines that have come."""
        try:
            while data := self.connection.recv(1 << 16):
                self._text += data
                if len(self._text) > _LONGEST:
                    break
            self.close()
        except BlockingIOError:
            pass
        except OSError:
            self.close()
        *lines, self._text = self._text.split(b"\n")
        return [found for line in lines if (found := _parsed(line)) is not None]

    def close(self) -> None:
        self.open = False
        self.connection.close()


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def run(launcher: Launcher, count: int, command: Sequence[str], wanted: Wanted) -> int:
    """Run a command as so many ranks on this machine, with other machines."""
    server = _listening(wanted.endpoint)
    with launcher.signals(), launcher.memory(count if wanted.restarts else 0):
        if server is None:
            return Member(launcher, count, wanted).run(command)
        with server:
            return Head(launcher, count, wanted, server).run(command)


def _listening(endpoint: tuple[str, int]) -> socket.socket | None:
    """A socket that listens there, if that is this machine and nobody does yet."""
    try:
        socket.getaddrinfo(*endpoint)
        return socket.create_server(endpoint, backlog=128)
    except socket.gaierror as error:
        raise DistNetworkError(
            f"no machine is called {endpoint[0]} ({error.strerror})"
        ) from None
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
            raise DistNetworkError(
                f"cannot listen at {_text(endpoint)} ({error.strerror}); "
                "choose another port"
            ) from None
        return None


def _text(endpoint: tuple[str, int]) -> str:
    return f"{endpoint[0]}:{endpoint[1]}"


class Head:
    """The launcher that tells the others when their ranks start and end."""

    def __init__(
        self, launcher: Launcher, count: int, wanted: Wanted, server: socket.socket
    ) -> None:
        self.launcher, self.count, self.wanted = launcher, count, wanted
        self.server = server
        server.setblocking(False)
        self.others: list[Channel] = []  # one for each other machine
        self.coming: list[Channel] = []  # those that have not said who they are
        self.starts = 0
        self.changed = ""  # why all ranks end before they are done
        self.failed = False  # whether that is a failure

    def run(self, command: Sequence[str]) -> int:
        """Start all ranks until they end well, or may not start again."""
        again = Restarts(self.launcher, self.wanted.restarts)
        while True:
            self._wait_for_machines()
            status = self._once(command)
            if not self.changed or self.launcher.asked:
                break
            self.launcher.say(self.changed)
            if self.failed and not again.allowed():
                break
        for other in (*self.others, *self.coming):
            other.say(do="finish", status=status)
            other.close()
        return status

    def _wait_for_machines(self) -> None:
        """Wait until there are enough, and at first a little for more than enough."""
        until, quiet, before = time.monotonic() + JOIN, 0.0, -1
        while not self.launcher.asked:
            self._meet()
            now, count = time.monotonic(), 1 + len(self.others)
            if count != before:
                quiet, before = now, count
                if count < self.wanted.least:
                    self.launcher.say(
                        f"{count} of {self.wanted.least} machines are here"
                    )
            settled = self.starts > 0 or now - quiet > SETTLE
            if count == self.wanted.most or (count >= self.wanted.least and settled):
                return
            if now > until:
                raise DistStoreError(
                    f"{count} of {self.wanted.least} machines came to "
                    f"{_text(self.wanted.endpoint)} in {JOIN:g} seconds"
                )
            time.sleep(0.02)

    def _meet(self) -> None:
        """Let launchers in, and notice those that are gone."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.coming.append(Channel(self.server.accept()[0]))
        for one in list(self.coming):
            for words in one.heard():
                self._greet(one, words)
            if not one.open:
                self.coming.remove(one)
            elif one.count and 1 + len(self.others) < self.wanted.most:
                self.coming.remove(one)
                self.others.append(one)
                self._change("a machine has come", False)
        for other in list(self.others):
            for words in other.heard():
                if "status" in words:
                    other.running, other.ended = False, words
            if not other.open:
                self.others.remove(other)
                self._change(f"a machine with {other.count} ranks is gone", True)

    def _greet(self, one: Channel, words: dict[str, Any]) -> None:
        count = words.get("count")
        if words.get("magic") != _MAGIC or type(count) is not int or count < 1:
            one.close()
        elif words.get("identity") != self.wanted.identity:
            one.say(do="refuse", text="it runs another job (--rdzv-id)")
            one.close()
        else:
            one.count = count

    def _change(self, why: str, failed: bool) -> None:
        if not self.changed:
            self.changed, self.failed = why, failed

    def _once(self, command: Sequence[str]) -> int:
        self.changed, self.failed = "", False
        address = self.wanted.endpoint[0]
        server = socket.create_server((address, 0), backlog=1024)
        nodes = (self.count, *(one.count for one in self.others))
        place = Place(
            nodes, 0, (address, server.getsockname()[1]), secrets.token_hex(8),
            self.starts,
        )  # fmt: skip
        self.starts += 1
        for node, other in enumerate(self.others, 1):
            other.running, other.ended = True, {}
            other.say(do="start", **place._replace(node=node)._asdict())
        status = self.launcher.once(place, command, server, self._look)
        if status:
            self._change("ranks have failed", True)
        self._wait_for_ends()
        return status or max((_status(one) for one in self.others), default=0)

    def _wait_for_ends(self) -> None:
        """Wait until the ranks of all other machines have ended."""
        until = time.monotonic() + ANSWER
        while left := [one for one in self.others if one.running]:
            self._look()
            if not self.changed and not self.launcher.asked:
                until = time.monotonic() + ANSWER  # they may work on
            elif time.monotonic() > until:
                for other in left:
                    other.close()
            time.sleep(0.02)

    def _look(self) -> None:
        """Notice what happens on other machines, and end all ranks if they must."""
        self._meet()
        for other in self.others:
            if _status(other):
                self.launcher.failure = other.ended.get("failure")
                self._change("ranks of another machine have failed", True)
        failed = any(rank.failed for rank in self.launcher.ranks)
        if self.changed or self.launcher.asked or failed:
            self.launcher.stop()
            for other in self.others:
                other.say(do="stop")


def _status(other: Channel) -> int:
    """How the ranks of a machine ended: 0 if they did well, or still run."""
    return int(other.ended.get("status", 0))


class Member:
    """A launcher that starts and ends its ranks when the head says so."""

    def __init__(self, launcher: Launcher, count: int, wanted: Wanted) -> None:
        self.launcher, self.count, self.wanted = launcher, count, wanted
        self.channel = Channel(self._connected())
        launcher.grace = SHORT if wanted.restarts else GRACE

    def _connected(self) -> socket.socket:
        until = time.monotonic() + JOIN
        while True:
            try:
                return socket.create_connection(self.wanted.endpoint, timeout=5)
            except OSError as error:
                if time.monotonic() > until or self.launcher.asked:
                    raise DistNetworkError(
                        f"no launcher listens at "
                        f"{_text(self.wanted.endpoint)} ({error.strerror or error})"
                    ) from None
            time.sleep(0.1)

    def run(self, command: Sequence[str]) -> int:
        """Start ranks as often as the head says so; the exit status."""
        self.channel.say(magic=_MAGIC, count=self.count, identity=self.wanted.identity)
        while self.channel.open and not self.launcher.asked:
            for words in self.channel.heard():
                if words.get("do") == "start":
                    self._once(words, command)
                elif words.get("do") == "finish":
                    return int(words["status"])
                elif words.get("do") == "refuse":
                    raise DistStoreError(
                        f"{_text(self.wanted.endpoint)} refuses this "
                        f"launcher: {words['text']}"
                    )
            time.sleep(0.02)
        if self.launcher.asked:
            return 128 + self.launcher.asked
        raise DistStoreError(f"the launcher at {_text(self.wanted.endpoint)} is gone")

    def _once(self, words: dict[str, Any], command: Sequence[str]) -> None:
        """Run the ranks of this machine once, and tell the head how they ended."""
        place = Place(
            tuple(words["nodes"]), words["node"], tuple(words["address"]),
            words["job"], words["start"],
        )  # fmt: skip
        self.launcher.failure = None
        status = self.launcher.once(place, command, None, self._look)
        self.channel.say(status=status, failure=self.launcher.failure)

    def _look(self) -> None:
        told = any(words.get("do") == "stop" for words in self.channel.heard())
        if told or not self.channel.open:
            self.launcher.stop()
