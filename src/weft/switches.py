"""Global switches under PyTorch's names.

Weft is deterministic and computes float32 products in full precision, so most of them
are kept and given back, and have nothing to change.
"""

from __future__ import annotations

import warnings
from typing import Any

from weft.config import config
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError

_PRECISIONS = ("highest", "high", "medium")
_state: dict[str, Any] = {
    "deterministic": False, "warn_only": False,
    "interop": 1, "warn_always": False,
}  # fmt: skip


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise DTypeError(f"{name}: expected a bool, got {type(value).__name__}")
    return value


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for deterministic algorithms: all of Weft's are.

    >>> weft.use_deterministic_algorithms(True)
    >>> weft.are_deterministic_algorithms_enabled()
    True
    >>> weft.use_deterministic_algorithms(False)
    """
    _state["deterministic"] = _truth("use_deterministic_algorithms", mode)
    _state["warn_only"] = bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether ``use_deterministic_algorithms`` was asked for.

    >>> weft.are_deterministic_algorithms_enabled()
    False
    """
    return bool(_state["deterministic"])


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it was asked for with ``warn_only``.

    >>> weft.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return bool(_state["warn_only"])


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """``use_deterministic_algorithms`` by number or word: default, warn, error.

    >>> weft.set_deterministic_debug_mode("default")
    """
    words = {"default": 0, "warn": 1, "error": 2}
    level = words.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if level not in (0, 1, 2):
        raise ArgumentError(
            "set_deterministic_debug_mode: expected 0, 1, 2, 'default', 'warn' or "
            f"'error', got {debug_mode!r}"
        )
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """The number that ``set_deterministic_debug_mode`` was given.

    >>> weft.get_deterministic_debug_mode()
    0
    """
    return _state["deterministic"] * (1 if _state["warn_only"] else 2)


def set_float32_matmul_precision(precision: str) -> None:
    """The least precision of float32 products.

    On GPUs, products with ``"high"`` or ``"medium"`` round their operands to TF32, which
    has the range of float32 and 10 bits of fraction. CPUs compute in full float32.

    >>> weft.set_float32_matmul_precision("high")
    >>> weft.get_float32_matmul_precision()
    'high'
    >>> weft.set_float32_matmul_precision("highest")
    """
    if not isinstance(precision, str):
        raise DTypeError(
            "set_float32_matmul_precision: expected a str, got "
            f"{type(precision).__name__}"
        )
    if precision not in _PRECISIONS:
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current "
            "precision is unchanged",
            stacklevel=2,
        )
        return
    config.matmul_precision = precision


def get_float32_matmul_precision() -> str:
    """The word that ``set_float32_matmul_precision`` was given.

    >>> weft.get_float32_matmul_precision()
    'highest'
    """
    return config.matmul_precision


def set_num_interop_threads(num: int) -> None:
    """Take a number of threads between operators; Weft has only those inside of them.

    >>> weft.set_num_interop_threads(1)
    """
    if not isinstance(num, int) or num < 1:
        raise ArgumentError(
            f"set_num_interop_threads: expected a positive int, got {num!r}"
        )
    _state["interop"] = num


def get_num_interop_threads() -> int:
    """The number that ``set_num_interop_threads`` was given.

    >>> weft.get_num_interop_threads()
    1
    """
    return int(_state["interop"])


def set_flush_denormal(mode: bool) -> bool:
    """Flush numbers below the normal range to zero: refused, as False says.

    >>> weft.set_flush_denormal(True)
    False
    """
    return not _truth("set_flush_denormal", mode)


def set_warn_always(b: bool) -> None:
    """Repeat warnings that PyTorch gives once; Weft leaves that to ``warnings``.

    >>> weft.set_warn_always(False)
    """
    _state["warn_always"] = _truth("set_warn_always", b)


def is_warn_always_enabled() -> bool:
    """Whether ``set_warn_always`` was asked for.

    >>> weft.is_warn_always_enabled()
    False
    """
    return bool(_state["warn_always"])


def _assert(condition: Any, message: str) -> Any:
    """``assert`` as a function, which a traced program can contain.

    >>> weft._assert(True, "never said")
    """
    taken_over = getattr(type(condition), "__torch_function__", None)
    if taken_over is not None and not isinstance(condition, Tensor):
        return taken_over(_assert, (type(condition),), (condition, message), {})
    assert condition, message
