"""Training for integers: layers that round as the quantised ones will."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import weft
from weft import Tensor
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.nn.activation import activation
from weft.nn.conv import Conv1d, Conv2d, Conv3d
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.sparse import Embedding
from weft.quantization.conversion import quantizable, replaced
from weft.quantization.folding import folded
from weft.quantization.modules import (
    QuantizedConv,
    QuantizedEmbedding,
    QuantizedLinear,
)


class FakeQuantize(Module):
    """Numbers rounded to 256 of a range that training finds, as running averages.

    >>> fake = weft.quantization.FakeQuantize()
    >>> fake(weft.tensor([0.0, 0.3, 2.55]))
    tensor([0.0000, 0.3000, 2.5500])
    >>> fake.eval()(weft.tensor([0.123, 9.0]))
    tensor([0.1200, 2.5500])
    """

    def __init__(self, momentum: float = 0.01) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("low", weft.tensor(float("inf")))
        self.register_buffer("high", weft.tensor(float("-inf")))

    low: Any
    high: Any

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            seen = input.detach().float()
            self._follow(self.low, seen.amin())
            self._follow(self.high, seen.amax())
        low, high = self.low.clamp(max=0.0), self.high.clamp(min=0.0)
        scale = (high - low) / 255.0
        scale = weft.where(scale > 0, scale, 1.0)
        zero_point = (-low / scale).round()
        return weft.fake_quantize_per_tensor_affine(input, scale, zero_point, 0, 255)

    def _follow(self, running: Tensor, value: Tensor) -> None:
        """Move a running average towards a value, or to the first one."""
        moved = running + self.momentum * (value - running)
        running.copy_(weft.where(weft.isinf(running), value, moved))

    def extra_repr(self) -> str:
        return f"momentum={self.momentum}"


def fake_weight(weight: Tensor) -> Tensor:
    """A weight rounded to 255 numbers of a range for each of its first axis.

    >>> from weft.quantization.training import fake_weight
    >>> fake_weight(weft.tensor([[1.27, 0.123], [12.7, 0.123]]))
    tensor([[ 1.2700,  0.1200],
            [12.7000,  0.1000]])
    """
    most = weight.detach().abs().flatten(1).amax(1)
    scale = weft.where(most > 0, most / 127.0, 1.0)
    zero = weft.zeros_like(scale)
    return weft.fake_quantize_per_channel_affine(weight, scale, zero, 0, -127, 127)


class LinearQAT(Linear):
    """A linear layer in training for int8."""

    input_range: FakeQuantize

    def forward(self, input: Tensor) -> Tensor:
        out = F.linear(self.input_range(input), fake_weight(self.weight), self.bias)
        return out if self.act is None else activation(self.act)(out)


class _ConvQAT:
    """A convolution in training for int8."""

    def forward(self: Any, input: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.rank - 1]
        padded, padding = self._padded(self.input_range(input))
        return convolve(
            padded, fake_weight(self.weight), self.bias, self.stride, padding,
            self.dilation, self.groups,
        )  # fmt: skip


class Conv1dQAT(_ConvQAT, Conv1d):
    """A convolution over (N, C, L) in training for int8."""


class Conv2dQAT(_ConvQAT, Conv2d):
    """A convolution over (N, C, H, W) in training for int8."""


class Conv3dQAT(_ConvQAT, Conv3d):
    """A convolution over (N, C, D, H, W) in training for int8."""


class EmbeddingQAT(Embedding):
    """A table in training for int8."""

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, fake_weight(self.weight), self.padding_idx)


_TRAINED: dict[type, type] = {
    Linear: LinearQAT,
    Conv1d: Conv1dQAT,
    Conv2d: Conv2dQAT,
    Conv3d: Conv3dQAT,
    Embedding: EmbeddingQAT,
}
_PLAIN = {trained: plain for plain, trained in _TRAINED.items()}


def prepare_qat(model: Module, *, skip: Collection[str] = ()) -> Any:
    """A copy of a model whose layers round as int8 does, to be trained further.

    Weights, biases and names stay, so that a state of the model can be loaded; ranges
    of inputs are buffers. Gradients pass through the rounding unchanged. ``convert``
    makes the quantised model of it.

    >>> net = weft.nn.Sequential(weft.nn.Linear(4, 2))
    >>> trained = weft.quantization.prepare_qat(net)
    >>> trained(weft.rand(8, 4)).sum().backward()
    >>> weft.quantization.convert(trained)
    Sequential(
      (0): QuantizedLinear(in_features=4, out_features=2, bits=8)
    )
    """
    net = copy.deepcopy(model)
    for layer in quantizable(net, skip).values():
        layer.__class__ = _TRAINED[type(layer)]
        if not isinstance(layer, Embedding):
            layer.input_range = FakeQuantize().train(layer.training)
    return net


def convert(model: Module) -> Any:
    """The quantised model of one that ``prepare_qat`` made, in eval mode.

    Batch norms that follow a layer in a ``Sequential`` are folded into it; others stay.
    """
    net = copy.deepcopy(model).eval()
    trained = {n: m for n, m in net.named_modules() if type(m) in _PLAIN}
    if not trained:
        raise ArgumentError(
            "convert: expected a model of weft.quantization.prepare_qat, got one "
            "without its layers; weft.quantize needs no training"
        )
    ranges: dict[int, tuple[float, float]] = {}
    for name, layer in trained.items():
        layer.__class__ = _PLAIN[type(layer)]
        if isinstance(layer, Embedding):
            continue
        fake: Any = layer.input_range
        ranges[id(layer)] = float(fake.low), float(fake.high)
        del layer.input_range
        if not ranges[id(layer)][0] <= ranges[id(layer)][1]:
            raise ArgumentError(
                f"convert: {name!r} has seen no input in training mode, so that its "
                "range is not known; train the model for some steps first"
            )
    known = {name: ranges.get(id(layer)) for name, layer in trained.items()}
    net = folded(net)
    return replaced(
        net, {name: _made(net.get_submodule(name), one) for name, one in known.items()}
    )


def _made(layer: Any, known: Any) -> Module:
    if isinstance(layer, Embedding):
        return QuantizedEmbedding(layer, 8)
    make = QuantizedLinear if isinstance(layer, Linear) else QuantizedConv
    return make(layer, *known)
