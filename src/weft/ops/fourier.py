"""Discrete Fourier transforms along one dimension, without a scale.

    fft(x)[k]    = Σ x[j] exp(∓2πi jk / n)           complex to complex
    rfft(x)[k]   = the same of real x, k up to n / 2
    irfft(x)[j]  = Σ x[k] exp(±2πi jk / n)           over all k, those above n / 2
                   being the conjugates of those below

All are linear, and each one's transpose is another: the sum with the other sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import DTypeError, ShapeError
from weft.ops.reduce import reduce_batch


def _check(name: str, x: TensorType, dim: int, *, complex: bool) -> None:
    fits = x.dtype.is_complex if complex else x.dtype.is_floating_point
    if not fits or x.dtype.to_total() is not x.dtype:
        wanted = "complex" if complex else "float32 or float64"
        raise DTypeError(f"{name}: expected {wanted} numbers, got {x.dtype.name}")
    if isinstance(x.shape[dim], int) and x.shape[dim] < 1:
        raise ShapeError(
            f"{name}: expected at least one element along dimension {dim}, got shape "
            f"{x.shape}"
        )


def _resized(x: TensorType, dim: int, size: Any, dtype: DType) -> TensorType:
    return TensorType((*x.shape[:dim], size, *x.shape[dim + 1 :]), dtype)


def _fft_type(x: TensorType, *, dim: int, inverse: bool) -> TensorType:
    _check("fft", x, dim, complex=True)
    return x


def _rfft_type(x: TensorType, *, dim: int, inverse: bool) -> TensorType:
    _check("rfft", x, dim, complex=False)
    return _resized(x, dim, x.shape[dim] // 2 + 1, x.dtype.to_complex())


def _irfft_type(x: TensorType, *, dim: int, n: Any, inverse: bool) -> TensorType:
    _check("irfft", x, dim, complex=True)
    have = x.shape[dim]
    if isinstance(have, int) and isinstance(n, int) and (n < 1 or have != n // 2 + 1):
        raise ShapeError(
            f"irfft: expected {n // 2 + 1} elements along dimension {dim} for a "
            f"result of {n}, got {have}"
        )
    return _resized(x, dim, n, x.dtype.to_real())


# -- evaluation: NumPy's, whose norm tells which way has no scale


def _fft(x: Any, *, dim: int, inverse: bool) -> Any:
    if inverse:
        return np.fft.ifft(x, axis=dim, norm="forward")
    return np.fft.fft(x, axis=dim)


def _rfft(x: Any, *, dim: int, inverse: bool) -> Any:
    found = np.fft.rfft(x, axis=dim)
    return np.conj(found) if inverse else found


def _irfft(x: Any, *, dim: int, n: int, inverse: bool) -> Any:
    given = x if inverse else np.conj(x)
    return np.fft.irfft(given, n, axis=dim, norm="forward")


# -- transposes


def _twice(x: Tensor, dim: int, n: Any, factor: float) -> Tensor:
    """The elements that stand for two, themselves and their conjugates, scaled."""
    from weft.ops.creation import arange
    from weft.ops.select import where
    from weft.ops.shaping import reshape

    position = arange(x.shape[dim], device=x.device)
    position = reshape(position, (-1, *[1] * (x.ndim - 1 - dim)))
    single = (position == 0) | (position * 2 == n)
    return where(single, x, x * factor)


def _rfft_vjp(g: Tensor, x_shape: Any, dim: int, inverse: bool) -> Tensor:
    n = x_shape[dim]
    return irfft_op(_twice(g, dim, n, 0.5), dim=dim, n=n, inverse=not inverse)


def _irfft_vjp(g: Tensor, dim: int, n: Any, inverse: bool) -> Tensor:
    return _twice(rfft_op(g, dim=dim, inverse=not inverse), dim, n, 2.0)


# -- references: the sums themselves


def _waves(n: int, inverse: bool) -> Any:
    position = np.arange(n)
    return np.exp((2j if inverse else -2j) * np.pi / n * np.outer(position, position))


def _along(matrix: Any, x: Any, dim: int) -> Any:
    return np.moveaxis(np.tensordot(matrix, x, ([1], [dim])), 0, dim)


def _fft_reference(x: Any, *, dim: int, inverse: bool) -> Any:
    return _along(_waves(x.shape[dim], inverse), x, dim)


def _rfft_reference(x: Any, *, dim: int, inverse: bool) -> Any:
    n = x.shape[dim]
    return _along(_waves(n, inverse)[: n // 2 + 1], x, dim)


def _irfft_reference(x: Any, *, dim: int, n: int, inverse: bool) -> Any:
    waves = _waves(n, inverse)[:, : n // 2 + 1]
    count = np.full(n // 2 + 1, 2.0)
    count[0] = 1.0
    if n % 2 == 0:
        count[-1] = 1.0
    return _along(waves * count, x, dim).real


def _complex(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def _fft_samples(rng: np.random.Generator) -> Any:
    for shape, dim, inverse in (
        ((5,), 0, False), ((3, 4), 0, True), ((2, 6), 1, False), ((0, 3), 1, True),
        ((1,), 0, False),
    ):  # fmt: skip
        yield Sample((_complex(rng, shape),), {"dim": dim, "inverse": inverse})


def _rfft_samples(rng: np.random.Generator) -> Any:
    for shape, dim, inverse in (
        ((5,), 0, False), ((6,), 0, True), ((4, 3), 0, False), ((2, 6), 1, True),
        ((0, 3), 1, False), ((1,), 0, False),
    ):  # fmt: skip
        yield Sample((rng.uniform(-2, 2, shape),), {"dim": dim, "inverse": inverse})


def _irfft_samples(rng: np.random.Generator) -> Any:
    for shape, dim, n, inverse in (
        ((3,), 0, 5, True), ((4,), 0, 6, False), ((3, 2), 0, 4, True),
        ((2, 4), 1, 7, False), ((0, 2), 1, 3, True), ((1,), 0, 1, True),
    ):  # fmt: skip
        params = {"dim": dim, "n": n, "inverse": inverse}
        yield Sample((_complex(rng, shape),), params)


fft_op: Op = define(
    "fft",
    inputs="x",
    eval=_fft,
    type=_fft_type,
    vjp={"x": lambda g, dim, inverse: fft_op(g, dim=dim, inverse=not inverse)},
    linear=True,
    batch=reduce_batch,
    samples=_fft_samples,
    reference=_fft_reference,
)

rfft_op: Op = define(
    "rfft",
    inputs="x",
    eval=_rfft,
    type=_rfft_type,
    vjp={"x": _rfft_vjp},
    linear=True,
    batch=reduce_batch,
    samples=_rfft_samples,
    reference=_rfft_reference,
)

irfft_op: Op = define(
    "irfft",
    inputs="x",
    eval=_irfft,
    type=_irfft_type,
    vjp={"x": _irfft_vjp},
    linear=True,
    batch=reduce_batch,
    samples=_irfft_samples,
    reference=_irfft_reference,
)
