"""``weft.masked``: reductions over the elements that a mask keeps.

A mask is a tensor of truth values that broadcasts to the input; without one, all
elements count. Where nothing is kept, a result is that of no elements: 0 for a sum, 1
for a product, NaN for a mean.

>>> x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> weft.masked.sum(x, 1, mask=weft.tensor([[True, False], [True, True]]))
tensor([1., 7.])
"""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.core.dims import normalize_dims
from weft.core.tensor import Tensor
from weft.dtype_info import finfo, iinfo
from weft.errors import ArgumentError
from weft.ops.copies import in_float32

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax",
    "logaddexp", "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax",
    "softmin", "std", "sum", "var",
]  # fmt: skip


def _dims(input: Tensor, dim: Any) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(input.ndim))
    return normalize_dims("masked", dim, input.ndim)


def _kept(input: Tensor, mask: Any) -> Tensor:
    """The mask in the shape of the input."""
    if mask is None:
        return weft.ones_like(input, dtype=weft.bool)
    return mask.to(weft.bool).expand(input.shape)


def _filled(input: Tensor, mask: Any, value: Any) -> Tensor:
    return input if mask is None else weft.where(_kept(input, mask), input, value)


def _lowest(dtype: Any) -> Any:
    if dtype.is_floating_point:
        return -math.inf
    return False if dtype is weft.bool else iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    if dtype.is_floating_point:
        return math.inf
    return True if dtype is weft.bool else iinfo(dtype).max


def _typed(input: Tensor, dtype: Any, floating: bool = False) -> Tensor:
    if dtype is None and floating and not input.dtype.is_inexact:
        dtype = weft.get_default_dtype()
    return input if dtype is None else input.to(dtype)


def sum(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """The sum of the kept elements.

    >>> weft.masked.sum(weft.arange(3), mask=weft.tensor([True, False, True]))
    tensor(2)
    """
    x = _filled(_typed(input, dtype), mask, 0)
    return x.sum(_dims(x, dim), keepdim=keepdim)


def prod(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """The product of the kept elements.

    >>> weft.masked.prod(weft.tensor([2, 3]), mask=weft.tensor([True, False]))
    tensor(2)
    """
    x = _filled(_typed(input, dtype), mask, 1)
    for d in sorted((d % max(x.ndim, 1) for d in _dims(x, dim)), reverse=True):
        x = x.prod(d, keepdim=keepdim)
    return x


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Running sums of the kept elements.

    >>> mask = weft.tensor([True, False, True])
    >>> weft.masked.cumsum(weft.tensor([1, 2, 3]), 0, mask=mask)
    tensor([1, 1, 4])
    """
    return _filled(_typed(input, dtype), mask, 0).cumsum(dim)


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Running products of the kept elements.

    >>> weft.masked.cumprod(weft.tensor([2, 3]), 0, mask=weft.tensor([True, False]))
    tensor([2, 2])
    """
    return _filled(_typed(input, dtype), mask, 1).cumprod(dim)


def amax(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """The largest kept element; the lowest number of the dtype where none is kept.

    >>> weft.masked.amax(weft.tensor([1, 9]), mask=weft.tensor([True, False]))
    tensor(1)
    """
    x = _typed(input, dtype)
    return _filled(x, mask, _lowest(x.dtype)).amax(_dims(x, dim), keepdim)


def amin(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """The smallest kept element; the highest number of the dtype where none is kept.

    >>> weft.masked.amin(weft.tensor([1, 9]), mask=weft.tensor([False, True]))
    tensor(9)
    """
    x = _typed(input, dtype)
    return _filled(x, mask, _highest(x.dtype)).amin(_dims(x, dim), keepdim)


def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """The index of the largest kept element.

    >>> mask = weft.tensor([True, False, True])
    >>> weft.masked.argmax(weft.tensor([1, 9, 3]), mask=mask)
    tensor(2)
    """
    x = _typed(input, dtype)
    return _filled(x, mask, _lowest(x.dtype)).argmax(dim, keepdim)


def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """The index of the smallest kept element.

    >>> mask = weft.tensor([False, True, True])
    >>> weft.masked.argmin(weft.tensor([1, 9, 3]), mask=mask)
    tensor(2)
    """
    x = _typed(input, dtype)
    return _filled(x, mask, _highest(x.dtype)).argmin(dim, keepdim)


def _count(input: Tensor, dim: Any, keepdim: bool, mask: Any) -> Tensor:
    return _kept(input, mask).sum(_dims(input, dim), keepdim=keepdim)


def mean(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """The mean of the kept elements.

    >>> weft.masked.mean(weft.tensor([1.0, 9.0]), mask=weft.tensor([True, False]))
    tensor(1.)
    """
    x = _typed(input, dtype)
    if not x.dtype.is_inexact:
        raise ArgumentError(
            f"masked.mean: expected a floating-point or complex dtype, got {x.dtype}; "
            "pass dtype="
        )
    return in_float32(
        lambda x: (
            sum(x, dim, keepdim=keepdim, mask=mask) / _count(x, dim, keepdim, mask)
        ),
        x,
    )


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """The middle one of the kept elements.

    >>> weft.masked.median(weft.tensor([1.0, 9.0]), 0, mask=weft.tensor([False, True]))
    tensor(9.)
    """
    x = _typed(input, dtype)
    if mask is None:
        return x.median(dim, keepdim).values
    if not x.dtype.is_floating_point:
        raise ArgumentError(
            f"masked.median: expected a floating-point dtype with a mask, got {x.dtype}"
        )
    return _filled(x, mask, math.nan).nanmedian(dim, keepdim).values


def logsumexp(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """The logarithm of the sum of the kept elements' exponentials.

    >>> weft.masked.logsumexp(weft.zeros(2), 0, mask=weft.tensor([True, False]))
    tensor(0.)
    """
    x = _typed(input, dtype, floating=True)
    return _filled(x, mask, -math.inf).logsumexp(_dims(x, dim), keepdim)


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Any = None,
    other_mask: Any = None,
) -> Tensor:  # fmt: skip
    """``logaddexp`` of two tensors; an element that is not kept adds nothing.

    >>> x = weft.zeros(1)
    >>> weft.masked.logaddexp(x, x, other_mask=weft.tensor([False]))
    tensor([0.])
    """
    a, b = _typed(input, dtype, floating=True), _typed(other, dtype, floating=True)
    return weft.logaddexp(
        _filled(a, input_mask, -math.inf), _filled(b, other_mask, -math.inf)
    )


def norm(
    input: Tensor, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool = False,
    dtype: Any = None, mask: Any = None,
) -> Tensor:  # fmt: skip
    """The vector norm of the kept elements.

    >>> x, mask = weft.tensor([3.0, 4.0]), weft.tensor([True, False])
    >>> weft.masked.norm(x, 2, 0, mask=mask)
    tensor(3.)
    """
    order = 2.0 if ord is None else float(ord)
    x = _filled(_typed(input, dtype), mask, math.inf if order == -math.inf else 0)
    return weft.linalg.vector_norm(x, order, _dims(x, dim), keepdim)


def var(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
    correction: Any = None, keepdim: bool = False, dtype: Any = None, mask: Any = None,
) -> Tensor:  # fmt: skip
    """The variance of the kept elements.

    >>> x, mask = weft.tensor([1.0, 3.0, 99.0]), weft.tensor([True, True, False])
    >>> weft.masked.var(x, mask=mask)
    tensor(2.)
    """
    x = _typed(input, dtype, floating=True)
    less = correction if correction is not None else int(unbiased is not False)
    count = _count(x, dim, keepdim, mask)

    def plain(x: Tensor) -> Tensor:
        apart = x - mean(x, dim, keepdim=True, mask=mask)
        squares = (apart * apart.conj()).real if x.dtype.is_complex else apart * apart
        total = sum(squares, dim, keepdim=keepdim, mask=mask)
        return total / (count.to(total.dtype) - less).clamp(min=0)

    return in_float32(plain, x)


def std(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, *,
    correction: Any = None, keepdim: bool = False, dtype: Any = None, mask: Any = None,
) -> Tensor:  # fmt: skip
    """The standard deviation of the kept elements.

    >>> weft.masked.std(weft.tensor([1.0, 3.0, 99.0]), unbiased=False,
    ...                 mask=weft.tensor([True, True, False]))
    tensor(1.)
    """
    return var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype,
        mask=mask,
    ).sqrt()  # fmt: skip


def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """``softmax`` over the kept elements; the others get 0.

    >>> weft.masked.softmax(weft.zeros(3), 0, mask=weft.tensor([True, True, False]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    x = _typed(input, dtype, floating=True)
    return weft.softmax(_filled(x, mask, -math.inf), dim)


def log_softmax(
    input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None
) -> Tensor:
    """``log_softmax`` over the kept elements; the others get minus infinity.

    >>> weft.masked.log_softmax(weft.zeros(2), 0, mask=weft.tensor([True, False]))
    tensor([0., -inf])
    """
    x = _typed(input, dtype, floating=True)
    return weft.log_softmax(_filled(x, mask, -math.inf), dim)


def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """``softmin`` over the kept elements; the others get 0.

    >>> weft.masked.softmin(weft.zeros(2), 0, mask=weft.tensor([True, False]))
    tensor([1., 0.])
    """
    return softmax(-input, dim, dtype=dtype, mask=mask)


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    """Divide by the norm of the kept elements; the others get 0.

    >>> weft.masked.normalize(weft.tensor([3.0, 4.0]), 2, 0)
    tensor([0.6000, 0.8000])
    """
    x = _typed(input, dtype, floating=True)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return _filled(x, mask, 0) / size.clamp(min=max(eps, finfo(size.dtype).tiny))
