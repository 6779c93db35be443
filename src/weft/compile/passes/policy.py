"""Policies: how far a rule may go from the bits of eager execution.

EXACT     the same bits, whatever the inputs (a NaN may be another NaN)
ZEROS     the same numbers, but a zero may have the other sign     x + 0 = x
FINITE    the same for finite inputs, where they surely are        x * 0 = 0
ROUNDING  the same but for the last bits, where both are finite     x**3 = x * x * x

All of them are used unless ``weft.config.strict_ieee`` is set, which leaves the
exact ones. On integers and booleans every rule is exact.
"""

from __future__ import annotations

from enum import Enum

from weft.config import config
from weft.dtype import DType


class Policy(Enum):
    EXACT = "exact"
    ZEROS = "zeros"
    FINITE = "finite"
    ROUNDING = "rounding"

    def allows(self, dtype: DType) -> bool:
        """Whether a rule of this kind may be used on a dtype now."""
        return self is Policy.EXACT or not config.strict_ieee or not dtype.is_inexact
