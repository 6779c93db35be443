"""Layers under TensorFlow 1's names: ``layers.dense(x, 10)``, ``layers.Dense(10)``.

Values have their channels last unless ``data_format="channels_first"``.
"""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.errors import ArgumentError, ShapeError
from weft.static import convolution
from weft.static.building import as_node, numbers, scalar
from weft.static.initializers import Ones, Zeros
from weft.static.layer import Layer
from weft.static.variable import Variable

__all__ = [
    "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "BatchNormalization",
    "Conv1D", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "Dense",
    "Dropout", "Flatten", "Layer", "MaxPooling1D", "MaxPooling2D",
    "MaxPooling3D", "SeparableConv2D", "average_pooling1d", "average_pooling2d",
    "average_pooling3d", "batch_normalization", "conv1d", "conv2d", "conv2d_transpose",
    "conv3d", "conv3d_transpose", "dense", "dropout", "flatten", "max_pooling1d",
    "max_pooling2d", "max_pooling3d", "separable_conv2d",
]  # fmt: skip


def _known(size: Any, what: str, shape: Any) -> int:
    if not isinstance(size, int):
        raise ShapeError(
            f"{what}: the number of channels must be known when the graph is built, "
            f"got shape {shape}"
        )
    return size


class _Weighted(Layer):
    """A layer with a kernel and a bias."""

    def __init__(
        self, activation: Any = None, use_bias: bool = True,
        kernel_initializer: Any = None, bias_initializer: Any = None,
        kernel_regularizer: Any = None, bias_regularizer: Any = None,
        kernel_constraint: Any = None, bias_constraint: Any = None, **layer: Any,
    ) -> None:  # fmt: skip
        super().__init__(**layer)
        self.activation, self.use_bias = activation, use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = (
            Zeros() if bias_initializer is None else bias_initializer
        )
        self.kernel_regularizer = kernel_regularizer
        self.bias_regularizer = bias_regularizer
        self.kernel_constraint = kernel_constraint
        self.bias_constraint = bias_constraint
        self.bias: Variable | None = None

    def _kernel(self, shape: Any, name: str = "kernel") -> Variable:
        return self.add_variable(
            name, shape, initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer, constraint=self.kernel_constraint,
        )  # fmt: skip

    def _add_bias(self, size: int) -> None:
        if self.use_bias:
            self.bias = self.add_variable(
                "bias", [size], initializer=self.bias_initializer,
                regularizer=self.bias_regularizer, constraint=self.bias_constraint,
            )  # fmt: skip

    def _finished(self, out: Any, last: bool = True) -> Any:
        """The result with its bias and activation."""
        if self.bias is not None:
            shape = () if last else (1,) * (out.ndim - 2)
            out = out + (self.bias if last else self.bias.reshape(-1, *shape))
        return out if self.activation is None else self.activation(out)


class Dense(_Weighted):
    """``activation(x @ kernel + bias)`` along the last axis.

    >>> with weft.static.Graph().as_default():
    ...     layer = weft.static.layers.Dense(4)
    ...     y = layer(weft.static.placeholder(weft.float32, [None, 3]))
    ...     y.get_shape(), layer.kernel.name
    ((None, 4), 'dense/kernel')
    """

    def __init__(self, units: int, activation: Any = None, **layer: Any) -> None:
        super().__init__(activation, **layer)
        self.units = int(units)

    def build(self, input_shape: Any) -> None:
        wide = _known(input_shape[-1], "dense", input_shape)
        self.kernel = self._kernel([wide, self.units])
        self._add_bias(self.units)

    def call(self, inputs: Any) -> Any:
        return self._finished(as_node(inputs) @ self.kernel)


class _Convolution(_Weighted):
    """A convolution over some number of axes."""

    axes = 2

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
        data_format: str = "channels_last", dilation_rate: Any = 1, **layer: Any,
    ) -> None:  # fmt: skip
        super().__init__(**layer)
        self.filters, self.padding = filters, padding
        self.kernel_size = numbers(kernel_size, self.axes, "kernel_size")
        self.strides = numbers(strides, self.axes, "strides")
        self.dilation_rate = numbers(dilation_rate, self.axes, "dilation_rate")
        self.data_format = data_format
        self.last = convolution.channels_last(data_format, self.axes)

    def _channels(self, shape: Any) -> int:
        return _known(shape[-1 if self.last else 1], self.base_name(), shape)

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self.kernel = self._kernel([*self.kernel_size, channels, self.filters])
        self._add_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        out = convolution.convolved(
            inputs, self.kernel, self.strides, self.padding, self.data_format,
            self.dilation_rate, self.axes,
        )  # fmt: skip
        return self._finished(out, self.last)

    @classmethod
    def base_name(cls) -> str:
        return f"conv{cls.axes}d"


class Conv1D(_Convolution):
    """A convolution over one axis.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 3])
    ...     weft.static.layers.Conv1D(4, 3)(x).get_shape()
    (None, 6, 4)
    """

    axes = 1


class Conv2D(_Convolution):
    """A convolution over two axes.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     weft.static.layers.Conv2D(4, 3, padding="same")(x).get_shape()
    (None, 8, 8, 4)
    """


class Conv3D(_Convolution):
    """A convolution over three axes.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 4, 4, 4, 1])
    ...     weft.static.layers.Conv3D(2, 3)(x).get_shape()
    (None, 2, 2, 2, 2)
    """

    axes = 3


class Conv2DTranspose(_Convolution):
    """The transpose of a convolution, which makes images larger.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 4, 4, 3])
    ...     up = weft.static.layers.Conv2DTranspose(2, 3, 2, padding="same")
    ...     up(x).get_shape()
    (None, 8, 8, 2)
    """

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self.kernel = self._kernel([*self.kernel_size, self.filters, channels])
        self._add_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        x = as_node(inputs)
        space = x.shape[1:-1] if self.last else x.shape[2:]
        more = self.padding.upper() == "VALID"
        sizes = [
            n * step + (max(k - step, 0) if more else 0)
            for n, step, k in zip(space, self.strides, self.kernel_size, strict=True)
        ]
        out = convolution.transposed(
            x, self.kernel, sizes, self.strides, self.padding, self.data_format,
            self.axes,
        )  # fmt: skip
        return self._finished(out, self.last)

    @classmethod
    def base_name(cls) -> str:
        return f"conv{cls.axes}d_transpose"


class Conv3DTranspose(Conv2DTranspose):
    """The transpose of a convolution over three axes.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 2, 2, 2, 3])
    ...     weft.static.layers.Conv3DTranspose(2, 3)(x).get_shape()
    (None, 4, 4, 4, 2)
    """

    axes = 3


class SeparableConv2D(_Convolution):
    """A convolution of each channel by itself, then a mixing of channels.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 8, 8, 3])
    ...     weft.static.layers.SeparableConv2D(4, 3)(x).get_shape()
    (None, 6, 6, 4)
    """

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
        data_format: str = "channels_last", dilation_rate: Any = 1,
        depth_multiplier: int = 1, depthwise_initializer: Any = None,
        pointwise_initializer: Any = None, depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None, **layer: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            filters, kernel_size, strides, padding, data_format, dilation_rate, **layer
        )
        self.depth_multiplier = depth_multiplier
        self.starts = depthwise_initializer, pointwise_initializer
        self.penalties = depthwise_regularizer, pointwise_regularizer

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        shapes = (
            [*self.kernel_size, channels, self.depth_multiplier],
            [1, 1, channels * self.depth_multiplier, self.filters],
        )
        self.depthwise_kernel, self.pointwise_kernel = [
            self.add_variable(f"{name}_kernel", shape, None, start, penalty)
            for name, shape, start, penalty in zip(
                ("depthwise", "pointwise"), shapes, self.starts, self.penalties,
                strict=True,
            )
        ]  # fmt: skip
        self._add_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        out = convolution.separable_conv2d(
            inputs, self.depthwise_kernel, self.pointwise_kernel, self.strides,
            self.padding, self.dilation_rate, "NHWC" if self.last else "NCHW",
        )  # fmt: skip
        return self._finished(out, self.last)

    @classmethod
    def base_name(cls) -> str:
        return "separable_conv2d"


class _Pooling(Layer):
    """The largest element or the mean of windows."""

    axes = 2
    largest = True

    def __init__(
        self, pool_size: Any, strides: Any, padding: str = "valid",
        data_format: str = "channels_last", name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name)
        self.pool_size = numbers(pool_size, self.axes, "pool_size")
        self.strides = numbers(strides, self.axes, "strides")
        self.padding, self.data_format = padding, data_format

    def call(self, inputs: Any) -> Any:
        return convolution.pooled(
            inputs, self.pool_size, self.strides, self.padding, self.data_format,
            self.axes, self.largest,
        )  # fmt: skip


def _pooling(kind: str, axes: int) -> Any:
    name = f"{kind}Pooling{axes}D"
    size = ", ".join(["4"] * axes)
    doc = f"""{"The largest element" if kind == "Max" else "The mean"} of windows.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, {size}, 3])
    ...     weft.static.layers.{name}(2, 2)(x).get_shape()
    (None, {", ".join(["2"] * axes)}, 3)
    """
    fields = {"axes": axes, "largest": kind == "Max", "__doc__": doc}
    return type(name, (_Pooling,), {**fields, "__module__": __name__})


MaxPooling1D, AveragePooling1D = _pooling("Max", 1), _pooling("Average", 1)
MaxPooling2D, AveragePooling2D = _pooling("Max", 2), _pooling("Average", 2)
MaxPooling3D, AveragePooling3D = _pooling("Max", 3), _pooling("Average", 3)


class BatchNormalization(Layer):
    """Normalization by the batch in training, by moving means otherwise.

    ``training`` is a bool or a node. What moves the means is in the collection
    ``GraphKeys.UPDATE_OPS``: a training step must depend on it.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 3])
    ...     y = weft.static.layers.BatchNormalization()(x, training=True)
    ...     len(weft.static.get_collection(weft.static.GraphKeys.UPDATE_OPS))
    2
    """

    def __init__(
        self, axis: Any = -1, momentum: float = 0.99, epsilon: float = 1e-3,
        center: bool = True, scale: bool = True, beta_initializer: Any = None,
        gamma_initializer: Any = None, moving_mean_initializer: Any = None,
        moving_variance_initializer: Any = None, beta_regularizer: Any = None,
        gamma_regularizer: Any = None, renorm: bool = False, fused: bool | None = None,
        **layer: Any,
    ) -> None:  # fmt: skip
        super().__init__(**layer)
        if renorm:
            raise ArgumentError("batch_normalization: there is no renorm")
        self.axis = axis[0] if isinstance(axis, (list, tuple)) else axis
        self.momentum, self.epsilon, self.fused = momentum, epsilon, fused
        self.center, self.scale = center, scale
        self.starts = {
            "gamma": gamma_initializer or Ones(), "beta": beta_initializer or Zeros(),
            "moving_mean": moving_mean_initializer or Zeros(),
            "moving_variance": moving_variance_initializer or Ones(),
        }  # fmt: skip
        self.penalties = {"gamma": gamma_regularizer, "beta": beta_regularizer}
        self.gamma: Variable | None = None
        self.beta: Variable | None = None

    def _made(self, name: str, size: int, trainable: bool) -> Variable:
        return self.add_variable(
            name, [size], initializer=self.starts[name],
            regularizer=self.penalties.get(name), trainable=trainable,
        )  # fmt: skip

    def build(self, input_shape: Any) -> None:
        size = _known(input_shape[self.axis], "batch_normalization", input_shape)
        if self.scale:
            self.gamma = self._made("gamma", size, True)
        if self.center:
            self.beta = self._made("beta", size, True)
        self.moving_mean = self._made("moving_mean", size, False)
        self.moving_variance = self._made("moving_variance", size, False)

    def call(self, inputs: Any, training: Any = False) -> Any:
        x, training = as_node(inputs), scalar(training)
        axis = self.axis % x.ndim
        shape = [-1 if d == axis else 1 for d in range(x.ndim)]
        mean, variance = self._statistics(x, axis, training)
        out = (x - mean.reshape(shape)) * (
            variance.reshape(shape) + self.epsilon
        ).rsqrt()
        if self.gamma is not None:
            out = out * self.gamma.reshape(shape)
        return out if self.beta is None else out + self.beta.reshape(shape)

    def _statistics(self, x: Any, axis: int, training: Any) -> tuple[Any, Any]:
        """The mean and variance to use; in training, the moving ones are updated."""
        moving = self.moving_mean, self.moving_variance
        if not isinstance(training, weft.Tensor) and not training:
            return moving
        dims = tuple(d for d in range(x.ndim) if d != axis)
        mean = x.mean(dims)
        variance = weft.var(x, dims, correction=0)
        estimate = variance
        if x.ndim == 4 and self.fused is not False:  # TensorFlow's kernel for images
            count = math.prod([x.shape[d] for d in dims])
            estimate = variance * (count / (count - 1))
        if isinstance(training, weft.Tensor):
            flag = training.to(weft.bool)
            self._move(
                *[
                    weft.where(flag, b, m)
                    for b, m in zip((mean, estimate), moving, strict=True)
                ]
            )
            mean, variance = [
                weft.where(flag, b, m)
                for b, m in zip((mean, variance), moving, strict=True)
            ]
        else:
            self._move(mean, estimate)
        return mean, variance

    def _move(self, mean: Any, variance: Any) -> None:
        pairs = (self.moving_mean, mean), (self.moving_variance, variance)
        for moving, now in pairs:
            self.add_update(moving.assign_sub((moving - now) * (1 - self.momentum)))


class Dropout(Layer):
    """Elements set to zero at random while training, the others scaled up.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.constant([1.0, 2.0])
    ...     session.run(weft.static.layers.Dropout(0.5)(x))
    array([1., 2.], dtype=float32)
    """

    def __init__(
        self, rate: Any = 0.5, noise_shape: Any = None, seed: int | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name)
        self.rate, self.noise_shape, self.seed = rate, noise_shape, seed

    def call(self, inputs: Any, training: Any = False) -> Any:
        from weft.static.nn import dropout

        x, training = as_node(inputs), scalar(training)
        if not isinstance(training, weft.Tensor) and not training:
            return x
        out = dropout(x, noise_shape=self.noise_shape, seed=self.seed, rate=self.rate)
        if isinstance(training, weft.Tensor):
            out = weft.where(training.to(weft.bool), out, x)
        return out


class Flatten(Layer):
    """All axes but the first as one.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 4, 3])
    ...     weft.static.layers.Flatten()(x).get_shape()
    (None, 12)
    """

    def call(self, inputs: Any) -> Any:
        x = as_node(inputs)
        return x.reshape(x.shape[0], math.prod(x.shape[1:]))


def _functional(cls: Any, name: str, example: str, takes_training: bool = False) -> Any:
    """The layer as a function: a new layer, applied."""

    def call(inputs: Any, *args: Any, reuse: Any = None, name: str | None = None,
             **options: Any) -> Any:  # fmt: skip
        more = {}
        if takes_training:
            more = {"training": options.pop("training", False)}
        if reuse and name is None:
            raise ArgumentError(f"{cls.__name__}: reuse= needs a name=")
        layer = cls(*args, name=name, **options)
        layer._reuse = reuse
        return layer(inputs, **more)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""``layers.{cls.__name__}``, made and applied.

    ``name`` is the scope of its variables, which ``reuse=True`` shares.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.constant(np.ones({example}, "f"))
    ...     y = weft.static.layers.{name}(x{_EXAMPLES.get(name, ", 4, 2")}, name="mine")
    ...     type(y).__name__
    'StaticTensor'
    """
    return call


_EXAMPLES = {
    "batch_normalization": "", "dense": ", 4", "dropout": ", 0.5", "flatten": "",
    "max_pooling1d": ", 2, 2", "average_pooling1d": ", 2, 2",
    "max_pooling2d": ", 2, 2", "average_pooling2d": ", 2, 2",
    "max_pooling3d": ", 2, 2", "average_pooling3d": ", 2, 2",
}  # fmt: skip

dense = _functional(Dense, "dense", "(2, 3)")
conv1d = _functional(Conv1D, "conv1d", "(2, 5, 3)")
conv2d = _functional(Conv2D, "conv2d", "(2, 5, 5, 3)")
conv3d = _functional(Conv3D, "conv3d", "(2, 5, 5, 5, 3)")
conv2d_transpose = _functional(Conv2DTranspose, "conv2d_transpose", "(2, 5, 5, 3)")
conv3d_transpose = _functional(Conv3DTranspose, "conv3d_transpose", "(2, 3, 3, 3, 3)")
separable_conv2d = _functional(SeparableConv2D, "separable_conv2d", "(2, 5, 5, 3)")
max_pooling1d = _functional(MaxPooling1D, "max_pooling1d", "(2, 4, 3)")
max_pooling2d = _functional(MaxPooling2D, "max_pooling2d", "(2, 4, 4, 3)")
max_pooling3d = _functional(MaxPooling3D, "max_pooling3d", "(2, 4, 4, 4, 3)")
average_pooling1d = _functional(AveragePooling1D, "average_pooling1d", "(2, 4, 3)")
average_pooling2d = _functional(AveragePooling2D, "average_pooling2d", "(2, 4, 4, 3)")
average_pooling3d = _functional(
    AveragePooling3D, "average_pooling3d", "(2, 4, 4, 4, 3)"
)
batch_normalization = _functional(
    BatchNormalization, "batch_normalization", "(2, 3)", takes_training=True
)
dropout = _functional(Dropout, "dropout", "(2, 3)", takes_training=True)
flatten = _functional(Flatten, "flatten", "(2, 3)")


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("layers", name)
