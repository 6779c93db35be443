"""Requests that come at about the same time, as one run of the program."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]


class QueueFull(Exception):
    """More requests wait than the server accepts."""


class Stopped(Exception):
    """The server is ending."""


class _Waiting:
    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.future: Future[list[np.ndarray]] = Future()
        self.since = time.monotonic()
        self.kind = tuple((a.dtype.str, a.shape[1:]) for a in arrays)
        self.rows = arrays[0].shape[0] if arrays[0].ndim else 1


class Batcher:
    """Runs requests in a thread of its own, several as one where ``together`` says so.

    While ``coming`` says that others are on their way, a request waits for them, for
    ``wait`` seconds at most. A batch that fails is run
    again one request at a time, so that an error reaches only the one it belongs to.

    >>> batcher = Batcher(lambda arrays: [arrays[0] * 2])
    >>> batcher.submit([np.ones((1, 2))]).result()
    [array([[2., 2.]])]
    >>> batcher.stop()
    """

    def __init__(
        self,
        run: Callable[[Arrays], list[np.ndarray]],
        *,
        together: bool = True,
        most: int = 32,
        wait: float = 0.002,
        queue: int = 256,
        observe: Callable[[int], None] = lambda rows: None,
        coming: Callable[[], bool] = lambda: True,
    ) -> None:
        self.run, self.together, self.coming = run, together, coming
        self.most, self.wait, self.limit, self.observe = most, wait, queue, observe
        self.waiting: deque[_Waiting] = deque()
        self.changed = threading.Condition()
        self.stopping = False
        self.thread = threading.Thread(target=self._loop, name="batches", daemon=True)
        self.thread.start()

    def submit(self, arrays: Arrays) -> Future[list[np.ndarray]]:
        one = _Waiting(arrays)
        with self.changed:
            if self.stopping:
                raise Stopped
            if len(self.waiting) >= self.limit:
                raise QueueFull
            self.waiting.append(one)
            self.changed.notify()
        return one.future

    def stop(self) -> None:
        """Finish what waits, and take no more."""
        with self.changed:
            self.stopping = True
            self.changed.notify()
        self.thread.join()

    def _loop(self) -> None:
        while True:
            batch = self._next()
            if batch is None:
                return
            live = [one for one in batch if one.future.set_running_or_notify_cancel()]
            if live:
                self._answer(live)

    def _next(self) -> list[_Waiting] | None:
        """The oldest request and others of its kind; None at the end."""
        with self.changed:
            while not self.waiting:
                if self.stopping:
                    return None
                self.changed.wait()
            first = self.waiting[0]
            if not self.together:
                return [self.waiting.popleft()]
            until = first.since + self.wait
            while not self.stopping and self._rows(first) < self.most and self.coming():
                left = until - time.monotonic()
                if left <= 0:
                    break
                self.changed.wait(left)
            batch: list[_Waiting] = []
            rest: deque[_Waiting] = deque()
            rows = 0
            for one in self.waiting:
                if one.kind == first.kind and (
                    not batch or rows + one.rows <= self.most
                ):
                    batch.append(one)
                    rows += one.rows
                else:
                    rest.append(one)
            self.waiting = rest
            return batch

    def _rows(self, first: _Waiting) -> int:
        return sum(one.rows for one in self.waiting if one.kind == first.kind)

    def _answer(self, batch: list[_Waiting]) -> None:
        try:
            results = self._run(batch)
        except BaseException as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
                return
            for one in batch:
                self._answer([one])
            return
        for one, result in zip(batch, results, strict=True):
            one.future.set_result(result)

    def _run(self, batch: list[_Waiting]) -> list[list[np.ndarray]]:
        self.observe(sum(one.rows for one in batch))
        if len(batch) == 1:
            return [self.run(batch[0].arrays)]
        columns = zip(*[one.arrays for one in batch], strict=True)
        outputs = self.run([np.concatenate(column) for column in columns])
        ends = np.cumsum([one.rows for one in batch])
        parts: list[Any] = [np.split(out, ends[:-1]) for out in outputs]
        return [list(part) for part in zip(*parts, strict=True)]
