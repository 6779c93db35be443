"""``weft.signal.windows``: windows of signals, symmetric unless told otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.ops.windows import (
    _window,
    bartlett_window,
    blackman_window,
    cosines,
    hann_window,
    kaiser_window,
)

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
    "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Hann's window: one arch of a cosine.

    >>> weft.signal.windows.hann(3)
    tensor([0., 1., 0.])
    """
    return hann_window(M, not sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Hamming's window.

    >>> weft.signal.windows.hamming(3)
    tensor([0.0800, 1.0000, 0.0800])
    """
    return general_hamming(M, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Blackman's window.

    >>> weft.signal.windows.blackman(5)[2]
    tensor(1.)
    """
    return blackman_window(M, not sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Bartlett's window: a triangle.

    >>> weft.signal.windows.bartlett(3)
    tensor([0., 1., 0.])
    """
    return bartlett_window(M, not sym, **options)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """Kaiser's window.

    >>> weft.signal.windows.kaiser(3, beta=0.0)
    tensor([1., 1., 1.])
    """
    if beta < 0:
        raise ArgumentError(f"kaiser: expected beta of at least 0, got {beta}")
    return kaiser_window(M, not sym, beta, **options)


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, **options: Any
) -> Tensor:
    """A sum of cosines with coefficients of alternating signs.

    >>> weft.signal.windows.general_cosine(3, a=[0.5, 0.5])
    tensor([0., 1., 0.])
    """
    terms = list(a)
    if not terms:
        raise ArgumentError("general_cosine: expected at least one coefficient")
    places, last, end = _window("general_cosine", M, not sym, options)
    return end(cosines(places, last, terms))


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any
) -> Tensor:
    """``alpha - (1 - alpha) cos(t)``.

    >>> weft.signal.windows.general_hamming(3, alpha=0.5)
    tensor([0., 1., 0.])
    """
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Nuttall's window, of four cosines.

    >>> weft.signal.windows.nuttall(3)[1]
    tensor(1.)
    """
    terms = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return general_cosine(M, a=terms, sym=sym, **options)


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Half a period of a sine.

    >>> weft.signal.windows.cosine(1)
    tensor([1.])
    """
    places, last, end = _window("cosine", M, not sym, options)
    return end(((places + 0.5) * (math.pi / max(last + 1, 1))).sin())


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """The normal density around the middle, at most 1.

    >>> weft.signal.windows.gaussian(3)
    tensor([0.6065, 1.0000, 0.6065])
    """
    if std <= 0:
        raise ArgumentError(f"gaussian: expected std above 0, got {std}")
    places, last, end = _window("gaussian", M, not sym, options)
    return end((-(((places - last / 2) / std) ** 2) / 2).exp())


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    **options: Any,
) -> Tensor:
    """An exponential that decays on both sides of a centre (the middle).

    >>> weft.signal.windows.exponential(3)
    tensor([0.3679, 1.0000, 0.3679])
    """
    if tau <= 0:
        raise ArgumentError(f"exponential: expected tau above 0, got {tau}")
    if sym and center is not None:
        raise ArgumentError(
            "exponential: a symmetric window has its centre in the middle"
        )
    places, last, end = _window("exponential", M, not sym, options)
    middle = last / 2 if center is None else center
    return end((-(places - middle).abs() / tau).exp())
