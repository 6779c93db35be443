"""Switching the recording of gradients on and off, for a block or a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from weft.core.mode import mode, set_inference, set_recording

F = TypeVar("F", bound=Callable[..., Any])


class _Switch:
    """A context manager that is also a decorator."""

    recording: bool
    inference: bool | None = None

    def __init__(self) -> None:
        self._before: list[tuple[bool, bool, bool]] = []

    def __enter__(self) -> None:
        self._before.append((mode.recording, mode.forward, mode.inference))
        set_recording(self.recording)
        mode.forward = self.recording
        if self.inference is not None:
            set_inference(self.inference)

    def __exit__(self, *error: object) -> None:
        recording, mode.forward, inference = self._before.pop()
        set_inference(inference)
        set_recording(recording)

    def __call__(self, fn: F) -> F:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with type(self).__new__(type(self))._copy(self):
                return fn(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _copy(self, other: _Switch) -> _Switch:
        self._before = []
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
        made = super().__new__(cls)
        if fn is None:
            return made
        _Switch.__init__(made)
        return made(fn)  # used as @no_grad without brackets


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
    """Record or not, by a flag; takes effect at once, or for a block.

    >>> with weft.set_grad_enabled(False):
    ...     weft.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.recording = bool(mode)
        self._outer = self._enter_now()

    def _enter_now(self) -> tuple[bool, bool, bool]:
        outer = (mode.recording, mode.forward, mode.inference)
        set_recording(self.recording)
        mode.forward = self.recording
        return outer

    def __enter__(self) -> None:
        self._before.append(self._outer)
        self._enter_now()


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
        super().__init__()
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
