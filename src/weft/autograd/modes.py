"""Switching the recording of gradients on and off, for a block or a function.

A function that is decorated runs in the mode from its beginning to its end. One that
pauses (a generator, a coroutine) runs in the mode whenever it runs, and what runs
while it waits is in the mode that was before.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator
from threading import get_ident
from typing import Any, TypeVar

from weft.core.mode import mode, set_gradients
from weft.errors import DTypeError

F = TypeVar("F", bound=Callable[..., Any])


class _Switch:
    """A context manager that is also a decorator.

    One object can be entered inside its own block, and in several threads.
    """

    recording: bool
    inference: bool | None = None
    _before: Any = None  # the modes before each block entered, by thread

    def __enter__(self) -> None:
        recording, inference = self.recording, self.inference
        if inference is None:
            inference = mode.inference
        self._note(set_gradients(recording, recording, inference))

    def _note(self, before: tuple[bool, bool, bool]) -> None:
        held = self._before
        if held is None:
            held = self.__dict__.setdefault("_before", {})
        held.setdefault(get_ident(), []).append(before)

    def __exit__(self, *error: object) -> None:
        set_gradients(*self._before[get_ident()].pop())

    def __call__(self, fn: F) -> F:
        if isinstance(fn, (classmethod, staticmethod)):
            return type(fn)(self(fn.__func__))
        if inspect.isclass(fn) or not callable(fn):
            kind = "the class " if inspect.isclass(fn) else ""
            raise DTypeError(
                f"{type(self).__name__}: expected a function to decorate, got "
                f"{kind}{getattr(fn, '__name__', type(fn).__name__)!r}; decorate "
                "its methods instead"
            )
        return functools.wraps(fn)(self._decorated(fn))  # type: ignore[return-value]

    def _decorated(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the same kind, also for the next decorator."""
        object_call = getattr(type(fn), "__call__", fn)  # noqa: B004
        for is_such, decorated in _KINDS:
            if is_such(fn) or is_such(object_call):
                return decorated(self, fn)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return wrapped


def _generator(switch: _Switch, fn: Callable[..., Any]) -> Callable[..., Any]:
    def resumed(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from _resumed(switch, fn(*args, **kwargs)))

    return resumed


def _coroutine(switch: _Switch, fn: Callable[..., Any]) -> Callable[..., Any]:
    async def waiting(*args: Any, **kwargs: Any) -> Any:
        return await _Waiting(switch, fn(*args, **kwargs))

    return waiting


def _resumed(switch: _Switch, inner: Any) -> Generator[Any, Any, Any]:
    """A generator or coroutine, each of whose steps runs in the mode."""
    try:
        with switch:
            value = inner.send(None)
        while True:
            try:
                sent = yield value
            except GeneratorExit:
                with switch:
                    inner.close()
                raise
            except BaseException as error:
                with switch:
                    value = inner.throw(error)
            else:
                with switch:
                    value = inner.send(sent)
    except StopIteration as stop:
        return stop.value


class _Waiting:
    """An awaitable that runs another one in the mode, for an ``async`` function."""

    def __init__(self, switch: _Switch, inner: Any) -> None:
        self.switch, self.inner = switch, inner

    def __await__(self) -> Generator[Any, Any, Any]:
        return _resumed(self.switch, self.inner.__await__())


def _async_generator(switch: _Switch, fn: Callable[..., Any]) -> Callable[..., Any]:
    async def steps(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        inner = fn(*args, **kwargs)
        step = inner.asend(None)
        try:
            while True:
                value = await _Waiting(switch, step)
                try:
                    step = inner.asend((yield value))
                except GeneratorExit:
                    await _Waiting(switch, inner.aclose())
                    raise
                except BaseException as error:
                    step = inner.athrow(error)
        except StopAsyncIteration:
            return

    return steps


_KINDS = (
    (inspect.isgeneratorfunction, _generator),
    (inspect.isasyncgenfunction, _async_generator),
    (inspect.iscoroutinefunction, _coroutine),
)


class _Bare(_Switch):
    """A switch that also decorates without brackets: ``@no_grad``."""

    def __new__(cls, fn: Any = None) -> Any:
        made = object.__new__(cls)
        return made if fn is None else made(fn)


class no_grad(_Bare):
    """Record nothing: neither the tape nor forward-mode tangents.

    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    recording = False


class enable_grad(_Bare):
    """Record operators inside a ``no_grad`` block.

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

    _outer: Any = None  # the thread in which it took effect, and the modes before

    def __init__(self, mode: bool) -> None:
        self.recording = bool(mode)
        self._outer = get_ident(), self._switch()

    def _switch(self) -> tuple[bool, bool, bool]:
        return set_gradients(self.recording, self.recording, mode.inference)

    def __enter__(self) -> None:
        before, outer = self._switch(), self._outer
        if outer is not None and outer[0] == get_ident():
            before, self._outer = outer[1], None  # the first block ends the effect
        self._note(before)

    def __call__(self, fn: F) -> F:
        if self._outer is not None:
            set_gradients(*self._outer[1])  # it is for the function alone
            self._outer = None
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

    def __new__(cls, mode: Any = True) -> Any:
        made = object.__new__(cls)
        if not isinstance(mode, bool):  # without brackets
            return made(mode)
        if not mode:
            made.recording, made.inference = True, False
        return made


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
