"""Seeds: the random numbers that an epoch, a sample or a batch gets.

Everything is a pure function of the loader's seed, the epoch and the number of the
sample (or batch) in the epoch, so it does not matter which process draws, or what
was drawn before:

    key     := Philox(seed, purpose, epoch)           one generator's seed
    counter := number * 2**32                         where sample `number` starts
"""

from __future__ import annotations

from typing import Any

from weft.ops.random import default_generator, random_words

ORDER, SAMPLE, BATCH, WORKER = range(4)  # what the numbers are for


def key(seed: int, epoch: int, purpose: int) -> int:
    """A generator's seed for one purpose in one epoch."""
    high, low = random_words(seed, (purpose << 48) + epoch, 2).tolist()
    return (high << 32) | low


class Draws:
    """A state that the default generator is in inside a ``with`` block.

    Outside, the generator is as it was; the next block goes on where the last one
    stopped.
    """

    __slots__ = ("counter", "kept", "key")

    def __init__(self, key: int, number: int = 0) -> None:
        self.key = key
        self.counter = (number & 0x7FFFFFFF) << 32

    def __enter__(self) -> Draws:
        generator = default_generator
        self.kept = generator._seed, generator._counter
        generator._seed, generator._counter = self.key, self.counter
        return self

    def __exit__(self, *error: Any) -> None:
        generator = default_generator
        self.key, self.counter = generator._seed, generator._counter
        generator._seed, generator._counter = self.kept
