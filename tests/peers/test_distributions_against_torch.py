"""Distributions, transforms and divergences against PyTorch's."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from distribution_cases import ALL, CASES, made

import weft

torch = pytest.importorskip("torch", reason="compares with PyTorch, not installed")

TOLERANCE = {"float32": 2e-5, "float64": 1e-10}
# PyTorch computes a part of these in float32, or by a polynomial of that precision.
NARROW = {"Multinomial", "VonMises"}
MOMENTS = ("mean", "mode", "variance", "stddev")


def outcome(act):
    """A result as an array, or the kind of error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = act()
        except (NotImplementedError, AttributeError):
            return "not implemented"
        except ValueError:
            return "refused"
    return found.detach().numpy()


def agree(what, ours, theirs, tolerance):
    a, b = outcome(ours), outcome(theirs)
    if isinstance(a, str) or isinstance(b, str):
        assert isinstance(a, str) == isinstance(b, str), (what, a, b)
        assert str(a) == str(b), what
        return
    assert a.dtype == b.dtype, what
    assert a.shape == b.shape, what
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "k"), ALL)
def test_values(name, k, dtype):
    if dtype == "float64" and name == "GeneralizedPareto":
        pytest.skip("PyTorch mixes dtypes, and refuses")
    (ours, x), (theirs, y) = made(weft, name, k, dtype), made(torch, name, k, dtype)
    tolerance = TOLERANCE["float32" if name in NARROW else dtype]
    assert ours.batch_shape == tuple(theirs.batch_shape)
    assert ours.event_shape == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    assert ours.has_enumerate_support == theirs.has_enumerate_support
    agree("log_prob", lambda: ours.log_prob(x), lambda: theirs.log_prob(y), tolerance)
    agree("cdf", lambda: ours.cdf(x), lambda: theirs.cdf(y), tolerance)
    u = [[0.1, 0.5], [0.7, 0.9]]
    agree(
        "icdf", lambda: ours.icdf(weft.tensor(u, dtype=x.dtype)),
        lambda: theirs.icdf(torch.tensor(u, dtype=y.dtype)), tolerance,
    )  # fmt: skip
    for what in MOMENTS:
        if (name, what) == ("Kumaraswamy", "mode"):
            continue  # PyTorch takes the logarithm of a negative number
        agree(
            what, lambda w=what: getattr(ours, w), lambda w=what: getattr(theirs, w),
            tolerance,
        )  # fmt: skip
    agree("entropy", ours.entropy, theirs.entropy, tolerance)
    agree("support", lambda: ours.support.check(x), lambda: theirs.support.check(y), 0)
    for expand in (False, True):
        agree(
            "enumerate_support", lambda e=expand: ours.enumerate_support(e),
            lambda e=expand: theirs.enumerate_support(e), 0,
        )  # fmt: skip


@pytest.mark.parametrize(("name", "k"), ALL)
def test_expand_and_samples_have_the_same_shapes(name, k):
    kind = "float32" if name == "GeneralizedPareto" else "float64"
    ours, theirs = (made(lib, name, k, kind)[0] for lib in (weft, torch))
    batch = (4, *ours.batch_shape)
    ours, theirs = ours.expand(batch), theirs.expand(batch)
    assert ours.batch_shape == batch
    assert ours.event_shape == tuple(theirs.event_shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's Wishart draws singular matrices
        value = theirs.sample((2,))
    tolerance = TOLERANCE["float32" if name in NARROW else kind]
    mine = ours.sample((2,))
    assert mine.shape == tuple(value.shape)
    assert mine.dtype.name == str(value.dtype).removeprefix("torch.")
    given = weft.tensor(value.numpy())
    agree(
        "log_prob",
        lambda: ours.log_prob(given),
        lambda: theirs.log_prob(value),
        tolerance,
    )


@pytest.mark.parametrize(("name", "k"), ALL)
def test_text(name, k):
    ours, theirs = made(weft, name, k)[0], made(torch, name, k)[0]
    assert str(ours).split("(")[0] == str(theirs).split("(")[0]
    assert re.findall(r"\w+(?=: )", str(ours)) == re.findall(r"\w+(?=: )", str(theirs))


@pytest.mark.parametrize("p", CASES)
def test_divergences(p):
    """The whole table: each pair, where PyTorch has it, and refused where not."""
    for q in CASES:
        ours = [made(weft, name, 0)[0] for name in (p, q)]
        theirs = [made(torch, name, 0)[0] for name in (p, q)]
        agree(
            f"KL({p}, {q})", lambda a=ours: weft.distributions.kl_divergence(*a),
            lambda b=theirs: torch.distributions.kl_divergence(*b), 1e-9,
        )  # fmt: skip


@pytest.mark.parametrize("name", ["Beta", "Gamma", "Normal", "Uniform", "Pareto"])
def test_divergence_of_independent_ones(name):
    def found(lib):
        D = lib.distributions
        p, q = (D.Independent(made(lib, name, 0)[0], 1) for _ in range(2))
        return D.kl_divergence(p, q)

    agree(name, lambda: found(weft), lambda: found(torch), 1e-12)


TRANSFORMS = {
    "ExpTransform": ((), "real"),
    "PowerTransform": ((2.5,), "positive"),
    "SigmoidTransform": ((), "real"),
    "SoftplusTransform": ((), "real"),
    "TanhTransform": ((), "real"),
    "AbsTransform": ((), "real"),
    "AffineTransform": ((1.5, -2.0), "real"),
    "SoftmaxTransform": ((), "real"),
    "StickBreakingTransform": ((), "real"),
    "CorrCholeskyTransform": ((), "real"),
    "LowerCholeskyTransform": ((), "square"),
    "PositiveDefiniteTransform": ((), "square"),
}
VALUES = {
    "real": [[-1.2, 0.3, 0.9], [0.2, 0.0, 2.0]],
    "positive": [[1.2, 0.3, 0.9]],
    "square": [[0.3, 0.1], [-0.4, 0.2]],
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    args, kind = TRANSFORMS[name]
    found = []
    for lib in (weft, torch):
        t = getattr(lib.distributions, name)(*args)
        x = lib.tensor(VALUES[kind], dtype=lib.float64)
        y = t(x)
        found.append((t, x, y))
    (ours, x, y), (theirs, u, v) = found
    agree("forward", lambda: y, lambda: v, 1e-12)
    agree("inverse", lambda: ours.inv(y), lambda: theirs.inv(v), 1e-12)
    agree(
        "jacobian", lambda: ours.log_abs_det_jacobian(x, y),
        lambda: theirs.log_abs_det_jacobian(u, v), 1e-12,
    )  # fmt: skip
    assert ours.bijective == theirs.bijective
    assert ours.domain.event_dim == theirs.domain.event_dim
    assert ours.codomain.event_dim == theirs.codomain.event_dim
    assert ours.forward_shape(x.shape) == tuple(theirs.forward_shape(u.shape))
    assert ours.inverse_shape(y.shape) == tuple(theirs.inverse_shape(v.shape))
    assert repr(ours) == repr(theirs)


def constraint_names():
    C = torch.distributions.constraints
    return [n for n in C.__all__ if isinstance(getattr(C, n), C.Constraint)]


@pytest.mark.parametrize("name", constraint_names())
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registries(registry, name):
    def found(lib):
        D = lib.distributions
        t = getattr(D, registry)(getattr(D.constraints, name))
        shape = (3,) if t.domain.event_dim < 2 else (2, 2)
        x = lib.linspace(-1, 1, 3 if t.domain.event_dim < 2 else 4, dtype=lib.float64)
        return t(x.reshape(shape))

    if name in ("dependent",):
        return
    agree(name, lambda: found(weft), lambda: found(torch), 1e-12)


def test_all_names_are_there():
    for space in ("", ".constraints", ".transforms", ".kl", ".utils"):
        theirs, ours = torch.distributions, weft.distributions
        if space:
            theirs, ours = (getattr(lib, space[1:]) for lib in (theirs, ours))
        missing = [n for n in getattr(theirs, "__all__", ()) if not hasattr(ours, n)]
        assert not missing, space


@pytest.mark.parametrize(
    ("a", "b"), [(0.1, 0.1), (0.5, 3.0), (2.0, 2.0), (100.0, 300.0)]
)
def test_dirichlet_samples_move_as_in_pytorch(a, b):
    """PyTorch's approximation is good to about three digits."""
    x = np.clip(np.random.default_rng(0).beta(a, b, 200), 1e-6, 1 - 1e-6)
    args = x, np.full_like(x, a), np.full_like(x, a + b)
    theirs = torch._dirichlet_grad(*map(torch.tensor, args))
    ours = weft._dirichlet_grad(*map(weft.tensor, args))
    np.testing.assert_allclose(ours, theirs, rtol=3e-3)
