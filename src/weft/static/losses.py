"""Losses under TensorFlow 1's names; each goes into a collection of the graph."""

from __future__ import annotations

from typing import Any

import weft
from weft.errors import ArgumentError, ShapeError
from weft.nn import functional as F
from weft.static.building import as_node, building
from weft.static.collections import GraphKeys, add_to_collection, get_collection

__all__ = [
    "Reduction", "absolute_difference", "add_loss", "compute_weighted_loss",
    "cosine_distance", "get_losses", "get_regularization_loss",
    "get_regularization_losses", "get_total_loss", "hinge_loss", "huber_loss",
    "log_loss", "mean_squared_error", "sigmoid_cross_entropy", "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]  # fmt: skip


class Reduction:
    """How a loss of many elements becomes one number.

    >>> weft.static.losses.Reduction.SUM
    'weighted_sum'
    """

    NONE = "none"
    SUM = "weighted_sum"
    MEAN = "weighted_mean"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """All of them."""
        return (cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE,
                cls.SUM_BY_NONZERO_WEIGHTS)  # fmt: skip


def _divided(total: Any, count: Any) -> Any:
    """A quotient that is zero where there is nothing to divide by."""
    return weft.where(count == 0, 0.0, total / weft.where(count == 0, 1.0, count))


def compute_weighted_loss(
    losses: Any, weights: Any = 1.0, scope: Any = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """Losses times weights, reduced, and put into a collection.

    Unless told otherwise it is their sum over the number of weights that are not zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.losses.compute_weighted_loss([2.0, 4.0, 9.0], [1, 1, 0])
    ...     float(session.run(node))
    3.0
    """
    if reduction not in Reduction.all():
        raise ArgumentError(
            f"reduction: expected one of {Reduction.all()}, got {reduction!r}"
        )
    with building():
        each = as_node(losses)
        w = as_node(weights).to(each.dtype)
        if w.ndim not in (0, each.ndim):
            raise ShapeError(
                f"weights: expected one number or {each.ndim} axes as the losses "
                f"{each.shape} have, got shape {w.shape}"
            )
        loss = _reduced(each * w, w + weft.zeros_like(each), reduction)
    if loss_collection is not None:
        add_to_collection(loss_collection, loss)
    return loss


def _reduced(each: Any, weights: Any, reduction: str) -> Any:
    if reduction == Reduction.NONE:
        return each
    total = each.sum()
    if reduction == Reduction.MEAN:
        return _divided(total, weights.sum())
    if reduction == Reduction.SUM_BY_NONZERO_WEIGHTS:
        return _divided(total, (weights != 0).to(each.dtype).sum())
    if reduction == Reduction.SUM_OVER_BATCH_SIZE:
        return _divided(total, weft.ones_like(each).sum())
    return total


def _alike(name: str, labels: Any, predictions: Any) -> tuple[Any, Any]:
    """Both as nodes of one dtype, whose shapes must agree as far as they are known."""
    p = as_node(predictions)
    t = as_node(labels).to(p.dtype)
    known = zip(t.shape, p.shape, strict=False)
    if t.ndim != p.ndim or any(
        a != b for a, b in known if isinstance(a, int) and isinstance(b, int)
    ):
        raise ShapeError(
            f"{name}: labels have shape {t.shape}, predictions {p.shape}; they must be "
            "alike"
        )
    return t, p


def _elementwise(name: str, of: Any, text: str, options: dict[str, Any]) -> Any:
    """A loss of labels and predictions, element by element."""

    def call(labels: Any, predictions: Any, *args: Any, **given: Any) -> Any:
        order = [*options, "weights", "scope", "loss_collection", "reduction"]
        if name in ("huber_loss", "log_loss"):
            order.remove("weights")
            order.insert(0, "weights")
        fields = {**dict(zip(order, args, strict=False)), **given}
        own = {k: fields.pop(k, v) for k, v in options.items()}
        with building():
            each = of(*_alike(name, labels, predictions), **own)
        return compute_weighted_loss(each, **fields)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""{text}

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.losses.{name}([1.0, 0.0], [0.5, 0.5])
    ...     session.run(node).shape
    ()
    """
    return call


def _huber(t: Any, p: Any, delta: float) -> Any:
    error = weft.abs(p - t)
    inside = weft.clamp(error, None, delta)
    return 0.5 * inside * inside + delta * (error - inside)


def _log(t: Any, p: Any, epsilon: float) -> Any:
    return -t * weft.log(p + epsilon) - (1 - t) * weft.log(1 - p + epsilon)


mean_squared_error = _elementwise(
    "mean_squared_error", lambda t, p: (p - t) ** 2,
    "The squares of the differences; their mean.", {},
)  # fmt: skip
absolute_difference = _elementwise(
    "absolute_difference", lambda t, p: weft.abs(p - t),
    "The sizes of the differences; their mean.", {},
)  # fmt: skip
hinge_loss = _elementwise(
    "hinge_loss", lambda t, p: weft.relu(1 - (2 * t - 1) * p),
    "``max(0, 1 - y logits)``, with labels 0 and 1 for ``y`` of -1 and 1.", {},
)  # fmt: skip
huber_loss = _elementwise(
    "huber_loss", _huber,
    "Half the square of small differences, ``delta`` times larger ones.",
    {"delta": 1.0},
)  # fmt: skip
log_loss = _elementwise(
    "log_loss", _log, "The cross entropy of chances of two classes.",
    {"epsilon": 1e-7},
)  # fmt: skip


def cosine_distance(
    labels: Any, predictions: Any, axis: int | None = None, weights: Any = 1.0,
    scope: Any = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS, dim: int | None = None,
) -> Any:  # fmt: skip
    """One minus the inner product along an axis (of vectors of length one).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.losses.cosine_distance([[1.0, 0.0]], [[0.6, 0.8]], 1)
    ...     round(float(session.run(node)), 4)
    0.4
    """
    along = dim if axis is None else axis
    if along is None:
        raise ArgumentError("cosine_distance: expected an axis")
    with building():
        t, p = _alike("cosine_distance", labels, predictions)
        each = 1 - (t * p).sum(along, keepdim=True)
    return compute_weighted_loss(each, weights, scope, loss_collection, reduction)


def softmax_cross_entropy(
    onehot_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0,
    scope: Any = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """The cross entropy of chances, perhaps smoothed, with scores.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.losses.softmax_cross_entropy([[1, 0]], [[0.0, 0.0]])
    ...     round(float(session.run(node)), 4)
    0.6931
    """
    with building():
        t, p = _alike("softmax_cross_entropy", onehot_labels, logits)
        t = t.detach()
        if label_smoothing:
            t = t * (1 - label_smoothing) + label_smoothing / t.shape[-1]
        each = -(t * F.log_softmax(p, -1)).sum(-1)
    return compute_weighted_loss(each, weights, scope, loss_collection, reduction)


def sparse_softmax_cross_entropy(
    labels: Any, logits: Any, weights: Any = 1.0, scope: Any = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """The cross entropy of class indices with scores.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.losses.sparse_softmax_cross_entropy([1], [[0.0, 0.0]])
    ...     round(float(session.run(node)), 4)
    0.6931
    """
    from weft.static.nn import sparse_softmax_cross_entropy_with_logits

    with building():
        ids, scores = as_node(labels), as_node(logits)
        if ids.ndim == scores.ndim:  # as TensorFlow: a last axis of size one goes
            ids = ids.squeeze(-1)
        each = sparse_softmax_cross_entropy_with_logits(ids, scores)
    return compute_weighted_loss(each, weights, scope, loss_collection, reduction)


def sigmoid_cross_entropy(
    multi_class_labels: Any, logits: Any, weights: Any = 1.0,
    label_smoothing: float = 0, scope: Any = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """The cross entropy of two classes, element by element.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.losses.sigmoid_cross_entropy([1.0], [0.0])
    ...     round(float(session.run(node)), 4)
    0.6931
    """
    with building():
        t, p = _alike("sigmoid_cross_entropy", multi_class_labels, logits)
        if label_smoothing:
            t = t * (1 - label_smoothing) + 0.5 * label_smoothing
        each = F.softplus(p) - p * t
    return compute_weighted_loss(each, weights, scope, loss_collection, reduction)


def add_loss(loss: Any, loss_collection: str | None = GraphKeys.LOSSES) -> None:
    """Put a loss of your own into the collection.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.losses.add_loss(weft.static.constant(1.0))
    ...     len(weft.static.losses.get_losses())
    1
    """
    if loss_collection is not None:
        add_to_collection(loss_collection, loss)


def get_losses(
    scope: str | None = None, loss_collection: str = GraphKeys.LOSSES
) -> list[Any]:
    """The losses of the default graph.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.losses.get_losses()
    []
    """
    return get_collection(loss_collection, scope)


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """The penalties of regularizers.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.losses.get_regularization_losses()
    []
    """
    return get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


def _sum(values: list[Any], name: str) -> Any:
    from weft.static.math import add_n

    return add_n([as_node(v) for v in values] or [as_node(0.0)], name)


def get_regularization_loss(
    scope: str | None = None, name: str = "total_regularization_loss"
) -> Any:
    """The sum of the penalties of regularizers.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.losses.get_regularization_loss()))
    0.0
    """
    return _sum(get_regularization_losses(scope), name)


def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss",
    scope: str | None = None,
) -> Any:  # fmt: skip
    """The sum of all losses, and of the penalties of regularizers.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     weft.static.losses.add_loss(weft.static.constant(2.0))
    ...     float(session.run(weft.static.losses.get_total_loss()))
    2.0
    """
    losses = get_losses(scope)
    if add_regularization_losses:
        losses = losses + get_regularization_losses(scope)
    return _sum(losses, name)


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("losses", name)
