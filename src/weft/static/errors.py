"""Errors under TensorFlow 1's names."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError, WeftError

__all__ = [
    "AlreadyExistsError", "CancelledError", "FailedPreconditionError",
    "InvalidArgumentError", "NotFoundError", "OpError", "OutOfRangeError",
]  # fmt: skip

OpError = WeftError
# A session refuses what it is given, and a variable without a value, with this one.
InvalidArgumentError = ArgumentError
FailedPreconditionError = ArgumentError


class OutOfRangeError(WeftError, EOFError):
    """The end of a data set or of a closed queue."""


class CancelledError(WeftError, RuntimeError):
    """An operation on a queue that was closed."""


class NotFoundError(WeftError, LookupError):
    """A file or a name that is not there."""


class AlreadyExistsError(WeftError, ValueError):
    """A name that is there already."""


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("errors", name)
