"""Convolution and pooling over windows of images of any number of axes."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor
from weft.nn import functional as F
from weft.onnx.errors import ModelError
from weft.onnx.registry import operator
from weft.onnx.types import numbers

Pairs = list[tuple[Any, Any]]


def ends_of(
    x: Tensor, kernel: Any, strides: Any, dilations: Any, pads: Any, auto: str
) -> Pairs:
    """How many elements windows reach beyond both ends of each axis."""
    count = len(kernel)
    if auto == "VALID":
        return [(0, 0)] * count
    if auto == "NOTSET":
        pads = pads or (0,) * (2 * count)
        if len(pads) != 2 * count:
            raise ModelError(f"expected {2 * count} numbers of pads, got {len(pads)}")
        return list(zip(pads[:count], pads[count:], strict=True))
    ends = []
    for k in range(count):
        size = x.shape[2 + k]
        reach = (kernel[k] - 1) * dilations[k] + 1
        total = max(0, (-(-size // strides[k]) - 1) * strides[k] + reach - size)
        half = total // 2
        upper = auto == "SAME_UPPER"
        ends.append((half, total - half) if upper else (total - half, half))
    return ends


def padded(x: Tensor, ends: Pairs, value: Any = 0) -> Tensor:
    """A tensor with more elements at the ends of its last axes."""
    if all(a == 0 and b == 0 for a, b in ends):
        return x
    return F.pad(x, [n for pair in reversed(ends) for n in pair], value=value)


_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _of(table: Any, rank: int) -> Any:
    if rank not in table:
        raise ModelError(f"expected 1 to 3 axes besides batch and channels, got {rank}")
    return table[rank]


@operator("Conv")
def conv(
    x: Tensor, w: Tensor, b: Any = None, *, kernel_shape: Any = None,
    strides: Any = None, dilations: Any = None, pads: Any = None, group: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:  # fmt: skip
    """Sums of windows, weighted by filters."""
    rank = w.ndim - 2
    kernel = tuple(w.shape[2:])
    if kernel_shape is not None and tuple(kernel_shape) != kernel:
        raise ModelError(f"expected kernel_shape {list(kernel)}, got {kernel_shape}")
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    ends = ends_of(x, kernel, strides, dilations, pads, auto_pad)
    even = all(a == b for a, b in ends)
    x = x if even else padded(x, ends)
    padding = tuple(a for a, _ in ends) if even else (0,) * rank
    return _of(_CONV, rank)(x, w, b, tuple(strides), padding, tuple(dilations), group)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor, w: Tensor, b: Any = None, *, kernel_shape: Any = None,
    strides: Any = None, dilations: Any = None, pads: Any = None, group: int = 1,
    auto_pad: str = "NOTSET", output_padding: Any = None, output_shape: Any = None,
) -> Tensor:  # fmt: skip
    """The transpose of a convolution."""
    rank = w.ndim - 2
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    extra = output_padding or (0,) * rank
    whole = [
        (x.shape[2 + k] - 1) * strides[k] + (w.shape[2 + k] - 1) * dilations[k] + 1
        + extra[k]
        for k in range(rank)
    ]  # fmt: skip
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = output_shape or [x.shape[2 + k] * strides[k] for k in range(rank)]
        ends = []
        for have, want in zip(whole, wanted[-rank:], strict=True):
            total = have - want
            half = total // 2
            ends.append((total - half, half) if auto_pad == "SAME_LOWER"
                        else (half, total - half))  # fmt: skip
        if auto_pad != "SAME_UPPER" and output_shape and auto_pad == "NOTSET":
            ends = [(b, a) for a, b in ends]
    else:
        ends = ends_of(x, w.shape[2:], strides, dilations, pads, auto_pad)
    bare = _of(_TRANSPOSE, rank)(
        x, w, None, tuple(strides), (0,) * rank, (0,) * rank, group, tuple(dilations)
    )
    y = padded(bare, [(0, e) for e in extra])
    y = cut(y, ends, whole)
    return y if b is None else y + b.reshape(1, -1, *(1,) * rank)


def cut(y: Tensor, ends: Pairs, whole: Any) -> Tensor:
    """Without elements at the ends of the last axes; with zeros where fewer than 0."""
    for k, ((a, b), size) in enumerate(zip(ends, whole, strict=True)):
        a, b = max(a, 0), max(b, 0)
        if a or b:
            y = y.narrow(2 + k, a, size - a - b)
    return padded(y, [(max(-a, 0), max(-b, 0)) for a, b in ends])


@operator("DeformConv")
def deform_conv(
    x: Tensor, w: Tensor, offset: Tensor, b: Any = None, mask: Any = None, *,
    kernel_shape: Any = None, strides: Any = None, dilations: Any = None,
    pads: Any = None, group: int = 1, offset_group: int = 1,
) -> Tensor:  # fmt: skip
    """A convolution whose windows' elements are moved, image by image."""
    n, c, height, width = x.shape
    kernel = tuple(w.shape[2:])
    strides, dilations = strides or (1, 1), dilations or (1, 1)
    (top, _), (left, _) = ends_of(x, kernel, strides, dilations, pads, "NOTSET")
    taps, rows, columns = math.prod(kernel), offset.shape[2], offset.shape[3]
    moved = offset.reshape(n, offset_group, taps, 2, rows, columns)
    parts = []
    for tap in range(taps):
        i, j = divmod(tap, kernel[1])
        at_y = weft.arange(rows).reshape(-1, 1) * strides[0] + (i * dilations[0] - top)
        at_x = weft.arange(columns) * strides[1] + (j * dilations[1] - left)
        y, at = at_y + moved[:, :, tap, 0], at_x + moved[:, :, tap, 1]  # (N, G, H, W)
        grid = weft.stack([(2 * at + 1) / width - 1, (2 * y + 1) / height - 1], -1)
        one = F.grid_sample(
            x.reshape(n * offset_group, c // offset_group, height, width),
            grid.flatten(0, 1), align_corners=False,
        )  # fmt: skip
        one = one.reshape(n, offset_group, c // offset_group, rows, columns)
        if mask is not None:
            shape = (n, offset_group, taps, 1, rows, columns)
            one = one * mask.reshape(shape)[:, :, tap]
        parts.append(one.reshape(n, group, c // group, rows * columns))
    columns_ = weft.stack(parts, 3)  # (N, G, C/G, taps, H*W)
    weights = w.reshape(group, w.shape[0] // group, c // group, taps)
    out = weft.einsum("ngctp,gmct->ngmp", columns_, weights)
    out = out.reshape(n, w.shape[0], rows, columns)
    return out if b is None else out + b.reshape(1, -1, 1, 1)


@operator("Col2Im", static=(1, 2))
def col2im(
    x: Tensor, image_shape: Any, block_shape: Any, *, dilations: Any = None,
    pads: Any = None, strides: Any = None,
) -> Tensor:  # fmt: skip
    """Windows added up to the images that they were cut from."""
    image, block = numbers(image_shape), numbers(block_shape)
    rank = len(block)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or (0,) * (2 * rank)
    ends = list(zip(pads[:rank], pads[rank:], strict=True))
    whole = [n + a + b for n, (a, b) in zip(image, ends, strict=True)]
    counts = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(whole, block, dilations, strides, strict=True)
    ]
    channels = x.shape[1] // math.prod(block)
    at: Any = weft.zeros((1, 1), dtype=weft.int64)
    for n, k, d, s, c in zip(whole, block, dilations, strides, counts, strict=True):
        place = weft.arange(k).reshape(-1, 1) * d + weft.arange(c) * s  # (K, L)
        at = at.unsqueeze(1).unsqueeze(3) * n + place.unsqueeze(0).unsqueeze(2)
        at = at.reshape(at.shape[0] * at.shape[1], -1)
    flat = at.reshape(1, 1, -1).expand(x.shape[0], channels, -1)
    src = x.reshape(x.shape[0], channels, -1)
    out = weft.zeros((x.shape[0], channels, math.prod(whole)), dtype=x.dtype)
    out = out.scatter_add(2, flat, src).reshape(x.shape[0], channels, *whole)
    return cut(out, ends, whole)
