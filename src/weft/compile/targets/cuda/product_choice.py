"""The choice among kernels of one product: by their times, measured once, kept on disk.

Candidates may add terms in different orders. A choice that is kept gives the same bits
in every later run on the same GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from weft.compile.program.compiler_version import sources
from weft.runtime.cpu import kernel_cache

REPEATS = 3  # of each candidate, in turns; the shortest time counts


class ProductChoices:
    """Chosen candidates by product, for one kind of GPU."""

    def __init__(self, runtime: Any, isa_key: str) -> None:
        self.runtime = runtime
        self.key = f"{isa_key} {runtime.title}"
        self.times: dict[str, dict[str, float]] = {}  # seconds of each candidate

    def of(self, product: str, candidates: Mapping[str, Callable[[], None]]) -> str:
        """The name of the candidate that is fastest; the first, where none is timed.

        Each may be run several times, and computes the same.
        """
        if len(candidates) == 1:
            return next(iter(candidates))
        times = self.times.get(product)
        if times is None:
            times = self._stored(product)
        if times is None or times.keys() != candidates.keys():
            if self.runtime.recording:
                return next(iter(candidates))
            times = self._measured(product, candidates)
        self.times[product] = times
        return min(times, key=times.__getitem__)

    def _stored(self, product: str) -> dict[str, float] | None:
        data = kernel_cache.default().find(self._place(product))
        try:
            found = json.loads(data) if data else None
        except ValueError:
            return None
        right = isinstance(found, dict) and all(
            isinstance(seconds, float) for seconds in found.values()
        )
        return found if right else None

    def _measured(
        self, product: str, candidates: Mapping[str, Callable[[], None]]
    ) -> dict[str, float]:
        for run in candidates.values():  # which loads its code
            run()
        rounds = [
            {name: self.runtime.seconds(run) for name, run in candidates.items()}
            for _ in range(REPEATS)
        ]
        times = {name: min(one[name] for one in rounds) for name in candidates}
        place = self._place(product)
        kernel_cache.default().put(place, json.dumps(times).encode())
        return times

    def _place(self, product: str) -> str:
        return kernel_cache.key_of(f"product {sources()} {product}", self.key)
