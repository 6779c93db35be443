"""The machine at hand: threads, kernels on disk, planned memory, devices.

``Runtime`` is all that the rest of Weft asks of a device with memory of its own:
allocate, copy, launch, wait. ``runtime.cuda`` implements it over NVIDIA's driver.
Programs over host memory need none: their target calls native code itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np


class Runtime(Protocol):
    """A device's memory and its queue of work, which runs in the order of the calls.

    Memory is known by addresses, which only the device may read.
    """

    name: str
    recording: bool  # whether work is being recorded, and does not run

    @property
    def title(self) -> str:
        """The name of the kind of device."""

    @property
    def multiprocessors(self) -> int:
        """How many parts of it run blocks of threads."""

    def allocate(self, nbytes: int) -> int:
        """The address of new memory; ``MemoryError`` if there is none."""

    def free(self, address: int) -> None:
        """Give memory back, once the work in the queue is done."""

    def upload(self, address: int, array: np.ndarray) -> None:
        """Copy a contiguous array to the device."""

    def download(self, array: np.ndarray, address: int) -> None:
        """Copy memory of the device to a contiguous array; wait for it."""

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy memory on the device."""

    def clear(self, address: int, nbytes: int) -> None:
        """Fill memory with zeros."""

    def load(self, code: str, kernels: Sequence[Any]) -> dict[str, Any]:
        """Functions to launch, by their kernels' names.

        A kernel's ``block_memory``, if it has it, is the most that launches ask for.
        """

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: int,
        arguments: np.ndarray,
        block_memory: int = 0,
    ) -> None:
        """Put a launch into the queue; ``arguments`` are made by ``argument_words``.

        ``block_memory`` are the bytes that the threads of each block share.
        """

    def prepared(
        self,
        function: Any,
        blocks: int,
        threads: int,
        arguments: np.ndarray,
        block_memory: int = 0,
    ) -> Callable[[], None]:
        """A launch to be made many times, of arguments whose values may change.

        The caller keeps the arguments.
        """

    def host_memory(self, nbytes: int) -> np.ndarray:
        """Bytes of the host's memory, all zero, which the device reads and writes.

        The host sees what the device has written once it has waited for that.
        """

    def tensor_map(
        self, address: int, dtype: str, shape: Sequence[int], strides: Sequence[int],
        box: Sequence[int],
    ) -> np.ndarray:  # fmt: skip
        """An array as the device's copy engine is told of it: words of an argument.

        Axes are given from the contiguous one on, and ``strides`` in bytes for all but
        that one; a copy brings a ``box``. Devices without such an engine need none.
        """

    def recorded(self, run: Callable[[], None]) -> Callable[[], None] | None:
        """The work that ``run`` puts into the queue, to be put there again as a whole.

        None where the device cannot do that. Nothing has run by then.
        """

    def seconds(self, run: Callable[[], None]) -> float:
        """The seconds that the device takes for the work that ``run`` queues."""

    def wait(self) -> None:
        """Wait until the queue is empty; raise the error of work that failed."""


def argument_words(values: Sequence[Any]) -> np.ndarray:
    """The arguments of a launch, and then the address of each of them.

    An argument is a number of 64 bits, or an array of such words.
    """
    import numpy as np

    from weft.runtime.cpu.address import address

    if not any(isinstance(value, np.ndarray) for value in values):
        count = len(values)
        words = np.empty(2 * count, np.int64)
        words[:count] = values
        words[count:] = address(words) + 8 * np.arange(count)
        return words
    given = [np.atleast_1d(np.asarray(value, np.int64)) for value in values]
    starts = np.cumsum([0, *[len(one) for one in given]])
    count = int(starts[-1])
    words = np.zeros(2 * count, np.int64)
    words[:count] = np.concatenate(given)
    words[count : count + len(given)] = address(words) + 8 * starts[:-1]
    return words
