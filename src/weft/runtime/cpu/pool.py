"""The thread pool: workers that wait in native code for chunks of a loop.

    pool.link()                              before loading code that calls the pool
    pool.default().run(body, context, n)     the same from Python

``pool_code`` holds the code itself and says what it promises. Workers start with the
first loop that has more than one chunk, and sleep in the kernel when idle. They are
plain system threads that never touch Python: they do not keep a process alive, and
signals go to other threads.

A fork finds no worker: the pool is held and its workers ended before, and each
process starts its own with its next loop. Resizing works in the same way, and like a
fork waits for a loop that runs; so neither may happen inside a loop's body.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from typing import Any, NamedTuple

from weft import late
from weft.errors import ArgumentError
from weft.runtime import system
from weft.runtime.cpu.threads import thread_limit

SPIN_SECONDS = 50e-6  # before a waiting thread goes to sleep
# A fault in a kernel must reach the thread that made it.
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")

_lock = threading.Lock()
_pools: list[Pool] = []  # for ever: their workers run their code
_held: list[Pool] = []  # for the time of a fork
_asked: int | None = None


class Addresses(NamedTuple):
    """The addresses of the pool and its two functions."""

    pool: int
    parallel_for: int
    parallel_chunks: int


class Pool:
    """Threads that share out a loop's chunks; there is one for the process.

    A pool is never freed, so make none but for tests.
    """

    def __init__(self, threads: int, waiting: str | None = None) -> None:
        pool_code = late.find("pool_code")
        self._fields = pool_code.FIELDS
        waiting = waiting or pool_code.waiting_kind()
        library = pool_code.pool_library(waiting)
        at = library.address
        self.addresses = Addresses(
            at("weft_pool"), at("weft_parallel_for"), at("weft_parallel_chunks")
        )
        self._library = library
        whole, pointer = ctypes.c_int64, ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, whole, whole)
        self._chunks = kind(self.addresses.parallel_chunks)
        self._hold = ctypes.CFUNCTYPE(None, pointer)(at("weft_pool_hold"))
        self._release = ctypes.CFUNCTYPE(None, pointer)(at("weft_pool_release"))
        if waiting in pool_code.POSIX:
            self._set_up()
        spin = ctypes.CFUNCTYPE(None, whole)(at("weft_pool_spin"))
        self._field("spins").value = max(int(SPIN_SECONDS / _pause_seconds(spin)), 1)
        self._wanted = self._field("wanted")
        self._wanted.value = threads
        _pools.append(self)

    def _set_up(self) -> None:
        """Prepare what POSIX threads need."""
        libc = ctypes.CDLL(None)
        place = {n: ctypes.c_void_p(self._place(n)) for n in self._fields}
        libc.sigfillset(place["signals"])
        for name in _FAULTS:
            libc.sigdelset(place["signals"], int(getattr(signal, name)))
        libc.pthread_mutex_init(place["mutex"], None)
        libc.pthread_cond_init(place["condition"], None)

    def _place(self, name: str) -> int:
        return self.addresses.pool + self._fields[name][0]

    def _field(self, name: str) -> ctypes.c_int32:
        return ctypes.c_int32.from_address(self._place(name))

    @property
    def threads(self) -> int:
        """The threads that a loop may use, with the caller's."""
        return self._wanted.value

    @property
    def wanted_at(self) -> int:
        """The address of the number of threads, four bytes."""
        return self._place("wanted")

    @property
    def workers(self) -> int:
        """The threads that the pool has started."""
        return self._field("started").value

    @property
    def sleepers(self) -> int:
        """The workers that sleep in the kernel."""
        return self._field("sleepers").value

    def resize(self, threads: int) -> None:
        """Use another number of threads from the next loop on."""
        self.hold()
        self._wanted.value = threads
        self.release()

    def hold(self) -> None:
        """End all workers and run loops serially until ``release``."""
        self._hold(self.addresses.pool)

    def release(self) -> None:
        """Let loops have workers again."""
        self._release(self.addresses.pool)

    def run(self, body: int, context: int, count: int, grain: int = 0) -> None:
        """Call a native ``body(context, begin, end, worker)`` over all chunks."""
        self._chunks(self.addresses.pool, body, context, count, grain)


def _pause_seconds(spin: Any) -> float:
    """The seconds of one pause: between ten cycles and some hundred, by CPU."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        spin(500)
        times.append(time.perf_counter() - start)
    return max(min(times), 1e-7) / 500


# -- the process's pool


_made: Pool | None = None


def _make() -> Pool:
    made = Pool(get_num_threads())
    add_symbol = late.find("pool_code").add_symbol
    add_symbol("weft_pool", made.addresses.pool)
    add_symbol("weft_parallel_for", made.addresses.parallel_for)
    add_symbol("weft_parallel_chunks", made.addresses.parallel_chunks)
    return made


def default() -> Pool:
    """The process's pool, made when first asked for."""
    global _made
    with _lock:
        if _made is None:
            _made = _make()
        return _made


def link() -> Addresses:
    """Let modules refer to ``weft_pool`` and its functions by name; gives addresses.

    >>> weft.runtime.cpu.pool.link() == weft.runtime.cpu.pool.default().addresses
    True
    """
    return default().addresses


def get_num_threads() -> int:
    """The threads that kernels use, of compiled code and of large eager work.

    They are limited by the process's CPU affinity, its control group's quota and
    ``WEFT_NUM_THREADS``, unless ``set_num_threads`` says otherwise.

    >>> weft.get_num_threads() >= 1
    True
    """
    if _made is not None:
        return _made.threads
    return thread_limit().threads if _asked is None else _asked


def set_num_threads(num: int) -> None:
    """Let kernels use a number of threads; results do not depend on it.

    >>> before = weft.get_num_threads()
    >>> weft.set_num_threads(2)
    >>> weft.get_num_threads()
    2
    >>> weft.set_num_threads(before)
    """
    global _asked
    if type(num) is not int or not 1 <= num <= 1024:
        raise ArgumentError(
            f"set_num_threads: expected a number from 1 to 1024, got {num!r}"
        )
    with _lock:
        _asked = num
        if _made is not None:
            _made.resize(num)


def _before_fork() -> None:
    _held[:] = _pools  # one that is made meanwhile is not to be released
    for pool in _held:
        pool.hold()


def _after_fork() -> None:
    for pool in _held:
        pool.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # the old one may belong to a thread that is not here
    _after_fork()


system.at_fork(
    before=_before_fork,
    after_in_parent=_after_fork,
    after_in_child=_after_fork_in_child,
)
