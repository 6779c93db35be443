"""Memory for a program's values, planned before it runs: one arena, fixed offsets.

    buffers = [Buffer("a", 4096, first=0, last=2), ...]     live from step to step
    layout = plan(buffers)                                  offsets, the arena's size
    arena = Arena(layout.nbytes)
    arena.view(layout.offsets["a"], (32, 32), np.float32)

Two buffers that are live in the same step never overlap; ``Plan.verify`` checks it
each time, by another method than the one that laid them out. A buffer that ``shares``
another's memory takes it over in the step that reads the one last and writes the
other, or later.
"""

from __future__ import annotations

import bisect
import math
import mmap
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.errors import AllocationError, ArgumentError
from weft.runtime import allocation, system
from weft.runtime.cpu.address import ALIGNMENT, round_up
from weft.runtime.cpu.buffers import physical_memory

_HUGE = 2 << 20  # from this size on, ask for huge pages

Key = Hashable


class Buffer(NamedTuple):
    """Memory that is needed from one step to another, both included."""

    id: Key
    nbytes: int
    first: int
    last: int
    alignment: int = ALIGNMENT
    shares: Key | None = None  # the buffer whose memory this one takes over


class Plan(NamedTuple):
    """The offset of each buffer in an arena of ``nbytes``."""

    buffers: tuple[Buffer, ...]
    offsets: dict[Key, int]
    nbytes: int
    bound: int  # the most bytes live in one step: no plan needs less

    @property
    def overhead(self) -> float:
        """The excess of the arena over its bound, as a fraction of the bound."""
        return self.nbytes / self.bound - 1 if self.bound else 0.0

    def verify(self) -> None:
        """Raise ArgumentError if buffers that are live together overlap."""
        live = _Live(self.offsets)
        for buffer in self.buffers:
            offset = self.offsets[buffer.id]
            if offset % buffer.alignment or not 0 <= offset <= self.nbytes:
                raise ArgumentError(
                    f"plan: buffer {buffer.id!r} is at {offset}, which is outside "
                    f"the arena or not aligned to {buffer.alignment}"
                )
            if offset != self.offsets.get(buffer.shares, offset):
                raise ArgumentError(
                    f"plan: buffer {buffer.id!r} is at {offset}, not where "
                    f"{buffer.shares!r} is, whose memory it shares"
                )
            if offset + buffer.nbytes > self.nbytes:
                raise ArgumentError(
                    f"plan: buffer {buffer.id!r} ends at {offset + buffer.nbytes}, "
                    f"after the arena's {self.nbytes} bytes"
                )
        for _, ends, _, buffer in sorted(_events(self.buffers), key=lambda e: e[:3]):
            live.leave(buffer) if ends else live.enter(buffer)


def _events(buffers: Iterable[Buffer]) -> Iterable[tuple[int, int, int, Buffer]]:
    """(step, begins or ends, index in the list, buffer); begins come first."""
    for k, buffer in enumerate(buffers):
        if buffer.nbytes:
            yield buffer.first, 0, k, buffer
            yield buffer.last, 1, k, buffer


class _Live:
    """The buffers that are live in a step, by offset: no two overlap."""

    def __init__(self, offsets: dict[Key, int]) -> None:
        self.offsets = offsets
        self.starts: list[int] = []
        self.buffers: list[Buffer] = []

    def enter(self, new: Buffer) -> None:
        start = self.offsets[new.id]
        at = bisect.bisect_left(self.starts, start)
        if at < len(self.starts) and self.starts[at] == start:
            old = self.buffers[at]
            if new.shares == old.id and _hands_over(old, new):
                self._remove(at)  # handed over
        for near in (at - 1, at):
            if 0 <= near < len(self.starts):
                self._check_apart(self.buffers[near], new)
        self.starts.insert(at, start)
        self.buffers.insert(at, new)

    def _check_apart(self, a: Buffer, b: Buffer) -> None:
        x, y = self.offsets[a.id], self.offsets[b.id]
        if x < y + b.nbytes and y < x + a.nbytes:
            raise ArgumentError(
                f"plan: buffers {a.id!r} ({a.nbytes} bytes at {x}) and {b.id!r} "
                f"({b.nbytes} bytes at {y}) overlap in step {max(a.first, b.first)}"
            )

    def leave(self, old: Buffer) -> None:
        at = bisect.bisect_left(self.starts, self.offsets[old.id])
        if at < len(self.starts) and self.buffers[at].id == old.id:
            self._remove(at)  # if not, it was handed over

    def _remove(self, at: int) -> None:
        del self.starts[at], self.buffers[at]


# -- blocks: buffers that share memory


class _Block(NamedTuple):
    nbytes: int  # a multiple of the alignment
    first: int
    last: int
    alignment: int
    members: tuple[Key, ...]


def _check(buffer: Buffer, known: dict[Key, Buffer]) -> None:
    if buffer.nbytes < 0 or buffer.first > buffer.last:
        raise ArgumentError(
            f"plan: expected a size and steps in order, got {buffer.nbytes} bytes from "
            f"step {buffer.first} to {buffer.last} for buffer {buffer.id!r}"
        )
    if buffer.alignment < 1 or buffer.alignment & (buffer.alignment - 1):
        raise ArgumentError(
            f"plan: expected an alignment that is a power of two, got "
            f"{buffer.alignment} for buffer {buffer.id!r}"
        )
    if buffer.id in known:
        raise ArgumentError(f"plan: two buffers are called {buffer.id!r}")


def _check_handover(old: Buffer | None, new: Buffer, taken: set[Key]) -> None:
    if old is None:
        raise ArgumentError(
            f"plan: buffer {new.id!r} shares {new.shares!r}, which does not come "
            "before it"
        )
    if not _hands_over(old, new) or old.id in taken:
        raise ArgumentError(
            f"plan: buffer {new.id!r} cannot take over {old.id!r} in step {new.first}: "
            "it is made there or still needed, or another buffer has taken it over"
        )


def _hands_over(old: Buffer, new: Buffer) -> bool:
    """Whether a buffer is made no earlier than another's last use, and later."""
    return old.last <= new.first and old.first < new.first


def _blocks(buffers: Sequence[Buffer]) -> list[_Block]:
    """Buffers in chains of sharing, each chain one block."""
    known: dict[Key, Buffer] = {}
    taken: set[Key] = set()
    chains: dict[Key, list[Buffer]] = {}
    for buffer in buffers:
        _check(buffer, known)
        known[buffer.id] = buffer
        if buffer.shares is None:
            chains[buffer.id] = [buffer]
            continue
        _check_handover(
            known.get(buffer.shares) if buffer.shares != buffer.id else None,
            buffer,
            taken,
        )
        taken.add(buffer.shares)
        chain = chains[buffer.id] = chains[buffer.shares]
        chain.append(buffer)
    unique = {id(chain): chain for chain in chains.values()}
    return [_block(chain) for chain in unique.values()]


def _block(chain: list[Buffer]) -> _Block:
    alignment = max(b.alignment for b in chain)
    return _Block(
        nbytes=round_up(max(b.nbytes for b in chain), max(alignment, ALIGNMENT)),
        first=min(b.first for b in chain),
        last=max(b.last for b in chain),
        alignment=alignment,
        members=tuple(b.id for b in chain),
    )


def _most_live(blocks: Iterable[_Block]) -> int:
    """The most bytes that are live in one step."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.nbytes
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.nbytes
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most


# -- placing


class _Placed:
    """Blocks that have an offset, in its order, as columns of numbers."""

    def __init__(self, size: int) -> None:
        self.table = np.empty((4, size), np.int64)  # start, end, first, last
        self.count = 0

    def gap_for(self, block: _Block) -> int:
        """The smallest gap between conflicting blocks that holds one more."""
        start, end, first, last = self.table[:, : self.count]
        met = np.flatnonzero((first <= block.last) & (last >= block.first))
        if not len(met):
            return 0
        # Gaps are after the furthest end so far and before the next start.
        after = np.maximum.accumulate(end[met])
        low = np.concatenate(([0], after))
        low += -low % block.alignment
        free = start[met] - low[:-1]
        fits = np.flatnonzero(free >= block.nbytes)
        if not len(fits):
            return int(low[-1])
        return int(low[fits[np.argmin(free[fits])]])

    def put(self, block: _Block, offset: int) -> None:
        n = self.count
        at = int(np.searchsorted(self.table[0, :n], offset))
        self.table[:, at + 1 : n + 1] = self.table[:, at:n].copy()
        self.table[:, at] = offset, offset + block.nbytes, block.first, block.last
        self.count = n + 1


Order = Callable[[_Block], Any]
# What is placed first: large blocks, or those that take much memory for long.
ORDERS: tuple[Order, ...] = (
    lambda b: (-b.nbytes, b.first - b.last, b.first),
    lambda b: (-b.nbytes * (b.last - b.first + 1), b.first),
    lambda b: (b.first - b.last, -b.nbytes, b.first),
)
_MANY = 4000  # blocks; from here on one order must do


def _place(blocks: list[_Block], order: Order) -> tuple[int, list[tuple[_Block, int]]]:
    placed = _Placed(len(blocks))
    layout, size = [], 0
    for block in sorted(blocks, key=order):
        offset = placed.gap_for(block)
        placed.put(block, offset)
        layout.append((block, offset))
        size = max(size, offset + block.nbytes)
    return size, layout


def plan(buffers: Iterable[Buffer]) -> Plan:
    """Offsets for buffers in one arena, as small as greedy placement gets it.

    >>> from weft.runtime.cpu.arena import Buffer, plan
    >>> steps = {"a": (0, 1), "b": (1, 2), "c": (2, 3)}
    >>> made = plan(Buffer(name, 64, *live) for name, live in steps.items())
    >>> made.offsets, made.nbytes
    ({'a': 0, 'b': 64, 'c': 0}, 128)
    """
    given = tuple(buffers)
    blocks = _blocks(given)
    bound = _most_live(blocks)
    solid = [block for block in blocks if block.nbytes]
    best: tuple[int, list[tuple[_Block, int]]] | None = None
    for order in ORDERS[: 1 if len(solid) > _MANY else None]:
        tried = _place(solid, order)
        if best is None or tried[0] < best[0]:
            best = tried
        if best[0] == bound:
            break
    assert best is not None
    offsets: dict[Key, int] = {buffer.id: 0 for buffer in given}
    for block, offset in best[1]:
        offsets.update(dict.fromkeys(block.members, offset))
    made = Plan(given, offsets, best[0], bound)
    made.verify()
    return made


# -- a graph's values

_OUTSIDE = {"input", "constant", "read"}  # they have memory of their own


def lifetimes(graph: Any) -> list[Buffer]:
    """The values that a graph computes, from their node to their last use.

    Every node is a step; outputs live to the end. Sizes must be numbers.

    >>> captured = weft.graph.capture(lambda x: (x + 1).exp().sum(), weft.ones(4))
    >>> [tuple(b[:4]) for b in weft.runtime.cpu.arena.lifetimes(captured.graph)]
    [('add', 16, 1, 2), ('exp', 16, 2, 3), ('sum', 4, 3, 4)]
    """
    last = {node: step for step, node in enumerate(graph.nodes)}
    for step, node in reversed(list(enumerate(graph.nodes))):
        for parent in node.parents:
            last[parent] = max(last[parent], last[node] if _is_pick(node) else step)
    for node in graph.outputs:
        for kept in (node, *node.parents) if _is_pick(node) else (node,):
            last[kept] = len(graph.nodes)
    buffers = []
    for step, node in enumerate(graph.nodes):
        if node.op.name not in _OUTSIDE and not _is_pick(node):
            for name, nbytes in _values(node):
                buffers.append(Buffer(name, nbytes, step, last[node]))
    return buffers


def _is_pick(node: Any) -> bool:
    """Whether a node only names one of another node's outputs."""
    return node.op.name in ("pick", "assign", "group")


def _values(node: Any) -> Iterable[tuple[str, int]]:
    """The names and sizes of what a node computes."""
    if hasattr(node.type, "dtype"):
        yield node.name, _nbytes(node.type)
        return
    for k, type in enumerate(node.type):
        yield f"{node.name}.{k}", _nbytes(type)


def _nbytes(type: Any) -> int:
    return math.prod(type.shape) * type.dtype.itemsize


# -- the memory itself


class Arena:
    """One aligned piece of memory, zero at first; views of it keep it alive.

    >>> arena = weft.runtime.cpu.arena.Arena(1024)
    >>> x = arena.view(256, (2, 3), np.float32)
    >>> x.ctypes.data - arena.address
    256
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = _allocate(nbytes)
        self.address = int(self.memory.ctypes.data)

    def view(self, offset: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """An array in the arena."""
        kind = np.dtype(dtype)
        nbytes = kind.itemsize
        for n in shape:
            nbytes *= n
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ArgumentError(
                f"arena: {nbytes} bytes at {offset} are not within {self.nbytes}"
            )
        return self.memory[offset : offset + nbytes].view(kind).reshape(shape)


def _allocate(nbytes: int) -> np.ndarray:
    if nbytes < 0:
        raise ArgumentError(f"arena: expected a size of at least 0, got {nbytes}")
    if nbytes > physical_memory():
        raise AllocationError(
            f"arena: {nbytes:,} bytes are needed; this machine has "
            f"{physical_memory():,}"
        )
    allocation.allow("arena", nbytes)
    try:
        return allocation.noted(_mapped(max(nbytes, 1))[:nbytes], "arena")
    except (OSError, MemoryError) as error:
        raise AllocationError(
            f"arena: the system refused {nbytes:,} bytes ({error})"
        ) from None


def _mapped(nbytes: int) -> np.ndarray:
    """Fresh pages of this process's own, huge ones where the system has them."""
    pages = system.fresh_pages(round_up(nbytes, mmap.PAGESIZE))
    if nbytes >= _HUGE:
        system.ask_for_huge_pages(pages)
    return np.frombuffer(pages, np.uint8)
