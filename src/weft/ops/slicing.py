"""Parts of a tensor: slices along an axis, and a tensor cut into several.

The primitives are ``slice``, its transpose ``place``, and ``put_slice``.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np

from weft.core.dims import as_int, existing_dim, normalize_dim
from weft.core.dispatch import bind
from weft.core.lowering import Element, Scatter, Varied, View, sliced
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import Size, same, slice_bounds, slice_length
from weft.core.tensor import Tensor
from weft.errors import (
    ArgumentError,
    OutOfRangeError,
    RankError,
    ShapeError,
)
from weft.ops import dividing
from weft.ops.public import public

# -- slice, place and put_slice


def _slice_type(x: TensorType, *, index: tuple[Any, ...]) -> TensorType:
    shape: list[Any] = []
    axis = 0
    for item in index:
        if item is None:
            shape.append(1)
            continue
        if isinstance(item, slice):
            shape.append(slice_length(*slice_bounds(item, x.shape[axis])))
        axis += 1
    return TensorType((*shape, *x.shape[axis:]), x.dtype)


def _place_eval(x: Any, *, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    out = np.zeros(shape, x.dtype)
    out[index] = x
    return out


def _shift_index(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Any:
    shifted = dict(params, index=(slice(None), *params["index"]))
    if "shape" in params:
        shifted["shape"] = (size, *params["shape"])
    return bind(op, tuple(args), shifted)


_SLICES: tuple[tuple[tuple[int, ...], tuple[Any, ...]], ...] = (
    ((3, 4), (slice(1, 3), slice(None, None, 2))),
    ((3, 4), (1,)),
    ((4, 5), (slice(None, None, -1), None, 2)),
    ((0, 2), (slice(None), 1)),
    ((), (None,)),
)


def _strided_reference(x: Any, *, index: Any) -> Any:
    out = x
    axis = 0
    for item in index:
        if item is None:
            out = np.expand_dims(out, axis)
        elif isinstance(item, slice):
            out = np.take(out, list(range(*item.indices(out.shape[axis]))), axis)
        else:
            out = np.take(out, item, axis)
            continue
        axis += 1
    return out


slice_op: Op = define(
    "slice",
    divides=dividing.sliced,
    inputs="x",
    eval=lambda x, *, index: x[(*index, ...)],  # ...: a 0-d view, not a scalar
    type=_slice_type,
    lower=View(sliced, in_order=True),
    vjp={"x": lambda g, x_shape, index: place_op(g, shape=x_shape, index=index)},
    linear=True,
    view=True,
    put=lambda x, y, index: put_slice_op(x, y, index=index),
    batch=_shift_index,
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, shape),), {"index": index})
        for shape, index in _SLICES
    ],
    reference=_strided_reference,
)


def _place_reference(x: Any, *, shape: Any, index: Any) -> Any:
    positions = np.arange(math.prod(shape)).reshape(shape)
    out = np.zeros(math.prod(shape))
    for where, value in zip(
        _strided_reference(positions, index=index).ravel(), x.ravel(), strict=True
    ):
        out[where] = value
    return out.reshape(shape)


def _placed(k: Any, out: Any, x: Any, *, shape: Any, index: tuple[Any, ...]) -> Any:
    """The input's element where the index takes it to, else zero."""
    rest, at, tests = list(out), [], []
    for item in index:
        if item is None:
            at.append(0)
            continue
        size, position = shape[len(out) - len(rest)], rest.pop(0)
        if isinstance(item, slice):
            start, _, step = slice_bounds(item, size)
            count = x.shape[len(at)]
            if not isinstance(step, Size) and step < 0:
                start, step, backwards = start + (count - 1) * step, -step, True
            else:
                backwards = False
            found = (position - start) // step
            at.append(count - 1 - found if backwards else found)
            tests.append((position, start, start + (count - 1) * step + 1, step))
        else:
            start = size + item if isinstance(item, int) and item < 0 else item
            tests.append((position, start, start + 1, 1))
    value = k.number(0)
    if not any(same(n, 0) for n in x.shape):
        value = x[*at, *rest]
    for position, start, stop, step in reversed(tests):
        value = _between(k, value, position, start, stop, step)
    return value


def _forwards(x: Any, *, shape: Any, index: tuple[Any, ...]) -> Any:
    """Symbolic bounds are known for slices that go forwards only."""
    slices = [i for i in index if isinstance(i, slice)]
    numbers = (*shape, *[v for s in slices for v in (s.start, s.stop, s.step)])
    if any(isinstance(n, Size) for n in numbers):
        steps = [s.step for s in slices if s.step is not None]
        if any(isinstance(n, Size) or n < 0 for n in steps):
            return None
    return Element(_placed)


def _between(
    k: Any, value: Any, position: Any, start: Any, stop: Any, step: Any
) -> Any:
    """A value at every ``step``-th index from start to stop, else zero."""
    zero = k.number(0)
    if not same(step, 1):
        hit = k.call("eq", k.at((position - start) % step), k.at(0))
        value = k.call("where", hit, value, zero)
    return k.choice(position, start, zero, k.choice(position, stop, value, zero))


place_op: Op = define(
    "place",
    divides=dividing.placed,
    inputs="x",
    lower=Varied(_forwards),
    eval=_place_eval,
    type=lambda x, *, shape, index: TensorType(shape, x.dtype),
    cost=0,
    vjp={"x": lambda g, index: slice_op(g, index=index)},
    linear=True,
    batch=_shift_index,
    samples=lambda rng: [
        Sample(
            (rng.uniform(-2, 2, np.zeros(shape)[index].shape),),
            {"shape": shape, "index": index},
        )
        for shape, index in _SLICES
    ],
    reference=_place_reference,
)


def _put_slice_eval(x: Any, value: Any, *, index: tuple[Any, ...]) -> Any:
    out = x.copy(order="C")
    out[(*index, ...)] = value
    return out


def _put_slice_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Any:
    both = [
        a if b else a.expand((size, *a.shape))
        for a, b in zip(args, batched, strict=True)
    ]
    return bind(op, tuple(both), {"index": (slice(None), *params["index"])})


def _same_axes(x: Any, value: Any, *, index: tuple[Any, ...]) -> Any:
    """The axes of x, each with the value's, along which no index says anything."""
    pairs, axis, other = [], 0, 0
    for item in index:
        if item == slice(None):
            pairs.append((axis, other))
        axis += item is not None
        other += item is None or isinstance(item, slice)
    rest = range(len(x.shape) - axis)
    return (*pairs, *[(axis + k, other + k) for k in rest])


def _put_slice_reference(x: Any, value: Any, *, index: tuple[Any, ...]) -> Any:
    positions = np.arange(math.prod(x.shape)).reshape(x.shape)
    out = np.array(x).ravel()
    for where, one in zip(
        _strided_reference(positions, index=index).ravel(), value.ravel(), strict=True
    ):
        out[where] = one
    return out.reshape(x.shape)


put_slice_op: Op = define(
    "put_slice",
    inputs="x value",
    eval=_put_slice_eval,
    lower=Scatter(
        start=lambda k, out, x, value, index: x[out],
        domain=lambda x, value, index: value.shape,
        update=lambda k, at, x, value, index: (
            sliced(at, x.shape, index=index),
            value[at],
        ),
        combine=None,
        shared=_same_axes,
    ),
    type=lambda x, value, *, index: x,
    cost=0,
    vjp={
        "x": lambda g, value_shape, index: put_slice_op(
            g, g.new_zeros(value_shape), index=index
        ),
        "value": lambda g, index: slice_op(g, index=index),
    },
    jvp={
        "x": lambda t, value_shape, index: put_slice_op(
            t, t.new_zeros(value_shape), index=index
        ),
        "value": lambda t, x_shape, index: place_op(t, shape=x_shape, index=index),
    },
    batch=_put_slice_batch,
    samples=lambda rng: [
        Sample(
            (
                rng.uniform(-2, 2, shape),
                rng.uniform(-2, 2, np.zeros(shape)[index].shape),
            ),
            {"index": index},
        )
        for shape, index in _SLICES
    ],
    reference=_put_slice_reference,
)


@public(method=True)
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """``length`` elements from ``start`` along a dimension, without copying.

    >>> weft.arange(6).narrow(0, 2, 3)
    tensor([2, 3, 4])
    """
    d = existing_dim("narrow", dim, input.ndim)
    size = input.shape[d]
    first = start + size if start < 0 else start
    if not 0 <= first <= size or length < 0 or first + length > size:
        raise RankError(
            f"narrow: elements {start} to {start + length} are not inside dim {d} "
            f"of size {size}"
        )
    return along(input, d, slice(first, first + length))


def along(x: Tensor, dim: int, item: Any) -> Tensor:
    """Index one dimension with an int or a slice."""
    return bind(slice_op, (x,), {"index": (*(slice(None),) * dim, item)})


@public(method=True)
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One element along a dimension, which is left out.

    >>> weft.arange(6).reshape(2, 3).select(1, 2)
    tensor([2, 5])
    """
    d = normalize_dim("select", dim, input.ndim)
    size = input.shape[d] if input.ndim else 0
    if not -size <= index < size:
        raise OutOfRangeError(
            f"select: index {index} is out of range for dim {d} of size {size}"
        )
    return along(input, d, index % size)


# -- several parts


@public(method=True)
def unbind(input: Tensor, dim: int = 0, *, axis: Any = None) -> tuple[Tensor, ...]:
    """The slices along a dimension.

    >>> weft.tensor([[1, 2], [3, 4]]).unbind()[1]
    tensor([3, 4])
    """
    if axis is not None:
        dim = axis
    if input.ndim == 0:
        raise ShapeError("unbind: expected at least one dimension, got a 0-d tensor")
    d = normalize_dim("unbind", dim, input.ndim)
    return tuple([along(input, d, i) for i in range(input.shape[d])])


@public(method=True)
def split(
    tensor: Tensor,
    split_size_or_sections: Any = None,
    dim: int = 0,
    *,
    split_size: Any = None,
) -> tuple[Tensor, ...]:
    """Pieces of a given size (the last may be smaller), or of listed sizes.

    >>> [piece.shape for piece in weft.arange(5).split(2)]
    [(2,), (2,), (1,)]
    """
    input = _with_axis("split", tensor)
    if split_size is None:
        split_size = split_size_or_sections
    d = normalize_dim("split", dim, input.ndim)
    size = input.shape[d]
    if not isinstance(split_size, (list, tuple)):
        split_size = as_int("split", split_size, "a size or a list of sizes")
        if split_size < 0 or (split_size == 0 and size):
            raise ArgumentError(f"split: expected a positive size, got {split_size}")
        sizes = [min(split_size, size - k) for k in range(0, size, max(split_size, 1))]
        sizes = sizes or [0]
    else:
        sizes = list(split_size)
        if sum(sizes) != size or any(n < 0 for n in sizes):
            raise ShapeError(
                f"split: sizes {sizes} add up to {sum(sizes)}, "
                f"but dim {d} has size {size}"
            )
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return tuple(
        along(input, d, slice(a, a + n)) for a, n in zip(starts, sizes, strict=True)
    )


@public(method=True)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` pieces of equal size (the last may be smaller).

    >>> [piece.shape for piece in weft.arange(5).chunk(2)]
    [(3,), (2,)]
    """
    if chunks <= 0:
        raise ArgumentError(f"chunk: expected a positive number, got {chunks}")
    d = normalize_dim("chunk", dim, _with_axis("chunk", input).ndim)
    if input.shape[d] == 0:
        return (along(input, d, slice(0, 0)),) * chunks
    return split(input, max(operator.index(-(-input.shape[d] // chunks)), 1), d)


@public(method=True)
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> Any:
    """Pieces cut at indices, or a number of nearly equal ones.

    >>> [piece.shape for piece in weft.arange(5).tensor_split(2)]
    [(3,), (2,)]
    """
    d = normalize_dim("tensor_split", dim, _with_axis("tensor_split", input).ndim)
    size = input.shape[d]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise ArgumentError(f"tensor_split: expected a positive number, got {n}")
        cuts = [k * (size // n) + min(k, size % n) for k in range(n + 1)]
    else:
        wanted = [i + size if i < 0 else i for i in indices_or_sections]
        cuts = [0, *(min(max(i, 0), size) for i in wanted), size]
    pairs = itertools.pairwise(cuts)
    return tuple(along(input, d, slice(a, max(a, b))) for a, b in pairs)


def _split_along(name: str, x: Tensor, cuts: Any, dim: int) -> tuple[Tensor, ...]:
    if x.ndim <= dim and not (name == "hsplit" and x.ndim == 1):
        raise ShapeError(
            f"{name}: expected at least {dim + 1} dimensions, got shape {x.shape}"
        )
    d = min(dim, x.ndim - 1)
    if isinstance(cuts, int) and (cuts <= 0 or x.shape[d] % cuts):
        raise ShapeError(
            f"{name}: cannot cut dim {d} of size {x.shape[d]} into {cuts} equal pieces"
        )
    return tensor_split(x, cuts, d)


@public(method=True)
def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Pieces along the second dimension (the first of a vector).

    >>> [piece.shape for piece in weft.hsplit(weft.zeros(3, 4), 2)]
    [(3, 2), (3, 2)]
    """
    return _split_along("hsplit", input, indices_or_sections, 1)


@public(method=True)
def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Pieces along the first dimension.

    >>> [piece.shape for piece in weft.vsplit(weft.zeros(3, 4), [1])]
    [(1, 4), (2, 4)]
    """
    if input.ndim < 2:
        raise ShapeError(f"vsplit: expected at least 2 dimensions, got {input.shape}")
    return _split_along("vsplit", input, indices_or_sections, 0)


@public(method=True)
def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Pieces along the third dimension.

    >>> [piece.shape for piece in weft.dsplit(weft.zeros(1, 1, 4), 2)]
    [(1, 1, 2), (1, 1, 2)]
    """
    return _split_along("dsplit", input, indices_or_sections, 2)


def _with_axis(name: str, x: Tensor) -> Tensor:
    if x.ndim == 0:
        raise ShapeError(f"{name}: expected at least one dimension, got a 0-d tensor")
    return x
