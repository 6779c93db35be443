"""A GPT: a decoder-only transformer over characters or tokens."""

from __future__ import annotations

import math

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.nn import functional as F


class CausalSelfAttention(nn.Module):
    """Each position attends to itself and those before it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, D)
            for part in self.qkv(x).chunk(3, -1)
        )
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        y = y.transpose(1, 2).flatten(2)  # (B, T, C)
        return F.dropout(self.proj(y), self.dropout, self.training)


class Block(nn.Module):
    """Attention, then a feed-forward part, each behind a norm and around a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, act="gelu"),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """Logits of the next token at every position.

    >>> net = weft.models.GPT(vocab=50, context=16, width=32, heads=4, layers=2)
    >>> net(weft.zeros(1, 16, dtype=weft.int64)).shape
    (1, 16, 50)
    """

    def __init__(
        self,
        vocab: int,
        context: int = 256,
        width: int = 384,
        heads: int = 6,
        layers: int = 6,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.context = context
        self.token = nn.Embedding(vocab, width)
        self.position = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.token.weight  # the table serves both ends
        self._initialise(layers)

    def _initialise(self, layers: int) -> None:
        for name, p in self.named_parameters():
            if p.ndim < 2:
                continue
            last = name.endswith(("proj.weight", "mlp.1.weight"))
            scale = 0.02 / math.sqrt(2 * layers) if last else 0.02
            nn.init.normal_(p, 0.0, scale)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor) -> Tensor:
        steps = ids.shape[-1]
        if steps > self.context:
            raise ValueError(
                f"GPT: {steps} tokens do not fit into a context of {self.context}"
            )
        x = self.token(ids) + self.position(weft.arange(steps))  # (B, T, C)
        x = self.drop(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # (B, T, vocab)

    @weft.no_grad()
    def generate(self, ids: Tensor, count: int, temperature: float = 1.0) -> Tensor:
        """Tokens that follow ``ids`` (B, T), drawn one after the other."""
        for _ in range(count):
            logits = self(ids[:, -self.context :])[:, -1] / temperature
            chosen = weft.multinomial(logits.softmax(-1), 1)
            ids = weft.cat([ids, chosen], 1)
        return ids
