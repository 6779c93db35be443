"""Makers of batches: in the main process, or in each of the workers."""

from __future__ import annotations

import itertools
import pickle
import queue
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from weft.errors import WeftError
from weft.ops.random import default_generator
from weft.utils.data import transport
from weft.utils.data.dataset import IterableDataset
from weft.utils.data.seeding import BATCH, SAMPLE, WORKER, Draws, key


class WorkerError(WeftError, RuntimeError):
    """A data-loading worker died, was too slow or failed in an unknown way."""


@dataclass(frozen=True)
class WorkerInfo:
    """A worker's ``id``, the number of workers, its seed and its data set.

    >>> weft.utils.data.WorkerInfo(id=0, num_workers=2, seed=7, dataset="ab")
    WorkerInfo(id=0, num_workers=2, seed=7, dataset='ab')
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Here:
    """The worker that this process is; a stream that reads it divides the data."""

    info: WorkerInfo | None = None
    asked = False


def get_worker_info() -> WorkerInfo | None:
    """The worker that this process is; ``None`` in the main process.

    A stream that calls it before its first sample is taken to divide itself.

    >>> weft.utils.data.get_worker_info() is None
    True
    """
    if _Here.info is not None and not _Here.asked:
        _Here.asked = True
        # From here on the workers' streams differ, and so must their numbers.
        default_generator._seed ^= _Here.info.seed
    return _Here.info


class Request(NamedTuple):
    """One batch wanted: its number, its first sample's number, and its indices.

    A stream has no indices; a batch of it that is not wanted is only passed by.
    """

    number: int
    first: int = 0
    indices: Any = None
    wanted: bool = True


class End:
    """The reply of a fetcher whose stream has ended."""


@dataclass(frozen=True)
class Recipe:
    """The way from samples to batches, the same in every process."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    batch_size: int | None
    drop_last: bool
    batched: bool
    seed: int

    def fetcher(self, epoch: int) -> Fetcher:
        """The maker of an epoch's batches."""
        if isinstance(self.dataset, IterableDataset):
            return StreamFetcher(self, epoch)
        return Fetcher(self, epoch)


class Fetcher:
    """Batches of samples by index."""

    def __init__(self, recipe: Recipe, epoch: int) -> None:
        self.recipe = recipe
        self.samples = key(recipe.seed, epoch, SAMPLE)
        self.batches = key(recipe.seed, epoch, BATCH)

    def fetch(self, request: Request) -> Any:
        """The requested batch."""
        dataset, indices = self.recipe.dataset, request.indices
        if not self.recipe.batched:
            with Draws(self.samples, request.first):
                sample = dataset[indices]
            return self.collate(request, sample)
        samples = []
        for number, index in enumerate(indices, request.first):
            with Draws(self.samples, number):
                samples.append(dataset[index])
        return self.collate(request, samples)

    def collate(self, request: Request, samples: Any) -> Any:
        with Draws(self.batches, request.number):
            return self.recipe.collate_fn(samples)


class StreamFetcher(Fetcher):
    """Batches of a stream.

    Unless the stream divides itself, batch ``n`` has the samples from
    ``n * batch_size``, and samples of other workers' batches are passed by.
    """

    def __init__(self, recipe: Recipe, epoch: int) -> None:
        super().__init__(recipe, epoch)
        self.size = recipe.batch_size or 1
        self.stream = self._numbered()
        self.taken = 0
        self.divides_itself: bool | None = None

    def _numbered(self) -> Iterator[Any]:
        """The stream, each sample drawn with random numbers of its own."""
        _Here.asked = False
        with Draws(self.samples, 0) as draws:
            samples = iter(self.recipe.dataset)
        for number in itertools.count(1):
            with draws:
                try:
                    sample = next(samples)
                except StopIteration:
                    return
            if self.divides_itself is None:
                self.divides_itself = _Here.asked
                _Here.asked = True
            yield sample
            draws.counter = Draws(0, number).counter

    def fetch(self, request: Request) -> Any:
        """The requested batch, ``None`` if it is only passed by, or ``End``."""
        samples = self._share(request)
        if not samples or (len(samples) < self.size and self.recipe.drop_last):
            return End
        if not request.wanted:
            return None
        return self.collate(request, samples if self.recipe.batched else samples[0])

    def _share(self, request: Request) -> list[Any]:
        first = list(itertools.islice(self.stream, 1))  # learns who divides it
        self.taken += len(first)
        begin = request.number * self.size
        if not self.divides_itself and self.taken <= begin:
            behind = begin - self.taken
            first = []
            self.taken += sum(1 for _ in itertools.islice(self.stream, behind))
        rest = list(itertools.islice(self.stream, self.size - len(first)))
        self.taken += len(rest)
        return first + rest


# -- the worker process


class Failure(NamedTuple):
    """An error on its way to the main process."""

    kind: Any  # a class of exceptions, or None
    args: tuple[Any, ...]
    state: dict[str, Any]
    text: str

    def error(self, worker: str) -> BaseException:
        """The error as it was, with the worker's traceback as a note."""
        error = self._same_kind()
        if error is None:
            return WorkerError(f"DataLoader {worker} failed:\n{self.text}")
        error.add_note(f"raised in DataLoader {worker}:\n{self.text}")
        return error

    def _same_kind(self) -> BaseException | None:
        # StopIteration would silently end the loop that asks for the batch.
        if self.kind is None or issubclass(self.kind, StopIteration):
            return None
        try:
            if issubclass(self.kind, WeftError):  # its text is complete
                error = self.kind.__new__(self.kind)
                error.args = self.args
            else:
                error = self.kind(*self.args)
            error.__dict__.update(self.state)
            str(error)
        except Exception:
            return None
        return error


def _failure(error: Exception) -> Failure:
    text = "".join(traceback.format_exception(error))
    state = {k: v for k, v in vars(error).items() if k != "__notes__"}
    try:
        args = error.__reduce__()[1]  # with a file's name, which args lack
        whole = Failure(type(error), args, state, text)  # type: ignore[arg-type]
        transport.dumps(whole)
    except Exception:
        return Failure(None, (), {}, text)
    return whole


@dataclass(frozen=True)
class Setup:
    """The message to a worker at its start."""

    recipe: Recipe
    id: int
    num_workers: int
    worker_init_fn: Callable[[int], Any] | None


def work(connection: Connection, setup: Any, foreign: list[Connection]) -> None:
    """A worker's life: start, then requests until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends us
    for other in foreign:  # inherited, and they would keep siblings from ending
        other.close()
    try:
        _serve(connection, setup)
    except (BrokenPipeError, ConnectionResetError):
        pass  # nobody wants the rest
    finally:
        connection.close()


def _serve(connection: Connection, setup: Any) -> None:
    incoming: queue.SimpleQueue[Any] = queue.SimpleQueue()
    closed = threading.Event()
    # Read at once, so that the main process never waits for us to take a request.
    reader = threading.Thread(
        target=_read, args=(connection, incoming, closed), daemon=True
    )
    try:
        if isinstance(setup, bytes):
            setup = pickle.loads(setup)
        _begin(setup)
    except Exception as error:
        transport.send(connection, _failure(error))
        return
    reader.start()
    fetcher: Fetcher | None = None
    while not closed.is_set():
        message = incoming.get()
        if isinstance(message, int):  # an epoch begins
            fetcher = None
            epoch = message
        elif message is not None:
            try:
                fetcher = fetcher or setup.recipe.fetcher(epoch)
                transport.send(connection, fetcher.fetch(message))
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:
                transport.send(connection, _failure(error))


def _read(connection: Connection, incoming: Any, closed: threading.Event) -> None:
    try:
        while True:
            incoming.put(connection.recv())
    except (EOFError, OSError):
        closed.set()
        incoming.put(None)


def _begin(setup: Setup) -> None:
    recipe = setup.recipe
    seed = key(recipe.seed, setup.id, WORKER)
    default_generator._lock = threading.Lock()  # a fork may have caught it locked
    default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    _Here.info = WorkerInfo(setup.id, setup.num_workers, seed, recipe.dataset)
    _Here.asked = True  # only a stream's own question counts
    if setup.worker_init_fn is not None:
        setup.worker_init_fn(setup.id)


def describe_exit(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "closed its pipe"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = "; is the machine out of memory?" if name == "SIGKILL" else ""
    return f"was ended by {name} (exit code {code}){hint}"


def start_method() -> str:
    """The start method for workers: fork is quick, and sound on Linux."""
    return "fork" if sys.platform == "linux" else "spawn"
