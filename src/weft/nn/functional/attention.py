"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.core.autocast import lowered
from weft.core.mode import mode
from weft.errors import ArgumentError, ShapeError
from weft.graph.state_cells import On
from weft.nn.functional.dropout import dropout
from weft.ops.attention import attention


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
    if mode.autocast is not None:
        query, key, value, attn_mask = lowered(query, key, value, attn_mask)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa:
        options = dropout_p, is_causal, scale
        return _grouped(query, key, value, attn_mask, *options)
    ring = _ring()
    if ring is not None:
        if attn_mask is not None or dropout_p:
            raise ArgumentError(
                "scaled_dot_product_attention: over a sequence in pieces, expected "
                "neither a mask nor dropout; is_causal=True is there"
            )
        return ring(query, key, value, is_causal, scale)
    if dropout_p == 0 and query.dtype.is_floating_point:
        return attention(query, key, value, attn_mask, causal=is_causal, scale=scale)
    scores = (query * scale) @ key.transpose(-2, -1)  # (..., L, S)
    if is_causal:
        rows, cols = scores.shape[-2:]
        attn_mask = weft.ones(rows, cols, dtype=weft.bool, device=query.device).tril()
    if attn_mask is not None:
        if attn_mask.dtype is weft.bool:
            scores = weft.where(attn_mask, scores, -math.inf)
        else:
            scores = scores + attn_mask
    weights = _softmax(scores)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p)
    return weights @ value


# What attends to a sequence of which this process has a piece, while there is one.
SEQUENCE: dict[str, Any] = {"ring": None}


def _ring() -> Any:
    found = SEQUENCE["ring"]
    if mode.capture is not None:
        mode.capture.guard(
            "whether a sequence is in pieces", lambda: SEQUENCE["ring"],
            On(SEQUENCE, "ring", found),
        )  # fmt: skip
    return found


def need_whole_sequences(name: str) -> None:
    """Refuse a layer that would attend to this process's piece alone."""
    if _ring() is not None:
        raise ArgumentError(
            f"{name}: it would attend to this process's piece of the sequence alone; "
            "inside of context_parallel, use scaled_dot_product_attention"
        )


def _softmax(scores: Tensor) -> Tensor:
    """Softmax along the last dimension, zeros where every score is -infinity."""
    top = scores.detach().amax(-1, keepdim=True)
    e = weft.exp(scores - weft.where(top == -math.inf, 0.0, top))
    total = e.sum(-1, keepdim=True)
    return e / weft.where(total == 0, 1.0, total)


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *options: Any
) -> Tensor:
    """Heads in groups (..., G, H, L, E), each of which shares a key head."""
    heads, have = query.shape[-3], key.shape[-3]
    if value.shape[-3] != have or heads % have:
        raise ShapeError(
            f"scaled_dot_product_attention: {have} key heads and {value.shape[-3]} "
            f"value heads do not divide {heads} query heads"
        )
    query = query.unflatten(-3, (have, heads // have))
    key, value = key.unsqueeze(-3), value.unsqueeze(-3)
    if mask is not None and mask.ndim > 2:
        some = mask.shape[-3]
        mask = mask.unflatten(-3, (have, -1) if some == heads else (1, some))
    out = scaled_dot_product_attention(query, key, value, mask, *options)
    return out.flatten(-4, -3)


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


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention over (L, N, E) with parameters that are given.

    >>> x, w = weft.rand(5, 2, 4), weft.rand(12, 4)
    >>> out, weights = weft.nn.functional.multi_head_attention_forward(
    ...     x, x, x, 4, 2, w, None, None, None, False, 0.0, weft.rand(4, 4), None)
    >>> out.shape, weights.shape
    ((5, 2, 4), (2, 5, 5))
    """
    from weft.nn.transformer import attention_with

    if static_k is not None or static_v is not None:
        raise ArgumentError(
            "multi_head_attention_forward: static_k and static_v are not taken; pass "
            "key and value, and projections that leave them as they are"
        )
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    module = attention_with(
        embed_dim_to_check, num_heads, dropout_p, add_zero_attn, training,
        None if use_separate_proj_weight else in_proj_weight,
        separate if use_separate_proj_weight else (None,) * 3,
        in_proj_bias, (bias_k, bias_v), (out_proj_weight, out_proj_bias),
        (key.shape[-1], value.shape[-1]),
    )  # fmt: skip
    return module(
        query, key, value, key_padding_mask, need_weights, attn_mask,
        average_attn_weights, is_causal,
    )  # fmt: skip
