"""Linear maps, bilinear forms and distances."""

from __future__ import annotations

import weft
from weft import Tensor
from weft.errors import ShapeError


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``.

    >>> weft.nn.functional.linear(weft.ones(1, 2), weft.ones(3, 2)).shape
    (1, 3)
    """
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
    if (input1.shape[-1], input2.shape[-1]) != want:
        raise ShapeError(
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
    dot = (x1 * x2).sum(dim)
    sizes = [weft.clamp(x.norm(dim=dim), min=eps) for x in (x1, x2)]
    return dot / (sizes[0] * sizes[1])


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of the differences of rows.

    >>> f = weft.nn.functional.pairwise_distance
    >>> f(weft.tensor([[3.0, 4.0]]), weft.zeros(1, 2), eps=0.0)
    tensor([5.])
    """
    return (x1 - x2 + eps).norm(p, -1, keepdim)
