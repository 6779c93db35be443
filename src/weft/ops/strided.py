"""Views of memory by strides: windows, and any that stay inside.

``windows`` are slices of one dimension that may overlap, ``as_strided`` any elements of
a vector (the memory) at regular steps. Their transposes add up overlapping elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided as _strided

from weft.core.dims import normalize_dim
from weft.core.lowering import View
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.dtype import int64
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.ops.creation import arange
from weft.ops.index import add_at
from weft.ops.public import public
from weft.ops.shaping import flatten, movedim, permute, reshape

# -- windows along one dimension


def _count(size: Any, window: int, step: int) -> Any:
    return (size - window) // step + 1


def _windows_eval(x: Any, *, dim: int, size: int, step: int) -> Any:
    """The windows in a new last dimension; read-only where they overlap."""
    shape, strides = list(x.shape), list(x.strides)
    shape[dim] = _count(shape[dim], size, step)
    shape.append(size)
    strides.append(strides[dim])
    strides[dim] *= step
    return _strided(x, shape, strides, writeable=step >= size and x.flags.writeable)


def _windows_type(x: TensorType, *, dim: int, size: int, step: int) -> TensorType:
    shape = list(x.shape)
    shape[dim] = _count(shape[dim], size, step)
    return TensorType((*shape, size), x.dtype)


def _windows_at(out: Any, x_shape: Any, *, dim: int, size: int, step: int) -> Any:
    *lead, last = out
    lead[dim] = lead[dim] * step + last
    return tuple(lead)


def _windows_vjp(g: Tensor, x_shape: Any, dim: int, size: int, step: int) -> Tensor:
    """Every window's elements added where they were taken from."""
    first = reshape(arange(g.shape[dim], device=g.device), (-1, 1)) * step
    positions = first + arange(size, device=g.device)
    rows = flatten(movedim(g, (dim, -1), (0, 1)), 0, 1)
    return movedim(add_at(rows, flatten(positions), size=x_shape[dim]), 0, dim)


def _windows_reference(x: Any, *, dim: int, size: int, step: int) -> Any:
    starts = range(0, x.shape[dim] - size + 1, step)
    found = [np.take(x, range(k, k + size), dim) for k in starts]
    return np.moveaxis(np.stack(found, dim), dim + 1, -1)


def _moved_batch(op: Op, size: int, args: Any, batched: Any, params: Any) -> Any:
    return op(*args, **dict(params, dim=params["dim"] + 1))


windows_op: Op = define(
    "windows",
    inputs="x",
    eval=_windows_eval,
    type=_windows_type,
    lower=View(_windows_at),
    vjp={"x": _windows_vjp},
    linear=True,
    view=True,
    batch=_moved_batch,
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, shape),), {"dim": dim, "size": size, "step": step})
        for shape, dim, size, step in (
            ((6,), 0, 3, 1), ((2, 7), 1, 2, 3), ((5, 3), 0, 2, 2), ((0, 4), 1, 3, 1),
            ((4,), 0, 4, 1),
        )
    ],
    reference=_windows_reference,
)  # fmt: skip


@public(exported=False, method=True)
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of a dimension, their elements in a new last dimension (a view).

    >>> weft.arange(4).unfold(0, 2, 1)
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """
    x = input if input.ndim else reshape(input, (1,))
    d = normalize_dim("unfold", dimension, x.ndim)
    length = x.shape[d]
    fits = isinstance(length, Size) or size <= length
    if not (size >= 0 and fits) or step <= 0:
        raise ArgumentError(
            f"unfold: expected a size from 0 to {length} and a positive step, "
            f"got {size} and {step}"
        )
    if input.ndim == 0:
        return x[: int(size)]
    return windows_op(x, dim=d, size=int(size), step=int(step))


# -- any steps through memory


def _last(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> int:
    """The largest position that is looked at."""
    return offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def _as_strided_type(
    x: TensorType, *, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> TensorType:
    """The last dimension is the memory; all indices must be inside."""
    length = x.shape[-1]
    if 0 not in size and not isinstance(length, Size):
        last = _last(size, stride, offset)
        if last >= length:
            raise OutOfRangeError(
                f"as_strided: size {size} with stride {stride} from offset {offset} on "
                f"reaches element {last}, but the memory has {length}"
            )
    return TensorType((*x.shape[:-1], *size), x.dtype)


def _as_strided_eval(x: Any, *, size: Any, stride: Any, offset: int) -> Any:
    lead = x.shape[:-1]
    if 0 in size or 0 in lead:
        return np.zeros((*lead, *size), x.dtype)
    if _last(size, stride, offset) >= x.shape[-1]:
        raise IndexError("outside of the memory")  # the type rule says it in words
    steps = [s * x.strides[-1] for s in stride]
    free = x.flags.writeable and not overlaps(size, stride)
    return _strided(
        x[..., offset:], (*lead, *size), (*x.strides[:-1], *steps), writeable=free
    )


def overlaps(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether several indices may share one element of memory.

    >>> from weft.ops.strided import overlaps
    >>> overlaps((2, 3), (3, 1)), overlaps((2, 3), (1, 1)), overlaps((2,), (0,))
    (False, True, True)
    """
    reach = 0
    for s, n in sorted((s, n) for s, n in zip(stride, size, strict=True) if n > 1):
        if s <= reach:
            return True
        reach += (n - 1) * s
    return False


def _as_strided_at(
    out: Any, x_shape: Any, *, size: Any, stride: Any, offset: Any
) -> Any:
    lead = len(x_shape) - 1
    position: Any = offset
    for i, s in zip(out[lead:], stride, strict=True):
        position = position + i * s
    return (*out[:lead], position)


def _as_strided_vjp(
    g: Tensor, x_shape: Any, size: Any, stride: Any, offset: int
) -> Tensor:
    count = _last(size, stride, offset) + 1 if 0 not in size else offset
    positions = _strided_reference(np.arange(max(count, 1)), size=size, stride=stride,
                                offset=offset)  # fmt: skip
    lead = len(x_shape) - 1
    rows = reshape(g, (*x_shape[:-1], math.prod(size)))
    rows = movedim(rows, -1, 0)
    index = Tensor(positions.reshape(-1).astype(int64.np)).to(g.device)
    added = add_at(rows, index, size=x_shape[-1])
    return movedim(added, 0, -1) if lead else added


def _strided_reference(x: Any, *, size: Any, stride: Any, offset: int) -> Any:
    positions = np.full(size, offset)
    for d, (n, s) in enumerate(zip(size, stride, strict=True)):
        positions = positions + np.arange(n).reshape(-1, *[1] * (len(size) - d - 1)) * s
    return x[..., positions] if positions.size else np.zeros((*x.shape[:-1], *size))


def _as_strided_batch(op: Op, size: int, args: Any, batched: Any, params: Any) -> Any:
    return op(*args, **params)  # all dimensions but the last are batches


as_strided_op: Op = define(
    "as_strided",
    inputs="x",
    eval=_as_strided_eval,
    type=_as_strided_type,
    lower=View(_as_strided_at),
    vjp={"x": _as_strided_vjp},
    linear=True,
    view=True,
    batch=_as_strided_batch,
    samples=lambda rng: [
        Sample(
            (rng.uniform(-2, 2, shape),),
            {"size": size, "stride": stride, "offset": offset},
        )
        for shape, size, stride, offset in (
            ((12,), (3, 4), (4, 1), 0), ((9,), (3, 3), (2, 1), 1),
            ((4,), (5,), (0,), 2), ((2, 6), (2, 2), (3, 1), 0), ((3,), (), (), 1),
            ((0, 3), (2,), (1,), 0),
        )
    ],
    reference=_strided_reference,
)  # fmt: skip


def memory_order(x: Tensor) -> list[int] | None:
    """The dimensions from the outermost in memory to the innermost; None with gaps.

    >>> from weft.ops.strided import memory_order
    >>> memory_order(weft.zeros(2, 3).t()), memory_order(weft.zeros(4)[::2])
    ([1, 0], None)
    """
    array = x.layout_array()
    if not isinstance(array, np.ndarray) or array.ndim != x.ndim:
        return list(range(x.ndim))  # of a transform's values, as if row by row
    order = sorted(range(x.ndim), key=lambda d: (-array.strides[d], d))
    return order if array.transpose(order).flags.c_contiguous else None


def storage_of(name: str, x: Tensor) -> Tensor:
    """The memory of the tensor that a tensor is a view of, as a vector."""
    root = x if x._base is None else x._base
    order = memory_order(root)
    if order is None:
        raise ArgumentError(
            f"{name}: the memory of this tensor of shape {root.shape} has gaps, which "
            "belong to another library; use a .clone() of it"
        )
    memory = reshape(permute(root, order), (-1,))
    if memory.dtype is x.dtype:
        return memory
    from weft.ops.complex_numbers import view_as_complex, view_as_real

    if memory.dtype.is_complex:
        return reshape(view_as_real(memory), (-1,))
    return view_as_complex(reshape(memory, (-1, 2)))


@public(method=True)
def as_strided(
    input: Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> Tensor:
    """A view of the tensor's memory with any size and steps, in elements.

    The memory is that of the tensor which ``input`` is a view of, if it is one; an
    element outside of it is refused. Gradients of what is seen several times add up.

    >>> weft.arange(5).as_strided((3, 3), (1, 1))
    tensor([[0, 1, 2],
            [1, 2, 3],
            [2, 3, 4]])
    """
    sizes, steps = _ints("size", size), _ints("stride", stride)
    if len(sizes) != len(steps):
        raise ShapeError(
            f"as_strided: expected as many strides as sizes, got size {sizes} and "
            f"stride {steps}"
        )
    first = input.storage_offset() if storage_offset is None else int(storage_offset)
    if min((*sizes, *steps, first), default=0) < 0:
        raise ArgumentError(
            "as_strided: expected sizes, strides and an offset of at least 0, got size "
            f"{sizes}, stride {steps}, offset {first}"
        )
    memory = storage_of("as_strided", input)
    params: dict[str, Any] = {"size": sizes, "stride": steps, "offset": first}
    _as_strided_type(TensorType(memory.shape, memory.dtype), **params)
    return as_strided_op(memory, **params)


def _ints(name: str, values: Any) -> tuple[int, ...]:
    try:
        return tuple(v.__index__() for v in values)
    except (TypeError, AttributeError):
        raise DTypeError(
            f"as_strided: expected {name} to be a sequence of ints, got {values!r}"
        ) from None
