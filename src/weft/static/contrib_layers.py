"""``contrib.layers``: layers whose activation is ReLU unless told otherwise."""

from __future__ import annotations

from typing import Any

from weft.static import layers, nn
from weft.static.arg_scope import add_arg_scope
from weft.static.initializers import VarianceScaling
from weft.static.layers import flatten
from weft.static.regularizers import l1_l2_regularizer, l1_regularizer, l2_regularizer
from weft.static.scopes import variable_scope

__all__ = [
    "avg_pool2d", "batch_norm", "conv2d", "convolution2d", "dropout", "flatten",
    "fully_connected", "l1_l2_regularizer", "l1_regularizer", "l2_regularizer",
    "linear", "max_pool2d", "relu", "repeat", "stack", "variance_scaling_initializer",
    "xavier_initializer", "xavier_initializer_conv2d",
]  # fmt: skip


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = "float32"
) -> VarianceScaling:
    """Glorot's initializer.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     start = weft.static.contrib.layers.xavier_initializer()
    ...     session.run(start([3, 4])).shape
    (3, 4)
    """
    kind = "uniform" if uniform else "normal"
    return VarianceScaling(1.0, "fan_avg", kind, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def variance_scaling_initializer(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False,
    seed: int | None = None, dtype: Any = "float32",
) -> VarianceScaling:  # fmt: skip
    """He's initializer unless told otherwise.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     start = weft.static.contrib.layers.variance_scaling_initializer()
    ...     session.run(start([3, 4])).shape
    (3, 4)
    """
    kind = "uniform" if uniform else "normal"
    return VarianceScaling(factor, mode.lower(), kind, seed, dtype)


_NAMES = {"kernel": "weights", "bias": "biases"}


class _FullyConnected(layers.Dense):
    renamed = _NAMES

    @classmethod
    def base_name(cls) -> str:
        return "fully_connected"


class _Conv(layers.Conv2D):
    renamed = _NAMES

    @classmethod
    def base_name(cls) -> str:
        return "Conv"


def _applied(
    cls: Any, inputs: Any, sizes: Any, activation_fn: Any, normalizer_fn: Any,
    normalizer_params: Any, weights_initializer: Any, weights_regularizer: Any,
    biases_initializer: Any, biases_regularizer: Any, reuse: Any, trainable: bool,
    scope: Any, **options: Any,
) -> Any:  # fmt: skip
    layer = cls(
        *sizes, use_bias=normalizer_fn is None and biases_initializer is not None,
        kernel_initializer=weights_initializer or xavier_initializer(),
        kernel_regularizer=weights_regularizer, bias_regularizer=biases_regularizer,
        bias_initializer=biases_initializer, trainable=trainable, _reuse=reuse,
        **options,
    )  # fmt: skip
    out = layer(inputs, scope=scope)
    if normalizer_fn is not None:
        out = normalizer_fn(out, **(normalizer_params or {}))
    return out if activation_fn is None else activation_fn(out)


def fully_connected(
    inputs: Any, num_outputs: int, activation_fn: Any = nn.relu,
    normalizer_fn: Any = None, normalizer_params: Any = None,
    weights_initializer: Any = None, weights_regularizer: Any = None,
    biases_initializer: Any = layers.Zeros, biases_regularizer: Any = None,
    reuse: Any = None, trainable: bool = True, scope: Any = None,
) -> Any:  # fmt: skip
    """A dense layer, with ReLU unless told otherwise.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 3])
    ...     y = weft.static.contrib.layers.fully_connected(x, 4)
    ...     [v.name for v in weft.static.global_variables()]
    ['fully_connected/weights', 'fully_connected/biases']
    """
    return _applied(
        _FullyConnected, inputs, (num_outputs,), activation_fn, normalizer_fn,
        normalizer_params, weights_initializer, weights_regularizer,
        biases_initializer, biases_regularizer, reuse, trainable, scope,
    )  # fmt: skip


def linear(inputs: Any, num_outputs: int, **options: Any) -> Any:
    """A dense layer without activation.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 3])
    ...     weft.static.contrib.layers.linear(x, 4).get_shape()
    (None, 4)
    """
    return fully_connected(inputs, num_outputs, activation_fn=None, **options)


def relu(inputs: Any, num_outputs: int, **options: Any) -> Any:
    """A dense layer with ReLU.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 3])
    ...     weft.static.contrib.layers.relu(x, 4).get_shape()
    (None, 4)
    """
    return fully_connected(inputs, num_outputs, **options)


def conv2d(
    inputs: Any, num_outputs: int, kernel_size: Any, stride: Any = 1,
    padding: str = "SAME", data_format: str | None = None, rate: Any = 1,
    activation_fn: Any = nn.relu, normalizer_fn: Any = None,
    normalizer_params: Any = None, weights_initializer: Any = None,
    weights_regularizer: Any = None, biases_initializer: Any = layers.Zeros,
    biases_regularizer: Any = None, reuse: Any = None, trainable: bool = True,
    scope: Any = None,
) -> Any:  # fmt: skip
    """A convolution with SAME padding and ReLU unless told otherwise.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     weft.static.contrib.layers.conv2d(x, 4, 3).get_shape()
    (None, 8, 8, 4)
    """
    return _applied(
        _Conv, inputs, (num_outputs, kernel_size, stride, padding), activation_fn,
        normalizer_fn, normalizer_params, weights_initializer, weights_regularizer,
        biases_initializer, biases_regularizer, reuse, trainable, scope,
        dilation_rate=rate, data_format=data_format,
    )  # fmt: skip


convolution2d = conv2d


def max_pool2d(
    inputs: Any, kernel_size: Any, stride: Any = 2, padding: str = "VALID",
    data_format: str | None = None, scope: Any = None,
) -> Any:  # fmt: skip
    """The largest element of windows.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     weft.static.contrib.layers.max_pool2d(x, 2).get_shape()
    (None, 4, 4, 3)
    """
    return nn.max_pool2d(inputs, kernel_size, stride, padding, data_format)


def avg_pool2d(
    inputs: Any, kernel_size: Any, stride: Any = 2, padding: str = "VALID",
    data_format: str | None = None, scope: Any = None,
) -> Any:  # fmt: skip
    """The mean of windows.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     weft.static.contrib.layers.avg_pool2d(x, 2).get_shape()
    (None, 4, 4, 3)
    """
    return nn.avg_pool2d(inputs, kernel_size, stride, padding, data_format)


def batch_norm(
    inputs: Any, decay: float = 0.999, center: bool = True, scale: bool = False,
    epsilon: float = 0.001, activation_fn: Any = None, is_training: Any = True,
    reuse: Any = None, trainable: bool = True, updates_collections: Any = "update_ops",
    scope: Any = None, **ignored: Any,
) -> Any:  # fmt: skip
    """Batch normalization, without a scale unless told otherwise.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 3])
    ...     weft.static.contrib.layers.batch_norm(x).get_shape()
    (None, 3)
    """
    from weft.errors import ArgumentError

    if updates_collections != "update_ops":
        raise ArgumentError(
            "batch_norm: updates are in the collection GraphKeys.UPDATE_OPS; let the "
            "training step depend on them"
        )
    layer = _BatchNorm(
        -1, decay, epsilon, center, scale, trainable=trainable, _reuse=reuse
    )
    out = layer(inputs, training=is_training, scope=scope)
    return out if activation_fn is None else activation_fn(out)


class _BatchNorm(layers.BatchNormalization):
    @classmethod
    def base_name(cls) -> str:
        return "BatchNorm"


def dropout(
    inputs: Any, keep_prob: Any = 0.5, noise_shape: Any = None,
    is_training: Any = True, scope: Any = None, seed: int | None = None,
) -> Any:  # fmt: skip
    """Dropout while training.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 3])
    ...     weft.static.contrib.layers.dropout(x).get_shape()
    (None, 3)
    """
    return layers.dropout(
        inputs, 1 - keep_prob, noise_shape, seed, training=is_training
    )


def repeat(
    inputs: Any, repetitions: int, layer: Any, *args: Any, scope: str | None = None,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """A layer applied several times, each time with variables of its own.

    >>> with weft.static.Graph().as_default():
    ...     slim = weft.static.contrib.slim
    ...     x = np.ones((1, 8, 8, 3), "f")
    ...     y = slim.repeat(x, 2, slim.conv2d, 4, 3, scope="conv")
    ...     [v.name for v in weft.static.trainable_variables()][::2]
    ['conv/conv_1/weights', 'conv/conv_2/weights']
    """
    name = scope or layer.__name__
    with variable_scope(name):
        for k in range(1, repetitions + 1):
            inputs = layer(inputs, *args, scope=f"{name}_{k}", **kwargs)
    return inputs


def stack(
    inputs: Any, layer: Any, stack_args: Any, scope: str | None = None, **kwargs: Any
) -> Any:
    """A layer applied with each of several arguments.

    >>> with weft.static.Graph().as_default():
    ...     slim = weft.static.contrib.slim
    ...     slim.stack(np.ones((1, 3), "f"), slim.fully_connected, [5, 2]).get_shape()
    (1, 2)
    """
    name = scope or layer.__name__
    with variable_scope(name):
        for k, given in enumerate(stack_args, 1):
            args = given if isinstance(given, (list, tuple)) else [given]
            inputs = layer(inputs, *args, scope=f"{name}_{k}", **kwargs)
    return inputs


batch_norm, conv2d = add_arg_scope(batch_norm), add_arg_scope(conv2d)
dropout, fully_connected = add_arg_scope(dropout), add_arg_scope(fully_connected)
max_pool2d, avg_pool2d = add_arg_scope(max_pool2d), add_arg_scope(avg_pool2d)
convolution2d = conv2d


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("contrib.layers", name)
