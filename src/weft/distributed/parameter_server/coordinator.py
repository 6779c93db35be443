"""The coordinator: where servers listen, and which workers are gone or have ended.

It tells all processes at every change. It keeps nothing that is needed for long: if it
is gone, the others end.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from weft.distributed.environment import Role
from weft.distributed.exchange import farewell
from weft.distributed.links import Link, Message
from weft.distributed.parameter_server.connections import Post

RETURN = 60.0  # seconds in which a worker may come back after all are gone


class Coordinator:
    """Runs until all workers have ended."""

    def __init__(
        self, role: Role, listener: socket.socket, patience: float = RETURN
    ) -> None:
        self.role, self.post, self.patience = role, Post(listener), patience
        self.known: dict[tuple[str, int], Link] = {}  # by role and rank
        self.addresses: dict[int, Any] = {}  # None: not ready yet
        self.gone: dict[int, str] = {}  # workers, and why
        self.ended: dict[int, int] = {}  # workers, and their steps
        self.empty = 0.0  # since when there is no worker, and some are gone

    def run(self) -> None:
        """Answer until the end."""
        try:
            while not self._done():
                for link, message in self.post.wait():
                    self._take(link, message)
            self._tell(finish=True)
        finally:
            self.post.close()

    def _done(self) -> bool:
        if len(self.ended) == self.role.workers:
            return True
        if len(self.ended) + len(self.gone) < self.role.workers:
            self.empty = 0.0
            return False
        self.empty = self.empty or time.monotonic()
        return time.monotonic() - self.empty > self.patience

    def _take(self, link: Link, message: Message | None) -> None:
        place = (link.about.get("role"), link.about.get("rank"))
        if message is None:
            if self.known.get(place) is link:  # type: ignore[arg-type]
                self._lost(link)
        elif message.header.get("do") == "end":
            self._ended(link, message.header)
        elif message.header.get("do") == "ready":
            process = {name: link.about[name] for name in ("pid", "host")}
            self.addresses[link.rank] = {
                "host": self._host(link), "port": message.header["port"],
                "process": process,
            }  # fmt: skip
            self._tell()
        else:
            self._greet(link)

    def _greet(self, link: Link) -> None:
        about = link.about
        name, rank = place = about["role"], about["rank"]
        objection = self._objection(about)
        if objection is not None:
            link.put({"error": objection})
            return
        self.known[place], link.rank = link, rank
        if name == "server":
            self.addresses[rank] = None
        else:
            self.gone.pop(rank, None)
            self.ended.pop(rank, None)
        self._tell()

    def _objection(self, about: dict[str, Any]) -> str | None:
        name, rank = about["role"], about["rank"]
        mine = {"workers": self.role.workers, "servers": self.role.servers}
        for what, count in mine.items():
            if about[what] != count:
                return (
                    f"the coordinator expects {count} {what}, but {name} {rank} "
                    f"expects {about[what]}; all need one WEFT_{what.upper()}"
                )
        other = self.known.get((name, rank))
        if other is not None and other.open:
            return (
                f"two processes are {name} {rank} (process {other.about['pid']} and "
                f"process {about['pid']}); each needs a RANK of its own"
            )
        return None

    def _host(self, link: Link) -> str:
        """Where a server is, as workers reach it."""
        name = str(link.channel.getpeername()[0])
        return self.role.coordinator[0] if name.startswith("127.") else name

    def _lost(self, link: Link) -> None:
        name, rank = link.about["role"], link.rank
        del self.known[name, rank]
        if name == "server":
            self.addresses.pop(rank, None)
        elif rank not in self.ended and rank not in self.gone:
            self.gone[rank] = farewell(link)
        self._tell()

    def _ended(self, link: Link, words: dict[str, Any]) -> None:
        if words["error"]:
            self.gone[link.rank] = words["error"]
        else:
            self.ended[link.rank] = words["steps"]
        self._tell()

    def _tell(self, *, finish: bool = False) -> None:
        words = {"servers": self.addresses, "gone": self.gone, "ended": self.ended,
                 "finish": finish}  # fmt: skip
        for link in self.known.values():
            link.put(words)
