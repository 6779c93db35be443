"""Handles of calls that go on while the program does."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from weft.distributed.errors import DistBackendError
from weft.futures import Future


class Work:
    """A call that was begun; ``wait`` ends it, and only then its tensors are there.

    >>> work = weft.distributed.Work()
    >>> work.wait(), work.is_completed()
    (True, True)
    """

    def __init__(
        self,
        future: concurrent.futures.Future[Any] | None = None,
        finish: Callable[[Any], Any] = lambda found: None,
        source: int = -1,
    ) -> None:
        self._future, self._finish, self._source = future, finish, source
        self._done = future is None
        self._result: Any = None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Wait until the call is done, or raise its error."""
        if not self._done:
            assert self._future is not None
            try:
                found = self._future.result(seconds(timeout))
            except concurrent.futures.TimeoutError:
                raise DistBackendError(
                    f"wait: the call is not done after {seconds(timeout):g} seconds"
                ) from None
            self._done = True
            self._result = self._finish(found)
        return True

    def is_completed(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._done or (self._future is not None and self._future.done())

    def is_success(self) -> bool:
        """Whether the call is done and has no error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error of a call that is done."""
        if self._future is None or not self._future.done():
            return None
        return self._future.exception()

    def result(self) -> Any:
        """The tensors that the call has changed."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """The rank that a message came from."""
        self.wait()
        return self._source

    def get_future(self) -> Future:
        """A future of the result."""
        future = Future()
        if self._future is None:
            future.set_result(self._result)
            return future

        def settle(done: concurrent.futures.Future[Any]) -> None:
            if done.exception() is not None:
                future.set_exception(done.exception() or RuntimeError())
            else:
                future.set_result(self.result())

        self._future.add_done_callback(settle)
        return future


def seconds(timeout: timedelta | float | None) -> float | None:
    """A time as a number of seconds.

    >>> from datetime import timedelta
    >>> seconds(timedelta(minutes=1)), seconds(2)
    (60.0, 2.0)
    """
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    return None if timeout is None else float(timeout)
