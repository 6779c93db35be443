"""Connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.core.autocast import widened
from weft.errors import ArgumentError, OutOfRangeError, ShapeError


@widened
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log-likelihood of target sequences over all alignments.

    ``log_probs`` is (T, N, C) or (T, C); ``targets`` (N, S), or all sequences one
    after the other. With ``mean`` each loss is divided by its target's length.

    >>> logp = weft.zeros(4, 1, 3).log_softmax(2)
    >>> weft.nn.functional.ctc_loss(logp, weft.tensor([[1, 2]]), [4], [2]).shape
    ()
    """
    if log_probs.ndim not in (2, 3):
        raise ShapeError(
            f"ctc_loss: expected log_probs (T, N, C) or (T, C), got {log_probs.shape}"
        )
    single = log_probs.ndim == 2
    if single:
        log_probs, targets = log_probs.unsqueeze(1), targets.reshape(1, -1)
    steps, batch, classes = log_probs.shape
    times = _lengths("input_lengths", input_lengths, batch, steps)
    sizes = _lengths("target_lengths", target_lengths, batch, None)
    labels = _padded(targets, sizes, batch, classes, blank)
    if not 0 <= blank < classes:
        raise ArgumentError(f"ctc_loss: blank {blank} is no class of {classes}")
    loss = _forward(log_probs, labels, times, sizes, blank)
    if zero_infinity:
        loss = weft.where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        return (loss / Tensor(np.maximum(sizes, 1)).to(loss)).mean()
    if reduction == "sum":
        return loss.sum()
    if reduction != "none":
        raise ArgumentError(
            f"ctc_loss: reduction must be 'none', 'mean' or 'sum', got {reduction!r}"
        )
    return loss[0] if single else loss


def _lengths(name: str, value: Any, batch: int, limit: int | None) -> np.ndarray:
    array = value.array() if isinstance(value, Tensor) else np.asarray(value)
    array = np.atleast_1d(array).astype(np.int64)
    if array.shape != (batch,):
        raise ShapeError(f"ctc_loss: expected {batch} {name}, got shape {array.shape}")
    if (array < 0).any() or (limit is not None and (array > limit).any()):
        raise ArgumentError(
            f"ctc_loss: {name} must lie between 0 and {limit}, got {array.tolist()}"
        )
    return array


def _padded(
    targets: Tensor, sizes: np.ndarray, batch: int, classes: int, blank: int
) -> np.ndarray:
    """Targets as (N, S), padded with blanks."""
    array = targets.array()
    out = np.full((batch, int(sizes.max(initial=0))), blank, np.int64)
    if array.ndim == 1 and array.size != sizes.sum():
        raise ShapeError(
            f"ctc_loss: {array.size} targets in a row, but lengths add up to "
            f"{sizes.sum()}"
        )
    start = 0
    for n, size in enumerate(sizes):
        row = array[start : start + size] if array.ndim == 1 else array[n, :size]
        if len(row) < size:
            raise ShapeError(f"ctc_loss: target {n} is shorter than its length {size}")
        out[n, :size] = row
        start += size
    used = np.arange(out.shape[1]) < sizes[:, None]
    if ((out < 0) | (out >= classes))[used].any():
        raise OutOfRangeError(f"ctc_loss: a target is no class of {classes}")
    return out


def _forward(
    logp: Tensor, labels: np.ndarray, times: np.ndarray, sizes: np.ndarray, blank: int
) -> Tensor:
    """The log-probability of each extended target, one step of time after another."""
    steps, batch, _ = logp.shape
    width = 2 * labels.shape[1] + 1
    extended = np.full((batch, width), blank, np.int64)  # blank between all labels
    extended[:, 1::2] = labels
    skip = np.zeros((batch, width), np.bool_)  # may come from two positions back
    skip[:, 2:] = (extended[:, 2:] != blank) & (extended[:, 2:] != extended[:, :-2])
    index = Tensor(extended).to(logp.device)
    allowed = Tensor(skip).to(logp.device)
    first = weft.arange(width, device=logp.device) < 2
    alpha = weft.where(first, logp[0].gather(1, index), -math.inf)
    last = Tensor(times).to(logp.device)
    final = weft.where((last == 1).unsqueeze(1), alpha, -math.inf)
    for t in range(1, steps):
        one = weft.pad(alpha, (1, 0), value=-math.inf)[:, :width]
        two = weft.pad(alpha, (2, 0), value=-math.inf)[:, :width]
        two = weft.where(allowed, two, -math.inf)
        ways = weft.stack([alpha, one, two])
        alpha = weft.logsumexp(ways, 0) + logp[t].gather(1, index)
        final = weft.where((last == t + 1).unsqueeze(1), alpha, final)
    ends = np.zeros((batch, width), np.bool_)
    for n, size in enumerate(sizes):
        ends[n, max(2 * size - 1, 0) : 2 * size + 1] = True
    ended = Tensor(ends).to(logp.device)
    return -weft.logsumexp(weft.where(ended, final, -math.inf), 1)
