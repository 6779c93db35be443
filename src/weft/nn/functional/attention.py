"""Scaled dot-product attention."""

from __future__ import annotations

import math

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.nn.functional.dropout import dropout


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(Q K^T / sqrt(d) + mask) V`` over the last two dimensions.

    A boolean mask says who takes part; a floating one is added. A row that sees
    nobody gives zeros. ``enable_gqa`` lets groups of query heads share a key head.

    >>> q = weft.rand(1, 2, 4, 8)
    >>> weft.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    (1, 2, 4, 8)
    """
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        key, value = (_share(query, x) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)  # (..., L, S)
    if is_causal:
        rows, cols = scores.shape[-2:]
        attn_mask = weft.ones(rows, cols, dtype=weft.bool).tril()
    if attn_mask is not None:
        if attn_mask.dtype is weft.bool:
            scores = weft.where(attn_mask, scores, -math.inf)
        else:
            scores = scores + attn_mask
    weights = _softmax(scores)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p)
    return weights @ value


def _softmax(scores: Tensor) -> Tensor:
    """Softmax along the last dimension, zeros where every score is -infinity."""
    top = scores.detach().amax(-1, keepdim=True)
    e = weft.exp(scores - weft.where(top == -math.inf, 0.0, top))
    total = e.sum(-1, keepdim=True)
    return e / weft.where(total == 0, 1.0, total)


def _share(query: Tensor, x: Tensor) -> Tensor:
    heads, have = query.shape[-3], x.shape[-3]
    if heads % have:
        raise ShapeError(
            f"scaled_dot_product_attention: {have} key heads do not divide {heads} "
            "query heads"
        )
    return x.repeat_interleave(heads // have, dim=-3)


def _check(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> None:
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ShapeError(
            "scaled_dot_product_attention: expected at least 2 dimensions, got "
            f"{q.shape}, {k.shape} and {v.shape}"
        )
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention: query {q.shape}, key {k.shape} and value "
            f"{v.shape} do not fit: features of query and key, and positions of key "
            "and value, must be equal"
        )
    if mask is not None and causal:
        raise ArgumentError(
            "scaled_dot_product_attention: give attn_mask or is_causal, not both"
        )
