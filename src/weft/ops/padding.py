"""Tensors flipped, rolled, repeated and padded; the primitive is ``flip``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import existing_dim, normalize_dims
from weft.core.dispatch import bind
from weft.core.lowering import View, flipped
from weft.core.op import Op, Sample, define
from weft.core.size import larger
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ChoiceError, ShapeError
from weft.ops import dividing
from weft.ops.broadcasting import expand
from weft.ops.copies import contiguous
from weft.ops.creation import arange, ones
from weft.ops.index import index_select
from weft.ops.joining import cat
from weft.ops.operands import flat_sizes
from weft.ops.public import public
from weft.ops.require import require_stored
from weft.ops.select import clamp, where
from weft.ops.shaping import ravel, reshape, transpose
from weft.ops.slicing import along, place_op, slice_op

# -- flip


flip_op: Op = define(
    "flip",
    divides=dividing.flipped,
    inputs="x",
    eval=lambda x, *, dims: np.flip(x, dims).copy(),  # its memory is its own
    type=lambda x, *, dims: x,
    cost=0,
    lower=View(flipped),
    vjp={"x": lambda g, dims: flip_op(g, dims=dims)},
    linear=True,
    batch=lambda op, size, args, batched, params: flip_op(
        args[0], dims=tuple(d + 1 for d in params["dims"])
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, s),), {"dims": d})
        for s, d in (((3, 4), (0,)), ((3, 4), (0, 1)), ((0, 2), (1,)), ((), ()))
    ],
    reference=lambda x, *, dims: x[
        tuple(
            slice(None, None, -1) if i in dims else slice(None) for i in range(x.ndim)
        )
    ],
)


@public(method=True)
def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """The elements in reverse order along dimensions (a copy).

    >>> weft.arange(3).flip(0)
    tensor([2, 1, 0])
    """
    chosen = normalize_dims("flip", flat_sizes("flip", axes, dims), input.ndim)
    return contiguous(flip_op(input, dims=chosen))


@public(method=True)
def fliplr(input: Tensor) -> Tensor:
    """Columns in reverse order.

    >>> weft.tensor([[1, 2]]).fliplr()
    tensor([[2, 1]])
    """
    if input.ndim < 2:
        raise ShapeError(f"fliplr: expected at least 2 dimensions, got {input.shape}")
    return flip(input, 1)


@public(method=True)
def flipud(input: Tensor) -> Tensor:
    """Rows in reverse order.

    >>> weft.tensor([1, 2]).flipud()
    tensor([2, 1])
    """
    return flip(input, existing_dim("flipud", 0, input.ndim))


# -- rolling, repeating, padding


@public(method=True)
def repeat(input: Tensor, *sizes: Any) -> Tensor:
    """The whole tensor repeated along each dimension (a copy).

    >>> weft.tensor([1, 2]).repeat(2)
    tensor([1, 2, 1, 2])
    """
    counts = flat_sizes("repeat", sizes)
    if len(counts) < input.ndim or any(n < 0 for n in counts):
        raise ShapeError(
            f"repeat: expected at least {input.ndim} counts of at least 0 for shape "
            f"{input.shape}, got {counts}"
        )
    have = (1,) * (len(counts) - input.ndim) + input.shape
    inner = [m for n in have for m in (1, n)]
    wide = [m for c, n in zip(counts, have, strict=True) for m in (c, n)]
    total = tuple(c * n for c, n in zip(counts, have, strict=True))
    return reshape(expand(reshape(input, inner), wide), total).clone()


@public(method=True)
def tile(input: Tensor, *counts: Any, dims: Any = None) -> Tensor:
    """The whole tensor repeated, missing counts taken as 1.

    >>> weft.tensor([[1, 2]]).tile(2)
    tensor([[1, 2, 1, 2]])
    """
    times = flat_sizes("tile", counts, dims)
    return repeat(input, (1,) * (input.ndim - len(times)) + times)


@public(method=True)
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """The elements shifted along dimensions; those pushed out come in at the other end.

    >>> weft.arange(4).roll(1)
    tensor([3, 0, 1, 2])
    """
    if dims is None:
        return reshape(roll(ravel(input), shifts, 0), input.shape)
    steps = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    axes = dims if isinstance(dims, (tuple, list)) else (dims,)
    if len(steps) != len(axes):
        raise ArgumentError(f"roll: {len(steps)} shifts but {len(axes)} dims")
    out = input
    for step, dim in zip(steps, axes, strict=True):
        d = existing_dim("roll", dim, input.ndim)
        size = max(out.shape[d], 1)
        cut = -step % size
        out = cat([along(out, d, slice(cut, None)), along(out, d, slice(0, cut))], d)
    return out


@public(method=True)
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The tensor rotated by k quarter turns in the plane of two dimensions.

    >>> weft.tensor([[1, 2], [3, 4]]).rot90()
    tensor([[2, 4],
            [1, 3]])
    """
    a, b = normalize_dims("rot90", tuple(dims), input.ndim)
    turns = k % 4
    if turns == 0:
        return input.clone()
    if turns == 2:
        return flip(input, a, b)
    transposed = transpose(input, a, b)
    return flip(transposed, a if turns == 1 else b)


@public()
def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0
) -> Tensor:
    """Elements added at the ends of dimensions, the last dimension first.

    ``mode`` is ``constant``, ``reflect``, ``replicate`` or ``circular``; negative
    amounts cut off.

    >>> weft.pad(weft.tensor([1, 2]), (1, 2))
    tensor([0, 1, 2, 0, 0])
    """
    amounts = list(pad)
    if len(amounts) % 2 or len(amounts) > 2 * input.ndim:
        raise ArgumentError(
            f"pad: expected an even number of at most {2 * input.ndim} amounts for "
            f"shape {input.shape}, got {len(amounts)}"
        )
    if mode == "constant":
        return _pad_constant(input, amounts, value)
    out = input
    for k in range(len(amounts) // 2):
        out = _pad_axis(out, input.ndim - 1 - k, amounts[2 * k : 2 * k + 2], mode)
    return out


def _pad_constant(x: Tensor, amounts: list[int], value: float) -> Tensor:
    shape, inside, cut = list(x.shape), [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for k in range(len(amounts) // 2):
        axis, (low, high) = x.ndim - 1 - k, amounts[2 * k : 2 * k + 2]
        size = shape[axis]
        if size + low + high < 0:
            raise ShapeError(f"pad: {(low, high)} would cut more than axis {axis} has")
        cut[axis] = slice(max(-low, 0), size - max(-high, 0))
        kept = size - max(-low, 0) - max(-high, 0)
        inside[axis] = slice(max(low, 0), max(low, 0) + kept)
        shape[axis] = size + low + high
    core = bind(slice_op, (x,), {"index": tuple(cut)})
    params = {"shape": tuple(shape), "index": tuple(inside)}
    out = bind(place_op, (core,), params)
    if value == 0:
        return out
    value = require_stored("pad", value, x.dtype)

    inner = ones(core.shape, dtype=dtypes.bool_, device=x.device)
    mask = bind(place_op, (inner,), params)
    return where(mask, out, value).to(x.dtype)


def _pad_axis(x: Tensor, axis: int, amounts: list[int], mode: str) -> Tensor:
    low, high = amounts
    size = x.shape[axis]
    if mode == "circular" and min(low, high) < 0:  # what is cut off does not return
        cut = [slice(None)] * x.ndim
        cut[axis] = slice(max(-low, 0), size - max(-high, 0))
        x = bind(slice_op, (x,), {"index": tuple(cut)})
        low, high, size = max(low, 0), max(high, 0), x.shape[axis]
    positions = arange(-low, size + high, device=x.device)
    if mode == "replicate":
        positions = clamp(positions, 0, size - 1)
    elif mode == "circular":
        positions = positions % size
    elif mode == "reflect":
        if max(low, high) >= size:
            raise ShapeError(
                f"pad: reflect needs amounts below the size {size} of axis {axis}, "
                f"got {(low, high)}"
            )
        last = size - 1
        positions = ((positions + last) % larger(2 * last, 1) - last).abs()
    else:
        raise ChoiceError(
            "pad: mode must be 'constant', 'reflect', 'replicate' or 'circular', "
            f"got {mode!r}"
        )
    return index_select(x, axis, positions)
