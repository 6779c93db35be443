"""Images in other sizes, and sampled along grids."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.nn import functional as F
from weft.onnx.errors import ModelError
from weft.onnx.registry import operator
from weft.onnx.types import bounded, numbers, tensor
from weft.ops.resample import Taps, resample_op

_FAR = 32  # times as many elements
_ROUND: dict[str, Any] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _coordinates(
    mode: str, size: int, new: int, scale: float, region: tuple[float, float]
) -> np.ndarray:
    """The places along an axis of ``size`` that each of ``new`` places stands for."""
    at, exact = np.arange(new, dtype=np.float64), scale * size
    if mode == "asymmetric":
        return at / scale
    if mode == "align_corners":
        return at * (size - 1) / (exact - 1) if new > 1 else at * 0
    if mode == "tf_crop_and_resize":
        start, end = region
        if new > 1:
            return start * (size - 1) + at * (end - start) * (size - 1) / (exact - 1)
        return at * 0 + 0.5 * (start + end) * (size - 1)
    middle = (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return middle if new > 1 else at * 0
    if mode == "half_pixel_symmetric":
        return middle + size / 2 * (1 - new / exact)
    if mode not in ("half_pixel", "tf_half_pixel_for_nn"):
        raise ModelError(f"the coordinates {mode!r} of Resize are unknown")
    return middle


def _weights(mode: str, rest: np.ndarray, scale: float, a: float) -> tuple[int, Any]:
    """The first neighbour, and the weights of all, beyond each place's floor."""
    shrink = min(scale, 1.0)
    reach = 1 if mode == "linear" else 2
    first = math.floor(-reach / shrink) + 1
    taps = np.arange(first, 2 - first)
    far = np.abs((taps - rest[:, None]) * shrink)
    if mode == "linear":
        return first, np.clip(1 - far, 0, 1)
    near = ((a + 2) * far - (a + 3)) * far * far + 1
    outer = ((far - 5) * far + 8) * far * a - 4 * a
    return first, np.where(far <= 1, near, np.where(far < 2, outer, 0))


def _neighbours(
    mode: str, size: int, at: np.ndarray, scale: float, a: float, exclude: int
) -> tuple[np.ndarray, np.ndarray]:
    """The elements that each new one is made of, and their weights."""
    floor = np.floor(at)
    first, weights = _weights(mode, at - floor, scale, a)
    places = (floor[:, None] + first + np.arange(weights.shape[1])).astype(np.int64)
    if exclude:
        weights = np.where((places < 0) | (places >= size), 0, weights)
    return np.clip(places, 0, size - 1), weights / weights.sum(1, keepdims=True)


def _resampled(x: Tensor, axis: int, places: np.ndarray, weights: np.ndarray) -> Tensor:
    """Weighted sums of elements of an axis."""
    count, size = len(places), x.shape[axis]
    if count > _FAR * size:  # taps of elements that are used so often take long to make
        shape = [count if k == axis else 1 for k in range(x.ndim)]
        parts = [
            x.index_select(axis, tensor(index))
            * tensor(weight).to(x.dtype).reshape(shape)
            for index, weight in zip(places.T.copy(), weights.T.copy(), strict=True)
        ]
        return functools.reduce(weft.add, parts)
    rows = np.broadcast_to(np.arange(count)[:, None], places.shape)
    used = weights.ravel() != 0
    taps = Taps((count, int(size)), rows.ravel()[used], places.ravel()[used],
                weights.ravel()[used])  # fmt: skip
    return resample_op(x, taps=taps, dim=axis)


@operator("Resize", static=(1, 2, 3))
def resize(
    x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *,
    mode: str = "nearest", coordinate_transformation_mode: Any = None,
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, nearest_mode: Any = None, antialias: int = 0,
    axes: Any = None, keep_aspect_ratio_policy: str = "stretch", opset: int,
) -> Tensor:  # fmt: skip
    """An image in other sizes: each axis by itself."""
    if opset < 11:
        roi, scales = None, roi
        coordinate_transformation_mode = coordinate_transformation_mode or "asymmetric"
        nearest_mode = nearest_mode or "floor"
    how = coordinate_transformation_mode or "half_pixel"
    nearest = nearest_mode or "round_prefer_floor"
    places = list(range(x.ndim)) if axes is None else [a % x.ndim for a in axes]
    have = [x.shape[a] for a in places]
    new, factors = _new_sizes(have, scales, sizes, keep_aspect_ratio_policy)
    bounded([*new])
    regions = [0.0] * len(places) + [1.0] * len(places)
    if how == "tf_crop_and_resize" and roi is not None:
        regions = numbers(roi)
    ends = list(zip(regions[: len(places)], regions[len(places) :], strict=True))
    outside: list[Tensor] = []
    given = x.dtype
    if mode != "nearest" and not given.is_floating_point:
        x = x.float()
    for axis, size, count, factor, region in zip(
        places, have, new, factors, ends, strict=True
    ):
        if size == count and factor == 1 and how != "tf_crop_and_resize":
            continue
        size, count = int(size), int(count)  # an open size is the example's from here
        if size == 0 or count == 0:
            raise ModelError("Resize of an axis without elements")
        at = _coordinates(how, size, count, factor, region)
        if how == "tf_crop_and_resize":
            shape = [count if k == axis else 1 for k in range(x.ndim)]
            beyond = (at < 0) | (at > size - 1)
            outside.append(tensor(beyond).reshape(shape))
        if mode == "nearest":
            index = np.clip(_ROUND[nearest](at), 0, size - 1).astype(np.int64)
            x = x.index_select(axis, tensor(index))
        else:
            found = _neighbours(mode, size, at, factor if antialias else 1.0,
                                cubic_coeff_a, exclude_outside)  # fmt: skip
            x = _resampled(x, axis, *found)
    for hit in outside:
        x = weft.where(hit, weft.full_like(x, extrapolation_value), x)
    return x if x.dtype is given else weft.round(x).to(given)


def _new_sizes(
    have: list[Any], scales: Any, sizes: Any, policy: str
) -> tuple[list[Any], list[float]]:
    if sizes is not None and len(numbers(sizes)):
        new = numbers(sizes)
        factors = [n / m for n, m in zip(new, have, strict=True)]
        if policy != "stretch":
            factor = (min if policy == "not_larger" else max)(factors)
            factors = [factor] * len(have)
            new = [math.floor(factor * m + 0.5) for m in have]
        return new, factors
    factors = numbers(scales)
    return [
        m if f == 1 else math.floor(m * f) for m, f in zip(have, factors, strict=True)
    ], factors


@operator("Upsample", static=(1,))
def upsample(
    x: Tensor, given: Any = None, *, scales: Any = None, mode: str = "nearest"
) -> Tensor:  # fmt: skip
    """An image in larger sizes, as before opset 10."""
    factors = numbers(given) if given is not None else scales
    return resize(
        x, weft.tensor(list(factors), dtype=weft.float64), mode=mode, opset=10
    )


@operator("AffineGrid", static=(1,))
def affine_grid(theta: Tensor, size: Any, *, align_corners: int = 0) -> Tensor:
    """The places in an image that an affine map takes a grid to."""
    return F.affine_grid(
        theta, bounded(numbers(size)), align_corners=bool(align_corners)
    )


@operator("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, mode: str = "linear", padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Tensor:  # fmt: skip
    """Elements of images at places of a grid, from -1 to 1."""
    kinds = {"linear": "bilinear", "cubic": "bicubic"}
    kind = kinds.get(mode, mode)
    return F.grid_sample(x, grid, kind, padding_mode, bool(align_corners))
