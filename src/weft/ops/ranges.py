"""Numbers at equal steps, and arrays of positions and of combinations."""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import as_int
from weft.core.size import Size, larger
from weft.core.tensor import Tensor
from weft.dtype import DType, as_dtype, default_dtype
from weft.errors import ArgumentError, ShapeError
from weft.ops.creation import (
    arange,
    check_memory,
    optioned,
    parse_size,
    placed,
    python_number,
    tensor,
    zeros,
)
from weft.ops.public import public


def _count(name: str, steps: Any) -> Any:
    steps = as_int(name, steps, "steps to be an int")
    if steps < 0:
        raise ShapeError(f"{name}: expected steps of at least 0, got {steps}")
    return steps


@public()
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Evenly spaced numbers from ``start`` to ``end``, both included.

    >>> weft.linspace(0, 1, 3)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if more:
        return optioned(
            linspace,
            more,
            start,
            end,
            steps,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    steps = _count("linspace", steps)
    chosen = as_dtype(dtype or default_dtype())
    check_memory("linspace", (steps,), chosen)
    first, last = (python_number("linspace", v) for v in (start, end))
    if isinstance(steps, Size):
        return _linspace_open(first, last, steps, chosen)
    array = _spaced(first, last, operator.index(steps), chosen)
    return placed(Tensor(array), device, requires_grad)


def _spaced(first: Any, last: Any, steps: int, dtype: DType) -> np.ndarray:
    """Evenly spaced numbers, to the bit as PyTorch spaces them.

    Both ends and the step are rounded to the dtype (the step to float64 for integers),
    and the two halves are counted from their own ends, each element with one rounding:

        linspace(0, 1, 7):  0, step, 2 step, 1 - 3 step, 1 - 2 step, 1 - step, 1
    """
    if steps < 2 or dtype.is_complex:
        return np.linspace(first, last, steps).astype(dtype.np)
    own = dtype.np.type if dtype.is_floating_point else np.float64
    start, end = np.array([first, last]).astype(dtype.np).astype(own)
    step = (end - start) / own(steps - 1)
    near, far = np.arange(steps // 2), np.arange(steps - 1 - steps // 2, -1, -1)
    if dtype.itemsize < 4 and dtype.is_floating_point:  # each operation is rounded
        halves = start + step * near.astype(own), end - step * far.astype(own)
    else:
        start, end, step = (x.astype(np.float64) for x in (start, end, step))
        high, low = _split(step, np.where)
        halves = (
            _sum(start, high * near, low * near),
            _sum(end, -high * far, -low * far),
        )
    return np.concatenate(halves).astype(own).astype(dtype.np)


def _linspace_open(first: Any, last: Any, steps: Size, dtype: DType) -> Tensor:
    """The same for a number of steps that is not known yet."""
    from weft.ops.select import where

    own = dtype if dtype.is_floating_point else dtypes.float64
    ends = np.array([first, last]).astype(dtype.np).astype(own.np)
    rest = larger(steps - 1, 1)
    step = Tensor(np.asarray(ends[1] - ends[0])) / (zeros((), dtype=own) + rest)
    wide = own if own.itemsize < 4 else dtypes.float64
    start, end = (Tensor(np.asarray(x, wide.np)) for x in ends)
    index = arange(steps)
    near, far = index.to(wide), (steps - 1 - index).to(wide)
    below = (index < steps // 2) | (index == 0)
    if wide.itemsize < 4:
        return where(below, start + step * near, end - step * far)
    high, low = _split(step.to(wide), where)
    begin, count = where(below, start, end), where(below, near, -far)
    return _sum(begin, high * count, low * count).to(own).to(dtype)


def _split(x: Any, where: Any) -> tuple[Any, Any]:
    """A number in float64 as a sum of two whose products with counts are exact."""
    large = x * (2.0**27 + 1)
    high = where(abs(large) < math.inf, large - (large - x), x)
    return high, x - high


def _sum(begin: Any, high: Any, low: Any) -> Any:
    """The sum of three numbers, the last one small, with one rounding."""
    total = begin + high
    part = total - begin
    lost = (begin - (total - part)) + (high - part)
    return total + (lost + low)


@public()
def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **more: Any,
) -> Tensor:
    """Powers of ``base`` with evenly spaced exponents.

    >>> weft.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    if more:
        return optioned(
            logspace,
            more,
            start,
            end,
            steps,
            base,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    steps = _count("logspace", steps)
    chosen = as_dtype(dtype or default_dtype())
    check_memory("logspace", (steps,), chosen)
    first, last, base = (python_number("logspace", v) for v in (start, end, base))
    if not chosen.is_inexact:  # as PyTorch's: the exponents' ends are integers too
        first, last = int(first), int(last)
    array = np.logspace(first, last, steps, base=base).astype(chosen.np)
    return placed(Tensor(array), device, requires_grad)


def _triangle_indices(
    keep: Any, shape: tuple[int, ...], offset: int, options: Any
) -> Tensor:
    positions = np.nonzero(keep(np.ones(shape, np.bool_), offset))
    return tensor(np.stack(positions), **{"dtype": dtypes.int64, **options})


@public()
def tril_indices(row: int, col: int, offset: int = 0, **options: Any) -> Tensor:
    """The indices of a matrix's lower triangle: rows, then columns.

    >>> weft.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    shape = parse_size("tril_indices", (row, col))
    return _triangle_indices(np.tril, shape, offset, options)


@public()
def triu_indices(row: int, col: int, offset: int = 0, **options: Any) -> Tensor:
    """The indices of a matrix's upper triangle: rows, then columns.

    >>> weft.triu_indices(2, 2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    shape = parse_size("triu_indices", (row, col))
    return _triangle_indices(np.triu, shape, offset, options)


@public()
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """A row of powers of each element, the highest first.

    >>> weft.vander(weft.tensor([1, 2, 3]), 3)
    tensor([[1, 1, 1],
            [4, 2, 1],
            [9, 3, 1]])
    """
    if x.ndim != 1:
        raise ShapeError(f"vander: expected a vector, got shape {x.shape}")
    count = x.shape[0] if N is None else N
    if count < 0:
        raise ArgumentError(f"vander: expected N of at least 0, got {N}")
    powers = np.arange(count) if increasing else np.arange(count)[::-1].copy()
    return x.unsqueeze(1) ** Tensor(powers).to(x.device)


@public()
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every combination of one element of each vector, a row each.

    >>> weft.cartesian_prod(weft.tensor([1, 2]), weft.tensor([3, 4])).shape
    (4, 2)
    """
    from weft.ops.broadcasting import meshgrid
    from weft.ops.joining import stack

    for one in tensors:
        if one.ndim != 1:
            raise ShapeError(f"cartesian_prod: expected vectors, got shape {one.shape}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.flatten() for g in meshgrid(*tensors, indexing="ij")], 1)


@public()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Every choice of r elements of a vector, a row each, in order.

    >>> weft.combinations(weft.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if input.ndim != 1:
        raise ShapeError(f"combinations: expected a vector, got shape {input.shape}")
    if r < 0:
        raise ArgumentError(f"combinations: expected r of at least 0, got {r}")
    choose = (
        itertools.combinations_with_replacement
        if with_replacement
        else itertools.combinations
    )
    rows = list(choose(range(input.shape[0]), r))
    positions = Tensor(np.array(rows, np.int64).reshape(len(rows), r))
    return input[positions.to(input.device)]


@public(name="range")
def range_(
    start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None, **options: Any
) -> Tensor:
    """The numbers from ``start`` to ``end``, both included (deprecated by PyTorch).

    >>> weft.range(1, 4)
    tensor([1., 2., 3., 4.])
    """
    if end is None:
        start, end = 0, start
    chosen = default_dtype() if dtype is None else dtype
    if step == 0 or (end - start) * step < 0:
        raise ArgumentError(
            f"range: cannot go from {start} to {end} in steps of {step}"
        )
    count = int((end - start) / step) + 1
    return (arange(count, **options) * step + start).to(as_dtype(chosen))
