"""Special functions: accuracy, limits, identities, derivatives and errors."""

import math

import numpy as np
import pytest

import weft
from weft.autograd import gradcheck, gradgradcheck
from weft.special import (
    digamma,
    entr,
    erf,
    erfc,
    erfcx,
    erfinv,
    gammaln,
    i0,
    i0e,
    i1,
    i1e,
    log_ndtr,
    log_softmax,
    multigammaln,
    ndtr,
    ndtri,
    polygamma,
    softmax,
    xlog1py,
)

INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(0)


def f64(values):
    return weft.tensor(np.asarray(values, np.float64))


def relative(got, expected):
    got, expected = np.asarray(got.numpy()), np.asarray(expected)
    return np.max(np.abs(got - expected) / np.abs(expected))


@pytest.mark.parametrize(
    ("fn", "oracle", "x"),
    [
        (erf, math.erf, np.r_[RNG.uniform(-6, 6, 300), 10 ** RNG.uniform(-300, 0, 50)]),
        (erfc, math.erfc, RNG.uniform(-6, 26, 300)),
    ],
)
def test_agrees_with_the_standard_library(fn, oracle, x):
    assert relative(fn(f64(x)), [oracle(v) for v in x]) < 2e-15


def test_lgamma_agrees_with_the_standard_library():
    x = np.r_[RNG.uniform(0, 40, 300), 10.0 ** np.arange(9)]
    expected = [math.lgamma(v) for v in x]  # near its roots only absolutely exact
    np.testing.assert_allclose(gammaln(f64(x)).numpy(), expected, 2e-15, 4e-15)


def test_lgamma_keeps_its_digits_near_its_roots():
    z = (2 + 10 ** RNG.uniform(-12, -6, 50)) - 2  # so that 2 + z is exact
    series = z * (-0.5772156649015329 + z * (math.pi**2 / 12 - z * 0.40068563438653143))
    assert relative(gammaln(f64(1 + z)), series) < 2e-15
    assert relative(gammaln(f64(2 + z)), np.log1p(z) + series) < 2e-15


def test_lgamma_of_negative_numbers():
    x = RNG.uniform(-20, 0, 300)
    expected = np.array([math.lgamma(v) for v in x])
    np.testing.assert_allclose(
        gammaln(f64(x)).numpy(), expected, rtol=1e-14, atol=1e-14
    )


def test_erfinv_undoes_erf():
    x = np.r_[RNG.uniform(-1, 1, 200), 10 ** RNG.uniform(-200, -1, 30)]
    assert relative(erf(erfinv(f64(x))), x) < 1e-15
    tail = 10 ** RNG.uniform(-15, -1, 50)
    there = erfinv(f64(1 - tail))
    assert relative(erfc(there), 1 - (1 - tail)) < 5e-14  # d log erfc = 2 x^2


def test_digamma_satisfies_its_recurrence_and_known_values():
    x = RNG.uniform(0.1, 30, 200)
    step = digamma(f64(x + 1)) - digamma(f64(x))
    np.testing.assert_allclose(step.numpy(), 1 / x, rtol=1e-13)
    known = [-0.57721566490153286, -1.96351002602142348, 0.42278433509846714]
    assert relative(digamma(f64([1.0, 0.5, 2.0])), known) < 1e-15


def test_digamma_keeps_its_digits_near_its_root():
    root = 1.4616321449683623
    slope = 0.967672245447621  # trigamma there
    got = digamma(f64([root + 1e-9])).numpy()[0]
    assert got == pytest.approx(slope * (root + 1e-9 - 1.46163214496836234), rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_polygamma_recurrence_and_reflection(n):
    x = RNG.uniform(-3, 9, 200)
    x = x[np.abs(x - np.round(x)) > 0.05]
    step = polygamma(n, f64(x + 1)) - polygamma(n, f64(x))
    expected = (-1) ** n * math.factorial(n) * x ** -(n + 1.0)
    scale = np.abs(polygamma(n, f64(x)).numpy()) + np.abs(expected)
    assert np.max(np.abs(step.numpy() - expected) / scale) < 1e-13
    if n == 1:
        assert relative(polygamma(1, f64([1.0])), [math.pi**2 / 6]) < 1e-15


def test_bessel_functions_satisfy_their_wronskian_like_recurrence():
    x = np.r_[RNG.uniform(0.1, 40, 200), 100.0, 600.0]
    h = 1e-6 * x
    slope = (i0(f64(x + h)) - i0(f64(x - h))).numpy() / (2 * h)
    np.testing.assert_allclose(i1(f64(x)).numpy(), slope, rtol=1e-5)
    np.testing.assert_allclose(i0(f64(x)).numpy(), np.i0(x), rtol=1e-13)
    scaled = i0e(f64(x)).numpy(), i1e(f64(x)).numpy()
    np.testing.assert_allclose(scaled[0], np.i0(x) * np.exp(-x), rtol=1e-12)
    np.testing.assert_allclose(scaled[1], i1(f64(x)).numpy() * np.exp(-x), rtol=1e-12)


def test_bessel_series_and_tail_meet_at_twenty():
    below, above = i0e(f64([20.0, np.nextafter(20.0, 21)])).numpy()
    assert below == pytest.approx(above, rel=1e-14)


@pytest.mark.parametrize(
    ("fn", "at", "expected"),
    [
        (erf, [INF, -INF, NAN, -0.0], [1, -1, NAN, -0.0]),
        (erfc, [INF, -INF, NAN, 30.0], [0, 2, NAN, 0]),
        (erfcx, [INF, -INF, NAN], [0, INF, NAN]),
        (erfinv, [1, -1, 2, NAN], [INF, -INF, NAN, NAN]),
        (gammaln, [INF, 0, -1, -INF, NAN, 1, 2], [INF, INF, INF, INF, NAN, 0, 0]),
        (digamma, [INF, 0.0, -0.0, -1, NAN], [INF, -INF, INF, NAN, NAN]),
        (lambda x: polygamma(1, x), [INF, 0, -2, NAN], [0, INF, INF, NAN]),
        (i0, [INF, -INF, 0], [INF, INF, 1]),
        (i1, [INF, -INF, 0], [INF, -INF, 0]),
        (i0e, [INF, NAN], [0, NAN]),
        (ndtr, [INF, -INF], [1, 0]),
        (ndtri, [0, 1, -1, 2], [-INF, INF, NAN, NAN]),
        (log_ndtr, [INF, -INF], [0, -INF]),
        (entr, [0, -1, 1], [0, -INF, 0]),
    ],
)
def test_limits(fn, at, expected):
    np.testing.assert_array_equal(fn(f64(at)).numpy(), expected)


def test_far_tails_do_not_underflow():
    x = f64([-40.0])
    # the asymptotic series of log Phi
    series = (
        -800 - math.log(40 * math.sqrt(2 * math.pi)) + math.log1p(-1 / 1600 + 3 / 40**4)
    )
    assert log_ndtr(x).item() == pytest.approx(series, rel=1e-9)
    assert ndtri(f64([1e-300])).item() == pytest.approx(-37.0471, rel=1e-5)
    p = [1e-300, 1e-100, 1e-20, 0.3]
    x = ndtri(f64(p))
    # a relative error e of x shows as x * x * e in the probability
    error = np.abs(ndtr(x).numpy() / p - 1) / (1 + x.numpy() ** 2)
    assert error.max() < 1e-15


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float32])
@pytest.mark.parametrize("fn", [erf, erfc, gammaln, digamma, i0, softmax, log_softmax])
def test_narrow_types_are_rounded_once(fn, dtype):
    x = weft.tensor([0.3, 1.7, 2.9]).to(dtype)
    args = (0,) if fn in (softmax, log_softmax) else ()
    got = fn(x, *args)
    assert got.dtype is dtype
    wide = fn(x.double(), *args).to(dtype)
    step = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2.5e-7}[dtype.name]
    np.testing.assert_allclose(got.double().numpy(), wide.double().numpy(), rtol=step)


def test_integers_become_floats_and_complex_is_refused():
    assert weft.erf(weft.tensor([1])).dtype is weft.float32
    with pytest.raises(TypeError, match="erf: expected a floating-point dtype"):
        weft.erf(weft.tensor([1j]))


@pytest.mark.parametrize(
    "fn", [ndtr, entr, lambda x: multigammaln(x + 3, 3), lambda x: weft.polygamma(0, x)]
)
def test_compositions_have_two_derivatives(fn):
    x = weft.tensor(RNG.uniform(0.3, 2, 5), requires_grad=True)
    assert gradcheck(fn, x)
    assert gradgradcheck(fn, x)


def test_bessel_derivatives_at_zero():
    x = f64([0.0]).requires_grad_()
    (first,) = weft.autograd.grad(i1(x).sum(), x, create_graph=True)
    (second,) = weft.autograd.grad(first.sum(), x)
    assert first.item() == 0.5
    assert second.item() == 0.0


def test_xlog1py_at_zero():
    x = f64([0.0, 0.0, 0.0, 2.0]).requires_grad_()
    y = f64([-1.0, NAN, 1.0, 3.0]).requires_grad_()
    out = xlog1py(x, y)
    np.testing.assert_array_equal(out.detach().numpy()[[0, 1, 2]], [0, NAN, 0])
    out[[0, 2, 3]].sum().backward()
    np.testing.assert_allclose(x.grad.numpy()[2:], np.log1p([1, 3]))
    np.testing.assert_allclose(y.grad.numpy()[2:], [0, 0.5])


def test_polygamma_refuses_other_orders():
    with pytest.raises(ValueError, match="n to be an int of at least 0, got -1"):
        polygamma(-1, weft.ones(1))
    with pytest.raises(ValueError, match="at most 120, got 200"):
        polygamma(200, weft.ones(1))
    with pytest.raises(ValueError, match="p of at least 1, got 0"):
        multigammaln(weft.ones(1), 0)


# -- softmax


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_is_the_ratio_of_exponentials(dim):
    x = RNG.normal(size=(3, 4))
    e = np.exp(x)
    expected = e / e.sum(dim, keepdims=True)
    np.testing.assert_allclose(softmax(f64(x), dim).numpy(), expected, rtol=1e-14)
    np.testing.assert_allclose(
        f64(x).log_softmax(dim).numpy(), np.log(expected), rtol=1e-13, atol=1e-15
    )


def test_softmax_at_the_edges():
    assert softmax(weft.tensor(3.0), 0).item() == 1
    assert log_softmax(weft.tensor(3.0), 0).item() == 0
    assert softmax(weft.zeros(0, 3), 0).shape == (0, 3)
    np.testing.assert_array_equal(softmax(f64([-INF, 0.0]), 0).numpy(), [0, 1])
    assert np.isnan(softmax(f64([-INF, -INF]), 0).numpy()).all()
    assert softmax(weft.tensor([1, 2]), 0, dtype=weft.float64).dtype is weft.float64
    with pytest.raises(
        TypeError, match="softmax: expected a floating-point dtype, got int64"
    ):
        softmax(weft.tensor([1, 2]), 0)
    with pytest.raises(IndexError, match="softmax: dim 2 is out of range"):
        softmax(weft.ones(2), 2)


@pytest.mark.parametrize("fn", [softmax, log_softmax])
def test_softmax_derivatives(fn):
    x = weft.tensor(RNG.normal(size=(2, 3)), requires_grad=True)
    assert gradcheck(lambda x: fn(x, 1), x)
    assert gradgradcheck(lambda x: fn(x, 1), x)
    many = weft.func.vmap(lambda row: fn(row, 0))(x.detach())
    np.testing.assert_allclose(many.numpy(), fn(x.detach(), 1).numpy(), rtol=1e-14)
