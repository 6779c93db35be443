"""Distributions: samples by statistics, gradients by differences, checks of values."""

import math

import numpy as np
import pytest
from distribution_cases import ALL, CASES, made, tensors

import weft
from weft.autograd import gradcheck
from weft.errors import ArgumentError

D = weft.distributions
N = 20000
DISCRETE = {"Bernoulli", "Binomial", "Geometric", "NegativeBinomial", "Poisson"}
CONTINUOUS = {
    "Beta", "Cauchy", "Chi2", "ContinuousBernoulli", "Exponential", "FisherSnedecor",
    "Gamma", "GeneralizedPareto", "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma",
    "Kumaraswamy", "Laplace", "LogNormal", "Normal", "Pareto", "RelaxedBernoulli",
    "StudentT", "Uniform", "VonMises", "Weibull",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONTINUOUS))
def test_samples_follow_the_density(name):
    """Kolmogorov and Smirnov's test against the integral of exp(log_prob)."""
    weft.manual_seed(3)
    d, _ = made(weft, name, 0)
    x = d.sample((N,))
    assert bool(d.support.check(x).all())
    for column in range(2):
        found = np.sort(x[:, column].numpy())
        inner = found[(found > np.quantile(found, 0.01))
                      & (found < np.quantile(found, 0.99))]  # fmt: skip
        grid = np.unique(np.concatenate([inner, np.linspace(inner[0], inner[-1], N)]))
        wide = np.repeat(grid[:, None], 2, 1)
        density = d.log_prob(weft.tensor(wide)).exp().numpy()[:, column]
        steps = np.diff(grid) * (density[1:] + density[:-1]) / 2
        total = np.concatenate([[0], np.cumsum(steps)])
        expected = np.interp(inner, grid, total)
        observed = np.arange(len(inner)) / N
        assert np.abs(observed - expected).max() < 1.95 / math.sqrt(N)  # 0.1 %


@pytest.mark.parametrize("name", sorted(DISCRETE))
def test_samples_have_their_probabilities(name):
    weft.manual_seed(4)
    d, _ = made(weft, name, 0)
    x = d.sample((N,)).numpy()
    for value in range(4):
        if name == "Bernoulli" and value > 1:
            continue
        p = d.log_prob(weft.full((2,), float(value), dtype=weft.float64)).exp().numpy()
        observed = (x == value).mean(0)
        assert (np.abs(observed - p) < 4 * np.sqrt(p * (1 - p) / N) + 1e-9).all()


VECTORS = sorted(set(CASES) - DISCRETE - CONTINUOUS - {"Categorical"})


@pytest.mark.parametrize("name", VECTORS)
def test_mean_and_variance_of_vectors(name):
    weft.manual_seed(5)
    d, _ = made(weft, name, 0)
    x = d.sample((N,))
    assert bool(d.support.check(x).all())
    try:
        mean, variance = d.mean.numpy(), d.variance.numpy()
    except NotImplementedError:
        return
    found = x.numpy()
    assert (np.abs(found.mean(0) - mean) < 5 * np.sqrt(variance / N) + 1e-12).all()
    fourth = ((found - mean) ** 4).mean(0)
    bound = 5 * np.sqrt(fourth / N) + 1e-12
    assert (np.abs(found.var(0) - variance) < bound).all()


def test_categories_are_drawn_by_probability():
    weft.manual_seed(6)
    d = D.Categorical(weft.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]))
    x = d.sample((N,)).numpy()
    for k, p in enumerate((0.2, 0.3, 0.5)):
        assert abs((x[:, 0] == k).mean() - p) < 4 * math.sqrt(p * (1 - p) / N)
    assert (x[:, 1] == 0).all()


@pytest.mark.parametrize(("name", "k"), ALL)
def test_a_seed_gives_the_same_samples(name, k):
    d, _ = made(weft, name, k)
    weft.manual_seed(7)
    first = d.sample((3,))
    assert first.shape == (3, *d.batch_shape, *d.event_shape)
    weft.manual_seed(7)
    assert weft.equal(first, d.sample((3,)))
    assert not first.requires_grad


@pytest.mark.parametrize(("name", "k"), ALL)
def test_gradients_of_log_prob(name, k):
    given, _ = CASES[name][k]
    _, value = made(weft, name, k)
    build = getattr(D, name)
    names = [n for n, v in given.items() if isinstance(v, list)]
    if name == "Binomial":
        names = [n for n in names if n != "total_count"]
    fixed = tensors(weft, given, "float64")

    def density(*params):
        found = {**fixed, **dict(zip(names, params, strict=True))}
        return build(**found, validate_args=False).log_prob(value)

    assert gradcheck(density, [fixed[n].requires_grad_() for n in names])


@pytest.mark.parametrize("name", ["Gamma", "Exponential", "Normal", "Laplace",
                                  "Uniform", "Gumbel", "Weibull", "Kumaraswamy",
                                  "LogNormal", "HalfNormal", "Pareto", "InverseGamma",
                                  "ContinuousBernoulli", "Cauchy"])  # fmt: skip
def test_samples_move_along_the_cumulative_distribution(name):
    """dx/dθ = -(dF/dθ) / p(x), whichever way a sample is drawn."""
    weft.manual_seed(8)
    given = tensors(weft, CASES[name][0][0], "float64")
    for n, v in given.items():
        given[n] = v.requires_grad_()
    d = getattr(D, name)(**given, validate_args=False)
    x = d.rsample()
    moved = weft.autograd.grad(x.sum(), list(given.values()))
    still = x.detach()
    level = d.cdf(still).sum()
    slopes = weft.autograd.grad(level, list(given.values()))
    density = d.log_prob(still).exp()
    for a, b in zip(moved, slopes, strict=True):
        np.testing.assert_allclose(
            a.numpy(), (-b / density).detach().numpy(), rtol=1e-7, atol=1e-9
        )


@pytest.mark.parametrize("name", ["Beta", "Dirichlet", "StudentT", "FisherSnedecor",
                                  "Wishart", "MultivariateNormal",
                                  "LowRankMultivariateNormal"])  # fmt: skip
def test_gradients_of_samples_are_those_of_moments(name):
    """The derivative of E x is that of the mean, within five standard errors."""
    weft.manual_seed(9)
    given = tensors(weft, CASES[name][0][0], "float64")
    for n, v in given.items():
        given[n] = v.requires_grad_()
    build = getattr(D, name)
    shape = build(**given).mean.shape
    weight = weft.linspace(1, 2, math.prod(shape), dtype=weft.float64).reshape(shape)
    runs = []
    for _ in range(40):
        x = build(**given).rsample((100,))
        loss = (x * weight).sum() / 100
        runs.append(weft.autograd.grad(loss, list(given.values())))
    expected = weft.autograd.grad(
        (build(**given).mean * weight).sum(), list(given.values()),
        materialize_grads=True,
    )  # fmt: skip
    for k, e in enumerate(expected):
        found = np.stack([r[k].numpy() for r in runs])
        error = found.std(0, ddof=1) / math.sqrt(len(runs))
        gap = np.abs(found.mean(0) - e.numpy())
        if name in ("Wishart", "MultivariateNormal") and e.ndim == 2:
            gap, error = gap + gap.T, error + error.T  # of a symmetric matrix
        assert (gap < 5 * error + 1e-9).all()


def test_entropy_by_the_bregman_divergence():
    for name in ("Normal", "Gamma", "Beta", "Dirichlet", "Exponential", "Bernoulli"):
        d, _ = made(weft, name, 0)
        bregman = D.ExponentialFamily.entropy(d)
        np.testing.assert_allclose(
            bregman.detach().numpy(), d.entropy().numpy(), rtol=1e-10, err_msg=name
        )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: D.Normal(0.0, -1.0), r"Normal: expected parameter scale .*-1\.0"),
        (lambda: D.Normal(weft.ones(2), weft.tensor([1.0, -3.0])), r"\(1,\)"),
        (lambda: D.Bernoulli(1.5), "Interval"),
        (lambda: D.Bernoulli(), "either probs or logits"),
        (lambda: D.Uniform(2.0, 1.0), "low < high"),
        (lambda: D.Geometric(0.0), "positive"),
        (lambda: D.Wishart(1.0, weft.eye(3)), "df above 2"),
        (lambda: D.MultivariateNormal(weft.zeros(2)), "exactly one"),
        (lambda: D.Normal(0.0, 1.0).log_prob(weft.tensor(math.nan)), "the value"),
        (lambda: D.Beta(1.0, 1.0).log_prob(weft.tensor(1.5)), "Interval"),
        (lambda: D.Poisson(1.0).log_prob(weft.tensor(0.5)), "IntegerGreaterThan"),
        (lambda: D.Dirichlet(weft.ones(2)).log_prob(weft.ones(3)), "event shape"),
        (lambda: D.Normal(weft.zeros(2), 1.0).log_prob(weft.ones(3)), "broadcasts"),
        (lambda: D.Normal([0.0], 1.0), "numbers and tensors"),
        (lambda: D.Independent(D.Normal(0.0, 1.0), 1), "at most 0"),
    ],
)  # fmt: skip
def test_wrong_values_are_told(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()


def test_checks_can_be_switched_off():
    assert D.Normal(0.0, -1.0, validate_args=False).scale == -1
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)


COMMON = {
    "Normal": lambda a, b: D.Normal(a, b),
    "Uniform": lambda a, b: D.Uniform(a - b, a + b),
    "Gamma": lambda a, b: D.Gamma(b, b),
    "Bernoulli": lambda a, b: D.Bernoulli(logits=a),
    "Categorical": lambda a, b: D.Categorical(logits=a),
    "Exponential": lambda a, b: D.Exponential(b),
    "Beta": lambda a, b: D.Beta(b, b),
    "Laplace": lambda a, b: D.Laplace(a, b),
    "LogNormal": lambda a, b: D.LogNormal(a, b),
    "StudentT": lambda a, b: D.StudentT(b, a),
    "Dirichlet": lambda a, b: D.Dirichlet(b),
    "Gumbel": lambda a, b: D.Gumbel(a, b),
    "VonMises": lambda a, b: D.VonMises(a, b),
}


@pytest.mark.parametrize("name", COMMON)
def test_compiled_programs_give_the_eager_answer(name):
    build = COMMON[name]
    a, b = weft.tensor([0.3, -0.2, 0.9]), weft.tensor([0.5, 1.5, 2.0])

    def program(a, b):
        d = build(a, b)
        x = d.sample((4,))
        again = d.rsample((2,)) if d.has_rsample else x
        return x, again, d.log_prob(x)

    weft.manual_seed(11)
    eager = program(a, b)
    weft.manual_seed(11)
    compiled = weft.compile(program)(a, b)
    for e, c in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(c.numpy(), e.numpy(), rtol=2e-5, atol=2e-6)


def test_compiled_programs_check_values():
    @weft.compile
    def density(loc, scale, x):
        return D.Normal(loc, scale).log_prob(x)

    good = weft.zeros(3), weft.ones(3), weft.ones(3)
    assert weft.equal(density(*good), D.Normal(*good[:2]).log_prob(good[2]))
    with pytest.raises(ArgumentError, match=r"parameter scale .*-1\.0 at position"):
        density(weft.zeros(3), -weft.ones(3), weft.ones(3))
    with pytest.raises(ArgumentError, match="the value"):
        density(weft.zeros(3), weft.ones(3), weft.full((3,), math.nan))


def test_gradients_flow_through_compiled_samples():
    def step(a):
        return (D.Gamma(a, weft.ones(3)).rsample((5,)) ** 2).sum()

    a = weft.tensor([0.5, 1.5, 3.0])
    weft.manual_seed(1)
    expected = weft.func.grad(step)(a)
    weft.manual_seed(1)
    found = weft.compile(weft.func.grad(step))(a)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


def test_a_lazy_value_of_a_program_stays_in_it():
    d = D.Bernoulli(probs=weft.tensor([0.2, 0.7]))
    f = weft.compile(lambda x: d.log_prob(x))
    x = weft.tensor([1.0, 0.0])
    found = f(x)
    assert "logits" not in d.__dict__
    assert weft.allclose(found, d.log_prob(x))
    assert "logits" in d.__dict__


def test_static_graphs_draw_new_numbers_in_every_run():
    import weft.static as static

    with static.Graph().as_default():
        scale = static.placeholder("float32", (3,))
        node = D.Normal(weft.zeros(3), scale).rsample((2,))
        with static.Session() as session:
            one, two = (session.run(node, {scale: np.ones(3)}) for _ in range(2))
    assert one.shape == (2, 3)
    assert not np.array_equal(one, two)


def test_vmap_of_samples():
    a = weft.ones(4, 2)
    draw = lambda c: D.Gamma(c, c).rsample()
    x = weft.func.vmap(draw, randomness="different")(a)
    assert len(set(x.ravel().tolist())) == 8
    same = weft.func.vmap(draw, randomness="same")(a)
    assert weft.equal(same[0], same[3])
    with pytest.raises(ArgumentError, match="randomness"):
        weft.func.vmap(draw)(a)


def test_ambiguous_divergences_are_told():
    class P(D.Normal):
        pass

    class Q(D.Normal):
        pass

    one = D.register_kl(P, D.Normal)(lambda p, q: weft.tensor(1.0))
    D.register_kl(D.Normal, Q)(lambda p, q: weft.tensor(2.0))
    try:
        with pytest.warns(RuntimeWarning, match="Ambiguous"):
            D.kl_divergence(P(0.0, 1.0), Q(0.0, 1.0))
        D.register_kl(P, Q)(one)
        assert D.kl_divergence(P(0.0, 1.0), Q(0.0, 1.0)) == 1
    finally:
        from weft.distributions import kl

        for pair in ((P, D.Normal), (D.Normal, Q), (P, Q)):
            kl._KL_REGISTRY.pop(pair)
        kl._KL_MEMOIZE.clear()


def test_divergences_are_expectations():
    """KL(p, q) is the mean of log p - log q, within five standard errors."""
    weft.manual_seed(12)
    pairs = [
        (D.Gamma(2.0, 3.0), D.Gumbel(0.3, 0.8)),
        (D.Beta(2.0, 3.0), D.ContinuousBernoulli(0.3)),
        (D.Uniform(0.2, 0.7), D.Beta(2.0, 0.5)),
        (D.Normal(0.3, 0.8), D.Laplace(0.0, 1.5)),
        (D.Pareto(1.0, 5.0), D.Gamma(2.0, 1.0)),
        (D.Gumbel(0.0, 1.0), D.Gumbel(0.5, 2.0)),
        (D.Exponential(2.0), D.Normal(0.1, 2.0)),
    ]
    for p, q in pairs:
        x = p.sample((N,))
        gap = (p.log_prob(x) - q.log_prob(x)).numpy()
        error = gap.std() / math.sqrt(N)
        assert abs(gap.mean() - float(D.kl_divergence(p, q))) < 5 * error


def test_a_cached_transform_remembers_its_argument():
    t = D.ExpTransform(cache_size=1)
    x = weft.tensor([0.3])
    y = t(x)
    assert t.inv(y) is x
    assert t(x) is y
    assert D.ExpTransform().inv(y) is not x


def test_jacobians_of_transforms_are_determinants():
    maps = [
        (D.StickBreakingTransform(), weft.tensor([0.3, -0.4], dtype=weft.float64)),
        (D.AffineTransform(1.0, weft.tensor(2.0)), weft.tensor([0.3, 1.0]).double()),
        (D.TanhTransform(), weft.tensor([0.3, 1.0], dtype=weft.float64)),
    ]
    for t, x in maps:
        jacobian = weft.func.jacrev(lambda v, t=t: t(v)[: v.shape[0]])(x)
        expected = jacobian.numpy()
        found = t.log_abs_det_jacobian(x, t(x)).sum()
        np.testing.assert_allclose(
            float(found), math.log(abs(np.linalg.det(expected))), rtol=1e-6
        )


def test_a_subclass_with_its_own_init_must_define_expand():
    class Shifted(D.Normal):
        def __init__(self, by):
            super().__init__(by, 1.0)

    with pytest.raises(NotImplementedError, match="must define expand"):
        Shifted(1.0).expand((2,))


def test_transforms_of_parts():
    x = weft.tensor([[0.5, 2.0], [1.0, 3.0]])
    t = D.StackTransform([D.ExpTransform(), D.AffineTransform(0.0, 2.0)], dim=1)
    assert weft.allclose(t(x)[:, 0], x[:, 0].exp())
    assert weft.allclose(t(x)[:, 1], x[:, 1] * 2)
    assert weft.allclose(t.inv(t(x)), x)
    assert t.log_abs_det_jacobian(x, t(x)).shape == (2, 2)
    c = D.CatTransform([D.ExpTransform(), D.identity_transform], 1, [1, 1])
    assert weft.allclose(c.inv(c(x)), x)
    with pytest.raises(ArgumentError, match="size 2"):
        c(weft.ones(2, 3))
