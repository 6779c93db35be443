"""Multi-head attention and transformers, with PyTorch's parameters and names."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn.activation import activation as find_activation
from weft.nn.containers import ModuleList
from weft.nn.dropout import Dropout
from weft.nn.functional.attention import need_whole_sequences
from weft.nn.linear import Linear, NonDynamicallyQuantizableLinear
from weft.nn.module import Module
from weft.nn.norm import LayerNorm
from weft.nn.parameter import Parameter
from weft.ops.attention import attention


class MultiheadAttention(Module):
    """Attention of several heads over (L, N, E), or (N, L, E) with batch_first.

    >>> attention = weft.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = weft.rand(3, 5, 8)
    >>> out, weights = attention(x, x, x)
    >>> out.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(
                f"MultiheadAttention: embed_dim {embed_dim} is not divisible by "
                f"num_heads {num_heads}"
            )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim = embed_dim // num_heads
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        o = {"device": device, "dtype": dtype}
        e = embed_dim
        self.in_proj_weight: Any = None
        self.q_proj_weight: Any = None
        self.k_proj_weight: Any = None
        self.v_proj_weight: Any = None
        if self.kdim == e == self.vdim:
            self.in_proj_weight = Parameter(weft.empty(3 * e, e, **o))
        else:
            self.q_proj_weight = Parameter(weft.empty(e, e, **o))
            self.k_proj_weight = Parameter(weft.empty(e, self.kdim, **o))
            self.v_proj_weight = Parameter(weft.empty(e, self.vdim, **o))
        self.in_proj_bias: Any = Parameter(weft.empty(3 * e, **o)) if bias else None
        self.out_proj = NonDynamicallyQuantizableLinear(e, e, bias, **o)
        self.bias_k: Any = Parameter(weft.empty(1, 1, e, **o)) if add_bias_kv else None
        self.bias_v: Any = Parameter(weft.empty(1, 1, e, **o)) if add_bias_kv else None
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (
            self.in_proj_weight, self.q_proj_weight, self.k_proj_weight,
            self.v_proj_weight,
        ):  # fmt: skip
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for weight in (self.bias_k, self.bias_v):
            if weight is not None:
                init.xavier_normal_(weight)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attended values, and the weights (their mean over heads) if needed.

        A boolean mask says who is left out (PyTorch's sense here), a floating one
        is added to the scores.
        """
        need_whole_sequences("MultiheadAttention")
        single = query.ndim == 2
        q, k, v = (self._batched(x, single) for x in (query, key, value))  # (N, L, E)
        self._check(q, k, v)
        q, k, v = self._project(q, k, v)
        if self.bias_k is not None:
            n = k.shape[0]
            k = weft.cat([k, self.bias_k.expand(n, 1, self.embed_dim)], 1)
            v = weft.cat([v, self.bias_v.expand(n, 1, self.embed_dim)], 1)
        if self.add_zero_attn:
            zeros = k.new_zeros(k.shape[0], 1, self.embed_dim)
            k, v = weft.cat([k, zeros], 1), weft.cat([v, zeros], 1)
        mask = self._mask(q, k, key_padding_mask, attn_mask, is_causal, key.shape)
        heads = [self._heads(x) for x in (q, k, v)]  # (N, H, L, D)
        drops = self.training and self.dropout > 0
        if need_weights or drops or not q.dtype.is_floating_point:
            weights = self._weights(heads[0], heads[1], mask)
            mixed = weights @ heads[2]
        else:
            scale = 1 / math.sqrt(self.head_dim)
            q, k, v = heads
            mixed = attention(q, k, v, mask, scale=scale, zeros=False)
        mixed = mixed.transpose(1, 2).flatten(2)  # (N, L, E)
        out = self._unbatched(self.out_proj(mixed), single)
        if not need_weights:
            return out, None
        shown = weights.mean(1) if average_attn_weights else weights
        return out, (shown.squeeze(0) if single else shown)

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        scores = (q / math.sqrt(self.head_dim)) @ k.transpose(-2, -1)
        if mask is not None:
            scores = scores + mask
        return F.dropout(weft.softmax(scores, -1), self.dropout, self.training)

    def _batched(self, x: Tensor, single: bool) -> Tensor:
        if single:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _unbatched(self, x: Tensor, single: bool) -> Tensor:
        if single:
            return x.squeeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _check(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        wanted = (self.embed_dim, self.kdim, self.vdim)
        got = tuple(x.shape[-1] for x in (q, k, v))
        if got != wanted or k.shape[:2] != v.shape[:2] or q.shape[0] != k.shape[0]:
            raise ShapeError(
                f"MultiheadAttention: expected query, key and value with {wanted} "
                f"features and equal batches, got (N, L, E) shapes {q.shape}, "
                f"{k.shape} and {v.shape}"
            )

    def _project(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases: Any = (None,) * 3
        if self.in_proj_bias is not None:
            biases = self.in_proj_bias.chunk(3)
        return tuple(
            F.linear(x, w, b)
            for x, w, b in zip((q, k, v), weights, biases, strict=True)
        )

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _mask(
        self, q: Tensor, k: Tensor, padding: Any, mask: Any, causal: bool, shape: Any
    ) -> Tensor | None:
        """One mask to add to scores of shape (N, H, L, S)."""
        added = k.shape[1] - (
            shape[-2] if self.batch_first or len(shape) == 2 else shape[0]
        )
        if causal and mask is None:
            seen = weft.ones(
                q.shape[1], k.shape[1] - added, dtype=weft.bool, device=q.device
            )
            mask = ~seen.tril()
        total = None
        if mask is not None:
            mask = _additive(mask, q.dtype)
            if mask.ndim == 3:
                mask = mask.reshape(-1, self.num_heads, *mask.shape[1:])
            total = weft.pad(mask, (0, added)) if added else mask
        if padding is not None:
            padding = _additive(padding, q.dtype)
            padding = padding.reshape(-1, 1, 1, padding.shape[-1])
            padding = weft.pad(padding, (0, added)) if added else padding
            total = padding if total is None else total + padding
        return total


def attention_with(
    embed_dim: int, num_heads: int, dropout: float, add_zero_attn: bool,
    training: bool, joint: Any, separate: Any, in_bias: Any, extra: Any, out: Any,
    sizes: Any,
) -> MultiheadAttention:  # fmt: skip
    """A module of attention that holds tensors which are given, as they are."""
    module = MultiheadAttention.__new__(MultiheadAttention)
    Module.__init__(module)
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    module.__dict__.update(
        zip(names, separate, strict=True), embed_dim=embed_dim, num_heads=num_heads,
        head_dim=embed_dim // num_heads, dropout=dropout, training=training,
        add_zero_attn=add_zero_attn, batch_first=False, in_proj_weight=joint,
        in_proj_bias=in_bias, bias_k=extra[0], bias_v=extra[1], kdim=sizes[0],
        vdim=sizes[1], out_proj=lambda x: F.linear(x, *out),
    )  # fmt: skip
    return module


def _additive(mask: Tensor, dtype: Any) -> Tensor:
    """A boolean mask (True: left out) as numbers to add."""
    if mask.dtype is not weft.bool:
        return mask
    return weft.where(mask, -math.inf, weft.zeros((), dtype=dtype))


def _clones(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


class _TransformerLayer(Module):
    """Attention and a feed-forward part, each with a residual and a norm."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        o = {"device": device, "dtype": dtype}
        self.norm_first = norm_first
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **o
        )
        if self.attends_memory:
            self.multihead_attn = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, **o
            )
        self.linear1 = Linear(d_model, dim_feedforward, bias, **o)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **o)
        count = 3 if self.attends_memory else 2
        for k in range(1, count + 1):
            setattr(
                self, f"norm{k}", LayerNorm(d_model, layer_norm_eps, bias=bias, **o)
            )
        for k in range(1, count + 1):
            setattr(self, f"dropout{k}", Dropout(dropout))
        self.activation = find_activation(activation)

    attends_memory = False

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _residual(self, x: Tensor, k: int, part: Callable[[Tensor], Tensor]) -> Tensor:
        norm, drop = getattr(self, f"norm{k}"), getattr(self, f"dropout{k}")
        if self.norm_first:
            return x + drop(part(norm(x)))
        return norm(x + drop(part(x)))


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward network.

    >>> layer = weft.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> layer(weft.rand(3, 5, 8)).shape
    (3, 5, 8)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(
                x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal
            )[0]

        x = self._residual(src, 1, attend)
        return self._residual(x, 2, self._feed_forward)


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to the encoder's memory, and a feed-forward network.

    >>> layer = weft.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(weft.rand(3, 5, 8), weft.rand(3, 7, 8)).shape
    (3, 5, 8)
    """

    attends_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal
            )[0]

        def look(x: Tensor) -> Tensor:
            return self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask,
                is_causal=memory_is_causal,
            )[0]  # fmt: skip

        x = self._residual(tgt, 1, attend)
        x = self._residual(x, 2, look)
        return self._residual(x, 3, self._feed_forward)


class TransformerEncoder(Module):
    """Several encoder layers, one after the other.

    ``enable_nested_tensor`` and ``mask_check`` choose between kernels in PyTorch and
    change no result; they are taken and left alone.

    >>> layer = weft.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> weft.nn.TransformerEncoder(layer, 2)(weft.rand(3, 5, 8)).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Several decoder layers, one after the other."""

    def __init__(
        self, decoder_layer: Module, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = _clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, tgt: Tensor, memory: Tensor, *masks: Any, **options: Any
    ) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **options)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder.

    >>> net = weft.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> net(weft.rand(3, 5, 8), weft.rand(3, 4, 8)).shape
    (3, 4, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        layer = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
            batch_first, norm_first, bias, device, dtype,
        )  # fmt: skip
        o = {"bias": bias, "device": device, "dtype": dtype}
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*layer), num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, **o),
        )  # fmt: skip
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*layer), num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, **o),
        )  # fmt: skip
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask, bool(src_is_causal))
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
            memory_key_padding_mask, bool(tgt_is_causal), memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Tensor:
        """A mask that lets each position see itself and those before it."""
        return weft.full((sz, sz), -math.inf).triu(1)
