"""Initialisers: moments, formulas, generators, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.nn import init

SHAPE = (120, 40, 3, 3)
FAN_IN, FAN_OUT = 40 * 9, 120 * 9
N = math.prod(SHAPE)

# name: (how to fill, mean, variance, the largest magnitude or None)
MOMENTS = {
    "uniform": (lambda w, g: init.uniform_(w, -1, 3, g), 1.0, 16 / 12, 3.0),
    "normal": (lambda w, g: init.normal_(w, 0.5, 2.0, g), 0.5, 4.0, None),
    "xavier uniform": (
        lambda w, g: init.xavier_uniform_(w, 2.0, g), 0.0,
        4 * 2 / (FAN_IN + FAN_OUT), 2 * math.sqrt(6 / (FAN_IN + FAN_OUT)),
    ),
    "xavier normal": (
        lambda w, g: init.xavier_normal_(w, 2.0, g), 0.0,
        4 * 2 / (FAN_IN + FAN_OUT), None,
    ),
    "kaiming uniform": (
        lambda w, g: init.kaiming_uniform_(w, math.sqrt(5), generator=g), 0.0,
        1 / (3 * FAN_IN), 1 / math.sqrt(FAN_IN),
    ),
    "kaiming normal": (
        lambda w, g: init.kaiming_normal_(
            w, mode="fan_out", nonlinearity="relu", generator=g
        ),
        0.0, 2 / FAN_OUT, None,
    ),
}  # fmt: skip


def check_moments(x, mean, variance):
    """Within five standard errors, for a distribution with tails like a normal's."""
    n = x.size
    assert abs(x.mean() - mean) < 5 * math.sqrt(variance / n)
    assert abs(x.var() - variance) < 5 * variance * math.sqrt(2 / n)


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name):
    fill, mean, variance, bound = MOMENTS[name]
    w = weft.empty(*SHAPE, dtype=weft.float64)
    assert fill(w, None) is w
    x = w.numpy()
    check_moments(x, mean, variance)
    if bound is not None:
        assert 0.99 * bound < np.abs(x).max() <= bound


@pytest.mark.parametrize("name", [*MOMENTS, "trunc normal", "orthogonal", "sparse"])
def test_a_generator_decides_the_numbers(name):
    def fill(generator):
        if name in MOMENTS:
            return MOMENTS[name][0](weft.empty(4, 3), generator)
        if name == "sparse":
            return init.sparse_(weft.empty(4, 3), 0.5, generator=generator)
        kind = init.trunc_normal_ if name == "trunc normal" else init.orthogonal_
        return kind(weft.empty(4, 3), generator=generator)

    default = weft.get_rng_state()
    first = fill(weft.Generator().manual_seed(3))
    assert weft.equal(first, fill(weft.Generator().manual_seed(3)))
    assert not weft.equal(first, fill(weft.Generator().manual_seed(4)))
    assert weft.equal(default, weft.get_rng_state())


@pytest.mark.parametrize(("mean", "std", "a", "b"), [(0, 1, -2, 2), (1, 2, 0, 1.5)])
def test_truncated_normal(mean, std, a, b):
    w = init.trunc_normal_(
        weft.empty(40000, dtype=weft.float64), mean, std, a, b
    ).numpy()
    assert a <= w.min()
    assert w.max() <= b
    # the moments of the cut bell, by summing it up
    grid = np.linspace(a, b, 20001)
    density = np.exp(-0.5 * ((grid - mean) / std) ** 2)
    density /= density.sum()
    centre = (density * grid).sum()
    check_moments(w, centre, (density * (grid - centre) ** 2).sum())


def test_truncated_normal_in_lower_precision_stays_inside():
    for dtype in (weft.float32, weft.float16, weft.bfloat16):
        w = init.trunc_normal_(weft.empty(5000, dtype=dtype), std=5.0, a=-1, b=1)
        assert float(w.abs().max()) <= 1
        assert bool(weft.isfinite(w).all())


def test_constants():
    w = weft.empty(2, 3)
    np.testing.assert_array_equal(init.constant_(w, 0.25).numpy(), 0.25)
    np.testing.assert_array_equal(init.ones_(w).numpy(), 1)
    np.testing.assert_array_equal(init.zeros_(w).numpy(), 0)
    np.testing.assert_array_equal(init.eye_(w).numpy(), np.eye(2, 3))


def test_constants_are_exact_in_double_precision():
    w = init.constant_(weft.empty(3, dtype=weft.float64), 0.1)
    w[1] = 1 / 3
    w[weft.tensor([2])] = [0.7]
    np.testing.assert_array_equal(w.numpy(), [0.1, 1 / 3, 0.7])
    z = weft.zeros(1, dtype=weft.complex128).fill_(0.1)
    assert z.numpy()[0] == 0.1


@pytest.mark.parametrize("shape", [(4, 4, 3), (4, 2, 3, 5), (6, 3, 1, 3, 3)])
def test_dirac_passes_channels_on(shape):
    w = init.dirac_(weft.empty(*shape)).numpy()
    centre = tuple(n // 2 for n in shape[2:])
    expected = np.eye(*shape[:2])
    np.testing.assert_array_equal(w[(slice(None), slice(None), *centre)], expected)
    assert w.sum() == min(shape[:2])


def test_dirac_in_groups():
    w = init.dirac_(weft.empty(6, 2, 3), groups=2).numpy()
    block = np.array([[1, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(w[:, :, 1], np.concatenate([block, block]))


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (4, 4), (4, 2, 3), (1, 5)])
@pytest.mark.parametrize("gain", [1, 1.7])
def test_orthogonal(shape, gain):
    w = init.orthogonal_(weft.empty(*shape, dtype=weft.float64), gain).numpy()
    flat = w.reshape(shape[0], -1)
    small = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(small, gain**2 * np.eye(len(small)), atol=1e-12)


def test_orthogonal_is_uniform_over_signs():
    first = [
        float(init.orthogonal_(weft.empty(2, 2, dtype=weft.float64))[0, 0])
        for _ in range(60)
    ]
    assert 15 < sum(x > 0 for x in first) < 45


def test_sparse_columns():
    w = init.sparse_(weft.empty(10, 400, dtype=weft.float64), 0.25, std=0.5).numpy()
    np.testing.assert_array_equal((w == 0).sum(0), 3)  # the ceiling of 2.5
    check_moments(w[w != 0], 0.0, 0.25)
    assert len({tuple(column) for column in (w == 0).T}) > 50


def test_gains_and_fans():
    assert init.calculate_gain("conv2d") == init.calculate_gain("sigmoid") == 1
    assert init.calculate_gain("relu") ** 2 == pytest.approx(2)
    assert init.calculate_gain("tanh") == pytest.approx(5 / 3)
    assert init.calculate_gain("selu") == 0.75
    assert init.calculate_gain("leaky_relu") ** 2 == pytest.approx(2 / 1.0001)
    assert init.calculate_gain("leaky_relu", 0.5) ** 2 == pytest.approx(1.6)
    assert init.calculate_fan_in_and_fan_out(weft.empty(*SHAPE)) == (FAN_IN, FAN_OUT)
    same = init._calculate_fan_in_and_fan_out
    assert same is init.calculate_fan_in_and_fan_out


@pytest.mark.parametrize(
    ("activation", "fill"),
    [
        ("relu", lambda w: init.kaiming_normal_(w, nonlinearity="relu")),
        ("relu", lambda w: init.kaiming_uniform_(w, nonlinearity="relu")),
        ("linear", init.xavier_normal_),
        ("linear", init.xavier_uniform_),
        ("linear", init.orthogonal_),
    ],
)
def test_signals_keep_their_size_over_twenty_layers(activation, fill):
    x = weft.randn(256, 256)
    start = float((x * x).mean())
    for _ in range(20):
        x = x @ fill(weft.empty(256, 256)).T
        if activation == "relu":
            x = x.relu()
    assert 0.5 < float((x * x).mean()) / start < 2


def test_leaves_are_filled_without_recording_and_stale_values_caught():
    w = weft.ones(3, 2, requires_grad=True)
    loss = (w * w).sum()
    init.kaiming_uniform_(w)
    assert w.is_leaf
    assert w.requires_grad
    with pytest.raises(weft.errors.AutogradError, match="changed in place"):
        loss.backward()


def test_empty_tensors_are_left_alone():
    for fill in (init.xavier_normal_, init.kaiming_uniform_, init.orthogonal_):
        assert fill(weft.empty(0, 3)).shape == (0, 3)
        assert fill(weft.empty(3, 0)).shape == (3, 0)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: init.xavier_uniform_(weft.empty(3)), ShapeError, "at least 2 dim"),
        (lambda: init.kaiming_normal_(weft.empty(3)), ShapeError, r"shape \(3,\)"),
        (lambda: init.orthogonal_(weft.empty(3)), ShapeError, "at least 2 dimensions"),
        (lambda: init.eye_(weft.empty(3)), ShapeError, "expected a matrix"),
        (lambda: init.sparse_(weft.empty(3), 0.5), ShapeError, "expected a matrix"),
        (lambda: init.dirac_(weft.empty(3, 3)), ShapeError, "3, 4 or 5 dimensions"),
        (lambda: init.dirac_(weft.empty(3, 3, 3), 2), ArgumentError, "divide 3"),
        (lambda: init.sparse_(weft.empty(3, 3), 2), ArgumentError, r"in \[0, 1\]"),
        (lambda: init.normal_(weft.empty(3), 0, -1), ArgumentError, "got -1"),
        (lambda: init.uniform_(weft.empty(3), 2, 1), ArgumentError, "a <= b"),
        (lambda: init.trunc_normal_(weft.empty(3), a=2, b=1), ArgumentError, "a < b"),
        (lambda: init.trunc_normal_(weft.empty(3), std=0), ArgumentError, "std above"),
        (
            lambda: init.kaiming_normal_(weft.empty(3, 3), mode="fan"),
            ArgumentError,
            "fan_in or fan_out, got 'fan'",
        ),
        (lambda: init.calculate_gain("sine"), ArgumentError, "got 'sine'"),
        (lambda: init.calculate_gain("leaky_relu", "a"), DTypeError, "got str"),
        (lambda: init.normal_([1.0]), DTypeError, "expected a tensor, got list"),
        (
            lambda: init.normal_(weft.zeros(2, dtype=weft.int64)),
            DTypeError,
            "floating-point tensor, got int64",
        ),
    ],
)
def test_mistakes_are_refused_with_words(call, kind, words):
    with pytest.raises(kind, match=words):
        call()
