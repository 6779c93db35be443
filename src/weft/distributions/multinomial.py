"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.binomial import Binomial
from weft.distributions.categorical import Categorical
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all
from weft.errors import ArgumentError

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """How often each category came in ``total_count`` draws.

    >>> weft.distributions.Multinomial(4, weft.tensor([1.0, 3.0])).mean
    tensor([1., 3.], shape=(2,), dtype=float32)
    """

    arg_constraints = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    _parameters = {}
    _parts = ("_categorical",)

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if isinstance(total_count, Tensor) or not isinstance(total_count, int):
            raise ArgumentError(
                "Multinomial: expected total_count to be an int for all of the batch, "
                f"got {type(total_count).__name__}"
            )
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        batch = self._categorical.batch_shape
        event = self._categorical.param_shape[-1:]
        super().__init__(batch, event, validate_args=validate_args)

    def _expand_rest(self, new: Any) -> None:
        new.total_count = self.total_count
        new._binomial = Binomial(total_count=self.total_count, probs=new.probs)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def logits(self) -> Tensor:
        """The normalised log-probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """The normalised probabilities."""
        return self._categorical.probs

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *tuple(sample_shape)))
        n = self._event_shape[0]
        counts = weft.zeros(
            (*drawn.shape[1:], n), dtype=self.probs.dtype, device=self.probs.device
        )
        drawn = drawn.movedim(0, -1)
        return counts.scatter_add(-1, drawn, weft.ones_like(drawn, dtype=counts.dtype))

    def entropy(self) -> Tensor:
        n = float(self.total_count)
        some = self._categorical.entropy()
        each = self._binomial.enumerate_support(expand=False)[1:]
        chances = self._binomial.log_prob(each).exp()
        ways = (chances * (each + 1).lgamma()).sum((0, -1))
        return n * some - weft.tensor(n + 1, dtype=some.dtype).lgamma() + ways

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._given(value))
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        zero = (value == 0) & (logits == -float("inf"))
        return ways + (logits.masked_fill(zero, 0) * value).sum(-1)
