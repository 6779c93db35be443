"""Dropout: elements or channels set to zero at random while training."""

from __future__ import annotations

import math
import warnings

import weft
from weft import Tensor
from weft.core.dispatch import beside
from weft.errors import ArgumentError, ShapeError


def _check_p(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ArgumentError(f"{name}: expected a probability from 0 to 1, got {p}")


def _keep(input: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """A mask of the elements that stay, as ones and zeros of the input's dtype."""
    with beside(input):
        return (weft.rand(shape, dtype=weft.float32, device=input.device) >= p).to(
            input.dtype
        )


def _drop(input: Tensor, shape: tuple[int, ...], p: float, inplace: bool) -> Tensor:
    if p == 1:
        out = input * 0
    else:
        out = input * _keep(input, shape, p) * (1 / (1 - p))
    return input.copy_(out) if inplace else out


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zeros with probability p, the rest scaled by ``1 / (1 - p)``.

    >>> weft.nn.functional.dropout(weft.ones(2), p=0.0)
    tensor([1., 1.])
    """
    _check_p("dropout", p)
    if not training or p == 0:
        return input
    return _drop(input, input.shape, p, inplace)


def _channels(
    name: str, input: Tensor, spatial: int, p: float, training: bool, inplace: bool
) -> Tensor:
    """Drop slices of the first two dimensions, as PyTorch does whatever the rank."""
    _check_p(name, p)
    wanted = (spatial + 1, spatial + 2)
    if input.ndim < 2 or (spatial == 1 and input.ndim not in wanted):
        raise ShapeError(
            f"{name}: expected {wanted[0]} or {wanted[1]} dimensions, got shape "
            f"{input.shape}"
        )
    if spatial > 1 and input.ndim not in wanted:
        warnings.warn(
            f"{name}: Received a {input.ndim}-D input to {name}, which is deprecated "
            "and will result in an error in a future release. To retain the behavior "
            "and silence this warning, please use dropout instead.",
            stacklevel=4,
        )
    if spatial == 2 and input.ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that "
            "channel-wise 1D dropout behavior is desired - input is interpreted as "
            "shape (N, C, L); use dropout1d to say so",
            stacklevel=4,
        )
    if not training or p == 0:
        return input
    lead = 1 if spatial == 1 and input.ndim == 2 else 2
    shape = input.shape[:lead] + (1,) * (input.ndim - lead)
    return _drop(input, shape, p, inplace)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (N, C, L) or (C, L) dropped.

    >>> weft.nn.functional.dropout1d(weft.ones(1, 2, 3)).shape
    (1, 2, 3)
    """
    return _channels("dropout1d", input, 1, p, training, inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (N, C, H, W) dropped.

    >>> weft.nn.functional.dropout2d(weft.ones(1, 2, 3, 3)).shape
    (1, 2, 3, 3)
    """
    return _channels("dropout2d", input, 2, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels of (N, C, D, H, W) dropped.

    >>> weft.nn.functional.dropout3d(weft.ones(1, 2, 3, 3, 3)).shape
    (1, 2, 3, 3, 3)
    """
    return _channels("dropout3d", input, 3, p, training, inplace)


# The value that selu tends to for very negative inputs.
_SATURATION = -1.7580993408473766


def _alpha_drop(input: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """Dropped elements saturate; mean and variance of a selu network are kept."""
    keep = _keep(input, shape, p)
    scale = 1 / math.sqrt((1 - p) * (1 + p * _SATURATION**2))
    shift = -scale * _SATURATION * p
    return (input * keep + _SATURATION * (1 - keep)) * scale + shift


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout for self-normalising networks.

    >>> weft.nn.functional.alpha_dropout(weft.ones(2))
    tensor([1., 1.])
    """
    _check_p("alpha_dropout", p)
    if not training or p == 0:
        return input
    out = input * 0 if p == 1 else _alpha_drop(input, input.shape, p)
    return input.copy_(out) if inplace else out


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``alpha_dropout`` of whole channels.

    >>> weft.nn.functional.feature_alpha_dropout(weft.ones(1, 2, 3)).shape
    (1, 2, 3)
    """
    _check_p("feature_alpha_dropout", p)
    if not training or p == 0:
        return input
    shape = input.shape[:2] + (1,) * (input.ndim - 2)
    out = input * 0 if p == 1 else _alpha_drop(input, shape, p)
    return input.copy_(out) if inplace else out
