"""Network operators under TensorFlow 1's names (``static.nn``)."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import larger, same_shape
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.static.math import _named, _node, sigmoid, tanh
from weft.static.random import random_uniform
from weft.static.unranked import record_all, recorded, several


def relu(features: Any, name: str | None = None) -> Any:
    """Zero for negative elements.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.relu([-1.0, 2.0]))
    array([0., 2.], dtype=float32)
    """
    return _named(weft.relu(_node(features)), name)


def softmax(logits: Any, axis: int = -1, name: str | None = None) -> Any:
    """Chances from scores.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.softmax([1.0, 1.0]))
    array([0.5, 0.5], dtype=float32)
    """
    return _named(F.softmax(_node(logits), axis), name)


def log_softmax(logits: Any, axis: int = -1, name: str | None = None) -> Any:
    """Logarithms of chances from scores.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.log_softmax([0.0])) + 0
    array([0.], dtype=float32)
    """
    return _named(F.log_softmax(_node(logits), axis), name)


def softplus(features: Any, name: str | None = None) -> Any:
    """``log(1 + exp(x))``.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.softplus([0.0])).round(4)
    array([0.6931], dtype=float32)
    """
    return _named(F.softplus(_node(features)), name)


def elu(features: Any, name: str | None = None) -> Any:
    """The exponential linear unit.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.elu([0.0, 2.0]))
    array([0., 2.], dtype=float32)
    """
    return _named(F.elu(_node(features)), name)


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Any:
    """``alpha x`` for negative elements.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.leaky_relu([-5.0, 2.0]))
    array([-1.,  2.], dtype=float32)
    """
    return _named(F.leaky_relu(_node(features), alpha), name)


def dropout(x: Any, keep_prob: Any = 1.0, rate: Any = None) -> Any:
    """Elements set to zero at random in every run, the others scaled up.

    The chance is a number, or a node such as a placeholder.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     set(session.run(weft.static.nn.dropout(np.ones(64), rate=0.5)).tolist())
    {0.0, 2.0}
    """
    x = _node(x)
    keep = keep_prob if rate is None else 1 - rate
    if not isinstance(keep, weft.Tensor):
        return F.dropout(x, 1 - keep, training=True)
    drawn = random_uniform(x.shape)  # the chance is known when the graph runs
    return weft.where(drawn < keep, x / keep.to(x.dtype), 0.0)


def bias_add(value: Any, bias: Any, name: str | None = None) -> Any:
    """A bias added along the last axis.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.bias_add([[1.0, 2.0]], [1.0, 1.0]))
    array([[2., 3.]], dtype=float32)
    """
    return _named(_node(value) + _node(bias), name)


def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Any:
    """``x @ weights + biases``.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.xw_plus_b([[2.0]], [[3.0]], [1.0]))
    array([[7.]], dtype=float32)
    """
    return _named(_node(x) @ _node(weights) + _node(biases), name)


def l2_loss(t: Any, name: str | None = None) -> Any:
    """Half the sum of squares.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     float(session.run(weft.static.nn.l2_loss([1.0, 3.0])))
    5.0
    """
    return _named((_node(t) ** 2).sum() / 2, name)


def embedding_lookup(params: Any, ids: Any, name: str | None = None) -> Any:
    """Rows of a table by their indices.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.embedding_lookup([[1.0], [2.0]], [1]))
    array([[2.]], dtype=float32)
    """
    return _named(F.embedding(_node(ids), _node(params)), name)


def moments(x: Any, axes: Any, keepdims: bool = False) -> tuple[Any, Any]:
    """Mean and variance over axes.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     [float(v) for v in session.run(weft.static.nn.moments([1.0, 3.0], [0]))]
    [2.0, 1.0]
    """
    x = _node(x)
    dims = (axes,) if isinstance(axes, int) else tuple(axes)
    mean = x.mean(dims, keepdim=True)
    spread = ((x - mean) ** 2).mean(dims, keepdim=keepdims)
    return x.mean(dims, keepdim=keepdims), spread


def softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, axis: int = -1, name: str | None = None
) -> Any:
    """The cross entropy of each row, with chances as labels.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     node = weft.static.nn.softmax_cross_entropy_with_logits(
    ...         [[1, 0]], [[0.0, 0.0]])
    ...     session.run(node).round(4)
    array([0.6931], dtype=float32)
    """
    scores = F.log_softmax(_node(logits), axis)
    return _named(-(_node(labels) * scores).sum(axis), name)


def sparse_softmax_cross_entropy_with_logits(
    labels: Any, logits: Any, name: str | None = None
) -> Any:
    """The cross entropy of each row, with class indices as labels.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     node = weft.static.nn.sparse_softmax_cross_entropy_with_logits(
    ...         [1], [[0.0, 0.0]])
    ...     session.run(node).round(4)
    array([0.6931], dtype=float32)
    """
    scores = F.log_softmax(_node(logits), -1)
    ids = _node(labels)
    return _named(-scores.gather(-1, ids.unsqueeze(-1)).squeeze(-1), name)


def sigmoid_cross_entropy_with_logits(
    labels: Any, logits: Any, name: str | None = None
) -> Any:
    """The cross entropy of each element of two classes.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     node = weft.static.nn.sigmoid_cross_entropy_with_logits([1.0], [0.0])
    ...     session.run(node).round(4)
    array([0.6931], dtype=float32)
    """
    z, x = _node(labels), _node(logits)
    return _named(F.softplus(x) - x * z, name)


_LAYOUTS = ("NHWC", "NCHW")


def conv2d(
    input: Any, filter: Any, strides: Any, padding: str, data_format: str = "NHWC",
    name: str | None = None,
) -> Any:  # fmt: skip
    """A convolution with TensorFlow's layouts: images NHWC, filters HWIO.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     w = weft.static.Variable(np.zeros((3, 3, 3, 4), "f"))
    ...     weft.static.nn.conv2d(x, w, [1, 2, 2, 1], "SAME").get_shape()
    (None, 4, 4, 4)
    """
    x, (sh, sw) = _channels_first(input, strides, data_format)
    w = _node(filter).permute(3, 2, 0, 1)
    top, bottom, left, right = _pads(x, w.shape[2:], (sh, sw), padding)
    if same_shape((top, left), (bottom, right)):  # the convolution pads by itself
        out = F.conv2d(x, w, stride=(sh, sw), padding=(top, left))
    else:
        out = F.conv2d(F.pad(x, [left, right, top, bottom]), w, stride=(sh, sw))
    return _named(_back(out, data_format), name)


def max_pool(
    value: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC",
    name: str | None = None,
) -> Any:  # fmt: skip
    """The largest element of each window.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = np.arange(4.0).reshape(1, 2, 2, 1)
    ...     node = weft.static.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    ...     session.run(node).ravel()
    array([3.])
    """
    x, steps = _channels_first(value, strides, data_format)
    window = tuple(ksize[1:3] if data_format == "NHWC" else ksize[2:4])
    x = _padded(x, window, steps, padding, -float("inf"))
    return _named(_back(F.max_pool2d(x, window, steps), data_format), name)


def avg_pool(
    value: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC",
    name: str | None = None,
) -> Any:  # fmt: skip
    """The mean of each window (of its elements inside the image).

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = np.arange(4.0).reshape(1, 2, 2, 1)
    ...     node = weft.static.nn.avg_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    ...     session.run(node).ravel()
    array([1.5])
    """
    x, steps = _channels_first(value, strides, data_format)
    window = tuple(ksize[1:3] if data_format == "NHWC" else ksize[2:4])
    total = F.avg_pool2d(_padded(x, window, steps, padding, 0.0), window, steps)
    if padding == "SAME":
        inside = weft.ones(1, 1, *x.shape[2:])
        share = F.avg_pool2d(
            _padded(inside, window, steps, padding, 0.0), window, steps
        )
        total = total / share
    return _named(_back(total, data_format), name)


def _channels_first(x: Any, strides: Any, layout: str) -> tuple[Any, tuple[int, int]]:
    if layout not in _LAYOUTS:
        raise ArgumentError(f"data_format: expected one of {_LAYOUTS}, got {layout!r}")
    x = _node(x)
    if layout == "NHWC":
        return x.permute(0, 3, 1, 2), (strides[1], strides[2])
    return x, (strides[2], strides[3])


def _back(x: Any, layout: str) -> Any:
    return x.permute(0, 2, 3, 1) if layout == "NHWC" else x


def _pads(x: Any, window: Any, steps: Any, padding: str) -> list[Any]:
    """TensorFlow's padding, before and after each axis: of SAME, the odd element goes
    to the end."""
    if padding not in ("SAME", "VALID"):
        raise ArgumentError(f"padding: expected 'SAME' or 'VALID', got {padding!r}")
    pads: list[Any] = []
    for size, k, step in zip(x.shape[2:], window, steps, strict=True):
        total = larger((-(-size // step) - 1) * step + k - size, 0)
        pads += [total // 2, total - total // 2] if padding == "SAME" else [0, 0]
    return pads


def _padded(x: Any, window: Any, steps: Any, padding: str, fill: float) -> Any:
    top, bottom, left, right = pads = _pads(x, window, steps, padding)
    if same_shape(tuple(pads), (0, 0, 0, 0)):
        return x
    return F.pad(x, [left, right, top, bottom], value=fill)


__all__ = [
    "avg_pool", "bias_add", "conv2d", "dropout", "elu", "embedding_lookup", "l2_loss",
    "leaky_relu", "log_softmax", "max_pool", "moments", "relu", "sigmoid",
    "sigmoid_cross_entropy_with_logits", "softmax",
    "softmax_cross_entropy_with_logits", "softplus",
    "sparse_softmax_cross_entropy_with_logits", "tanh", "xw_plus_b",
]  # fmt: skip
moments = recorded(moments, several(lambda *args, **kwargs: 2))
record_all(globals())
