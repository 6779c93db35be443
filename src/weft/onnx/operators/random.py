"""Random numbers, of Weft's generator: ``seed`` is not other libraries'."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.onnx.registry import operator
from weft.onnx.types import bounded, dtype_of


def _generator(seed: Any) -> Any:
    return None if seed is None else weft.Generator().manual_seed(int(seed))


def _draw(function: Any, shape: Any, seed: Any) -> Tensor:
    return function(bounded(shape), generator=_generator(seed))


@operator("RandomUniform")
def random_uniform(
    *, shape: Any, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: Any = None
) -> Tensor:
    """Numbers between two bounds."""
    return (_draw(weft.rand, shape, seed) * (high - low) + low).to(dtype_of(dtype))


@operator("RandomUniformLike")
def random_uniform_like(
    x: Tensor, *, dtype: int = 0, high: float = 1.0, low: float = 0.0, seed: Any = None
) -> Tensor:
    """Numbers between two bounds, in the shape of a tensor."""
    wanted = dtype_of(dtype) if dtype else x.dtype
    return (_draw(weft.rand, x.shape, seed) * (high - low) + low).to(wanted)


@operator("RandomNormal")
def random_normal(
    *, shape: Any, dtype: int = 1, mean: float = 0.0, scale: float = 1.0,
    seed: Any = None,
) -> Tensor:  # fmt: skip
    """Normally distributed numbers."""
    return (_draw(weft.randn, shape, seed) * scale + mean).to(dtype_of(dtype))


@operator("RandomNormalLike")
def random_normal_like(
    x: Tensor, *, dtype: int = 0, mean: float = 0.0, scale: float = 1.0,
    seed: Any = None,
) -> Tensor:  # fmt: skip
    """Normally distributed numbers, in the shape of a tensor."""
    wanted = dtype_of(dtype) if dtype else x.dtype
    return (_draw(weft.randn, x.shape, seed) * scale + mean).to(wanted)


@operator("Bernoulli")
def bernoulli(x: Tensor, *, dtype: int = 0, seed: Any = None) -> Tensor:
    """One with the probability that each element is, else zero."""
    wanted = dtype_of(dtype) if dtype else x.dtype
    return (_draw(weft.rand, x.shape, seed) < x).to(wanted)


@operator("Multinomial")
def multinomial(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: Any = None
) -> Tensor:
    """Classes drawn by logarithms of probabilities."""
    edges = weft.cumsum(weft.softmax(x.float(), -1), -1)  # (B, C)
    drawn = _draw(weft.rand, (x.shape[0], sample_size), seed)
    found = (drawn.unsqueeze(-1) >= edges.unsqueeze(1)).sum(-1)
    return found.clamp(max=x.shape[-1] - 1).to(dtype_of(dtype))
