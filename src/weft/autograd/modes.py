"""Switching the recording of gradients on and off, for a block or a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from weft.core.mode import mode, set_gradients

F = TypeVar("F", bound=Callable[..., Any])


class _Switch:
    """A context manager that is also a decorator."""

    recording: bool
    inference: bool | None = None
    _before: Any = ()  # what was before each block that is entered, the last first

    def __enter__(self) -> None:
        recording, inference = self.recording, self.inference
        if inference is None:
            inference = mode.inference
        before = set_gradients(recording, recording, inference)
        self._before = before, self._before

    def __exit__(self, *error: object) -> None:
        before, self._before = self._before
        set_gradients(*before)

    def __call__(self, fn: F) -> F:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with type(self).__new__(type(self))._copy(self):
                return fn(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _copy(self, other: _Switch) -> _Switch:
        self.recording, self.inference = other.recording, other.inference
        return self


class no_grad(_Switch):
    """Record nothing: neither the tape nor forward-mode tangents.

    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    recording = False

    def __new__(cls, fn: Any = None) -> Any:
        made = object.__new__(cls)
        return made if fn is None else made(fn)  # used as @no_grad without brackets


class enable_grad(_Switch):
    """Record again inside a ``no_grad`` block.

    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.no_grad(), weft.enable_grad():
    ...     y = x * 2
    >>> y.requires_grad
    True
    """

    recording = True
    inference = False


class set_grad_enabled(_Switch):
    """Record or not, by a flag; takes effect at once, or for a block or a function.

    >>> with weft.set_grad_enabled(False):
    ...     weft.is_grad_enabled()
    False
    """

    _outer: Any = None  # what was before it took effect at once

    def __init__(self, mode: bool) -> None:
        self.recording = bool(mode)
        self._outer = self._enter_now()

    def _enter_now(self) -> tuple[bool, bool, bool]:
        return set_gradients(self.recording, self.recording, mode.inference)

    def __enter__(self) -> None:
        before = self._enter_now()
        self._before = self._outer or before, self._before

    def __call__(self, fn: F) -> F:
        set_gradients(*self._outer)  # it is for the function alone
        return super().__call__(fn)


class inference_mode(_Switch):
    """``no_grad``, and tensors made inside can never join a tape: least overhead.

    >>> with weft.inference_mode():
    ...     y = weft.ones(2) * 2
    >>> y.is_inference()
    True
    """

    recording = False
    inference = True

    def __init__(self, mode: bool = True) -> None:
        if not mode:
            self.recording, self.inference = True, False


def is_grad_enabled() -> bool:
    """Whether operators are recorded now.

    >>> weft.is_grad_enabled()
    True
    """
    return mode.recording


def is_inference_mode_enabled() -> bool:
    """Whether ``inference_mode`` is on.

    >>> weft.is_inference_mode_enabled()
    False
    """
    return mode.inference
