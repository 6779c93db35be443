"""Messages of a program, through Python's logger ``weft.static``."""

from __future__ import annotations

import logging as _logging
from logging import DEBUG, ERROR, FATAL, INFO, WARN
from typing import Any

__all__ = [
    "DEBUG", "ERROR", "FATAL", "INFO", "WARN", "debug", "error", "fatal",
    "get_verbosity", "info", "log", "set_verbosity", "warn", "warning",
]  # fmt: skip

_logger = _logging.getLogger("weft.static")
debug, info, warning, warn = (
    _logger.debug,
    _logger.info,
    _logger.warning,
    _logger.warning,
)
error, fatal, log = _logger.error, _logger.critical, _logger.log


def set_verbosity(v: Any) -> None:
    """Let only messages of a level and above be told.

    >>> weft.static.logging.set_verbosity(weft.static.logging.ERROR)
    >>> weft.static.logging.get_verbosity() == weft.static.logging.ERROR
    True
    >>> weft.static.logging.set_verbosity(weft.static.logging.WARN)
    """
    _logger.setLevel(v)


def get_verbosity() -> int:
    """The level of messages that are told.

    >>> weft.static.logging.get_verbosity() > 0
    True
    """
    return _logger.getEffectiveLevel()


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("logging", name)
