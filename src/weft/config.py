"""Switches that change what Weft computes, and how.

>>> weft.config.strict_ieee
False
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

_NO_LIMIT = (1 << 63) - 1


class Config:
    """The process's settings, as attributes of ``weft.config``.

    ``strict_ieee``: zero times infinity in a derivative is NaN, as IEEE 754 has
    it, instead of the zero that an element without influence contributes.

    ``eager_kernels``: large work in eager mode is done by kernels of the compiler's
    (see ``weft.core.eager_kernels``). On unless the environment has
    ``WEFT_EAGER_KERNELS=0``.

    ``batch_invariant``: a row of a batch gets the same bits whatever the size of the
    batch is and whatever the other rows hold. Products, convolutions and attention have
    kernels for it, whatever ``eager_kernels`` says. Off unless the environment has
    ``WEFT_BATCH_INVARIANT=1``; see ``docs/training.md`` for what it costs.

    ``matmul_precision``: the least precision of float32 products, by the words of
    ``weft.set_float32_matmul_precision``. GPUs round their operands to TF32 where it is
    not ``"highest"``, as it is at first.

    ``loop_limit``: the number of steps after which ``while_loop`` raises an error, in
    every mode; None, as at first, for no limit. Ctrl-C ends a loop in any case.
    """

    __slots__ = (
        "batch_invariant", "eager_kernels", "loop_limit_word", "matmul_precision",
        "strict_ieee",
    )  # fmt: skip

    def __init__(self) -> None:
        self.strict_ieee = False
        self.matmul_precision = "highest"
        self.batch_invariant = os.environ.get("WEFT_BATCH_INVARIANT", "0") == "1"
        self.eager_kernels = os.environ.get("WEFT_EAGER_KERNELS", "1") != "0"
        self.loop_limit_word = np.array([_NO_LIMIT])  # native code reads it

    @property
    def loop_limit(self) -> int | None:
        limit = int(self.loop_limit_word[0])
        return None if limit == _NO_LIMIT else limit

    @loop_limit.setter
    def loop_limit(self, limit: int | None) -> None:
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int)
        ):
            raise TypeError(f"loop_limit: expected an int or None, got {limit!r}")
        if limit is not None and limit < 0:
            raise ValueError(f"loop_limit: expected at least 0, got {limit}")
        self.loop_limit_word[0] = _NO_LIMIT if limit is None else limit

    @contextlib.contextmanager
    def using(self, **settings: Any) -> Iterator[None]:
        """Change some settings for a block, in all threads.

        >>> with weft.config.using(strict_ieee=True):
        ...     weft.config.strict_ieee
        True
        >>> weft.config.strict_ieee
        False
        """
        before = {name: getattr(self, name) for name in settings}
        try:
            for name, value in settings.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)


config = Config()
