"""Distributions under TensorFlow 1's names, over ``weft.distributions``."""

from __future__ import annotations

from typing import Any

import weft.distributions as plain
from weft.errors import ArgumentError
from weft.static.building import as_node, building

__all__ = [
    "Bernoulli", "Beta", "Categorical", "Dirichlet", "Distribution", "Exponential",
    "Gamma", "Laplace", "Normal", "Uniform", "kl_divergence",
]  # fmt: skip


class Distribution:
    """A distribution whose parameters are nodes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     d = weft.static.distributions.Normal(0.0, 2.0)
    ...     round(float(session.run(d.log_prob(0.0))), 4)
    -1.6121
    """

    def __init__(self, made: Any) -> None:
        self.made = made

    def _call(self, name: str, *args: Any) -> Any:
        with building():
            return getattr(self.made, name)(*[as_node(a) for a in args])

    def sample(self, sample_shape: Any = (), seed: Any = None, name: str = "") -> Any:
        """New values in every run; with a shape, so many along new first axes."""
        shape = (sample_shape,) if isinstance(sample_shape, int) else sample_shape
        with building():
            draw = self.made.rsample if self.made.has_rsample else self.made.sample
            return draw(tuple(shape))

    def log_prob(self, value: Any, name: str = "") -> Any:
        """The logarithm of the density or probability of values."""
        return self._call("log_prob", value)

    def prob(self, value: Any, name: str = "") -> Any:
        """The density or probability of values."""
        return self.log_prob(value).exp()

    def cdf(self, value: Any, name: str = "") -> Any:
        """The probability of smaller values."""
        return self._call("cdf", value)

    def entropy(self, name: str = "") -> Any:
        """The entropy."""
        return self._call("entropy")

    def mean(self, name: str = "") -> Any:
        """The mean."""
        with building():
            return self.made.mean

    def stddev(self, name: str = "") -> Any:
        """The standard deviation."""
        with building():
            return self.made.stddev

    def variance(self, name: str = "") -> Any:
        """The variance."""
        with building():
            return self.made.variance

    def mode(self, name: str = "") -> Any:
        """The likeliest value."""
        with building():
            return self.made.mode

    def kl_divergence(self, other: Distribution, name: str = "") -> Any:
        """The Kullback-Leibler divergence to another distribution."""
        return kl_divergence(self, other)


def kl_divergence(
    distribution_a: Distribution, distribution_b: Distribution, name: str = ""
) -> Any:
    """The Kullback-Leibler divergence of two distributions.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     a, b = (weft.static.distributions.Normal(0.0, s) for s in (1.0, 2.0))
    ...     round(float(session.run(weft.static.distributions.kl_divergence(a, b))), 4)
    0.3181
    """
    with building():
        return plain.kl_divergence(distribution_a.made, distribution_b.made)


def _family(kind: Any, fields: dict[str, str], example: str) -> Any:
    """A distribution with TensorFlow's names for its parameters."""

    def init(self: Any, *args: Any, name: str = "", **named: Any) -> None:
        for option in ("validate_args", "allow_nan_stats", "dtype"):
            named.pop(option, None)
        unknown = [k for k in named if k not in fields]
        if unknown or len(args) > len(fields):
            raise ArgumentError(
                f"{kind.__name__}: expected {', '.join(fields)}, got "
                f"{', '.join(unknown) or f'{len(args)} values'}"
            )
        given = {**dict(zip(fields, args, strict=False)), **named}
        nodes = {k: as_node(v) for k, v in given.items() if v is not None}
        with building():
            own = {fields[k]: node for k, node in nodes.items()}
            self.made = kind(**own, validate_args=False)
        vars(self).update(nodes)

    doc = f"""The {kind.__name__} distribution.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     d = weft.static.distributions.{kind.__name__}({example})
    ...     session.run(d.sample(3)).shape[0]
    3
    """
    return type(kind.__name__, (Distribution,), {"__init__": init, "__doc__": doc})


Normal = _family(plain.Normal, {"loc": "loc", "scale": "scale"}, "0.0, 1.0")
Laplace = _family(plain.Laplace, {"loc": "loc", "scale": "scale"}, "0.0, 1.0")
Uniform = _family(plain.Uniform, {"low": "low", "high": "high"}, "0.0, 1.0")
Exponential = _family(plain.Exponential, {"rate": "rate"}, "2.0")
Gamma = _family(
    plain.Gamma, {"concentration": "concentration", "rate": "rate"}, "2.0, 1.0"
)
Beta = _family(
    plain.Beta,
    {"concentration1": "concentration1", "concentration0": "concentration0"},
    "2.0, 1.0",
)
Dirichlet = _family(plain.Dirichlet, {"concentration": "concentration"}, "[2.0, 1.0]")
Categorical = _family(
    plain.Categorical, {"logits": "logits", "probs": "probs"}, "[0.0, 1.0]"
)
Bernoulli = _family(plain.Bernoulli, {"logits": "logits", "probs": "probs"}, "[0.0]")
