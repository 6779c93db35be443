"""Distributions by name: arguments as lists, and values of their supports."""

_SPD = [[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]]
_TRIL = [[1.2, 0.0, 0.0], [0.3, 0.8, 0.0], [-0.5, 0.2, 1.1]]
_SIMPLEX = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
_REAL = [[-1.3, 0.4], [0.0, 2.2], [0.9, -0.3]]
_POSITIVE = [[0.3, 0.4], [1.1, 2.2], [3.9, 0.05]]
_UNIT = [[0.3, 0.4], [0.01, 0.99], [0.5, 0.75]]
_COUNTS = [[0.0, 1.0], [2.0, 4.0], [1.0, 3.0]]
_BITS = [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]

# name -> (keyword arguments, values); lists become tensors, numbers stay
CASES = {
    "Bernoulli": [
        ({"probs": [0.3, 0.8]}, _BITS),
        ({"logits": [-0.3, 0.8]}, _BITS),
    ],
    "Beta": [({"concentration1": [0.5, 2.0], "concentration0": [1.5, 3.0]}, _UNIT)],
    "Binomial": [
        ({"total_count": 4, "probs": [0.3, 0.8]}, _COUNTS),
        ({"total_count": [4.0, 4.0], "logits": [-0.3, 0.8]}, _COUNTS),
    ],
    "Categorical": [
        ({"probs": _SIMPLEX}, [[0.0, 1.0], [2.0, 0.0]]),
        ({"logits": _SIMPLEX}, [[0.0, 1.0], [2.0, 0.0]]),
    ],
    "Cauchy": [({"loc": [0.5, -2.0], "scale": [1.5, 3.0]}, _REAL)],
    "Chi2": [({"df": [1.5, 4.0]}, _POSITIVE)],
    "ContinuousBernoulli": [
        ({"probs": [0.3, 0.4995]}, _UNIT),
        ({"logits": [-0.3, 1.2]}, _UNIT),
    ],
    "Dirichlet": [({"concentration": [[0.5, 1.0, 2.0], [1.0, 3.0, 0.4]]}, _SIMPLEX)],
    "Exponential": [({"rate": [0.5, 2.0]}, _POSITIVE)],
    "FisherSnedecor": [({"df1": [2.5, 5.0], "df2": [6.0, 4.5]}, _POSITIVE)],
    "Gamma": [({"concentration": [0.5, 2.0], "rate": [1.5, 3.0]}, _POSITIVE)],
    "GeneralizedPareto": [
        (
            {"loc": [0.0, -0.1], "scale": [1.5, 3.0], "concentration": [0.2, 0.0]},
            _POSITIVE,
        )
    ],
    "Geometric": [
        ({"probs": [0.3, 0.8]}, _COUNTS),
        ({"logits": [-0.3, 0.8]}, _COUNTS),
    ],
    "Gumbel": [({"loc": [0.5, -2.0], "scale": [1.5, 3.0]}, _REAL)],
    "HalfCauchy": [({"scale": [0.5, 2.0]}, _POSITIVE)],
    "HalfNormal": [({"scale": [0.5, 2.0]}, _POSITIVE)],
    "InverseGamma": [({"concentration": [2.5, 4.0], "rate": [1.5, 3.0]}, _POSITIVE)],
    "Kumaraswamy": [
        ({"concentration1": [1.5, 2.0], "concentration0": [1.5, 3.0]}, _UNIT)
    ],
    "LKJCholesky": [
        (
            {"dim": 2, "concentration": [0.5, 2.0]},
            [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [-0.8, 0.6]]],
        )
    ],
    "Laplace": [({"loc": [0.5, -2.0], "scale": [1.5, 3.0]}, _REAL)],
    "LogNormal": [({"loc": [0.5, -2.0], "scale": [1.5, 3.0]}, _POSITIVE)],
    "LogisticNormal": [({"loc": [0.5, -1.0], "scale": [1.5, 0.7]}, _SIMPLEX)],
    "LowRankMultivariateNormal": [
        (
            {
                "loc": [0.1, 0.2, 0.3],
                "cov_factor": [[1.0, 0.5], [0.0, 0.3], [0.4, -0.2]],
                "cov_diag": [0.5, 1.0, 2.0],
            },
            [[0.5, 0.1, -0.3], [1.0, 0.0, 0.0]],
        )
    ],
    "Multinomial": [
        ({"total_count": 3, "probs": _SIMPLEX}, [[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]),
        ({"total_count": 3, "logits": _SIMPLEX}, [[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]),
    ],
    "MultivariateNormal": [
        ({"loc": [0.1, 0.2, 0.3], "covariance_matrix": _SPD}, [[0.5, 0.1, -0.3]]),
        ({"loc": [0.1, 0.2, 0.3], "precision_matrix": _SPD}, [[0.5, 0.1, -0.3]]),
        ({"loc": [[0.1, 0.2, 0.3]] * 2, "scale_tril": _TRIL}, [[0.5, 0.1, -0.3]]),
    ],
    "NegativeBinomial": [
        ({"total_count": [2.0, 3.0], "probs": [0.3, 0.8]}, _COUNTS),
        ({"total_count": 2.0, "logits": [-0.3, 0.8]}, _COUNTS),
    ],
    "Normal": [
        ({"loc": [0.5, -2.0], "scale": [1.5, 3.0]}, _REAL),
        ({"loc": [0.5, -2.0], "scale": 2.0}, _REAL),
    ],
    "OneHotCategorical": [
        ({"probs": _SIMPLEX}, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
        ({"logits": _SIMPLEX}, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
    ],
    "OneHotCategoricalStraightThrough": [
        ({"probs": _SIMPLEX}, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    ],
    "Pareto": [({"scale": [0.02, 0.04], "alpha": [2.5, 1.5]}, _POSITIVE)],
    "Poisson": [({"rate": [0.5, 2.0]}, _COUNTS)],
    "RelaxedBernoulli": [
        ({"temperature": [0.5], "probs": [0.3, 0.8]}, _UNIT),
        ({"temperature": [2.0], "logits": [0.3, 0.8]}, _UNIT),
    ],
    "RelaxedOneHotCategorical": [({"temperature": [0.5], "probs": _SIMPLEX}, _SIMPLEX)],
    "StudentT": [({"df": [2.5, 5.0], "loc": [0.5, -2.0], "scale": [1.5, 3.0]}, _REAL)],
    "Uniform": [({"low": [-2.0, -1.0], "high": [2.5, 3.0]}, _REAL)],
    "VonMises": [({"loc": [0.5, -2.0], "concentration": [1.5, 30.0]}, _REAL)],
    "Weibull": [({"scale": [0.5, 2.0], "concentration": [1.5, 3.0]}, _POSITIVE)],
    "Wishart": [
        ({"df": [4.0], "covariance_matrix": _SPD}, [_SPD]),
        ({"df": [4.0], "precision_matrix": _SPD}, [_SPD]),
        ({"df": [4.0, 5.0], "scale_tril": _TRIL}, [_SPD]),
    ],
}
ALL = [(name, k) for name, rows in CASES.items() for k in range(len(rows))]


def tensors(lib, given, dtype):
    """Lists of arguments as tensors of a library."""
    make = lambda v: (
        lib.tensor(v, dtype=getattr(lib, dtype)) if isinstance(v, list) else v
    )
    return {name: make(v) for name, v in given.items()}


def made(lib, name, k, dtype="float64", **options):
    """A distribution of either library, and values of its support."""
    given, values = CASES[name][k]
    build = getattr(lib.distributions, name)
    d = build(**tensors(lib, given, dtype), **options)
    return d, lib.tensor(values, dtype=getattr(lib, dtype))
