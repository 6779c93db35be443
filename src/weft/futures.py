"""``weft.futures``: values that come later, under PyTorch's names."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable
from types import GenericAlias
from typing import Any

from weft.errors import ArgumentError


class Future:
    """A value that is set later, by this thread or by another one.

    >>> future = weft.futures.Future()
    >>> doubled = future.then(lambda f: 2 * f.wait())
    >>> future.set_result(4)
    >>> doubled.wait()
    8
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # ``Future[int]`` is a type

    def __init__(self, *, devices: Any = None) -> None:
        if devices:
            raise ArgumentError(f"Future: expected no devices, got {devices!r}")
        self._inner: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether there is a value or an error."""
        return self._inner.done()

    def wait(self) -> Any:
        """Wait for the value, or raise the error."""
        return self._inner.result()

    def value(self) -> Any:
        """The value, which must be there."""
        if not self.done():
            raise RuntimeError("Future.value: there is no value yet; use wait()")
        return self._inner.result()

    def set_result(self, result: Any) -> None:
        """Set the value; callbacks run now."""
        if self.done():
            raise RuntimeError("Future.set_result: there is a value already")
        self._inner.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Set an error, which ``wait`` raises."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, no exception")
        if self.done():
            raise RuntimeError("Future.set_exception: there is a value already")
        self._inner.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        """Call ``callback(self)`` when there is a value, or now."""
        self._inner.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """The future of ``callback(self)``."""
        following = Future()

        def run(_: Any) -> None:
            try:
                following.set_result(callback(self))
            except BaseException as error:
                following.set_exception(error)

        self._inner.add_done_callback(run)
        return following


def collect_all(futures: Iterable[Future]) -> Future:
    """A future of the list of futures, which is there when all of them are.

    >>> one = weft.futures.Future()
    >>> both = weft.futures.collect_all([one])
    >>> one.set_result(1)
    >>> [f.value() for f in both.wait()]
    [1]
    """
    waiting = list(futures)
    every = Future()
    left = len(waiting)

    def count(_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            every.set_result(waiting)

    for one in waiting:
        one.add_done_callback(count)
    if not waiting:
        every.set_result(waiting)
    return every


def wait_all(futures: Iterable[Future]) -> list[Any]:
    """Wait for all values; gives them as a list.

    >>> one = weft.futures.Future()
    >>> one.set_result(3)
    >>> weft.futures.wait_all([one])
    [3]
    """
    return [one.wait() for one in collect_all(futures).wait()]
