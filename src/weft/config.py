"""Switches that change what Weft computes; each is off unless set.

>>> weft.config.strict_ieee
False
"""

from __future__ import annotations


class Config:
    """The process's settings, as attributes of ``weft.config``.

    ``strict_ieee``: zero times infinity in a derivative is NaN, as IEEE 754 has
    it, instead of the zero that an element without influence contributes.
    """

    __slots__ = ("strict_ieee",)

    def __init__(self) -> None:
        self.strict_ieee = False


config = Config()
