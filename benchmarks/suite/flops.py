"""Operations and bytes by formula: what no implementation can do without."""

from __future__ import annotations

BYTES = 4  # of a float32


def product(m: int, n: int, k: int, batch: int = 1) -> float:
    """A matrix product, two operations for each multiply-add.

    >>> product(2, 3, 4)
    48.0
    """
    return 2.0 * batch * m * n * k


def convolution(batch: int, cin: int, cout: int, kernel: int, pixels: int) -> float:
    """A convolution without groups; ``pixels`` of the result, in one channel."""
    return product(batch * pixels, cout, cin * kernel**2)


def attention(rows: int, length: int, width: int, causal: bool = True) -> float:
    """Two products of each head; ``width`` is that of all heads together.

    A causal one needs half of the scores, and the diagonal.
    """
    pairs = length * (length + 1) / 2 if causal else length**2
    return 4.0 * rows * pairs * width


# For each optimizer: numbers read and written for each parameter, beside the gradient.
UPDATED = {"sgd": 2, "momentum": 4, "adam": 6, "adamw": 6}


def update_bytes(parameters: int, optimizer: str) -> float:
    """Parameters and optimizer state are read once and written once."""
    return float(BYTES * parameters * UPDATED[optimizer])
