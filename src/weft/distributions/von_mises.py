"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import Tensor, special
from weft.core.dispatch import beside
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all

__all__ = ["VonMises"]


def _log_i0(x: Tensor) -> Tensor:
    return special.i0e(x).log() + x.abs()


class VonMises(Distribution):
    """The von Mises distribution of angles around ``loc``.

    Samples have no gradient, as in PyTorch; they are made in float64.

    >>> weft.distributions.VonMises(0.0, 1.0).log_prob(weft.tensor(0.0))
    tensor(-1.0738, dtype=float32)
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _parameters = {"loc": 0, "concentration": 0}

    def __init__(
        self, loc: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._given(value)
        found = self.concentration * (value - self.loc).cos()
        return found - math.log(2 * math.pi) - _log_i0(self.concentration)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with weft.no_grad():
            k = self.concentration.detach().double().expand(shape)
            angle = _rejected(k).to(self.loc.dtype)
            loc = self.loc.detach()
            return (angle + loc + math.pi) % (2 * math.pi) - math.pi

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance."""
        ratio = special.i1e(self.concentration) / special.i0e(self.concentration)
        return 1 - ratio


def _rejected(k: Tensor) -> Tensor:
    """Angles around 0 by Best and Fisher's rejection (1979)."""
    tau = 1 + (1 + 4 * k**2).sqrt()
    rho = (tau - (2 * tau).sqrt()) / (2 * k)
    r = weft.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))

    def going(done: Tensor, angle: Tensor) -> Tensor:
        return ~done.all()

    def turn(done: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
        with beside(k):
            u = weft.rand((3, *k.shape), dtype=k.dtype, device=k.device)
        z = (math.pi * u[0]).cos()
        f = (1 + r * z) / (r + z)
        c = k * (r - f)
        good = (c * (2 - c) - u[1] > 0) | ((c / u[1]).log() + 1 - c >= 0)
        found = (u[2] - 0.5).sign() * f.clamp(-1, 1).acos()
        return done | good, weft.where(done, angle, found)

    done = weft.zeros_like(k, dtype=weft.bool)
    return weft.while_loop(going, turn, (done, weft.zeros_like(k)))[1]
