"""Code that every program needs, made in another thread while one is compiled.

made = ahead(make)        make is called once for the same arguments
made.start("float32")     begin now
made("float32")           the value; waits until it is there
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ahead(Generic[T]):
    """A function whose values are cached, and can be computed in the background.

    >>> from weft.compile.targets.cpu.background import ahead
    >>> @ahead
    ... def square(n):
    ...     return n * n
    >>> square.start(3)
    >>> square(3)
    9
    """

    def __init__(self, make: Callable[..., T]) -> None:
        functools.update_wrapper(self, make)
        self._make = make
        self._lock = threading.RLock()
        self._made: dict[tuple[Any, ...], T] = {}
        self._begun: set[tuple[Any, ...]] = set()

    def __call__(self, *args: Any) -> T:
        found = self._made.get(args)
        if found is None:
            with self._lock:
                if args not in self._made:
                    self._made[args] = self._make(*args)
            found = self._made[args]
        return found

    def start(self, *args: Any) -> None:
        """Compute the value in another thread, unless it is there or on its way.

        An error is raised to the caller that asks for the value later.
        """
        if args not in self._made and args not in self._begun:
            self._begun.add(args)
            threading.Thread(target=self._quietly, args=args).start()

    def _quietly(self, *args: Any) -> None:
        with contextlib.suppress(Exception):
            self(*args)
