"""Optimizers' steps, which ONNX has as operators."""

from __future__ import annotations

from collections.abc import Sequence

import weft
from weft import Tensor
from weft.onnx.registry import operator

_DOMAIN = "ai.onnx.preview.training"


def _groups(tensors: tuple[Tensor, ...], kinds: int) -> list[tuple[Tensor, ...]]:
    """For each weight: it, its gradient, and its states."""
    count = len(tensors) // kinds
    return list(zip(*(tensors[k * count : (k + 1) * count] for k in range(kinds)),
                    strict=True))  # fmt: skip


def _columns(rows: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(value for column in zip(*rows, strict=True) for value in column)


@operator("Adagrad", domain=_DOMAIN)
def adagrad(
    rate: Tensor, step: Tensor, *tensors: Tensor, decay_factor: float = 0.0,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Steps divided by the root of all squared gradients."""
    rate = rate / (1 + step * decay_factor)
    rows = []
    for x, g, h in _groups(tensors, 3):
        g = norm_coefficient * x + g
        h = h + g * g
        rows.append((x - rate * g / (weft.sqrt(h) + epsilon), h))
    return _columns(rows)


@operator("Adam", domain=_DOMAIN)
def adam(
    rate: Tensor, step: Tensor, *tensors: Tensor, alpha: float = 0.9,
    beta: float = 0.999, epsilon: float = 1e-6, norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Steps by the mean of gradients and of their squares."""
    rows = []
    for x, g, v, h in _groups(tensors, 4):
        g = norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        count = step.to(x.dtype)
        first = rate * weft.sqrt(1 - beta**count) / (1 - alpha**count)
        now = weft.where(step > 0, first, rate)
        new = x - now * v / (weft.sqrt(h) + epsilon)
        rows.append(((1 - norm_coefficient_post) * new, v, h))
    return _columns(rows)


@operator("Momentum", domain=_DOMAIN)
def momentum(
    rate: Tensor, step: Tensor, *tensors: Tensor, alpha: float, beta: float, mode: str,
    norm_coefficient: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Steps by a running sum of gradients."""
    rows = []
    for x, g, v in _groups(tensors, 3):
        g = norm_coefficient * x + g
        share = weft.where(step > 0, weft.full_like(rate, beta), weft.ones_like(rate))
        v = alpha * v + share * g
        rows.append((x - rate * (g + alpha * v if mode == "nesterov" else v), v))
    return _columns(rows)
