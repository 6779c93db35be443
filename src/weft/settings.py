"""PyTorch's switches for how results are computed.

Weft's results do not depend on them: operators are deterministic, and products of
float32 matrices are computed in float32. The switches keep what they are told, for
programs that ask.
"""

from __future__ import annotations

import math
from typing import Any

from weft.core.record import Record
from weft.core.size import Size, larger, smaller
from weft.errors import ArgumentError


class _Switches(Record):
    deterministic: bool = False
    warn_only: bool = False
    warn_always: bool = False
    precision: str = "highest"
    interop_threads: int = 1


_SWITCHES = _Switches()
_MODES = {"default": 0, "warn": 1, "error": 2}


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for deterministic operators, which they are in any case.

    >>> weft.use_deterministic_algorithms(True)
    >>> weft.are_deterministic_algorithms_enabled()
    True
    >>> weft.use_deterministic_algorithms(False)
    """
    _SWITCHES.deterministic = bool(mode)
    _SWITCHES.warn_only = bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether deterministic operators were asked for.

    >>> weft.are_deterministic_algorithms_enabled()
    False
    """
    return _SWITCHES.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether operators that are not deterministic were to warn; there are none."""
    return _SWITCHES.warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """``use_deterministic_algorithms`` by a number or a name.

    >>> weft.set_deterministic_debug_mode("error")
    >>> weft.get_deterministic_debug_mode()
    2
    >>> weft.set_deterministic_debug_mode(0)
    """
    number = _MODES.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if number not in (0, 1, 2):
        raise ArgumentError(
            "set_deterministic_debug_mode: expected 'default', 'warn', 'error', 0, 1 "
            f"or 2, got {debug_mode!r}"
        )
    use_deterministic_algorithms(number > 0, warn_only=number == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 (warn) or 2 (error), as was asked for.

    >>> weft.get_deterministic_debug_mode()
    0
    """
    if not _SWITCHES.deterministic:
        return 0
    return 1 if _SWITCHES.warn_only else 2


def set_float32_matmul_precision(precision: str) -> None:
    """Permit less precise products of float32 matrices; they are precise in any case.

    >>> weft.set_float32_matmul_precision("high")
    >>> weft.get_float32_matmul_precision()
    'high'
    >>> weft.set_float32_matmul_precision("highest")
    """
    if precision not in ("highest", "high", "medium"):
        raise ArgumentError(
            "set_float32_matmul_precision: expected 'highest', 'high' or 'medium', got "
            f"{precision!r}"
        )
    _SWITCHES.precision = precision


def get_float32_matmul_precision() -> str:
    """The precision that ``set_float32_matmul_precision`` was told.

    >>> weft.get_float32_matmul_precision()
    'highest'
    """
    return _SWITCHES.precision


def set_warn_always(b: bool, /) -> None:
    """Ask for warnings each time instead of once; Python's filters decide here."""
    _SWITCHES.warn_always = bool(b)


def is_warn_always_enabled() -> bool:
    """What ``set_warn_always`` was told."""
    return _SWITCHES.warn_always


def set_num_interop_threads(n: int, /) -> None:
    """The number of operators at a time; they run one after the other here."""
    if not isinstance(n, int) or n < 1:
        raise ArgumentError(f"set_num_interop_threads: expected n above 0, got {n!r}")
    _SWITCHES.interop_threads = n


def get_num_interop_threads() -> int:
    """What ``set_num_interop_threads`` was told."""
    return _SWITCHES.interop_threads


def set_flush_denormal(mode: bool, /) -> bool:
    """Whether tiny numbers were set to become 0: they never do, so False.

    >>> weft.set_flush_denormal(True)
    False
    """
    return False


# -- sizes that may be symbolic


def sym_int(a: Any, /) -> Any:
    """A whole number of a number or a size, towards zero.

    >>> weft.sym_int(2.7)
    2
    """
    return a if isinstance(a, Size) else int(a)


def sym_float(a: Any, /) -> Any:
    """A float of a number; a symbolic size stays one."""
    return a if isinstance(a, Size) else float(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two numbers or sizes.

    >>> weft.sym_max(2, 3)
    3
    """
    return larger(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two numbers or sizes."""
    return smaller(a, b)


def sym_not(a: Any, /) -> bool:
    """The opposite of a truth value."""
    return not a


def sym_ite(b: Any, t: Any, f: Any, /) -> Any:
    """One of two values."""
    return t if b else f


def sym_sqrt(a: Any, /) -> float:
    """The root of a number."""
    return math.sqrt(a)


def sym_sum(args: Any, /) -> Any:
    """The sum of numbers and sizes.

    >>> weft.sym_sum([1, 2])
    3
    """
    return sum(args)
