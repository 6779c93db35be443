"""Groups of processes, and the world that they are parts of."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from weft.distributed import environment, rendezvous
from weft.distributed.errors import DistBackendError, NotInitializedError
from weft.distributed.exchange import Exchange, patience
from weft.distributed.links import Links, Message
from weft.errors import ArgumentError, user_frame
from weft.runtime import system

TIMEOUT = 1800.0  # seconds, as in PyTorch
RENDEZVOUS = 60.0  # seconds in which all processes must come, at most


class Ending:
    """The error that ends this process, for the others to be told."""

    def __init__(self) -> None:
        self.text = ""
        self._hook = sys.excepthook
        sys.excepthook = self._note

    def _note(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        first = str(error).partition("\n")[0]
        self.text = f"it raised {kind.__name__}" + (f": {first}" if first else "")
        self._hook(kind, error, trace)

    def close(self) -> str:
        """The error as a text, empty if there is none; no later one is noted."""
        if sys.excepthook == self._note:
            sys.excepthook = self._hook
        return self.text


class World:
    """All processes: the connections to them, and the groups."""

    def __init__(self, links: Links, local: int, asked: str, engine: Any) -> None:
        self.links, self.local = links, local
        self.asked, self.engine = asked, engine  # the backend's name, and the backend
        self.groups: dict[str, ProcessGroup] = {}
        self.made = 0  # groups so far
        self.broken: DistBackendError | None = None
        self.calls = 0
        self.ending = Ending()
        self._worker: concurrent.futures.ThreadPoolExecutor | None = None
        self._thread = 0  # the worker's
        self._last: concurrent.futures.Future[Any] | None = None
        self.timeline: Any = None  # the one that records, if one does

    def noted(self, name: str, size: int) -> contextlib.AbstractContextManager[None]:
        """A block of communication, which a timeline notes if one records."""
        if self.timeline is None:
            return contextlib.nullcontext()
        found: contextlib.AbstractContextManager[None]
        found = self.timeline.communication(name, size)
        return found

    # -- calls, in the order of the program

    def run(self, work: Callable[[], Any]) -> Any:
        """Do this after everything before it."""
        inside = threading.get_ident() == self._thread
        if self._last is not None and self._last.done():
            self._last = None  # which holds its result
        if inside or self._last is None:
            return self._guarded(work)
        return self.later(work).result()

    def later(self, work: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """Do this after everything before it, while the program goes on."""
        if self._worker is None:
            self._worker = concurrent.futures.ThreadPoolExecutor(1, "weft.distributed")
        self._last = self._worker.submit(self._in_thread, work)
        return self._last

    def _in_thread(self, work: Callable[[], Any]) -> Any:
        self._thread = threading.get_ident()
        return self._guarded(work)

    def _guarded(self, work: Callable[[], Any]) -> Any:
        if self.broken is not None:
            raise DistBackendError(
                "the processes have lost one another, so no more calls are possible; "
                f"what was said first:\n{self.broken.args[0]}"
            )
        try:
            return work()
        except DistBackendError as error:
            self.broken = error
            raise

    def close(self) -> None:
        """Leave the others."""
        end = self.ending.close()
        text = end or f"it ended after {self.calls} calls"
        self.links.close({"text": text})
        if self.engine is not None:
            self.engine.close(not end and self.broken is None)
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)


_world: World | None = None
_lock = threading.Lock()


class ProcessGroup:
    """Some processes of the world, which call the same things in the same order."""

    def __init__(
        self, world: World, name: str, ranks: Sequence[int], timeout: float
    ) -> None:
        self.world, self.name = world, name
        self.ranks = tuple(ranks)  # in the world, in order
        self.timeout = timeout
        self.number = 0  # of the last call

    def rank(self) -> int:
        """This process's number in the group; -1 outside of it."""
        mine = self.world.links.rank
        return self.ranks.index(mine) if mine in self.ranks else -1

    def size(self) -> int:
        """The number of processes in the group."""
        return len(self.ranks)

    def name_of_backend(self) -> str:
        """The name of the backend, as it was asked for."""
        return self.world.asked

    @property
    def group_name(self) -> str:
        return self.name or "default"

    def call(
        self, operator: str, array: np.ndarray | None, details: Any, line: str,
        timeout: float | None = None, uneven: bool = False,
    ) -> Call:  # fmt: skip
        """The next call of this group."""
        self.number += 1
        self.world.calls += 1
        patient = self.timeout if timeout is None else timeout
        call = Call(self, self.number, operator, array, details, line, patient)
        if uneven and array is not None:
            rest = [str(n) for n in array.shape[1:]]
            call.about |= {"shape": ["*", *rest], "with": {}, "own": details}
        return call

    def __repr__(self) -> str:
        return f"<process group {self.group_name} of ranks {list(self.ranks)}>"


class Call:
    """One call of a group, which may take several exchanges."""

    def __init__(
        self, group: ProcessGroup, number: int, operator: str,
        array: np.ndarray | None, details: dict[str, Any], line: str, timeout: float,
    ) -> None:  # fmt: skip
        self.group, self.timeout, self.steps = group, timeout, 0
        self.about = {
            "number": number, "operator": operator, "group": group.name,
            "shape": [] if array is None else list(array.shape),
            "dtype": "" if array is None else array.dtype.name,
            "with": details, "own": {}, "line": line,
        }  # fmt: skip

    def exchange(
        self, payloads: Callable[[int], np.ndarray | None] = lambda rank: None
    ) -> list[Message | None]:
        """Send each rank of the group a payload; what they sent, None from this one."""
        group = self.group
        one = Exchange(
            group.world.links, group.ranks, self.about, self.timeout, step=self.steps
        )
        self.steps += 1
        found = one.run(lambda rank: payloads(group.ranks.index(rank)))
        return [found.get(rank) for rank in group.ranks]


# -- the world


def init(
    backend: str | None,
    method: str | None,
    timeout: float | None,
    size: int,
    rank: int,
) -> World:
    """Find the other processes, and make the group of all."""
    global _world
    with _lock:
        if _world is not None:
            raise ArgumentError(
                "init_process_group: trying to initialize the default process group "
                "twice!"
            )
        from weft.distributed.backends import chosen

        found = environment.place()
        launcher = "" if found is None else found.launcher
        name, load = chosen(backend, launcher)
        rank, size, local, address = _asked(method, rank, size)
        patient = TIMEOUT if timeout is None else timeout
        links = rendezvous.connect(rank, size, address, min(patient, RENDEZVOUS))
        _world = World(Links(rank, size, links), local, name, None)
        _world.groups[""] = ProcessGroup(_world, "", range(size), patient)
        _world.engine = load(_world)
    return _world


def _asked(
    method: str | None, rank: int, size: int
) -> tuple[int, int, int, tuple[str, int]]:
    """This process's place, and where rank 0 waits: from arguments or environment."""
    address = None
    if method not in (None, "env://"):
        address, more = rendezvous.parsed(str(method))
        rank, size = more.get("rank", rank), more.get("world_size", size)
    found = environment.place()
    launcher = "" if found is None else found.launcher
    local = rank if found is None else found.local
    if found is not None:
        rank = found.rank if rank < 0 else rank
        size = found.size if size < 0 else size
    if rank < 0 or size < 1:
        missing = "RANK" if rank < 0 else "WORLD_SIZE"
        raise ArgumentError(
            f"init_process_group: environment variable {missing} expected, but not "
            "set. Start the program with 'weft run -n 4 train.py', or pass rank= and "
            "world_size= with init_method='tcp://host:port'"
        )
    if rank >= size:
        raise ArgumentError(
            f"init_process_group: expected a rank below world_size={size}, got {rank}"
        )
    address = address or environment.address()
    if address is None and size > 1:
        from weft.distributed.mpi import shared_address

        address = shared_address(launcher, rank)
    return rank, size, max(local, 0), address or ("127.0.0.1", 0)


def world() -> World:
    """The world; an error if there is none."""
    if _world is None:
        raise NotInitializedError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    return _world


def started() -> World:
    """The world, which is joined if it is not yet."""
    return init(None, None, None, -1, -1) if _world is None else _world


def initialized() -> bool:
    """Whether there is a world."""
    return _world is not None


def group_of(group: Any) -> ProcessGroup:
    """The group that an argument means; None is all processes."""
    if group is None:
        return world().groups[""]
    if not isinstance(group, ProcessGroup):
        raise ArgumentError(
            f"expected a process group of new_group's, or None, got {group!r}"
        )
    return group


def named(name: str, size: int) -> ProcessGroup:
    """The group of a captured call, which must be as it was."""
    found = world().groups.get(name)
    if found is None or found.size() != size:
        now = "gone" if found is None else f"of {found.size()} processes now"
        raise ArgumentError(
            f"a program was captured for a group of {size} processes, and the group is "
            f"{now}; capture or compile it again"
        )
    return found


def new_group(
    ranks: Sequence[int] | None, timeout: float | None, line: str
) -> ProcessGroup | None:
    """Make a group; all processes must call this. None outside of it."""
    one = world()
    every = one.groups[""]
    chosen = sorted(every.ranks if ranks is None else ranks)
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(every.ranks):
        raise ArgumentError(
            f"new_group: expected different ranks from 0 to {every.size() - 1}, got "
            f"{list(ranks or ())}"
        )
    details = {"ranks": chosen}
    one.run(lambda: every.call("new_group", None, details, line).exchange())
    one.made += 1
    patient = every.timeout if timeout is None else timeout
    group = ProcessGroup(one, str(one.made), chosen, patient)
    one.groups[group.name] = group
    return group if group.rank() >= 0 else None


def destroy(group: ProcessGroup | None) -> None:
    """Forget a group; with the group of all, leave the other processes."""
    global _world
    one = world()
    if group is not None and group.name:
        one.groups.pop(group.name, None)
        return
    _world = None
    one.close()


@atexit.register
def _leave() -> None:
    if _world is not None and not _world.links.closed:
        _world.close()


def _forked() -> None:
    """A copy of this process is none of the world's."""
    global _world
    if _world is not None:
        _world.links.abandon()
        _world = None


system.at_fork(after_in_child=_forked)


def line_here() -> str:
    """The user's line that runs now, in short."""
    frame = user_frame()
    if frame is None:
        return "an unknown line"
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno}, in {code.co_name}"


__all__ = ["Call", "ProcessGroup", "World", "patience"]
