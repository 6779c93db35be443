"""Memory of a device: arrays over its addresses, and blocks that are used again.

A ``DeviceArray`` has a shape, strides and a dtype, over memory that this process cannot
read. Where views are asked for, its outline is a NumPy array at the device's address:
views are what they are in NumPy. Nothing but its shape, strides and address may be
asked of it.
"""

from __future__ import annotations

import bisect
import functools
import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.errors import AllocationError, describe_line, user_frame
from weft.runtime import Runtime
from weft.runtime.cpu.address import address as address_of
from weft.runtime.cpu.address import round_up

SMALLEST = 512  # bytes of a block: addresses are multiples of it
PAGE = 4096  # bytes of the host's memory that are taken at once
LISTED = 1 << 20  # bytes of a block that an error may name
Kind = tuple[Any, ...]  # the shape, dtype and strides of an array
STEPS = 8  # sizes between one power of two and the next: at most an eighth is wasted


class Block:
    """Memory that goes back to its pool with the last array over it."""

    __slots__ = ("__weakref__", "address", "pool", "size")

    def __init__(self, pool: Pool, address: int, size: int) -> None:
        self.pool, self.address, self.size = pool, address, size

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.size,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        self.pool.take_back(self)


class HostWord:
    """A number in the host's memory that the device may write; zero at first."""

    __slots__ = ("_pool", "address", "value")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        with pool.lock:
            if not pool.words:
                page = pool.runtime.host_memory(PAGE).view(np.int64)
                pool.words += [page[k : k + 1] for k in range(len(page))]
            self.value = pool.words.pop()
        self.value[0] = 0
        self.address = address_of(self.value)

    def __del__(self) -> None:
        self._pool.words.append(self.value)


class _Foreign:
    """Another library's memory, which lives as long as this."""

    def __init__(self, address: int, size: int, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


class DeviceArray:
    """An array in a device's memory.

    Its ``kind`` is the shape, dtype and strides, as a key. ``owner`` is the memory,
    which lives as long as the array.
    """

    __slots__ = ("_outline", "address", "contiguous", "kind", "owner", "pool")

    def __init__(
        self, owner: Any, address: int, kind: Kind, contiguous: bool, pool: Pool
    ) -> None:
        self.owner, self.address = owner, address
        self.kind, self.contiguous = kind, contiguous
        self.pool = pool
        self._outline: np.ndarray | None = None

    shape = property(lambda self: self.kind[0])
    ndim = property(lambda self: len(self.kind[0]))
    dtype = property(lambda self: self.kind[1])
    strides = property(lambda self: self.kind[2])
    size = property(lambda self: math.prod(self.kind[0]))
    nbytes = property(lambda self: math.prod(self.kind[0]) * self.kind[1].itemsize)
    itemsize = property(lambda self: self.kind[1].itemsize)
    flags = property(lambda self: self.outline.flags)

    @property
    def outline(self) -> np.ndarray:
        """A NumPy array over the device's addresses: it must not be read."""
        if self._outline is None:
            shape, dtype, strides = self.kind
            memory = np.asarray(self.owner)
            place = self.address - address_of(memory)
            self._outline = np.ndarray(shape, dtype, memory, place, strides)
        return self._outline

    def seen(self, outline: np.ndarray) -> DeviceArray:
        """Another look at the same memory."""
        kind = outline.shape, outline.dtype, outline.strides
        whole = outline.flags.c_contiguous
        made = DeviceArray(self.owner, address_of(outline), kind, whole, self.pool)
        made._outline = outline
        return made

    def copy(self) -> DeviceArray:
        """The same elements with the same strides, in memory of their own."""
        first, last = np.lib.array_utils.byte_bounds(self.outline)
        made = self.pool.empty((last - first,), np.uint8)
        if self.size:
            self.pool.runtime.copy(made.address, first, last - first)
        place = made.address + self.address - first
        return DeviceArray(made.owner, place, self.kind, self.contiguous, self.pool)

    def __len__(self) -> int:
        return len(self.outline)

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"<{self.dtype}[{sizes}] on {self.pool.runtime.name}>"


class Whole(NamedTuple):
    """Arrays that are in memory row by row: their kind, and the memory they need."""

    kind: Kind
    nbytes: int
    size: int  # of a block


@functools.lru_cache(maxsize=1 << 12)
def whole(shape: tuple[int, ...], dtype: Any) -> Whole:
    """The arrays of a shape and a dtype that are in memory row by row."""
    shape, dtype = tuple(map(int, shape)), np.dtype(dtype)
    steps = [dtype.itemsize]
    for n in shape[:0:-1]:
        steps.append(steps[-1] * max(n, 1))
    strides = tuple(steps[: len(shape)][::-1])
    nbytes = math.prod(shape) * dtype.itemsize
    return Whole((shape, dtype, strides), nbytes, rounded(nbytes))


class Pool:
    """A device's memory, in blocks that are kept for later ones of their size.

    Work runs in one queue, so a block may be used again as soon as nobody refers to it:
    what still reads it in the queue comes first.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.lock = threading.RLock()  # a collection may give a block back anywhere
        self.free: dict[int, list[int]] = {}
        self.sizes: list[int] = []  # of the lists of free blocks, sorted
        self.large: dict[int, Any] = {}  # blocks in use that an error may name
        self.allocated = self.reserved = 0
        self.peak_allocated = self.peak_reserved = 0
        self.limit: int | None = None
        self.words: list[np.ndarray] = []  # of the host, that nobody uses

    # -- arrays

    def empty(self, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """A new array, whose elements are not set."""
        return self.made(whole(tuple(shape), dtype))

    def made(self, one: Whole) -> DeviceArray:
        """A new array that is in memory row by row; its elements are not set."""
        block = self.block(one.nbytes, one.size)
        return DeviceArray(block, block.address, one.kind, True, self)

    def from_host(self, array: Any) -> DeviceArray:
        """A copy of a host array on the device."""
        array = np.asarray(array)
        made = self.empty(array.shape, array.dtype)
        if array.size:
            self.runtime.upload(made.address, np.ascontiguousarray(array))
        return made

    def to_host(self, array: DeviceArray) -> np.ndarray:
        """A copy of a contiguous array in host memory."""
        made = np.empty(array.shape, array.dtype)
        if made.size:
            self.runtime.download(made, array.address)
        return made

    def over(self, interface: dict[str, Any], owner: Any) -> DeviceArray:
        """An array over memory that another library has allocated.

        ``interface`` is its ``__cuda_array_interface__``; ``owner`` is kept alive.
        """
        shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
        strides = interface.get("strides")
        size = int(np.prod(shape)) * dtype.itemsize
        if strides is not None and size:
            pairs = zip(shape, strides, strict=True)
            size = dtype.itemsize + sum((n - 1) * step for n, step in pairs)
        start = interface["data"][0]
        memory = _Foreign(start, max(size, 1), owner)
        outline = np.ndarray(shape, dtype, np.asarray(memory), strides=strides)
        kind = outline.shape, outline.dtype, outline.strides
        return DeviceArray(memory, start, kind, outline.flags.c_contiguous, self)

    # -- blocks

    def block(self, nbytes: int, size: int) -> Block:
        """Memory of at least so many bytes; ``size`` is that number ``rounded``."""
        with self.lock:
            blocks = self.free.get(size)
            if blocks:
                address = blocks.pop()
            else:
                size, address = self._kept(size) or (size, self._new(size, nbytes))
            self.allocated = used = self.allocated + size
            if used > self.peak_allocated:
                self.peak_allocated = used
            if size >= LISTED:
                frame = user_frame()
                where = (frame.f_code, frame.f_lasti) if frame else (None, 0)
                self.large[address] = nbytes, where
            return Block(self, address, size)

    def _kept(self, size: int) -> tuple[int, int] | None:
        """A free block that is slightly larger than a size."""
        for at in range(bisect.bisect_left(self.sizes, size), len(self.sizes)):
            found = self.sizes[at]
            if found > size + size // 4:
                break
            if self.free[found]:
                return found, self.free[found].pop()
        return None

    def _new(self, size: int, nbytes: int) -> int:
        if self.limit is not None and self.reserved + size > self.limit:
            self.release()
        over = self.limit is not None and self.reserved + size > self.limit
        try:
            if over:
                raise MemoryError
            address = self.runtime.allocate(size)
        except MemoryError:
            self.release()
            try:
                if over:
                    raise
                address = self.runtime.allocate(size)
            except MemoryError:
                raise self._short(nbytes) from None
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return address

    def take_back(self, block: Block) -> None:
        """Keep a block that nobody refers to for later."""
        size = block.size
        with self.lock:
            self.allocated -= size
            if size >= LISTED:
                self.large.pop(block.address, None)
            blocks = self.free.get(size)
            if blocks is None:
                blocks = self.free[size] = []
                bisect.insort(self.sizes, size)
            blocks.append(block.address)

    def release(self) -> None:
        """Give all memory that nobody uses back to the device."""
        with self.lock:
            for size, blocks in self.free.items():
                for address in blocks:
                    self.runtime.free(address)
                    self.reserved -= size
            self.free, self.sizes = {}, []

    def _short(self, nbytes: int) -> AllocationError:
        largest = sorted(self.large.values(), key=lambda one: -one[0])[:3]
        held = "; ".join(
            f"{_megabytes(n)} made at {describe_line(*at)}" for n, at in largest
        )
        return AllocationError(
            f"{self.runtime.name}: expected {_megabytes(nbytes)} of free memory, but "
            f"{_megabytes(self.allocated)} are in use"
            + (f". The largest holders: {held}" if held else "")
            + ". Use smaller batches, half precision or checkpoints, or delete tensors"
        )


def rounded(nbytes: int) -> int:
    """The size of the blocks that serve so many bytes.

    >>> from weft.runtime.device_memory import rounded
    >>> rounded(1), rounded(5000), rounded(1 << 20)
    (512, 5120, 1048576)
    """
    nbytes = max(nbytes, 1)
    power = 1 << (nbytes - 1).bit_length()
    return round_up(nbytes, max(power // 2 // STEPS, SMALLEST))


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
