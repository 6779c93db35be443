"""Embedding tables."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn.linear import Initializer, fill
from weft.nn.module import Module
from weft.nn.parameter import Parameter


class Embedding(Module):
    """A table of vectors, looked up by index.

    >>> weft.nn.Embedding(10, 3)(weft.tensor([[1, 2]])).shape
    (1, 2, 3)
    """

    _initialiser: Any = None  # a default, for modules that PyTorch saved

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        w_init: Initializer | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = self._place(padding_idx)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._initialiser = w_init
        shape = (num_embeddings, embedding_dim)
        if _weight is None:
            table = weft.empty(shape, device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not _freeze)
            self.reset_parameters()
        elif _weight.shape != shape:
            raise ShapeError(
                f"{type(self).__name__}: expected _weight of shape {shape}, got "
                f"{_weight.shape}"
            )
        else:
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def _place(self, padding_idx: int | None) -> int | None:
        n = self.num_embeddings
        if padding_idx is not None and not -n <= padding_idx < n:
            raise ArgumentError(
                f"{type(self).__name__}: padding_idx {padding_idx} is out of range for "
                f"{n} rows"
            )
        return None if padding_idx is None else padding_idx % n

    def reset_parameters(self) -> None:
        """Initialise anew; the padding row is zero."""
        fill(self.weight, self._initialiser, init.normal_)
        if self.padding_idx is not None:
            with weft.no_grad():
                self.weight[self.padding_idx] = 0

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, **options: Any
    ) -> Embedding:
        """A table with given vectors, fixed unless ``freeze=False``."""
        if embeddings.ndim != 2:
            raise ShapeError(
                f"{cls.__name__}: expected a 2-d table, got shape {embeddings.shape}"
            )
        rows, width = embeddings.shape
        return cls(rows, width, _weight=embeddings, _freeze=freeze, **options)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq, self.sparse,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text


class EmbeddingBag(Embedding):
    """Sums, means or maxima of bags of looked-up vectors.

    >>> weft.nn.EmbeddingBag(10, 3)(weft.tensor([[1, 2], [3, 4]])).shape
    (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
        *,
        _freeze: bool = False,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type,
            scale_grad_by_freq, sparse, _weight, _freeze, device, dtype,
        )  # fmt: skip
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type,
            self.scale_grad_by_freq, self.mode, self.sparse, per_sample_weights,
            self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"
