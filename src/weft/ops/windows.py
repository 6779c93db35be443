"""Windows of signals, under PyTorch's names: ``hann_window`` and its relatives."""

from __future__ import annotations

from typing import Any

from weft import dtype as dtypes
from weft.core.tensor import Tensor
from weft.dtype import as_dtype
from weft.errors import ArgumentError, DTypeError
from weft.layouts import check_strided
from weft.ops.creation import arange, ones
from weft.ops.public import public


def _window(name: str, length: Any, periodic: bool, options: dict[str, Any]) -> Any:
    """The places of a window's elements in float64, the last of them, and an end.

    The end takes a window in float64 to the dtype, the device and the tape.
    """
    dtype = options.pop("dtype", None)
    device = options.pop("device", None)
    wants = options.pop("requires_grad", False)
    check_strided(name, options.pop("layout", None))
    options.pop("pin_memory", None)
    if options:
        raise ArgumentError(f"{name}: unknown options {sorted(options)}")
    chosen = dtypes.default_dtype() if dtype is None else as_dtype(dtype)
    if not chosen.is_floating_point:
        raise DTypeError(f"{name}: expected a floating-point dtype, got {chosen.name}")
    if not isinstance(length, int) or isinstance(length, bool) or length < 0:
        raise ArgumentError(f"{name}: expected a length of at least 0, got {length!r}")

    def end(window: Tensor) -> Tensor:
        made = ones(length) if length == 1 else window
        made = made.to(chosen)
        if device is not None:
            made = made.to(device)
        return made.requires_grad_() if wants else made

    places = arange(length, dtype=dtypes.float64)
    return places, length if periodic else length - 1, end


def cosines(places: Tensor, last: int, terms: Any) -> Tensor:
    """``a0 - a1 cos(t) + a2 cos(2 t) - …`` over one period."""
    angle = places * (2 * 3.141592653589793 / max(last, 1))
    total: Any = 0.0
    for k, a in enumerate(terms):
        total = total + (-1) ** k * a * (angle * k).cos()
    return total


@public()
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Hann's window: one arch of a cosine, from 0 to 0.

    ``periodic`` leaves the last 0 out, for transforms of consecutive frames.

    >>> weft.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    places, last, end = _window("hann_window", window_length, periodic, options)
    return end(cosines(places, last, (0.5, 0.5)))


@public()
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Any,
) -> Tensor:
    """Hamming's window: ``alpha - beta cos(t)``.

    >>> weft.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    places, last, end = _window("hamming_window", window_length, periodic, options)
    return end(cosines(places, last, (alpha, beta)))


@public()
def blackman_window(
    window_length: int, periodic: bool = True, **options: Any
) -> Tensor:
    """Blackman's window, of three cosines.

    >>> weft.blackman_window(3, periodic=False).abs()
    tensor([1.3878e-17, 1.0000e+00, 1.3878e-17])
    """
    places, last, end = _window("blackman_window", window_length, periodic, options)
    return end(cosines(places, last, (0.42, 0.5, 0.08)))


@public()
def bartlett_window(
    window_length: int, periodic: bool = True, **options: Any
) -> Tensor:
    """Bartlett's window: a triangle from 0 to 0.

    >>> weft.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    places, last, end = _window("bartlett_window", window_length, periodic, options)
    return end(1 - (places * (2 / max(last, 1)) - 1).abs())


@public()
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any
) -> Tensor:
    """Kaiser's window, of the modified Bessel function of order 0.

    >>> weft.kaiser_window(3, periodic=False, beta=0.0)
    tensor([1., 1., 1.])
    """
    from weft.ops.bessel_functions import i0e

    places, last, end = _window("kaiser_window", window_length, periodic, options)
    y = ((1 - (places * (2 / max(last, 1)) - 1) ** 2).clamp(min=0)).sqrt() * beta
    shift = (y - beta).exp()  # i0(y) / i0(beta) without large numbers
    return end(i0e(y) * shift / i0e(Tensor(places.numpy()[:1] * 0 + beta)))
