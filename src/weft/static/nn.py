"""Network operators under TensorFlow 1's names (``static.nn``)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import weft
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.static import rnn_cell
from weft.static.building import function, with_scalars
from weft.static.convolution import (
    atrous_conv2d,
    avg_pool,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    conv1d,
    conv1d_transpose,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    convolution,
    depthwise_conv2d,
    max_pool,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_pool_with_argmax,
    pool,
    separable_conv2d,
)
from weft.static.ctc import ctc_loss
from weft.static.math import _named, _node, _unary, identity, overridable, sigmoid, tanh
from weft.static.random import random_uniform
from weft.static.rnn import (
    bidirectional_dynamic_rnn,
    dynamic_rnn,
    static_bidirectional_rnn,
    static_rnn,
)
from weft.static.sampling import (
    log_uniform_candidate_sampler,
    nce_loss,
    sampled_softmax_loss,
    uniform_candidate_sampler,
)
from weft.static.unranked import record_all

_relu = overridable(weft.relu, "relu")


def relu(features: Any, name: str | None = None) -> Any:
    """Zero for negative elements.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.relu([-1.0, 2.0]))
    array([0., 2.], dtype=float32)
    """
    return _named(_relu(_node(features)), name)


def softmax(
    logits: Any, axis: int = -1, name: str | None = None, dim: int | None = None
) -> Any:
    """Chances from scores.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.softmax([1.0, 1.0]))
    array([0.5, 0.5], dtype=float32)
    """
    return _named(F.softmax(_node(logits), axis if dim is None else dim), name)


def log_softmax(
    logits: Any, axis: int = -1, name: str | None = None, dim: int | None = None
) -> Any:
    """Logarithms of chances from scores.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.log_softmax([0.0])) + 0
    array([0.], dtype=float32)
    """
    along = axis if dim is None else dim
    return _named(F.log_softmax(_node(logits), along), name)


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


@with_scalars("keep_prob", "rate")
@function
def dropout(
    x: Any, keep_prob: Any = None, noise_shape: Any = None, seed: int | None = None,
    rate: Any = None,
) -> Any:  # fmt: skip
    """Elements set to zero at random in every run, the others scaled up.

    The chance is a number, or a node such as a placeholder. Axes of size one in
    ``noise_shape`` are kept or dropped as a whole.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     set(session.run(weft.static.nn.dropout(np.ones(64), rate=0.5)).tolist())
    {0.0, 2.0}
    """
    x = _node(x)
    if keep_prob is None and rate is None:
        raise ArgumentError("dropout: expected rate= or keep_prob=")
    keep = keep_prob if rate is None else 1 - rate
    if isinstance(keep, (int, float)):
        if not 0 < keep <= 1:
            raise ArgumentError(
                f"dropout: expected a keep_prob above 0 and up to 1, got {keep}"
            )
        if keep == 1:
            return identity(x)
    shape = x.shape if noise_shape is None else _noise(x, noise_shape)
    drawn = random_uniform(shape, seed=seed)
    scale = keep.to(x.dtype) if isinstance(keep, weft.Tensor) else keep
    return weft.where(drawn < keep, x / scale, 0.0)


def _noise(x: Any, shape: Any) -> tuple[Any, ...]:
    return tuple(m if n is None else n for n, m in zip(shape, x.shape, strict=True))


@function
def bias_add(value: Any, bias: Any, data_format: str | None = None) -> Any:
    """A bias added to each channel: along the last axis, or the second (NCHW).

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.bias_add([[1.0, 2.0]], [1.0, 1.0]))
    array([[2., 3.]], dtype=float32)
    """
    x, b = _node(value), _node(bias)
    if data_format is not None and data_format.startswith("NC"):
        b = b.reshape(-1, *[1] * (x.ndim - 2))
    return x + b


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


@function
def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    validate_indices: bool = True,
    max_norm: float | None = None,
) -> Any:
    """Rows of a table by their indices, shortened to ``max_norm`` if one is given.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.nn.embedding_lookup([[1.0], [2.0]], [1]))
    array([[2.]], dtype=float32)
    """
    if isinstance(params, (list, tuple)) and isinstance(params[0], weft.Tensor):
        if len(params) > 1:
            raise ArgumentError(
                "embedding_lookup: expected one table, got a list of "
                f"{len(params)}; join its parts first"
            )
        params = params[0]
    rows = F.embedding(_node(ids), _node(params))
    if max_norm is None:
        return rows
    length = (rows * rows).sum(-1, keepdim=True).sqrt()
    return weft.where(length > max_norm, rows * (max_norm / length), rows)


@function
def moments(
    x: Any, axes: Any, shift: Any = None, keep_dims: bool = False,
    keepdims: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Mean and variance over axes.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     [float(v) for v in session.run(weft.static.nn.moments([1.0, 3.0], [0]))]
    [2.0, 1.0]
    """
    x, kept = _node(x), keepdims or keep_dims
    dims = (axes,) if isinstance(axes, int) else tuple(axes)
    mean = x.mean(dims, keepdim=True)
    spread = ((x - mean) ** 2).mean(dims, keepdim=kept)
    return x.mean(dims, keepdim=kept), spread


@function
def softmax_cross_entropy_with_logits_v2(
    labels: Any, logits: Any, axis: int | None = None, dim: int | None = None
) -> Any:
    """The cross entropy of each row, with chances as labels; both have gradients.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.nn.softmax_cross_entropy_with_logits_v2(
    ...         [[1, 0]], [[0.0, 0.0]])
    ...     session.run(node).round(4)
    array([0.6931], dtype=float32)
    """
    along = next((n for n in (axis, dim) if n is not None), -1)
    scores = F.log_softmax(_node(logits), along)
    return -(_node(labels) * scores).sum(along)


@function
def softmax_cross_entropy_with_logits(
    _sentinel: None = None, labels: Any = None, logits: Any = None, dim: int = -1,
    axis: int | None = None,
) -> Any:  # fmt: skip
    """The cross entropy of each row, with chances as labels, which get no gradient.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     node = weft.static.nn.softmax_cross_entropy_with_logits(
    ...         labels=[[1, 0]], logits=[[0.0, 0.0]])
    ...     session.run(node).round(4)
    array([0.6931], dtype=float32)
    """
    if _sentinel is not None:
        labels, logits = _sentinel, labels
    truth = _node(labels).detach()
    return softmax_cross_entropy_with_logits_v2(truth, logits, axis, dim)


@function
def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any) -> Any:
    """The cross entropy of each row, with class indices as labels.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     node = weft.static.nn.sparse_softmax_cross_entropy_with_logits(
    ...         [1], [[0.0, 0.0]])
    ...     session.run(node).round(4)
    array([0.6931], dtype=float32)
    """
    scores = F.log_softmax(_node(logits), -1)
    ids = _node(labels).to(weft.int64)
    return -scores.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


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


@function
def weighted_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, pos_weight: Any = 1.0, targets: Any = None
) -> Any:
    """The cross entropy of two classes, with a weight for the positive one.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.nn.weighted_cross_entropy_with_logits([1.0], [0.0], 2.0)
    ...     session.run(node).round(4)
    array([1.3863], dtype=float32)
    """
    z, x = _node(targets if labels is None else labels), _node(logits)
    return (1 - z) * x + (1 + (pos_weight - 1) * z) * F.softplus(-x)


@function
def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: float
) -> Any:
    """``scale (x - mean) / √(variance + epsilon) + offset``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.nn.batch_normalization([3.0], 1.0, 4.0, 0.0, 2.0, 0.0)
    ...     session.run(node)
    array([2.], dtype=float32)
    """
    rate = (_node(variance) + variance_epsilon).rsqrt()
    rate = rate if scale is None else rate * _node(scale)
    out = (_node(x) - _node(mean)) * rate
    return out if offset is None else out + _node(offset)


@function
def fused_batch_norm(
    x: Any, scale: Any, offset: Any, mean: Any = None, variance: Any = None,
    epsilon: float = 0.001, data_format: str = "NHWC", is_training: bool = True,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Batch normalization of images; returns also the mean and the variance.

    In training these are the batch's, the variance as an estimate (over ``n - 1``).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.constant(np.ones((2, 2, 2, 3), "f"))
    ...     y, mean, var = weft.static.nn.fused_batch_norm(x, np.ones(3), np.zeros(3))
    ...     session.run(mean)
    array([1., 1., 1.], dtype=float32)
    """
    x = _node(x)
    last = data_format == "NHWC"
    x = x if last else x.permute(0, 2, 3, 1)
    out_mean, out_variance = mean, variance
    if is_training:
        mean, variance = moments(x, [0, 1, 2])
        count = x.shape[0] * x.shape[1] * x.shape[2]
        out_mean, out_variance = mean, variance * count / (count - 1)
    y = batch_normalization(x, mean, variance, offset, scale, epsilon).to(x.dtype)
    return y if last else y.permute(0, 3, 1, 2), out_mean, out_variance


@function
def local_response_normalization(
    input: Any, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0,
    beta: float = 0.5,
) -> Any:  # fmt: skip
    """Each element over a power of the squares of its neighbours' in other channels.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     node = weft.static.nn.lrn(np.ones((1, 1, 1, 1)), 1, bias=0.0)
    ...     float(session.run(node).item())
    1.0
    """
    x, reach = _node(input), 2 * depth_radius + 1
    first = x.permute(0, 3, 1, 2)
    out = F.local_response_norm(first, reach, alpha * reach, beta, bias)
    return out.permute(0, 2, 3, 1)


lrn = local_response_normalization


@function
def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, dim: Any = None
) -> Any:
    """``x / max(‖x‖, √epsilon)`` along axes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.nn.l2_normalize([3.0, 4.0], 0))
    array([0.6, 0.8], dtype=float32)
    """
    x = _node(x)
    along = dim if axis is None else axis
    dims = tuple(range(x.ndim)) if along is None else along
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    return x * weft.clamp((x * x).sum(dims, keepdim=True), epsilon).rsqrt()


class TopK(NamedTuple):
    """The largest elements and where they stood."""

    values: Any
    indices: Any


@function
def top_k(input: Any, k: int = 1, sorted: bool = True) -> TopK:
    """The ``k`` largest elements along the last axis, and their indices.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.nn.top_k([1.0, 3.0, 2.0], 2).indices)
    array([1, 2], dtype=int32)
    """
    values, indices = weft.topk(_node(input), k)
    return TopK(values, indices.to(weft.int32))


@function
def in_top_k(predictions: Any, targets: Any, k: int) -> Any:
    """Whether the target's score is among the ``k`` largest of its row; ties are.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.nn.in_top_k([[0.1, 0.7, 0.2]], [2], 1))
    array([False])
    """
    scores, ids = _node(predictions), _node(targets).to(weft.int64)
    own = scores.gather(1, ids.unsqueeze(1))
    return ((scores > own).sum(1) < k) & weft.isfinite(own.squeeze(1))


@function
def crelu(features: Any, axis: int = -1) -> Any:
    """``relu(x)`` beside ``relu(-x)``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.nn.crelu([-1.0, 2.0]))
    array([0., 2., 1., 0.], dtype=float32)
    """
    x = _node(features)
    return weft.relu(weft.cat([x, -x], axis))


@function
def zero_fraction(value: Any) -> Any:
    """The share of elements that are zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.nn.zero_fraction([0.0, 1.0])))
    0.5
    """
    return (_node(value) == 0).to(weft.float32).mean()


@function
def relu_layer(x: Any, weights: Any, biases: Any) -> Any:
    """The ReLU of ``x @ weights + biases``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.nn.relu_layer([[1.0]], [[-2.0]], [1.0])).item()
    0.0
    """
    return relu(xw_plus_b(x, weights, biases))


@function
def weighted_moments(
    x: Any, axes: Any, frequency_weights: Any, keep_dims: bool = False,
    keepdims: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The mean and variance over axes, in which elements count by their weights.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     m, v = weft.static.nn.weighted_moments([1.0, 4.0], [0], [2.0, 1.0])
    ...     float(session.run(m)), float(session.run(v))
    (2.0, 2.0)
    """
    value, dims, keep = _node(x), tuple(axes), keep_dims or keepdims
    weight = _node(frequency_weights).to(value.dtype) + weft.zeros_like(value)
    total = weight.sum(dims, keepdim=True)
    mean = (weight * value).sum(dims, keepdim=True) / total
    spread = (weight * (value - mean) ** 2).sum(dims, keepdim=keep)
    out = mean if keep else mean.reshape(spread.shape)
    return out, spread / total.reshape(spread.shape)


@function
def log_poisson_loss(
    targets: Any, log_input: Any, compute_full_loss: bool = False
) -> Any:
    """The Poisson loss of logarithms of rates, up to a constant unless it is full.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.nn.log_poisson_loss(2.0, 0.0)))
    1.0
    """
    z, c = _node(targets), _node(log_input)
    loss = weft.exp(c) - c * z
    if not compute_full_loss:
        return loss
    stirling = z * weft.log(z) - z + 0.5 * weft.log(2 * math.pi * z)
    return loss + weft.where((z >= 0) & (z <= 1), 0.0, stirling)


depthwise_conv2d_native = depthwise_conv2d


def _activation(fn: Any, name: str) -> Any:
    made = _unary(fn, name)
    text = made.__doc__ or ""
    text = text.replace(f"static.{name}(", f"static.nn.{name}(")
    made.__doc__ = text.replace("weft.", "weft.nn.functional.", 1)
    return made


relu6 = _activation(F.relu6, "relu6")
selu = _activation(F.selu, "selu")
softsign = _activation(F.softsign, "softsign")
swish = silu = _activation(F.silu, "swish")
log_sigmoid = _activation(F.logsigmoid, "log_sigmoid")

__all__ = [
    "atrous_conv2d", "avg_pool", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "batch_normalization", "bias_add", "bidirectional_dynamic_rnn", "conv1d",
    "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose",
    "convolution", "crelu", "ctc_loss", "depthwise_conv2d", "depthwise_conv2d_native",
    "dropout", "dynamic_rnn", "elu", "embedding_lookup", "fused_batch_norm",
    "in_top_k", "l2_loss", "l2_normalize", "leaky_relu",
    "local_response_normalization", "log_poisson_loss", "log_sigmoid", "log_softmax",
    "log_uniform_candidate_sampler", "lrn", "max_pool", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_pool_with_argmax", "moments", "nce_loss", "pool", "relu",
    "relu6", "relu_layer", "rnn_cell", "sampled_softmax_loss", "selu",
    "separable_conv2d", "sigmoid", "sigmoid_cross_entropy_with_logits", "silu",
    "softmax", "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2", "softplus", "softsign",
    "sparse_softmax_cross_entropy_with_logits", "static_bidirectional_rnn",
    "static_rnn", "swish", "tanh", "top_k", "uniform_candidate_sampler",
    "weighted_cross_entropy_with_logits", "weighted_moments", "xw_plus_b",
    "zero_fraction",
]  # fmt: skip
record_all(globals())


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("nn", name)
