"""Arithmetic of numbers that may be symbolic sizes, under PyTorch's names."""

from __future__ import annotations

import math
from typing import Any

from weft.core.size import Size, larger, smaller


def sym_int(a: Any, /) -> Any:
    """A whole number of a number or a size, towards zero.

    >>> weft.sym_int(2.7)
    2
    """
    return a if isinstance(a, Size) else int(a)


def sym_float(a: Any, /) -> Any:
    """A float of a number; a symbolic size stays one.

    >>> weft.sym_float(2)
    2.0
    """
    return a if isinstance(a, Size) else float(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two numbers or sizes.

    >>> weft.sym_max(2, 3)
    3
    """
    return larger(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two numbers or sizes.

    >>> weft.sym_min(2, 3)
    2
    """
    return smaller(a, b)


def sym_not(a: Any, /) -> bool:
    """The opposite of a truth value.

    >>> weft.sym_not(True)
    False
    """
    return not a


def sym_ite(b: Any, t: Any, f: Any, /) -> Any:
    """One of two values.

    >>> weft.sym_ite(True, 1, 2)
    1
    """
    return t if b else f


def sym_sqrt(a: Any, /) -> float:
    """The root of a number.

    >>> weft.sym_sqrt(9)
    3.0
    """
    return math.sqrt(a)


def sym_sum(args: Any, /) -> Any:
    """The sum of numbers and sizes.

    >>> weft.sym_sum([1, 2])
    3
    """
    return sum(args)
