"""``weft.vision.utils``: many pictures in one, and in a file."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.ops.creation import tensor as make
from weft.ops.joining import stack
from weft.training.events import png


def make_grid(
    tensor: Any, nrow: int = 8, padding: int = 2, normalize: bool = False,
    value_range: tuple[float, float] | None = None, scale_each: bool = False,
    pad_value: float = 0.0, **_: Any,
) -> Tensor:  # fmt: skip
    """Pictures (N, C, H, W) as one, ``nrow`` in a row.

    >>> weft.vision.utils.make_grid(weft.zeros(5, 3, 4, 4), nrow=4).shape
    (3, 14, 26)
    """
    given = stack(tensor) if isinstance(tensor, (list, tuple)) else tensor
    array = given.detach().numpy()
    array = array[(None,) * (4 - array.ndim)] if array.ndim < 4 else array
    array = array.repeat(3, 1) if array.shape[1] == 1 else array
    if normalize:
        array = _normalized(array, value_range, scale_each)
    count, channels, height, width = array.shape
    if count == 1:
        return make(array[0])
    columns = min(nrow, count)
    tall, wide = height + padding, width + padding
    shape = (
        channels,
        math.ceil(count / columns) * tall + padding,
        columns * wide + padding,
    )
    grid = np.full(shape, pad_value, array.dtype)
    for k, picture in enumerate(array):
        y, x = k // columns * tall + padding, k % columns * wide + padding
        grid[:, y : y + height, x : x + width] = picture
    return make(grid)


def _normalized(array: np.ndarray, limits: Any, each: bool) -> np.ndarray:
    axes = (1, 2, 3) if each else None
    low = array.min(axes, keepdims=True) if limits is None else limits[0]
    high = array.max(axes, keepdims=True) if limits is None else limits[1]
    return (array.clip(low, high) - low) / np.maximum(high - low, 1e-5)


def save_image(tensor: Any, fp: Any, format: str | None = None, **options: Any) -> None:
    """Write pictures as one PNG file; options are ``make_grid``'s.

    >>> import io
    >>> file = io.BytesIO()
    >>> weft.vision.utils.save_image(weft.zeros(3, 4, 4), file)
    >>> file.getvalue()[1:4]
    b'PNG'
    """
    name = str(format or (fp if isinstance(fp, (str, pathlib.Path)) else "png"))
    if not name.lower().endswith("png"):
        raise ValueError(f"save_image: expected a PNG file, got {name!r}")
    grid = make_grid(tensor, **options).numpy()
    pixels = (grid * 255 + 0.5).clip(0, 255).astype(np.uint8).transpose(1, 2, 0)
    content = png(np.ascontiguousarray(pixels))
    if hasattr(fp, "write"):
        fp.write(content)
    else:
        pathlib.Path(fp).write_bytes(content)
