"""The text of every module is the one that PyTorch prints."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest

import weft

torch = pytest.importorskip(
    "torch", reason="compares with PyTorch, which is not installed"
)

# Arguments of constructors, several sets for some.
ARGUMENTS: dict[str, list[Any]] = {
    "AdaptiveLogSoftmaxWithLoss": [(16, 20, [5, 10])],
    "Bilinear": [(2, 3, 4), (2, 3, 4, False)],
    "ChannelShuffle": [(2,)],
    "Embedding": [(5, 3), (5, 3, 1), {"num_embeddings": 5, "embedding_dim": 3,
                                      "max_norm": 2.0, "norm_type": 1.0,
                                      "scale_grad_by_freq": True}],
    "EmbeddingBag": [(5, 3), {"num_embeddings": 5, "embedding_dim": 3, "mode": "sum",
                              "max_norm": 1.0}],
    "Flatten": [(), (0, 2)],
    "Fold": [((4, 5), 2), ((4, 5), (2, 2), 1, 1, 2)],
    "FractionalMaxPool2d": [(2, 3)],
    "FractionalMaxPool3d": [(2, 3)],
    "GLU": [(), (1,)],
    "GroupNorm": [(2, 4), {"num_groups": 2, "num_channels": 4, "affine": False}],
    "LayerNorm": [(4,), ((2, 3),), {"normalized_shape": 3,
                                    "elementwise_affine": False}],
    "RMSNorm": [(4,), {"normalized_shape": (2, 3), "eps": 1e-3}],
    "Linear": [(2, 3), (2, 3, False)],
    "LazyLinear": [(3,)],
    "LinearCrossEntropyLoss": [(4, 5)],
    "LocalResponseNorm": [(2,), (3, 1e-3, 0.5, 2.0)],
    "CrossMapLRN2d": [(3,)],
    "MultiheadAttention": [(4, 2)],
    "PixelShuffle": [(2,)],
    "PixelUnshuffle": [(2,)],
    "Softmax": [(), (1,)],
    "LogSoftmax": [(1,)],
    "Softmin": [(1,)],
    "Threshold": [(0.1, 20), (0.1, 20, True)],
    "Transformer": [{"d_model": 4, "nhead": 2, "num_encoder_layers": 2,
                     "num_decoder_layers": 1, "dim_feedforward": 8}],
    "TransformerEncoderLayer": [(4, 2, 8)],
    "TransformerDecoderLayer": [(4, 2, 8)],
    "Unflatten": [(1, (2, 3))],
    "Unfold": [(2,), ((2, 3), 1, 1, 2)],
    "Upsample": [{"scale_factor": 2}, {"size": 3}, {"size": (3, 4), "mode": "bilinear"}],
    "UpsamplingNearest2d": [{"scale_factor": 2}],
    "UpsamplingBilinear2d": [{"size": 4}],
    "Dropout": [(), (0.2,), (0.2, True)],
    "PReLU": [(), (3,)],
    "LeakyReLU": [(), (0.2, True)],
    "ELU": [(), (0.2, True)],
    "RReLU": [(), (0.1, 0.3, True)],
    "Hardtanh": [(), (-2.0, 2.0, True)],
    "ReLU": [(), (True,)],
    "Softplus": [(), (2.0, 10.0)],
    "SyncBatchNorm": [(3,)],
    "TransformerEncoder": [], "TransformerDecoder": [], "Container": [],
    "Module": [()], "Sequential": [()], "ModuleList": [()], "ModuleDict": [()],
    "ParameterList": [()], "ParameterDict": [()], "DataParallel": [],
    "LSTM": [(3, 4), {"input_size": 3, "hidden_size": 4, "num_layers": 2,
                      "bias": False, "batch_first": True, "dropout": 0.1,
                      "bidirectional": True, "proj_size": 2}],
    "GRU": [(3, 4, 2)],
    "RNN": [(3, 4), (3, 4, 2, "relu")],
    "RNNCell": [(3, 4), (3, 4, False, "relu")], "LSTMCell": [(3, 4)],
    "GRUCell": [(3, 4, False)],
    "RNNBase": [], "RNNCellBase": [], "UninitializedParameter": [],
    "UninitializedBuffer": [], "Buffer": [], "Parameter": [],
    "CosineSimilarity": [(), (2,)], "NLLLoss2d": [()],
    "LinearCrossEntropyOptions": [],
}  # fmt: skip


def arguments(name: str) -> list[Any]:
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    if "Conv" in name:
        lead: tuple[int, ...] = (4,) if "Lazy" in name else (2, 4)
        transposed = "Transpose" in name
        more = {"stride": 2, "padding": 1, "dilation": 2, "groups": 2, "bias": False,
                "padding_mode": "zeros" if transposed else "reflect"}  # fmt: skip
        if "Lazy" in name:
            return [(*lead, 3)]
        keys = dict(zip(("in_channels", "out_channels"), lead, strict=True))
        return [(*lead, 3), {**keys, "kernel_size": 3, **more}]
    if "Adaptive" in name:
        return [(3,), ((3,) * int(name[-2]),)]
    if "LPPool" in name:
        return [(2, 3)]
    if "Pool" in name or "Unpool" in name:
        return [(2,), (3, 2, 1)]
    if "ConstantPad" in name:
        return [(1, 2.5)]
    if "Pad" in name:
        return [(1,)]
    if "BatchNorm" in name or "InstanceNorm" in name:
        return [()] if "Lazy" in name else [(3,), (3, 1e-3, None, False)]
    return [()]


def classes() -> list[str]:
    return [n for n in dir(torch.nn)
            if inspect.isclass(getattr(torch.nn, n)) and n[0].isupper()]  # fmt: skip


@pytest.mark.parametrize("name", classes())
def test_text(name: str) -> None:
    for given in arguments(name):
        options = given if isinstance(given, dict) else {}
        args = () if isinstance(given, dict) else given
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = getattr(torch.nn, name)(*args, **options)
            ours = getattr(weft.nn, name)(*args, **options)
        assert repr(ours) == repr(theirs)


def nets(nn: Any, zeros: Any) -> list[Any]:
    shared = nn.Linear(2, 2)
    return [
        nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Dropout(0.1))),
        nn.ModuleList([nn.Linear(2, 2) for _ in range(3)] + [nn.ReLU(), nn.ReLU()]),
        nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ModuleList([nn.Tanh()])}),
        nn.ParameterList([zeros(2), zeros(2, 3)]),
        nn.ParameterDict({"a": zeros(2), "bc": zeros(2, 3)}),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2),
        nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 2, nn.LayerNorm(4)),
        nn.Sequential(shared, shared),
        nn.DataParallel(nn.Linear(2, 2)),
    ]


@pytest.mark.parametrize("k", range(9))
def test_text_of_containers(k: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = repr(nets(torch.nn, torch.zeros)[k])
    for kind in ("torch.float32", "torch.FloatTensor"):
        theirs = theirs.replace(kind, "weft.float32")
    assert repr(nets(weft.nn, weft.zeros)[k]) == theirs
