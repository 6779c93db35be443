"""Gradients users can trust: untaken branches, norms at zero, finding the NaN."""

import warnings

import numpy as np
import pytest

import weft
from weft.autograd import detect_anomaly, grad
from weft.func import jvp


def leaf(*values):
    return weft.tensor(values, dtype=weft.float64, requires_grad=True)


# -- elements that were not selected contribute exactly zero

UNTAKEN = {
    "sqrt": (lambda x: weft.where(x > 0, x.sqrt(), 0.0), (0.0, 4.0), (0.0, 0.25)),
    "sqrt of negative": (
        lambda x: weft.where(x > 0, x.sqrt(), 0.0), (-1.0, 4.0), (0.0, 0.25),
    ),
    "log": (lambda x: weft.where(x > 0, x.log(), 0.0), (0.0, 2.0), (0.0, 0.5)),
    "division": (lambda x: weft.where(x != 0, 1 / x, 0.0), (0.0, 2.0), (0.0, -0.25)),
    "quotient": (lambda x: weft.where(x != 0, x / x, 0.0), (0.0, 2.0), (0.0, 0.0)),
    "exp overflow": (
        lambda x: weft.where(x < 10, x.exp(), 0.0), (1000.0, 0.0), (0.0, 1.0),
    ),
    "infinite factor": (
        lambda x: weft.where(x < 10, x * (1e308 * x * 10), 0.0),
        (1e10, 0.0),
        (0.0, 0.0),
    ),
    "pow": (lambda x: weft.where(x > 0, x**0.5, 0.0), (0.0, 4.0), (0.0, 0.25)),
    "asin": (lambda x: weft.where(x < 1, x.asin(), 0.0), (1.0, 0.0), (0.0, 1.0)),
    "atanh": (lambda x: weft.where(x < 1, x.atanh(), 0.0), (1.0, 0.0), (0.0, 1.0)),
    "rsqrt": (lambda x: weft.where(x > 0, x.rsqrt(), 0.0), (0.0, 1.0), (0.0, -0.5)),
    "mask": (lambda x: x.sqrt()[x > 0], (0.0, 4.0), (0.0, 0.25)),
    "index": (lambda x: x.log()[[1]], (0.0, 2.0), (0.0, 0.5)),
    "slice": (lambda x: x.log()[1:], (0.0, 2.0), (0.0, 0.5)),
    "gather": (
        lambda x: x.log().gather(0, weft.tensor([1])), (0.0, 2.0), (0.0, 0.5),
    ),
    "masked_fill": (
        lambda x: x.log().masked_fill(x == 0, 0.0), (0.0, 2.0), (0.0, 0.5),
    ),
    "two steps": (
        lambda x: weft.where(x > 0, (x.sqrt() + 1).log() / x, 0.0), (0.0, 1.0),
        (0.0, 0.25 - np.log(2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTAKEN)
def test_untaken_elements_contribute_zero(name):
    fn, point, expected = UNTAKEN[name]
    x = leaf(*point)
    fn(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-14)
    by_func = weft.func.grad(lambda v: fn(v).sum())(x.detach())
    np.testing.assert_allclose(by_func.numpy(), expected, rtol=1e-14)


def test_an_infinite_derivative_that_counts_stays_infinite():
    x = leaf(0.0)
    x.sqrt().sum().backward()
    assert x.grad.item() == float("inf")


def test_a_nan_that_counts_stays_nan():
    x = leaf(-1.0, 2.0)
    x.log().sqrt().sum().backward()
    assert np.isnan(x.grad.numpy()[0])


def test_strict_ieee_mode():
    x = leaf(0.0, 4.0)
    weft.config.strict_ieee = True
    try:
        (g,) = grad(weft.where(x > 0, x.sqrt(), 0.0).sum(), x)
    finally:
        weft.config.strict_ieee = False
    assert np.isnan(g.numpy()[0])


# -- norms and deviations at zero

AT_ZERO = {
    "norm": lambda x: x.norm(),
    "norm along a dimension": lambda x: x.reshape(1, 3).norm(dim=1).sum(),
    "sqrt of a sum of squares": lambda x: (x * x).sum().sqrt(),
    "sqrt of a sum of powers": lambda x: (x**2).sum().sqrt(),
    "sqrt of squares": lambda x: x.square().sum().sqrt(),
    "sqrt of a dot product": lambda x: (x @ x).sqrt(),
    "pow of a sum of squares": lambda x: (x * x).sum() ** 0.5,
    "std": lambda x: x.std(),
    "distance to itself": lambda x: weft.dist(x, x.detach()),
    "linalg vector norm": lambda x: weft.linalg.vector_norm(x),
    "norm p=3": lambda x: x.norm(p=3),
    "hypot": lambda x: weft.hypot(x, x).sum(),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_subgradient_at_zero_is_zero(name):
    x = leaf(0.0, 0.0, 0.0)
    AT_ZERO[name](x).backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", AT_ZERO)
def test_forward_mode_at_zero_is_not_nan(name):
    x = weft.zeros(3, dtype=weft.float64)
    _, t = jvp(AT_ZERO[name], (x,), (weft.zeros_like(x),))
    assert t.item() == 0.0


@pytest.mark.parametrize("name", AT_ZERO)
def test_elsewhere_the_gradient_is_the_usual_one(name):
    x = leaf(0.5, -0.25, 2.0)
    assert weft.autograd.gradcheck(AT_ZERO[name], x)


# -- finding the first NaN


def test_forward_anomaly_names_operator_line_and_ranges():
    x = leaf(1.0, -2.0)
    with detect_anomaly(), pytest.raises(RuntimeError, match="log made") as error:
        (x.exp() * x.log()).sum()  # the culprit
    text = str(error.value)
    assert "x: float64 (2,), from -2 to 1" in text
    assert "(x.exp() * x.log()).sum()  # the culprit" in text
    assert "1 of 2" in text


def test_backward_anomaly_names_the_forward_line():
    x = leaf(0.0, 1.0)
    with detect_anomaly():
        y = x.sqrt()  # infinite slope at 0
        with pytest.raises(RuntimeError, match="in the backward of 'sqrt'") as error:
            y.sum().backward()
    assert "y = x.sqrt()  # infinite slope at 0" in str(error.value)


def test_only_the_first_operator_is_blamed():
    x = leaf(1.0)
    bad = x / 0.0
    with detect_anomaly():
        assert not np.isfinite(
            (bad * 2).exp().detach().numpy()
        ).all()  # not from finite


def test_infinities_can_be_allowed():
    x = leaf(1.0)
    with detect_anomaly(check_inf=False):
        assert (x / 0.0).item() == float("inf")
        with pytest.raises(RuntimeError, match="sub made a non-finite"):
            (x * 1e308 * 1e308) - (x * float("inf"))


def test_fast_operators_and_python_numbers_are_watched():
    x = weft.tensor([1e38])
    with detect_anomaly(), pytest.raises(RuntimeError, match="mul made"):
        x * 1e38


def test_anomaly_mode_ends():
    with detect_anomaly():
        pass
    assert weft.tensor([-1.0]).log().isnan().item()


def test_a_second_order_nan_is_found():
    x = leaf(0.0)
    with detect_anomaly():
        (g,) = grad((x**1.5).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="backward"):
            grad(g.sum(), x)


def test_untaken_branches_are_not_blamed_for_their_gradient():
    x = leaf(0.0, 4.0)
    y = weft.where(x > 0, x.sqrt(), 0.0)
    (g,) = grad(y.sum(), x)
    assert g.tolist() == [0.0, 0.25]


# -- infinities are values, not warnings


def test_users_who_turn_warnings_into_errors_are_left_alone():
    x = weft.tensor([0.0, 1e38])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.log()[0].item() == -np.inf
        assert (x * 1e38)[1].item() == np.inf
        assert (x / 0.0).isnan()[0].item()
        assert weft.exp(x).isinf()[1].item()
        assert x.clone().mul_(1e38)[1].item() == np.inf
        assert weft.tensor([float("inf")]).long().shape == (1,)
        leaf_x = leaf(0.0)
        leaf_x.log().sum().backward()
