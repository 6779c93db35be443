"""Whole numbers that stand for others: ``(x - zero_point) * scale``."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.casting import cast_to
from weft.onnx.operators.convolution import conv, ends_of, padded
from weft.onnx.registry import operator
from weft.onnx.types import dtype_of


def _along(v: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A number, one for each slice of an axis, or one for each block of it."""
    if v.ndim == 0 or (v.ndim == 1 and v.shape[0] == 1 and not block):
        return v.reshape(())
    axis %= x.ndim
    if block:
        return v.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    return v.reshape(-1, *(1,) * (x.ndim - 1 - axis))


@operator("QuantizeLinear", frozen=(1, 2))
def quantize(
    x: Tensor, scale: Tensor, zero: Any = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, saturate: int = 1, precision: int = 0,
) -> Tensor:  # fmt: skip
    """The nearest whole number, or narrow float, of each quotient."""
    wanted = dtype_of(output_dtype) if output_dtype else weft.uint8
    wanted = wanted if zero is None else zero.dtype
    size = _along(scale, x, axis, block_size)
    kind = (
        dtype_of(precision)
        if precision
        else (x.dtype if x.dtype.is_floating_point else size.dtype)
    )
    y = x.to(kind) / size.to(kind)
    if wanted.is_floating_point:
        return cast_to(y, wanted, saturate)
    y = weft.round(y.float())
    if zero is not None:
        y = y + _along(zero, x, axis, block_size).to(y.dtype)
    limits = weft.iinfo(wanted)
    return y.clamp(limits.min, limits.max).to(wanted)


@operator("DequantizeLinear", frozen=(1, 2))
def dequantize(
    x: Tensor, scale: Tensor, zero: Any = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    """The numbers that whole numbers stand for."""
    wanted = dtype_of(output_dtype) if output_dtype else scale.dtype
    size = _along(scale, x, axis, block_size).float()
    wide = x.to(weft.int32) if not x.dtype.is_floating_point else x.float()
    if zero is not None:
        wide = wide - _along(zero, x, axis, block_size).to(wide.dtype)
    return (wide.float() * size).to(wanted)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(x: Tensor) -> tuple[Tensor, ...]:
    """Numbers of eight bits, whose scale is that of the tensor."""
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (high - low) / 255
    safe = weft.where(scale == 0, weft.ones_like(scale), scale)
    zero = weft.round(-low / safe).clamp(0, 255)
    y = (weft.round(x / safe) + zero).clamp(0, 255)
    return y.to(weft.uint8), scale, zero.to(weft.uint8)


def _centred(x: Tensor, zero: Any, rows: bool) -> Tensor:
    """Without the zero point: of all, or of each row or column."""
    wide = x.to(weft.int32)
    if zero is None:
        return wide
    zero = zero.to(weft.int32)
    if zero.ndim == 1 and zero.shape[0] > 1:
        zero = zero.unsqueeze(-1) if rows else zero
    return wide - zero


@operator("MatMulInteger", frozen=(2, 3))
def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Any = None, b_zero: Any = None
) -> Tensor:
    """A product of matrices of whole numbers."""
    return weft.matmul(_centred(a, a_zero, True), _centred(b, b_zero, False))


def _requantized(y: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    limits = weft.iinfo(zero.dtype)
    moved = weft.round(y * scale.float()) + zero.to(weft.float32)
    return moved.clamp(limits.min, limits.max).to(zero.dtype)


@operator("QLinearMatMul", frozen=(1, 2, 4, 5, 6, 7))
def qlinear_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, y_scale: Tensor, y_zero: Tensor,
) -> Tensor:  # fmt: skip
    """A product of quantized matrices, quantized again."""
    y = matmul_integer(a, b, a_zero, b_zero).float()
    scale = a_scale.float() * b_scale.float() / y_scale.float()
    return _requantized(y, scale, y_zero)


@operator("ConvInteger", frozen=(2, 3))
def conv_integer(
    x: Tensor, w: Tensor, x_zero: Any = None, w_zero: Any = None, *,
    kernel_shape: Any = None, strides: Any = None, dilations: Any = None,
    pads: Any = None, group: int = 1, auto_pad: str = "NOTSET",
) -> Tensor:  # fmt: skip
    """A convolution of whole numbers, which float64 holds exactly."""
    rank = w.ndim - 2
    wide = _centred(x, x_zero, False).double()
    zero = w_zero
    if zero is not None and zero.ndim == 1 and zero.shape[0] > 1:
        zero = zero.reshape(-1, *(1,) * (rank + 1))
    filters = (
        w.to(weft.int32) if zero is None else w.to(weft.int32) - zero.to(weft.int32)
    )
    ends = ends_of(x, w.shape[2:], strides or (1,) * rank, dilations or (1,) * rank,
                   pads, auto_pad)  # fmt: skip
    y = conv(padded(wide, ends), filters.double(), strides=strides, dilations=dilations,
             group=group)  # fmt: skip
    return y.to(weft.int32)


@operator("QLinearConv", frozen=(1, 2, 4, 5, 6, 7))
def qlinear_conv(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor,
    w_zero: Tensor, y_scale: Tensor, y_zero: Tensor, b: Any = None, *,
    kernel_shape: Any = None, strides: Any = None, dilations: Any = None,
    pads: Any = None, group: int = 1, auto_pad: str = "NOTSET",
) -> Tensor:  # fmt: skip
    """A convolution of quantized tensors, quantized again."""
    y = conv_integer(
        x, w, x_zero, w_zero, strides=strides, dilations=dilations, pads=pads,
        group=group, auto_pad=auto_pad,
    )  # fmt: skip
    shape = (1, -1, *(1,) * (w.ndim - 2))
    if b is not None:
        y = y + b.reshape(shape)
    scale = x_scale.float() * w_scale.float() / y_scale.float()
    scale = scale.reshape(shape) if scale.ndim == 1 and scale.shape[0] > 1 else scale
    return _requantized(y.float(), scale, y_zero)
