"""A server: it keeps its share of the parameters, and answers workers.

A request is answered when its turn has come: a push or a pull of a worker that is too
far ahead waits for the others. What a push says is in the log before it is answered. A
push that comes again after a connection was lost is answered, and not taken again.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import Any

import numpy as np

from weft.distributed.environment import Role
from weft.distributed.errors import DistNetworkError, ParameterServerError
from weft.distributed.exchange import patience
from weft.distributed.links import Link, Message
from weft.distributed.parameter_server.connections import Post, hello
from weft.distributed.parameter_server.log import Log
from weft.distributed.parameter_server.shard import Reader, Shard, difference
from weft.distributed.rendezvous import any_port, reached, shown
from weft.errors import WeftError

LOG = 1 << 28  # bytes of a log after which there is a snapshot, if it is no larger
START = 60.0  # seconds in which the coordinator has to be there
Answer = tuple[dict[str, Any], list[np.ndarray]]


class Server:
    """Runs until the coordinator says that all workers have ended."""

    def __init__(self, role: Role, folder: str) -> None:
        self.role, self.folder = role, folder
        self.post = Post(any_port(role.coordinator))
        self.shard: Shard | None = None
        self.absent: dict[int, str] = {}  # workers that send nothing any more, and why
        self.queues: dict[Link, deque[Message]] = {}
        self.held: dict[Link, float] = {}  # until when one waits without a word
        self.finish = False
        self.log: Log | None = None
        self.limit = LOG  # bytes of the log before the next snapshot

    def run(self) -> None:
        """Go on where the folder says, and answer until the end."""
        try:
            self._connect()
            self._recover()
            assert self.post.listener is not None
            port = self.post.listener.getsockname()[1]
            self.coordinator.put({"do": "ready", "port": port})
            while not self.finish:
                for link, message in self.post.wait():
                    self._take(link, message)
                self._answer_all()
        finally:
            self.post.close()
            if self.log is not None:
                self.log.close()

    def _connect(self) -> None:
        address = self.role.coordinator
        channel = reached(address, time.monotonic() + START, self._unreachable)
        self.coordinator = self.post.add(channel)
        self.coordinator.put(hello(self.role))

    def _unreachable(self, why: str) -> str:
        return (
            f"server {self.role.rank}: cannot reach the coordinator at "
            f"{shown(self.role.coordinator)} ({why})"
        )

    def _recover(self) -> None:
        """Do once more what the log says."""
        self.log = Log(self.folder)
        for text, data in self.log.recover():
            about = json.loads(text)
            if isinstance(about, list):
                self.shard = Shard.restored(text, data, self.role.rank)
            elif "spec" in about:
                self.shard = Shard(about["spec"], self.role.rank)
                self.shard.fill(data)
            else:
                assert self.shard is not None
                push = self.shard.parsed(about, data)
                self.shard.take(about["worker"], about["step"], push)
        if self.shard is not None:
            self.log.sync = self.shard.spec["sync"]

    # -- messages

    def _take(self, link: Link, message: Message | None) -> None:
        if link is self.coordinator:
            self._hear(message)
        elif message is None:
            self.queues.pop(link, None)
            self.held.pop(link, None)
        elif link.rank < 0:
            link.rank = message.header["rank"]
            self.queues[link] = deque()
        else:
            self.queues[link].append(message)

    def _hear(self, message: Message | None) -> None:
        """Take what the coordinator says."""
        if message is None and self.finish:
            return
        if message is None:
            raise DistNetworkError(
                f"server {self.role.rank}: the coordinator at "
                f"{shown(self.role.coordinator)} is gone"
            )
        words = message.header
        if "error" in words:
            raise ParameterServerError(words["error"])
        self.finish = words["finish"]
        ended = {k: f"ended after {steps} steps" for k, steps in words["ended"].items()}
        gone = {k: f"is gone: {why}" for k, why in words["gone"].items()}
        self.absent = {int(k): why for k, why in {**ended, **gone}.items()}

    def _answer_all(self) -> None:
        """Answer all whose turn has come; what was logged is safe before that."""
        answers: list[tuple[Link, Answer]] = []
        more = True
        while more:
            more = False
            for link, queue in self.queues.items():
                while queue:
                    answer = self._answer(link.rank, queue[0])
                    if answer is None:
                        self._hold(link)
                        break
                    answers.append((link, answer))
                    queue.popleft()
                    self.held.pop(link, None)
                    more = True
        if not answers:
            return
        assert self.log is not None
        self.log.flush()
        for link, (header, arrays) in answers:
            link.put(header, *arrays)
        if self.log.size > max(self.limit, 2 * self.log.base):
            self._snapshot()

    def _hold(self, link: Link) -> None:
        """Tell a worker that waits for long whom it waits for."""
        now = time.monotonic()
        if now > self.held.setdefault(link, now + patience.late):
            self.held[link] = float("inf")
            steps = [0] * self.role.workers if self.shard is None else self.shard.steps
            late = [str(k) for k, done in enumerate(steps) if done == min(steps)]
            link.put({"late": f"{self._me()} waits for worker {', '.join(late)}"})

    def _snapshot(self) -> None:
        assert self.log is not None
        assert self.shard is not None
        try:
            self.log.replace(*self.shard.kept())
            self.limit = LOG
        except OSError as error:  # the log has it all, and goes on
            self.limit = self.log.size + LOG
            text = f"server {self.role.rank}: no snapshot was written: {error}"
            print(f"weft.distributed: warning: {text}", file=sys.stderr, flush=True)

    def _answer(self, worker: int, message: Message) -> Answer | None:
        """The answer to a request; None if its turn has not come."""
        words = message.header
        try:
            if not self._ready(worker, words):
                return None
            found = getattr(self, f"_do_{words['do']}")(worker, words, message.payload)
            about, arrays = found
        except (WeftError, OSError) as error:
            about, arrays = {"error": f"{self._me()}: {error}"}, []
        return {"id": words.get("id"), **about}, arrays

    def _me(self) -> str:
        assert self.post.listener is not None
        host = self.coordinator.channel.getsockname()[0]
        port = self.post.listener.getsockname()[1]
        return f"server {self.role.rank} at {shown((host, port))}"

    # -- turns

    def _ready(self, worker: int, words: dict[str, Any]) -> bool:
        """Whether a request's turn has come; an error if it never will."""
        shard = self.shard
        if shard is None:
            if words["do"] != "setup":
                raise ParameterServerError(
                    f"it has lost its parameters: {self.folder} was empty when it "
                    "started again; WEFT_STATE names a folder that stays"
                )
            return worker == 0 or self._waits_for([0])
        if words["do"] == "setup":
            return True
        if words["do"] == "push" and words["step"] <= shard.steps[worker]:
            return True  # it was taken before the connection was lost
        mine, staleness = shard.steps[worker], shard.spec["staleness"]
        if shard.synchronous:
            late = [k for k, steps in enumerate(shard.steps) if steps < mine]
            return not late or self._waits_for(late)
        if staleness is None:
            return True
        here = [k for k in range(shard.workers) if k not in self.absent or k == worker]
        return mine - min(shard.steps[k] for k in here) <= staleness

    def _waits_for(self, workers: list[int]) -> bool:
        for worker in workers:
            if worker in self.absent:
                raise ParameterServerError(
                    f"worker {worker} {self.absent[worker]}, and the others wait for it"
                )
        return False

    # -- requests

    def _do_setup(self, worker: int, words: Any, payload: np.ndarray) -> Answer:
        """Make the parameters, or compare them with those that are there."""
        assert self.log is not None
        if self.shard is None:
            made = Shard(words["spec"], self.role.rank)
            made.fill(payload)
            self.log.append(_text({"spec": words["spec"]}), [payload])
            self.log.sync = made.spec["sync"]
            self.shard = made
        found = difference(self.shard.spec, words["spec"])
        if found is not None:
            raise ParameterServerError(f"worker {worker} has another model: {found}")
        steps = self.shard.steps
        mine = steps[worker]
        others = [
            one for k, one in enumerate(steps) if k != worker and k not in self.absent
        ]
        return {"steps": mine, "slowest": min(others, default=mine)}, []

    def _do_push(self, worker: int, words: Any, payload: np.ndarray) -> Answer:
        assert self.log is not None
        assert self.shard is not None
        mine, step = self.shard.steps[worker], words["step"]
        if self.shard.synchronous and step > mine + 1:
            raise ParameterServerError(
                f"worker {worker} has done {step - 1} steps, of which {mine} are known "
                "here"
            )
        if step > mine:
            push = self.shard.parsed(words, payload)
            about = {key: value for key, value in words.items() if key != "id"}
            self.log.append(_text({**about, "worker": worker}), [payload])
            self.shard.take(worker, step, push)
        return {}, []

    def _do_pull(self, worker: int, words: Any, payload: np.ndarray) -> Answer:
        assert self.shard is not None
        values = self.shard.values()
        # In synchronous training they stay as they are until this worker goes on.
        return {}, values if self.shard.synchronous else [one.copy() for one in values]

    def _do_rows(self, worker: int, words: Any, payload: np.ndarray) -> Answer:
        reader = Reader(payload)
        table = self._table(words["table"])
        rows = reader.take((words["count"],), np.dtype(np.int64))
        table.check(rows)
        return {}, [table.read(rows)]

    def _do_changed(self, worker: int, words: Any, payload: np.ndarray) -> Answer:
        return {}, [self._table(words["table"]).changed()]

    def _table(self, name: str) -> Any:
        assert self.shard is not None
        if name not in self.shard.tables:
            raise ParameterServerError(f"there is no table {name!r}")
        return self.shard.tables[name]


def _text(words: dict[str, Any]) -> bytes:
    return json.dumps(words).encode()
