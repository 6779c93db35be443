"""What networks are commonly given by mistake: each is refused with words."""

import pytest

import weft
from weft import nn
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.nn import functional as F

R, T = weft.rand, weft.tensor
BOTH = r"\(5, 1\) and \(5,\)"

# Losses that compare elements: a broadcast would be silently wrong.
PAIRED = [
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "poisson_nll_loss",
    "soft_margin_loss", "hinge_embedding_loss", "multilabel_soft_margin_loss",
]  # fmt: skip
OTHER = {
    "gaussian_nll_loss": lambda a, b: F.gaussian_nll_loss(a, b, weft.ones(5, 1)),
    "margin_ranking_loss": lambda a, b: F.margin_ranking_loss(a, b, weft.ones(5)),
    "triplet_margin_loss": lambda a, b: F.triplet_margin_loss(a, b, b),
    "cosine_embedding_loss": lambda a, b: F.cosine_embedding_loss(a, b, weft.ones(5)),
}


@pytest.mark.parametrize("name", [*PAIRED, *OTHER])
def test_losses_refuse_to_broadcast_and_name_both_shapes(name):
    loss = OTHER.get(name) or getattr(F, name)
    with pytest.raises(ShapeError, match=f"{name}: .*{BOTH}"):
        loss(R(5, 1), R(5))
    with pytest.raises(ShapeError, match=r"\(5, 1\) and \(5, 3\)"):
        loss(R(5, 1), R(5, 3))


def ctc(target, lengths=(5, 5)):
    return F.ctc_loss(R(5, 2, 3).log_softmax(-1), T(target), lengths, (2, 2))


MISTAKES = {
    "class too large": (
        lambda: F.cross_entropy(R(3, 4), T([0, 1, 4])), OutOfRangeError,
        r"cross_entropy: class index 4 at position \(2,\) is out of range for 4 cl",
    ),
    "class too small": (
        lambda: F.cross_entropy(R(3, 4), T([-1, 1, 3])), OutOfRangeError,
        r"class index -1 at position \(0,\)",
    ),
    "class of nll": (
        lambda: F.nll_loss(R(3, 4), T([0, 1, 9])), OutOfRangeError,
        "nll_loss: class index 9",
    ),
    "class as float": (
        lambda: F.cross_entropy(R(3, 4), T([0.0, 1.0, 2.0])), DTypeError,
        r"cross_entropy: expected integer class indices, got float32; use .long\(\)",
    ),
    "class of a margin loss": (
        lambda: F.multi_margin_loss(R(3, 4), T([0, 1, 9])), OutOfRangeError,
        "multi_margin_loss: class index 9",
    ),
    "no classes": (
        lambda: F.cross_entropy(R(3, 0), R(3, 0), label_smoothing=0.1), ShapeError,
        r"at least one class along dimension 1, got shape \(3, 0\)",
    ),
    "rows of targets": (
        lambda: F.cross_entropy(R(3, 4), T([0, 1])), ShapeError,
        r"cross_entropy: .* needs class indices of shape \(3,\), got \(2,\)",
    ),
    "class weights": (
        lambda: F.cross_entropy(R(3, 4), T([0, 1, 2]), weight=R(3)), ShapeError,
        r"one weight for each of 4 classes, got shape \(3,\)",
    ),
    "scores for probabilities": (
        lambda: F.binary_cross_entropy(T([0.5, 1.2]), T([0.0, 1.0])), ArgumentError,
        "binary_cross_entropy: expected probabilities between 0 and 1",
    ),
    "labels of -1 and 1": (
        lambda: F.binary_cross_entropy_with_logits(R(2), T([-1.0, 1.0])),
        ArgumentError, "expected targets between 0 and 1, got -1.0 to 1.0",
    ),
    "labels of 1 and 2": (
        lambda: F.binary_cross_entropy(R(2), T([1.0, 2.0])), ArgumentError,
        "expected targets between 0 and 1, got 1.0 to 2.0",
    ),
    "positive weights": (
        lambda: nn.BCEWithLogitsLoss(pos_weight=R(3))(R(3, 4), R(3, 4)), ShapeError,
        r"a pos_weight that broadcasts to \(3, 4\).*got shape \(3,\)",
    ),
    "symbol of ctc": (
        lambda: ctc([[1, 5], [1, 1]]), OutOfRangeError,
        "ctc_loss: target 5 at position",
    ),
    "length of ctc": (
        lambda: ctc([[1, 2], [1, 1]], (9, 5)), ArgumentError,
        "input_lengths must lie between 0 and 5",
    ),
    "variance": (
        lambda: F.gaussian_nll_loss(R(3), R(3), -weft.ones(3)), ArgumentError,
        "a variance is negative",
    ),
    "reduction": (
        lambda: F.mse_loss(R(2), R(2), reduction="avg"), ArgumentError,
        "reduction must be 'none', 'mean' or 'sum', got 'avg'",
    ),
    "token": (
        lambda: nn.Embedding(3, 2)(T([3])), OutOfRangeError,
        "embedding: index 3 .* size 3",
    ),
    "one sample to normalise": (
        lambda: nn.BatchNorm1d(3)(R(1, 3)), ShapeError,
        r"more than one value per channel when training, got .* \(1, 3\)",
    ),
    "no sample to normalise": (
        lambda: nn.BatchNorm2d(3)(R(0, 3, 4, 4)), ShapeError,
        r"more than one value per channel",
    ),
    "no steps": (
        lambda: nn.LSTM(3, 4)(R(0, 2, 3)), ShapeError,
        r"LSTM: expected sequences of at least one step, got .* \(0, 2, 3\)",
    ),
    "activation": (
        lambda: nn.Linear(2, 2, act="rleu"), ArgumentError,
        "unknown activation 'rleu'; known are .*relu.*register_activation",
    ),
    "activation inside a layer": (
        lambda: nn.TransformerEncoderLayer(4, 2, activation="zelu"), ArgumentError,
        "unknown activation 'zelu'",
    ),
    "option of a lazy layer": (
        lambda: nn.LazyConv2d(4, 3, strid=2), DTypeError,
        "LazyConv2d: got an unexpected keyword argument 'strid'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused_with_words(name):
    call, kind, words = MISTAKES[name]
    with pytest.raises(kind, match=words):
        call()


EMPTY = {
    "Linear": (nn.Linear(4, 3), (0, 4), (0, 3)),
    "Conv2d": (nn.Conv2d(3, 4, 3), (0, 3, 8, 8), (0, 4, 6, 6)),
    "ConvTranspose2d": (nn.ConvTranspose2d(3, 4, 2), (0, 3, 4, 4), (0, 4, 5, 5)),
    "MaxPool2d": (nn.MaxPool2d(2), (0, 3, 4, 4), (0, 3, 2, 2)),
    "BatchNorm2d": (nn.BatchNorm2d(3).eval(), (0, 3, 4, 4), (0, 3, 4, 4)),
    "GroupNorm": (nn.GroupNorm(1, 3), (0, 3, 4), (0, 3, 4)),
    "LayerNorm": (nn.LayerNorm(4), (0, 4), (0, 4)),
    "LSTM": (nn.LSTM(3, 4, 2, bidirectional=True), (5, 0, 3), (5, 0, 8)),
    "GRU": (nn.GRU(3, 4, batch_first=True), (0, 5, 3), (0, 5, 4)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 8), (5, 0, 8), (5, 0, 8)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_layers_take_an_empty_batch_as_pytorchs_do(name):
    module, shape, expected = EMPTY[name]
    out = module(weft.zeros(*shape, requires_grad=True))
    out = out[0] if isinstance(out, tuple) else out
    assert out.shape == expected
    out.sum().backward()
    assert all((p.grad == 0).all() for p in module.parameters())


CORNERS = {  # where the slope jumps: PyTorch's choices
    "relu": ([0.0], [0.0]),
    "relu6": ([0.0, 6.0], [0.0, 0.0]),
    "hardtanh": ([-1.0, 1.0], [0.0, 0.0]),
    "hardsigmoid": ([-3.0, 3.0], [0.0, 0.0]),
    "hardswish": ([-3.0, 3.0], [0.0, 1.0]),
    "softshrink": ([-0.5, 0.5], [0.0, 0.0]),
    "hardshrink": ([-0.5, 0.5], [0.0, 0.0]),
    "elu": ([-1e30, 1e30], [0.0, 1.0]),
}


@pytest.mark.parametrize("name", CORNERS)
def test_slopes_of_activations_at_corners(name):
    points, slopes = CORNERS[name]
    x = T(points, requires_grad=True)
    getattr(F, name)(x).sum().backward()
    assert x.grad.tolist() == slopes


@pytest.mark.parametrize(
    "name",
    ["relu", "relu6", "hardtanh", "hardswish", "hardshrink", "softshrink", "elu"],
)
def test_activations_do_not_hide_what_is_not_a_number(name):
    assert getattr(F, name)(T([float("nan")])).isnan().all()


LAZY = {
    "LazyLinear": ((5,), (2, 3), nn.Linear),
    "LazyConv1d": ((5, 2, 1, 0, 2), (2, 3, 7), nn.Conv1d),
    "LazyConv2d": ((5, 2), (2, 3, 7, 7), nn.Conv2d),
    "LazyConv3d": ((5, 2), (2, 3, 3, 3, 3), nn.Conv3d),
    "LazyConvTranspose1d": ((5, 2, 2), (2, 3, 7), nn.ConvTranspose1d),
    "LazyConvTranspose2d": ((5, 2), (2, 3, 7, 7), nn.ConvTranspose2d),
    "LazyConvTranspose3d": ((5, 2), (2, 3, 3, 3, 3), nn.ConvTranspose3d),
    "LazyBatchNorm1d": ((1e-3,), (2, 3), nn.BatchNorm1d),
    "LazyBatchNorm2d": ((), (2, 3, 2, 2), nn.BatchNorm2d),
    "LazyBatchNorm3d": ((), (2, 3, 2, 2, 2), nn.BatchNorm3d),
    "LazyInstanceNorm1d": ((), (2, 3, 4), nn.InstanceNorm1d),
    "LazyInstanceNorm2d": ((), (2, 3, 2, 2), nn.InstanceNorm2d),
    "LazyInstanceNorm3d": ((), (2, 3, 2, 2, 2), nn.InstanceNorm3d),
}


@pytest.mark.parametrize("name", LAZY)
def test_lazy_layers_equal_the_plain_ones(name):
    args, shape, plain = LAZY[name]
    x = R(*shape)
    weft.manual_seed(4)
    lazy = getattr(nn, name)(*args)
    out = lazy(x)
    assert type(lazy) is plain
    weft.manual_seed(4)
    options = {"affine": True, "track_running_stats": True}  # the lazy ones' defaults
    expected = plain(3, *args, **(options if "Instance" in name else {}))
    assert weft.equal(out, expected(x))
    assert repr(lazy) == repr(expected)
