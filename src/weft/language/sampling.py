"""The choice of the next token from its logits."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

import weft
from weft.errors import ArgumentError


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and when a text ends.

    A temperature of 0 takes the likeliest token. ``top_k`` keeps that many tokens,
    ``top_p`` the likeliest ones that have this share together; 0 and 1 keep all.
    Logits of tokens that are there already are divided by ``repetition_penalty``, or
    multiplied where they are negative. The same seed draws the same tokens; None
    draws one from Weft's own generator. ``stop`` ends a text before one of the strings.

    >>> Sampling(temperature=-1)
    Traceback (most recent call last):
    weft.errors.ArgumentError: temperature must be 0 or more, got -1
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_ends: bool = False  # go on behind tokens that end a text

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        object.__setattr__(self, "stop", stop)
        self._integer("max_new_tokens", 1)
        self._integer("top_k", 0)
        self._real("temperature", 0, math.inf, "0 or more")
        self._real("top_p", 0, 1, "above 0 and at most 1", above=True)
        self._real("repetition_penalty", 0, math.inf, "above 0", above=True)
        if self.seed is not None:
            self._integer("seed", 0)
        if not all(isinstance(one, str) and one for one in stop):
            raise ArgumentError(f"stop must be texts that are not empty, got {stop!r}")

    def _integer(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ArgumentError(
                f"{name} must be an integer from {least} on, got {value!r}"
            )

    def _real(
        self, name: str, low: float, high: float, words: str, above: bool = False
    ) -> None:
        value = getattr(self, name)
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or not low <= value <= high or (above and value == low):
            raise ArgumentError(f"{name} must be {words}, got {value!r}")
        if value == math.inf:
            raise ArgumentError(f"{name} must be finite")

    def generator(self) -> np.random.Generator:
        """The generator that draws one text's tokens."""
        seed = self.seed
        if seed is None:
            seed = int(weft.randint(0, 1 << 62, (), dtype=weft.int64))
        return np.random.Generator(np.random.Philox(seed))


def _scores(
    logits: np.ndarray, sampling: Sampling, before: Collection[int]
) -> np.ndarray:
    """The logits, in float64 where those of tokens that are there are changed."""
    if not np.isfinite(logits).all():
        raise ArgumentError(
            "the model's logits are not finite; its weights hold NaN or infinity, or "
            "overflow in their dtype"
        )
    if sampling.repetition_penalty == 1 or not before:
        return logits
    scores = np.array(logits, np.float64)
    seen = np.fromiter(set(before), np.int64)
    old, by = scores[seen], sampling.repetition_penalty
    scores[seen] = np.maximum(np.where(old > 0, old / by, old * by), -1e300)
    return scores


def chances(
    logits: np.ndarray, sampling: Sampling, before: Collection[int] = ()
) -> np.ndarray:
    """The probability of every token, in float64.

    >>> chances(np.log([0.5, 0.3, 0.2]), Sampling(temperature=1, top_p=0.6)).round(3)
    array([0.625, 0.375, 0.   ])
    """
    scores = np.array(_scores(logits, sampling, before), np.float64)
    if sampling.temperature == 0:
        only = np.zeros_like(scores)
        only[scores.argmax()] = 1
        return only
    scores -= scores.max()  # before a tiny temperature makes them infinite
    with np.errstate(over="ignore"):
        scores /= sampling.temperature
    if 0 < sampling.top_k < len(scores):
        least = np.partition(scores, -sampling.top_k)[-sampling.top_k]
        scores[scores < least] = -np.inf
    shares = np.exp(scores)
    shares /= shares.sum()
    if sampling.top_p < 1:
        order = np.argsort(-shares, kind="stable")
        before_it = np.cumsum(shares[order]) - shares[order]
        shares[order[before_it >= sampling.top_p]] = 0
        shares /= shares.sum()
    return shares


def choose(
    logits: np.ndarray,
    sampling: Sampling,
    before: Collection[int],
    generator: np.random.Generator,
) -> int:
    """The next token."""
    if sampling.temperature == 0:
        return int(_scores(logits, sampling, before).argmax())
    sums = np.cumsum(chances(logits, sampling, before))
    # A draw of the last sum itself would name a token behind all that have a chance.
    drawn = min(generator.random() * sums[-1], np.nextafter(sums[-1], 0))
    return int(np.searchsorted(sums, drawn, side="right"))
