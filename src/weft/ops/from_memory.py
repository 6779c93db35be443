"""Tensors over given memory: by strides, of a buffer, of a file."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.dtype import as_dtype, default_dtype
from weft.errors import ArgumentError, ShapeError
from weft.ops.creation import from_numpy, parse_size, placed
from weft.ops.public import public


@public()
def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Unset elements with these sizes, and these steps in memory.

    >>> weft.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    from weft.layouts import check_strided

    check_strided("empty_strided", layout)
    shape, steps = parse_size("empty_strided", (size,)), tuple(stride)
    if len(shape) != len(steps):
        raise ShapeError(
            f"empty_strided: expected a stride for each size, got {shape} and {steps}"
        )
    chosen = default_dtype() if dtype is None else as_dtype(dtype)
    count = 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    memory = np.empty(0 if 0 in shape else count, chosen.np)
    strides = [s * chosen.itemsize for s in steps]
    array = np.lib.stride_tricks.as_strided(memory, shape, strides)
    return placed(Tensor(array), device, requires_grad)


@public()
def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """Unset elements whose dimensions lie in memory in another order.

    >>> weft.empty_permuted((2, 3, 4), (0, 2, 1)).stride()
    (12, 1, 3)
    """
    shape = parse_size("empty_permuted", (size,))
    order = tuple(physical_layout)
    if sorted(order) != list(range(len(shape))):
        raise ArgumentError(
            f"empty_permuted: expected an order of {len(shape)} dimensions, got {order}"
        )
    steps, step = [0] * len(shape), 1
    for d in reversed(order):
        steps[d] = step
        step *= max(shape[d], 1)
    return empty_strided(shape, steps, **options)


@public()
def frombuffer(
    buffer: Any,
    *,
    dtype: Any,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """A vector over the memory of a buffer, such as a ``bytearray``.

    >>> weft.frombuffer(bytearray([1, 0, 2, 0]), dtype=weft.int16)
    tensor([1, 2], dtype=weft.int16)
    """
    try:
        array = np.frombuffer(buffer, as_dtype(dtype).np, count, offset)
    except ValueError as error:
        raise ArgumentError(f"frombuffer: {error}") from None
    made = from_numpy(array) if array.flags.writeable else Tensor(array)
    return made.requires_grad_() if requires_grad else made


@public()
def from_file(
    filename: str,
    shared: bool | None = False,
    size: int | None = 0,
    *,
    dtype: Any = None,
    **options: Any,
) -> Tensor:
    """A vector over the memory of a file; ``shared`` writes changes to the file.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "numbers")
    ...     _ = path.write_bytes(bytes([1, 2, 3]))
    ...     print(weft.from_file(path, size=3, dtype=weft.uint8).clone())
    tensor([1, 2, 3], dtype=weft.uint8)
    """
    chosen = default_dtype() if dtype is None else as_dtype(dtype)
    count = size or 0
    with open(filename, "r+b" if shared else "rb") as file:
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        memory = mmap.mmap(file.fileno(), count * chosen.itemsize, access=access)
    return placed(from_numpy(np.frombuffer(memory, chosen.np, count)), None, **options)
