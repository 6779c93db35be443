"""Batch normalisation folded into layers, and layers without first values."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import weft
from weft import Tensor
from weft.nn.module import Module
from weft.nn.parameter import Parameter


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor | None, bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The weight and bias of a convolution with a batch norm folded in.

    >>> one = weft.ones(1)
    >>> weight, bias = weft.nn.utils.fuse_conv_bn_weights(
    ...     weft.ones(1, 1, 1), None, one, one, 0.0, 2 * one, 3 * one
    ... )
    >>> float(weight.sum()), float(bias)
    (2.0, 1.0)
    """
    bias = weft.zeros_like(bn_rm) if conv_b is None else conv_b
    scale = weft.rsqrt(bn_rv + bn_eps) * (1 if bn_w is None else bn_w)
    shift = weft.zeros_like(bn_rm) if bn_b is None else bn_b
    lead = (1, -1) if transpose else (-1, 1)
    shape = (*lead, *(1,) * (conv_w.ndim - 2))
    weight = conv_w * scale.reshape(shape)
    bias = (bias - bn_rm) * scale + shift
    return (
        Parameter(weight.detach().to(conv_w.dtype), conv_w.requires_grad),
        Parameter(bias.detach(), conv_w.requires_grad),
    )


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what it and a batch norm do in evaluation.

    >>> conv, bn = weft.nn.Conv2d(2, 3, 1).eval(), weft.nn.BatchNorm2d(3).eval()
    >>> x = weft.rand(1, 2, 4, 4)
    >>> fused = weft.nn.utils.fuse_conv_bn_eval(conv, bn)
    >>> bool((fused(x) - bn(conv(x))).abs().max() < 1e-5)
    True
    """
    _check("Conv", conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight,
        bn.bias, transpose,
    )  # fmt: skip
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor,
    bn_eps: float, bn_w: Tensor, bn_b: Tensor,
) -> tuple[Any, Any]:  # fmt: skip
    """The weight and bias of a linear layer with a batch norm folded in.

    >>> one = weft.ones(1)
    >>> weight, bias = weft.nn.utils.fuse_linear_bn_weights(
    ...     weft.ones(1, 1), None, one, one, 0.0, 2 * one, 3 * one
    ... )
    >>> float(weight.sum()), float(bias)
    (2.0, 1.0)
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what it and a batch norm do in evaluation.

    >>> linear, norm = weft.nn.Linear(2, 3).eval(), weft.nn.BatchNorm1d(3).eval()
    >>> fused = weft.nn.utils.fuse_linear_bn_eval(linear, norm)
    >>> x = weft.randn(4, 2)
    >>> weft.allclose(fused(x), norm(linear(x)), atol=1e-6)
    True
    """
    _check("Linear", linear, bn)
    if linear.out_features != bn.num_features:
        raise ValueError(
            "To fuse, linear.out_features == bn.num_features is expected, got "
            f"{linear.out_features} and {bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        linear.weight, linear.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight,
        bn.bias,
    )  # fmt: skip
    return fused


def _check(kind: str, layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise ValueError(f"{kind} and BN are fused in eval mode; call .eval() first")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError("Fusion needs a batch norm that tracks running statistics")


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters have yet to be set; random numbers are not drawn.

    >>> weft.nn.utils.skip_init(weft.nn.Linear, 5, 1).weight.shape
    (1, 5)
    """
    if not (inspect.isclass(module_cls) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    before = weft.default_generator.get_state()
    made = module_cls(*args, **kwargs)
    weft.default_generator.set_state(before)
    return made


def _laid(module: Any, memory_format: Any, ndim: int) -> Any:
    for one in module.modules():
        weight = one._parameters.get("weight")
        if weight is not None and weight.ndim == ndim and "Conv" in type(one).__name__:
            weight.data = weight.detach().to(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The weights of two-dimensional convolutions in a memory format.

    >>> layer = weft.nn.Conv2d(2, 3, 2)
    >>> convert = weft.nn.utils.convert_conv2d_weight_memory_format
    >>> convert(layer, weft.channels_last).weight.shape
    (3, 2, 2, 2)
    """
    return _laid(module, memory_format, 4)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The weights of three-dimensional convolutions in a memory format.

    >>> conv = weft.nn.Conv3d(2, 2, 2)
    >>> form = weft.channels_last_3d
    >>> out = weft.nn.utils.convert_conv3d_weight_memory_format(conv, form)
    >>> out.weight.is_contiguous(memory_format=form)
    True
    """
    return _laid(module, memory_format, 5)
