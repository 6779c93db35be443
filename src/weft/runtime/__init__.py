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

    def recorded(self, run: Callable[[], None]) -> Callable[[], None] | None:
        """The work that ``run`` puts into the queue, to be put there again as a whole.

        None where the device cannot do that. Nothing has run by then.
        """

    def wait(self) -> None:
        """Wait until the queue is empty; raise the error of work that failed."""


def argument_words(values: Sequence[int]) -> np.ndarray:
    """The arguments of a launch, 64 bits each, and then the address of each of them."""
    import numpy as np

    from weft.runtime.cpu.address import address

    count = len(values)
    words = np.empty(2 * count, np.int64)
    words[:count] = values
    words[count:] = address(words) + 8 * np.arange(count)
    return words
