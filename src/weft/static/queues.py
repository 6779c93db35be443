"""Queues, and batches of what other nodes give.

A queue is filled by operations that run, or by those of a ``QueueRunner`` when it is
asked for more than it has: no thread runs beside the program unless it starts one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.dtype import as_dtype, int32
from weft.errors import ArgumentError, ShapeError
from weft.ops import random as draws
from weft.static.building import as_node
from weft.static.effects import effect, fed_by, running_session
from weft.static.errors import CancelledError, OutOfRangeError
from weft.static.graph import Operation

_WAIT = 0.05  # seconds after which a queue looks again whether anything can change


class _Contents:
    """What a queue holds in one session."""

    def __init__(self, session: Any) -> None:
        self.rows: list[tuple[np.ndarray, ...]] = []
        self.closed = False
        # who waits lets other runs of the session go on
        self.changed = threading.Condition(session._lock)


class QueueBase:
    """Base of queues: elements of several parts, each with a dtype and a shape."""

    def __init__(
        self, capacity: int, dtypes: Any, shapes: Any = None, names: None = None,
        shared_name: str | None = None, name: str = "queue",
    ) -> None:  # fmt: skip
        several = isinstance(dtypes, (list, tuple))
        self.dtypes = [as_dtype(d) for d in (dtypes if several else [dtypes])]
        if shapes is None:
            raise ArgumentError(
                f"{type(self).__name__}: expected shapes; the number of axes of what "
                "comes out must be known when the graph is built"
            )
        nested = bool(shapes) and isinstance(shapes[0], (list, tuple))
        self.shapes = [tuple(s) for s in (shapes if nested else [shapes])]
        if len(self.shapes) != len(self.dtypes):
            raise ArgumentError(
                f"{type(self).__name__}: {len(self.dtypes)} dtypes but "
                f"{len(self.shapes)} shapes"
            )
        self.capacity, self.name = capacity, name
        self.fillers: list[Any] = []  # the operations of queue runners

    def _contents(self, session: Any) -> _Contents:
        states = session.states
        if self not in states:
            states[self] = _Contents(session)
        return states[self]

    # -- putting in

    def _parts(self, vals: Any) -> list[Any]:
        given = list(vals) if isinstance(vals, (list, tuple)) else [vals]
        if len(self.dtypes) == 1 and len(given) != 1:
            given = [vals]
        if len(given) != len(self.dtypes):
            raise ArgumentError(
                f"enqueue: expected {len(self.dtypes)} parts, got {len(given)}"
            )
        return [as_node(v, t) for v, t in zip(given, self.dtypes, strict=True)]

    def enqueue(self, vals: Any, name: str | None = None) -> Operation:
        """An operation that puts one element in."""
        return effect(lambda *parts: self._put([parts]), self._parts(vals),
                      name or f"{self.name}_enqueue")  # fmt: skip

    def enqueue_many(self, vals: Any, name: str | None = None) -> Operation:
        """An operation that puts the rows of its arguments in."""
        return effect(
            lambda *parts: self._put(list(zip(*parts, strict=True))),
            self._parts(vals), name or f"{self.name}_enqueue_many",
        )  # fmt: skip

    def _put(self, rows: Sequence[Any]) -> None:
        held = self._contents(running_session())
        for row in rows:
            self._check_row(row)
            with held.changed:
                while len(held.rows) >= self.capacity and not held.closed:
                    self._wait(held, f"the queue {self.name!r} is full")
                if held.closed:
                    raise CancelledError(f"enqueue: the queue {self.name!r} is closed")
                held.rows.append(tuple(np.array(part) for part in row))
                held.changed.notify_all()

    def _check_row(self, row: Any) -> None:
        for part, shape in zip(row, self.shapes, strict=True):
            fits = np.ndim(part) == len(shape) and all(
                n is None or n == m for n, m in zip(shape, np.shape(part), strict=True)
            )
            if not fits:
                raise ShapeError(
                    f"enqueue: the queue {self.name!r} holds shape {shape}, got "
                    f"{np.shape(part)}"
                )

    @staticmethod
    def _wait(held: _Contents, why: str) -> None:
        """Wait for another thread; alone, nothing would ever change."""
        others = [t for t in threading.enumerate() if type(t).__name__ != "TMonitor"]
        if len(others) == 1:  # besides one that watches progress bars
            raise ArgumentError(f"{why}, and there is no other thread to change that")
        held.changed.wait(_WAIT)

    def close(
        self, cancel_pending_enqueues: bool = False, name: str | None = None
    ) -> Operation:
        """An operation after which nothing can be put in."""

        def close() -> None:
            held = self._contents(running_session())
            with held.changed:
                held.closed = True
                held.changed.notify_all()

        return effect(close, (), name or f"{self.name}_close")

    # -- taking out

    def _take(self, held: _Contents) -> Any:
        return held.rows.pop(0)

    def _enough(self, held: _Contents, count: int) -> bool:
        return len(held.rows) >= count

    def _taken(self, session: Any, count: int, at_least: int) -> list[Any]:
        """So many elements, or fewer (but so many) of a queue that was closed."""
        held = self._contents(session)
        while not self._enough(held, count) and not held.closed:
            if self.fillers:
                self._fill(session, held)
                continue
            with held.changed:
                if not self._enough(held, count) and not held.closed:
                    self._wait(held, f"the queue {self.name!r} has {len(held.rows)} "
                                     f"elements, {count} were asked for")  # fmt: skip
        with held.changed:
            count = min(count, len(held.rows))
            if count < at_least or not count:
                raise OutOfRangeError(
                    f"dequeue: the queue {self.name!r} is closed and has "
                    f"{len(held.rows)} elements"
                )
            rows = [self._take(held) for _ in range(count)]
            held.changed.notify_all()
        return rows

    def _fill(self, session: Any, held: _Contents) -> None:
        try:
            for operation in self.fillers:
                session.run(operation)
        except OutOfRangeError:
            held.closed = True

    def _one_or_list(self, nodes: list[Any]) -> Any:
        return nodes[0] if len(nodes) == 1 else nodes

    def dequeue(self, name: str | None = None) -> Any:
        """The next element, taken in every run that needs it."""
        return self._one_or_list(fed_by(
            lambda session: self._taken(session, 1, 1)[0],
            self.dtypes, self.shapes, name or f"{self.name}_Dequeue",
        ))  # fmt: skip

    def dequeue_many(self, n: int, name: str | None = None) -> Any:
        """The next ``n`` elements along a new first axis."""
        return self._many(n, n, n, name or f"{self.name}_DequeueMany")

    def dequeue_up_to(self, n: int, name: str | None = None) -> Any:
        """The next ``n`` elements, or those that are left in a closed queue."""
        return self._many(n, 1, None, name or f"{self.name}_DequeueUpTo")

    def _many(self, n: int, at_least: int, first: Any, name: str) -> Any:
        def pull(session: Any) -> list[np.ndarray]:
            rows = self._taken(session, n, at_least)
            return [np.stack(part) for part in zip(*rows, strict=True)]

        shapes = [(first, *shape) for shape in self.shapes]
        return self._one_or_list(fed_by(pull, self.dtypes, shapes, name))

    def size(self, name: str | None = None) -> Any:
        """The number of elements at the beginning of the run."""
        return fed_by(
            lambda session: [np.asarray(len(self._contents(session).rows), np.int32)],
            [int32], [()], name or f"{self.name}_Size",
        )[0]  # fmt: skip


class FIFOQueue(QueueBase):
    """A queue: what came first goes first.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     queue = weft.static.FIFOQueue(10, weft.float32, shapes=[()])
    ...     session.run(queue.enqueue_many([[1.0, 2.0, 3.0]]))
    ...     session.run(queue.dequeue_many(2))
    array([1., 2.], dtype=float32)
    """


class RandomShuffleQueue(QueueBase):
    """A queue whose elements come out in random order.

    It keeps ``min_after_dequeue`` elements to choose from until it is closed.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     queue = weft.static.RandomShuffleQueue(9, 0, weft.int64, shapes=[()])
    ...     session.run(queue.enqueue_many([[1, 2, 3]]))
    ...     sorted(session.run(queue.dequeue_many(3)).tolist())
    [1, 2, 3]
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Any,
        shapes: Any = None,
        names: None = None,
        seed: int | None = None,
        shared_name: str | None = None,
        name: str = "random_shuffle_queue",
    ) -> None:
        super().__init__(capacity, dtypes, shapes, names, shared_name, name)
        self.min_after_dequeue = min_after_dequeue
        self.stream = _stream(seed)

    def _enough(self, held: _Contents, count: int) -> bool:
        return len(held.rows) >= count + self.min_after_dequeue

    def _take(self, held: _Contents) -> Any:
        return held.rows.pop(int(self.stream.integers(len(held.rows))))


def _stream(seed: int | None) -> np.random.Generator:
    return np.random.default_rng(draws.initial_seed() if seed is None else seed)


# -- batches of what other nodes give


def _tensors(tensors: Any) -> tuple[list[Any], Any]:
    """Nodes from a list or dictionary, and a function that puts a list back so."""
    if isinstance(tensors, dict):
        keys = list(tensors)
        return [as_node(v) for v in tensors.values()], lambda out: dict(
            zip(keys, out, strict=True)
        )
    if isinstance(tensors, (list, tuple)):
        one = len(tensors) == 1
        return [as_node(v) for v in tensors], lambda out: out[0] if one else out
    return [as_node(tensors)], lambda out: out[0]


class _Gathered:
    """Rows that runs of other nodes give."""

    def __init__(self, nodes: list[Any], enqueue_many: bool) -> None:
        self.nodes, self.enqueue_many = nodes, enqueue_many

    def more(self, session: Any) -> bool:
        """Run the nodes once more; whether there was anything more."""
        rows = session.states.setdefault(self, [])
        try:
            values = session.run(self.nodes)
        except OutOfRangeError:
            return False
        rows += zip(*values, strict=True) if self.enqueue_many else [tuple(values)]
        return True

    def rows(self, session: Any) -> list[Any]:
        return session.states.setdefault(self, [])


def batch(
    tensors: Any, batch_size: int, num_threads: int = 1, capacity: int = 32,
    enqueue_many: bool = False, shapes: Any = None, dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str = "batch",
) -> Any:  # fmt: skip
    """Values of several runs of some nodes, along a new first axis.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.train.range_input_producer(3, shuffle=False)
    ...     session.run(weft.static.train.batch([x * 10], 2))
    array([ 0, 10])
    """
    return _batched(tensors, batch_size, enqueue_many, allow_smaller_final_batch, name,
                    0, None, dynamic_pad)  # fmt: skip


def shuffle_batch(
    tensors: Any, batch_size: int, capacity: int, min_after_dequeue: int,
    num_threads: int = 1, seed: int | None = None, enqueue_many: bool = False,
    shapes: Any = None, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str = "shuffle_batch",
) -> Any:  # fmt: skip
    """Values of several runs of some nodes in random order.

    Rows are drawn from ``min_after_dequeue`` more than a batch needs.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.train.range_input_producer(4, num_epochs=1, shuffle=False)
    ...     y = weft.static.train.shuffle_batch([x], 4, 8, 2)
    ...     sorted(session.run(y).tolist())
    [0, 1, 2, 3]
    """
    return _batched(tensors, batch_size, enqueue_many, allow_smaller_final_batch, name,
                    min_after_dequeue, _stream(seed), False)  # fmt: skip


def _batched(
    tensors: Any, size: int, enqueue_many: bool, smaller: bool, name: str, spare: int,
    stream: Any, pad: bool,
) -> Any:  # fmt: skip
    nodes, packed = _tensors(tensors)
    gathered = _Gathered(nodes, enqueue_many)

    def pull(session: Any) -> list[np.ndarray]:
        rows = gathered.rows(session)
        while len(rows) < size + spare and gathered.more(session):
            pass
        if len(rows) < (1 if smaller else size):
            raise OutOfRangeError(f"{name}: {len(rows)} elements are left, not {size}")
        picks = [0 if stream is None else int(stream.integers(len(rows) - k))
                 for k in range(min(size, len(rows)))]  # fmt: skip
        chosen = [rows.pop(k) for k in picks]
        return [_joined(part, pad) for part in zip(*chosen, strict=True)]

    shapes = [n.static_shape[1:] if enqueue_many else n.static_shape for n in nodes]
    first = None if smaller else size
    types = [n.dtype for n in nodes]
    return packed(fed_by(pull, types, [(first, *s) for s in shapes], name))


def _joined(part: Any, pad: bool) -> np.ndarray:
    from weft.static.data import _stacked

    return _stacked(part, [None] * np.ndim(part[0]) if pad else None, 0)


def range_input_producer(
    limit: int, num_epochs: int | None = None, shuffle: bool = True,
    seed: int | None = None, capacity: int = 32, shared_name: str | None = None,
    name: str = "range_input_producer",
) -> Any:  # fmt: skip
    """The numbers below a limit, one a run, again and again.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     n = weft.static.train.range_input_producer(2, shuffle=False)
    ...     [int(session.run(n)) for _ in range(3)]
    [0, 1, 0]
    """
    from weft.static.data import Dataset

    numbers = Dataset.range(limit)
    if shuffle:
        numbers = numbers.shuffle(limit, seed)
    return numbers.repeat(num_epochs).make_one_shot_iterator().get_next(name)


def slice_input_producer(
    tensor_list: Any, num_epochs: int | None = None, shuffle: bool = True,
    seed: int | None = None, capacity: int = 32, shared_name: str | None = None,
    name: str = "input_producer",
) -> list[Any]:  # fmt: skip
    """A row of each tensor a run, the rows in one order for all.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     rows = weft.static.train.slice_input_producer([[5, 6]], shuffle=False)
    ...     int(session.run(rows)[0])
    5
    """
    from weft.static.math import gather

    nodes = [as_node(t) for t in tensor_list]
    n = nodes[0].shape[0]
    if not isinstance(n, int):
        raise ShapeError("slice_input_producer: the number of rows must be known")
    at = range_input_producer(n, num_epochs, shuffle, seed, name=name)
    return [gather(node, at) for node in nodes]


class QueueRunner:
    """Operations that fill a queue when it has too little.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     queue = weft.static.FIFOQueue(9, weft.float32, shapes=[()])
    ...     more = queue.enqueue(weft.static.random_uniform([]))
    ...     runner = weft.static.train.QueueRunner(queue, [more])
    ...     weft.static.train.add_queue_runner(runner)
    ...     session.run(queue.dequeue_many(3)).shape
    (3,)
    """

    def __init__(self, queue: QueueBase, enqueue_ops: Any, **ignored: Any) -> None:
        self.queue, self.enqueue_ops = queue, list(enqueue_ops)

    def create_threads(
        self, sess: Any, coord: Any = None, daemon: bool = False, start: bool = False
    ) -> list[Any]:
        """Let the queue be filled; there are no threads."""
        add_queue_runner(self)
        return []


def add_queue_runner(qr: QueueRunner, collection: str = "queue_runners") -> None:
    """Let a queue be filled by the operations of a runner.

    >>> with weft.static.Graph().as_default():
    ...     queue = weft.static.FIFOQueue(9, weft.float32, shapes=[()])
    ...     runner = weft.static.train.QueueRunner(queue, [queue.enqueue(1.0)])
    ...     weft.static.train.add_queue_runner(runner)
    """
    known = {id(one) for one in qr.queue.fillers}
    qr.queue.fillers += [one for one in qr.enqueue_ops if id(one) not in known]


def start_queue_runners(
    sess: Any = None, coord: Any = None, daemon: bool = True, start: bool = True,
    collection: str = "queue_runners",
) -> list[Any]:  # fmt: skip
    """No threads: queues are filled when they are asked.

    >>> weft.static.train.start_queue_runners()
    []
    """
    return []


class Coordinator:
    """Tells threads when to stop, and waits for them.

    >>> coordinator = weft.static.train.Coordinator()
    >>> coordinator.should_stop()
    False
    >>> coordinator.request_stop()
    >>> coordinator.join()
    """

    def __init__(self, clean_stop_exception_types: Any = (OutOfRangeError,)) -> None:
        self._stop = threading.Event()
        self._clean = tuple(clean_stop_exception_types)
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def should_stop(self) -> bool:
        """Whether a stop was asked for."""
        return self._stop.is_set()

    def request_stop(self, ex: BaseException | None = None) -> None:
        """Ask for a stop; ``join`` raises the error, unless it is the end of data."""
        error = ex[1] if isinstance(ex, tuple) else ex
        if error is not None and not isinstance(error, self._clean):
            self._error = self._error or error
        self._stop.set()

    def clear_stop(self) -> None:
        """Forget that a stop was asked for."""
        self._stop.clear()
        self._error = None

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait until a stop is asked for."""
        return self._stop.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Let ``join`` wait for a thread as well."""
        self._threads.append(thread)

    def join(
        self, threads: Any = None, stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:  # fmt: skip
        """Wait for threads to end, then raise the error that one of them met."""
        for thread in [*self._threads, *(threads or [])]:
            thread.join(stop_grace_period_secs)
        if self._error is not None:
            raise self._error

    def stop_on_exception(self) -> Any:
        """A context in which an error asks for a stop."""
        from contextlib import contextmanager

        @contextmanager
        def stopping() -> Any:
            try:
                yield
            except Exception as error:
                self.request_stop(error)

        return stopping()
