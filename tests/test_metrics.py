"""Metrics against formulas written out by hand."""

import math

import numpy as np
import pytest

import weft
from weft import metrics


def test_accuracy_over_batches():
    metric = metrics.Accuracy()
    assert math.isnan(metric.compute())
    metric.update(weft.tensor([[0.1, 0.9], [0.8, 0.2]]), weft.tensor([1, 1]))
    metric.update(weft.tensor([0, 1, 1]), weft.tensor([0, 1, 0]))
    assert metric.compute() == 3 / 5
    metric.reset()
    assert math.isnan(metric.compute())


def test_top_k():
    scores = weft.tensor([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1], [0.2, 0.3, 0.5]])
    target = weft.tensor([1, 2, 2])
    for k, expected in ((1, 1 / 3), (2, 2 / 3), (3, 1.0), (9, 1.0)):
        metric = metrics.TopK(k)
        metric.update(scores, target)
        assert metric.compute() == pytest.approx(expected)


def test_scores_from_the_confusion_matrix(rng):
    true, got = rng.integers(0, 3, 200), rng.integers(0, 3, 200)
    matrix = metrics.ConfusionMatrix(3)
    parts = {
        c: metrics.__dict__[c](3, average=None) for c in ("Precision", "Recall", "F1")
    }
    for metric in (matrix, *parts.values()):
        metric.update(weft.tensor(got[:50]), weft.tensor(true[:50]))
        metric.update(weft.tensor(got[50:]), weft.tensor(true[50:]))
    for i in range(3):
        for j in range(3):
            assert matrix.compute()[i, j].item() == ((true == i) & (got == j)).sum()
        tp = ((true == i) & (got == i)).sum()
        precision, recall = tp / (got == i).sum(), tp / (true == i).sum()
        assert parts["Precision"].compute()[i].item() == pytest.approx(precision)
        assert parts["Recall"].compute()[i].item() == pytest.approx(recall)
        f1 = 2 * precision * recall / (precision + recall)
        assert parts["F1"].compute()[i].item() == pytest.approx(f1)
    micro = metrics.F1(3, average="micro")
    micro.update(weft.tensor(got), weft.tensor(true))
    assert micro.compute() == pytest.approx((true == got).mean())


def test_a_class_that_never_occurs_scores_zero():
    metric = metrics.Precision(3)
    metric.update(weft.tensor([0]), weft.tensor([0]))
    assert metric.compute() == pytest.approx(1 / 3)


def test_auc_is_the_chance_of_ranking_right(rng):
    scores = rng.integers(0, 10, 60) / 10  # with ties
    labels = rng.integers(0, 2, 60)
    metric = metrics.AUC()
    metric.update(weft.tensor(scores[:20]), weft.tensor(labels[:20]))
    metric.update(weft.tensor(scores[20:]), weft.tensor(labels[20:]))
    pos, neg = scores[labels == 1], scores[labels == 0]
    wins = (pos[:, None] > neg).sum() + 0.5 * (pos[:, None] == neg).sum()
    assert metric.compute() == pytest.approx(wins / (len(pos) * len(neg)))


def test_perplexity_ignores_padding():
    metric = metrics.Perplexity(ignore_index=0)
    logits = weft.randn(4, 5)
    target = weft.tensor([1, 0, 3, 0])
    metric.update(logits, target)
    rows = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True)
    expected = np.exp(-np.log([rows[0, 1], rows[2, 3]]).mean())
    assert metric.compute() == pytest.approx(expected, rel=1e-5)


def test_mistakes():
    with pytest.raises(ValueError, match=r"Accuracy.*\(2,\).*\(3,\)"):
        metrics.Accuracy().update(weft.tensor([0, 1, 1]), weft.tensor([0, 1]))
    with pytest.raises(ValueError, match="target is outside 0 to 1"):
        metrics.ConfusionMatrix(2).update(weft.tensor([0]), weft.tensor([2]))
    with pytest.raises(ValueError, match="average must be"):
        metrics.F1(2, average="mean")
