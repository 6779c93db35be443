"""``x[...]``, read and written.

Ints, slices and None are applied first, as a view, then the index tensors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core import fast_path
from weft.core.dims import normalize_dim
from weft.core.dispatch import bind
from weft.core.eager_kernels import SLOW
from weft.core.mode import RECORDING, mode
from weft.core.size import Size, same, same_shape, slice_bounds
from weft.core.tape import caller
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.ops.broadcasting import expand
from weft.ops.copies import cast, clone
from weft.ops.creation import arange, as_tensor, tensor
from weft.ops.elementwise import broadcast_shapes
from weft.ops.index import add_at, put_op, take_op
from weft.ops.inplace import assign, overwrite
from weft.ops.operands import IndexTypeError, as_index, check_range, nonzero
from weft.ops.padding import flip
from weft.ops.public import public
from weft.ops.require import known, require_stored
from weft.ops.select import where
from weft.ops.shaping import movedim, reshape
from weft.ops.slicing import slice_op

# -- kinds of indices


def normalize_index(
    x: Tensor, index: Any, name: str = "getitem"
) -> tuple[list[Any], list[tuple[int, Tensor]]]:
    """A basic index, and the index tensors with the axes they apply to after it."""
    items = list(index) if isinstance(index, tuple) else [index]
    items = [_item(name, i) for i in items]
    _expand_ellipsis(name, x, items)
    basic: list[Any] = []
    advanced: list[tuple[int, Tensor]] = []
    axis = position = 0  # axis of x, and of the basically indexed result
    for item in items:
        if item is None or item is True:
            basic.append(None)
            position += 1
        elif item is False:  # a new axis of which nothing is taken
            basic.append(None)
            advanced.append((position, Tensor(np.zeros(0, np.int64))))
            position += 1
        elif isinstance(item, slice):
            basic.append(_slice(name, item, x.shape[axis]))
            axis, position = axis + 1, position + 1
        elif isinstance(item, Tensor) and item.dtype is dtypes.bool_:
            for ids in _mask_indices(name, x, item, axis):
                basic.append(slice(None))
                advanced.append((position, ids))
                axis, position = axis + 1, position + 1
        elif isinstance(item, Tensor):
            basic.append(slice(None))
            if known(item):
                check_range(name, item.array(), x.shape[axis], axis)
            advanced.append((position, as_index(name, item)))
            axis, position = axis + 1, position + 1
        else:
            basic.append(_int(name, item, x.shape, axis))
            axis += 1
    return basic, advanced


def _item(name: str, item: Any) -> Any:
    """One index as None, Ellipsis, an int, a slice or a tensor."""
    if item is None or item is Ellipsis or isinstance(item, (slice, Size)):
        return item
    if isinstance(item, (bool, np.bool_)):
        return bool(item)
    if isinstance(item, Tensor):
        plain = type(item) is Tensor and item.ndim == 0
        if plain and item.dtype.category == dtypes.INT:
            return int(item.array())
        if plain and item.dtype is dtypes.bool_:
            return bool(item.array())
        if item.dtype.category > dtypes.INT:
            as_index(name, item)
        if item.dtype is dtypes.uint8 and item.ndim:
            raise IndexTypeError(
                f"{name}: a uint8 tensor could be a mask or indices; say which with "
                ".bool() or .long()"
            )
        return item
    if isinstance(item, (list, tuple, np.ndarray, range)):
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


def _backwards(x: Tensor, index: Any, name: str) -> tuple[list[int], Any]:
    """The axes that slices go through backwards, and the index into x flipped there."""
    if type(index) is list and _means_tuple(index):
        index = tuple(index)
    items = list(index) if isinstance(index, tuple) else [index]
    if not any(type(i) is slice and _falls(i.step) for i in items):
        return [], index
    items = [_item(name, i) for i in items]
    _expand_ellipsis(name, x, items)
    axes: list[int] = []
    axis = 0
    for k, item in enumerate(items):
        if type(item) is slice and _falls(item.step):
            axes.append(axis)
            items[k] = _flipped(name, item, x.shape[axis])
        if isinstance(item, Tensor) and item.dtype is dtypes.bool_:
            axis += item.ndim
        elif item is not None and not isinstance(item, bool):
            axis += 1
    return axes, tuple(items)


_NUMBERS = {int, bool}
_ITEMS = (slice, Tensor, list, tuple, np.ndarray, range)


def _means_tuple(index: list[Any]) -> bool:
    """Whether a list is one index for each axis, and not a list of positions.

    As in PyTorch, it is if it is short and holds anything but numbers.
    """
    if len(index) >= 32 or _NUMBERS.issuperset(map(type, index)):
        return False
    return any(i is None or i is Ellipsis or isinstance(i, _ITEMS) for i in index)


def _falls(step: Any) -> bool:
    return isinstance(step, (int, np.integer)) and bool(step < 0)


def _flipped(name: str, item: slice, size: Any) -> slice:
    """The same elements of an axis that was flipped."""
    if not isinstance(size, Size):
        first, last, step = item.indices(size)
        return slice(size - 1 - first, max(size - 1 - last, 0), -step)
    if item.start is None and item.stop is None:
        return slice(None, None, -item.step)
    raise ArgumentError(
        f"{name}: a slice that goes backwards through an axis of open size {size} must "
        f"be whole, got {item}; use flip"
    )


def _slice(name: str, item: slice, size: int) -> slice:
    parts = []
    for part in (item.start, item.stop, item.step):
        if isinstance(part, Tensor):
            part = int(part.item())
        elif part is not None and not isinstance(part, Size):
            try:
                part = part.__index__()
            except AttributeError:
                raise IndexTypeError(
                    f"{name}: expected int slice bounds, got {type(part).__name__}"
                ) from None
        parts.append(part)
    if parts[2] is not None and parts[2] <= 0:
        raise ArgumentError(f"{name}: slice steps must not be 0, got {parts[2]}")
    return slice(*slice_bounds(slice(*parts), size))


def _int(name: str, item: int, shape: tuple[int, ...], axis: int) -> int:
    size = shape[axis]
    if not -size <= item < size:
        raise OutOfRangeError(
            f"{name}: index {item} is out of range for axis {axis} of size {size}"
        )
    return size + item if item < 0 else item


def _mask_indices(name: str, x: Tensor, mask: Tensor, axis: int) -> list[Tensor]:
    have = x.shape[axis : axis + mask.ndim]
    empty = 0 in mask.shape and all(
        m in (0, n) for m, n in zip(mask.shape, have, strict=True)
    )  # which selects nothing
    if have != mask.shape and not empty:
        raise OutOfRangeError(
            f"{name}: a mask of shape {mask.shape} does not match axes {axis} to "
            f"{axis + mask.ndim - 1} of shape {x.shape}"
        )
    return list(nonzero(mask, as_tuple=True))


# -- reading


def getitem(input: Tensor, index: Any) -> Tensor:
    """``input[index]``: a view for ints, slices, None and ...; else a copy.

    >>> x = weft.arange(6).reshape(2, 3)
    >>> x[:, [0, 2]]
    tensor([[0, 2],
            [3, 5]])
    """
    state = mode.quick
    if state and type(input) is Tensor:
        have = input._data
        kind = type(index)
        if kind is int:
            ndim = have.ndim
            if ndim and -(size := len(have)) <= index < size:
                array = have[index] if ndim > 1 else have[index, ...]
                params: Any = {"index": (index if index >= 0 else index + size,)}
                return fast_path.view(_SLICE, input, params, array, state)
        elif kind is slice and have.ndim:
            bounds = _plain_slice(index, len(have))
            if bounds is not None:
                params = {"index": () if bounds is _REST else (bounds,)}
                return fast_path.view(_SLICE, input, params, have[bounds], state)
        elif kind is tuple:
            plain = _plain_pair(index, have.shape) if len(index) == 2 else None
            if plain is not None:
                params = {"index": plain}
                return fast_path.view(_SLICE, input, params, have[index], state)
            if input._node is None or not state & RECORDING:
                array = _taken(have, index)
                if array is not None:
                    return Tensor(array)
        elif index is None:
            params = {"index": (None,)}
            return fast_path.view(_SLICE, input, params, have[None], state)
        elif kind is Tensor or kind is list:
            if kind is list and _means_tuple(index):
                return getitem(input, tuple(index))
            picked = _picked(input, index, state)
            if picked is not None:
                return picked
        plain = _plain_index(index, have.shape)
        if plain is not None:
            array = have[plain]
            if type(array) is not np.ndarray:  # a number of NumPy's
                array = have[(*plain, ...)]
            return fast_path.view(_SLICE, input, {"index": plain}, array, state)
    axes, index = _backwards(input, index, "getitem")
    if axes:
        return getitem(flip(input, axes), index)
    basic, advanced = normalize_index(input, index)
    out = _basic(input, basic)
    if not advanced:
        return out if out is not input else bind(slice_op, (input,), {"index": ()})
    axes = [axis for axis, _ in advanced]
    if all(not i.ndim and i.dtype is not dtypes.bool_ for _, i in advanced):
        return _picked_view(out, advanced)
    rows, flat = _rows(out, advanced)
    picked = take_op(rows, flat)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    return _move_block(picked, flat.ndim, first)


def _picked(x: Tensor, index: Any, state: int) -> Tensor | None:
    """Rows of a tensor by a small index or mask, as NumPy takes them; else None."""
    if type(index) is list:
        if not index or type(index[0]) is not int or len(index) > 64:
            return None
        try:
            index = Tensor(np.array(index))
        except ValueError:  # explained there
            return None
    ids, have = index._data, x._data
    if ids.dtype.char == "?":
        count = ids.ndim
        if not count or have.shape[:count] != ids.shape:
            return None
        if count > 1:
            ids = ids.reshape(-1)
            x = reshape(x, (ids.size, *have.shape[count:]))
            have = x._data
        (ids,) = ids.nonzero()
        index = Tensor(ids)
    elif ids.dtype is not _INT64 or not ids.ndim or not have.ndim:
        return None
    if ids.size >= SLOW:
        return None
    try:
        array = have.take(ids, 0) if have.flags.c_contiguous else have[ids]
    except IndexError:  # explained there
        return None
    plan = _TAKE if x._node is not None and state & RECORDING else None
    return fast_path.result(array, plan, (x._node, None), (x, index), {}, 3)


def _taken(have: np.ndarray, index: tuple[Any, ...]) -> np.ndarray | None:
    """Elements by small index tensors and whole slices, in a new array; else None."""
    region = _tensor_region(index)
    if region is None:
        return None
    try:
        if len(region) == 2 and type(region[0]) is slice and have.flags.c_contiguous:
            return have.take(region[1], 1)
        return np.ascontiguousarray(have[region])
    except IndexError:  # explained by those who check
        return None


def _tensor_region(index: tuple[Any, ...]) -> Any:
    """NumPy's index for small index tensors beside whole slices; else None.

    NumPy and PyTorch differ where ints stand beside index tensors, so none may.
    """
    region: list[Any] = []
    for item in index:
        if type(item) is Tensor:
            ids = item._data
            if ids.dtype is not _INT64 or not ids.ndim or ids.size >= SLOW:
                return None
            region.append(ids)
        elif type(item) is slice and item.start is item.stop is item.step is None:
            region.append(item)
        else:
            return None
    return tuple(region) if any(type(item) is not slice for item in region) else None


class _Picked:
    """A link of a view's chain at indices that are known only when a program runs:
    ``x[i]`` for symbols that stand for one number each."""

    view = True

    def __call__(self, x: Tensor, *, at: list[tuple[int, Tensor]]) -> Tensor:
        return take_op(*_rows(x, at))

    def eval(self, x: Any, *, at: list[tuple[int, Tensor]]) -> Any:
        """A view with the layout of any of them."""
        axes = [axis for axis, _ in at]
        return x[(*(0 if d in axes else slice(None) for d in range(x.ndim)), ...)]


_PICKED = _Picked()


def _picked_view(x: Tensor, at: list[tuple[int, Tensor]]) -> Tensor:
    at = [(axis, i.alias(i._node)) for axis, i in at]  # which do not change any more
    out = _PICKED(x, at=at)
    if mode.views:
        fast_path.link(_PICKED, x, {"at": at}, out)
    return out


_SLICE = slice_op.plan((True,))
_TAKE = take_op.plan((True, False))
_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)
_BASIC = {int, slice, type(None), type(...)}  # what NumPy's basic indices are made of
_REST = slice(None)
_RESTS = (_REST,) * 64


def _plain_index(index: Any, shape: tuple[int, ...]) -> tuple[Any, ...] | None:
    """The parameter of ``slice`` for an index of ints, slices and None, in range."""
    plain: list[Any] = []
    axis, ndim = 0, len(shape)
    items = index if type(index) is tuple else (index,)
    for item in items:
        kind = type(item)
        if kind is slice or kind is int:
            if axis == ndim:
                return None
            size = shape[axis]
            if kind is slice:
                if item.start is item.stop is item.step is None:
                    item = _REST
                elif (item := _plain_slice(item, size)) is None:
                    return None
            elif -size <= item < size:
                item = item if item >= 0 else item + size
            else:
                return None
            axis += 1
        elif item is ...:
            skipped = _skipped(items, ndim)
            if skipped < 0:
                return None
            plain += [_REST] * skipped
            axis += skipped
            continue
        elif item is not None:
            return None
        plain.append(item)
    while plain and plain[-1] is _REST:
        plain.pop()
    return tuple(plain)


def _plain_pair(index: tuple[Any, Any], shape: tuple[int, ...]) -> Any:
    """``_plain_index`` of the common ``[:, i]``, ``[:, i:j]``, ``[:, None]`` and
    ``[..., i]`` of two dimensions or more; None for others."""
    first, item = index
    if len(shape) < 2:
        return None
    if first is ...:
        if type(item) is int and 0 <= item < shape[-1]:
            return (*_RESTS[1 : len(shape)], item)
    elif type(first) is slice and first.start is first.stop is first.step is None:
        if type(item) is int:
            return (_REST, item) if 0 <= item < shape[1] else None
        if item is None:
            return _REST, None
        if type(item) is slice:
            item = _plain_slice(item, shape[1])
            return None if item is None or item is _REST else (_REST, item)
    return None


def _skipped(items: tuple[Any, ...], ndim: int) -> int:
    """The number of axes that the ellipsis stands for; below 0 if there are two."""
    dots = 0
    for item in items:
        if item is ...:
            dots += 1
        elif item is not None:
            ndim -= 1
    return ndim if dots == 1 else -1


def _plain_slice(item: slice, size: int) -> slice | None:
    """A slice of ints in 0..size, forwards; all of an axis is always the same one."""
    first, last, step = item.start, item.stop, item.step
    if step is None:
        if first is None:
            if last is None:
                return _REST
            first = 0
        elif last is None:
            last = size
        if type(first) is int is type(last) and 0 <= first <= last <= size:
            return slice(first, last, 1) if last - first < size else _REST
    elif first is last is None and type(step) is int and step > 1:
        return slice(0, size, step)
    for part in (item.start, item.stop, step):
        if part is not None and type(part) is not int:
            return None
    first, last, step = item.indices(size) if step != 0 else (0, 0, 0)
    if step < 1:
        return None
    if first == 0 and last == size and step == 1:
        return _REST
    return slice(first, last, step)


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
    first, last, step = item.start, item.stop, item.step
    if first is last is step is None:
        return True
    return same(first, 0) and same(last, size) and same(step, 1)


def _rows(x: Tensor, advanced: list[tuple[int, Tensor]]) -> tuple[Tensor, Tensor]:
    """The indexed axes of x made one leading axis, and one index into it."""
    axes = [axis for axis, _ in advanced]
    ids = [index for _, index in advanced]
    shape = broadcast_shapes("getitem", *(i.shape for i in ids))
    if len(axes) == 1:
        rows = x if axes == [0] else movedim(x, axes[0], 0)
        return rows, ids[0]
    front = list(range(len(axes)))
    moved = x if axes == front else movedim(x, axes, front)
    lead = math.prod(x.shape[axis] for axis in axes)
    rows = reshape(moved, (lead, *moved.shape[len(axes) :]))
    flat: Any = 0
    if mode.quick and all(
        type(i) is Tensor and type(i._data) is np.ndarray for i in ids
    ):
        for axis, index in advanced:
            size, array = x.shape[axis], index._data
            flat = flat * size + np.where(array < 0, array + size, array)
        return rows, Tensor(flat)
    for axis, index in advanced:
        flat = flat * x.shape[axis] + _wrapped(index, x.shape[axis])
    return rows, expand(flat, shape)


def _wrapped(index: Tensor, size: int) -> Tensor:
    """Indices from 0; those that a transform hides are checked when it runs."""
    if type(index) is Tensor:
        return where(index < 0, index + size, index)
    return take_op(arange(size, device=index.device), index)


def _move_block(x: Tensor, count: int, first: int) -> Tensor:
    """Move the first ``count`` dimensions to start at ``first``."""
    if first == 0 or count == 0:
        return x
    return clone(movedim(x, list(range(count)), list(range(first, first + count))))


# -- writing


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """``input[index] = value``, in place."""
    state = mode.quick
    if state and type(input) is Tensor and _written(input, index, value, state):
        return
    if _one_value_under_mask(input, index, value):
        return _fill(input, index, value)
    axes, index = _backwards(input, index, "setitem")
    if axes:
        flipped = flip(input, axes)
        setitem(flipped, index, value)
        assign(input, flip(flipped, axes), "setitem")
        return
    basic, advanced = normalize_index(input, index, "setitem")
    target = _basic(input, basic)
    value = given_value(value, target)
    if not advanced:
        overwrite(target, value_for(target.shape, target, value), "setitem")
        return
    _check_value(value, target)
    if len(advanced) == 1:
        ((axis, ids),) = advanced
        shape = (*target.shape[:axis], *ids.shape, *target.shape[axis + 1 :])
        new = put_op(target, ids, value_for(shape, target, value), axis=axis)
        assign(target, new, "setitem")
        return
    rows, flat = _rows(target, advanced)
    picked_shape = (*flat.shape, *rows.shape[1:])
    axes = [axis for axis, _ in advanced]
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    seen = _moved_shape(picked_shape, flat.ndim, first)
    value = value_for(seen, target, value)
    if first and flat.ndim:
        block = list(range(first, first + flat.ndim))
        value = movedim(value, block, list(range(flat.ndim)))
    new = put_op(rows, flat, value, axis=0)
    count = len(axes)
    new = reshape(new, (*(target.shape[a] for a in axes), *rows.shape[1:]))
    assign(target, movedim(new, list(range(count)), axes), "setitem")


def _written(x: Tensor, index: Any, value: Any, state: int) -> bool:
    """Whether NumPy could write a value that fits as it is, with nothing to record."""
    have, kind = x._data, type(value)
    dtype = have.dtype
    if dtype is not _FLOAT32 and dtype.char != "d":
        return False
    if kind is Tensor:
        new = value._data
        if new.dtype is not dtype or (state & RECORDING and value._node is not None):
            return False
    elif kind is float or kind is int:
        new = value
    else:
        return False
    if state & RECORDING:
        base = x._base
        if (
            x._node is not None
            or (base is not None and base._node is not None)
            or x._inference
        ):
            return False
    region, picks = index, type(index)
    if picks is int:
        pass
    elif picks is Tensor:
        region = index._data
        many = region.dtype.char == "?" or region.dtype is _INT64
        if not many or not 0 < region.ndim <= have.ndim:
            return False
        if kind is Tensor and (
            region.dtype.char == "?" or new.shape != region.shape + have.shape[1:]
        ):
            return False
    elif picks is tuple:
        for item in index:
            if type(item) not in _BASIC:
                region = None if kind is Tensor else _tensor_region(index)
                if region is None:
                    return False
                picks = Tensor
                break
    elif picks not in _BASIC:
        return False
    if mode.changes is not None:
        mode.changes(x)
    try:
        have[region] = new
    except Exception:  # explained there
        return False
    written = None if picks is Tensor else have[region]  # a view, or a number
    if type(written) is not np.ndarray:
        written = None
    (x._storage or x.storage_record).touch("setitem", caller(3), written)
    return True


def _one_value_under_mask(x: Tensor, index: Any, value: Any) -> bool:
    return (
        isinstance(index, Tensor)
        and index.dtype is dtypes.bool_
        and 0 < index.ndim <= x.ndim
        and x.shape[: index.ndim] == index.shape
        and (isinstance(value, (int, float, complex)) or _is_single(value))
    )


def _is_single(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0


def _fill(x: Tensor, mask: Tensor, value: Any) -> None:
    """``x[mask] = value`` for one value: no index is needed, so it can be captured."""
    new = value_for(x.shape, x, given_value(value, x))
    rows = reshape(mask, (*mask.shape, *[1] * (x.ndim - mask.ndim)))
    assign(x, where(rows, new, x), "setitem")


def _moved_shape(shape: tuple[int, ...], count: int, first: int) -> tuple[int, ...]:
    block, rest = shape[:count], shape[count:]
    return (*rest[:first], *block, *rest[first:])


def given_value(value: Any, target: Tensor) -> Tensor:
    """The value to store as a tensor; Python's floats are not rounded on the way."""
    if isinstance(value, Tensor):
        return value
    value = require_stored("setitem", value, target.dtype)
    made = as_tensor(value, device=target.device)
    exact = made.dtype.is_inexact and not isinstance(value, (np.ndarray, np.generic))
    if exact and made.dtype.category <= target.dtype.category:
        return as_tensor(value, dtype=target.dtype, device=target.device)
    return made


def _check_value(value: Tensor, target: Tensor, name: str = "setitem") -> None:
    if value.dtype.is_complex and not target.dtype.is_complex:
        raise DTypeError(
            f"{name}: cannot store {value.dtype.name} values in a "
            f"{target.dtype.name} tensor"
        )


def value_for(
    shape: tuple[int, ...], target: Tensor, value: Tensor, name: str = "setitem"
) -> Tensor:
    """The assigned value in the region's shape and the tensor's dtype."""
    _check_value(value, target, name)
    value = cast(value, target.dtype)
    if same_shape(value.shape, shape):
        return value
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshape(value, value.shape[1:])
    if broadcast_shapes(name, shape, value.shape) != shape:
        raise ShapeError(
            f"{name}: a value of shape {value.shape} does not fit into a region of "
            f"shape {shape}"
        )
    return expand(value, shape)


# -- copies with a region replaced


def _changed(input: Tensor, index: Any, src: Any) -> Tensor:
    out = input.clone()
    setitem(out, index, src)
    return out


@public(method=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with one slice along a dimension replaced.

    >>> weft.zeros(2, 2).select_scatter(weft.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]])
    """
    d = normalize_dim("select_scatter", dim, input.ndim)
    return _changed(input, (*(slice(None),) * d, index), src)


@public(method=True)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """A copy with several slices along a dimension replaced.

    >>> weft.zeros(3).slice_scatter(weft.ones(2), 0, 1)
    tensor([0., 1., 1.])
    """
    d = normalize_dim("slice_scatter", dim, input.ndim)
    return _changed(input, (*(slice(None),) * d, slice(start, end, step)), src)


@public(method=True, inplace="(weft.tensor([0]),), weft.tensor(5.0)")
def index_put(
    input: Tensor, indices: Any, values: Any, accumulate: bool = False
) -> Tensor:
    """A copy with ``input[indices] = values``, or ``values`` added there.

    >>> weft.zeros(3).index_put((weft.tensor([1, 1]),), weft.tensor(2.0), True)
    tensor([0., 4., 0.])
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
    value = value_for(seen, target, values)
    if first and flat.ndim:
        block = list(range(first, first + flat.ndim))
        value = movedim(value, block, list(range(flat.ndim)))
    added = add_at(value, flat, size=rows.shape[0])
    added = reshape(added, (*(target.shape[a] for a in axes), *rows.shape[1:]))
    return input + reshape(movedim(added, list(range(len(axes))), axes), input.shape)


@public(method=True, inplace="weft.tensor([0]), weft.tensor([5.0])")
def put(
    input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy with elements of the flattened tensor replaced (or added to).

    >>> weft.zeros(2, 2).put(weft.tensor([3]), weft.tensor([7.0]))
    tensor([[0., 0.],
            [0., 7.]])
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
    if known(ids):
        check_range("put", ids.array(), count[0], 0)
    flat, ids = reshape(input, count), reshape(ids, (ids.numel(),))
    out = index_put(flat, (ids,), reshape(source, ids.shape), accumulate)
    return reshape(out, input.shape)
