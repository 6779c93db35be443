"""Layers over integers, which take the place of ``Linear``, ``Conv`` and ``Embedding``.

    Quantized*    int8 times uint8, with a range of the input that is known before
    Dynamic*      int8 times int8, with a range for each row, or example, as it comes
    WeightOnly*   weights of 8 or 4 bits; all else is float32

Weights, scales and biases are buffers. Sums of int8 are exact, so that eager and
compiled code agree to the bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from weft.nn import functional as F
from weft.nn.activation import activation
from weft.nn.functional.conv import with_batch, without_batch
from weft.nn.module import Module
from weft.ops.conv import im2col_op
from weft.ops.products import wide_matmul_op
from weft.ops.quantized import (
    dequantized,
    quantized,
    unpack_op,
    weight_only_matmul_op,
)
from weft.quantization.numbers import (
    GROUP,
    MOST_TERMS,
    affine,
    finite_array,
    grouped,
    symmetric,
)


class QuantizedModule(Module):
    """The base of quantised layers."""

    bits: int = 8
    weight: Any
    scale: Any
    bias: Any

    def _buffer(self, name: str, array: Any) -> None:
        self.register_buffer(name, weft.tensor(np.ascontiguousarray(array)))

    def _add_bias(self, layer: Any) -> None:
        if layer.bias is None:
            self.register_buffer("bias", None)
        else:
            self._buffer("bias", finite_array("a bias", layer.bias))

    def _biased(self, out: Tensor, along: Any = lambda bias: bias) -> Tensor:
        return out if self.bias is None else out + along(self.bias)

    def _checked(self, input: Any) -> Tensor:
        if not isinstance(input, Tensor) or not input.dtype.is_floating_point:
            kind = input.dtype if isinstance(input, Tensor) else type(input).__name__
            raise DTypeError(
                f"{type(self).__name__}: expected a floating-point tensor, got {kind}"
            )
        return input


def _check_fixed(module: Module, x: Tensor) -> None:
    """Refuse inputs whose gradient the rounding would lose without a word."""
    if x.requires_grad and weft.is_grad_enabled():
        raise AutogradError(
            f"{type(module).__name__}: expected an input that needs no gradient, since "
            "rounded numbers have none; call the model under weft.no_grad(), train it "
            "by weft.quantization.prepare_qat, or use weight_only=True"
        )


def _check_terms(name: str, terms: int) -> None:
    """Refuse sums of products that int32 may not hold."""
    if terms > MOST_TERMS:
        raise ArgumentError(
            f"quantize: {name} sums {terms} products, more than the {MOST_TERMS} whose "
            "sum is sure to fit int32; use weight_only=True for it"
        )


def _dynamic(module: Module, x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """int8 numbers of a range that the largest number decides, and their scale."""
    _check_fixed(module, x)
    most = x.abs().amax(dims, keepdim=True)
    scale = weft.where(most == 0, 1.0, most / 127.0)  # which is NaN of a NaN
    zero = weft.zeros((), dtype=x.dtype, device=x.device)
    return quantized(x, scale, zero, -127, 127, weft.int8), scale


# -- linear layers


class _AnyLinear(QuantizedModule):
    """What linear layers share: sizes, an activation, rows."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.act = layer.act

    def _rows(self, input: Any) -> Tensor:
        x = self._checked(input)
        if not x.ndim or x.shape[-1] != self.in_features:
            raise ShapeError(
                f"{type(self).__name__}: expected input with {self.in_features} "
                f"features in its last dimension, got shape {tuple(x.shape)}"
            )
        return x.reshape(math.prod(x.shape[:-1]), self.in_features).float()

    def _finished(self, out: Tensor, input: Tensor) -> Tensor:
        out = out.reshape(*input.shape[:-1], self.out_features).to(input.dtype)
        return out if self.act is None else activation(self.act)(out)

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}"
        text += f", bits={self.bits}"
        return text if self.act is None else f"{text}, act={self.act!r}"


class QuantizedLinear(_AnyLinear):
    """A linear layer of int8 weights and uint8 inputs of a known range.

    ``input_affine`` has the scale and the zero point of inputs; ``scale`` is of sums.

    >>> layer = weft.nn.Linear(3, 2)
    >>> quantized = weft.quantization.QuantizedLinear(layer, -1.0, 1.0)
    >>> x = 2 * weft.rand(4, 3) - 1
    >>> bool((quantized(x) - layer(x)).abs().max() < 0.05)
    True
    """

    def __init__(self, layer: Any, low: float, high: float) -> None:
        super().__init__(layer)
        _check_terms("a linear layer", layer.in_features)
        weight, scale = symmetric(finite_array("a weight", layer.weight))
        self._buffer("weight", weight)
        _add_affine(self, layer, weight, scale, low, high)

    def forward(self, input: Tensor) -> Tensor:
        x = _bytes_of(self, self._rows(input))
        sums = wide_matmul_op(x, self.weight.t(), dtype=weft.int32)
        return self._finished(sums.float() * self.scale + self.bias, input)


def _add_affine(
    module: QuantizedModule, layer: Any, weight: Any, scale: Any, low: Any, high: Any
) -> None:
    """Add the buffers for inputs of a range; zero points are part of the bias."""
    input_scale, zero_point = affine(low, high)
    both = (input_scale * scale).astype(np.float32)
    sums = weight.reshape(len(weight), -1).astype(np.int64).sum(1)
    bias = -(zero_point * sums) * both.astype(np.float64)
    if layer.bias is not None:
        bias = bias + finite_array("a bias", layer.bias)
    module._buffer("scale", both)
    module._buffer("bias", bias.astype(np.float32))
    module._buffer("input_affine", np.array([input_scale, zero_point], np.float32))


def _bytes_of(module: Any, x: Tensor) -> Tensor:
    """The numbers from 0 to 255 that stand for an input of a known range."""
    _check_fixed(module, x)
    scale, zero_point = module.input_affine[0], module.input_affine[1]
    return quantized(x, scale, zero_point, 0, 255, weft.uint8)


class DynamicLinear(_AnyLinear):
    """A linear layer of int8 weights whose inputs become int8 row by row.

    >>> layer = weft.nn.Linear(3, 2)
    >>> x = weft.rand(4, 3)
    >>> quantized = weft.quantization.DynamicLinear(layer)
    >>> bool((quantized(x) - layer(x)).abs().max() < 0.05)
    True
    """

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        _check_terms("a linear layer", layer.in_features)
        weight, scale = symmetric(finite_array("a weight", layer.weight))
        self._buffer("weight", weight)
        self._buffer("scale", scale)
        self._add_bias(layer)

    def forward(self, input: Tensor) -> Tensor:
        x, scale = _dynamic(self, self._rows(input), (1,))
        sums = wide_matmul_op(x, self.weight.t(), dtype=weft.int32)
        out = sums.float() * (scale * self.scale)
        return self._finished(self._biased(out), input)


class WeightOnlyLinear(_AnyLinear):
    """A linear layer of float32 inputs and weights of 8 or 4 bits.

    Few rows read the packed weights once. Weights of 4 bits have a scale for each group
    of numbers, those of 8 bits one for each row.

    >>> layer = weft.nn.Linear(64, 2)
    >>> x = weft.rand(1, 64)
    >>> quantized = weft.quantization.WeightOnlyLinear(layer, 4)
    >>> bool((quantized(x) - layer(x)).abs().max() < 0.1)
    True
    """

    def __init__(self, layer: Any, bits: int = 8, group: int = GROUP) -> None:
        super().__init__(layer)
        self.bits = bits
        _add_packed(self, finite_array("a weight", layer.weight), bits, group)
        self._add_bias(layer)

    def forward(self, input: Tensor) -> Tensor:
        x = self._rows(input)
        out = weight_only_matmul_op(x, self.weight, self.scale, bits=self.bits)
        return self._finished(self._biased(out), input)


def _add_packed(
    module: QuantizedModule, weight: np.ndarray, bits: int, group: int
) -> None:
    """Add weights as bytes, and their scales (rows, groups)."""
    rows = weight.reshape(len(weight), -1)
    if bits == 4:
        packed, scale = grouped(rows, group)
    else:
        packed, scale = symmetric(rows)
        scale = scale[:, None]
    module._buffer("weight", packed)
    module._buffer("scale", scale)


# -- convolutions


class _AnyConv(QuantizedModule):
    """What convolutions share: sizes, padding, windows."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.rank = layer.rank
        for name in (
            "in_channels", "out_channels", "groups", "kernel_size", "stride",
            "dilation", "padding_mode",
        ):  # fmt: skip
            setattr(self, name, getattr(layer, name))
        self.padding = _amounts(layer)
        self.terms = math.prod(layer.weight.shape[1:])

    def _padded(self, input: Any) -> tuple[Tensor, bool]:
        """The input as (N, C, *S) of float32 with its padding."""
        x, had = with_batch(type(self).__name__, self._checked(input), self.rank)
        if x.shape[1] != self.in_channels:
            raise ShapeError(
                f"{type(self).__name__}: expected {self.in_channels} channels, got "
                f"input of shape {tuple(input.shape)}"
            )
        x = x.float()
        if any(self.padding):
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x = weft.pad(x, list(self.padding), mode=mode)
        return x, had

    def _columns(self, x: Tensor) -> Tensor:
        """Windows of padded images (N, C, *kernel, *counts)."""
        if all(n == 1 for n in self.kernel_size):
            steps = tuple(slice(None, None, step) for step in self.stride)
            out = x[(slice(None), slice(None), *steps)]
            return out.reshape(*x.shape[:2], *self.kernel_size, *out.shape[2:])
        spans = [
            d * (n - 1) + 1
            for n, d in zip(self.kernel_size, self.dilation, strict=True)
        ]
        if any(n < span for n, span in zip(x.shape[2:], spans, strict=True)):
            raise ShapeError(
                f"{type(self).__name__}: a kernel that spans {tuple(spans)} does not "
                f"fit the padded input of size {tuple(x.shape[2:])}; expected at least "
                "one window"
            )
        return im2col_op(
            x, kernel=self.kernel_size, stride=self.stride,
            padding=((0, 0),) * self.rank, dilation=self.dilation,
        )  # fmt: skip

    def _sums(self, columns: Tensor) -> Tensor:
        """Sums of products (N, O, *counts) of windows of bytes."""
        counts = columns.shape[2 + self.rank :]
        count, groups, area = columns.shape[0], self.groups, math.prod(counts)
        lead = (count,) if groups == 1 else (count, groups)
        columns = columns.reshape(*lead, self.terms, area)
        weight = self.weight.reshape(*lead[1:], self.out_channels // groups, self.terms)
        weight = weight.expand(*lead, *weight.shape[-2:])
        sums = wide_matmul_op(weight, columns, dtype=weft.int32)
        return sums.reshape(count, self.out_channels, *counts)

    def _along(self, vector: Tensor) -> Tensor:
        return vector.reshape(-1, *(1,) * self.rank)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, bits={self.bits}"
        )


def _amounts(layer: Any) -> tuple[int, ...]:
    """A convolution's padding, as ``weft.pad`` takes it."""
    amounts: list[int] = []
    for k in reversed(range(layer.rank)):
        if layer.padding == "valid":
            amounts += [0, 0]
        elif layer.padding == "same":
            total = layer.dilation[k] * (layer.kernel_size[k] - 1)
            amounts += [total // 2, total - total // 2]
        else:
            amounts += [layer.padding[k]] * 2
    return tuple(amounts)


class QuantizedConv(_AnyConv):
    """A convolution of int8 weights and uint8 inputs of a known range.

    >>> layer = weft.nn.Conv2d(1, 2, 3, padding=1)
    >>> x = weft.rand(1, 1, 4, 4)
    >>> quantized = weft.quantization.QuantizedConv(layer, 0.0, 1.0)
    >>> bool((quantized(x) - layer(x)).abs().max() < 0.05)
    True
    """

    def __init__(self, layer: Any, low: float, high: float) -> None:
        super().__init__(layer)
        _check_terms("a convolution", self.terms)
        weight, scale = symmetric(finite_array("a weight", layer.weight))
        self._buffer("weight", weight)
        _add_affine(self, layer, weight, scale, low, high)

    def forward(self, input: Tensor) -> Tensor:
        x, had = self._padded(input)
        x = _bytes_of(self, x)  # where it is padded with zeros, they are zero points
        sums = self._sums(self._columns(x))
        out = sums.float() * self._along(self.scale) + self._along(self.bias)
        return without_batch(out.to(input.dtype), had)


class DynamicConv(_AnyConv):
    """A convolution of int8 weights whose inputs become int8 image by image.

    >>> layer = weft.nn.Conv2d(1, 2, 3)
    >>> x = weft.rand(1, 1, 4, 4)
    >>> quantized = weft.quantization.DynamicConv(layer)
    >>> bool((quantized(x) - layer(x)).abs().max() < 0.05)
    True
    """

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        _check_terms("a convolution", self.terms)
        weight, scale = symmetric(finite_array("a weight", layer.weight))
        self._buffer("weight", weight)
        self._buffer("scale", scale)
        self._add_bias(layer)

    def forward(self, input: Tensor) -> Tensor:
        x, had = self._padded(input)
        x, scale = _dynamic(self, x, tuple(range(1, x.ndim)))
        sums = self._sums(self._columns(x))
        out = sums.float() * (scale * self._along(self.scale))
        return without_batch(self._biased(out, self._along).to(input.dtype), had)


class WeightOnlyConv(_AnyConv):
    """A convolution of float32 inputs and weights of 8 or 4 bits.

    >>> layer = weft.nn.Conv2d(1, 2, 3)
    >>> x = weft.rand(1, 1, 4, 4)
    >>> quantized = weft.quantization.WeightOnlyConv(layer, 8)
    >>> bool((quantized(x) - layer(x)).abs().max() < 0.05)
    True
    """

    def __init__(self, layer: Any, bits: int = 8, group: int = GROUP) -> None:
        super().__init__(layer)
        self.bits = bits
        _add_packed(self, finite_array("a weight", layer.weight), bits, group)
        self._add_bias(layer)

    def forward(self, input: Tensor) -> Tensor:
        x, had = self._padded(input)
        rows = dequantized(self.weight, self.scale, size=self.terms, bits=self.bits)
        shape = (
            self.out_channels, self.in_channels // self.groups, *self.kernel_size
        )  # fmt: skip
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.rank - 1]
        out = convolve(
            x, rows.reshape(shape), self.bias, self.stride, 0, self.dilation,
            self.groups,
        )  # fmt: skip
        return without_batch(out.to(input.dtype), had)


# -- tables


class QuantizedEmbedding(QuantizedModule):
    """A table of vectors of 8 or 4 bits; rows become float32 as they are looked up.

    >>> table = weft.nn.Embedding(10, 4)
    >>> quantized = weft.quantization.QuantizedEmbedding(table, 8)
    >>> ids = weft.tensor([3, 1])
    >>> bool((quantized(ids) - table(ids)).abs().max() < 0.05)
    True
    """

    def __init__(self, layer: Any, bits: int = 8, group: int = GROUP) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = (
            layer.num_embeddings, layer.embedding_dim,
        )  # fmt: skip
        self.bits = bits
        _add_packed(self, finite_array("a table", layer.weight), bits, group)

    def forward(self, input: Tensor) -> Tensor:
        numbers = F.embedding(input, self.weight)
        scale = F.embedding(input, self.scale)
        groups = scale.shape[-1]
        if self.bits == 4:
            numbers = unpack_op(numbers, group=2 * self.weight.shape[1] // groups)
        width = numbers.shape[-1] // groups
        split = numbers.float().reshape(*input.shape, groups, width)
        out = (split * scale.unsqueeze(-1)).reshape(*input.shape, groups * width)
        return out[..., : self.embedding_dim]

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, bits={self.bits}"
