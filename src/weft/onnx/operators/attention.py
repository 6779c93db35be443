"""Attention, with caches, groups of heads and masks; rotary positions."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.nn import functional as F
from weft.onnx.errors import ModelError
from weft.onnx.registry import operator
from weft.onnx.types import dtype_of


def _heads(x: Tensor, count: int | None) -> Tensor:
    """(B, T, N * E) as (B, N, T, E)."""
    if x.ndim == 4:
        return x
    if not count:
        raise ModelError("attention of three axes needs q_num_heads and kv_num_heads")
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def _bias(allowed: Tensor, dtype: Any) -> Tensor:
    zero = weft.zeros((), dtype=dtype)
    return weft.where(allowed, zero, zero - math.inf)


@operator("Attention")
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, past_key: Any = None,
    past_value: Any = None, lengths: Any = None, *, is_causal: int = 0,
    kv_num_heads: Any = None, q_num_heads: Any = None, qk_matmul_output_mode: int = 0,
    scale: Any = None, softcap: float = 0.0, softmax_precision: Any = None,
    left_window_size: int = -1, right_window_size: int = -1, outputs: int = 1,
) -> Any:  # fmt: skip
    """Scaled products of queries and keys as weights of values."""
    flat = q.ndim == 3
    q, k, v = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    if past_key is not None:
        k, v = weft.cat([past_key, k], 2), weft.cat([past_value, v], 2)
    caches = (k, v)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    bias = _masks(q, k, mask, past_key, lengths, is_causal,
                  (left_window_size, right_window_size))  # fmt: skip
    plain = outputs < 4 and not softcap and softmax_precision is None
    if plain and (bias is None or bias[1] is None):
        y = F.scaled_dot_product_attention(
            q, k, v, None if bias is None else bias[0], scale=scale
        )
        shown = None
    else:
        y, shown = _written(q, k, v, bias, scale, softcap, softmax_precision,
                            qk_matmul_output_mode)  # fmt: skip
    if flat:
        y = y.transpose(1, 2).flatten(2)
    return (y, *caches, shown)[:outputs] if outputs > 1 else y


def _masks(
    q: Tensor, k: Tensor, mask: Any, past: Any, lengths: Any, causal: int, window: Any
) -> Any:
    """What is added to products, if anything; and rows without any key."""
    rows, columns = q.shape[2], k.shape[2]
    parts = []
    if mask is not None:
        more = columns - mask.shape[-1]
        if mask.dtype is weft.bool:
            mask = _bias(mask, q.dtype)
        if not (type(more) is int and more <= 0):
            mask = F.pad(mask, [0, more], value=-math.inf)
        parts.append(mask)
    offset: Any = 0 if past is None else past.shape[2]
    if lengths is not None:
        offset = lengths.long().reshape(-1, 1, 1, 1) - rows
        inside = weft.arange(columns) < lengths.long().reshape(-1, 1, 1, 1)
        parts.append(_bias(inside, q.dtype))
    far = weft.arange(rows).unsqueeze(1) + offset - weft.arange(columns)
    left, right = window
    if causal:
        parts.append(_bias(far >= 0, q.dtype))
    if left >= 0:
        parts.append(_bias(far <= left, q.dtype))
    if right >= 0:
        parts.append(_bias(-far <= right, q.dtype))
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total, weft.isneginf(weft.amax(total, -1, keepdim=True))


def _written(
    q: Tensor, k: Tensor, v: Tensor, bias: Any, scale: Any, softcap: float,
    precision: Any, mode: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention in the steps that ONNX names, of which one is a result."""
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = (q * root) @ (k * root).transpose(-1, -2)
    if softcap:
        scores = softcap * weft.tanh(scores / softcap)
    shown = scores
    if bias is not None:
        scores = scores + bias[0]
    if mode == 2:
        shown = scores
    wide = scores if precision is None else scores.to(dtype_of(precision))
    weights = weft.softmax(wide, -1)
    if bias is not None:
        weights = weft.where(bias[1], weft.zeros_like(weights), weights)
    if mode == 3:
        shown = weights
    return weights.to(q.dtype) @ v, shown.to(q.dtype)


@operator("RotaryEmbedding")
def rotary_embedding(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Any = None, *, interleaved: int = 0,
    num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Tensor:  # fmt: skip
    """Pairs of elements turned by angles that depend on their position."""
    flat = x.ndim == 3
    y = _heads(x, num_heads)  # (B, N, T, E)
    if positions is not None:
        cos, sin = cos[positions.long()], sin[positions.long()]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # (B, 1, T, E / 2)
    width = rotary_embedding_dim or y.shape[-1]
    turned, rest = y[..., :width], y[..., width:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned.chunk(2, -1)
    real, imaginary = cos * a - sin * b, sin * a + cos * b
    if interleaved:
        turned = weft.stack([real, imaginary], -1).flatten(-2)
    else:
        turned = weft.cat([real, imaginary], -1)
    y = weft.cat([turned, rest], -1)
    return y.transpose(1, 2).reshape(x.shape) if flat else y
