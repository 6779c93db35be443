"""Images: windows as columns, shuffles, interpolation and sampling at a grid."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import Tensor, arange, expand, matmul, movedim, permute, reshape, where
from weft import dtype as dtypes
from weft.core.autocast import widened
from weft.errors import ArgumentError, ChoiceError, DTypeError, LayoutError, ShapeError
from weft.nn.functional.conv import sizes_of, with_batch, without_batch
from weft.nn.functional.pooling import adaptive_mean, resampled
from weft.ops.conv import Sizes, col2im_op, im2col_op, window_counts
from weft.ops.elementwise import check_accepts
from weft.ops.index import take_op
from weft.ops.resample import Taps

__all__ = [
    "affine_grid",
    "channel_shuffle",
    "fold",
    "grid_sample",
    "interpolate",
    "native_channel_shuffle",
    "pixel_shuffle",
    "pixel_unshuffle",
    "unfold",
    "upsample",
]

# -- windows as columns


def _windows(
    name: str, size: Sizes, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[Sizes, Sizes, dict[str, Any]]:
    """The kernel, the number of windows, and the parameters that both ways share."""
    kernel = sizes_of(name, "kernel_size", kernel_size, 2, 1)
    pads = tuple((p, p) for p in sizes_of(name, "padding", padding, 2))
    spread = sizes_of(name, "dilation", dilation, 2, 1)
    steps = sizes_of(name, "stride", stride, 2, 1)
    counts = window_counts(size, kernel, steps, pads, spread)
    if any(n < 1 for n in counts):
        raise ShapeError(
            f"{name}: no window of size {kernel} (dilation {spread}, padding "
            f"{padding}) fits a size of {size}"
        )
    return kernel, counts, {"stride": steps, "padding": pads, "dilation": spread}


def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
    stride: Any = 1,
) -> Tensor:  # fmt: skip
    """Every window of (N, C, H, W) as a column: (N, C * kernel, windows).

    >>> x = weft.arange(6.0).reshape(1, 2, 3)
    >>> weft.nn.functional.unfold(x, 2)
    tensor([[0., 1.],
            [1., 2.],
            [3., 4.],
            [4., 5.]])
    """
    x, had = with_batch("unfold", input, 2)
    size = x.shape[2:]
    kernel, counts, params = _windows(
        "unfold", size, kernel_size, dilation, padding, stride
    )
    cols = im2col_op(x, kernel=kernel, **params)
    rows = x.shape[1] * math.prod(kernel)
    return without_batch(reshape(cols, (x.shape[0], rows, math.prod(counts))), had)


def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1,
    padding: Any = 0, stride: Any = 1,
) -> Tensor:  # fmt: skip
    """Columns (N, C * kernel, windows) added where ``unfold`` takes them from.

    >>> weft.nn.functional.fold(weft.ones(4, 2), (2, 3), 2)
    tensor([[[1., 2., 1.],
             [1., 2., 1.]]])
    """
    x, had = with_batch("fold", input, 1)
    size = sizes_of("fold", "output_size", output_size, 2, 1)
    kernel, counts, params = _windows(
        "fold", size, kernel_size, dilation, padding, stride
    )
    area, count = math.prod(kernel), math.prod(counts)
    if x.shape[1] % area:
        raise ShapeError(
            f"fold: expected rows in multiples of the kernel's {area} elements, got "
            f"{x.shape[1]} (input shape {input.shape})"
        )
    if x.shape[2] != count:
        raise ShapeError(
            f"fold: output size {size} has {counts} = {count} windows, got "
            f"{x.shape[2]} columns (input shape {input.shape})"
        )
    shape = (x.shape[0], x.shape[1] // area, *kernel, *counts)
    return without_batch(col2im_op(reshape(x, shape), size=size, **params), had)


# -- shuffles


def _check_dims(name: str, x: Tensor, low: int) -> None:
    if x.ndim < low:
        raise ShapeError(
            f"{name}: expected at least {low} dimensions, got shape {x.shape}"
        )


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C * r * r, H, W) made (*, C, H * r, W * r).

    >>> weft.nn.functional.pixel_shuffle(weft.arange(4).reshape(4, 1, 1), 2)
    tensor([[[0, 1],
             [2, 3]]])
    """
    _check_dims("pixel_shuffle", input, 3)
    (r,) = sizes_of("pixel_shuffle", "upscale_factor", upscale_factor, 1, 1)
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise ShapeError(
            f"pixel_shuffle: expected channels in multiples of {r} * {r}, got {c} "
            f"(input shape {input.shape})"
        )
    n = len(lead)
    x = reshape(input, (*lead, c // (r * r), r, r, h, w))
    x = permute(x, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(x, (*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H * r, W * r) made (*, C * r * r, H, W).

    >>> weft.nn.functional.pixel_unshuffle(weft.ones(1, 4, 6), 2).shape
    (4, 2, 3)
    """
    _check_dims("pixel_unshuffle", input, 3)
    (r,) = sizes_of("pixel_unshuffle", "downscale_factor", downscale_factor, 1, 1)
    *lead, c, h, w = input.shape
    if h % r or w % r:
        raise ShapeError(
            f"pixel_unshuffle: expected height and width in multiples of {r}, got "
            f"input shape {input.shape}"
        )
    n = len(lead)
    x = reshape(input, (*lead, c, h // r, r, w // r, r))
    x = permute(x, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(x, (*lead, c * r * r, h // r, w // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels (dim 1) in groups, dealt out one from each group in turn.

    >>> x = weft.arange(4).reshape(1, 4, 1)
    >>> weft.nn.functional.channel_shuffle(x, 2).flatten()
    tensor([0, 2, 1, 3])
    """
    _check_dims("channel_shuffle", input, 3)
    (g,) = sizes_of("channel_shuffle", "groups", groups, 1, 1)
    n, c, *rest = input.shape
    if c % g:
        raise ShapeError(
            f"channel_shuffle: expected channels in multiples of {g} groups, got {c} "
            f"(input shape {input.shape})"
        )
    x = reshape(input, (n, g, c // g, *rest))
    return reshape(movedim(x, 1, 2), (n, c, *rest))


native_channel_shuffle = channel_shuffle


# -- interpolation

_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_MODES = ("nearest", "nearest-exact", "area", *_RANKS)


@functools.lru_cache(maxsize=256)
def _nearest_taps(
    size: int, count: int, scale: float | None, half: float, single: bool
) -> Taps:
    """One tap each, at a position rounded as in PyTorch, in the data's precision."""
    kind: Any = np.float32 if single else np.float64
    step = kind(1.0 / scale) if scale else kind(size) / kind(count)
    position = np.floor((np.arange(count).astype(kind) + kind(half)) * step)
    cols = np.minimum(position.astype(np.int64), size - 1)
    return Taps((count, size), np.arange(count), cols, np.ones(count))


def _positions(size: int, count: int, scale: float | None, align: bool) -> Any:
    """The positions of outputs between inputs."""
    at = np.arange(count)
    if align:
        return at * ((size - 1) / (count - 1) if count > 1 else 0.0)
    return (at + 0.5) * (1.0 / scale if scale else size / count) - 0.5


@functools.lru_cache(maxsize=256)
def _linear_taps(size: int, count: int, scale: float | None, align: bool) -> Taps:
    position = np.maximum(_positions(size, count, scale, align), 0)
    left = np.minimum(position.astype(np.int64), size - 1)
    part = np.clip(position - left, 0, 1)
    return _tap_matrix(size, [left, left + 1], [1 - part, part])


@functools.lru_cache(maxsize=256)
def _cubic_taps(size: int, count: int, scale: float | None, align: bool) -> Taps:
    position = _positions(size, count, scale, align)
    left = np.floor(position).astype(np.int64)
    weights = _cubic_weights(position - left)
    return _tap_matrix(size, [left + k for k in (-1, 0, 1, 2)], weights)


def _tap_matrix(size: int, cols: list[Any], weights: list[Any]) -> Taps:
    """Taps clamped to the input; those of weight 0 are left out."""
    count = len(cols[0])
    rows = np.tile(np.arange(count), len(cols))
    w = np.concatenate(weights)
    keep = w != 0
    flat = np.clip(np.concatenate(cols), 0, size - 1)
    return Taps((count, size), rows[keep], flat[keep], w[keep])


def _cubic_weights(t: Any) -> list[Any]:
    """Keys' cubic convolution (a = -0.75) at distances 1 + t, t, 1 - t and 2 - t."""
    return [_cubic_height(x, -0.75) for x in (t + 1, t, 1 - t, 2 - t)]


@functools.lru_cache(maxsize=256)
def _smoothing_taps(
    size: int, count: int, scale: float | None, align: bool, cubic: bool
) -> Taps:
    """Taps that reach as far as an output pixel does: what is smaller is averaged."""
    step = 1.0 / scale if scale else size / count
    if align:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
    wide = max(step, 1.0)
    reach = (2 if cubic else 1) * wide
    center = step * (np.arange(count) + 0.5)
    first = np.maximum((center - reach + 0.5).astype(np.int64), 0)
    end = np.minimum((center + reach + 0.5).astype(np.int64), size)
    cols = [first + k for k in range(int((end - first).max()))]
    heights = _cubic_height if cubic else lambda x: np.maximum(1 - x, 0)
    weights = [
        np.where(at < end, heights(np.abs(at - center + 0.5) / wide), 0) for at in cols
    ]
    total = np.sum(weights, 0)
    return _tap_matrix(size, cols, [w / total for w in weights])


def _cubic_height(x: Any, a: float = -0.5) -> Any:
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _check_mode(x: Tensor, mode: str, align_corners: bool | None) -> None:
    if mode not in _MODES:
        raise ChoiceError(
            f"interpolate: expected mode to be one of {', '.join(_MODES)}, got {mode!r}"
        )
    if align_corners is not None and mode not in _RANKS:
        raise ArgumentError(
            "interpolate: align_corners is for the modes linear, bilinear, bicubic "
            f"and trilinear, got mode {mode!r}"
        )
    spatial = x.ndim - 2
    if spatial not in (1, 2, 3) or _RANKS.get(mode, spatial) != spatial:
        wanted = _RANKS.get(mode)
        expected = f"{wanted + 2}" if wanted else "3, 4 or 5"
        raise LayoutError(
            f"interpolate: mode {mode!r} expects input of {expected} dimensions "
            f"(batch, channels, sizes), got shape {x.shape}"
        )
    if 0 in x.shape[1:]:
        raise ShapeError(
            "interpolate: expected channels and sizes of at least 1, got shape "
            f"{x.shape}"
        )


def _target(
    x: Tensor, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[Sizes, list[float | None]]:
    """The wanted sizes, and the scales that positions are computed with."""
    spatial = x.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ArgumentError(
            "interpolate: expected one of size and scale_factor, got "
            f"size={size!r} and scale_factor={scale_factor!r}"
        )
    if size is not None:
        if recompute:
            raise ArgumentError(
                "interpolate: recompute_scale_factor needs scale_factor, got size"
            )
        if isinstance(size, (tuple, list)) and len(size) != spatial:
            raise ArgumentError(
                f"interpolate: expected a size or {spatial} of them for input shape "
                f"{x.shape}, got {size!r}"
            )
        return sizes_of("interpolate", "size", size, spatial, 1), [None] * spatial
    single = not isinstance(scale_factor, (tuple, list))
    listed = [scale_factor] if single else scale_factor
    scales: list[Any] = [float(s) for s in listed] * (spatial if single else 1)
    if len(scales) != spatial:
        raise ArgumentError(
            f"interpolate: expected a scale_factor or {spatial} of them, got "
            f"{scale_factor!r}"
        )
    sizes = tuple(math.floor(n * s) for n, s in zip(x.shape[2:], scales, strict=True))
    if min(sizes) < 1:
        raise ArgumentError(
            f"interpolate: scale_factor {scale_factor!r} makes size {sizes} of input "
            f"{x.shape}; expected at least 1"
        )
    return sizes, ([None] * spatial if recompute else scales)


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """The input ``(N, C, *S)`` resampled to another size, or scaled.

    ``mode`` is nearest, nearest-exact, linear (3-d input), bilinear or bicubic
    (4-d), trilinear (5-d) or area. With ``antialias``, a smaller bilinear or bicubic
    image averages all pixels that it stands for.

    >>> x = weft.tensor([[[1.0, 3.0]]])
    >>> weft.nn.functional.interpolate(x, 4, mode="linear")
    tensor([[[1.0000, 1.5000, 2.5000, 3.0000]]])
    """
    _check_mode(input, mode, align_corners)
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(
            "interpolate: antialias=True is for the modes bilinear and bicubic, got "
            f"mode {mode!r}"
        )
    counts, scales = _target(input, size, scale_factor, recompute_scale_factor)
    if mode.startswith("nearest"):
        check_accepts("interpolate", "real", input.dtype)
    else:
        check_accepts("interpolate", "floating", input.dtype)
    if mode == "area":
        return adaptive_mean(input, counts)
    build = _taps_of(
        mode, input.dtype is not dtypes.float64, bool(align_corners), antialias
    )
    taps = [
        build(int(n), int(m), s)  # taps are for one size: an open one is settled
        for n, m, s in zip(input.shape[2:], counts, scales, strict=True)
    ]
    return resampled(input, [*taps])


def _taps_of(
    mode: str, single: bool, align: bool, antialias: bool
) -> Callable[..., Taps]:
    if mode.startswith("nearest"):
        half = 0.5 if mode == "nearest-exact" else 0.0
        return lambda n, m, s: _nearest_taps(n, m, s, half, single)
    if antialias:
        return lambda n, m, s: _smoothing_taps(n, m, s, align, mode == "bicubic")
    build = _cubic_taps if mode == "bicubic" else _linear_taps
    return lambda n, m, s: build(n, m, s, align)


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """``interpolate``, by its old name.

    >>> weft.nn.functional.upsample(weft.ones(1, 1, 2, 2), scale_factor=3).shape
    (1, 1, 6, 6)
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


# -- sampling at a grid


def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The point to which an affine map takes each pixel: (N, H, W, 2) or 3-d.

    ``theta`` is (N, 2, 3) for a ``size`` (N, C, H, W), (N, 3, 4) for (N, C, D, H, W).
    Coordinates run from -1 to 1, x first.

    >>> identity = weft.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> weft.nn.functional.affine_grid(identity, (1, 1, 1, 2))
    tensor([[[[-0.5000,  0.0000],
              [ 0.5000,  0.0000]]]])
    """
    check_accepts("affine_grid", "floating", theta.dtype)
    n, _, *space = (int(s) for s in size) if len(size) > 2 else (0, 0)
    if len(space) not in (2, 3) or min(space) < 1:
        raise ShapeError(
            f"affine_grid: expected size (N, C, H, W) or (N, C, D, H, W), got {size}"
        )
    want = (n, len(space), len(space) + 1)
    if theta.shape != want:
        raise ShapeError(
            f"affine_grid: size {tuple(size)} expects theta of shape {want}, got "
            f"{theta.shape}"
        )
    axes = [_line(m, bool(align_corners)) for m in space]
    mesh = np.meshgrid(*axes, indexing="ij")[::-1]  # x first
    base = np.stack([*mesh, np.ones(space)], -1).reshape(1, -1, len(space) + 1)
    positions = expand(Tensor(base).to(theta), (n, *base.shape[1:]))
    return reshape(matmul(positions, theta.transpose(1, 2)), (n, *space, len(space)))


def _line(count: int, align: bool) -> Any:
    """Coordinates of ``count`` pixels: their centres, or from edge to edge."""
    if count == 1:
        return np.zeros(1)
    line = np.linspace(-1, 1, count)
    return line if align else line * (count - 1) / count


def _check_grid(x: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ArgumentError(
            "grid_sample: expected mode bilinear, nearest or bicubic, got " + repr(mode)
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentError(
            "grid_sample: expected padding_mode zeros, border or reflection, got "
            + repr(padding_mode)
        )
    spatial = x.ndim - 2
    if spatial not in (2, 3) or grid.ndim != x.ndim or grid.shape[-1] != spatial:
        raise ShapeError(
            "grid_sample: expected input (N, C, H, W) with grid (N, h, w, 2), or "
            f"(N, C, D, H, W) with (N, d, h, w, 3); got {x.shape} and {grid.shape}"
        )
    if mode == "bicubic" and spatial == 3:
        raise ArgumentError("grid_sample: mode bicubic is for 4-d input, got 5-d")
    if x.shape[0] != grid.shape[0]:
        raise ShapeError(
            f"grid_sample: expected input and grid of one batch size, got "
            f"{x.shape[0]} and {grid.shape[0]}"
        )
    if x.dtype is not grid.dtype:
        raise DTypeError(
            f"grid_sample: expected input and grid of one dtype, got {x.dtype.name} "
            f"and {grid.dtype.name}"
        )
    check_accepts("grid_sample", "floating", x.dtype)
    if 0 in x.shape[1:]:
        raise ShapeError(
            f"grid_sample: expected sizes of at least 1, got input {x.shape}"
        )


def _clipped(position: Tensor, size: int) -> Tensor:
    """Places moved to the border; no gradient comes from there."""
    inside = (position > 0) & (position < size - 1)
    return where(inside, position, position.detach().clamp(0, size - 1))


def _reflected(position: Tensor, size: int, align: bool) -> Tensor:
    """Places folded back at the borders: pixel centres, or pixel edges."""
    low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
    if span == 0:
        return position * 0
    off = (position - low).abs()
    turns = (off / span).floor().detach()
    rest = off - turns * span
    return where(turns % 2 == 0, rest, span - rest) + low


def _moved_inside(
    position: Tensor, size: int, padding_mode: str, align: bool
) -> Tensor:
    if padding_mode == "zeros":
        return position
    if padding_mode == "reflection":
        position = _reflected(position, size, align)
    return _clipped(position, size)


class _Image:
    """The pixels of (N, C, *S) as rows, to be picked by whole coordinates."""

    def __init__(self, x: Tensor) -> None:
        self.size = x.shape[2:]
        self.channels = x.shape[1]
        self.area = math.prod(self.size)
        moved = movedim(x, 1, -1)
        self.rows = reshape(moved, (x.shape[0] * self.area, self.channels))
        self.start = arange(x.shape[0], device=x.device) * self.area

    def at(self, positions: list[Tensor]) -> Tensor:
        """Values (N, ..., C) at positions (N, ...) a dimension; 0 outside."""
        flat: Any = 0
        inside: Any = True
        for position, n in zip(positions, self.size, strict=True):
            inside = ((position >= 0) & (position <= n - 1)) & inside
            whole = position.clamp(0, n - 1).to(dtypes.int64)
            flat = flat * n + whole
        start = reshape(self.start, (flat.shape[0], *(1,) * (flat.ndim - 1)))
        values = take_op(self.rows, flat + start)
        return where(inside.unsqueeze(-1), values, 0.0)


@widened
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """The input's values at the points of ``grid``, interpolated between pixels.

    ``grid`` (N, h, w, 2) holds coordinates from -1 to 1, x first; NaN counts as -1.
    Points outside give zeros, the border's value, or are reflected.

    >>> x = weft.tensor([[[[1.0, 3.0]]]])
    >>> middle = weft.zeros(1, 1, 1, 2)
    >>> weft.nn.functional.grid_sample(x, middle)
    tensor([[[[2.]]]])
    """
    _check_grid(input, grid, mode, padding_mode)
    align = bool(align_corners)
    known = where(grid.isnan(), -1.0, grid)
    positions = []
    for k, n in enumerate(input.shape[2:]):
        c = known[..., input.ndim - 3 - k]  # x, the last dimension, comes first
        positions.append((c + 1) / 2 * (n - 1) if align else ((c + 1) * n - 1) / 2)
    sample = {"nearest": _nearest, "bilinear": _linear, "bicubic": _cubic}[mode]
    keep = functools.partial(_moved_inside, padding_mode=padding_mode, align=align)
    return movedim(sample(_Image(input), positions, keep), -1, 1)


def _nearest(image: _Image, positions: list[Tensor], keep: Any) -> Tensor:
    inside = [keep(p, n) for p, n in zip(positions, image.size, strict=True)]
    return image.at([p.detach().round() for p in inside])


def _linear(image: _Image, positions: list[Tensor], keep: Any) -> Tensor:
    inside = [keep(p, n) for p, n in zip(positions, image.size, strict=True)]
    left = [p.detach().floor() for p in inside]
    part = [p - a for p, a in zip(inside, left, strict=True)]
    return _weighted(image, left, [[1 - t, t] for t in part], (0, 1), None)


def _cubic(image: _Image, positions: list[Tensor], keep: Any) -> Tensor:
    left = [p.detach().floor() for p in positions]
    weights = [_cubic_weights(p - a) for p, a in zip(positions, left, strict=True)]
    return _weighted(image, left, weights, (-1, 0, 1, 2), keep)


def _weighted(
    image: _Image, left: list[Tensor], weights: list[list[Any]], steps: Sizes, keep: Any
) -> Tensor:
    """The sum of neighbours times their weights; ``keep`` moves each inside."""
    total: Any = None
    for tap in itertools.product(range(len(steps)), repeat=len(left)):
        positions = [a + steps[t] for a, t in zip(left, tap, strict=True)]
        if keep is not None:
            positions = [keep(p, n) for p, n in zip(positions, image.size, strict=True)]
        weight = functools.reduce(
            lambda a, b: a * b, [w[t] for w, t in zip(weights, tap, strict=True)]
        )
        term = image.at(positions) * weight.unsqueeze(-1)
        total = term if total is None else total + term
    return total


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Any:
    """``interpolate`` with the mode ``nearest``.

    >>> weft.nn.functional.upsample_nearest(weft.ones(1, 1, 2, 2), scale_factor=2).shape
    (1, 1, 4, 4)
    """
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Any:
    """``interpolate`` with the mode ``bilinear`` and aligned corners.

    >>> weft.nn.functional.upsample_bilinear(weft.ones(1, 1, 2, 2), size=3).shape
    (1, 1, 3, 3)
    """
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
