"""Arguments as users give them: tensors, sizes and indices, checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import as_int
from weft.core.dispatch import unable
from weft.core.number import Number
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.dtype_info import wrapped
from weft.errors import ArgumentError, DTypeError, OutOfRangeError
from weft.ops.copies import cast
from weft.ops.creation import as_tensor, parse_size, tensor
from weft.ops.public import public
from weft.ops.require import require_index, require_stored

# -- tensors and sizes


def as_tensorlike(value: Any) -> Tensor:
    """A tensor from any value that can be one."""
    if isinstance(value, Tensor):
        return value

    return as_tensor(value)


def scalar(name: str, value: Any, dtype: Any) -> Tensor:
    """A 0-d tensor of a Python number that the dtype holds, or of an open size."""
    value = require_stored(name, value, dtype)
    if type(value) is Number:
        return value.tensor.to(dtype)
    if isinstance(value, Size):
        from weft.ops.creation import full

        kind = dtypes.int64 if dtype.category == dtypes.INT else dtype
        return full((), value, dtype=kind).to(dtype)
    return Tensor(np.asarray(wrapped(value, dtype), dtype.np))


def tensor_list(name: str, tensors: Any) -> list[Tensor]:
    xs = list(tensors) if isinstance(tensors, (list, tuple)) else None
    if not xs:
        what = "an empty sequence" if xs == [] else type(tensors).__name__
        kind = ArgumentError if xs == [] else DTypeError
        raise kind(f"{name}: expected a list of tensors, got {what}")
    for k, x in enumerate(xs):
        if not isinstance(x, Tensor):
            raise DTypeError(
                f"{name}: expected tensors, got {type(x).__name__} at position {k}"
            )
    return xs


def flat_sizes(
    name: str, sizes: tuple[Any, ...], keyword: Any = None
) -> tuple[int, ...]:
    """Sizes given one by one, as one sequence, or by keyword."""
    if keyword is not None:
        sizes = (keyword,)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return tuple([n if type(n) is int else as_int(name, n) for n in sizes])


# -- indices


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
    position = tuple(int(k) for k in np.argwhere(bad)[0])
    value = int(np.asarray(index)[position])
    where = f" at position {position}" if position else ""
    raise OutOfRangeError(
        f"{name}: index {value}{where} is out of range for axis {axis} of size {size}"
    )


def as_index(name: str, value: Any) -> Tensor:
    """An integer index tensor; floating ones (with or without NaN) are refused."""
    if isinstance(value, Tensor):
        out = value
    else:
        out = tensor(value)
        if out.numel() == 0:
            out = cast(out.detach(), dtypes.int64)
    if out.dtype.category != dtypes.INT:
        raise IndexTypeError(
            f"{name}: expected integer indices, got {out.dtype.name}. "
            "Convert them with .long()"
        )
    return out


def concrete(name: str, x: Tensor) -> np.ndarray:
    """The values of a tensor, which decide a shape or are looked at by NumPy."""
    if x._interpreter is not None:
        raise unable(
            ArgumentError(
                f"{name}: the result depends on values (in its shape, mostly), which "
                f"are not known inside {x._interpreter.name}; use where or "
                "masked_fill, which keep the shape, or call it outside"
            ),
            x,
        )
    return x.array()


# -- indices of elements


@public(method=True)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero.

    >>> weft.tensor([0, 5, 6]).nonzero()
    tensor([[1],
            [2]])
    """
    array = concrete("nonzero", input)
    if as_tuple:
        found = np.nonzero(np.atleast_1d(array))
        return tuple(Tensor(i).to(input.device) for i in found)
    return Tensor(np.argwhere(array)).to(input.device)


@public(method=True)
def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, a row each.

    >>> weft.argwhere(weft.tensor([0, 5]))
    tensor([[1]])
    """
    return nonzero(input)


@public()
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates, one tensor a dimension, of indices into a flattened tensor.

    >>> weft.unravel_index(weft.tensor([0, 5]), (2, 3))[1]
    tensor([0, 2])
    """
    sizes = parse_size("unravel_index", (shape,))
    ids = cast(as_index("unravel_index", indices), dtypes.int64)
    ids = require_index("unravel_index", ids, math.prod(sizes), 0, wrap=False)
    found: list[Tensor] = []
    for size in reversed(sizes):
        found.append(ids % size)
        ids = ids // size
    return tuple(reversed(found))
