"""Metrics over many batches: a value, and an operation that adds a batch to it.

Their counters are local variables: ``local_variables_initializer`` begins anew.
"""

from __future__ import annotations

from typing import Any

import weft
from weft.static.building import as_node, building
from weft.static.collections import GraphKeys
from weft.static.scopes import variable_scope
from weft.static.variable import Variable

__all__ = [
    "accuracy", "mean", "mean_absolute_error", "mean_squared_error", "precision",
    "recall", "root_mean_squared_error",
]  # fmt: skip


def _counter(name: str) -> Variable:
    keys = [GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES]
    return Variable(0.0, False, name, weft.float32, collections=keys)


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


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("metrics", name)
