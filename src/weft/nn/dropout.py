"""Dropout layers."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.nn.functional_module import TrainingModule


class _Dropout(TrainingModule):
    options = {"p": 0.5, "inplace": False}
    shows = "p={p}, inplace={inplace}"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not 0 <= self.p <= 1:
            raise ArgumentError(
                f"{type(self).__name__}: expected a probability from 0 to 1, got "
                f"{self.p}"
            )


class Dropout(_Dropout):
    """Elements set to zero with probability p while training.

    >>> weft.nn.Dropout(0.5).eval()(weft.ones(2))
    tensor([1., 1.])
    """

    function = F.dropout


class Dropout1d(_Dropout):
    """Whole channels of (N, C, L) dropped while training."""

    function = F.dropout1d


class Dropout2d(_Dropout):
    """Whole channels of (N, C, H, W) dropped while training."""

    function = F.dropout2d


class Dropout3d(_Dropout):
    """Whole channels of (N, C, D, H, W) dropped while training."""

    function = F.dropout3d


class AlphaDropout(_Dropout):
    """Dropout for self-normalising networks."""

    function = F.alpha_dropout


class FeatureAlphaDropout(_Dropout):
    """``AlphaDropout`` of whole channels."""

    function = F.feature_alpha_dropout
