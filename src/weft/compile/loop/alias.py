"""Proofs that a kernel's result may take the place of a value that it reads.

    for i < n: y[i] = x[i] * 2        y may share x's memory
    for i < n: y[i] = x[n-1-i]        it may not

It may where every element is read for the last time before, or when, the element at
its position is written. That is proven, or the answer is no:

    the buffer is written by one statement, which never writes a position twice;
    every use of the other comes before it, or is part of it, and is at the same flat
    position of the same loops: of those that both are inside of, or of loops alike.

So an iteration reads only positions that no other one writes, and this holds for
vectors of iterations and for threads too.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from weft.compile.loop.depend import Access, accesses, alike, chosen, once
from weft.compile.loop.ir import Buffer, For, Kernel, Load, Store
from weft.core.size import same, same_shape
from weft.graph.ir import GraphError


def may_share(kernel: Kernel, given: str, made: str) -> bool:
    """Whether buffer ``made`` may be written in the memory of ``given``.

    >>> from weft.compile.loop import Buffer, For, Kernel, Load, Store
    >>> from weft.core.size import Scope
    >>> scope = Scope()
    >>> i = scope.symbol("i")
    >>> x, y = (Buffer(name, (8,), weft.float32) for name in "xy")
    >>> body = [For("i", 8, [Store(y, (i,), Load(x, (i,)))])]
    >>> may_share(Kernel("copy", (x, y), (), (), body, scope), "x", "y")
    True
    >>> body = [For("i", 8, [Store(y, (i,), Load(x, (7 - i,)))])]
    >>> may_share(Kernel("flip", (x, y), (), (), body, scope), "x", "y")
    False
    """
    return Uses(kernel).may_share(given, made)


def without_copy(kernel: Kernel, given: str, made: str) -> list[Any] | None:
    """The body of a kernel that first copies one buffer into another, without that.

    None if the kernel does anything else with the first buffer: else the second may
    share its memory. What is copied to where it lies would stay as it is; what is not
    copied is written later, as a kernel writes all of its results.
    """
    if len(kernel.body) < 2:
        return None
    first, *rest = kernel.body
    while isinstance(first, For) and len(first.body) == 1:
        (first,) = first.body
    mine, other = (_buffer(kernel, name) for name in (made, given))
    if not isinstance(first, Store) or not isinstance(first.value, Load):
        return None
    alike = mine.dtype is other.dtype and same_shape(mine.shape, other.shape)
    if not alike or not same_shape(first.at, first.value.at):
        return None
    if (first.buffer.name, first.value.buffer.name) != (made, given):
        return None
    uses = accesses(rest, dict(kernel.parallel))
    return None if any(name == given for name, _, _ in uses) else rest


class Uses:
    """The accesses of a kernel to its buffers, found once for all pairs of them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.accesses: dict[str, list[Access]] = {}
        self.stores: dict[str, list[Access]] = {}
        for name, access, writes in accesses(kernel.body, dict(kernel.parallel)):
            self.accesses.setdefault(name, []).append(access)
            if writes:
                self.stores.setdefault(name, []).append(access)

    @cached_property
    def chosen(self) -> set[str]:
        return chosen(self.kernel.body)

    def may_share(self, given: str, made: str) -> bool:
        """Whether buffer ``made`` may be written in the memory of ``given``."""
        mine, other = (_buffer(self.kernel, name) for name in (made, given))
        if given == made or not _alike(mine, other):
            return False
        if given not in self.accesses:
            return True  # what is not written is left as it is
        stores = self.stores.get(made, [])
        if len(stores) != 1 or not self._once(made):
            return False
        return all(
            _before(access, stores[0]) for access in self.accesses.get(given, ())
        )

    def _once(self, made: str) -> bool:
        """Whether no position of a buffer is written twice."""
        (store,) = self.stores[made]
        return once(store.flat, store.loops, self.chosen)


def _buffer(kernel: Kernel, name: str) -> Buffer:
    for buffer in kernel.buffers:
        if buffer.name == name:
            return buffer
    names = ", ".join(b.name for b in kernel.buffers)
    raise GraphError(f"{kernel.name}: expected a buffer among {names}, got {name!r}")


def _alike(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers take the same memory."""
    count = same(math.prod(a.shape), math.prod(b.shape))
    return count and a.dtype.itemsize == b.dtype.itemsize


def _before(use: Access, store: Access) -> bool:
    """Whether a use reads only what the store's own iteration replaces."""
    return use.order <= store.order and alike(use, store)
