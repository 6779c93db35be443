"""Ctrl-C while a loop runs natively.

Python handles signals between its own steps, and a native loop takes none. So loops of
the main thread call back now and then; an interrupt that comes then ends them like an
error, and is raised when they have returned.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from typing import Any

from weft.runtime import system

_caught: list[BaseException] = []  # by what a handler raised


def _polls() -> Iterator[int]:
    """0 for each time a loop asks, and 1 if it should end.

    Signals are handled where a function begins; a generator goes on inside of ``try``.
    """
    while True:
        try:
            while True:
                yield int(bool(_caught))
        except BaseException as error:  # whatever a handler raises
            _caught.append(error)
            yield 1


@functools.cache
def _callback() -> Any:
    polls = _polls()
    next(polls)
    return ctypes.CFUNCTYPE(ctypes.c_int)(polls.__next__)


def addresses() -> tuple[int, int, int]:
    """The addresses of what loops poll and what numbers threads; the main number."""
    own = system.address_of("GetCurrentThreadId" if system.WINDOWS else "pthread_self")
    poll = ctypes.cast(_callback(), ctypes.c_void_p).value or 0
    return poll, own, threading.main_thread().ident or 0


def raise_pending() -> None:
    """Raise the interrupt that has ended a loop, if any."""
    if _caught and threading.current_thread() is threading.main_thread():
        error = _caught[0]
        _caught.clear()
        raise error
