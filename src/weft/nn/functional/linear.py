"""Linear maps, bilinear forms and distances."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.core.autocast import lowered
from weft.core.mode import mode
from weft.errors import RankError, ShapeError
from weft.ops.copies import in_float32


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``.

    >>> weft.nn.functional.linear(weft.ones(1, 2), weft.ones(3, 2)).shape
    (1, 3)
    """
    if mode.autocast is not None:
        input, weight, bias = lowered(input, weight, bias)
    if input.ndim == 0 or input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"linear: expected input with {weight.shape[-1]} features in its last "
            f"dimension for weight of shape {weight.shape}, got input of shape "
            f"{input.shape}"
        )
    out = input @ weight.t()
    return out if bias is None else out + bias


def bilinear(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """``x1 W_k x2 + b_k`` for each output k.

    >>> f = weft.nn.functional.bilinear
    >>> f(weft.ones(4, 2), weft.ones(4, 3), weft.ones(5, 2, 3)).shape
    (4, 5)
    """
    want = weight.shape[1:]
    if (
        not input1.ndim
        or not input2.ndim
        or (input1.shape[-1], input2.shape[-1]) != want
    ):
        raise RankError(
            f"bilinear: weight of shape {weight.shape} needs inputs with {want} "
            f"features, got shapes {input1.shape} and {input2.shape}"
        )
    out = weft.einsum("...i,kij,...j->...k", input1, weight, input2)
    return out if bias is None else out + bias


def cosine_similarity(
    x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8
) -> Tensor:
    """The cosine of the angle between vectors along a dimension.

    >>> x = weft.tensor([[1.0, 0.0]])
    >>> weft.nn.functional.cosine_similarity(x, x * 5)
    tensor([1.])
    """

    def plain(x1: Tensor, x2: Tensor) -> Tensor:
        x1, x2 = weft.broadcast_tensors(x1, x2)
        dot = (x1 * x2).sum(dim)
        sizes = [weft.clamp(x.norm(dim=dim), min=eps) for x in (x1, x2)]
        return dot / (sizes[0] * sizes[1])

    return in_float32(plain, x1, x2)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of the differences of rows.

    >>> f = weft.nn.functional.pairwise_distance
    >>> f(weft.tensor([[3.0, 4.0]]), weft.zeros(1, 2), eps=0.0)
    tensor([5.])
    """
    return in_float32(lambda x, y: (x - y + eps).norm(p, -1, keepdim), x1, x2)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """The cross-entropy of a linear layer's scores.

    >>> x, w = weft.zeros(2, 3), weft.zeros(4, 3)
    >>> weft.nn.functional.linear_cross_entropy(x, w, weft.tensor([0, 1]))
    tensor(1.3863)
    """
    from weft.nn.functional.loss import cross_entropy

    classes, width = linear_weight.shape[0], linear_weight.shape[-1]
    rest = linear_weight.shape[1:-1]
    if rest and input.ndim < 2:
        raise ShapeError(
            f"linear_cross_entropy: a weight of shape {linear_weight.shape} needs "
            f"inputs (N, {width}), got shape {input.shape}"
        )
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    scores = linear(input, linear_weight.reshape(-1, width), bias)
    if rest:
        scores = scores.unflatten(-1, (classes, *rest))
    return cross_entropy(
        scores, target, weight=weight, reduction=reduction,
        ignore_index=-100 if ignore_index is None else ignore_index,
        label_smoothing=label_smoothing,
    )  # fmt: skip


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution over time of (T, N, C) with a weight of (K, C, out).

    >>> x, w = weft.ones(5, 2, 3), weft.ones(2, 3, 4)
    >>> weft.nn.functional.conv_tbc(x, w, weft.zeros(4)).shape
    (4, 2, 4)
    """
    from weft.nn.functional.conv import conv1d

    out = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return out.permute(2, 0, 1)
