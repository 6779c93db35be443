"""Short-time Fourier transforms, and their inverse."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.complex_numbers import complex, view_as_real
from weft.ops.creation import ones
from weft.ops.padding import pad
from weft.ops.public import public


def _checked_window(
    name: str, window: Tensor | None, length: int, n_fft: int, like: Tensor
) -> Tensor:
    """The window as long as the transform, with zeros on both sides."""
    if not 0 < length <= n_fft:
        raise ArgumentError(
            f"{name}: expected 0 < win_length <= n_fft, got {length} and {n_fft}"
        )
    if window is None:
        window = ones(length, dtype=like.dtype.to_real(), device=like.device)
    if tuple(window.shape) != (length,):
        raise ShapeError(
            f"{name}: expected a window of shape ({length},), got {tuple(window.shape)}"
        )
    left = (n_fft - length) // 2
    return pad(window, (left, n_fft - length - left)) if length < n_fft else window


@public(method=True)
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Fourier transforms of overlapping frames of a signal (..., time).

    The result has the shape (..., frequencies, frames).

    >>> weft.stft(weft.ones(8), 4, window=weft.ones(4), return_complex=True).shape
    (3, 9)
    """
    from weft import fft

    if not input.dtype.is_inexact or input.ndim not in (1, 2):
        raise ShapeError(
            "stft: expected a floating-point or complex signal of one or two "
            f"dimensions, got {input.dtype.name} of shape {tuple(input.shape)}"
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    if n_fft <= 0 or hop <= 0:
        raise ArgumentError(
            f"stft: expected n_fft and hop_length above 0, got {n_fft} and {hop}"
        )
    taper = _checked_window("stft", window, win_length or n_fft, n_fft, input)
    complex_in = input.dtype.is_complex or taper.dtype.is_complex
    one_side = not complex_in if onesided is None else onesided
    if one_side and complex_in:
        raise ArgumentError("stft: a complex signal or window has no one-sided result")
    if return_complex is None:
        if not complex_in:
            raise ArgumentError(
                "stft: expected return_complex to be given for real signals; pass "
                "return_complex=True"
            )
        return_complex = True
    x = input if input.ndim == 2 else input.unsqueeze(0)
    if center:
        half = n_fft // 2
        x = pad(x.unsqueeze(0), (half, half), pad_mode).squeeze(0)
    if x.shape[-1] < n_fft:
        raise ShapeError(
            f"stft: expected a signal of at least n_fft = {n_fft} samples, got "
            f"{x.shape[-1]}"
        )
    frames = x.unfold(-1, n_fft, hop) * taper
    spectrum = (fft.rfft if one_side else fft.fft)(
        frames, norm="ortho" if normalized else None
    )
    found = spectrum.mT
    found = found if input.ndim == 2 else found.squeeze(0)
    return found if return_complex else view_as_real(found)


@public(method=True)
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose ``stft`` is nearest to a spectrogram.

    >>> x = weft.arange(16) * 0.25
    >>> spectrum = weft.stft(x, 8, window=weft.hann_window(8), return_complex=True)
    >>> weft.allclose(weft.istft(spectrum, 8, window=weft.hann_window(8)), x, atol=1e-5)
    True
    """
    from weft import fft
    from weft.nn.functional import fold

    if not input.dtype.is_complex:
        raise DTypeError(
            f"istft: expected a complex spectrogram, got {input.dtype.name}; use "
            "weft.view_as_complex"
        )
    if input.ndim not in (2, 3):
        raise ShapeError(
            "istft: expected the shape (..., frequencies, frames), got "
            f"{tuple(input.shape)}"
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    size = win_length or n_fft
    if not 0 < hop <= size:
        raise ArgumentError(
            f"istft: expected 0 < hop_length <= win_length, got {hop} and {size}"
        )
    bins = input.shape[-2]
    one_side = bins != n_fft if onesided is None else onesided
    if bins != (n_fft // 2 + 1 if one_side else n_fft):
        raise ShapeError(
            f"istft: expected {n_fft // 2 + 1 if one_side else n_fft} frequencies for "
            f"n_fft = {n_fft}, got {bins}"
        )
    if return_complex and one_side:
        raise ArgumentError("istft: a one-sided spectrogram has a real signal")
    taper = _checked_window("istft", window, size, n_fft, input)
    if taper.dtype.is_complex and not return_complex:
        raise ArgumentError("istft: a complex window needs return_complex=True")
    x = input if input.ndim == 3 else input.unsqueeze(0)
    norm = "ortho" if normalized else None
    if one_side:
        frames = fft.irfft(x.mT, n_fft, norm=norm)
    else:
        whole = x.mT  # a real signal is that of the frequencies that are not negative
        frames = (
            fft.ifft(whole, norm=norm)
            if return_complex
            else fft.irfft(whole[..., : n_fft // 2 + 1], n_fft, norm=norm)
        )
    count = frames.shape[-2]
    total = n_fft + hop * (count - 1)

    def added(parts: Tensor) -> Tensor:
        """Frames (batch, frames, n_fft) added where they overlap."""
        made = fold(parts.mT, (1, total), (1, n_fft), stride=(1, hop))
        return made.reshape(parts.shape[0], total)

    weights = (taper * taper.conj()).expand(1, count, n_fft)
    frames = frames * taper.conj()
    if frames.dtype.is_complex:
        signal: Any = complex(added(frames.real), added(frames.imag))
    else:
        signal = added(frames)
    envelope = added(weights.real if weights.dtype.is_complex else weights)
    start = n_fft // 2 if center else 0
    end = total - n_fft // 2 if center and length is None else total
    end = end if length is None else start + length
    cut = slice(start, min(end, total))
    signal, envelope = signal[:, cut], envelope[:, cut]
    if bool((envelope.detach().abs() < 1e-11).any()):
        raise ArgumentError(
            "istft: the windows do not overlap enough: their sum is 0 somewhere"
        )
    out = signal / envelope
    if length is not None and out.shape[-1] < length:
        out = pad(out, (0, length - out.shape[-1]))
    return out if input.ndim == 3 else out.squeeze(0)
