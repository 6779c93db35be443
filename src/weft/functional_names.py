"""Functions of networks that PyTorch has under ``torch`` itself, as ``weft.conv2d``.

Those whose arguments have another order there are written out; the rest are
``nn.functional``'s.
"""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.ops.ranges import triu_indices
from weft.ops.statistics import norm


def __getattr__(name: str) -> Any:
    return getattr(F, name)


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.dropout``; whether it trains is not optional.

    >>> weft.dropout(weft.ones(2), 0.5, False)
    tensor([1., 1.])
    """
    return F.dropout(input, p, train)


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """``dropout`` in place.

    >>> weft.dropout_(weft.ones(2), 0.5, False)
    tensor([1., 1.])
    """
    return input.copy_(F.dropout(input, p, train))


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.alpha_dropout``; whether it trains is not optional.

    >>> weft.alpha_dropout(weft.ones(2), 0.5, False)
    tensor([1., 1.])
    """
    return F.alpha_dropout(input, p, train)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """``nn.functional.feature_alpha_dropout``; whether it trains is not optional.

    >>> weft.feature_alpha_dropout(weft.ones(1, 2), 0.5, False)
    tensor([[1., 1.]])
    """
    return F.feature_alpha_dropout(input, p, train)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of a matrix's rows.

    >>> weft.pdist(weft.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    tensor([5.0000, 1.0000, 4.2426])
    """
    if input.ndim != 2:
        raise ShapeError(f"pdist: expected a matrix, got shape {tuple(input.shape)}")
    first, second = triu_indices(input.shape[0], input.shape[0], 1)
    return norm(input[first] - input[second], p, -1)


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a table; the table comes first here.

    >>> weft.embedding(weft.eye(2), weft.tensor([1]))
    tensor([[0., 1.]])
    """
    padding = None if padding_idx == -1 else padding_idx
    options = {"sparse": True} if sparse else {}
    return F.embedding(
        indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, **options
    )


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """``nn.functional.layer_norm``.

    >>> weft.layer_norm(weft.tensor([-1.0, 1.0]), (2,))
    tensor([-1.0000,  1.0000])
    """
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """``nn.functional.group_norm``.

    >>> weft.group_norm(weft.tensor([[-1.0, 1.0]]), 1)
    tensor([[-1.0000,  1.0000]])
    """
    return F.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """``nn.functional.batch_norm``, with weight and bias before the running values.

    >>> x, mean, var = weft.tensor([[1.0, 4.0]]), weft.ones(2), weft.ones(2)
    >>> weft.batch_norm(x, None, None, mean, var, False, 0.1, 0.0, False)
    tensor([[0., 3.]])
    """
    return F.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """``nn.functional.instance_norm``, weight and bias before the running values.

    >>> x = weft.tensor([[[-1.0, 1.0]]])
    >>> weft.instance_norm(x, None, None, None, None, True, 0.1, 0.0, False)
    tensor([[[-1.,  1.]]])
    """
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


_REDUCTIONS = ("none", "mean", "sum")


def _reduction(number: int) -> str:
    if number not in (0, 1, 2):
        raise ArgumentError(f"expected a reduction of 0, 1 or 2, got {number!r}")
    return _REDUCTIONS[number]


def kl_div(
    input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False
) -> Tensor:
    """``nn.functional.kl_div``; the reduction is a number: none, mean, sum.

    >>> p = weft.tensor([0.5, 0.5])
    >>> weft.kl_div(p.log(), p, 2)
    tensor(0.)
    """
    return F.kl_div(
        input, target, reduction=_reduction(reduction), log_target=log_target
    )


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """``nn.functional``'s; the reduction is a number: none, mean, sum.

    >>> zero = weft.zeros(2)
    >>> weft.binary_cross_entropy_with_logits(zero, zero)
    tensor(0.6931)
    """
    return F.binary_cross_entropy_with_logits(
        input, target, weight, pos_weight=pos_weight, reduction=_reduction(reduction)
    )


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool,
    full: bool,
    eps: float,
    reduction: int,
) -> Tensor:
    """``nn.functional.poisson_nll_loss``; the reduction is a number.

    >>> x = weft.tensor([0.0, 1.0])
    >>> weft.poisson_nll_loss(x, x, True, False, 1e-8, 0)
    tensor([1.0000, 1.7183])
    """
    return F.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_reduction(reduction)
    )


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    reduction: int = 1,
) -> Tensor:
    """``nn.functional.margin_ranking_loss``; the reduction is a number.

    >>> one, two, first = weft.tensor([[1.0], [3.0], [1.0]])
    >>> weft.margin_ranking_loss(one, two, first)
    tensor(2.)
    """
    return F.margin_ranking_loss(
        input1, input2, target, margin, reduction=_reduction(reduction)
    )


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1
) -> Tensor:
    """``nn.functional.hinge_embedding_loss``; the reduction is a number.

    >>> x, same = weft.tensor([0.5, 0.5]), weft.tensor([1, -1])
    >>> weft.hinge_embedding_loss(x, same, 2.0, 0)
    tensor([0.5000, 1.5000])
    """
    return F.hinge_embedding_loss(
        input, target, margin, reduction=_reduction(reduction)
    )


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    reduction: int = 1,
) -> Tensor:
    """``nn.functional.cosine_embedding_loss``; the reduction is a number.

    >>> x, y = weft.eye(2)[:1], weft.eye(2)[1:]
    >>> weft.cosine_embedding_loss(x, y, weft.ones(1))
    tensor(1.)
    """
    return F.cosine_embedding_loss(
        input1, input2, target, margin, reduction=_reduction(reduction)
    )


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> Tensor:
    """``nn.functional.triplet_margin_loss``; the reduction is a number.

    >>> x = weft.eye(3)
    >>> weft.triplet_margin_loss(x[:1], x[:1], x[1:2], p=1.0)
    tensor(0.)
    """
    return F.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap,
        reduction=_reduction(reduction),
    )  # fmt: skip


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """``nn.functional.ctc_loss``; the reduction is a number.

    >>> log_probs = weft.full((2, 1, 2), 0.5).log()
    >>> weft.ctc_loss(log_probs, weft.tensor([[1]]), [2], [1])
    tensor(0.2877)
    """
    return F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank,
        _reduction(reduction), zero_infinity,
    )  # fmt: skip
