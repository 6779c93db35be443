"""Weights and inputs from NumPy, the same numbers in every process."""

from __future__ import annotations

import zlib

import numpy as np


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def normal(name: str, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers that depend on the name and the shape alone.

    >>> normal("x", 3).tolist() == normal("x", 3).tolist()
    True
    """
    made = _generator(name).standard_normal(shape, np.float32)
    return made * np.float32(scale)


def integers(name: str, below: int, *shape: int) -> np.ndarray:
    return _generator(name).integers(0, below, shape)


def linear(name: str, inputs: int, outputs: int) -> dict[str, np.ndarray]:
    """A linear layer's weight (out, in) and bias, small enough for many layers."""
    return {
        f"{name}.weight": normal(name, outputs, inputs, scale=inputs**-0.5),
        f"{name}.bias": np.zeros(outputs, np.float32),
    }


def norm(name: str, width: int) -> dict[str, np.ndarray]:
    return {
        f"{name}.weight": np.ones(width, np.float32),
        f"{name}.bias": np.zeros(width, np.float32),
    }


def size(arrays: dict[str, np.ndarray]) -> int:
    """How many numbers there are."""
    return sum(a.size for a in arrays.values())
