"""Initialisers: fill a tensor in place, by PyTorch's names (``weft.nn.init``).

Each returns the tensor, records no gradient, and takes a ``generator`` where it
draws random numbers.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import (
    Generator,
    Tensor,
    argsort,
    erfinv,
    eye,
    float32,
    float64,
    no_grad,
    rand,
    randn,
)
from weft import tensor as make_tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.linalg import qr

_LINEAR = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "sigmoid",
)  # fmt: skip
_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}


def _initializer(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Check the tensor, and run without recording."""
    random = "generator" in inspect.signature(fn).parameters

    @functools.wraps(fn)
    def fill(tensor: Any, *args: Any, **kwargs: Any) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise DTypeError(
                f"{fn.__name__}: expected a tensor, got {type(tensor).__name__}"
            )
        if random and not tensor.dtype.is_floating_point:
            raise DTypeError(
                f"{fn.__name__}: expected a floating-point tensor, got "
                f"{tensor.dtype.name}"
            )
        with no_grad():
            return fn(tensor, *args, **kwargs)

    return fill


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a non-linearity's weights must grow to keep the variance.

    >>> weft.nn.init.calculate_gain("leaky_relu", 1.0)
    1.0
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        known = ", ".join((*_LINEAR, *_GAINS, "leaky_relu"))
        raise ArgumentError(
            f"calculate_gain: expected one of {known}, got {nonlinearity!r}"
        )
    slope = 0.01 if param is None else param
    if isinstance(slope, bool) or not isinstance(slope, (int, float)):
        kind = type(slope).__name__
        raise DTypeError(f"calculate_gain: expected the slope as a number, got {kind}")
    return math.sqrt(2.0 / (1 + slope**2))


def calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """The number of inputs and of outputs that each weight connects.

    >>> weft.nn.init.calculate_fan_in_and_fan_out(weft.zeros(8, 3, 5, 5))
    (75, 200)
    """
    if tensor.ndim < 2:
        raise ShapeError(
            "calculate_fan_in_and_fan_out: expected a tensor of at least 2 dimensions "
            f"(out, in, ...), got shape {tensor.shape}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = calculate_fan_in_and_fan_out


def _fan(tensor: Tensor, mode: str, name: str) -> int:
    fans = dict(
        zip(("fan_in", "fan_out"), calculate_fan_in_and_fan_out(tensor), strict=True)
    )
    if str(mode).lower() not in fans:
        raise ArgumentError(f"{name}: expected mode fan_in or fan_out, got {mode!r}")
    return fans[mode.lower()]


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """The fan of a mode, under the name that packages import."""
    return _fan(tensor, mode, "calculate_correct_fan")


def _scatter(value: float, name: str) -> float:
    """A standard deviation, which must not be negative."""
    if not value >= 0:
        raise ArgumentError(f"{name}: expected std of at least 0, got {value}")
    return value


@_initializer
def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform random numbers from a to b.

    >>> w = weft.nn.init.uniform_(weft.empty(2, 3), -1, 1)
    >>> bool((w.abs() <= 1).all())
    True
    """
    if not a <= b:
        raise ArgumentError(f"uniform_: expected a <= b, got {a} and {b}")
    return tensor.uniform_(a, b, generator=generator)


@_initializer
def normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal random numbers.

    >>> weft.nn.init.normal_(weft.empty(2), std=0.0)
    tensor([0., 0.])
    """
    return tensor.normal_(mean, _scatter(std, "normal_"), generator=generator)


@_initializer
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal random numbers with those outside [a, b] cut off.

    >>> w = weft.nn.init.trunc_normal_(weft.empty(100), std=3.0, a=-1, b=1)
    >>> bool((w.abs() <= 1).all())
    True
    """
    if not a < b:
        raise ArgumentError(f"trunc_normal_: expected a < b, got {a} and {b}")
    if not std > 0:
        raise ArgumentError(f"trunc_normal_: expected std above 0, got {std}")
    wide = float64 if tensor.dtype is float64 else float32
    # uniform between the cumulative probabilities of a and b, then the inverse
    low, high = (math.erf((x - mean) / (std * math.sqrt(2.0))) for x in (a, b))
    unit = rand(tensor.shape, dtype=wide, generator=generator)
    values = erfinv(low + (high - low) * unit) * (std * math.sqrt(2.0)) + mean
    return tensor.copy_(values.clamp(a, b))


@_initializer
def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere.

    >>> weft.nn.init.constant_(weft.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    return tensor.fill_(val)


@_initializer
def ones_(tensor: Tensor) -> Tensor:
    """Ones.

    >>> weft.nn.init.ones_(weft.empty(2))
    tensor([1., 1.])
    """
    return tensor.fill_(1)


@_initializer
def zeros_(tensor: Tensor) -> Tensor:
    """Zeros.

    >>> weft.nn.init.zeros_(weft.empty(2))
    tensor([0., 0.])
    """
    return tensor.zero_()


@_initializer
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix.

    >>> weft.nn.init.eye_(weft.empty(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: expected a matrix, got shape {tensor.shape}")
    return tensor.copy_(eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


@_initializer
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Convolution weights that pass each channel on unchanged.

    >>> weft.nn.init.dirac_(weft.empty(1, 1, 3))
    tensor([[[0., 1., 0.]]])
    """
    if tensor.ndim not in (3, 4, 5):
        raise ShapeError(
            "dirac_: expected a tensor of 3, 4 or 5 dimensions (out, in, ...), got "
            f"shape {tensor.shape}"
        )
    if groups < 1 or tensor.shape[0] % groups:
        raise ArgumentError(
            f"dirac_: expected groups that divide {tensor.shape[0]} channels, got "
            f"{groups}"
        )
    each = tensor.shape[0] // groups
    weights = np.zeros(tensor.shape)
    centre = tuple(n // 2 for n in tensor.shape[2:])
    for channel in range(tensor.shape[0]):
        source = channel % each
        if source < tensor.shape[1]:
            weights[(channel, source, *centre)] = 1
    return tensor.copy_(make_tensor(weights))


@_initializer
def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform numbers of variance ``gain² 2 / (fan_in + fan_out)`` (Glorot, 2010).

    >>> w = weft.nn.init.xavier_uniform_(weft.empty(3, 3))
    >>> bool((w.abs() <= 1).all())
    True
    """
    bound = math.sqrt(3.0) * _xavier(tensor, gain)
    return tensor.uniform_(-bound, bound, generator=generator)


@_initializer
def xavier_normal_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal numbers of variance ``gain² 2 / (fan_in + fan_out)`` (Glorot, 2010).

    >>> weft.nn.init.xavier_normal_(weft.empty(3, 3)).shape
    (3, 3)
    """
    return tensor.normal_(0.0, _xavier(tensor, gain), generator=generator)


def _xavier(tensor: Tensor, gain: float) -> float:
    total = sum(calculate_fan_in_and_fan_out(tensor))
    return gain * math.sqrt(2.0 / total) if total else 0.0


@_initializer
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform numbers of variance ``gain² / fan`` (He et al., 2015).

    >>> w = weft.nn.init.kaiming_uniform_(weft.empty(4, 6), nonlinearity="relu")
    >>> bool((w.abs() <= 1).all())
    True
    """
    deviation = _kaiming(tensor, a, mode, nonlinearity, "kaiming_uniform_")
    bound = math.sqrt(3.0) * deviation
    return tensor.uniform_(-bound, bound, generator=generator)


@_initializer
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers of variance ``gain² / fan`` (He et al., 2015).

    >>> weft.nn.init.kaiming_normal_(weft.empty(4, 6)).shape
    (4, 6)
    """
    deviation = _kaiming(tensor, a, mode, nonlinearity, "kaiming_normal_")
    return tensor.normal_(0.0, deviation, generator=generator)


def _kaiming(tensor: Tensor, a: float, mode: str, kind: str, name: str) -> float:
    fan = _fan(tensor, mode, name)
    return calculate_gain(kind, a) / math.sqrt(fan) if fan else 0.0


@_initializer
def orthogonal_(
    tensor: Tensor, gain: float = 1, generator: Generator | None = None
) -> Tensor:
    """A random matrix with orthonormal rows or columns (Saxe et al., 2013).

    Dimensions after the first are taken as one.

    >>> w = weft.nn.init.orthogonal_(weft.empty(2, 3))
    >>> weft.allclose(w @ w.T, weft.eye(2), atol=1e-6)
    True
    """
    if tensor.ndim < 2:
        raise ShapeError(
            "orthogonal_: expected a tensor of at least 2 dimensions, got shape "
            f"{tensor.shape}"
        )
    rows = tensor.shape[0]
    if tensor.numel() == 0:
        return tensor
    cols = tensor.numel() // rows
    wide = float64 if tensor.dtype is float64 else float32
    shape = (max(rows, cols), min(rows, cols))
    q, r = qr(randn(rows, cols, dtype=wide, generator=generator).reshape(shape))
    q = q * r.diagonal().sign()  # so that all such matrices are equally likely
    q = q.T if rows < cols else q
    return tensor.copy_((q * gain).reshape(tensor.shape))


@_initializer
def sparse_(
    tensor: Tensor,
    sparsity: float,
    std: float = 0.01,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers, of which a share in each column is zero (Martens, 2010).

    >>> w = weft.nn.init.sparse_(weft.empty(4, 3), sparsity=0.5)
    >>> (w == 0).sum(0)
    tensor([2, 2, 2])
    """
    if tensor.ndim != 2:
        raise ShapeError(f"sparse_: expected a matrix, got shape {tensor.shape}")
    if not 0 <= sparsity <= 1:
        raise ArgumentError(f"sparse_: expected sparsity in [0, 1], got {sparsity}")
    zeros = math.ceil(sparsity * tensor.shape[0])
    tensor.normal_(0.0, _scatter(std, "sparse_"), generator=generator)
    keys = rand(tensor.shape, dtype=float64, generator=generator)
    ranks = argsort(argsort(keys, 0), 0)
    return tensor.copy_(tensor.masked_fill(ranks < zeros, 0.0))


def _older(name: str) -> Callable[..., Tensor]:
    """An initialiser under PyTorch's older name, with its warning."""
    present = globals()[f"{name}_"]

    @functools.wraps(present)
    def older(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
            FutureWarning,
            stacklevel=2,
        )
        return present(*args, **kwargs)

    older.__name__ = older.__qualname__ = name
    older.__doc__ = f"""``{name}_`` under its older name, with a warning.

    >>> weft.nn.init.{name}.__name__
    '{name}'
    """
    return older


constant, dirac, normal, orthogonal = map(
    _older, ("constant", "dirac", "normal", "orthogonal")
)
kaiming_normal, kaiming_uniform = map(_older, ("kaiming_normal", "kaiming_uniform"))
sparse, uniform = map(_older, ("sparse", "uniform"))
xavier_normal, xavier_uniform = map(_older, ("xavier_normal", "xavier_uniform"))
