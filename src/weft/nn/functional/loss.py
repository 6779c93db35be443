"""Losses. Each takes ``reduction``: ``mean``, ``sum`` or ``none``.

A loss refuses a prediction and a target whose shapes differ in rank: (N, 1)
against (N,) would broadcast to (N, N) and quietly average the wrong thing.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.core.autocast import widened
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.nn.functional.activation import logsigmoid
from weft.nn.functional.linear import cosine_similarity, pairwise_distance
from weft.ops.require import require


def old_reduction(size_average: bool | None, reduce: bool | None) -> str:
    """The reduction that PyTorch's two older arguments ask for, with a warning."""
    if reduce is False:
        reduction = "none"
    else:
        reduction = "sum" if size_average is False else "mean"
    warnings.warn(
        "size_average and reduce args will be deprecated, please use "
        f"reduction='{reduction}' instead.",
        stacklevel=3,
    )
    return reduction


def with_old_options(
    names: list[str], first: str = "reduction", second: str = "reduction"
) -> list[str]:
    """Names of options with ``size_average`` and ``reduce`` where PyTorch has them."""
    found = list(names)
    found.insert(found.index(second), "reduce")
    found.insert(found.index(first) if first != second else found.index("reduce"),
                 "size_average")  # fmt: skip
    return found


def _reducing(first: str = "reduction") -> Callable[[Any], Any]:
    """A loss that takes ``size_average`` and ``reduce`` in PyTorch's places too."""

    def wrap(fn: Any) -> Any:
        given = inspect.signature(fn).parameters
        names = with_old_options(list(given), first)
        place = names.index("size_average")
        wide = widened(fn)
        old = functools.partial(
            inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD
        )

        @functools.wraps(fn)
        def loss(*args: Any, **kwargs: Any) -> Any:
            if len(args) > place or "size_average" in kwargs or "reduce" in kwargs:
                kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
                average = kwargs.pop("size_average", None)
                reduce = kwargs.pop("reduce", None)
                if isinstance(average, str):  # the reduction, where it is third
                    kwargs["reduction"] = average
                elif average is not None or reduce is not None:
                    kwargs["reduction"] = old_reduction(average, reduce)
                args = ()
            return wide(*args, **kwargs)

        loss.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [given[n] if n in given else old(n, default=None) for n in names]
        )
        return loss

    return wrap


def _reduce(name: str, loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    raise ArgumentError(
        f"{name}: reduction must be 'none', 'mean' or 'sum', got {reduction!r}"
    )


def _same_shape(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        raise ShapeError(
            f"{name}: expected prediction and target of the same shape, got "
            f"{input.shape} and {target.shape}; reshape one of them, for instance "
            "with .squeeze(-1) or .expand_as(...)"
        )


def _weighted(name: str, loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is None:
        return _reduce(name, loss, reduction)
    if reduction == "mean":
        return (loss * weight).sum() / weight.expand_as(loss).sum()
    return _reduce(name, loss * weight, reduction)


# -- regression


@_reducing()
def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """Squared differences.

    >>> weft.nn.functional.mse_loss(weft.tensor([1.0, 3.0]), weft.tensor([0.0, 0.0]))
    tensor(5.)
    """
    _same_shape("mse_loss", input, target)
    off = input - target
    return _weighted("mse_loss", off * off, weight, reduction)


@_reducing()
def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """Absolute differences.

    >>> weft.nn.functional.l1_loss(weft.tensor([1.0, -3.0]), weft.zeros(2))
    tensor(2.)
    """
    _same_shape("l1_loss", input, target)
    return _weighted("l1_loss", weft.abs(input - target), weight, reduction)


@_reducing()
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Squared below ``beta``, absolute above it.

    >>> weft.nn.functional.smooth_l1_loss(weft.tensor([0.5, 3.0]), weft.zeros(2))
    tensor(1.3125)
    """
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: expected beta of at least 0, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction)
    _same_shape("smooth_l1_loss", input, target)
    size = weft.abs(input - target)
    loss = weft.where(size < beta, 0.5 * size * size / beta, size - 0.5 * beta)
    return _reduce("smooth_l1_loss", loss, reduction)


@widened
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Squared below ``delta``, linear above it.

    >>> weft.nn.functional.huber_loss(weft.tensor([0.5, 3.0]), weft.zeros(2))
    tensor(1.3125)
    """
    if delta <= 0:
        raise ArgumentError(f"huber_loss: expected delta above 0, got {delta}")
    _same_shape("huber_loss", input, target)
    size = weft.abs(input - target)
    loss = weft.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))
    return _weighted("huber_loss", loss, weight, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of a normal distribution.

    >>> f = weft.nn.functional.gaussian_nll_loss
    >>> f(weft.zeros(2), weft.ones(2), weft.ones(2))
    tensor(0.5000)
    """
    _same_shape("gaussian_nll_loss", input, target)
    if not isinstance(var, Tensor):
        var = weft.full_like(input, float(var))
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = var.unsqueeze(-1)
        elif var.shape != (*input.shape[:-1], 1):
            raise ShapeError(
                f"gaussian_nll_loss: variance of shape {var.shape} does not fit input "
                f"of shape {input.shape}"
            )
    text = "gaussian_nll_loss: a variance is negative: {value}{where}"
    var = require(var, lambda v: (v >= 0) | (v != v), text)
    # the gradient sees the variance itself, the value its clamped form
    safe = var + (weft.clamp(var, min=eps) - var).detach()
    off = input - target
    loss = 0.5 * (weft.log(safe) + off * off / safe)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce("gaussian_nll_loss", loss, reduction)


@_reducing("eps")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of a Poisson distribution.

    >>> weft.nn.functional.poisson_nll_loss(weft.zeros(2), weft.ones(2))
    tensor(1.)
    """
    _same_shape("poisson_nll_loss", input, target)
    if log_input:
        loss = weft.exp(input) - target * input
    else:
        loss = input - target * weft.log(input + eps)
    if full:
        stirling = target * weft.log(target) - target
        stirling = stirling + 0.5 * weft.log(2 * math.pi * target)
        loss = loss + weft.where(target > 1, stirling, 0.0)
    return _reduce("poisson_nll_loss", loss, reduction)


# -- two classes


def _chances(x: Tensor, text: str) -> Tensor:
    """Elements that must be between 0 and 1, unless they are NaN."""
    return require(x, lambda p: ((p >= 0) & (p <= 1)) | (p != p), text)


def _targets(name: str, target: Tensor) -> Tensor:
    return _chances(
        target,
        f"{name}: expected targets between 0 and 1, got {{low}} to {{high}}; map "
        "labels of two classes to 0 and 1",
    )


def _check_pos_weight(input: Tensor, weight: Tensor) -> None:
    shape = (1,) * (input.ndim - weight.ndim) + tuple(weight.shape)
    fits = (w in (1, n) for w, n in zip(shape, input.shape, strict=False))
    if weight.ndim > input.ndim or not all(fits):
        raise ShapeError(
            "binary_cross_entropy_with_logits: expected a pos_weight that broadcasts "
            f"to {input.shape}, one for each class, got shape {weight.shape}"
        )


@_reducing()
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy of probabilities; logarithms are cut off at -100.

    >>> f = weft.nn.functional.binary_cross_entropy
    >>> f(weft.tensor([0.5]), weft.tensor([1.0]))
    tensor(0.6931)
    """
    _same_shape("binary_cross_entropy", input, target)
    input = _chances(
        input,
        "binary_cross_entropy: expected probabilities between 0 and 1, got {low} to "
        "{high}; use binary_cross_entropy_with_logits for raw scores",
    )
    target = _targets("binary_cross_entropy", target)
    log_p = weft.clamp(weft.log(input), min=-100.0)
    log_q = weft.clamp(weft.log1p(-input), min=-100.0)
    loss = -(target * log_p + (1 - target) * log_q)
    loss = loss if weight is None else loss * weight
    return _reduce("binary_cross_entropy", loss, reduction)


@_reducing()
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of raw scores, without overflow.

    >>> f = weft.nn.functional.binary_cross_entropy_with_logits
    >>> f(weft.tensor([0.0]), weft.tensor([1.0]))
    tensor(0.6931)
    """
    _same_shape("binary_cross_entropy_with_logits", input, target)
    target = _targets("binary_cross_entropy_with_logits", target)
    if pos_weight is not None:
        _check_pos_weight(input, pos_weight)
    factor: Any = 1.0 if pos_weight is None else (pos_weight - 1) * target + 1
    loss = (1 - target) * input - factor * logsigmoid(input)
    loss = loss if weight is None else loss * weight
    return _reduce("binary_cross_entropy_with_logits", loss, reduction)


# -- many classes


def _class_first(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities as (rows, C) and targets as (rows,)."""
    if input.ndim == 0:
        raise ShapeError(f"{name}: expected scores (C), (N, C) or (N, C, ...), got ()")
    if input.ndim == 1:
        if target.ndim != 0:
            raise ShapeError(
                f"{name}: input of shape {input.shape} needs a 0-d target, got "
                f"{target.shape}"
            )
        return input.unsqueeze(0), target.reshape(1)
    want = (input.shape[0], *input.shape[2:])
    if target.shape != want:
        raise ShapeError(
            f"{name}: input of shape {input.shape} needs class indices of shape "
            f"{want}, got {target.shape}"
        )
    rows = input.movedim(1, -1).reshape(-1, input.shape[1])
    return rows, target.reshape(-1)


def _classes(name: str, target: Tensor, classes: int, ignore: int) -> Tensor:
    """Class indices, each of which must be below ``classes`` or the one to ignore."""
    if target.dtype.is_inexact or target.dtype is weft.bool:
        raise DTypeError(
            f"{name}: expected integer class indices, got {target.dtype.name}; use "
            ".long()"
        )
    return require(
        target,
        lambda t: ((t >= 0) & (t < classes)) | (t == ignore),
        f"{name}: class index {{value}}{{where}} is out of range for {classes} classes",
        OutOfRangeError,
    )


@_reducing("ignore_index")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-probability of each target class.

    >>> logp = weft.log(weft.tensor([[0.5, 0.5]]))
    >>> weft.nn.functional.nll_loss(logp, weft.tensor([0]))
    tensor(0.6931)
    """
    return _nll("nll_loss", input, target, weight, ignore_index, reduction)


def _nll(
    name: str, input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int,
    reduction: str,
) -> Tensor:  # fmt: skip
    rows, flat = _class_first(name, input, target)
    flat = _classes(name, flat, rows.shape[1], ignore_index)
    kept = flat != ignore_index
    safe = weft.where(kept, flat, 0)
    picked = -rows.gather(1, safe.unsqueeze(1)).squeeze(1)
    share = kept.to(input.dtype)
    if weight is not None:
        if weight.shape != (rows.shape[1],):
            raise ShapeError(
                f"{name}: expected one weight for each of {rows.shape[1]} classes, "
                f"got shape {weight.shape}"
            )
        share = share * weight[safe]
    loss = weft.where(kept, picked, 0.0) * share
    if reduction == "none":
        return loss.reshape(target.shape)
    if reduction == "mean":
        return loss.sum() / share.sum()
    return _reduce(name, loss, reduction)


@_reducing("ignore_index")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy of raw scores with class indices or class probabilities.

    >>> weft.nn.functional.cross_entropy(weft.zeros(1, 4), weft.tensor([2]))
    tensor(1.3863)
    """
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(
            f"cross_entropy: label_smoothing must be in [0, 1], got {label_smoothing}"
        )
    if input.ndim == 0:
        raise ShapeError("cross_entropy: expected scores of classes, got a 0-d tensor")
    dim = 0 if input.ndim == 1 else 1
    if not input.shape[dim]:
        raise ShapeError(
            f"cross_entropy: expected scores of at least one class along dimension "
            f"{dim}, got shape {input.shape}"
        )
    logp = weft.log_softmax(input, dim)
    if target.shape == input.shape and target.dtype.is_floating_point:
        if ignore_index >= 0:
            raise ArgumentError(
                "cross_entropy: ignore_index names a class, but the target holds "
                "probabilities"
            )
        return _soft_targets(logp, target, dim, weight, reduction, label_smoothing)
    plain = _nll("cross_entropy", logp, target, weight, ignore_index, reduction)
    if label_smoothing == 0:
        return plain
    smooth = _smooth(logp, target, dim, weight, ignore_index, reduction)
    classes = input.shape[dim]
    return (1 - label_smoothing) * plain + label_smoothing / classes * smooth


def _smooth(
    logp: Tensor, target: Tensor, dim: int, weight: Any, ignore: int, reduction: str
) -> Tensor:
    """The loss of spreading each target evenly over all classes."""
    shape = [1] * logp.ndim
    shape[dim] = -1
    spread = logp if weight is None else logp * weight.reshape(shape)
    kept = target != ignore
    loss = weft.where(kept, -spread.sum(dim), 0.0)
    if reduction != "mean":
        return _reduce("cross_entropy", loss, reduction)
    if weight is None:
        return loss.sum() / kept.to(logp.dtype).sum()
    share = weft.where(kept, weight[weft.where(kept, target, 0)], 0.0)
    return loss.sum() / share.sum()


def _soft_targets(
    logp: Tensor,
    target: Tensor,
    dim: int,
    weight: Any,
    reduction: str,
    smoothing: float,
) -> Tensor:
    classes = logp.shape[dim]
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    if weight is not None:
        shape = [1] * logp.ndim
        shape[dim] = -1
        target = target * weight.reshape(shape)
    loss = -(logp * target).sum(dim)
    if reduction == "mean":
        return loss.sum() / max(loss.numel(), 1)
    return _reduce("cross_entropy", loss, reduction)


@_reducing()
def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """``target * (log(target) - input)``, where ``input`` holds log-probabilities.

    >>> p = weft.tensor([[0.5, 0.5]])
    >>> weft.nn.functional.kl_div(p.log(), p, reduction="batchmean")
    tensor(0.)
    """
    _same_shape("kl_div", input, target)
    if log_target:
        loss = weft.exp(target) * (target - input)
    else:
        loss = weft.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.shape[0]
    return _reduce("kl_div", loss, reduction)


# -- margins


@_reducing()
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """``x`` where the target is 1, ``max(0, margin - x)`` where it is -1.

    >>> f = weft.nn.functional.hinge_embedding_loss
    >>> f(weft.tensor([0.5, 0.5]), weft.tensor([1.0, -1.0]))
    tensor(0.5000)
    """
    _same_shape("hinge_embedding_loss", input, target)
    apart = weft.clamp(margin - input, min=0.0)
    loss = weft.where(target != -1, input, 0.0) + weft.where(target != 1, apart, 0.0)
    return _reduce("hinge_embedding_loss", loss, reduction)


@_reducing()
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, -target * (x1 - x2) + margin)``.

    >>> f = weft.nn.functional.margin_ranking_loss
    >>> f(weft.tensor([1.0]), weft.tensor([3.0]), weft.tensor([1.0]))
    tensor(2.)
    """
    _same_shape("margin_ranking_loss", input1, input2)
    _same_shape("margin_ranking_loss", input1, target)
    loss = weft.clamp(-target * (input1 - input2) + margin, min=0.0)
    return _reduce("margin_ranking_loss", loss, reduction)


@_reducing()
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``log(1 + exp(-target * x))``.

    >>> weft.nn.functional.soft_margin_loss(weft.zeros(1), weft.ones(1))
    tensor(0.6931)
    """
    _same_shape("soft_margin_loss", input, target)
    return _reduce("soft_margin_loss", -logsigmoid(target * input), reduction)


@_reducing()
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over classes of binary cross-entropies of raw scores.

    >>> f = weft.nn.functional.multilabel_soft_margin_loss
    >>> f(weft.zeros(1, 2), weft.ones(1, 2))
    tensor(0.6931)
    """
    _same_shape("multilabel_soft_margin_loss", input, target)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    loss = loss if weight is None else loss * weight
    return _reduce("multilabel_soft_margin_loss", loss.mean(-1), reduction)


@_reducing()
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``sum_i max(0, margin - x[y] + x[i])^p / C`` over the other classes.

    >>> weft.nn.functional.multi_margin_loss(weft.zeros(1, 2), weft.tensor([0]))
    tensor(0.5000)
    """
    single = input.ndim < 2  # one sample, maybe of one class
    if single:
        input, target = input.reshape(1, -1), target.reshape(1)
    rows, flat = _class_first("multi_margin_loss", input, target)
    flat = _classes("multi_margin_loss", flat, rows.shape[1], -(10**9))
    own = rows.gather(1, flat.unsqueeze(1))
    slack = weft.clamp(margin - own + rows, min=0.0) ** p
    if weight is not None:
        slack = slack * weight[flat].unsqueeze(1)
    others = weft.one_hot(flat, rows.shape[1]) == 0
    loss = weft.where(others, slack, 0.0).sum(1) / rows.shape[1]
    return _reduce("multi_margin_loss", loss[0] if single else loss, reduction)


@_reducing()
def multilabel_margin_loss(
    input: Tensor, target: Tensor, reduction: str = "mean"
) -> Tensor:
    """Margins between every labelled and every other class; labels end at -1.

    >>> f = weft.nn.functional.multilabel_margin_loss
    >>> f(weft.zeros(1, 2), weft.tensor([[0, -1]]))
    tensor(0.5000)
    """
    _same_shape("multilabel_margin_loss", input, target)
    classes = input.shape[-1] if input.ndim else 1
    rows, labels = input.reshape(-1, classes), target.reshape(-1, classes)
    ended = (labels < 0).long().cumsum(1) > 0
    safe = weft.where(ended, 0, labels)
    safe = _classes("multilabel_margin_loss", safe, rows.shape[1], -(10**9))
    hot = weft.one_hot(safe, rows.shape[1]) * (~ended).long().unsqueeze(-1)
    is_label = hot.sum(1) > 0  # (N, C)
    own = rows.gather(1, safe)  # (N, C)
    slack = weft.clamp(1 - own.unsqueeze(2) + rows.unsqueeze(1), min=0.0)
    counted = (~ended).unsqueeze(2) & (~is_label).unsqueeze(1)
    loss = weft.where(counted, slack, 0.0).sum((1, 2)) / rows.shape[1]
    loss = loss if input.ndim > 1 else loss[0]
    return _reduce("multilabel_margin_loss", loss, reduction)


@_reducing()
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1.

    >>> x = weft.tensor([[1.0, 0.0]])
    >>> weft.nn.functional.cosine_embedding_loss(x, x, weft.tensor([1.0]))
    tensor(0.)
    """
    _same_shape("cosine_embedding_loss", input1, input2)
    a, b = (x if x.dtype.is_inexact else x.float() for x in (input1, input2))
    cos = cosine_similarity(a, b, dim=-1)
    if target.shape != cos.shape:
        raise ShapeError(
            f"cosine_embedding_loss: inputs of shape {input1.shape} need a target of "
            f"shape {cos.shape}, got {target.shape}"
        )
    apart = weft.clamp(cos - margin, min=0.0)
    loss = weft.where(target == 1, 1 - cos, 0.0) + weft.where(target == -1, apart, 0.0)
    return _reduce("cosine_embedding_loss", loss, reduction)


@_reducing()
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``.

    >>> a = weft.zeros(1, 2)
    >>> weft.nn.functional.triplet_margin_loss(a, a, a)
    tensor(1.)
    """

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin,
        swap=swap, reduction=reduction,
    )  # fmt: skip


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """The triplet loss with a given distance function.

    >>> a = weft.zeros(1, 2)
    >>> weft.nn.functional.triplet_margin_with_distance_loss(a, a, a, margin=0.5)
    tensor(0.5000)
    """
    _same_shape("triplet_margin_loss", anchor, positive)
    _same_shape("triplet_margin_loss", anchor, negative)
    if margin <= 0:
        raise ArgumentError(f"triplet_margin_loss: expected margin > 0, got {margin}")
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = weft.minimum(far, distance(positive, negative))
    loss = weft.clamp(near - far + margin, min=0.0)
    return _reduce("triplet_margin_loss", loss, reduction)
