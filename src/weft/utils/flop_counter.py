"""``weft.utils.flop_counter``: count a block's arithmetic, module by module.

Products, convolutions and attention count, forward and backward: operators whose
records say how many operations they need (``Facts.flops``). Element-wise work does not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from weft.core.dispatch import type_of
from weft.core.mode import observe
from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.errors import module_stack
from weft.nn.module import Module

__all__ = ["FlopCounterMode"]


class FlopCounterMode:
    """A block in which operations are counted.

    >>> with weft.utils.flop_counter.FlopCounterMode(display=False) as counter:
    ...     y = weft.ones(2, 3) @ weft.ones(3, 4)
    >>> counter.get_total_flops()
    48
    """

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True,
        custom_mapping: Any = None,
    ) -> None:  # fmt: skip
        if custom_mapping:
            raise NotImplementedError(
                "FlopCounterMode: custom_mapping names operators of PyTorch's "
                "dispatcher; Weft counts by its operators' records"
            )
        self.depth, self.display = depth, display
        roots = [mods] if isinstance(mods, Module) else list(mods or ())
        self._paths = {
            module: f"{type(root).__name__}.{path}".rstrip(".")
            for root in roots
            for path, module in root.named_modules()
        }
        self.flop_counts: dict[str, dict[str, int]] = {}

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self._watch = observe(self._count)
        self._watch.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._watch.__exit__(*error)  # type: ignore[arg-type]
        if self.display:
            print(self.get_table(self.depth))

    def _count(self, op: Op, args: Any, params: Any, out: Any) -> None:
        if op.facts.flops is None or op.facts.cost == 0:
            return
        first = out[0] if isinstance(out, tuple) else out
        shapes = [tuple(type_of(a).shape) for a in args if isinstance(a, Tensor)]
        done = math.prod(op.facts.flops(tuple(first.shape), *shapes))
        places = {"Global"}
        for module in module_stack():
            places.add(self._paths.get(module, type(module).__name__))
        for place in places:
            self.flop_counts[place][op.name] += done

    def get_total_flops(self) -> int:
        """The operations of the whole block."""
        return sum(self.flop_counts.get("Global", {}).values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """The operations by module and operator."""
        return {place: dict(counts) for place, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The same as text."""
        limit = self.depth if depth is None else depth
        rows = ["Module                          FLOP"]
        for place, counts in sorted(self.flop_counts.items()):
            if place.count(".") < limit:
                rows.append(f"{place:30}  {sum(counts.values()):,}")
        return "\n".join(rows)
