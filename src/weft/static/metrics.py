"""Metrics over many batches: a value, and an operation that adds a batch to it.

Their counters are local variables: ``local_variables_initializer`` begins anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError
from weft.static.building import as_node, building
from weft.static.collections import GraphKeys
from weft.static.scopes import variable_scope
from weft.static.segments import confusion_matrix
from weft.static.variable import Variable

__all__ = [
    "accuracy", "auc", "false_negatives", "false_positives", "mean",
    "mean_absolute_error", "mean_iou", "mean_per_class_accuracy",
    "mean_squared_error", "precision", "recall", "root_mean_squared_error",
    "true_negatives", "true_positives",
]  # fmt: skip


def _counter(name: str, start: Any = 0.0) -> Variable:
    keys = [GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES]
    return Variable(start, False, name, weft.float32, collections=keys)


def _share(total: Any, count: Any) -> Any:
    return weft.where(count > 0, total / weft.where(count > 0, count, 1.0), 0.0)


def _ratio(
    scope: str, names: tuple[str, str], top: Any, bottom: Any, after: Any = None
) -> tuple[Any, Any]:
    """A quotient of two sums over batches, and its update."""
    with variable_scope(None, default_name=scope), building():
        total, count = map(_counter, names)
        grown = total.assign_add(top), count.assign_add(bottom)
        out = _share(total, count), _share(*grown)
        return out if after is None else tuple(map(after, out))


def _weighted(values: Any, weights: Any) -> tuple[Any, Any]:
    """The sum of values times weights, and that of the weights."""
    x = as_node(values).to(weft.float32)
    w = as_node(1.0 if weights is None else weights).to(weft.float32)
    w = w + weft.zeros_like(x)
    return (x * w).sum(), w.sum()


def mean(
    values: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The mean of all values so far.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     value, update = weft.static.metrics.mean([1.0, 3.0])
    ...     session.run(weft.static.local_variables_initializer())
    ...     [float(session.run(node)) for node in (value, update, value)]
    [0.0, 2.0, 2.0]
    """
    with building():
        sums = _weighted(values, weights)
    return _ratio(name or "mean", ("total", "count"), *sums)


def accuracy(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The share of predictions that are equal to their labels.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     value, update = weft.static.metrics.accuracy([1, 2], [1, 0])
    ...     session.run(weft.static.local_variables_initializer())
    ...     float(session.run(update))
    0.5
    """
    with building():
        hits = as_node(labels).reshape(-1) == as_node(predictions).reshape(-1)
        sums = _weighted(hits, weights)
    return _ratio(name or "accuracy", ("total", "count"), *sums)


def _error(name: str, of: Any, text: str, after: Any = None) -> Any:
    def call(
        labels: Any, predictions: Any, weights: Any = None,
        metrics_collections: Any = None, updates_collections: Any = None,
        name: str = name,
    ) -> tuple[Any, Any]:  # fmt: skip
        with building():
            sums = _weighted(of(as_node(predictions) - as_node(labels)), weights)
        return _ratio(name, ("total", "count"), *sums, after)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""The {text} so far.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     value, update = weft.static.metrics.{name}([1.0, 2.0], [3.0, 4.0])
    ...     session.run(weft.static.local_variables_initializer())
    ...     float(session.run(update))
    {4.0 if name == "mean_squared_error" else 2.0}
    """
    return call


mean_squared_error = _error("mean_squared_error", weft.square, "mean of squared errors")
mean_absolute_error = _error("mean_absolute_error", weft.abs, "mean size of errors")
root_mean_squared_error = _error(
    "root_mean_squared_error", weft.square, "root of the mean of squared errors",
    weft.sqrt,
)  # fmt: skip


def _of_positives(name: str, among: str, text: str) -> Any:
    def call(
        labels: Any, predictions: Any, weights: Any = None,
        metrics_collections: Any = None, updates_collections: Any = None,
        name: str = name,
    ) -> tuple[Any, Any]:  # fmt: skip
        with building():
            truth = as_node(labels).to(weft.bool)
            said = as_node(predictions).to(weft.bool)
            base = said if among == "predicted" else truth
            hits, _ = _weighted(truth & said, weights)
            count, _ = _weighted(base, weights)
        return _ratio(name, ("true_positives", f"{among}_positives"), hits, count)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""The share of {text} so far.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     value, update = weft.static.metrics.{name}([1, 1, 0], [1, 1, 0])
    ...     session.run(weft.static.local_variables_initializer())
    ...     float(session.run(update))
    1.0
    """
    return call


precision = _of_positives("precision", "predicted", "predicted positives that are true")
recall = _of_positives("recall", "actual", "actual positives that were predicted")


def _count(name: str, truth: bool, said: bool, text: str) -> Any:
    def call(
        labels: Any, predictions: Any, weights: Any = None,
        metrics_collections: Any = None, updates_collections: Any = None,
        name: str = name,
    ) -> tuple[Any, Any]:  # fmt: skip
        with building():
            is_so = as_node(labels).to(weft.bool) == truth
            was_said = as_node(predictions).to(weft.bool) == said
            hits, _ = _weighted(is_so & was_said, weights)
        with variable_scope(None, default_name=name), building():
            total = _counter("count")
            return total.read_value(), total.assign_add(hits)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""How many {text} there were so far.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     value, update = weft.static.metrics.{name}([{int(truth)}], [{int(said)}])
    ...     session.run(weft.static.local_variables_initializer())
    ...     float(session.run(update))
    1.0
    """
    return call


true_positives = _count("true_positives", True, True, "true positives")
true_negatives = _count("true_negatives", False, False, "true negatives")
false_positives = _count("false_positives", False, True, "false positives")
false_negatives = _count("false_negatives", True, False, "false negatives")


def _by_class(name: str, of: Any, text: str) -> Any:
    """A mean over classes of a share that the confusion matrix gives."""

    def call(
        labels: Any, predictions: Any, num_classes: int, weights: Any = None,
        metrics_collections: Any = None, updates_collections: Any = None,
        name: str = name,
    ) -> tuple[Any, Any]:  # fmt: skip
        with variable_scope(None, default_name=name), building():
            start = np.zeros((num_classes, num_classes), np.float32)
            table = _counter("total_confusion_matrix", start)
            found = confusion_matrix(
                labels, predictions, num_classes, weft.float32, weights=weights
            )
            grown = table.assign_add(found)
            return of(table), grown if name == "mean_iou" else _shares(grown)

    call.__doc__ = f"""{text}

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     value, update = weft.static.metrics.{name}([0, 1], [0, 1], 2)
    ...     session.run(weft.static.local_variables_initializer())
    ...     _ = session.run(update)
    ...     float(session.run(value))
    1.0
    """

    call.__name__ = call.__qualname__ = name
    return call


def _shares(table: Any) -> Any:
    return _share(weft.diagonal(table), table.sum(1))


def _overlap(table: Any) -> Any:
    """The mean over the classes that are there of intersection over union."""
    hits = weft.diagonal(table)
    union = table.sum(0) + table.sum(1) - hits
    return _share(_share(hits, union).sum(), (union > 0).to(weft.float32).sum())


mean_iou = _by_class(
    "mean_iou", _overlap, "The mean over classes of intersection over union so far."
)
mean_per_class_accuracy = _by_class(
    "mean_per_class_accuracy", lambda table: _shares(table).mean(),
    "The mean over classes of the share of right predictions so far.",
)  # fmt: skip


def auc(
    labels: Any, predictions: Any, weights: Any = None, num_thresholds: int = 200,
    metrics_collections: Any = None, updates_collections: Any = None,
    curve: str = "ROC", name: str = "auc", summation_method: str = "trapezoidal",
) -> tuple[Any, Any]:  # fmt: skip
    """The area under the ROC curve of all predictions so far, by thresholds.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     value, update = weft.static.metrics.auc([0, 1], [0.2, 0.8])
    ...     session.run(weft.static.local_variables_initializer())
    ...     round(float(session.run(update)), 3)
    1.0
    """
    if curve != "ROC" or summation_method != "trapezoidal":
        raise ArgumentError(
            f"auc: expected curve='ROC' and trapezoids, got {curve!r} and "
            f"{summation_method!r}"
        )
    inner = np.arange(1, num_thresholds - 1) / (num_thresholds - 1)
    limits = np.array([-1e-7, *inner, 1 + 1e-7], np.float32)
    with variable_scope(None, default_name=name), building():
        truth = as_node(labels).to(weft.bool).reshape(1, -1)
        said = as_node(predictions).to(weft.float32).reshape(1, -1)
        said = said > as_node(limits).reshape(-1, 1)
        weight = as_node(1.0 if weights is None else weights).to(weft.float32)
        zeros = np.zeros(num_thresholds, np.float32)
        counts = []
        for one, is_so, was_said in (
            ("true_positives", True, True), ("false_negatives", True, False),
            ("false_positives", False, True), ("true_negatives", False, False),
        ):  # fmt: skip
            hits = ((truth == is_so) & (said == was_said)).to(weft.float32) * weight
            kept = _counter(one, zeros)
            counts.append((kept, kept.assign_add(hits.sum(1))))

    def area(tp: Any, fn: Any, fp: Any, tn: Any) -> Any:
        eps = 1e-6
        rise, run = (tp + eps) / (tp + fn + eps), fp / (fp + tn + eps)
        steps = run[:-1] - run[1:]
        return (steps * (rise[:-1] + rise[1:]) / 2).sum()

    with building():
        values, updates = zip(*counts, strict=True)
        return area(*values), area(*updates)


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("metrics", name)
