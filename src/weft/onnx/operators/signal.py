"""Fourier transforms and windows of signals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.onnx.errors import ModelError
from weft.onnx.registry import operator
from weft.onnx.types import bounded, dtype_of, number, tensor


def _complex(x: Tensor) -> Tensor:
    """The last axis, of one or two elements, as complex numbers."""
    if x.shape[-1] == 1:
        return x.squeeze(-1)
    return weft.complex(x[..., 0], x[..., 1])


def _parts(x: Tensor) -> Tensor:
    return weft.stack([x.real, x.imag], -1)


@operator("DFT", static=(1, 2))
def dft(
    x: Tensor, length: Any = None, place: Any = None, *, axis: Any = None,
    inverse: int = 0, onesided: int = 0, opset: int,
) -> Tensor:  # fmt: skip
    """The discrete Fourier transform along an axis."""
    default = -2 if opset >= 20 else 1
    where = int(number(place, default if axis is None else axis))
    where = where + x.ndim if where < 0 else where
    given = x.dtype
    z = _complex(x.double() if given is weft.float64 else x.float())
    count = None if length is None else int(number(length))
    if onesided and inverse:
        return weft.fft.irfft(z, count, where).unsqueeze(-1).to(given)
    if onesided:
        if z.dtype.is_complex:
            raise ModelError("a transform of one side needs real numbers")
        return _parts(weft.fft.rfft(z, count, where)).to(given)
    function = weft.fft.ifft if inverse else weft.fft.fft
    return _parts(function(z, count, where)).to(given)


@operator("STFT", static=(1, 3))
def stft(
    x: Tensor, step: Any, window: Any = None, length: Any = None, *, onesided: int = 1
) -> Tensor:
    """Fourier transforms of windows of a signal (B, T, 1 or 2)."""
    if length is None and window is None:
        raise ModelError("expected a window or the length of frames")
    size = int(number(length)) if length is not None else window.shape[0]
    hop = int(number(step))
    z = _complex(x if x.ndim == 3 else x.unsqueeze(-1))
    count = (z.shape[1] - size) // hop + 1
    at = weft.arange(count).unsqueeze(1) * hop + weft.arange(size)  # (F, L)
    frames = z[:, at.reshape(-1)].reshape(z.shape[0], count, size)
    if window is not None:
        frames = frames * window
    transform = weft.fft.rfft if onesided and not z.dtype.is_complex else weft.fft.fft
    found = transform(frames, size, -1)
    if onesided and z.dtype.is_complex:
        found = found[..., : size // 2 + 1]
    return _parts(found).to(x.dtype)


def _window(weights: tuple[float, ...]) -> Any:
    """A window of cosines."""

    def run(size: Any, *, periodic: int = 1, output_datatype: int = 1) -> Tensor:
        (count,) = bounded([int(number(size))])
        span = count if periodic else max(count - 1, 1)
        angle = weft.arange(count, dtype=weft.float64) * (2 * math.pi / span)
        total: Any = 0.0
        for k, weight in enumerate(weights):
            total = total + weight * (-1) ** k * weft.cos(angle * k)
        return total.to(dtype_of(output_datatype))

    return run


operator("HannWindow", static=(0,))(_window((0.5, 0.5)))
operator("HammingWindow", static=(0,))(_window((25 / 46, 21 / 46)))
operator("BlackmanWindow", static=(0,))(_window((0.42, 0.5, 0.08)))


@operator("MelWeightMatrix", static=(0, 1, 2, 3, 4))
def mel_weight_matrix(
    bins: Any, length: Any, rate: Any, low: Any, high: Any, *, output_datatype: int = 1
) -> Tensor:
    """The shares of frequencies in bands of the mel scale."""
    count, size, sampled = int(number(bins)), int(number(length)), int(number(rate))
    lines = size // 2 + 1
    bounded([lines, count])
    ends = [2595 * math.log10(1 + number(f) / 700) for f in (low, high)]
    step = (ends[1] - ends[0]) / (count + 2)
    marks = ends[0] + step * np.arange(count + 2)
    at = ((size + 1) * (700 * (10 ** (marks / 2595) - 1)) // sampled).astype(int)
    out = np.zeros((lines, count))
    for k in range(count):
        first, middle, last = at[k : k + 3]
        if middle == first:
            out[middle, k] = 1
        else:
            up = np.arange(first, middle + 1)
            out[up, k] = (up - first) / (middle - first)
        if last > middle:
            down = np.arange(middle, last)
            out[down, k] = (last - down) / (last - middle)
    return tensor(out).to(dtype_of(output_datatype))
