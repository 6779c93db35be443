"""Reductions over axes, and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.shaping import axes_of
from weft.onnx.registry import operator
from weft.onnx.types import number


def _places(x: Tensor, given: Any, axes: Any, noop: int) -> list[int] | None:
    """The axes to reduce; None for nothing at all."""
    found = axes_of(given, axes)
    if not found:
        return None if noop else list(range(x.ndim))
    return sorted(a % x.ndim for a in found)


def _reduction(names: str, prepare: Any = None, finish: Any = None) -> Any:
    """An operator of a function ``f(x, axes, keepdim)``."""

    def enter(function: Callable[..., Tensor]) -> Any:
        def run(
            x: Tensor, given: Any = None, *, axes: Any = None, keepdims: int = 1,
            noop_with_empty_axes: int = 0,
        ) -> Tensor:  # fmt: skip
            places = _places(x, given, axes, noop_with_empty_axes)
            value = x if prepare is None else prepare(x)
            if places is None:
                out = value
            elif not places:
                out = function(value.reshape(1), [0], False)
            else:
                out = function(value, places, bool(keepdims))
            return (out if finish is None else finish(out)).to(x.dtype)

        operator(names, static=(1,))(run)
        return function

    return enter


@_reduction("ReduceSum")
def _sum(x: Tensor, axes: Any, keepdim: bool) -> Tensor:
    return x.sum(axes, keepdim=keepdim)


_reduction("ReduceSumSquare", lambda x: x * x)(_sum)
_reduction("ReduceL1", weft.abs)(_sum)
_reduction("ReduceL2", lambda x: x * x, lambda y: _root(y))(_sum)
_reduction("ReduceLogSum", None, weft.log)(_sum)


def _root(x: Tensor) -> Tensor:
    return weft.sqrt(x if x.dtype.is_floating_point else x.double())


@_reduction("ReduceMean")
def _mean(x: Tensor, axes: Any, keepdim: bool) -> Tensor:
    count = math.prod(x.shape[a] for a in axes)
    total = x.sum(axes, keepdim=keepdim)
    if x.dtype.is_floating_point:
        return total / count
    return weft.div(total, count, rounding_mode="trunc")


@_reduction("ReduceProd")
def _prod(x: Tensor, axes: Any, keepdim: bool) -> Tensor:
    for axis in reversed(axes):
        x = x.prod(axis, keepdim=keepdim)
    return x


def _extreme(function: Any, largest: bool) -> Any:
    def run(x: Tensor, axes: Any, keepdim: bool) -> Tensor:
        empty = any(type(x.shape[a]) is int and x.shape[a] == 0 for a in axes)
        if empty:
            sizes = [1 if k in axes else n for k, n in enumerate(x.shape)]
            fill = _least(x.dtype, largest)
            out = weft.full(sizes, fill, dtype=x.dtype)
            return out if keepdim else out.squeeze(tuple(axes))
        if x.dtype is weft.bool:
            return function(x.to(weft.uint8), axes, keepdim=keepdim).bool()
        return function(x, axes, keepdim=keepdim)

    return run


def _least(dtype: Any, largest: bool) -> Any:
    if dtype is weft.bool:
        return not largest
    if dtype.is_floating_point:
        return -math.inf if largest else math.inf
    limits = weft.iinfo(dtype)
    return limits.min if largest else limits.max


_reduction("ReduceMax")(_extreme(weft.amax, True))
_reduction("ReduceMin")(_extreme(weft.amin, False))


@_reduction("ReduceLogSumExp")
def _log_sum_exp(x: Tensor, axes: Any, keepdim: bool) -> Tensor:
    if any(type(x.shape[a]) is int and x.shape[a] == 0 for a in axes):
        return weft.log(_sum(weft.exp(x), axes, keepdim))
    wide = x if x.dtype.is_floating_point else x.double()
    return weft.logsumexp(wide, axes, keepdim=keepdim)


def _running(function: Any) -> Any:
    def run(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        place = int(number(axis)) % x.ndim
        x = x.flip(place) if reverse else x
        out = function(x, place).to(x.dtype)
        if exclusive:
            start = function(x.narrow(place, 0, 1), place).to(x.dtype)
            first = start * 0 if function is weft.cumsum else weft.ones_like(start)
            out = weft.cat([first, out.narrow(place, 0, x.shape[place] - 1)], place)
        return out.flip(place) if reverse else out

    return run


operator("CumSum", static=(1,))(_running(weft.cumsum))
operator("CumProd", static=(1,))(_running(weft.cumprod))
