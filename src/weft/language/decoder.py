"""A decoder of tokens: GPT-2's shape and Llama's, as one module.

Parameters have Llama's names. With a cache, the keys and values of all texts lie in
slots of one tensor; a text's slots are listed in a table, so that they may lie
anywhere. One function serves a prompt and a single token. It reads the cache and gives
the new keys and values, which its caller writes: a step that fails changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.language.config import Config, Rotation
from weft.nn import functional as F


@dataclass
class Past:
    """The keys and values of earlier steps, who sees what, and what a step adds."""

    cache: Tensor  # (layers, 2, slots, H, D)
    read: Tensor  # (B, L): the slots of a text's keys, by position
    new: Tensor  # (B, L): whether this step has the key, at ``at`` of its own
    at: Tensor  # (B, L)
    seen: Tensor  # (B, 1, T, L): whether a position attends to a key
    added: list[Tensor] = field(default_factory=list)  # a layer's (2, B, T, H, D)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's keys and values of all positions, given those of this step."""
        kept = self.cache[len(self.added)]
        self.added.append(weft.stack([k, v]))
        return self._placed(k, kept[0]), self._placed(v, kept[1])

    def _placed(self, x: Tensor, kept: Tensor) -> Tensor:
        """This step's keys, or values, among those of the cache."""
        if x.shape[1] > 1:
            x = x[weft.arange(len(x), device=x.device)[:, None], self.at]
        return weft.where(self.new[..., None, None], x, kept[self.read])


def _norm(config: Config, width: int) -> nn.Module:
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(width, eps=config.epsilon)


class Rotary(nn.Module):
    """Cosines and sines of the angles of positions."""

    cos: Tensor
    sin: Tensor

    def __init__(self, rotation: Rotation, dim: int, context: int) -> None:
        super().__init__()
        turns = weft.tensor(rotation.frequencies(dim), dtype=weft.float64, device="cpu")
        angles = weft.arange(context, dtype=weft.float64, device="cpu")[:, None] * turns
        kept = weft.cat([angles, angles], -1)
        self.register_buffer("cos", kept.cos().float(), persistent=False)
        self.register_buffer("sin", kept.sin().float(), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.cos[positions][..., None, :], self.sin[positions][..., None, :]


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``x`` (B, T, H, D), each pair of components k and k + D/2 turned."""
    first, second = x.chunk(2, -1)
    return x * cos.to(x.dtype) + weft.cat([-second, first], -1) * sin.to(x.dtype)


class Attention(nn.Module):
    """Each position attends to itself and those before it."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.dim = c.head_dim
        mine, shared = c.heads * c.head_dim, c.key_heads * c.head_dim
        self.q_proj = nn.Linear(c.width, mine, bias=c.query_bias)
        self.k_proj = nn.Linear(c.width, shared, bias=c.query_bias)
        self.v_proj = nn.Linear(c.width, shared, bias=c.query_bias)
        self.o_proj = nn.Linear(mine, c.width, bias=c.output_bias)
        if c.head_norm:
            self.q_norm, self.k_norm = _norm(c, c.head_dim), _norm(c, c.head_dim)
        self.head_norm, self.grouped = c.head_norm, c.heads != c.key_heads

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor] | None, past: Past | None
    ) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (-1, self.dim))  # (B, T, H, D)
        k = self.k_proj(x).unflatten(-1, (-1, self.dim))
        v = self.v_proj(x).unflatten(-1, (-1, self.dim))
        if self.head_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if turn is not None:
            q, k = _rotated(q, *turn), _rotated(k, *turn)
        if past is not None:
            k, v = past.extend(k, v)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=None if past is None else past.seen,
            is_causal=past is None,
            enable_gqa=self.grouped,
        )
        return self.o_proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two products around an activation, or three where a gate is multiplied."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.gated, self.activation = c.gated, c.activation
        if c.gated:
            self.gate_proj = nn.Linear(c.width, c.inner, bias=c.inner_bias)
        self.up_proj = nn.Linear(c.width, c.inner, bias=c.inner_bias)
        self.down_proj = nn.Linear(c.inner, c.width, bias=c.inner_bias)

    def _active(self, x: Tensor) -> Tensor:
        if self.activation == "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        active: Any = getattr(F, self.activation)
        return active(x)

    def forward(self, x: Tensor) -> Tensor:
        if self.gated:
            return self.down_proj(self._active(self.gate_proj(x)) * self.up_proj(x))
        return self.down_proj(self._active(self.up_proj(x)))


class Layer(nn.Module):
    """Attention, then a feed-forward part, each behind a norm and around a shortcut."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.input_layernorm = _norm(c, c.width)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = _norm(c, c.width)
        self.mlp = FeedForward(c)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor] | None, past: Past | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, past)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Logits of the next token at every position.

    >>> config = weft.language.Config(vocab=50, context=16, width=32, layers=2, heads=4)
    >>> net = weft.language.Decoder(config)
    >>> net(weft.zeros(1, 16, dtype=weft.int64)).shape
    (1, 16, 50)
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = self.config = config
        self.embed_tokens = nn.Embedding(c.vocab, c.width)
        if c.rotation is None:
            self.embed_positions = nn.Embedding(c.context, c.width)
        else:
            self.rotary = Rotary(c.rotation, c.head_dim, c.context)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = _norm(c, c.width)
        self.lm_head = nn.Linear(c.width, c.vocab, bias=False)
        if c.tied:
            self.lm_head.weight = self.embed_tokens.weight

    def cache(self, slots: int) -> Tensor:
        """Slots for the keys and values of that many tokens, in every layer."""
        c, like = self.config, self.norm.weight
        shape = (c.layers, 2, slots, c.key_heads, c.head_dim)
        return weft.zeros(shape, dtype=like.dtype, device=like.device)

    def forward(self, ids: Tensor) -> Tensor:
        steps = ids.shape[-1]
        if steps > self.config.context:
            raise ValueError(
                f"Decoder: {steps} tokens do not fit into a context of "
                f"{self.config.context}"
            )
        positions = weft.arange(steps, device=ids.device)[None]
        return self.lm_head(self._hidden(ids, positions, None))

    def step(
        self, ids: Tensor, start: Tensor, read: Tensor, last: Tensor, cache: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, vocab) behind ``ids[:, last]``, and what the cache is to keep.

        ``ids`` (B, T) stand at the positions from ``start`` (B,) on. ``read`` (B, L)
        says in which slots the keys of the positions before them lie, and has room for
        their own. New keys and values are (layers, 2, B, T, H, D).
        """
        new = weft.arange(ids.shape[1], device=ids.device)
        at = weft.arange(read.shape[1], device=ids.device) - start[:, None]
        inside = (at >= 0) & (at < len(new))
        seen = (at[:, None] <= new[:, None])[:, None]
        past = Past(cache, read, inside, at.clamp(0, len(new) - 1), seen)
        positions = (start[:, None] + new).clamp(max=self.config.context - 1)
        x = self._hidden(ids, positions, past)
        chosen = x[weft.arange(len(ids), device=ids.device), last]
        return self.lm_head(chosen).float(), weft.stack(past.added)

    def _hidden(self, ids: Tensor, positions: Tensor, past: Past | None) -> Tensor:
        x, turn = self.embed_tokens(ids), None
        if self.config.rotation is None:
            x = x + self.embed_positions(positions)
        else:
            turn = self.rotary(positions)
        for layer in self.layers:
            x = layer(x, turn, past)
        return self.norm(x)
