"""Connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.core.autocast import widened
from weft.errors import ArgumentError, OutOfRangeError, ShapeError
from weft.ops.operands import as_index
from weft.ops.require import known, require


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
    if not 0 <= blank < classes:
        raise ArgumentError(f"ctc_loss: blank {blank} is no class of {classes}")
    times = _lengths("input_lengths", input_lengths, batch, steps).to(log_probs.device)
    sizes = _lengths("target_lengths", target_lengths, batch, None)
    sizes, targets = sizes.to(log_probs.device), targets.to(log_probs.device)
    table = _table(as_index("ctc_loss", targets), sizes, classes, blank)
    loss = alignments(log_probs, table, sizes, times, blank)
    if zero_infinity:
        loss = weft.where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        return (loss / sizes.clamp(min=1).to(loss.dtype)).mean()
    if reduction == "sum":
        return loss.sum()
    if reduction != "none":
        raise ArgumentError(
            f"ctc_loss: reduction must be 'none', 'mean' or 'sum', got {reduction!r}"
        )
    return loss[0] if single else loss


def _lengths(name: str, value: Any, batch: Any, limit: Any) -> Tensor:
    given = value if isinstance(value, Tensor) else weft.tensor(value)
    found = as_index("ctc_loss", given).to(weft.int64)
    found = found.reshape(1) if found.ndim == 0 else found
    if found.shape != (batch,):
        raise ShapeError(f"ctc_loss: expected {batch} {name}, got shape {found.shape}")
    return require(
        found,
        lambda n: n >= 0 if limit is None else (n >= 0) & (n <= limit),
        f"ctc_loss: {name} must lie between 0 and {limit}, got {{value}}{{where}}",
    )


def _table(targets: Tensor, sizes: Tensor, classes: Any, blank: int) -> Tensor:
    """Targets as (N, S), with blanks behind the last label of each."""
    count = targets.numel()
    longest = int(sizes.max()) if count and known(sizes) else None
    if targets.ndim == 2:
        width = targets.shape[1]
        sizes = require(
            sizes,
            lambda n: n <= width,
            f"ctc_loss: targets have {width} places, fewer than length {{value}}"
            "{where}",
            ShapeError,
        )
        targets = targets[:, :longest]
        used = weft.arange(targets.shape[1], device=sizes.device) < sizes.unsqueeze(1)
    else:
        require(
            sizes.sum(),
            lambda n: n == count,
            f"ctc_loss: {count} targets in a row, but lengths add up to {{value}}",
            ShapeError,
        )
        spots = weft.arange(count if longest is None else longest, device=sizes.device)
        used = spots < sizes.unsqueeze(1)
        place = (sizes.cumsum(0) - sizes).unsqueeze(1) + spots
        targets = targets[weft.where(used, place, 0)]
    labels = require(
        weft.where(used, targets, blank),
        lambda k: (k >= 0) & (k < classes),
        f"ctc_loss: target {{value}}{{where}} is no class of {classes}",
        OutOfRangeError,
    )
    return labels.to(weft.int64)


def alignments(
    logp: Tensor, table: Tensor, sizes: Tensor, times: Tensor, blank: Any
) -> Tensor:
    """A sum over paths through the labels with blanks between them, step by step."""
    batch, width = table.shape[0], 2 * table.shape[1] + 1
    pairs = weft.stack([weft.full_like(table, blank), table], 2)
    extended = weft.pad(pairs.reshape(batch, width - 1), (0, 1), value=blank)
    before = weft.pad(extended, (2, 0), value=blank).narrow(1, 0, width)
    skips = (extended != blank) & (extended != before)
    spots = weft.arange(width, device=table.device)
    low = -math.inf
    given = logp.gather(2, extended.expand(logp.shape[0], batch, width))
    times, clock = times.reshape(-1, 1), weft.arange(1, logp.shape[0] + 1)
    ending = times == clock.to(times.device).reshape(-1, 1, 1)

    def step(carry: Any, now: Any) -> Any:
        before, final = carry  # with two impossible places in front
        ways = [before.narrow(1, k, width) for k in (2, 1, 0)]
        ways[2] = weft.where(skips, ways[2], low)
        alpha = weft.logsumexp(weft.stack(ways), 0) + now[0]
        return (
            weft.pad(alpha, (2, 0), value=low),
            weft.where(now[1], alpha, final),
        ), ()

    # Before the first step, all is on the place in front of the first blank and label.
    start = weft.where(weft.arange(width + 2) == 1, 0.0, low).to(logp)
    nothing = (times == 0) & (spots == 0)  # no steps, for no labels
    final = weft.where(nothing, 0.0, low).to(logp.dtype)
    carry = start.expand(batch, width + 2), final
    (_, final), _ = weft.scan(step, carry, (given, ending))
    ends = sizes.reshape(-1, 1) * 2
    ended = (spots == ends) | (spots == ends - 1)
    return -weft.logsumexp(weft.where(ended, final, low), 1)
