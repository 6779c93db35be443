"""Metrics that add up over batches: ``update`` with each, ``compute`` at the end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.nn.functional import cross_entropy


class Metric:
    """Base of metrics: counts kept in plain numbers and arrays.

    >>> metric = weft.metrics.Accuracy()
    >>> metric.update(weft.tensor([[0.1, 0.9], [0.8, 0.2]]), weft.tensor([1, 1]))
    >>> metric.compute()
    0.5
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything counted so far."""
        raise NotImplementedError

    def update(self, *args: Any) -> None:
        """Count a batch."""
        raise NotImplementedError

    def compute(self) -> Any:
        """The metric over all that was counted."""
        raise NotImplementedError


def _classes(name: str, prediction: Tensor, target: Tensor) -> tuple[Any, Any]:
    """Predicted and true classes as flat arrays, from scores or from classes."""
    if prediction.ndim == target.ndim + 1:
        prediction = prediction.argmax(1)
    if prediction.shape != target.shape:
        raise ShapeError(
            f"{name}: expected scores (N, C, ...) or classes (N, ...) for targets of "
            f"shape {tuple(target.shape)}, got {tuple(prediction.shape)}"
        )
    return (
        prediction.detach().cpu().numpy().ravel(),
        target.detach().cpu().numpy().ravel(),
    )


class Mean(Metric):
    """The mean of numbers, weighted by how many elements each stands for.

    >>> metric = weft.metrics.Mean()
    >>> metric.update(2.0, 3)
    >>> metric.update(6.0, 1)
    >>> metric.compute()
    3.0
    """

    def reset(self) -> None:
        self.total = 0.0
        self.count = 0.0

    def update(self, value: Any, weight: float = 1) -> None:
        self.total += float(value) * weight
        self.count += weight

    def compute(self) -> float:
        return self.total / self.count if self.count else math.nan


class Accuracy(Metric):
    """The share of right answers."""

    def reset(self) -> None:
        self.right = self.count = 0

    def update(self, prediction: Tensor, target: Tensor) -> None:
        got, true = _classes("Accuracy", prediction, target)
        self.right += int((got == true).sum())
        self.count += true.size

    def compute(self) -> float:
        return self.right / self.count if self.count else math.nan


class TopK(Metric):
    """The share of targets among the k highest scores.

    >>> metric = weft.metrics.TopK(2)
    >>> metric.update(weft.tensor([[0.1, 0.5, 0.4]]), weft.tensor([2]))
    >>> metric.compute()
    1.0
    """

    def __init__(self, k: int = 5) -> None:
        if k < 1:
            raise ArgumentError(f"TopK: expected k of at least 1, got {k}")
        self.k = k
        super().__init__()

    def reset(self) -> None:
        self.right = self.count = 0

    def update(self, scores: Tensor, target: Tensor) -> None:
        if scores.ndim != 2 or target.shape != scores.shape[:1]:
            raise ShapeError(
                "TopK: expected scores (N, C) and targets (N,), got "
                f"{scores.shape} and {target.shape}"
            )
        best = scores.detach().topk(min(self.k, scores.shape[1])).indices
        self.right += int((best == target.unsqueeze(1)).any(1).sum())
        self.count += target.numel()

    def compute(self) -> float:
        return self.right / self.count if self.count else math.nan


class ConfusionMatrix(Metric):
    """The number of times each true class (row) was predicted as each class (column).

    >>> metric = weft.metrics.ConfusionMatrix(2)
    >>> metric.update(weft.tensor([0, 1, 1]), weft.tensor([0, 0, 1]))
    >>> metric.compute()
    tensor([[1, 1],
            [0, 1]])
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        super().__init__()

    def reset(self) -> None:
        self.counts = np.zeros((self.classes, self.classes), np.int64)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        got, true = _classes(type(self).__name__, prediction, target)
        for name, values in (("prediction", got), ("target", true)):
            if values.size and not 0 <= values.min() <= values.max() < self.classes:
                raise ArgumentError(
                    f"{type(self).__name__}: a {name} is outside 0 to "
                    f"{self.classes - 1}"
                )
        flat = true.astype(np.int64) * self.classes + got.astype(np.int64)
        self.counts += np.bincount(flat, minlength=self.classes**2).reshape(
            self.classes, self.classes
        )

    def compute(self) -> Any:
        return Tensor(self.counts.copy())


class _FromCounts(ConfusionMatrix):
    """A score for each class, averaged: ``macro``, ``micro`` or None for all."""

    def __init__(self, classes: int, average: str | None = "macro") -> None:
        if average not in ("macro", "micro", None):
            raise ArgumentError(
                f"{type(self).__name__}: average must be 'macro', 'micro' or None, got "
                f"{average!r}"
            )
        self.average = average
        super().__init__(classes)

    def score(self, right: Any, predicted: Any, true: Any) -> Any:
        raise NotImplementedError

    def compute(self) -> Any:
        right = self.counts.diagonal().astype(float)
        predicted, true = self.counts.sum(0), self.counts.sum(1)
        if self.average == "micro":
            totals = (right.sum(), predicted.sum(), true.sum())
            return float(self.score(*(np.array([t], float) for t in totals))[0])
        scores = self.score(right, predicted.astype(float), true.astype(float))
        return Tensor(scores) if self.average is None else float(scores.mean())


def _ratio(a: Any, b: Any) -> Any:
    """a / b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


class Precision(_FromCounts):
    """The share of the elements predicted as a class that are of it.

    >>> metric = weft.metrics.Precision(2, average="micro")
    >>> metric.update(weft.tensor([0, 1]), weft.tensor([0, 0]))
    >>> metric.compute()
    0.5
    """

    def score(self, right: Any, predicted: Any, true: Any) -> Any:
        return _ratio(right, predicted)


class Recall(_FromCounts):
    """The share of a class's elements that were predicted as such."""

    def score(self, right: Any, predicted: Any, true: Any) -> Any:
        return _ratio(right, true)


class F1(_FromCounts):
    """The harmonic mean of precision and recall."""

    def score(self, right: Any, predicted: Any, true: Any) -> Any:
        return _ratio(2 * right, predicted + true)


class AUC(Metric):
    """The area under the ROC curve: the chance that a positive scores higher.

    >>> metric = weft.metrics.AUC()
    >>> metric.update(weft.tensor([0.1, 0.4, 0.8]), weft.tensor([0, 0, 1]))
    >>> metric.compute()
    1.0
    """

    def reset(self) -> None:
        self.scores: list[Any] = []
        self.labels: list[Any] = []

    def update(self, scores: Tensor, target: Tensor) -> None:
        if scores.shape != target.shape:
            raise ShapeError(
                "AUC: expected scores and targets of one shape, got "
                f"{scores.shape} and {target.shape}"
            )
        self.scores.append(scores.detach().cpu().numpy().ravel())
        self.labels.append(target.detach().cpu().numpy().ravel())

    def compute(self) -> float:
        if not self.scores:
            return math.nan
        scores, labels = np.concatenate(self.scores), np.concatenate(self.labels) > 0
        positives = int(labels.sum())
        negatives = labels.size - positives
        if not positives or not negatives:
            return math.nan
        # Ranks, ties sharing their mean (the Mann-Whitney statistic).
        _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
        last = count.cumsum()
        rank = ((last - count + 1 + last) / 2)[place]
        above = rank[labels].sum() - positives * (positives + 1) / 2
        return float(above / (positives * negatives))


class Perplexity(Metric):
    """The exponential of the mean cross-entropy.

    >>> metric = weft.metrics.Perplexity()
    >>> metric.update(weft.zeros(2, 4), weft.tensor([0, 1]))
    >>> round(metric.compute(), 4)
    4.0
    """

    def __init__(self, ignore_index: int = -100) -> None:
        self.ignore_index = ignore_index
        super().__init__()

    def reset(self) -> None:
        self.mean = Mean()

    def update(self, logits: Tensor, target: Tensor) -> None:
        kept = int((target != self.ignore_index).sum())
        if kept:
            with weft.no_grad():
                loss = cross_entropy(logits, target, ignore_index=self.ignore_index)
            self.mean.update(loss, kept)

    def compute(self) -> float:
        return math.exp(self.mean.compute())
