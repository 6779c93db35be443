"""The one step that all collectives are made of: each process sends to each other one.

Every message says which call it belongs to: its number, operator, shape, dtype and the
user's line. So a process that has heard from all others knows that all call the same,
and one that has not knows whom it waits for. When that does not end well, every process
raises an error that says what each of them does:

- calls that differ: at once, or as soon as the others have said what they call;
- a process that is gone: at once, with the reason that it gave, if it gave one;
- a process that is stopped: after ``stopped`` seconds;
- processes that wait for one another in different calls: after ``stuck`` seconds;
- a process that is late: after the group's timeout; after ``late`` seconds it is named
  on stderr.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.distributed.errors import DistBackendError
from weft.distributed.links import Link, Links, Message

COMPARED = ("operator", "shape", "dtype", "with")


@dataclasses.dataclass
class Patience:
    """Seconds to wait, as attributes of ``weft.distributed.patience``.

    >>> weft.distributed.patience.stopped
    4.0
    """

    stopped: float = 4.0  # for a process that is stopped
    stuck: float = 2.0  # before processes that wait for one another are looked for
    others: float = 2.0  # for what others call, once two calls differ
    late: float = 30.0  # before a late process is named on stderr
    lost: float = 10.0  # for a parameter server that is gone to come back


patience = Patience()


def describe(call: Mapping[str, Any] | None) -> str:
    """A call as text, with the user's line.

    >>> from weft.distributed.exchange import describe
    >>> describe({"number": 3, "operator": "all_reduce", "shape": [2], "with": {},
    ...           "dtype": "float32", "group": "", "line": "train.py:7, in step"})
    'all_reduce float32[2], call 3, at train.py:7, in step'
    """
    if call is None:
        return "nothing yet"
    words = str(call["operator"])
    if call["dtype"]:
        words += f" {call['dtype']}[{', '.join(map(str, call['shape']))}]"
    details = {**call["with"], **call.get("own", {})}
    words += "".join(f" {name}={v}" for name, v in details.items() if v != "")
    if call["group"]:
        words += f" of group {call['group']}"
    return f"{words}, call {call['number']}, at {call['line']}"


class Exchange:
    """One step of a call: what to send to each other process, and what has come."""

    def __init__(
        self,
        links: Links,
        ranks: Sequence[int],
        call: dict[str, Any],
        timeout: float,
        *,
        step: int = 0,
    ) -> None:
        self.links, self.call, self.timeout = links, call, timeout
        self.others = [rank for rank in ranks if rank != links.rank]
        self.key = (call["group"], call["number"], step)
        self.step = step
        self.found: dict[int, Message] = {}
        self.start = time.monotonic()
        self.differs = 0.0  # since when it is known that calls differ
        self.stopped: dict[int, float] = {}  # since when processes are
        self.told = self.warned = False
        self.circle = 0.0  # since when processes are known to wait for one another

    def run(self, payloads: Callable[[int], np.ndarray | None]) -> dict[int, Message]:
        """Send each other process its payload, and get theirs."""
        header: dict[str, Any] = {"key": self.key}
        if self.step == 0:
            header["call"] = self.call
        for rank in self.others:
            self.links.send(rank, header, payloads(rank))
        try:
            self.links.wait(self._complete, self._look)
        except DistBackendError:
            raise
        finally:
            if self.told:
                self.links.tell({"kind": "status", "waits": None})
        return self.found

    def _complete(self) -> bool:
        """Whether all others have sent theirs, and what was sent to them is gone."""
        for rank in self.others:
            if rank not in self.found:
                message = self.links.take((rank, *self.key))
                if message is not None:
                    self.found[rank] = message
                    self._compare(message)
        if len(self.found) < len(self.others) or self.differs:
            return False
        return not any(
            self.links.links[rank].waiting and self.links.links[rank].open
            for rank in self.others
        )

    def _compare(self, message: Message) -> None:
        theirs = message.header.get("call", self.call)
        if any(theirs[name] != self.call[name] for name in COMPARED):
            self.differs = self.differs or time.monotonic()

    # -- when it takes long

    @property
    def missing(self) -> list[int]:
        return [rank for rank in self.others if rank not in self.found]

    def _look(self) -> None:
        """Raise an error if waiting is in vain."""
        now, missing = time.monotonic(), self.missing
        waited = now - self.start
        if self.differs:
            if not missing or now - self.differs > patience.others or self._gone():
                raise self._error("processes call different things")
            return
        gone = self._gone()
        if gone:
            raise self._error(_verb(gone, "is gone", "are gone"))
        if waited > patience.stuck / 2 and not self.told:
            self.told = True
            waits = {"call": self.call, "missing": missing}
            self.links.tell({"kind": "status", "waits": waits})
        self._look_for_stopped(now)
        self._look_for_circle(now, waited)
        if waited > self.timeout:
            text = _verb(missing, "did", "did")
            raise self._error(f"{text} not come within {self.timeout:g} seconds")
        if waited > patience.late and not self.warned:
            self.warned = True
            text = self._text(f"{_verb(missing, 'is', 'are')} late")
            print(f"weft.distributed: warning: {text}", file=sys.stderr, flush=True)

    def _gone(self) -> list[int]:
        return [rank for rank in self.missing if not self._link(rank).open]

    def _link(self, rank: int) -> Link:
        return self.links.links[rank]

    def _look_for_stopped(self, now: float) -> None:
        for rank in self.missing:
            if self._link(rank).state() != "stopped":
                self.stopped.pop(rank, None)
            elif now - self.stopped.setdefault(rank, now) > patience.stopped:
                raise self._error(f"rank {rank} is stopped")

    def _look_for_circle(self, now: float, waited: float) -> None:
        """Raise an error if this process waits, in the end, for itself."""
        if waited < patience.stuck or not self._in_circle():
            self.circle = 0.0
        elif not self.circle:
            self.circle = now
        elif now - self.circle > patience.stuck / 2:
            raise self._error("processes wait for one another in different calls")

    def _in_circle(self) -> bool:
        seen: set[int] = set()
        todo = list(self.missing)
        while todo:
            rank = todo.pop()
            if rank == self.links.rank:
                return True
            link = self.links.links.get(rank)
            if rank not in seen and link is not None and link.status is not None:
                seen.add(rank)
                todo += link.status["missing"]
        return False

    # -- what to say

    def _error(self, what: str) -> DistBackendError:
        return DistBackendError(self._text(what))

    def _text(self, what: str) -> str:
        calls = {self.links.rank: f"calls {describe(self.call)}"}
        for rank in self.others:
            calls[rank] = self._doing(rank)
        lines = [f"  rank {rank} {calls[rank]}" for rank in sorted(calls)]
        return "\n".join([f"{self.call['operator']}: {what}", *lines])

    def _doing(self, rank: int) -> str:
        """What another process does, as far as it is known."""
        link = self._link(rank)
        if rank in self.found:
            theirs = self.found[rank].header.get("call", self.call)
            return f"calls {describe(theirs)}"
        last = f"its last call was {describe(link.latest)}"
        if not link.open:
            return f"is gone: {farewell(link)}; {last}"
        state = link.state()
        if state == "stopped":
            return f"is stopped (process {link.about['pid']}); {last}"
        if link.status is not None:
            return f"waits in {describe(link.status['call'])}"
        runs = "runs, but has" if state == "running" else "has"
        return f"{runs} not called this; {last}"


def farewell(link: Link) -> str:
    """Why a process is gone.

    An error that it raised is told in its first lines.
    """
    if link.farewell is None:
        return f"process {link.about['pid']} was killed or crashed"
    return str(link.farewell["text"])


def _verb(ranks: Sequence[int], one: str, several: str) -> str:
    names = ", ".join(map(str, ranks))
    return f"rank {names} {one}" if len(ranks) == 1 else f"ranks {names} {several}"
