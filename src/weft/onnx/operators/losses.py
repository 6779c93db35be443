"""Losses of classes."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.onnx.registry import operator


@operator("NegativeLogLikelihoodLoss")
def nll_loss(
    x: Tensor, target: Tensor, weight: Any = None, *, reduction: str = "mean",
    ignore_index: int | None = None,
) -> Tensor:  # fmt: skip
    """Minus the logarithm of the probability of each target class."""
    target = target.long()
    ignored = None if ignore_index is None else target == ignore_index
    at = target if ignored is None else weft.where(ignored, 0, target)
    loss = -weft.gather(x, 1, at.unsqueeze(1)).squeeze(1)
    scale = weft.ones_like(loss) if weight is None else weight[at]
    if ignored is not None:
        scale = weft.where(ignored, weft.zeros_like(scale), scale)
        loss = weft.where(ignored, weft.zeros_like(loss), loss)
    loss = loss * scale
    if reduction == "none":
        return loss
    total = loss.sum()
    return total if reduction == "sum" else total / scale.sum()


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    x: Tensor, target: Tensor, weight: Any = None, *, reduction: str = "mean",
    ignore_index: int | None = None, outputs: int = 1,
) -> Any:  # fmt: skip
    """The loss of target classes under a softmax; and its logarithm."""
    logs = weft.log_softmax(x, 1)
    loss = nll_loss(
        logs, target, weight, reduction=reduction, ignore_index=ignore_index
    )
    return (loss, logs) if outputs > 1 else loss
