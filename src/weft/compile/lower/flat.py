"""Groups in which nothing is reduced: one store for each index of the shape."""

from __future__ import annotations

import functools
from typing import Any

from weft.compile.loop.ir import For, Kernel, Store
from weft.compile.lower.base import Lowering


class FlatLoops(Lowering):
    """Nothing is reduced."""

    def loops(self) -> Kernel:
        group = self.group
        memo: dict[Any, Any] = {}
        body: list[Any] = [
            Store(self.buffer(n), group.home[n], self.value(n, 0, memo))
            for n in group.nodes
            if n in self.stored
        ]
        body = self.with_lets(body)
        sizes = self._sizes(group.shape)
        for d in reversed(range(len(sizes))):
            body = [For(f"i{d}", sizes[d], body)]
        schedule = functools.partial(self.target.flat_schedule, loops=self.cuts)
        return self._made((), body, schedule)
