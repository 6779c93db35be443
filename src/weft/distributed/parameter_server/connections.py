"""Connections that come and go: of workers, servers and the coordinator.

    hello to the coordinator    role, rank, workers, servers, port
    from the coordinator        servers (where they listen), gone and ended workers
    to the coordinator          end (steps, or the error that ended a worker)
    hello to a server           rank
    request to a server         do, id … and numbers
    answer                      id, or an error … and numbers

All of them are ``links.Link``: a header, and bytes of arrays. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from typing import Any

from weft.distributed.environment import Role
from weft.distributed.links import TICK, Link, Message, keep_alive
from weft.distributed.rendezvous import this_process

MAGIC = "weft-ps-1"
_PATIENCE = 5.0  # seconds in which somebody who connects has to say who it is


def hello(role: Role, **more: Any) -> dict[str, Any]:
    """The first message of a process."""
    return {
        **this_process(), "magic": MAGIC, "job": _job(),
        "role": role.name, "rank": role.rank, "workers": role.workers,
        "servers": role.servers, **more,
    }  # fmt: skip


def _job() -> str:
    """The job that a launcher made; none where servers were started by hand."""
    return os.environ.get("WEFT_SERVER_JOB", "")


class Post:
    """Connections, and the one loop that reads and sends on all of them."""

    def __init__(self, listener: socket.socket | None = None) -> None:
        self.listener = listener
        self.links: set[Link] = set()
        self._strange: dict[Link, float] = {}  # since when they have not said a word
        self._selector = selectors.DefaultSelector()
        if listener is not None:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, None)

    def add(self, channel: socket.socket, rank: int = -1) -> Link:
        """A link over a connection."""
        link = Link(rank, channel, {})
        keep_alive(channel)
        self.links.add(link)
        self._selector.register(channel, selectors.EVENT_READ, link)
        return link

    def wait(self, timeout: float = TICK) -> list[tuple[Link, Message | None]]:
        """Read and send, until something has come or for so long.

        A link that has ended comes with None, after all that came over it.
        """
        for link in self.links:
            events = selectors.EVENT_READ
            if link.waiting:
                events |= selectors.EVENT_WRITE
            if self._selector.get_key(link.channel).events != events:
                self._selector.modify(link.channel, events, link)
        found: list[tuple[Link, Message | None]] = []
        for key, events in self._selector.select(timeout):
            if key.data is None:
                self._accept()
                continue
            link = key.data
            if events & selectors.EVENT_WRITE:
                link.flush()
            if events & selectors.EVENT_READ:
                found += self._read(link)
        for link, since in list(self._strange.items()):
            if time.monotonic() - since > _PATIENCE:
                self.drop(link)
        return found

    def _accept(self) -> None:
        assert self.listener is not None
        with contextlib.suppress(OSError):
            link = self.add(self.listener.accept()[0])
            self._strange[link] = time.monotonic()

    def _read(self, link: Link) -> list[tuple[Link, Message | None]]:
        found: list[tuple[Link, Message | None]] = []
        with contextlib.suppress(ValueError, MemoryError, OverflowError):
            link.read(lambda one, message: found.append((one, message)))
            if link.open and not self._is_stranger(link, found):
                return found
        known = link not in self._strange
        self.drop(link)
        return [*found, (link, None)] if known else []

    def _is_stranger(self, link: Link, found: list[Any]) -> bool:
        """Whether the first words of a link are none of this job's."""
        if link not in self._strange or not found:
            return False
        about = found[0][1].header
        if not isinstance(about, dict) or about.get("magic") != MAGIC:
            return True
        if about.get("job") != _job():
            return True
        link.about = about
        del self._strange[link]
        return False

    def drop(self, link: Link) -> None:
        """Close a link."""
        if link in self.links:
            self.links.remove(link)
            self._strange.pop(link, None)
            self._selector.unregister(link.channel)
            link.open = False
            link.channel.close()

    def settle(self, seconds: float = 2.0) -> None:
        """Send what is left, for so long."""
        until = time.monotonic() + seconds
        while any(link.waiting for link in self.links) and time.monotonic() < until:
            self.wait()

    def close(self) -> None:
        """Close all links, once what was sent has arrived."""
        self.settle()
        until = time.monotonic() + 1
        for link in self.links:
            self._selector.unregister(link.channel)
            link.close(until)
        self.links.clear()
        self._selector.close()
        if self.listener is not None:
            self.listener.close()
