"""The hook that counts memory, where ``weft.memory`` puts its ledger.

A ledger is told before an operator runs (``expect``) and of the arrays that were
made (``note``). Without one, that costs a look at ``ledger``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ledger: Any = None


def noted(array: np.ndarray, name: str) -> np.ndarray:
    """The array, counted under a name if somebody counts."""
    if ledger is not None:
        ledger.note(array, name)
    return array


def allow(name: str, nbytes: int) -> None:
    """Refuse bytes that the limit does not leave, if there is one."""
    if ledger is not None:
        ledger.allow(name, nbytes)


def owner(array: np.ndarray) -> np.ndarray:
    """The array that holds another one's memory."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array
