"""Initializers: first values of variables by shape and dtype, as nodes.

``initializers.X`` and the longer name ``x_initializer`` are one thing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.dtype import as_dtype
from weft.errors import ArgumentError
from weft.static.building import building
from weft.static.graph import constant
from weft.static.random import random_normal, random_uniform, truncated_normal
from weft.static.shapes import sizes_of


class Initializer:
    """Base of initializers: a call with a shape makes the node of a first value."""

    def __init__(self, dtype: Any = weft.float32) -> None:
        self.dtype = dtype

    def __call__(
        self, shape: Any, dtype: Any = None, partition_info: None = None
    ) -> Any:
        sizes = tuple(int(n) for n in sizes_of(shape))
        with building():
            return self.values(sizes, as_dtype(dtype or self.dtype))

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The node of values of a shape and dtype."""
        raise NotImplementedError(f"{type(self).__name__} makes no values")


class Zeros(Initializer):
    """All zeros.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.zeros_initializer()([2]))
    array([0., 0.], dtype=float32)
    """

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return weft.zeros(shape, dtype=dtype)


class Ones(Initializer):
    """All ones.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.ones_initializer()([2]))
    array([1., 1.], dtype=float32)
    """

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return weft.ones(shape, dtype=dtype)


class Constant(Initializer):
    """One number everywhere, or the numbers of a list, of which the last one repeats.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.constant_initializer(0.5)([2]))
    array([0.5, 0.5], dtype=float32)
    """

    def __init__(
        self, value: Any = 0, dtype: Any = weft.float32, verify_shape: bool = False
    ) -> None:
        super().__init__(dtype)
        self.value = value

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        flat = np.asarray(self.value, dtype.np).ravel()
        count = math.prod(shape)
        if flat.size > count:
            raise ArgumentError(
                f"constant_initializer: {flat.size} values do not fit shape {shape}"
            )
        rest = np.full(count - flat.size, flat[-1] if flat.size else 0, dtype.np)
        return constant(np.concatenate([flat, rest]).reshape(shape), dtype)


class RandomNormal(Initializer):
    """Normal numbers.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.random_normal_initializer(stddev=0.1)([2])).shape
    (2,)
    """

    draw = staticmethod(random_normal)

    def __init__(
        self, mean: Any = 0.0, stddev: Any = 1.0, seed: int | None = None,
        dtype: Any = weft.float32,
    ) -> None:  # fmt: skip
        super().__init__(dtype)
        self.mean, self.stddev, self.seed = mean, stddev, seed

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.draw(shape, self.mean, self.stddev, dtype, self.seed)


class TruncatedNormal(RandomNormal):
    """Normal numbers no further than two deviations from the mean.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.truncated_normal_initializer()([2])).shape
    (2,)
    """

    draw = staticmethod(truncated_normal)


class RandomUniform(Initializer):
    """Uniform numbers.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.random_uniform_initializer(-1, 1)([2])).shape
    (2,)
    """

    def __init__(
        self, minval: Any = 0, maxval: Any = None, seed: int | None = None,
        dtype: Any = weft.float32,
    ) -> None:  # fmt: skip
        super().__init__(dtype)
        self.minval, self.maxval, self.seed = minval, maxval, seed

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        top = 1 if self.maxval is None else self.maxval
        return random_uniform(shape, self.minval, top, dtype, self.seed)


def fans(shape: Any) -> tuple[int, int]:
    """Inputs and outputs of a weight in TensorFlow's layout: (*window, in, out)."""
    sizes = [int(n) for n in shape]
    if len(sizes) < 2:
        return (sizes or [1])[0], (sizes or [1])[0]
    *window, inputs, outputs = sizes
    return inputs * math.prod(window), outputs * math.prod(window)


# The deviation of a standard normal that is cut off at two deviations.
_CUT = 0.87962566103423978


class VarianceScaling(Initializer):
    """Numbers with a variance of ``scale`` over the number of inputs, outputs or both.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.variance_scaling_initializer(2.0)([2, 3])).shape
    (2, 3)
    """

    MODES = ("fan_in", "fan_out", "fan_avg")
    DISTRIBUTIONS = ("normal", "truncated_normal", "untruncated_normal", "uniform")

    def __init__(
        self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "normal",
        seed: int | None = None, dtype: Any = weft.float32,
    ) -> None:  # fmt: skip
        super().__init__(dtype)
        if mode not in self.MODES:
            raise ArgumentError(f"mode: expected one of {self.MODES}, got {mode!r}")
        if distribution not in self.DISTRIBUTIONS:
            raise ArgumentError(
                f"distribution: expected one of {self.DISTRIBUTIONS}, got "
                f"{distribution!r}"
            )
        self.scale, self.mode = scale, mode
        self.distribution, self.seed = distribution, seed

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        fan_in, fan_out = fans(shape)
        fan = {"fan_in": fan_in, "fan_out": fan_out}
        variance = self.scale / max(1, fan.get(self.mode, (fan_in + fan_out) / 2))
        deviation = math.sqrt(variance)
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            return random_uniform(shape, -limit, limit, dtype, self.seed)
        if self.distribution == "untruncated_normal":
            return random_normal(shape, 0.0, deviation, dtype, self.seed)
        return truncated_normal(shape, 0.0, deviation / _CUT, dtype, self.seed)


class Orthogonal(Initializer):
    """A matrix with orthonormal rows or columns (all axes but the last are one).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     q = session.run(weft.static.orthogonal_initializer()([3, 2]))
    >>> np.allclose(q.T @ q, np.eye(2), atol=1e-5)
    True
    """

    def __init__(
        self, gain: float = 1.0, seed: int | None = None, dtype: Any = weft.float32
    ) -> None:
        super().__init__(dtype)
        self.gain, self.seed = gain, seed

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        if len(shape) < 2:
            raise ArgumentError(
                f"orthogonal_initializer: expected two axes or more, got shape {shape}"
            )
        rows, columns = math.prod(shape[:-1]), shape[-1]
        tall = (max(rows, columns), min(rows, columns))
        q, r = weft.linalg.qr(random_normal(tall, dtype=dtype, seed=self.seed))
        q = q * weft.sign(weft.diagonal(r))
        q = q.transpose(0, 1) if rows < columns else q
        return q.reshape(shape) * self.gain


class Identity(Initializer):
    """The identity matrix, perhaps with more rows or columns.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.initializers.identity()([1, 2]))
    array([[1., 0.]], dtype=float32)
    """

    def __init__(self, gain: float = 1.0, dtype: Any = weft.float32) -> None:
        super().__init__(dtype)
        self.gain = gain

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        if len(shape) != 2:
            raise ArgumentError(f"identity: expected two axes, got shape {shape}")
        return constant(self.gain * np.eye(*shape), dtype)


def _scaling(name: str, scale: float, mode: str, distribution: str) -> Any:
    """A named case of variance scaling."""

    def make(seed: int | None = None, dtype: Any = weft.float32) -> VarianceScaling:
        return VarianceScaling(scale, mode, distribution, seed, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""Variance scaling by {scale} over {mode}, {distribution}.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.initializers.{name}()([4, 3])).shape
    (4, 3)
    """
    return make


zeros, ones, constant_, random_normal_ = Zeros, Ones, Constant, RandomNormal
orthogonal, identity, variance_scaling = Orthogonal, Identity, VarianceScaling
glorot_uniform = _scaling("glorot_uniform", 1.0, "fan_avg", "uniform")
glorot_normal = _scaling("glorot_normal", 1.0, "fan_avg", "truncated_normal")
he_uniform = _scaling("he_uniform", 2.0, "fan_in", "uniform")
he_normal = _scaling("he_normal", 2.0, "fan_in", "truncated_normal")
lecun_uniform = _scaling("lecun_uniform", 1.0, "fan_in", "uniform")
lecun_normal = _scaling("lecun_normal", 1.0, "fan_in", "truncated_normal")


def started(initializer: Any, shape: Any, dtype: Any) -> Any:
    """A first value from an initializer (an object, its class, a function), or a value.

    Unless one is given it is Glorot's uniform one, and zeros for whole numbers.
    """
    if initializer is None:
        initializer = glorot_uniform() if dtype.is_inexact else Zeros()
    if isinstance(initializer, type) and issubclass(initializer, Initializer):
        initializer = initializer()
    if not callable(initializer) or isinstance(initializer, Tensor):
        return initializer
    with building():
        return _called(initializer, shape, dtype)


def _called(initializer: Any, shape: Any, dtype: Any) -> Any:
    """A function of the user's may take no dtype, or nothing at all."""
    import inspect

    try:
        wanted = inspect.signature(initializer).parameters
    except (TypeError, ValueError):
        return initializer(shape, dtype)
    positional = [p for p in wanted.values() if p.kind in (0, 1, 2)]
    if any(p.kind == 2 for p in positional) or "dtype" in wanted:
        return initializer(shape, dtype=dtype)
    return initializer(*(shape, dtype)[: len(positional)])
