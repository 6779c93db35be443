"""Fractional max pooling (Graham, 2014), and pooling that gives indices as well."""

from __future__ import annotations

import inspect
from typing import Any

import weft
from weft import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.nn.functional.pooling import (
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)


def _starts(sample: Tensor, size: int, out: int, window: int) -> Tensor:
    """Where each of ``out`` windows begins: (N, C, out), from a sample of (N, C)."""
    if window > size or out + window - 1 > size:
        raise ShapeError(
            f"fractional_max_pool: {out} windows of {window} do not fit into a "
            f"dimension of {size}"
        )
    last = sample.new_full((*sample.shape, 1), size - window).long()
    if out == 1:
        return last
    alpha = (size - window) / (out - 1)
    places = weft.arange(out - 1, dtype=sample.dtype) + sample.unsqueeze(-1)
    first = (sample.unsqueeze(-1) * alpha).long()
    return weft.cat([(places * alpha).long() - first, last], -1)


def _fractional(
    name: str, rank: int, input: Tensor, kernel: Any, size: Any, ratio: Any, rand: Any
) -> tuple[Tensor, Tensor]:
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: expected {rank + 1} or {rank + 2} dimensions, got shape "
            f"{input.shape}"
        )
    kernel, size = _each(kernel, rank), None if size is None else _each(size, rank)
    if size is None:
        if ratio is None:
            raise ArgumentError(
                f"{name} requires specifying either an output_size or an output_ratio"
            )
        pairs = zip(input.shape[-rank:], _each(ratio, rank), strict=True)
        size = tuple(int(n * r) for n, r in pairs)
    x = input if input.ndim == rank + 2 else input.unsqueeze(0)
    if rand is None:
        rand = weft.rand(*x.shape[:2], rank, dtype=x.dtype, device=x.device)
    values, indices = _pool(x, kernel, size, rand)
    if input.ndim == rank + 1:
        return values.squeeze(0), indices.squeeze(0)
    return values, indices


def _pool(x: Tensor, kernel: Any, size: Any, rand: Tensor) -> tuple[Tensor, Tensor]:
    """Maxima of windows at random places, and their flat indices."""
    rank, sizes = len(kernel), x.shape[2:]
    samples = rand.unbind(-1)[::-1] if rank == 2 else rand.unbind(-1)
    flat: Any = 0
    for d in range(rank):
        starts = _starts(samples[d], sizes[d], size[d], kernel[d])
        reads = starts.unsqueeze(-1) + weft.arange(kernel[d])  # (N, C, out, k)
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = size[d], kernel[d]
        flat = flat * sizes[d] + reads.reshape(*x.shape[:2], *shape)
    flat = flat.flatten(2 + rank)  # (N, C, *out, windows)
    rows = x.flatten(2)
    found = rows.gather(2, flat.flatten(2)).reshape(flat.shape)
    values, best = found.max(-1)
    return values, flat.gather(-1, best.unsqueeze(-1)).squeeze(-1)


def _each(value: Any, rank: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``fractional_max_pool2d`` with the indices of the maxima.

    >>> from weft.nn import functional as F
    >>> out, indices = F.fractional_max_pool2d_with_indices(weft.rand(1, 3, 9, 9), 2, 4)
    >>> out.shape, indices.shape
    ((1, 3, 4, 4), (1, 3, 4, 4))
    """
    return _fractional(
        "fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio,
        _random_samples,
    )  # fmt: skip


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest elements of windows whose places are drawn at random.

    >>> from weft.nn import functional as F
    >>> F.fractional_max_pool2d(weft.rand(2, 3, 9, 9), 2, output_ratio=0.5).shape
    (2, 3, 4, 4)
    """
    both = fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, True, _random_samples
    )
    return both if return_indices else both[0]


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``fractional_max_pool3d`` with the indices of the maxima.

    >>> from weft.nn import functional as F
    >>> x = weft.rand(1, 2, 6, 6, 6)
    >>> F.fractional_max_pool3d_with_indices(x, 2, 3)[1].shape
    (1, 2, 3, 3, 3)
    """
    return _fractional(
        "fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio,
        _random_samples,
    )  # fmt: skip


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest elements of windows whose places are drawn at random.

    >>> from weft.nn import functional as F
    >>> F.fractional_max_pool3d(weft.rand(1, 2, 6, 6, 6), 2, output_size=3).shape
    (1, 2, 3, 3, 3)
    """
    both = fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, True, _random_samples
    )
    return both if return_indices else both[0]


def _indexed(pool: Any, name: str) -> Any:
    """Max pooling that gives indices whether asked or not."""

    def with_indices(*args: Any, **kwargs: Any) -> Any:
        kwargs["return_indices"] = True
        return pool(*args, **kwargs)

    with_indices.__name__ = with_indices.__qualname__ = name
    with_indices.__signature__ = inspect.signature(pool)  # type: ignore[attr-defined]
    with_indices.__doc__ = f"``{pool.__name__}`` with the indices of the maxima."
    return with_indices


max_pool1d_with_indices = _indexed(max_pool1d, "max_pool1d_with_indices")
max_pool2d_with_indices = _indexed(max_pool2d, "max_pool2d_with_indices")
max_pool3d_with_indices = _indexed(max_pool3d, "max_pool3d_with_indices")
adaptive_max_pool1d_with_indices = _indexed(
    adaptive_max_pool1d, "adaptive_max_pool1d_with_indices"
)
adaptive_max_pool2d_with_indices = _indexed(
    adaptive_max_pool2d, "adaptive_max_pool2d_with_indices"
)
adaptive_max_pool3d_with_indices = _indexed(
    adaptive_max_pool3d, "adaptive_max_pool3d_with_indices"
)
