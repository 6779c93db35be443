"""PyTorch's module paths: ``weft.nn.modules.conv.Conv2d`` is ``weft.nn.Conv2d``.

Each submodule is an alias, made from the table below, for names that live elsewhere.
``utils`` is the only one with functions of its own.
"""

from __future__ import annotations

import importlib
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any

import weft.nn as _nn
from weft.nn.modules import utils

_DIMS = ("1d", "2d", "3d")


def _each(stem: str) -> list[str]:
    return [stem + dims for dims in _DIMS]


# Where the private names of a submodule come from, and its public ones.
_TABLE: dict[str, tuple[dict[str, str], list[str]]] = {
    "activation": (
        {},
        ["Threshold", "ReLU", "RReLU", "Hardtanh", "ReLU6", "Sigmoid",
         "Hardsigmoid", "Tanh", "SiLU", "Mish", "Hardswish", "ELU", "CELU",
         "SELU", "GLU", "GELU", "Hardshrink", "LeakyReLU", "LogSigmoid",
         "Softplus", "Softshrink", "MultiheadAttention", "PReLU", "Softsign",
         "Tanhshrink", "Softmin", "Softmax", "Softmax2d", "LogSoftmax"],
    ),
    "adaptive": ({"_ASMoutput": "adaptive:_ASMoutput"}, ["AdaptiveLogSoftmaxWithLoss"]),
    "batchnorm": (
        {"_NormBase": "norm:_Statistics", "_BatchNorm": "norm:_BatchNorm",
         "_LazyNormBase": "norm:_LazyStatistics"},
        [*_each("BatchNorm"), *_each("LazyBatchNorm"), "SyncBatchNorm"],
    ),
    "channelshuffle": ({}, ["ChannelShuffle"]),
    "container": (
        {},
        ["Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList",
         "ParameterDict"],
    ),
    "conv": (
        {"_ConvNd": "conv:_Conv", "_ConvTransposeNd": "conv:_ConvTranspose",
         "_LazyConvXdMixin": "conv:_LazyConv"},
        [*_each("Conv"), *_each("ConvTranspose"), *_each("LazyConv"),
         *_each("LazyConvTranspose")],
    ),
    "distance": ({}, ["PairwiseDistance", "CosineSimilarity"]),
    "dropout": (
        {"_DropoutNd": "dropout:_Dropout"},
        ["Dropout", *_each("Dropout"), "AlphaDropout", "FeatureAlphaDropout"],
    ),
    "flatten": ({}, ["Flatten", "Unflatten"]),
    "fold": ({}, ["Fold", "Unfold"]),
    "instancenorm": (
        {"_InstanceNorm": "norm:_InstanceNorm"},
        [*_each("InstanceNorm"), *_each("LazyInstanceNorm")],
    ),
    "lazy": ({"LazyModuleMixin": "lazy:LazyMixin"}, []),
    "linear": (
        {"NonDynamicallyQuantizableLinear": "linear:NonDynamicallyQuantizableLinear"},
        ["Identity", "Linear", "Bilinear", "LazyLinear"],
    ),
    "loss": (
        {"_Loss": "loss:_Loss", "_WeightedLoss": "loss:_WeightedLoss"},
        ["L1Loss", "NLLLoss", "NLLLoss2d", "PoissonNLLLoss", "GaussianNLLLoss",
         "KLDivLoss", "MSELoss", "BCELoss", "BCEWithLogitsLoss",
         "HingeEmbeddingLoss", "MultiLabelMarginLoss", "SmoothL1Loss",
         "HuberLoss", "SoftMarginLoss", "CrossEntropyLoss",
         "LinearCrossEntropyLoss", "MultiLabelSoftMarginLoss",
         "CosineEmbeddingLoss", "MarginRankingLoss", "MultiMarginLoss",
         "TripletMarginLoss", "TripletMarginWithDistanceLoss", "CTCLoss"],
    ),
    "module": (
        {"_IncompatibleKeys": "saving:IncompatibleKeys",
         "_addindent": "module:_addindent"},
        ["Module"],
    ),
    "normalization": (
        {}, ["LocalResponseNorm", "CrossMapLRN2d", "LayerNorm", "GroupNorm", "RMSNorm"]
    ),
    "padding": (
        {},
        [*_each("CircularPad"), *_each("ConstantPad"), *_each("ReflectionPad"),
         *_each("ReplicationPad"), *_each("ZeroPad")],
    ),
    "pixelshuffle": ({}, ["PixelShuffle", "PixelUnshuffle"]),
    "pooling": (
        {"_MaxPoolNd": "pooling:_MaxPool", "_AvgPoolNd": "pooling:_AvgPool",
         "_LPPoolNd": "pooling:_LPPool", "_MaxUnpoolNd": "pooling:_Unpool",
         "_AdaptiveAvgPoolNd": "pooling:_AdaptiveAvgPool",
         "_AdaptiveMaxPoolNd": "pooling:_AdaptiveMaxPool"},
        [*_each("MaxPool"), *_each("MaxUnpool"), *_each("AvgPool"), *_each("LPPool"),
         *_each("AdaptiveMaxPool"), *_each("AdaptiveAvgPool"), "FractionalMaxPool2d",
         "FractionalMaxPool3d"],
    ),
    "rnn": (
        {},
        ["RNNBase", "RNN", "LSTM", "GRU", "RNNCellBase", "RNNCell", "LSTMCell",
         "GRUCell"],
    ),
    "sparse": ({}, ["Embedding", "EmbeddingBag"]),
    "transformer": (
        {"_get_clones": "transformer:_clones"},
        ["Transformer", "TransformerEncoder", "TransformerDecoder",
         "TransformerEncoderLayer", "TransformerDecoderLayer"],
    ),
    "upsampling": ({}, ["Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"]),
}  # fmt: skip


def _alias(name: str, private: dict[str, str], public: list[str]) -> types.ModuleType:
    """The submodule of a row of the table."""
    made: Any = types.ModuleType(f"{__name__}.{name}", f"``weft.nn``'s {name}.")
    for own, place in private.items():
        where, _, theirs = place.partition(":")
        setattr(made, own, getattr(importlib.import_module(f"weft.nn.{where}"), theirs))
    for one in public:
        setattr(made, one, getattr(_nn, one))
    made.F, made.Module, made.Parameter = _nn.functional, _nn.Module, _nn.Parameter
    made.Tensor = _nn.module.Tensor
    made.__all__ = public
    made.__spec__ = ModuleSpec(made.__name__, None)
    sys.modules[made.__name__] = made
    return made


__all__ = ["utils"]
for _name, (_private, _public) in _TABLE.items():
    globals()[_name] = _alias(_name, _private, _public)
    globals().update({one: getattr(_nn, one) for one in _public})
    __all__ += _public
