"""Streams from a source that runs ahead in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from weft.errors import ArgumentError, DTypeError
from weft.utils.data.dataset import IterableDataset


class StreamDataset(IterableDataset):
    """Samples from a generator function that runs ahead in a background thread.

    At most ``buffer`` samples wait; then the source is held back until one is
    taken. Each pass starts the source anew, and the source ends (its ``finally``
    blocks run) when the pass does. The source may be endless. It should draw
    random numbers from a ``weft.Generator`` of its own, since the default one is
    the main thread's.

    >>> def source():
    ...     yield from range(4)
    >>> stream = weft.utils.data.StreamDataset(source, buffer=2)
    >>> [batch.tolist() for batch in weft.utils.data.DataLoader(stream, batch_size=3)]
    [[0, 1, 2], [3]]
    """

    def __init__(
        self, generator_function: Callable[..., Iterator[Any]], *args: Any,
        buffer: int = 64,
    ) -> None:  # fmt: skip
        if not callable(generator_function):
            raise DTypeError(
                "StreamDataset: expected a function that returns an iterator, got "
                f"{type(generator_function).__name__}"
            )
        if buffer < 1:
            raise ArgumentError(
                f"StreamDataset: expected buffer of at least 1, got {buffer}"
            )
        self.source = generator_function
        self.args = args
        self.buffer = buffer

    def __iter__(self) -> Iterator[Any]:
        feed = _Feed(self.source, self.args, self.buffer)
        try:
            while True:
                kind, value = feed.take()
                if kind == "end":
                    return
                if kind == "error":
                    raise value
                yield value
        finally:
            feed.stop()


class _Feed:
    """A thread that puts a source's samples into a bounded queue."""

    def __init__(self, source: Any, args: tuple[Any, ...], buffer: int) -> None:
        self.ready: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.free = threading.Semaphore(buffer)
        self.stopped = False
        self.thread = threading.Thread(
            target=self._run, args=(source, args), name="weft-stream", daemon=True
        )
        self.thread.start()

    def _run(self, source: Any, args: tuple[Any, ...]) -> None:
        samples = None
        try:
            samples = iter(source(*args))
            while self._may_go_on():
                self.ready.put(("sample", next(samples)))
        except StopIteration:
            self.ready.put(("end", None))
        except BaseException as error:
            self.ready.put(("error", error))
        finally:
            close = getattr(samples, "close", None)
            if close is not None:
                close()

    def _may_go_on(self) -> bool:
        self.free.acquire()
        return not self.stopped

    def take(self) -> tuple[str, Any]:
        """The next sample, error or end; frees its slot of the buffer."""
        item = self.ready.get()
        self.free.release()
        return item

    def stop(self) -> None:
        """End the thread; it finishes the sample it is at."""
        self.stopped = True
        self.free.release()
        if threading.current_thread() is not self.thread:
            self.thread.join(1.0)
