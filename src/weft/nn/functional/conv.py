"""Convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

from typing import Any

import weft
from weft import DType, Tensor, reshape
from weft.core.autocast import lowered
from weft.core.mode import mode
from weft.errors import ArgumentError, DTypeError, RankError, ShapeError
from weft.ops.conv import (
    Pairs,
    Sizes,
    conv_bias_op,
    conv_input_grad_op,
    conv_op,
    window_counts,
)
from weft.ops.elementwise import check_accepts

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]

# -- arguments


def sizes_of(name: str, what: str, value: Any, count: int, low: int = 0) -> Sizes:
    """One int for all dimensions, or one each, none smaller than ``low``."""
    listed = list(value) if isinstance(value, (tuple, list)) else [value]
    wanted = "an int" if count == 1 else f"an int or {count} ints"
    try:
        sizes = [n.__index__() for n in listed]
    except AttributeError:
        raise DTypeError(
            f"{name}: expected {what} to be {wanted}, got {value!r}"
        ) from None
    if len(sizes) == 1:
        sizes *= count
    if len(sizes) != count:
        raise ArgumentError(f"{name}: expected {what} to be {wanted}, got {value!r}")
    if min(sizes) < low:
        raise ArgumentError(f"{name}: expected {what} of at least {low}, got {value!r}")
    return tuple(sizes)


def with_batch(name: str, x: Tensor, spatial: int) -> tuple[Tensor, bool]:
    """(N, C, *S) from that or from (C, *S), and whether the batch was there."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.ndim == spatial + 2:
        return x, True
    if x.ndim == spatial + 1:
        return reshape(x, (1, *x.shape)), False
    raise RankError(
        f"{name}: expected input of {spatial + 2} dimensions (batch, channels, and "
        f"{spatial} more) or, without a batch, {spatial + 1}; got shape {x.shape}"
    )


def without_batch(x: Tensor, had: bool) -> Tensor:
    """Undo what ``with_batch`` added."""
    return x if had else reshape(x, x.shape[1:])


def _check_weight(name: str, x: Tensor, w: Tensor, groups: Any, spatial: int) -> None:
    if not isinstance(w, Tensor) or w.ndim != spatial + 2:
        came = f"shape {w.shape}" if isinstance(w, Tensor) else type(w).__name__
        raise ShapeError(
            f"{name}: expected a weight tensor of {spatial + 2} dimensions, got {came}"
        )
    check_accepts(name, "real number", x.dtype)
    if w.dtype is not x.dtype:
        raise DTypeError(
            f"{name}: expected input and weight of one dtype, got {x.dtype.name} and "
            f"{w.dtype.name}. Convert one with .to(...)"
        )
    if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1:
        raise ArgumentError(f"{name}: expected groups to be at least 1, got {groups!r}")
    if 0 in w.shape:
        raise ShapeError(f"{name}: expected a weight with elements, got {w.shape}")
    if w.shape[0] % groups:
        raise ArgumentError(
            f"{name}: groups must divide the weight's first dimension, got "
            f"{groups} groups for weight of shape {w.shape}"
        )


def _check_channels(name: str, x: Tensor, w: Tensor, groups: int, want: int) -> None:
    if x.shape[1] != want:
        raise ShapeError(
            f"{name}: weight of shape {w.shape} with {groups} groups expects input of "
            f"{want} channels, got {x.shape[1]} channels (input shape {x.shape})"
        )


def _check_bias(name: str, bias: Any, channels: int, dtype: DType) -> None:
    if not isinstance(bias, Tensor) or bias.shape != (channels,):
        came = f"shape {bias.shape}" if isinstance(bias, Tensor) else repr(bias)
        raise ShapeError(
            f"{name}: expected bias of shape ({channels},), one an output channel, "
            f"got {came}"
        )
    if bias.dtype is not dtype:
        raise DTypeError(
            f"{name}: expected input and bias of one dtype, got {dtype.name} and "
            f"{bias.dtype.name}. Convert one with .to(...)"
        )


def _padding(
    name: str, padding: Any, kernel: Sizes, stride: Sizes, dilation: Sizes
) -> Pairs:
    """Padding before and after, from a number, a name or pairs of numbers."""
    if isinstance(padding, tuple) and any(isinstance(p, tuple) for p in padding):
        return _pairs(name, padding, len(kernel))
    if not isinstance(padding, str):
        return tuple((p, p) for p in sizes_of(name, "padding", padding, len(kernel)))
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding != "same":
        raise ArgumentError(
            f"{name}: expected padding to be 'same', 'valid' or ints, got {padding!r}"
        )
    if any(s != 1 for s in stride):
        raise ArgumentError(
            f"{name}: padding='same' needs stride 1, got stride {stride}; give the "
            "padding as ints"
        )
    spans = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((n // 2, n - n // 2) for n in spans)


def _pairs(name: str, padding: Any, axes: int) -> Pairs:
    """Padding that differs between the two ends of an axis."""
    if len(padding) != axes:
        raise ArgumentError(
            f"{name}: expected {axes} pairs (before, after) as padding, got {padding!r}"
        )
    ends = [sizes_of(name, "padding", pair, 2) for pair in padding]
    return tuple((before, after) for before, after in ends)


def _check_fits(
    name: str, size: Sizes, kernel: Sizes, padding: Pairs, dilation: Sizes
) -> None:
    ones = (1,) * len(size)
    if any(n < 1 for n in window_counts(size, kernel, ones, padding, dilation)):
        full = tuple(n + lo + hi for n, (lo, hi) in zip(size, padding, strict=True))
        spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
        raise ShapeError(
            f"{name}: a kernel that spans {spans} does not fit the padded input of "
            f"size {full}; expected at least one window"
        )


# -- convolutions


def _conv(
    spatial: int, input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any,
    dilation: Any, groups: Any,
) -> Tensor:  # fmt: skip
    if input.dtype.is_complex and weight.dtype is input.dtype:
        given = stride, padding, dilation, groups
        return _of_parts(
            lambda x, w: _conv(spatial, x, w, None, *given), input, weight, bias
        )
    name = f"conv{spatial}d"
    if mode.autocast is not None:
        input, weight, bias = lowered(input, weight, bias)
    x, had = with_batch(name, input, spatial)
    _check_weight(name, x, weight, groups, spatial)
    _check_channels(name, x, weight, groups, weight.shape[1] * groups)
    steps = sizes_of(name, "stride", stride, spatial, 1)
    spread = sizes_of(name, "dilation", dilation, spatial, 1)
    kernel = weight.shape[2:]
    pads = _padding(name, padding, kernel, steps, spread)
    _check_fits(name, x.shape[2:], kernel, pads, spread)
    params = {"stride": steps, "padding": pads, "dilation": spread, "groups": groups}
    if bias is None:
        return without_batch(conv_op(x, weight, **params), had)
    _check_bias(name, bias, weight.shape[0], x.dtype)
    return without_batch(conv_bias_op(x, weight, bias, **params), had)


def _of_parts(conv: Any, x: Tensor, w: Tensor, bias: Any) -> Tensor:
    """A convolution of complex numbers: those of their real and imaginary parts."""
    real = conv(x.real, w.real) - conv(x.imag, w.imag)
    out = weft.complex(real, conv(x.real, w.imag) + conv(x.imag, w.real))
    if bias is None:
        return out
    return out + reshape(bias, (-1, *[1] * (w.ndim - 2)))


def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Each output: a weighted sum of a window of the input (N, C, L) or (C, L).

    ``weight`` is (out, C / groups, kernel); ``padding`` an int, ``"same"`` or
    ``"valid"``.

    >>> x = weft.tensor([[1.0, 2.0, 4.0]])
    >>> weft.nn.functional.conv1d(x, weft.tensor([[[-1.0, 1.0]]]))
    tensor([[1., 2.]])
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Each output: a weighted sum of a window of the input (N, C, H, W).

    ``weight`` is (out, C / groups, height, width); ``padding`` one int or two,
    a pair for each axis (``((top, bottom), (left, right))``), ``"same"`` or
    ``"valid"``. The batch dimension may be left out.

    >>> x, w = weft.ones(1, 3, 8, 8), weft.ones(5, 3, 3, 3)
    >>> weft.nn.functional.conv2d(x, w, stride=2, padding=1).shape
    (1, 5, 4, 4)
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Each output: a weighted sum of a window of the input (N, C, D, H, W).

    >>> x, w = weft.ones(1, 3, 4, 8, 8), weft.ones(5, 3, 1, 3, 3)
    >>> weft.nn.functional.conv3d(x, w, padding="same").shape
    (1, 5, 4, 8, 8)
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


# -- transposed convolutions


def _conv_transpose(
    spatial: int, input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any,
    output_padding: Any, groups: Any, dilation: Any,
) -> Tensor:  # fmt: skip
    if input.dtype.is_complex and weight.dtype is input.dtype:
        given = stride, padding, output_padding, groups, dilation
        return _of_parts(
            lambda x, w: _conv_transpose(spatial, x, w, None, *given),
            input, weight, bias,
        )  # fmt: skip
    name = f"conv_transpose{spatial}d"
    if mode.autocast is not None:
        input, weight, bias = lowered(input, weight, bias)
    x, had = with_batch(name, input, spatial)
    _check_weight(name, x, weight, groups, spatial)
    _check_channels(name, x, weight, groups, weight.shape[0])
    steps = sizes_of(name, "stride", stride, spatial, 1)
    spread = sizes_of(name, "dilation", dilation, spatial, 1)
    pads = sizes_of(name, "padding", padding, spatial)
    extra = sizes_of(name, "output_padding", output_padding, spatial)
    size = _transposed_size(name, x, weight, steps, pads, extra, spread)
    out = conv_input_grad_op(
        x,
        weight,
        size=size,
        stride=steps,
        # the cells added at the end are those that a convolution would not reach
        padding=tuple((p, p - e) for p, e in zip(pads, extra, strict=True)),
        dilation=spread,
        groups=groups,
    )
    if bias is not None:
        _check_bias(name, bias, out.shape[1], out.dtype)
        out = out + reshape(bias, (-1, *(1,) * spatial))
    return without_batch(out, had)


def _transposed_size(
    name: str, x: Tensor, w: Tensor, stride: Sizes, padding: Sizes, extra: Sizes,
    dilation: Sizes,
) -> Sizes:  # fmt: skip
    size = []
    for n, k, s, p, e, d in zip(
        x.shape[2:], w.shape[2:], stride, padding, extra, dilation, strict=True
    ):
        if e >= max(s, d):
            raise ArgumentError(
                f"{name}: expected output_padding smaller than stride or dilation, "
                f"got output_padding {extra}, stride {stride}, dilation {dilation}"
            )
        size.append((n - 1) * s - 2 * p + d * (k - 1) + e + 1)
    if min(size) < 1 or 0 in x.shape[2:]:
        raise ShapeError(
            f"{name}: input of shape {x.shape} with kernel {w.shape[2:]} and padding "
            f"{padding} would give an output of size {tuple(size)}; expected at least 1"
        )
    return tuple(size)


def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
    padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The transpose of ``conv1d``: each input spreads a weighted window.

    ``weight`` is (C, out / groups, kernel).

    >>> x = weft.tensor([[1.0, 10.0]])
    >>> w = weft.tensor([[[1.0, 2.0]]])
    >>> weft.nn.functional.conv_transpose1d(x, w, stride=2)
    tensor([[ 1.,  2., 10., 20.]])
    """
    return _conv_transpose(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
    padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The transpose of ``conv2d``: each input spreads a weighted window.

    ``weight`` is (C, out / groups, height, width); ``output_padding`` says which
    of the sizes that ``conv2d`` would shrink to the input's is meant.

    >>> x, w = weft.ones(1, 4, 5, 5), weft.ones(4, 2, 3, 3)
    >>> up = weft.nn.functional.conv_transpose2d
    >>> up(x, w, stride=2, padding=1, output_padding=1).shape
    (1, 2, 10, 10)
    """
    return _conv_transpose(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
    padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The transpose of ``conv3d``: each input spreads a weighted window.

    >>> x, w = weft.ones(1, 4, 2, 2, 2), weft.ones(4, 2, 2, 2, 2)
    >>> weft.nn.functional.conv_transpose3d(x, w, stride=2).shape
    (1, 2, 4, 4, 4)
    """
    return _conv_transpose(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )
