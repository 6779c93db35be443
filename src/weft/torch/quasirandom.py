"""``torch.quasirandom``: Sobol' sequences, from SciPy's table of direction numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of a Sobol' sequence, which fill the unit cube evenly.

    Without scrambling they are PyTorch's; scrambled ones depend on the seed and differ.

    >>> from weft.torch.quasirandom import SobolEngine
    >>> SobolEngine.MAXDIM
    21201
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(
        self, dimension: int, scramble: bool = False, seed: int | None = None
    ) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ArgumentError(
                f"SobolEngine: expected a dimension from 1 to {self.MAXDIM}, got "
                f"{dimension}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        chosen = seed
        if scramble and seed is None:
            chosen = int(weft.randint(2**31, (1,)).item())
        self._seed = chosen
        self.reset()

    def reset(self) -> SobolEngine:
        """Go back to the first point."""
        try:
            from scipy.stats import qmc  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError(
                "SobolEngine: the direction numbers are SciPy's; install scipy"
            ) from None
        generator = np.random.default_rng(self._seed)
        self._engine = qmc.Sobol(
            self.dimension, scramble=self.scramble, bits=self.MAXBIT, rng=generator
        )
        self.num_generated = 0
        return self

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """The next points, one in a row."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SciPy's about numbers of points
            points = self._engine.random(n)
        self.num_generated += n
        found = weft.tensor(points, dtype=dtype or weft.get_default_dtype())
        return found if out is None else out.copy_(found)

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """The next ``2 ** m`` points, which must end at a power of two."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ArgumentError(
                f"draw_base2: {self.num_generated} points were drawn before, and "
                f"{total} is no power of two; call reset() first"
            )
        return self.draw(2**m, out, dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out points."""
        self._engine.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"
