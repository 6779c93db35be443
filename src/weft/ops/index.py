"""Indexing: by integers, slices, masks and index tensors; gather and scatter.

The primitives are ``take`` (rows by index) and its transpose ``add_at``, ``put``
(rows replaced), ``gather``, ``scatter`` and ``scatter_add``. ``x[...]`` applies
ints, slices and None first, as a view, then the index tensors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import normalize_dim
from weft.core.dispatch import bind
from weft.core.elementwise import broadcast_shapes, result_type
from weft.core.inplace import assign
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import (
    ArgumentError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
)
from weft.ops.elementwise import scalar, where
from weft.ops.movement import (
    cast,
    expand,
    movedim,
    reshape,
    slice_op,
)

# -- checks


class IndexTypeError(DTypeError, IndexError):
    """A value of a type that is no index."""


def check_range(
    name: str, index: Any, size: int, axis: int, *, wrap: bool = True
) -> None:
    """Raise IndexError for the first index outside its axis.

    Negative indices count from the end where they ``wrap``.
    """
    bad = (index < (-size if wrap else 0)) | (index >= size)
    if not bad.any():
        return
    place = tuple(int(k) for k in np.argwhere(bad)[0])
    value = int(np.asarray(index)[place])
    where = f" at position {place}" if place else ""
    raise OutOfRangeError(
        f"{name}: index {value}{where} is out of range for axis {axis} of size {size}"
    )


def as_index(name: str, value: Any) -> Tensor:
    """An integer index tensor; floating ones (with or without NaN) are refused."""
    if isinstance(value, Tensor):
        out = value
    else:
        from weft.ops.creation import tensor

        out = tensor(value)
        if out.numel() == 0:
            out = cast(out.detach(), dtypes.int64)
    if out.dtype.category != dtypes.INT:
        raise IndexTypeError(
            f"{name}: expected integer indices, got {out.dtype.name}. "
            "Convert them with .long()"
        )
    return out


# -- take, add_at, put


def _take_eval(x: Any, index: Any) -> Any:
    check_range("take", index, x.shape[0], 0)
    return x[index]


def _take_type(x: TensorType, index: TensorType) -> TensorType:
    return TensorType((*index.shape, *x.shape[1:]), x.dtype)


def _take_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    x, index = args
    if not batched[1]:  # the batch axis goes behind the rows and comes back
        return movedim(take_op(movedim(x, 0, 1), index), index.ndim, 0)
    if not batched[0]:
        return take_op(x, index)
    rows, flat = _flat_rows(x, index, size)
    return take_op(rows, flat)


def _flat_rows(x: Tensor, index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Rows of all examples in one axis, and indices into it."""
    n = x.shape[1]
    start = Tensor(np.arange(size).reshape(-1, *(1,) * (index.ndim - 1))) * n
    wrapped = where(index < 0, index + n, index) + start
    return reshape(x, (size * n, *x.shape[2:])), wrapped


def _index_samples(rng: np.random.Generator) -> Any:
    for shape, ids in (((4, 3), (2, 2)), ((5,), (3,)), ((4, 2), ()), ((3, 0), (2,))):
        yield Sample(
            (rng.uniform(-2, 2, shape), rng.integers(-shape[0], shape[0], ids))
        )


take_op: Op = define(
    "take",
    inputs="x index",
    eval=_take_eval,
    type=_take_type,
    vjp={"x": lambda g, x_shape, index: add_at(g, index, size=x_shape[0])},
    jvp={"x": lambda t, index: take_op(t, index)},
    batch=_take_batch,
    samples=_index_samples,
    reference=lambda x, index: np.stack(
        [x[int(i)] for i in np.ravel(index)] or [np.zeros(x.shape[1:])]
    ).reshape(*np.shape(index), *x.shape[1:]),
)


def _add_at_eval(x: Any, index: Any, *, size: int) -> Any:
    check_range("add_at", index, size, 0)
    out = np.zeros((size, *x.shape[np.ndim(index) :]), x.dtype)
    np.add.at(out, index, x)
    return out


def _add_at_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    x, index = args
    n = params["size"]
    if not batched[1]:
        moved = movedim(x, 0, index.ndim)
        return movedim(add_at(moved, index, size=n), 1, 0)
    if not batched[0]:
        x = expand(x, (size, *x.shape))
    start = Tensor(np.arange(size).reshape(-1, *(1,) * (index.ndim - 1))) * n
    flat = where(index < 0, index + n, index) + start
    out = add_at(x, flat, size=size * n)
    return reshape(out, (size, n, *out.shape[1:]))


def _add_at_samples(rng: np.random.Generator) -> Any:
    for ids, rest, n in (
        ((2, 2), (3,), 4),
        ((3,), (), 5),
        ((), (2,), 3),
        ((0,), (2,), 3),
    ):
        yield Sample(
            (rng.uniform(-2, 2, (*ids, *rest)), rng.integers(-n, n, ids)), {"size": n}
        )


def _add_at_reference(x: Any, index: Any, *, size: int) -> Any:
    hot = (np.ravel(index)[:, None] % size) == np.arange(size)
    rows = x.reshape(hot.shape[0], -1) if x.size else x.reshape(hot.shape[0], 2)
    rest = x.shape[np.ndim(index) :]
    return (hot.T.astype(float) @ rows).reshape(size, *rest)


add_at: Op = define(
    "add_at",
    inputs="x index",
    eval=_add_at_eval,
    type=lambda x, index, *, size: TensorType(
        (size, *x.shape[len(index.shape) :]), x.dtype
    ),
    vjp={"x": lambda g, index: take_op(g, index)},
    jvp={"x": lambda t, index, size: add_at(t, index, size=size)},
    batch=_add_at_batch,
    samples=_add_at_samples,
    reference=_add_at_reference,
)


def _put_eval(x: Any, index: Any, value: Any) -> Any:
    check_range("put", index, x.shape[0], 0)
    out = x.copy()
    out[index] = value
    return out


def _put_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    x, index, value = (
        a if b else expand(a, (size, *a.shape))
        for a, b in zip(args, batched, strict=True)
    )
    rows, flat = _flat_rows(x, index, size)
    return reshape(put_op(rows, flat, value), x.shape)


def _put_samples(rng: np.random.Generator) -> Any:
    for shape, ids in (((4, 3), (2, 2)), ((5,), (3,)), ((4, 2), ()), ((3, 0), (2,))):
        index = rng.permutation(shape[0])[: math.prod(ids)].reshape(ids)
        value = rng.uniform(-2, 2, (*ids, *shape[1:]))
        yield Sample((rng.uniform(-2, 2, shape), index, value))


def _put_reference(x: Any, index: Any, value: Any) -> Any:
    rows = list(x)
    flat = value.reshape(-1, *x.shape[1:]) if value.size else []
    for i, row in zip(np.ravel(index), flat, strict=False):
        rows[int(i)] = row
    return np.array(rows).reshape(x.shape)


put_op: Op = define(
    "put",
    inputs="x index value",
    eval=_put_eval,
    type=lambda x, index, value: x,
    vjp={
        "x": lambda g, index, value_shape: put_op(g, index, _zeros(value_shape, g)),
        "value": lambda g, index: take_op(g, index),
    },
    jvp={
        "x": lambda t, index, value_shape: put_op(t, index, _zeros(value_shape, t)),
        "value": lambda t, x, index: put_op(_zeros(x.shape, t), index, t),
    },
    batch=_put_batch,
    samples=_put_samples,
    reference=_put_reference,
)


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    from weft.ops.creation import zeros

    return zeros(shape, dtype=like.dtype)


# -- x[...]


def normalize_index(
    x: Tensor, index: Any, name: str = "getitem"
) -> tuple[list[Any], list[tuple[int, Tensor]]]:
    """A basic index, and the index tensors with the axes they apply to after it."""
    items = list(index) if isinstance(index, tuple) else [index]
    items = [_item(name, i) for i in items]
    _expand_ellipsis(name, x, items)
    basic: list[Any] = []
    advanced: list[tuple[int, Tensor]] = []
    axis = place = 0  # axis of x, and of the basically indexed result
    for item in items:
        if item is None or item is True:
            basic.append(None)
            place += 1
        elif item is False:  # a new axis of which nothing is taken
            basic.append(None)
            advanced.append((place, Tensor(np.zeros(0, np.int64))))
            place += 1
        elif isinstance(item, slice):
            basic.append(_slice(name, item, x.shape[axis]))
            axis, place = axis + 1, place + 1
        elif isinstance(item, Tensor) and item.dtype is dtypes.bool_:
            for ids in _mask_indices(name, x, item, axis):
                basic.append(slice(None))
                advanced.append((place, ids))
                axis, place = axis + 1, place + 1
        elif isinstance(item, Tensor):
            basic.append(slice(None))
            if type(item) is Tensor:
                check_range(name, item._data, x.shape[axis], axis)
            advanced.append((place, as_index(name, item)))
            axis, place = axis + 1, place + 1
        else:
            basic.append(_int(name, item, x.shape, axis))
            axis += 1
    return basic, advanced


def _item(name: str, item: Any) -> Any:
    """One index as None, Ellipsis, an int, a slice or a tensor."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        return bool(item)
    if isinstance(item, Tensor):
        plain = type(item) is Tensor and item.ndim == 0
        if plain and item.dtype.category == dtypes.INT:
            return int(item._data)
        if plain and item.dtype is dtypes.bool_:
            return bool(item._data)
        if item.dtype.category > dtypes.INT:
            as_index(name, item)
        if item.dtype is dtypes.uint8 and item.ndim:
            raise IndexTypeError(
                f"{name}: a uint8 tensor could be a mask or indices; say which with "
                ".bool() or .long()"
            )
        return item
    if isinstance(item, (list, tuple, np.ndarray, range)):
        from weft.ops.creation import tensor

        found = tensor(list(item) if isinstance(item, range) else item)
        if found.numel() == 0 and not isinstance(item, np.ndarray):
            return cast(found, dtypes.int64)
        if found.dtype.category > dtypes.INT:
            as_index(name, found)
        return found
    try:
        return item.__index__()
    except AttributeError:
        raise IndexTypeError(
            f"{name}: expected ints, slices, None, ..., masks or integer tensors, got "
            f"{type(item).__name__}"
        ) from None


def _expand_ellipsis(name: str, x: Tensor, items: list[Any]) -> None:
    dots = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise OutOfRangeError(f"{name}: expected at most one ...")
    used = 0
    for item in items:
        if isinstance(item, Tensor) and item.dtype is dtypes.bool_:
            used += item.ndim
        elif item is not None and item is not Ellipsis and not isinstance(item, bool):
            used += 1
    if used > x.ndim:
        raise OutOfRangeError(
            f"{name}: {used} indices for a {x.ndim}-d tensor of shape {x.shape}"
        )
    if dots:
        items[dots[0] : dots[0] + 1] = [slice(None)] * (x.ndim - used)


def _slice(name: str, item: slice, size: int) -> slice:
    parts = []
    for part in (item.start, item.stop, item.step):
        if isinstance(part, Tensor):
            part = int(part.item())
        elif part is not None:
            try:
                part = part.__index__()
            except AttributeError:
                raise IndexTypeError(
                    f"{name}: expected int slice bounds, got {type(part).__name__}"
                ) from None
        parts.append(part)
    if parts[2] is not None and parts[2] <= 0:
        raise ArgumentError(
            f"{name}: slice steps must be positive, got {parts[2]}; use flip"
        )
    return slice(*slice(*parts).indices(size))


def _int(name: str, item: int, shape: tuple[int, ...], axis: int) -> int:
    size = shape[axis]
    if not -size <= item < size:
        raise OutOfRangeError(
            f"{name}: index {item} is out of range for axis {axis} of size {size}"
        )
    return item % size


def _mask_indices(name: str, x: Tensor, mask: Tensor, axis: int) -> list[Tensor]:
    if x.shape[axis : axis + mask.ndim] != mask.shape:
        raise OutOfRangeError(
            f"{name}: a mask of shape {mask.shape} does not match axes {axis} to "
            f"{axis + mask.ndim - 1} of shape {x.shape}"
        )
    return list(nonzero(mask, as_tuple=True))


def getitem(input: Tensor, index: Any) -> Tensor:
    """``input[index]``: a view for ints, slices, None and ...; else a copy.

    >>> x = weft.arange(6).reshape(2, 3)
    >>> x[:, [0, 2]]
    tensor([[0, 2],
            [3, 5]], shape=(2, 2), dtype=int64)
    """
    if type(index) is int and input.ndim:
        return bind(
            slice_op, (input,), {"index": (_int("getitem", index, input.shape, 0),)}
        )
    basic, advanced = normalize_index(input, index)
    out = _basic(input, basic)
    if not advanced:
        return out if out is not input else bind(slice_op, (input,), {"index": ()})
    axes = [axis for axis, _ in advanced]
    rows, flat = _rows(out, advanced)
    picked = take_op(rows, flat)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    return _move_block(picked, flat.ndim, first)


def _basic(x: Tensor, basic: list[Any]) -> Tensor:
    index = [
        slice(None) if isinstance(i, slice) and _whole(i, n) else i
        for i, n in _with_sizes(basic, x.shape)
    ]
    while index and index[-1] == slice(None):
        index.pop()
    return bind(slice_op, (x,), {"index": tuple(index)}) if index else x


def _with_sizes(basic: list[Any], shape: tuple[int, ...]) -> Any:
    axis = 0
    for item in basic:
        yield item, (None if item is None else shape[axis])
        axis += item is not None


def _whole(item: slice, size: int) -> bool:
    return (item.start, item.stop, item.step) in ((0, size, 1), (None, None, None))


def _rows(x: Tensor, advanced: list[tuple[int, Tensor]]) -> tuple[Tensor, Tensor]:
    """The indexed axes of x made one leading axis, and one index into it."""
    axes = [axis for axis, _ in advanced]
    ids = [index for _, index in advanced]
    shape = broadcast_shapes("getitem", *(i.shape for i in ids))
    if len(axes) == 1:
        rows = x if axes == [0] else movedim(x, axes[0], 0)
        return rows, ids[0]
    moved = movedim(x, axes, list(range(len(axes))))
    flat: Any = 0
    for axis, index in advanced:
        flat = flat * x.shape[axis] + _wrapped(index, x.shape[axis])
    sizes = [x.shape[axis] for axis in axes]
    lead = math.prod(sizes)
    return reshape(moved, (lead, *moved.shape[len(axes) :])), expand(flat, shape)


def _wrapped(index: Tensor, size: int) -> Tensor:
    """Indices from 0; those that a transform hides are checked when it runs."""
    if type(index) is Tensor:
        return where(index < 0, index + size, index)
    return take_op(Tensor(np.arange(size)), index)


def _move_block(x: Tensor, count: int, first: int) -> Tensor:
    """Move the first ``count`` dimensions to start at ``first``."""
    if first == 0 or count == 0:
        return x
    return movedim(x, list(range(count)), list(range(first, first + count)))


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """``input[index] = value``, in place."""
    basic, advanced = normalize_index(input, index, "setitem")
    target = _basic(input, basic)
    if not isinstance(value, Tensor):
        from weft.ops.creation import as_tensor

        value = as_tensor(value)
    if not advanced:
        target = target if target is not input else input
        assign(target, _value_for(target.shape, target, value), "setitem")
        return
    _check_value(value, target)
    rows, flat = _rows(target, advanced)
    picked_shape = (*flat.shape, *rows.shape[1:])
    axes = [axis for axis, _ in advanced]
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    seen = _moved_shape(picked_shape, flat.ndim, first)
    value = _value_for(seen, target, value)
    if first and flat.ndim:
        block = list(range(first, first + flat.ndim))
        value = movedim(value, block, list(range(flat.ndim)))
    new = put_op(rows, flat, value)
    count = len(axes)
    new = reshape(new, (*(target.shape[a] for a in axes), *rows.shape[1:]))
    assign(target, movedim(new, list(range(count)), axes), "setitem")


def _moved_shape(shape: tuple[int, ...], count: int, first: int) -> tuple[int, ...]:
    block, rest = shape[:count], shape[count:]
    return (*rest[:first], *block, *rest[first:])


def _check_value(value: Tensor, target: Tensor, name: str = "setitem") -> None:
    if value.dtype.is_complex and not target.dtype.is_complex:
        raise DTypeError(
            f"{name}: cannot store {value.dtype.name} values in a "
            f"{target.dtype.name} tensor"
        )


def _value_for(
    shape: tuple[int, ...], target: Tensor, value: Tensor, name: str = "setitem"
) -> Tensor:
    """The assigned value in the region's shape and the tensor's dtype."""
    _check_value(value, target, name)
    value = cast(value, target.dtype)
    if value.shape == shape:
        return value
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshape(value, value.shape[1:])
    if broadcast_shapes(name, shape, value.shape) != shape:
        raise ShapeError(
            f"{name}: a value of shape {value.shape} does not fit into a region of "
            f"shape {shape}"
        )
    return expand(value, shape)


# -- gather and scatter


def _grid(index: Any, dim: int) -> tuple[Any, ...]:
    """Index arrays that visit every position of ``index`` along ``dim``."""
    out = []
    for axis, n in enumerate(index.shape):
        lone = (1,) * axis + (n,) + (1,) * (index.ndim - axis - 1)
        out.append(index if axis == dim else np.arange(n).reshape(lone))
    return tuple(out)


def _gather_eval(x: Any, index: Any, *, dim: int) -> Any:
    check_range("gather", index, x.shape[dim], dim, wrap=False)
    return x[_grid(index, dim)]


def _scatter_eval(x: Any, index: Any, src: Any, *, dim: int) -> Any:
    check_range("scatter", index, x.shape[dim], dim, wrap=False)
    out = x.copy()
    out[_grid(index, dim)] = src
    return out


def _scatter_add_eval(x: Any, index: Any, src: Any, *, dim: int) -> Any:
    check_range("scatter_add", index, x.shape[dim], dim, wrap=False)
    out = x.copy()
    np.add.at(out, _grid(index, dim), src)
    return out


def _gather_type(x: TensorType, index: TensorType, *, dim: int) -> TensorType:
    _check_gather("gather", x.shape, index.shape, dim)
    return TensorType(index.shape, x.dtype)


def _check_gather(name: str, x: Any, index: Any, dim: int) -> None:
    if len(x) != len(index):
        raise ShapeError(
            f"{name}: expected an index of as many dimensions as the tensor, got "
            f"shapes {x} and {index}"
        )
    for axis, (n, m) in enumerate(zip(x, index, strict=True)):
        if axis != dim and m > n:
            raise ShapeError(
                f"{name}: index shape {index} is larger than shape {x} along axis "
                f"{axis} (only dim {dim} may be)"
            )


def _all_batched(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    full = [
        a if b else expand(a, (size, *a.shape))
        for a, b in zip(args, batched, strict=True)
    ]
    return bind(op, tuple(full), dict(params, dim=params["dim"] + 1))


_GATHERS = (
    ((3, 4), (3, 2), 1),
    ((4, 3), (2, 3), 0),
    ((5,), (3,), 0),
    ((3, 2), (0, 2), 0),
)


def _gather_samples(rng: np.random.Generator) -> Any:
    for shape, ids, dim in _GATHERS:
        index = rng.integers(0, shape[dim], ids)
        yield Sample((rng.uniform(-2, 2, shape), index), {"dim": dim})


def _loop_gather(x: Any, index: Any, *, dim: int) -> Any:
    out = np.zeros(index.shape)
    for place in np.ndindex(index.shape):
        out[place] = x[(*place[:dim], index[place], *place[dim + 1 :])]
    return out


gather_op: Op = define(
    "gather",
    inputs="x index",
    eval=_gather_eval,
    type=_gather_type,
    vjp={
        "x": lambda g, x_shape, index, dim: scatter_add_op(
            _zeros(x_shape, g), index, g, dim=dim
        )
    },
    jvp={"x": lambda t, index, dim: gather_op(t, index, dim=dim)},
    batch=_all_batched,
    samples=_gather_samples,
    reference=_loop_gather,
)


def _scatter_samples(rng: np.random.Generator) -> Any:
    for shape, ids, dim in _GATHERS:
        order = np.argsort(rng.uniform(size=shape), dim)
        index = order[tuple(slice(0, n) for n in ids)]
        src = rng.uniform(-2, 2, ids)
        yield Sample((rng.uniform(-2, 2, shape), index, src), {"dim": dim})


def _loop_scatter(x: Any, index: Any, src: Any, *, dim: int, add: bool) -> Any:
    out = x.copy()
    for place in np.ndindex(index.shape):
        to = (*place[:dim], index[place], *place[dim + 1 :])
        out[to] = src[place] + (out[to] if add else 0)
    return out


scatter_op: Op = define(
    "scatter",
    inputs="x index src",
    eval=_scatter_eval,
    type=lambda x, index, src, *, dim: x,
    vjp={
        "x": lambda g, index, dim: scatter_op(
            g, index, _zeros(index.shape, g), dim=dim
        ),
        "src": lambda g, index, dim: gather_op(g, index, dim=dim),
    },
    jvp={
        "x": lambda t, index, dim: scatter_op(
            t, index, _zeros(index.shape, t), dim=dim
        ),
        "src": lambda t, x, index, dim: scatter_op(
            _zeros(x.shape, t), index, t, dim=dim
        ),
    },
    batch=_all_batched,
    samples=_scatter_samples,
    reference=lambda x, index, src, *, dim: _loop_scatter(
        x, index, src, dim=dim, add=False
    ),
)

scatter_add_op: Op = define(
    "scatter_add",
    inputs="x index src",
    eval=_scatter_add_eval,
    type=lambda x, index, src, *, dim: x,
    vjp={
        "x": lambda g: g,
        "src": lambda g, index, dim: gather_op(g, index, dim=dim),
    },
    jvp={
        "x": lambda t: t,
        "src": lambda t, x, index, dim: scatter_add_op(
            _zeros(x.shape, t), index, t, dim=dim
        ),
    },
    batch=_all_batched,
    samples=_scatter_samples,
    reference=lambda x, index, src, *, dim: _loop_scatter(
        x, index, src, dim=dim, add=True
    ),
)


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Elements picked along a dimension, one for each element of ``index``.

    >>> weft.tensor([[1, 2], [3, 4]]).gather(1, weft.tensor([[1], [0]]))
    tensor([[2],
            [3]], shape=(2, 1), dtype=int64)
    """
    d = normalize_dim("gather", dim, input.ndim)
    index = as_index("gather", index)
    if input.ndim == 0 and index.ndim <= 1:
        return reshape(gather(reshape(input, (1,)), 0, _row(index)), index.shape)
    _check_gather("gather", input.shape, index.shape, d)
    return bind(gather_op, (input, index), {"dim": d})


def _row(x: Tensor) -> Tensor:
    """A 0-d tensor as a vector of one element."""
    return x if x.ndim else reshape(x, (1,))


def _scatter_operands(
    name: str, x: Tensor, dim: int, index: Tensor, src: Any
) -> tuple[int, Tensor, Tensor]:
    """The checked dimension, index, and source of the index's shape."""
    d = normalize_dim(name, dim, x.ndim)
    index = as_index(name, index)
    _check_gather(name, x.shape, index.shape, d)
    if not isinstance(src, Tensor):
        src = expand(scalar(src, x.dtype), index.shape)
    if src.dtype is not x.dtype:
        raise DTypeError(
            f"{name}: expected src to be {x.dtype.name} like the tensor, got "
            f"{src.dtype.name}"
        )
    if src.shape != index.shape:
        if src.ndim != index.ndim or any(
            m < n for m, n in zip(src.shape, index.shape, strict=True)
        ):
            raise ShapeError(
                f"{name}: src of shape {src.shape} is smaller than index of shape "
                f"{index.shape}"
            )
        window = tuple(slice(0, n) for n in index.shape)
        src = bind(slice_op, (src,), {"index": window})
    return d, index, src


def _scatter(op: Op, x: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    if x.ndim == 0:
        src = _row(src) if isinstance(src, Tensor) else src
        ids = _row(as_index(op.name, index))
        return reshape(_scatter(op, _row(x), dim, ids, src), ())
    d, index, src = _scatter_operands(op.name, x, dim, index, src)
    return bind(op, (x, index, src), {"dim": d})


_SCATTERS = {"add": "sum", "multiply": "prod"}


def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy with the elements of ``src`` (or one value) put where ``index`` says.

    ``reduce`` is None, ``"add"`` or ``"multiply"``.

    >>> weft.zeros(3).scatter(0, weft.tensor([2]), weft.tensor([5.0]))
    tensor([0., 0., 5.], shape=(3,), dtype=float32)
    """
    given = value if src is None else src
    if given is None:
        raise ArgumentError("scatter: expected src or value, got neither")
    if reduce is None:
        return _scatter(scatter_op, input, dim, index, given)
    if reduce not in _SCATTERS:
        raise ArgumentError(
            f"scatter: reduce must be None, 'add' or 'multiply', got {reduce!r}"
        )
    d, index, given = _scatter_operands("scatter", input, dim, index, given)
    return scatter_reduce(input, d, index, given, _SCATTERS[reduce])


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with the elements of ``src`` added where ``index`` says.

    >>> weft.zeros(2).scatter_add(0, weft.tensor([1, 1]), weft.tensor([5.0, 6.0]))
    tensor([ 0., 11.], shape=(2,), dtype=float32)
    """
    return _scatter(scatter_add_op, input, dim, index, src)


# -- scatter with a reduction

_COMBINE = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _combine_eval(x: Any, index: Any, src: Any, *, dim: int, reduce: str) -> Any:
    check_range("scatter_reduce", index, x.shape[dim], dim, wrap=False)
    out = x.copy()
    _COMBINE[reduce].at(out, _grid(index, dim), src)
    return out


def _shares(
    x: Tensor, index: Tensor, src: Tensor, out: Tensor, dim: int, reduce: str
) -> tuple[Tensor, Tensor]:
    """The output's derivative by each element of ``x`` and of ``src``."""
    back = gather_op(out, index, dim=dim)
    if reduce != "prod":  # equal winners share
        won, won_src = cast(x == out, x.dtype), cast(src == back, x.dtype)
        count = scatter_add_op(won, index, won_src, dim=dim)
        return won / count, won_src / gather_op(count, index, dim=dim)
    filled, filled_src = (where(v == 0, 1, v) for v in (x, src))
    rest = scatter_combine(filled, index, filled_src, dim=dim, reduce="prod")
    zero, zero_src = (cast(v == 0, x.dtype) for v in (x, src))
    zeros = scatter_add_op(zero, index, zero_src, dim=dim)
    nil, nil_src = (where(v == 0, v, 0) for v in (x, src))
    nils = scatter_add_op(nil, index, nil_src, dim=dim)
    return _others_product(x, filled, rest, zeros, nils), _others_product(
        src, filled_src, *(gather_op(v, index, dim=dim) for v in (rest, zeros, nils))
    )


def _others_product(
    v: Tensor, filled: Tensor, rest: Tensor, zeros: Tensor, nils: Tensor
) -> Tensor:
    """The product of a group without ``v``, right where the group has zeros.

    ``rest`` is the product of the elements that are not zero, ``zeros`` the number
    of the others and ``nils`` their sum (which is 0, but has derivatives).
    """
    few = where(zeros == 1, nils * rest / filled, 0)
    return where(
        v == 0, where(zeros == 1, rest, 0), where(zeros == 0, rest / filled, few)
    )


def _combine_vjp(
    g: Tensor, need: Any, x: Tensor, index: Tensor, src: Tensor, out: Tensor,
    dim: int, reduce: str,
) -> tuple[Any, ...]:  # fmt: skip
    by_x, by_src = _shares(x, index, src, out, dim, reduce)
    back = gather_op(g, index, dim=dim)
    return (g * by_x if need[0] else None, None, back * by_src if need[2] else None)


def _combine_jvp(
    ts: list[Any], x: Tensor, index: Tensor, src: Tensor, out: Tensor,
    dim: int, reduce: str,
) -> Tensor:  # fmt: skip
    by_x, by_src = _shares(x, index, src, out, dim, reduce)
    moved = _zeros(x.shape, x) if ts[0] is None else ts[0] * by_x
    if ts[2] is None:
        return moved
    return scatter_add_op(moved, index, ts[2] * by_src, dim=dim)


def _combine_samples(rng: np.random.Generator) -> Any:
    for k, (shape, ids, dim) in enumerate(_GATHERS):
        index = rng.integers(0, shape[dim], ids)
        values = rng.permuted(np.linspace(0.4, 2, math.prod(shape) + math.prod(ids)))
        x, src = values[: math.prod(shape)], values[math.prod(shape) :]
        params = {"dim": dim, "reduce": ("prod", "amax", "amin")[k % 3]}
        yield Sample((x.reshape(shape), index, src.reshape(ids)), params)


def _combine_reference(x: Any, index: Any, src: Any, *, dim: int, reduce: str) -> Any:
    combine: Any = {"prod": lambda a, b: a * b, "amax": max, "amin": min}[reduce]
    out = x.copy()
    for place in np.ndindex(index.shape):
        to = (*place[:dim], index[place], *place[dim + 1 :])
        out[to] = combine(out[to], src[place])
    return out


scatter_combine: Op = define(
    "scatter_combine",
    inputs="x index src",
    eval=_combine_eval,
    type=lambda x, index, src, *, dim, reduce: x,
    vjp=_combine_vjp,
    jvp=_combine_jvp,
    batch=_all_batched,
    samples=_combine_samples,
    reference=_combine_reference,
)


def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """A copy with the elements of ``src`` combined where ``index`` says.

    ``reduce`` is ``sum``, ``prod``, ``mean``, ``amax`` or ``amin``; without
    ``include_self`` the elements that something comes to don't count themselves.

    >>> x, ids = weft.tensor([1.0, 2.0]), weft.tensor([0, 0])
    >>> x.scatter_reduce(0, ids, weft.tensor([5.0, 3.0]), "amax")
    tensor([5., 2.], shape=(2,), dtype=float32)
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ArgumentError(
            "scatter_reduce: reduce must be 'sum', 'prod', 'mean', 'amax' or 'amin', "
            f"got {reduce!r}"
        )
    d, ids, src = _scatter_operands("scatter_reduce", input, dim, index, src)
    hits = scatter_add_op(
        Tensor(np.zeros(input.shape, np.int64)),
        ids,
        Tensor(np.ones(ids.shape, np.int64)),
        dim=d,
    )
    x = input
    if not include_self:
        x = where(hits > 0, scalar(_neutral(reduce, x.dtype), x.dtype), x)
    if reduce in _COMBINE:
        return scatter_combine(x, ids, src, dim=d, reduce=reduce)
    total = scatter_add_op(x, ids, src, dim=d)
    if reduce == "sum":
        return total
    count = hits + 1 if include_self else where(hits > 0, hits, 1)
    whole = not total.dtype.is_inexact
    return total // count if whole else total / cast(count, total.dtype)


def _neutral(reduce: str, dtype: dtypes.DType) -> Any:
    """What leaves the other operand as it is."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype.is_floating_point:
        return -math.inf if reduce == "amax" else math.inf
    limits = np.iinfo(dtype.np)
    return limits.min if reduce == "amax" else limits.max


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As ``gather``, with the other dimensions broadcast.

    >>> x = weft.tensor([[3, 1, 2]])
    >>> x.take_along_dim(x.argsort(1), 1)
    tensor([[1, 2, 3]], shape=(1, 3), dtype=int64)
    """
    if dim is None:
        return gather(input.flatten(), 0, indices.flatten())
    d = normalize_dim("take_along_dim", dim, input.ndim)
    others = [(*s[:d], 1, *s[d + 1 :]) for s in (input.shape, indices.shape)]
    common = broadcast_shapes("take_along_dim", *others)
    x = expand(input, (*common[:d], input.shape[d], *common[d + 1 :]))
    ids = expand(indices, (*common[:d], indices.shape[d], *common[d + 1 :]))
    return gather(x, d, ids)


def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor.

    >>> weft.tensor([[1, 2], [3, 4]]).take(weft.tensor([0, 3]))
    tensor([1, 4], shape=(2,), dtype=int64)
    """
    return take_op(reshape(input, (input.numel(),)), as_index("take", index))


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Whole slices picked along a dimension.

    >>> weft.tensor([[1, 2], [3, 4]]).index_select(1, weft.tensor([1]))
    tensor([[2],
            [4]], shape=(2, 1), dtype=int64)
    """
    d = normalize_dim("index_select", dim, input.ndim)
    ids = as_index("index_select", index)
    if ids.ndim > 1:
        raise ShapeError(f"index_select: expected a 1-d index, got shape {ids.shape}")
    if input.ndim == 0:
        return reshape(index_select(_row(input), 0, ids), ())
    if type(ids) is Tensor:
        check_range("index_select", ids._data, input.shape[d], d, wrap=False)
    rows = input if d == 0 else movedim(input, d, 0)
    out = take_op(rows, reshape(ids, (-1,)) if ids.ndim == 0 else ids)
    return out if d == 0 else movedim(out, 0, d)


def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1
) -> Tensor:
    """A copy with slices of ``source`` added at the indices of a dimension.

    >>> weft.zeros(3).index_add(0, weft.tensor([0, 0]), weft.tensor([1.0, 2.0]))
    tensor([3., 0., 0.], shape=(3,), dtype=float32)
    """
    d, rows = _index_rows("index_add", input, dim, index, source)
    added = add_at(rows, index, size=input.shape[d])
    return input + alpha * movedim(added, 0, d)


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with slices of ``source`` put at the indices of a dimension.

    >>> weft.zeros(3).index_copy(0, weft.tensor([2]), weft.tensor([7.0]))
    tensor([0., 0., 7.], shape=(3,), dtype=float32)
    """
    d, rows = _index_rows("index_copy", input, dim, index, source)
    return movedim(put_op(movedim(input, d, 0), index, rows), 0, d)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with one value put at the indices of a dimension.

    >>> weft.zeros(3).index_fill(0, weft.tensor([2]), 7)
    tensor([0., 0., 7.], shape=(3,), dtype=float32)
    """
    d = normalize_dim("index_fill", dim, input.ndim)
    ids = as_index("index_fill", index)
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(
            f"index_fill: expected a number or 0-d tensor, got shape {value.shape}"
        )
    fill = value if isinstance(value, Tensor) else scalar(value, input.dtype)
    shape = (*input.shape[:d], ids.numel(), *input.shape[d + 1 :])
    _, rows = _index_rows("index_fill", input, d, ids, expand(fill, shape), wrap=True)
    return movedim(put_op(movedim(input, d, 0), _row(ids), rows), 0, d)


def _index_rows(
    name: str, x: Tensor, dim: int, index: Tensor, source: Tensor, *, wrap: bool = False
) -> tuple[int, Tensor]:
    d = normalize_dim(name, dim, x.ndim)
    ids = as_index(name, index)
    want = (*x.shape[:d], ids.numel(), *x.shape[d + 1 :])
    if source.shape != want:
        raise ShapeError(
            f"{name}: expected a source of shape {want} for {ids.numel()} indices "
            f"along dim {d} of shape {x.shape}, got {source.shape}"
        )
    if type(ids) is Tensor:
        check_range(name, ids._data, x.shape[d], d, wrap=wrap)
    return d, movedim(cast(source, x.dtype), d, 0)


# -- masks


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy with ``value`` where the mask holds.

    >>> weft.tensor([1.0, 2.0]).masked_fill(weft.tensor([True, False]), 0)
    tensor([0., 2.], shape=(2,), dtype=float32)
    """
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(f"masked_fill: expected a boolean mask, got {mask.dtype.name}")
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(
            f"masked_fill: expected a number or 0-d tensor, got shape {value.shape}"
        )
    if result_type(input, value).is_complex and not input.dtype.is_complex:
        raise DTypeError(
            f"masked_fill: {value!r} cannot be stored in a {input.dtype.name} tensor"
        )
    return cast(where(mask, value, input), input.dtype)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask holds, in one dimension.

    >>> weft.tensor([1, 2, 3]).masked_select(weft.tensor([True, False, True]))
    tensor([1, 3], shape=(2,), dtype=int64)
    """
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(
            f"masked_select: expected a boolean mask, got {mask.dtype.name}"
        )
    shape = broadcast_shapes("masked_select", input.shape, mask.shape)
    if not shape:
        return getitem(reshape(input, (1,)), reshape(mask, (1,)))
    return getitem(expand(input, shape), expand(mask, shape))


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements of ``source``, in order, where the mask holds.

    >>> mask = weft.tensor([False, True, True])
    >>> weft.zeros(3).masked_scatter(mask, weft.tensor([5.0, 6.0]))
    tensor([0., 5., 6.], shape=(3,), dtype=float32)
    """
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(
            f"masked_scatter: expected a boolean mask, got {mask.dtype.name}"
        )
    if source.dtype is not input.dtype:
        raise DTypeError(
            f"masked_scatter: expected a {input.dtype.name} source, got "
            f"{source.dtype.name}"
        )
    shape = broadcast_shapes("masked_scatter", input.shape, mask.shape)
    flat = reshape(expand(mask, shape), (math.prod(shape),))
    wanted, have = int(flat.sum()), source.numel()
    if wanted > have:
        raise ShapeError(
            f"masked_scatter: the mask holds at {wanted} places, but the source has "
            f"{have} elements"
        )
    if have == 0:
        return expand(input, shape).clone()
    place = (flat.cumsum(0) - 1).clamp(min=0, max=have - 1)
    values = reshape(take_op(reshape(source, (have,)), place), shape)
    return where(expand(mask, shape), values, input)


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero.

    >>> weft.tensor([0, 5, 6]).nonzero()
    tensor([[1],
            [2]], shape=(2, 1), dtype=int64)
    """
    array = concrete("nonzero", input)
    if as_tuple:
        return tuple(Tensor(i) for i in np.nonzero(np.atleast_1d(array)))
    return Tensor(np.argwhere(array))


def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, a row each.

    >>> weft.argwhere(weft.tensor([0, 5]))
    tensor([[1]], shape=(1, 1), dtype=int64)
    """
    return nonzero(input)


def concrete(name: str, x: Tensor) -> np.ndarray:
    """The values of a tensor whose values decide a shape."""
    if x._interpreter is not None:
        raise ArgumentError(
            f"{name}: the result's shape depends on values, which are not known inside "
            f"{x._interpreter.name}; use where or masked_fill, which keep the shape"
        )
    return x.array()


# -- diagonals and one-hot


def _diagonal_eval(x: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    out = np.diagonal(x, offset, dim1, dim2)
    if x.flags.writeable:
        out.flags.writeable = True
    return out


def _diagonal_type(x: TensorType, *, offset: int, dim1: int, dim2: int) -> TensorType:
    rows, _ = _diagonal_indices(x.shape[dim1], x.shape[dim2], offset)
    rest = [n for axis, n in enumerate(x.shape) if axis not in (dim1, dim2)]
    return TensorType((*rest, len(rows)), x.dtype)


def _diagonal_back(
    g: Tensor, x_shape: tuple[int, ...], offset: int, dim1: int, dim2: int
) -> Tensor:
    """Zeros with ``g`` on the diagonal."""
    n, m = x_shape[dim1], x_shape[dim2]
    rows, cols = _diagonal_indices(n, m, offset)
    flat = add_at(movedim(g, -1, 0), Tensor(rows * m + cols), size=n * m)
    return movedim(reshape(flat, (n, m, *g.shape[:-1])), (0, 1), (dim1, dim2))


def _diagonal_reference(x: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    moved = np.moveaxis(x, (dim1, dim2), (0, 1))
    pairs = [(i, i + offset) for i in range(len(moved))]
    kept = [moved[i, j] for i, j in pairs if 0 <= j < moved.shape[1]]
    rest = moved.shape[2:]
    return np.moveaxis(np.array(kept).reshape(len(kept), *rest), 0, -1)


diagonal_op: Op = define(
    "diagonal",
    inputs="x",
    eval=_diagonal_eval,
    type=_diagonal_type,
    vjp={
        "x": lambda g, x_shape, offset, dim1, dim2: _diagonal_back(
            g, x_shape, offset, dim1, dim2
        )
    },
    linear=True,
    view=True,
    batch=lambda op, size, args, batched, params: diagonal_op(
        args[0],
        offset=params["offset"],
        dim1=params["dim1"] + 1,
        dim2=params["dim2"] + 1,
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, s),), {"offset": k, "dim1": a, "dim2": b})
        for s, k, a, b in (
            ((3, 4), 0, 0, 1),
            ((3, 4), -1, 0, 1),
            ((2, 3, 4), 1, 2, 0),
            ((0, 2), 0, 0, 1),
        )
    ],
    reference=_diagonal_reference,
)


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, as the last dimension, without copying.

    >>> weft.tensor([[1, 2], [3, 4]]).diagonal()
    tensor([1, 4], shape=(2,), dtype=int64)
    """
    a = normalize_dim("diagonal", dim1, input.ndim)
    b = normalize_dim("diagonal", dim2, input.ndim)
    if a == b:
        raise ArgumentError(
            f"diagonal: expected two different dims of shape {input.shape}, got {dim1} "
            f"and {dim2}"
        )
    return bind(diagonal_op, (input,), {"offset": offset, "dim1": a, "dim2": b})


def _diagonal_indices(n: int, m: int, offset: int) -> tuple[Any, Any]:
    count = max(min(n + min(offset, 0), m - max(offset, 0)), 0)
    return np.arange(count) + max(-offset, 0), np.arange(count) + max(offset, 0)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix's diagonal, or a matrix with the given diagonal.

    >>> weft.diag(weft.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]], shape=(2, 2), dtype=int64)
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise ShapeError(f"diag: expected 1 or 2 dimensions, got shape {input.shape}")
    rows, cols = _diagonal_indices(input.shape[0], input.shape[1], diagonal)
    return getitem(input, (Tensor(rows), Tensor(cols)))


def diag_embed(
    input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Tensor:
    """Matrices with the last dimension on their diagonals.

    >>> weft.diag_embed(weft.ones(2, 3)).shape
    (2, 3, 3)
    """
    if input.ndim == 0:
        raise ShapeError(
            "diag_embed: expected at least one dimension, got a 0-d tensor"
        )
    a, b = (normalize_dim("diag_embed", d, input.ndim + 1) for d in (dim1, dim2))
    if a == b:
        raise ArgumentError(f"diag_embed: dim1 and dim2 are both {a}")
    n = input.shape[-1] + abs(offset)
    rows, cols = _diagonal_indices(n, n, offset)
    flat = add_at(movedim(input, -1, 0), Tensor(rows * n + cols), size=n * n)
    out = reshape(flat, (n, n, *input.shape[:-1]))
    return movedim(out, (0, 1), (a, b))


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements on its diagonal.

    >>> weft.tensor([[1, 2]]).diagflat()
    tensor([[1, 0],
            [0, 2]], shape=(2, 2), dtype=int64)
    """
    return diag_embed(reshape(input, (input.numel(),)), offset)


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal.

    >>> weft.trace(weft.eye(3))
    tensor(3., dtype=float32)
    """
    if input.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, got shape {input.shape}")
    return diag(input).sum()


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A 1 at each class index, zeros elsewhere, in a new last dimension.

    >>> weft.one_hot(weft.tensor([0, 2]), 3)
    tensor([[1, 0, 0],
            [0, 0, 1]], shape=(2, 3), dtype=int64)
    """
    from weft.ops.creation import check_memory

    ids = as_index("one_hot", tensor)
    if num_classes == -1 or type(ids) is Tensor:
        array = concrete("one_hot", ids)
        if num_classes == -1:
            if array.size == 0:
                raise ArgumentError("one_hot: give num_classes for an empty tensor")
            num_classes = int(array.max()) + 1
        if array.size and array.min() < 0:
            raise OutOfRangeError(
                f"one_hot: class indices must not be negative, got {array.min()}"
            )
        check_range("one_hot", array, num_classes, -1)
    check_memory("one_hot", (*ids.shape, num_classes), dtypes.int64)
    return cast(ids.unsqueeze(-1) == Tensor(np.arange(num_classes)), dtypes.int64)


def repeat_interleave(
    input: Tensor,
    repeats: Any = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Each element (or slice) repeated, one after the other.

    With the repeats alone, the index of each that many times.

    >>> weft.tensor([1, 2]).repeat_interleave(2)
    tensor([1, 1, 2, 2], shape=(4,), dtype=int64)
    """
    if repeats is None:
        places = Tensor(np.arange(input.numel()))
        return repeat_interleave(places, as_index("repeat_interleave", input), 0)
    if dim is None:
        input, dim = reshape(input, (input.numel(),)), 0
    d = normalize_dim("repeat_interleave", dim, input.ndim)
    size = input.shape[d]
    if isinstance(repeats, Tensor):
        counts = concrete("repeat_interleave", repeats)
    else:
        counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu":
        raise DTypeError(
            f"repeat_interleave: expected integer repeats, got {counts.dtype.name}"
        )
    if counts.ndim and counts.shape != (1,) and counts.shape != (size,):
        raise ShapeError(
            f"repeat_interleave: expected 1 or {size} repeats for dim {d}, got "
            f"{counts.shape}"
        )
    if (counts < 0).any():
        raise ArgumentError("repeat_interleave: repeats must not be negative")
    return index_select(input, d, Tensor(np.repeat(np.arange(size), counts)))


# -- copies with a region replaced


def _changed(input: Tensor, index: Any, src: Any) -> Tensor:
    out = input.clone()
    setitem(out, index, src)
    return out


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with one slice along a dimension replaced.

    >>> weft.zeros(2, 2).select_scatter(weft.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]], shape=(2, 2), dtype=float32)
    """
    d = normalize_dim("select_scatter", dim, input.ndim)
    return _changed(input, (*(slice(None),) * d, index), src)


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """A copy with several slices along a dimension replaced.

    >>> weft.zeros(3).slice_scatter(weft.ones(2), 0, 1)
    tensor([0., 1., 1.], shape=(3,), dtype=float32)
    """
    d = normalize_dim("slice_scatter", dim, input.ndim)
    return _changed(input, (*(slice(None),) * d, slice(start, end, step)), src)


def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy with the diagonal replaced.

    >>> weft.zeros(2, 2).diagonal_scatter(weft.ones(2))
    tensor([[1., 0.],
            [0., 1.]], shape=(2, 2), dtype=float32)
    """
    out = input.clone()
    setitem(diagonal(out, offset, dim1, dim2), ..., src)
    return out


def index_put(
    input: Tensor, indices: Any, values: Any, accumulate: bool = False
) -> Tensor:
    """A copy with ``input[indices] = values``, or ``values`` added there.

    >>> weft.zeros(3).index_put((weft.tensor([1, 1]),), weft.tensor(2.0), True)
    tensor([0., 4., 0.], shape=(3,), dtype=float32)
    """
    index = tuple(slice(None) if i is None else i for i in indices)
    if not accumulate:
        return _changed(input, index, values)
    basic, advanced = normalize_index(input, index)
    if not advanced:
        raise ArgumentError("index_put: expected index tensors or masks, got none")
    target = _basic(input, basic)
    rows, flat = _rows(target, advanced)
    axes = [axis for axis, _ in advanced]
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    seen = _moved_shape((*flat.shape, *rows.shape[1:]), flat.ndim, first)
    value = _value_for(seen, target, values)
    if first and flat.ndim:
        block = list(range(first, first + flat.ndim))
        value = movedim(value, block, list(range(flat.ndim)))
    added = add_at(value, flat, size=rows.shape[0])
    added = reshape(added, (*(target.shape[a] for a in axes), *rows.shape[1:]))
    return input + reshape(movedim(added, list(range(len(axes))), axes), input.shape)


def put(
    input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy with elements of the flattened tensor replaced (or added to).

    >>> weft.zeros(2, 2).put(weft.tensor([3]), weft.tensor([7.0]))
    tensor([[0., 0.],
            [0., 7.]], shape=(2, 2), dtype=float32)
    """
    ids = as_index("put", index)
    if source.numel() != ids.numel():
        raise ShapeError(
            f"put: expected as many elements as indices ({ids.numel()}), got "
            f"{source.numel()}"
        )
    if source.dtype is not input.dtype:
        raise DTypeError(
            f"put: expected a {input.dtype.name} source, got {source.dtype.name}"
        )
    count = (input.numel(),)
    if type(ids) is Tensor:
        check_range("put", ids._data, count[0], 0)
    flat, ids = reshape(input, count), reshape(ids, (ids.numel(),))
    out = index_put(flat, (ids,), reshape(source, ids.shape), accumulate)
    return reshape(out, input.shape)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates, one tensor a dimension, of indices into a flattened tensor.

    >>> weft.unravel_index(weft.tensor([0, 5]), (2, 3))[1]
    tensor([0, 2], shape=(2,), dtype=int64)
    """
    from weft.ops.creation import parse_size

    sizes = parse_size("unravel_index", (shape,))
    ids = as_index("unravel_index", indices)
    if type(ids) is Tensor:
        check_range("unravel_index", ids._data, math.prod(sizes), 0, wrap=False)
    found: list[Tensor] = []
    for size in reversed(sizes):
        found.append(ids % size)
        ids = ids // size
    return tuple(reversed(found))
