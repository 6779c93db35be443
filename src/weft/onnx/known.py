"""Arrays that are known before a program runs: sizes, and what is made of them.

ONNX computes the shapes of its ``Reshape`` with operators like any others: ``Shape``,
``Gather``, ``Mul``, ``Concat``. Their values are NumPy arrays here, not tensors, so
that a program that is captured knows them. A size that is open there stands in such an
array as an object.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.onnx.registry import Operator, operator

KNOWN: dict[tuple[str, str], Operator] = {}
LARGEST = 4096  # elements; larger ones are tensors


def known(names: str) -> Callable[[Any], Any]:
    """Enter a function of arrays into the table of those that are known."""
    from weft.onnx.registry import TABLE

    def enter(run: Any) -> Any:
        for name in names.split():
            before = TABLE.get(("", name))
            operator(name)(run)
            KNOWN["", name] = TABLE.pop(("", name))
            if before is not None:
                TABLE["", name] = before
        return run

    return enter


def small(values: list[Any]) -> bool:
    """Whether all values are arrays that are known, and small."""
    return all(
        v is None or (type(v) is np.ndarray and v.size <= LARGEST) for v in values
    )


def _ints(value: Any) -> list[Any]:
    return value.ravel().tolist()


def _like(x: Any, value: Any) -> np.ndarray:
    made = np.asarray(value)
    return made if made.dtype == object else made.astype(x.dtype, copy=False)


def _both(function: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        if function in (_divided, np.mod) and not np.all(y):
            return NotImplemented
        open_ = object in (x.dtype, y.dtype)
        return np.asarray(function(x, y)) if open_ else _like(x, function(x, y))

    return run


def _divided(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return x / y
    if object in (x.dtype, y.dtype):
        return x // y
    return np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))  # towards zero


for _name, _function in {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _divided,
    "Mod": np.mod,
}.items():  # fmt: skip
    known(_name)(_both(_function))


@known("Equal")
def _equal(x: Any, y: Any) -> Any:
    return np.asarray(x == y, dtype=bool)


@known("Identity")
def _identity(x: Any) -> Any:
    return x


@known("Neg")
def _neg(x: Any) -> Any:
    return -x


@known("Transpose")
def _transpose(x: Any, *, perm: Any = None) -> Any:
    return x.transpose(perm)


@known("Expand")
def _expand(x: Any, shape: Any) -> Any:
    sizes = _ints(shape)
    if any(type(n) is not int for n in sizes):
        return NotImplemented
    wanted = np.broadcast_shapes(x.shape, tuple(sizes))
    too_many = math.prod(wanted) > LARGEST
    return NotImplemented if too_many else np.broadcast_to(x, wanted).copy()


@known("NonZero")
def _non_zero(x: Any) -> Any:
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


@known("Not")
def _not(x: Any) -> Any:
    return ~x


@known("And")
def _and(x: Any, y: Any) -> Any:
    return x & y


@known("Or")
def _or(x: Any, y: Any) -> Any:
    return x | y


@known("Less")
def _less(x: Any, y: Any) -> Any:
    return np.asarray(x < y, dtype=bool)


@known("Greater")
def _greater(x: Any, y: Any) -> Any:
    return np.asarray(x > y, dtype=bool)


@known("GreaterOrEqual")
def _greater_or_equal(x: Any, y: Any) -> Any:
    return np.asarray(x >= y, dtype=bool)


@known("LessOrEqual")
def _less_or_equal(x: Any, y: Any) -> Any:
    return np.asarray(x <= y, dtype=bool)


@known("Cast")
def _cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    kinds = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}
    if to not in kinds or x.dtype.kind not in "iufbO":
        return NotImplemented
    if x.dtype == object:
        return x if to in (6, 7) else NotImplemented
    return x.astype(kinds[to])


@known("Gather")
def _gather(x: Any, index: Any, *, axis: int = 0) -> Any:
    if index.dtype == object:
        return NotImplemented
    return np.asarray(np.take(x, index, axis=axis), dtype=x.dtype)


@known("Concat")
def _concat(*xs: Any, axis: int) -> Any:
    return np.concatenate(xs, axis=axis)


@known("Reshape")
def _reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    sizes = _ints(shape)
    return x.reshape(sizes) if 0 not in sizes else NotImplemented


@known("Unsqueeze")
def _unsqueeze(x: Any, axes_: Any = None, *, axes: Any = None) -> Any:
    places = _ints(axes_) if axes_ is not None else axes
    return np.expand_dims(x, tuple(places))


@known("Squeeze")
def _squeeze(x: Any, axes_: Any = None, *, axes: Any = None) -> Any:
    places = _ints(axes_) if axes_ is not None else axes
    return np.squeeze(x, None if places is None else tuple(places))


@known("Slice")
def _slice(
    x: Any, starts_: Any = None, ends_: Any = None, axes_: Any = None,
    steps_: Any = None, *, starts: Any = (), ends: Any = (), axes: Any = None,
) -> Any:  # fmt: skip
    if starts_ is not None:
        starts, ends = _ints(starts_), _ints(ends_)
        axes = None if axes_ is None else _ints(axes_)
    steps = [1] * len(starts) if steps_ is None else _ints(steps_)
    where: list[Any] = [slice(None)] * x.ndim
    places = range(len(starts)) if axes is None else axes
    for axis, start, end, step in zip(places, starts, ends, steps, strict=True):
        if any(type(n) is not int for n in (start, end, step)):
            return NotImplemented
        where[axis] = slice(start, None if step < 0 and end < -x.shape[axis] else end,
                            step)  # fmt: skip
    return x[tuple(where)]


@known("ReduceProd")
def _product(x: Any, axes_: Any = None, *, axes: Any = None, keepdims: int = 1,
             noop_with_empty_axes: int = 0) -> Any:  # fmt: skip
    if x.ndim != 1:
        return NotImplemented
    value = math.prod(x.tolist())
    return np.array([value] if keepdims else value, dtype=x.dtype)


@known("Where")
def _where(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


@known("ConstantOfShape")
def _constant_of_shape(shape: Any, *, value: Any = None) -> Any:
    sizes = _ints(shape)
    fixed = all(type(n) is int and 0 <= n <= LARGEST for n in sizes)
    if not fixed or math.prod(sizes) > LARGEST or len(sizes) > 1:
        return NotImplemented
    fill = np.zeros(1, np.float32) if value is None else value
    return np.full(sizes, fill.reshape(-1)[0], fill.dtype)


@known("Range")
def _range(start: Any, limit: Any, delta: Any) -> Any:
    values = [*_ints(start), *_ints(limit), *_ints(delta)]
    if any(type(n) is not int for n in values) or not values[2]:
        return NotImplemented
    count = -(-(values[1] - values[0]) // values[2])
    if count > LARGEST:
        return NotImplemented
    return np.arange(*values, dtype=start.dtype)


@known("Min")
def _min(*xs: Any) -> Any:
    return _folded(min, xs)


@known("Max")
def _max(*xs: Any) -> Any:
    return _folded(max, xs)


def _folded(function: Any, xs: Any) -> Any:
    if any(x.size != 1 or x.dtype.kind not in "iO" for x in xs):
        return NotImplemented
    value = function(*(n for x in xs for n in _ints(x)))
    return np.full(np.broadcast_shapes(*(x.shape for x in xs)), value, xs[0].dtype)
