"""The standard's ``fft`` extension, over ``weft.fft``."""

from __future__ import annotations

from typing import Any

from weft import fft as _fft
from weft.array_api._common import Array, check_array

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft",
    "irfft", "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip


def _line(name: str) -> Any:
    """A transform along one axis."""
    of = getattr(_fft, name)

    def fn(
        x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Array:
        return of(check_array(name, x), n, axis, norm)

    return _finish(fn, name, of, "weft.ones(3)")


def _box(name: str) -> Any:
    """A transform along several axes."""
    of = getattr(_fft, name)

    def fn(
        x: Array, /, *, s: Any = None, axes: Any = None, norm: str = "backward"
    ) -> Array:
        return of(check_array(name, x), s, axes, norm)

    return _finish(fn, name, of, "weft.ones(3)")


def _finish(fn: Any, name: str, of: Any, example: str) -> Any:
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"""{of.__doc__.partition(chr(10))[0]}

    >>> weft.array_api.fft.{name}({example}).ndim
    1
    """
    return fn


fft, ifft, rfft, irfft = _line("fft"), _line("ifft"), _line("rfft"), _line("irfft")
hfft, ihfft = _line("hfft"), _line("ihfft")
fftn, ifftn, rfftn, irfftn = _box("fftn"), _box("ifftn"), _box("rfftn"), _box("irfftn")


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None
) -> Array:
    """The frequencies of ``fft``'s elements, for samples ``d`` apart.

    >>> weft.array_api.fft.fftfreq(2)
    tensor([ 0.0000, -0.5000])
    """
    return _fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None
) -> Array:
    """The frequencies of ``rfft``'s elements, for samples ``d`` apart.

    >>> weft.array_api.fft.rfftfreq(2)
    tensor([0.0000, 0.5000])
    """
    return _fft.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Array, /, *, axes: Any = None) -> Array:
    """The elements with the frequency zero in the middle.

    >>> weft.array_api.fft.fftshift(weft.tensor([0, 1, -1]))
    tensor([-1,  0,  1])
    """
    return _fft.fftshift(check_array("fftshift", x), _tuple(axes))


def ifftshift(x: Array, /, *, axes: Any = None) -> Array:
    """The inverse of ``fftshift``.

    >>> weft.array_api.fft.ifftshift(weft.tensor([-1, 0, 1]))
    tensor([ 0,  1, -1])
    """
    return _fft.ifftshift(check_array("ifftshift", x), _tuple(axes))


def _tuple(axes: Any) -> Any:
    return tuple(axes) if isinstance(axes, list) else axes
