"""The worker processes of one loader: requests out, batches back in order."""

from __future__ import annotations

import multiprocessing
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import connection as pipes
from multiprocessing.context import BaseContext
from typing import Any

from weft.errors import ArgumentError
from weft.utils.data import transport
from weft.utils.data.worker import (
    End,
    Failure,
    Recipe,
    Request,
    Setup,
    WorkerError,
    describe_exit,
    start_method,
    work,
)

_GRACE = 1.0  # seconds in which a worker may finish the sample it is at


class Worker:
    """One process and the pipe to it."""

    def __init__(
        self, context: BaseContext, setup: Setup, foreign: list[pipes.Connection]
    ) -> None:
        self.pipe, theirs = context.Pipe()
        forked = context.get_start_method() == "fork"
        told = setup if forked else _packed(setup)
        self.name = f"worker {setup.id}"
        self.process = context.Process(  # type: ignore[attr-defined]
            target=work,
            args=(theirs, told, [*foreign, self.pipe] if forked else []),
            name=f"weft-data-{setup.id}",
            daemon=True,
        )
        self.process.start()
        theirs.close()

    def ask(self, message: Any) -> None:
        try:
            self.pipe.send(message)
        except (BrokenPipeError, ConnectionResetError):
            pass  # why it ended is told when its answer is missing

    def answer(self, timeout: float) -> Any:
        """The next batch; an error that came instead is raised."""
        reply = self.reply(timeout)
        if isinstance(reply, Failure):
            raise reply.error(f"{self.name} (pid {self.process.pid})")
        return reply

    def reply(self, timeout: float) -> Any:
        """The next reply of any worker."""
        ready = pipes.wait(
            [self.pipe, self.process.sentinel], timeout if timeout > 0 else None
        )
        if not ready:
            raise WorkerError(
                f"DataLoader: {self.name} gave no batch within timeout={timeout} s"
            )
        try:
            if self.pipe not in ready and not self.pipe.poll():
                raise EOFError
            return transport.receive(self.pipe)
        except (EOFError, ConnectionResetError):
            raise self._death() from None

    def _death(self) -> WorkerError:
        self.process.join(_GRACE)
        fate = describe_exit(self.process.exitcode)
        return WorkerError(f"DataLoader: {self.name} (pid {self.process.pid}) {fate}")


def _packed(setup: Setup) -> bytes:
    try:
        return transport.dumps(setup)
    except Exception as error:
        raise ArgumentError(
            "DataLoader: workers that are not forked need a data set, collate_fn and "
            f"worker_init_fn that can be pickled: {error}"
        ) from error


class Pool:
    """All workers, ended with this object, by ``close`` or at interpreter exit."""

    def __init__(
        self,
        recipe: Recipe,
        num_workers: int,
        *,
        context: str | BaseContext | None,
        worker_init_fn: Callable[[int], Any] | None,
    ) -> None:
        if not isinstance(context, BaseContext):
            context = multiprocessing.get_context(context or start_method())
        self.workers: list[Worker] = []
        self.close = weakref.finalize(self, _end, self.workers, os.getpid())
        self.owed: deque[tuple[Worker, Request]] = deque()
        for id in range(num_workers):
            setup = Setup(recipe, id, num_workers, worker_init_fn)
            foreign = [worker.pipe for worker in self.workers]
            self.workers.append(Worker(context, setup, foreign))

    def start(self, epoch: int, timeout: float) -> None:
        """Begin an epoch; batches that an earlier one left behind are dropped."""
        while self.owed:
            self.owed.popleft()[0].reply(timeout)
        for worker in self.workers:
            worker.ask(epoch)

    def run(
        self, requests: Iterator[Request], prefetch: int, timeout: float
    ) -> Iterator[Any]:
        """The requested batches, in order, with so many on their way per worker."""
        going = deque(self.workers)
        while True:
            while going and len(self.owed) < prefetch * len(going):
                request = next(requests, None)
                if request is None:
                    going.clear()
                    break
                going[0].ask(request)
                self.owed.append((going[0], request))
                going.rotate(-1)
            if not self.owed:
                return
            worker, request = self.owed.popleft()
            reply = worker.answer(timeout)
            if reply is End:
                if worker in going:
                    going.remove(worker)
            elif request.wanted:
                yield reply


def _end(workers: list[Worker], owner: int) -> None:
    """Close the pipes, wait a moment, and end processes that still run."""
    if os.getpid() != owner:  # a fork's copy of the pool
        return
    for worker in workers:
        worker.pipe.close()
    deadline = time.monotonic() + _GRACE
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.terminate()
            worker.process.join(_GRACE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.process.close()
    workers.clear()
