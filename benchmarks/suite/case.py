"""One piece of work, the same for every framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

Lib = Any  # one of ``libs``: its building blocks, and how it compiles and runs them


class Run(NamedTuple):
    """A case built in one framework.

    ``call`` does the work once. ``outputs`` turns what the compared calls returned
    into NumPy arrays; without it the results themselves are taken.
    """

    call: Callable[[], Any]
    outputs: Callable[[list[Any]], list[Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """What to build and what it costs at least.

    ``flops`` and ``moved`` (bytes) are counted by formula from the sizes: products and
    convolutions alone, and what must be read and written at least once. Results of the
    first ``calls`` calls may differ by ``tolerance`` times the largest number among
    them.
    """

    name: str
    build: Callable[[Lib], Run]
    flops: float = 0.0
    moved: float = 0.0
    tolerance: float = 1e-4
    calls: int = 1
    eager: bool = False  # whether Weft without compilation is measured too
    tinygrad: bool = False  # whether its blocks suffice, in reasonable time
    memory: bool = False  # whether peak memory is of interest
    launches: int = 1  # processes, one after the other: memory lies elsewhere in each
    series: tuple[str, float] | None = None  # (what grows, its size)
    only: tuple[str, ...] = ()  # frameworks that can do it; all without

    def runs_in(self, framework: str) -> bool:
        if self.only:
            return framework in self.only
        return {"weft-eager": self.eager, "tinygrad": self.tinygrad}.get(
            framework, True
        )
