"""Models of sequences: an encoder transformer and a character LSTM."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor


class EncoderClassifier(nn.Module):
    """A transformer encoder that classifies whole sequences of any length.

    >>> net = weft.models.EncoderClassifier(vocab=20, classes=3, width=16, heads=2)
    >>> net(weft.ones(4, 7, dtype=weft.int64)).shape
    (4, 3)
    """

    def __init__(
        self,
        vocab: int,
        classes: int,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        context: int = 512,
        dropout: float = 0.0,
        padding_idx: int = 0,
    ) -> None:
        super().__init__()
        self.padding_idx = padding_idx
        self.token = nn.Embedding(vocab, width, padding_idx=padding_idx)
        self.position = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        padding = ids == self.padding_idx  # (N, T)
        x = self.token(ids) + self.position(weft.arange(ids.shape[1]))
        x = self.encoder(x, src_key_padding_mask=padding)
        kept = (~padding).to(x.dtype).unsqueeze(-1)
        mean = (x * kept).sum(1) / kept.sum(1).clamp(min=1)  # (N, C)
        return self.head(mean)


class CharLSTM(nn.Module):
    """Logits of the next character, with the state to go on from.

    >>> net = weft.models.CharLSTM(vocab=20, width=8)
    >>> logits, state = net(weft.zeros(2, 5, dtype=weft.int64))
    >>> logits.shape
    (2, 5, 20)
    """

    def __init__(
        self, vocab: int, width: int = 128, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        x, state = self.lstm(self.token(ids), state)
        return self.head(x), state

    @weft.no_grad()
    def generate(self, ids: Tensor, count: int, temperature: float = 1.0) -> Tensor:
        """Characters that follow ``ids`` (B, T), drawn one after the other."""
        logits, state = self(ids)
        for _ in range(count):
            chosen = weft.multinomial((logits[:, -1] / temperature).softmax(-1), 1)
            ids = weft.cat([ids, chosen], 1)
            logits, state = self(chosen, state)
        return ids
