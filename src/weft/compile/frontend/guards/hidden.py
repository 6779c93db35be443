"""State that no attribute shows: random generators of Python and NumPy, open files.

Their state is compared before and after a capture. A function that has advanced it
would not do so in later calls, so it is refused, and the state is restored.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

UNKNOWN: Any = object()  # a state that cannot be read, of true randomness


class Hidden(NamedTuple):
    """An object with hidden state; an ``UNKNOWN`` state is never the same."""

    value: Any
    path: str
    read: Callable[[], Any]
    write: Callable[[Any], Any] | None
    state: Any
    what: str

    def moved(self) -> bool:
        """Whether the state has changed."""
        now = self.read()
        return now is UNKNOWN or bool(repr(now) != repr(self.state))

    def put_back(self) -> None:
        if self.write is not None and self.state is not UNKNOWN:
            self.write(self.state)


def hidden(value: Any, path: str) -> Hidden | None:
    """The hidden state of an object, if it has one."""
    kind = type(value)
    if issubclass(kind, random.Random):
        return _of(value, path, value.getstate, value.setstate, "random numbers")
    if issubclass(kind, io.IOBase) and not value.closed:
        return _of(value, path, lambda: _position(value), None, "a file")
    if kind.__module__.partition(".")[0] != "numpy":
        return None
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is None:
        return None
    if issubclass(kind, numpy_random.Generator):
        value = value.bit_generator
    elif issubclass(kind, numpy_random.RandomState):
        value = value._bit_generator
    elif not issubclass(kind, numpy_random.BitGenerator):
        return None
    return _of(
        value, path, lambda: value.state, lambda s: setattr(value, "state", s),
        "random numbers",
    )  # fmt: skip


def _of(value: Any, path: str, read: Any, write: Any, what: str) -> Hidden:
    def state() -> Any:
        try:
            return read()
        except (NotImplementedError, OSError, ValueError):
            return UNKNOWN

    return Hidden(value, path, state, write, state(), what)


def _position(file: Any) -> Any:
    held = file.getvalue() if isinstance(file, (io.StringIO, io.BytesIO)) else None
    if file.closed or not file.seekable():
        return file.closed
    return file.tell(), held


def shared_generators() -> list[Hidden]:
    """The generators behind the functions of ``random`` and ``numpy.random``."""
    found = [hidden(random._inst, "random")]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        found.append(hidden(numpy_random.mtrand._rand, "numpy.random"))
    return [one for one in found if one is not None]
