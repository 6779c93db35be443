"""Layers and losses as code that runs under PyTorch and under Weft alike.

A case is a function of the ``nn`` namespace that builds a module, and the shapes
(or integer ranges) of its inputs. ``record_golden.py`` runs them under PyTorch and
keeps parameters, inputs, outputs and gradients; the tests load the parameters
into Weft's module by name and compare.
"""

from __future__ import annotations

import numpy as np


def ints(high, *shape):
    """An integer input below ``high``."""
    return ("int", high, shape)


class Case:
    def __init__(self, build, *inputs, train=True, gradients=True):
        self.build, self.inputs, self.train = build, inputs, train
        self.gradients = gradients

    def arrays(self, seed):
        rng = np.random.default_rng(seed)
        out = []
        for spec in self.inputs:
            if spec and spec[0] == "int":
                out.append(rng.integers(0, spec[1], spec[2]))
            elif spec and spec[0] == "unit":
                out.append(rng.uniform(0.05, 0.95, spec[1]))
            elif spec and spec[0] == "sign":
                out.append(np.where(rng.uniform(size=spec[1]) < 0.5, -1.0, 1.0))
            elif spec and spec[0] == "these":
                out.append(np.array(spec[1]))
            else:
                out.append(rng.normal(size=spec))
        return out


def unpool(nn, rank):
    """Maxima taken and put back."""

    class Round(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = getattr(nn, f"MaxPool{rank}d")(2, return_indices=True)
            self.back = getattr(nn, f"MaxUnpool{rank}d")(2)

        def forward(self, x):
            y, places = self.pool(x)
            return self.back(y * y, places)

    return Round()


def residual(nn):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.fn = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))

        def forward(self, x):
            return (x + self.fn(x)).relu()

    return nn.Sequential(nn.Linear(4, 6), Residual(), Residual(), nn.Linear(6, 2))


def lenet(nn):
    return nn.Sequential(
        nn.Conv2d(1, 3, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(36, 5),
    )  # fmt: skip


def basic_block(nn):
    class Block(nn.Module):
        def __init__(self, cin, cout, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(cout)
            self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(cout)
            self.short = nn.Conv2d(cin, cout, 1, stride, bias=False)

        def forward(self, x):
            y = self.bn1(self.conv1(x)).relu()
            return (self.bn2(self.conv2(y)) + self.short(x)).relu()

    return nn.Sequential(Block(2, 4, 1), Block(4, 6, 2), nn.AdaptiveAvgPool2d(1))


def gpt_block(nn):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(8), nn.LayerNorm(8)
            self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

        def forward(self, x):
            h = self.ln1(x)
            x = x + self.attn(h, h, h, need_weights=False)[0]
            return x + self.mlp(self.ln2(x))

    return nn.Sequential(nn.Embedding(11, 8), Block(), Block(), nn.Linear(8, 11))


def autoencoder(nn):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, 2, 1), nn.LeakyReLU(0.1),
        nn.ConvTranspose2d(3, 1, 3, 2, 1, output_padding=1), nn.Sigmoid(),
    )  # fmt: skip


def ctc(nn):
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.scores, self.loss = nn.LogSoftmax(-1), nn.CTCLoss(reduction="sum")

        def forward(self, x, *lengths):
            return self.loss(self.scores(x), *lengths)

    return Loss()


def soft_margin(nn):
    class Loss(nn.SoftMarginLoss):
        def forward(self, x, target):
            return super().forward(x, target.detach())  # PyTorch insists

    return Loss()


def lists(nn):
    """Modules and parameters held in containers."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            self.ways = nn.ModuleDict({"a": nn.Tanh(), "b": nn.Linear(4, 2)})
            ones = [nn.Linear(4, 1).weight[0].detach() for _ in range(2)]
            self.scales = nn.ParameterList([nn.Parameter(one) for one in ones])
            self.shifts = nn.ParameterDict({"s": nn.Parameter(ones[0].clone())})

        def forward(self, x):
            for step, scale in zip(self.steps, self.scales, strict=True):
                x = self.ways["a"](step(x) * scale)
            return self.ways["b"](x + self.shifts["s"])

    return Net()


IMAGE, SEQ, ROWS = (2, 4, 6, 6), (5, 3, 4), (3, 4)
LINE, CUBE = (2, 4, 9), (2, 2, 4, 5, 4)

ACTIVATIONS = [
    "ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish",
    "Softplus", "Softsign", "Tanh", "Sigmoid", "LogSigmoid", "Tanhshrink", "Hardtanh",
    "Hardswish", "Hardshrink", "Softshrink", "PReLU",
]  # fmt: skip

CASES = {
    "Linear": Case(lambda nn: nn.Linear(4, 3), ROWS),
    "Linear without bias": Case(lambda nn: nn.Linear(4, 3, bias=False), SEQ),
    "Bilinear": Case(lambda nn: nn.Bilinear(4, 5, 3), (3, 4), (3, 5)),
    "Identity": Case(lambda nn: nn.Identity(), ROWS),
    "Conv1d": Case(lambda nn: nn.Conv1d(4, 6, 3, 2, 1, 2, 2), (2, 4, 11)),
    "Conv2d": Case(lambda nn: nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0)), IMAGE),
    "Conv2d same": Case(
        lambda nn: nn.Conv2d(4, 3, 3, padding="same", dilation=2), IMAGE
    ),
    "Conv2d grouped": Case(lambda nn: nn.Conv2d(4, 8, 3, groups=4), IMAGE),
    "Conv2d reflect": Case(
        lambda nn: nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), IMAGE
    ),
    "Conv3d": Case(lambda nn: nn.Conv3d(2, 3, 2, padding=1), (2, 2, 3, 4, 3)),
    "ConvTranspose1d": Case(lambda nn: nn.ConvTranspose1d(4, 3, 3, 2, 1, 1), (2, 4, 5)),
    "ConvTranspose2d": Case(
        lambda nn: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), IMAGE
    ),
    "ConvTranspose3d": Case(lambda nn: nn.ConvTranspose3d(2, 3, 2), (1, 2, 2, 3, 2)),
    "MaxPool1d": Case(lambda nn: nn.MaxPool1d(3, 2, 1), (2, 4, 9)),
    "MaxPool2d": Case(lambda nn: nn.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "AvgPool2d": Case(lambda nn: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "LPPool2d": Case(lambda nn: nn.LPPool2d(3, 2), IMAGE),
    "AdaptiveAvgPool2d": Case(lambda nn: nn.AdaptiveAvgPool2d((3, 4)), IMAGE),
    "AdaptiveMaxPool2d": Case(lambda nn: nn.AdaptiveMaxPool2d(2), IMAGE),
    "BatchNorm1d": Case(lambda nn: nn.BatchNorm1d(4), (5, 4)),
    "BatchNorm2d": Case(lambda nn: nn.BatchNorm2d(4), IMAGE),
    "BatchNorm2d eval": Case(lambda nn: nn.BatchNorm2d(4), IMAGE, train=False),
    "BatchNorm2d cumulative": Case(lambda nn: nn.BatchNorm2d(4, momentum=None), IMAGE),
    "InstanceNorm2d": Case(lambda nn: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "InstanceNorm1d tracked": Case(
        lambda nn: nn.InstanceNorm1d(4, track_running_stats=True), (2, 4, 7)
    ),
    "LayerNorm": Case(lambda nn: nn.LayerNorm((6, 6)), IMAGE),
    "GroupNorm": Case(lambda nn: nn.GroupNorm(2, 4), IMAGE),
    "RMSNorm": Case(lambda nn: nn.RMSNorm(4), SEQ),
    "LocalResponseNorm": Case(lambda nn: nn.LocalResponseNorm(3), IMAGE),
    "Embedding": Case(lambda nn: nn.Embedding(7, 3, padding_idx=2), ints(7, 2, 5)),
    "EmbeddingBag": Case(lambda nn: nn.EmbeddingBag(7, 3), ints(7, 2, 5)),
    "RNN": Case(lambda nn: nn.RNN(4, 3, 2), SEQ),
    "RNN relu": Case(lambda nn: nn.RNN(4, 3, nonlinearity="relu"), SEQ),
    "LSTM": Case(lambda nn: nn.LSTM(4, 3, 2, bidirectional=True), SEQ),
    "LSTM batch first": Case(lambda nn: nn.LSTM(4, 3, batch_first=True), SEQ),
    "LSTM projected": Case(lambda nn: nn.LSTM(4, 5, proj_size=2), SEQ),
    "GRU": Case(lambda nn: nn.GRU(4, 3, 2, bidirectional=True), SEQ),
    "RNNCell": Case(lambda nn: nn.RNNCell(4, 3), ROWS),
    "LSTMCell": Case(lambda nn: nn.LSTMCell(4, 3), ROWS),
    "GRUCell": Case(lambda nn: nn.GRUCell(4, 3), ROWS),
    "MultiheadAttention": Case(
        lambda nn: nn.MultiheadAttention(8, 2), (5, 3, 8), (4, 3, 8), (4, 3, 8)
    ),
    "MultiheadAttention kdim": Case(
        lambda nn: nn.MultiheadAttention(8, 2, kdim=4, vdim=6, batch_first=True),
        (3, 5, 8), (3, 4, 4), (3, 4, 6),
    ),
    "MultiheadAttention biases": Case(
        lambda nn: nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True),
        (5, 3, 8), (4, 3, 8), (4, 3, 8),
    ),
    "TransformerEncoderLayer": Case(
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, 0.0), (5, 3, 8)
    ),
    "TransformerEncoderLayer norm first": Case(
        lambda nn: nn.TransformerEncoderLayer(
            8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True
        ),
        (5, 3, 8),
    ),
    "TransformerDecoderLayer": Case(
        lambda nn: nn.TransformerDecoderLayer(8, 2, 16, 0.0), (5, 3, 8), (4, 3, 8)
    ),
    "Transformer": Case(
        lambda nn: nn.Transformer(8, 2, 1, 1, 16, 0.0), (5, 3, 8), (4, 3, 8)
    ),
    "Upsample bilinear": Case(
        lambda nn: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False),
        IMAGE,
    ),
    "Upsample bicubic": Case(
        lambda nn: nn.Upsample(size=(9, 4), mode="bicubic", align_corners=True), IMAGE
    ),
    "PixelShuffle": Case(lambda nn: nn.PixelShuffle(2), IMAGE),
    "Unfold": Case(lambda nn: nn.Unfold(3, padding=1, stride=2), IMAGE),
    "Flatten": Case(lambda nn: nn.Flatten(1, 2), IMAGE),
    "GLU": Case(lambda nn: nn.GLU(1), IMAGE),
    "Softmax": Case(lambda nn: nn.Softmax(dim=1), IMAGE),
    "LogSoftmax": Case(lambda nn: nn.LogSoftmax(dim=-1), SEQ),
    "residual MLP": Case(residual, ROWS),
    "LeNet": Case(lenet, (2, 1, 16, 16)),
    "ResNet blocks": Case(basic_block, (2, 2, 6, 6)),
    "GPT blocks": Case(gpt_block, ints(11, 2, 5)),
    "autoencoder": Case(autoencoder, (2, 1, 8, 8)),
    "containers": Case(lists, ROWS),
    "MaxPool3d": Case(lambda nn: nn.MaxPool3d(2, 1), CUBE),
    "AvgPool1d": Case(lambda nn: nn.AvgPool1d(3, 2, 1), LINE),
    "AvgPool3d": Case(lambda nn: nn.AvgPool3d(2, ceil_mode=True), CUBE),
    "LPPool1d": Case(lambda nn: nn.LPPool1d(2, 3, 2), LINE),
    "LPPool3d": Case(lambda nn: nn.LPPool3d(2, 2), CUBE),
    "AdaptiveAvgPool1d": Case(lambda nn: nn.AdaptiveAvgPool1d(4), LINE),
    "AdaptiveAvgPool3d": Case(lambda nn: nn.AdaptiveAvgPool3d((2, None, 3)), CUBE),
    "AdaptiveMaxPool1d": Case(lambda nn: nn.AdaptiveMaxPool1d(4), LINE),
    "AdaptiveMaxPool3d": Case(lambda nn: nn.AdaptiveMaxPool3d(2), CUBE),
    "MaxUnpool1d": Case(lambda nn: unpool(nn, 1), (2, 4, 8)),
    "MaxUnpool2d": Case(lambda nn: unpool(nn, 2), IMAGE),
    "MaxUnpool3d": Case(lambda nn: unpool(nn, 3), (2, 2, 4, 4, 4)),
    "BatchNorm3d": Case(lambda nn: nn.BatchNorm3d(2), CUBE),
    "InstanceNorm1d": Case(lambda nn: nn.InstanceNorm1d(4), LINE),
    "InstanceNorm3d": Case(lambda nn: nn.InstanceNorm3d(2, affine=True), CUBE),
    "TransformerEncoder": Case(
        lambda nn: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0), 2, nn.LayerNorm(8)
        ),
        (5, 3, 8),
    ),
    "TransformerDecoder": Case(
        lambda nn: nn.TransformerDecoder(
            nn.TransformerDecoderLayer(8, 2, 16, 0.0), 2
        ),
        (5, 3, 8), (4, 3, 8),
    ),
    "PixelUnshuffle": Case(lambda nn: nn.PixelUnshuffle(2), IMAGE),
    "ChannelShuffle": Case(lambda nn: nn.ChannelShuffle(2), IMAGE),
    "Fold": Case(lambda nn: nn.Fold((4, 5), 2), (2, 8, 12)),
    "Upsample linear": Case(
        lambda nn: nn.Upsample(size=5, mode="linear", align_corners=True), LINE
    ),
    "Upsample trilinear": Case(
        lambda nn: nn.Upsample(scale_factor=1.5, mode="trilinear"), CUBE
    ),
    "UpsamplingNearest2d": Case(lambda nn: nn.UpsamplingNearest2d((4, 9)), IMAGE),
    "UpsamplingBilinear2d": Case(lambda nn: nn.UpsamplingBilinear2d((4, 9)), IMAGE),
    "Unflatten": Case(lambda nn: nn.Unflatten(1, (2, 2)), IMAGE),
    "Softmax2d": Case(lambda nn: nn.Softmax2d(), IMAGE),
    "Softmin": Case(lambda nn: nn.Softmin(dim=1), IMAGE),
    "Threshold": Case(lambda nn: nn.Threshold(0.1, -2.0), ROWS),
    "RReLU": Case(lambda nn: nn.RReLU(), ROWS, train=False),
    "PReLU of channels": Case(lambda nn: nn.PReLU(4), IMAGE),
    "GELU tanh": Case(lambda nn: nn.GELU(approximate="tanh"), ROWS),
    "EmbeddingBag with offsets": Case(
        lambda nn: nn.EmbeddingBag(7, 3, mode="sum", padding_idx=1),
        ints(7, 9), ("these", [0, 4, 4]),
    ),
    # losses
    "CTCLoss": Case(
        ctc, (7, 3, 5),
        ("these", [[1, 2, 2], [3, 4, 1], [1, 1, 0]]), ("these", [7, 6, 7]),
        ("these", [3, 3, 2]),
    ),
    "CosineEmbeddingLoss": Case(
        lambda nn: nn.CosineEmbeddingLoss(0.2), (5, 4), (5, 4), ("sign", (5,))
    ),
    "HingeEmbeddingLoss": Case(
        lambda nn: nn.HingeEmbeddingLoss(0.8), (5, 4), ("sign", (5, 4))
    ),
    "MarginRankingLoss": Case(
        lambda nn: nn.MarginRankingLoss(0.3), (5,), (5,), ("sign", (5,))
    ),
    "SoftMarginLoss": Case(soft_margin, (5, 4), ("sign", (5, 4))),
    "TripletMarginWithDistanceLoss": Case(
        lambda nn: nn.TripletMarginWithDistanceLoss(
            distance_function=nn.PairwiseDistance(1.0), margin=0.5
        ),
        (5, 4), (5, 4), (5, 4),
    ),
    "Dropout": Case(
        lambda nn: nn.Sequential(
            nn.Dropout(), nn.Dropout1d(), nn.AlphaDropout(), nn.FeatureAlphaDropout()
        ),
        (2, 3, 4), train=False,
    ),
    "Dropout of channels": Case(
        lambda nn: nn.Sequential(nn.Dropout2d(0.0), nn.Unflatten(1, (2, 2)),
                                 nn.Dropout3d(0.0)),
        IMAGE,
    ),
    # PyTorch's backward takes 1/6 in float32 even for float64
    "Hardsigmoid": Case(lambda nn: nn.Hardsigmoid(), ROWS, gradients=False),
    # losses
    "MSELoss": Case(lambda nn: nn.MSELoss(), ROWS, ROWS),
    "L1Loss": Case(lambda nn: nn.L1Loss(reduction="sum"), ROWS, ROWS),
    "SmoothL1Loss": Case(lambda nn: nn.SmoothL1Loss(beta=0.5), ROWS, ROWS),
    "HuberLoss": Case(lambda nn: nn.HuberLoss(delta=0.7), ROWS, ROWS),
    "CrossEntropyLoss": Case(lambda nn: nn.CrossEntropyLoss(), (5, 4), ints(4, 5)),
    "CrossEntropyLoss smoothed": Case(
        lambda nn: nn.CrossEntropyLoss(label_smoothing=0.2, ignore_index=1),
        (2, 4, 3), ints(4, 2, 3),
    ),
    "CrossEntropyLoss soft": Case(
        lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1), (5, 4), ("unit", (5, 4))
    ),
    "NLLLoss": Case(lambda nn: nn.NLLLoss(reduction="none"), (5, 4), ints(4, 5)),
    "BCELoss": Case(lambda nn: nn.BCELoss(), ("unit", (5, 2)), ("unit", (5, 2))),
    "BCEWithLogitsLoss": Case(
        lambda nn: nn.BCEWithLogitsLoss(), (5, 2), ("unit", (5, 2))
    ),
    "KLDivLoss": Case(
        lambda nn: nn.KLDivLoss(reduction="batchmean"), (5, 2), ("unit", (5, 2))
    ),
    "GaussianNLLLoss": Case(
        lambda nn: nn.GaussianNLLLoss(full=True), ROWS, ROWS, ("unit", ROWS)
    ),
    "PoissonNLLLoss": Case(lambda nn: nn.PoissonNLLLoss(), ROWS, ("unit", ROWS)),
    "MultiMarginLoss": Case(lambda nn: nn.MultiMarginLoss(p=2), (5, 4), ints(4, 5)),
    "MultiLabelMarginLoss": Case(
        lambda nn: nn.MultiLabelMarginLoss(), (5, 4), ints(4, 5, 4)
    ),
    "MultiLabelSoftMarginLoss": Case(
        lambda nn: nn.MultiLabelSoftMarginLoss(), (5, 4), ("unit", (5, 4))
    ),
    "TripletMarginLoss": Case(
        lambda nn: nn.TripletMarginLoss(swap=True), (5, 4), (5, 4), (5, 4)
    ),
    "CosineSimilarity": Case(lambda nn: nn.CosineSimilarity(), (5, 4), (5, 4)),
    "PairwiseDistance": Case(lambda nn: nn.PairwiseDistance(3.0), (5, 4), (5, 4)),
} | {
    name: Case(lambda nn, name=name: getattr(nn, name)(), ROWS) for name in ACTIVATIONS
} | {
    f"{kind}Pad{rank}d": Case(
        lambda nn, kind=kind, rank=rank: getattr(nn, f"{kind}Pad{rank}d")(
            (1, 2, 1, 0, 2, 1)[: 2 * rank], *[0.7] * (kind == "Constant")
        ),
        (LINE, IMAGE, CUBE)[rank - 1],
    )
    for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular")
    for rank in (1, 2, 3)
}  # fmt: skip
