"""Making arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.array_api._common import Array, as_shape, check_array
from weft.core.device import device as find_device
from weft.core.tensor import Tensor
from weft.dtype import as_dtype
from weft.errors import ArgumentError
from weft.interchange import from_dlpack
from weft.ops import broadcasting, copies, creation, diagonals


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Array:
    """The numbers from ``start`` up to (not including) ``stop``.

    >>> weft.array_api.arange(1, 7, 2)
    tensor([1, 3, 5])
    """
    if stop is None:
        start, stop = 0, start
    if step and (stop - start) * step < 0:
        stop = start
    return creation.arange(start, stop, step, dtype=dtype, device=device)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Array:
    """An array of numbers, nested sequences, arrays, or anything with DLPack.

    ``copy=True`` always copies, ``False`` never does (a ``ValueError`` where it
    would have to), ``None`` only where needed.

    >>> weft.array_api.asarray([1.0, 2.0])
    tensor([1., 2.])
    """
    given = obj
    if not isinstance(obj, (Tensor, np.ndarray)):
        given = _shared(obj)
    shares = given is not None
    out = creation.as_tensor(given if shares else obj)
    wanted = out.dtype if dtype is None else as_dtype(dtype)
    position = out.device if device is None else find_device(device)
    changed = wanted is not out.dtype or position is not out.device
    if copy is False and (not shares or changed):
        raise ArgumentError(
            "asarray: copy=False, but making this array needs a copy; pass copy=None"
        )
    if not shares and dtype is not None:
        return creation.tensor(obj, dtype=wanted, device=position)
    out = out.to(wanted).to(position)
    return copies.clone(out) if copy and shares and not changed else out


def _shared(obj: Any) -> Any:
    """An array over the object's memory, by DLPack or the buffer protocol."""
    if isinstance(obj, (bool, int, float, complex, list, tuple, np.generic)):
        return None
    if callable(getattr(obj, "__dlpack__", None)):
        return from_dlpack(obj)
    try:
        return np.asarray(memoryview(obj))
    except TypeError:
        return None


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """An array whose elements are not set to anything in particular.

    >>> weft.array_api.empty((2, 3)).shape
    (2, 3)
    """
    return creation.empty(as_shape(shape), dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """An unset array with another's shape and dtype.

    >>> weft.array_api.empty_like(weft.ones(2, 3)).shape
    (2, 3)
    """
    return creation.empty_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
) -> Array:
    """Ones on the k-th diagonal and zeros elsewhere.

    >>> weft.array_api.eye(2, k=1)
    tensor([[0., 1.],
            [0., 0.]])
    """
    chosen = as_dtype(dtype or dtypes.default_dtype())
    rows, cols = creation.parse_size(
        "eye", (n_rows, n_rows if n_cols is None else n_cols)
    )
    creation.check_memory("eye", (rows, cols), chosen)
    out = Tensor(np.eye(rows, cols, k, dtype=chosen.np))
    return out if device is None else out.to(device)


def full(
    shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Array:
    """An array filled with one value.

    >>> weft.array_api.full(2, 7)
    tensor([7, 7])
    """
    return creation.full(as_shape(shape), fill_value, dtype=dtype, device=device)


def full_like(
    x: Array, /, fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Array:
    """One value with another array's shape and dtype.

    >>> weft.array_api.full_like(weft.tensor([1, 2]), 9)
    tensor([9, 9])
    """
    return creation.full_like(x, fill_value, dtype=dtype, device=device)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Array:
    """``num`` evenly spaced numbers from ``start`` to ``stop``.

    >>> weft.array_api.linspace(0, 1, 4, endpoint=False)
    tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    (count,) = creation.parse_size("linspace", (num,))
    real = dtypes.default_dtype()
    bends = isinstance(start, complex) or isinstance(stop, complex)
    chosen = as_dtype(dtype or (real.to_complex() if bends else real))
    creation.check_memory("linspace", (count,), chosen)
    array = np.linspace(start, stop, count, endpoint=endpoint)
    out = Tensor(array.astype(chosen.np))
    return out if device is None else out.to(device)


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Coordinate grids from vectors; by default x runs along the second axis.

    Each grid has its vector's dtype.

    >>> a, b = weft.array_api.meshgrid(weft.arange(3), weft.arange(2))
    >>> a.shape, a[0]
    ((2, 3), tensor([0, 1, 2]))
    """
    vectors = [check_array("meshgrid", x) for x in arrays]
    return list(broadcasting.meshgrid(*vectors, indexing=indexing)) if vectors else []


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of ones.

    >>> weft.array_api.ones(2)
    tensor([1., 1.])
    """
    return creation.ones(as_shape(shape), dtype=dtype, device=device)


def ones_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Ones with another array's shape and dtype.

    >>> weft.array_api.ones_like(weft.tensor([5, 6]))
    tensor([1, 1])
    """
    return creation.ones_like(x, dtype=dtype, device=device)


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The elements on and below the k-th diagonal, zeros elsewhere.

    >>> weft.array_api.tril(weft.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return diagonals.tril(check_array("tril", x), k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The elements on and above the k-th diagonal, zeros elsewhere.

    >>> weft.array_api.triu(weft.ones(2, 2))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return diagonals.triu(check_array("triu", x), k)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of zeros.

    >>> weft.array_api.zeros(2)
    tensor([0., 0.])
    """
    return creation.zeros(as_shape(shape), dtype=dtype, device=device)


def zeros_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Zeros with another array's shape and dtype.

    >>> weft.array_api.zeros_like(weft.tensor([5, 6]))
    tensor([0, 0])
    """
    return creation.zeros_like(x, dtype=dtype, device=device)
