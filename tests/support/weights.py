"""Layers whose weights PyTorch writes and Weft reads, in code that both run.

A family is a function of the ``nn`` namespace that builds a module, the shapes of
its inputs, and the names that its weights have in a file.
"""

from __future__ import annotations

import numpy as np

NORM = ["weight", "bias"]
STATISTICS = [*NORM, "running_mean", "running_var", "num_batches_tracked"]
ATTENTION = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
RECURRENT = [
    f"{kind}_l{layer}{way}"
    for layer in range(2)
    for way in ("", "_reverse")
    for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
]
ENCODER = [
    *(f"self_attn.{name}" for name in ATTENTION),
    *(f"{layer}.{n}" for layer in ("linear1", "linear2", "norm1", "norm2")
      for n in NORM),
]  # fmt: skip


class Tokens(tuple):
    """The shape of an input of token numbers below 7."""


FAMILIES = {
    "Linear": (lambda nn: nn.Linear(4, 3), [(2, 4)], NORM),
    "Bilinear": (lambda nn: nn.Bilinear(4, 2, 3), [(2, 4), (2, 2)], NORM),
    "Conv1d": (lambda nn: nn.Conv1d(2, 3, 3), [(2, 2, 6)], NORM),
    "Conv2d": (lambda nn: nn.Conv2d(2, 4, 3, groups=2), [(2, 2, 5, 5)], NORM),
    "Conv3d": (lambda nn: nn.Conv3d(2, 3, 2), [(1, 2, 3, 3, 3)], NORM),
    "ConvTranspose1d": (lambda nn: nn.ConvTranspose1d(2, 3, 3, 2), [(2, 2, 4)], NORM),
    "ConvTranspose2d": (lambda nn: nn.ConvTranspose2d(2, 3, 2), [(2, 2, 3, 3)], NORM),
    "ConvTranspose3d": (
        lambda nn: nn.ConvTranspose3d(2, 2, 2), [(1, 2, 2, 2, 2)], NORM,
    ),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(3), [(4, 3)], STATISTICS),
    "BatchNorm2d": (lambda nn: nn.BatchNorm2d(3), [(2, 3, 2, 2)], STATISTICS),
    "BatchNorm3d": (lambda nn: nn.BatchNorm3d(2), [(2, 2, 2, 2, 2)], STATISTICS),
    "LayerNorm": (lambda nn: nn.LayerNorm(4), [(3, 4)], NORM),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), [(2, 4, 3)], NORM),
    "InstanceNorm2d": (
        lambda nn: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        [(2, 3, 3, 3)], STATISTICS,
    ),
    "RMSNorm": (lambda nn: nn.RMSNorm(4), [(3, 4)], ["weight"]),
    "PReLU": (lambda nn: nn.PReLU(3), [(2, 3)], ["weight"]),
    "Embedding": (lambda nn: nn.Embedding(7, 3), [Tokens((2, 4))], ["weight"]),
    "EmbeddingBag": (lambda nn: nn.EmbeddingBag(7, 3), [Tokens((2, 4))], ["weight"]),
    "RNN": (lambda nn: nn.RNN(3, 2, 2, bidirectional=True), [(4, 2, 3)], RECURRENT),
    "LSTM": (lambda nn: nn.LSTM(3, 2, 2, bidirectional=True), [(4, 2, 3)], RECURRENT),
    "GRU": (lambda nn: nn.GRU(3, 2, 2, bidirectional=True), [(4, 2, 3)], RECURRENT),
    "LSTMCell": (
        lambda nn: nn.LSTMCell(3, 2), [(2, 3)],
        ["weight_ih", "weight_hh", "bias_ih", "bias_hh"],
    ),
    "MultiheadAttention": (
        lambda nn: nn.MultiheadAttention(4, 2), [(3, 2, 4)] * 3, ATTENTION,
    ),
    "MultiheadAttention kdim": (
        lambda nn: nn.MultiheadAttention(4, 2, kdim=3, vdim=2),
        [(3, 2, 4), (5, 2, 3), (5, 2, 2)],
        ["q_proj_weight", "k_proj_weight", "v_proj_weight", *ATTENTION[1:]],
    ),
    "TransformerEncoderLayer": (
        lambda nn: nn.TransformerEncoderLayer(4, 2, 6, 0.0), [(3, 2, 4)], ENCODER,
    ),
    "TransformerEncoder": (
        lambda nn: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 6, 0.0, batch_first=True), 2,
            enable_nested_tensor=False,
        ),
        [(2, 3, 4)], [f"layers.{k}.{name}" for k in range(2) for name in ENCODER],
    ),
}  # fmt: skip


def arrays(name):
    """The inputs of a family, always the same."""
    rng = np.random.default_rng(list(FAMILIES).index(name))
    return [
        rng.integers(0, 7, shape)
        if isinstance(shape, Tokens)
        else rng.normal(size=shape).astype(np.float32)
        for shape in FAMILIES[name][1]
    ]


def first(out):
    """The first tensor of what a module gave."""
    return first(out[0]) if isinstance(out, tuple) else out
