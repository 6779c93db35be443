"""``weft.cpu``: the CPU under the names that PyTorch gives every kind of device."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """Whether there is a CPU.

    >>> weft.cpu.is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """Whether the CPU is ready, which it always is.

    >>> weft.cpu.is_initialized()
    True
    """
    return True


def device_count() -> int:
    """The number of CPU devices: one, with all its cores.

    >>> weft.cpu.device_count()
    1
    """
    return 1


def current_device() -> str:
    """The name of the CPU.

    >>> weft.cpu.current_device()
    'cpu'
    """
    return "cpu"


def set_device(device: Any) -> None:
    """Do nothing: there is one CPU.

    >>> weft.cpu.set_device("cpu")
    """


def synchronize(device: Any = None) -> None:
    """Do nothing: work on the CPU is done when its call returns.

    >>> weft.cpu.synchronize()
    """


class Stream:
    """The one queue of work of the CPU; waiting for it is no work.

    >>> weft.cpu.Stream().wait_stream(weft.cpu.current_stream())
    """

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: all work before is done."""

    def record_event(self, event: Any = None) -> Event:
        """A mark that has been reached already."""
        return event or Event()

    def wait_event(self, event: Any) -> None:
        """Do nothing: the event has been reached."""


class Event:
    """A mark in the CPU's work, which is reached when it is made.

    >>> weft.cpu.Event().query()
    True
    """

    def query(self) -> bool:
        return True

    def record(self, stream: Any = None) -> None:
        """Do nothing: all work before is done."""

    def synchronize(self) -> None:
        """Do nothing: all work before is done."""

    def wait(self, stream: Any = None) -> None:
        """Do nothing: all work before is done."""


class StreamContext:
    """A block whose work is in a stream; the CPU has only one."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


stream = StreamContext
_STREAM = Stream()


def current_stream(device: Any = None) -> Stream:
    """The CPU's stream.

    >>> weft.cpu.current_stream() is weft.cpu.current_stream()
    True
    """
    return _STREAM
