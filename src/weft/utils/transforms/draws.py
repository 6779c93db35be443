"""Single random numbers from Weft's default generator.

A transform needs a few numbers for each image. Drawing them one by one in Python's
integers is ten times as fast as an operator on a tiny tensor, and gives the words
that the operators would have got.
"""

from __future__ import annotations

import numpy as np

from weft.errors import ArgumentError
from weft.ops.random import _scalar_philox, default_generator


def _words(count: int) -> list[int]:
    generator = default_generator
    with generator._lock:
        counter = generator._counter
        generator._counter += -(-count // 4)
    return _scalar_philox(generator._seed, counter, count)


def uniform(low: float = 0.0, high: float = 1.0) -> float:
    """A number in [low, high)."""
    return low + (high - low) * (_words(1)[0] * 2.0**-32)


def chance(probability: float) -> bool:
    """Whether something of this probability happens."""
    return uniform() < probability


def integer(low: int, high: int) -> int:
    """A whole number from low up to and with high."""
    return low + (_words(1)[0] * (high - low + 1) >> 32)


def order(count: int) -> list[int]:
    """The numbers below ``count`` in random order."""
    keys = _words(count)
    return sorted(range(count), key=keys.__getitem__)


def numpy_generator() -> np.random.Generator:
    """NumPy's distributions, seeded with the next words."""
    return np.random.Generator(np.random.Philox(_words(4)))


def check_probability(who: str, p: float) -> float:
    """A probability, checked."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"{who}: expected p between 0 and 1, got {p}")
    return p
