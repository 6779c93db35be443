"""Switches that change what Weft computes, and how.

>>> weft.config.strict_ieee
False
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


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
    """

    __slots__ = ("batch_invariant", "eager_kernels", "strict_ieee")

    def __init__(self) -> None:
        self.strict_ieee = False
        self.batch_invariant = os.environ.get("WEFT_BATCH_INVARIANT", "0") == "1"
        self.eager_kernels = os.environ.get("WEFT_EAGER_KERNELS", "1") != "0"

    @contextlib.contextmanager
    def using(self, **settings: bool) -> Iterator[None]:
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
