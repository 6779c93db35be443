"""Helpers of distributions: broadcasting, probabilities and logits, lazy values."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.core.mode import mode
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.ops.require import known, require_op

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Numbers and tensors as tensors of one shape.

    Numbers take the dtype of the first tensor, or else the default dtype.

    >>> from weft.distributions.utils import broadcast_all
    >>> [v.shape for v in broadcast_all(1.0, weft.zeros(3))]
    [(3,), (3,)]
    """
    for value in values:
        if not isinstance(value, (Tensor, Number, np.generic)):
            raise ArgumentError(
                "broadcast_all: expected numbers and tensors, got "
                f"{type(value).__name__}"
            )
    like = next((v for v in values if isinstance(v, Tensor)), None)
    if like is None:
        kind: dict[str, Any] = {"dtype": weft.get_default_dtype()}
    else:
        kind = {"dtype": like.dtype, "device": like.device}
    tensors = [v if isinstance(v, Tensor) else weft.tensor(v, **kind) for v in values]
    return tuple(weft.broadcast_tensors(*tensors))


def all_numbers(*values: Any) -> bool:
    """Whether all parameters are numbers, so that the batch shape is empty."""
    return all(isinstance(v, (Number, np.generic)) for v in values)


def sum_rightmost(value: Tensor, count: int) -> Tensor:
    """The sum over the last axes.

    >>> from weft.distributions.utils import sum_rightmost
    >>> sum_rightmost(weft.ones(2, 3, 4), 2)
    tensor([12., 12.])
    """
    return value.flatten(value.ndim - count).sum(-1) if count else value


def uniform(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers in [0, 1) beside a parameter, in its dtype."""
    return weft.rand(shape, dtype=like.dtype, device=like.device)


def open_uniform(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers in (0, 1), whose logarithm is finite."""
    info = weft.finfo(like.dtype)
    return uniform(like, shape).clamp(info.tiny, 1 - info.eps / 2)


def gaussian(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers beside a parameter, in its dtype."""
    return weft.randn(shape, dtype=like.dtype, device=like.device)


def exponential(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Standard exponential numbers beside a parameter, all of them positive."""
    return -open_uniform(like, shape).log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log-odds, or of unnormalised log-probabilities.

    >>> from weft.distributions.utils import logits_to_probs
    >>> logits_to_probs(weft.zeros(2))
    tensor([0.5000, 0.5000])
    """
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept away from 0 and 1 by the dtype's epsilon.

    >>> from weft.distributions.utils import clamp_probs
    >>> bool(clamp_probs(weft.zeros(1)) > 0)
    True
    """
    eps = weft.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds of probabilities, or log-probabilities.

    >>> from weft.distributions.utils import probs_to_logits
    >>> probs_to_logits(weft.tensor(0.5), is_binary=True)
    tensor(0.)
    """
    clamped = clamp_probs(probs)
    if is_binary:
        return clamped.log() - (-clamped).log1p()
    return clamped.log()


def bce_with_logits(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropies of log-odds, element by element."""
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none")


class lazy_property:
    """A property whose value is computed at the first use, and kept.

    A value that belongs to a transform or to a captured program is not kept: it means
    nothing outside of it.

    >>> weft.distributions.Bernoulli(logits=weft.zeros(1)).probs
    tensor([0.5000])
    """

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with weft.enable_grad():
            value = self.wrapped(instance)
        traced = isinstance(value, Tensor) and value._interpreter is not None
        if mode.capture is None and not traced:
            instance.__dict__[self.wrapped.__name__] = value
        return value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangle of square matrices, row by row.

    >>> from weft.distributions.utils import tril_matrix_to_vec
    >>> tril_matrix_to_vec(weft.tensor([[1, 2], [3, 4]]))
    tensor([1, 3, 4])
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ArgumentError(
            f"tril_matrix_to_vec: expected diag from {-n} to {n - 1}, got {diag}"
        )
    rows, columns = np.tril_indices(n, diag)
    return mat[..., weft.tensor(rows), weft.tensor(columns)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Square matrices whose lower triangle, row by row, is a vector.

    >>> from weft.distributions.utils import vec_to_tril_matrix
    >>> vec_to_tril_matrix(weft.tensor([1, 3, 4])).tolist()
    [[1, 0], [3, 4]]
    """
    size = vec.shape[-1]
    n = next((n for n in range(size + abs(diag) + 1) if _corner(n, diag) >= size), 0)
    if _corner(n, diag) != size:
        raise ArgumentError(
            f"vec_to_tril_matrix: the size of the last axis, {size}, is not the "
            "number of elements of a lower triangle"
        )
    rows, columns = np.tril_indices(n, diag)
    place = np.full((n, n), size)
    place[rows, columns] = np.arange(size)
    padded = weft.cat([vec, weft.zeros_like(vec[..., :1])], -1)
    return padded[..., weft.tensor(place)]


def _corner(n: int, diag: int) -> int:
    """The number of elements of a lower triangle."""
    return sum(min(max(row + diag + 1, 0), n) for row in range(n))


def check_values(value: Tensor, good: Tensor, text: str) -> None:
    """Raise an error with a text unless all are good; a program makes the check too.

    ``good`` has the value's shape without some of its last axes.
    """
    if known(value) and known(good) and bool(good.all()):
        return
    wide = good.reshape(*good.shape, *(1,) * (value.ndim - good.ndim))
    require_op(value, wide.expand(value.shape), error="ArgumentError", text=text)


__all__ = [
    "broadcast_all", "clamp_probs", "euler_constant", "lazy_property",
    "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]  # fmt: skip
