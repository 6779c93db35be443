"""Memory of a device: arrays over its addresses, and blocks that are used again.

A ``DeviceArray`` has a shape, strides and a dtype, over memory that this process cannot
read. Its outline is a NumPy array at the device's address, so that views are what they
are in NumPy; nothing but its shape, strides and address may be asked of it.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.errors import AllocationError, describe_line, user_frame
from weft.runtime import Runtime
from weft.runtime.cpu.address import address as address_of
from weft.runtime.cpu.address import round_up

SMALLEST = 512  # bytes of a block: addresses are multiples of it
LISTED = 1 << 20  # bytes of a block that an error may name
STEPS = 8  # sizes between one power of two and the next: at most an eighth is wasted


class Block:
    """Memory that goes back to its pool with the last array over it."""

    __slots__ = ("__weakref__", "address", "nbytes", "pool", "size")

    def __init__(self, pool: Pool, address: int, size: int, nbytes: int) -> None:
        self.pool, self.address = pool, address
        self.size, self.nbytes = size, nbytes

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


class _Foreign:
    """Another library's memory, which lives as long as this."""

    def __init__(self, address: int, size: int, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


class DeviceArray:
    """An array in a device's memory.

    ``outline`` is a NumPy array over the device's addresses: it must not be read.
    """

    __slots__ = ("_kind", "outline", "pool")

    def __init__(self, outline: np.ndarray, pool: Pool) -> None:
        self.outline, self.pool = outline, pool
        self._kind: Any = None

    @property
    def kind(self) -> Any:
        """The shape, dtype and strides, as a key."""
        if self._kind is None:
            one = self.outline
            self._kind = one.shape, one.dtype, one.strides
        return self._kind

    shape = property(lambda self: self.outline.shape)
    ndim = property(lambda self: self.outline.ndim)
    dtype = property(lambda self: self.outline.dtype)
    size = property(lambda self: self.outline.size)
    nbytes = property(lambda self: self.outline.nbytes)
    itemsize = property(lambda self: self.outline.itemsize)
    strides = property(lambda self: self.outline.strides)
    flags = property(lambda self: self.outline.flags)

    @property
    def address(self) -> int:
        """The device's address of the first element."""
        return address_of(self.outline)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are in memory row by row, without gaps."""
        return self.outline.flags.c_contiguous

    def seen(self, outline: np.ndarray) -> DeviceArray:
        """Another look at the same memory."""
        return DeviceArray(outline, self.pool)

    def copy(self) -> DeviceArray:
        """The same elements with the same strides, in memory of their own."""
        first, last = np.lib.array_utils.byte_bounds(self.outline)
        made = self.pool.empty((last - first,), np.uint8)
        if self.size:
            self.pool.runtime.copy(made.address, first, last - first)
        place = self.address - first
        return self.seen(
            np.ndarray(self.shape, self.dtype, made.outline, place, self.strides)
        )

    def __len__(self) -> int:
        return len(self.outline)

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"<{self.dtype}[{sizes}] on {self.pool.runtime.name}>"


class Pool:
    """A device's memory, in blocks that are kept for later ones of their size.

    Work runs in one queue, so a block may be used again as soon as nobody refers to it:
    what still reads it in the queue comes first.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.lock = threading.RLock()  # a collection may give a block back anywhere
        self.free: dict[int, list[int]] = {}
        self.sizes: list[int] = []  # of free blocks, sorted
        self.large: dict[int, Any] = {}  # blocks in use that an error may name
        self.allocated = self.reserved = 0
        self.peak_allocated = self.peak_reserved = 0
        self.limit: int | None = None

    # -- arrays

    def empty(self, shape: Sequence[int], dtype: Any) -> DeviceArray:
        """A new array, whose elements are not set."""
        dtype = np.dtype(dtype)
        count = 1
        for n in shape:
            count *= n
        block = self.block(count * dtype.itemsize)
        outline = np.ndarray(tuple(shape), dtype, np.asarray(block))
        return DeviceArray(outline, self)

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
        memory = np.asarray(_Foreign(start, max(size, 1), owner))
        outline = np.ndarray(shape, dtype, memory, strides=strides)
        return DeviceArray(outline, self)

    # -- blocks

    def block(self, nbytes: int) -> Block:
        """Memory of at least so many bytes."""
        size = rounded(nbytes)
        with self.lock:
            kept = self._kept(size)
            size, address = kept or (size, self._new(size, nbytes))
            self.allocated += size
            self.peak_allocated = max(self.peak_allocated, self.allocated)
            block = Block(self, address, size, nbytes)
            if size >= LISTED:
                frame = user_frame()
                where = (frame.f_code, frame.f_lasti) if frame else (None, 0)
                self.large[address] = nbytes, where
        return block

    def _kept(self, size: int) -> tuple[int, int] | None:
        """A free block of a size, or of a slightly larger one."""
        at = bisect.bisect_left(self.sizes, size)
        if at == len(self.sizes) or self.sizes[at] > size + size // 4:
            return None
        found = self.sizes[at]
        blocks = self.free[found]
        address = blocks.pop()
        if not blocks:
            del self.free[found], self.sizes[at]
        return found, address

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
        with self.lock:
            self.allocated -= block.size
            self.large.pop(block.address, None)
            if block.size not in self.free:
                bisect.insort(self.sizes, block.size)
            self.free.setdefault(block.size, []).append(block.address)

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
