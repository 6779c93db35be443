"""A pool of memory for large arrays, reused by later ones.

    empty((4096, 4096), np.float32)     an array over memory from the pool
    empties([(shape, dtype), ...])      several in one block
    with shelf(nbytes): zeros(...)      zeros that live as long, likewise
    pool_bytes()                        bytes in use, and bytes kept for reuse
    release()                           give kept memory back

Fresh memory costs a page fault for every page that is first written, which for large
results takes longer than computing them. So a block's pages stay when the last array
over it is gone, up to ``LIMIT`` bytes, and the next array of about its size takes them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.errors import AllocationError
from weft.runtime import system
from weft.runtime.cpu.address import address, round_up

SMALLEST = 1 << 18  # bytes; below, the system's allocator keeps most pages by itself
_ZEROS = 1 << 21  # bytes of zeros, whose pages are always fresh: fewer come with a call
SHARE = 8  # 1 / this of the machine's memory may be kept for reuse
_STEPS = 8  # sizes of blocks between a power of two and the next
_HUGE = 2 << 20  # bytes of a huge page
_NUMBERS = "bBhHiIlLqQefdFD?"  # codes of dtypes that arrays are made of directly


class PoolBytes(NamedTuple):
    """The bytes of the pool in use by arrays, and those kept for reuse."""

    used: int
    kept: int


class Lease:
    """An array's range in a block, which is held as long as the array lives."""

    __slots__ = ("__array_interface__", "hold")

    def __init__(self, hold: Hold, at: int, shape: tuple[int, ...], code: str) -> None:
        self.hold = hold
        self.__array_interface__ = {
            "data": (address(hold.block) + at, False),
            "shape": shape,
            "typestr": code,
            "version": 3,
        }


class Hold:
    """A block with one array or several; it goes back to the pool after the last."""

    __slots__ = ("block",)

    def __init__(self, block: np.ndarray) -> None:
        self.block = block

    def __del__(self) -> None:
        if _pool is not None:  # the interpreter may be about to end
            _pool.give(self.block)


class Pool:
    """Blocks of memory by size: those in use are counted, the others kept."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.kept = 0
        self._free: OrderedDict[int, list[np.ndarray]] = OrderedDict()
        self._back: deque[np.ndarray] = deque()  # not yet sorted in
        self.renew_lock()

    def renew_lock(self) -> None:
        """Make a new lock: in a forked process nobody would release the old one."""
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> np.ndarray:
        """A block of at least so many bytes."""
        size = block_size(nbytes)
        with self._lock:
            self._sort_in()
            waiting = self._free.get(size)
            block = waiting.pop() if waiting else None
            self.used += size
            if block is not None:
                self.kept -= size
        if block is not None:
            return block
        try:
            return _mapped(size)
        except (OSError, MemoryError) as error:
            return self._scraped(size, error)

    def take_zeros(self, nbytes: int) -> np.ndarray:
        """A fresh block of at least so many bytes, which are zero."""
        size = block_size(nbytes)
        with self._lock:
            self.used += size
        try:
            return _mapped(size)
        except (OSError, MemoryError) as error:
            return self._scraped(size, error)

    def _scraped(self, size: int, error: Exception) -> np.ndarray:
        """A block when memory is short: kept blocks are given back first."""
        self.release()
        try:
            return _mapped(size)
        except (OSError, MemoryError):
            with self._lock:
                self.used -= size
            raise AllocationError(
                f"empty: the system refused {size:,} bytes ({error})"
            ) from None

    def give(self, block: np.ndarray) -> None:
        """Take a block back. This may be called anywhere, by the garbage collector."""
        self._back.append(block)
        if self._lock.acquire(blocking=False):
            try:
                self._sort_in()
            finally:
                self._lock.release()

    def _sort_in(self) -> None:
        while self._back:
            block = self._back.popleft()
            self._free.setdefault(block.size, []).append(block)
            self._free.move_to_end(block.size)
            self.used -= block.size
            self.kept += block.size
        self._trim(self.limit)

    def _trim(self, limit: int) -> None:
        """Give memory back, of sizes that were not used for longest first."""
        while self.kept > limit:
            size, blocks = next(iter(self._free.items()))
            if blocks:
                blocks.pop(0)
                self.kept -= size
            if not blocks:
                del self._free[size]

    def release(self) -> int:
        """Give all kept blocks back to the system; their bytes."""
        with self._lock:
            self._sort_in()
            before = self.kept
            self._trim(0)
        return before

    def bytes(self) -> PoolBytes:
        with self._lock:
            self._sort_in()
            return PoolBytes(self.used, self.kept)


def block_size(nbytes: int) -> int:
    """The size of the block for so many bytes: at most an eighth more.

    >>> weft.runtime.cpu.buffers.block_size(64_000_000)
    67108864
    """
    step = max((1 << (nbytes - 1).bit_length()) // (2 * _STEPS), mmap.PAGESIZE)
    return -(-nbytes // step) * step


def _mapped(size: int) -> np.ndarray:
    """Fresh pages of this process's own, huge ones where the system has them."""
    if size < _HUGE:
        return np.frombuffer(system.fresh_pages(size), np.uint8)
    pages = system.fresh_pages(size + _HUGE)
    system.ask_for_huge_pages(pages)
    whole = np.frombuffer(pages, np.uint8)
    start = -address(whole) % _HUGE  # pages that are not touched cost nothing
    return whole[start : start + size]


def _limit() -> int:
    return (system.machine_memory() or 1 << 33) // SHARE


_pool = Pool(_limit())
system.at_fork(after_in_child=lambda: _pool.renew_lock())


def empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array without values; a large one has memory of the pool.

    >>> weft.runtime.cpu.buffers.empty((2, 3), np.float32).shape
    (2, 3)
    """
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    if kind.char not in _NUMBERS:
        return np.empty(shape, kind)
    if nbytes < SMALLEST:
        block = _shelf.block
        return (
            np.empty(shape, kind) if block is None else block.put(shape, kind, nbytes)
        )
    return np.asarray(Lease(Hold(_pool.take(nbytes)), 0, tuple(shape), kind.str))


def empties(wanted: Sequence[tuple[Sequence[int], Any]]) -> list[np.ndarray]:
    """Arrays of shapes and dtypes without values, which live about as long.

    They share one block of the pool, on huge pages where the system has them, if that
    is worth it.

    >>> kinds = [((2, 3), np.float32), ((4,), np.int64)]
    >>> a, b = weft.runtime.cpu.buffers.empties(kinds)
    >>> a.shape, b.dtype
    ((2, 3), dtype('int64'))
    """
    kinds = [np.dtype(dtype) for _, dtype in wanted]
    pairs = zip(wanted, kinds, strict=True)
    sizes = [math.prod(shape) * kind.itemsize for (shape, _), kind in pairs]
    starts = list(itertools.accumulate(map(round_up, sizes), initial=0))
    direct = all(kind.char in _NUMBERS for kind in kinds)
    if starts[-1] < SMALLEST or not direct:
        return [empty(shape, dtype) for shape, dtype in wanted]
    hold = Hold(_pool.take(starts[-1]))
    return [
        np.asarray(Lease(hold, at, tuple(shape), kind.str))
        for (shape, _), kind, at in zip(wanted, kinds, starts, strict=False)
    ]


class Block:
    """Memory for arrays side by side, in pieces of so many bytes.

    ``with block:`` puts small arrays without values there. They are to live about as
    long: a piece stays as long as one of them does.

    >>> block = weft.runtime.cpu.buffers.Block(1 << 24)
    >>> with block:
    ...     some = [weft.runtime.cpu.buffers.empty((9,), np.float32) for _ in range(3)]
    >>> len({id(x.base.hold) for x in some})
    1
    """

    def __init__(self, nbytes: int, zeros: bool = False) -> None:
        self.nbytes = nbytes
        self.take = _pool.take_zeros if zeros else _pool.take
        self.hold: Hold | None = None
        self.at = 0  # where the next array may begin

    def put(self, shape: Sequence[int], kind: Any, nbytes: int) -> np.ndarray:
        """An array in the block."""
        if self.hold is None or self.at + nbytes > self.hold.block.size:
            self.hold = Hold(self.take(max(self.nbytes, nbytes)))
            self.at = 0
        lease = Lease(self.hold, self.at, tuple(shape), kind.str)
        self.at += round_up(nbytes)
        return np.asarray(lease)

    def __enter__(self) -> None:
        _shelf.block = self

    def __exit__(self, *error: object) -> None:
        _shelf.block = None


class _Shelf(threading.local):
    """The block in which a thread puts arrays side by side."""

    zeros: Block | None = None
    block: Block | None = None  # for arrays without values


_shelf = _Shelf()


@contextlib.contextmanager
def shelf(nbytes: int) -> Iterator[None]:
    """Put all zeros that are made here side by side, in blocks of so many bytes.

    They are to live about as long: a block stays as long as one of them does.

    >>> with weft.runtime.cpu.buffers.shelf(1 << 24):
    ...     some = [weft.zeros_like(weft.ones(1 << 10)) for _ in range(3)]
    >>> len({id(x.numpy().base.hold) for x in some})
    1
    """
    if nbytes < _ZEROS or _shelf.zeros is not None:
        yield
        return
    _shelf.zeros = Block(nbytes, zeros=True)
    try:
        yield
    finally:
        _shelf.zeros = None


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Zeros; on a shelf, if there is one.

    >>> weft.runtime.cpu.buffers.zeros((2,), np.dtype("float32"))
    array([0., 0.], dtype=float32)
    """
    if _shelf.zeros is not None and dtype.char in _NUMBERS:
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes:
            return _shelf.zeros.put(shape, dtype, nbytes)
    return np.zeros(shape, dtype)


def physical_memory() -> int:
    """Bytes of memory that this machine (or its container) has."""
    total = system.machine_memory() or 1 << 62
    for path in (
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ):
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def owned(array: np.ndarray) -> bool:
    """Whether an array's memory is its own, rather than a range of another's.

    >>> x = np.zeros(3)
    >>> weft.runtime.cpu.buffers.owned(x), weft.runtime.cpu.buffers.owned(x[1:])
    (True, False)
    """
    return array.base is None or type(array.base) is Lease


def pool_bytes() -> PoolBytes:
    """The bytes that arrays use of the pool's memory, and those kept for reuse.

    >>> weft.runtime.cpu.buffers.pool_bytes().kept >= 0
    True
    """
    return _pool.bytes()


def release() -> int:
    """Give the memory kept for reuse back to the system; its bytes.

    >>> weft.runtime.cpu.buffers.release() >= 0
    True
    """
    return _pool.release()
