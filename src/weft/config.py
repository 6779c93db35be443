"""Switches that change what Weft computes, and how.

>>> weft.config.strict_ieee
False
"""

from __future__ import annotations

import os


class Config:
    """The process's settings, as attributes of ``weft.config``.

    ``strict_ieee``: zero times infinity in a derivative is NaN, as IEEE 754 has
    it, instead of the zero that an element without influence contributes.

    ``eager_kernels``: large work in eager mode is done by kernels of the compiler's,
    once there has been enough of it (see ``weft.core.bulk``). On unless the environment
    has ``WEFT_EAGER_KERNELS=0``.
    """

    __slots__ = ("eager_kernels", "strict_ieee")

    def __init__(self) -> None:
        self.strict_ieee = False
        self.eager_kernels = os.environ.get("WEFT_EAGER_KERNELS", "1") != "0"


config = Config()
