"""``weft.random``: the state of the random numbers, under PyTorch's names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from weft.ops.random import (
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = [
    "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed",
    "seed", "set_rng_state",
]  # fmt: skip


@contextlib.contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """Leave the random numbers' state, after the block, as it was before.

    There is one state for all devices.

    >>> _ = weft.manual_seed(0)
    >>> with weft.random.fork_rng():
    ...     a = weft.rand(2)
    >>> weft.equal(a, weft.rand(2))
    True
    """
    before = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(before)
