"""Methods that change a tensor in place and have no function of their name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtype as dtypes
from weft.core.tensor import Tensor as _Tensor
from weft.errors import (
    ArgumentError,
    ShapeError,
)
from weft.ops import (  # some for the forms that they declare
    arithmetic,  # noqa: F401
    bits,  # noqa: F401
    creation,
    indexing,
    products,
    random,
)
from weft.ops.inplace import assign, fitted, inplace, overwrite
from weft.ops.require import require_stored

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


class InPlace:
    """``+=`` and its like, and methods that fill a tensor."""

    __iadd__ = _Tensor.add_
    __isub__ = _Tensor.sub_
    __imul__ = _Tensor.mul_
    __itruediv__ = _Tensor.div_
    __ifloordiv__ = _Tensor.floor_divide_
    __imod__ = _Tensor.remainder_
    __ipow__ = _Tensor.pow_
    __iand__ = _Tensor.bitwise_and_
    __ior__ = _Tensor.bitwise_or_
    __ixor__ = _Tensor.bitwise_xor_
    __ilshift__ = _Tensor.bitwise_left_shift_
    __irshift__ = _Tensor.bitwise_right_shift_
    __imatmul__ = inplace(products.matmul, "__imatmul__", "x")

    def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Tensor:
        """Set the main diagonal to one value.

        >>> weft.zeros(2, 2).fill_diagonal_(3)
        tensor([[3., 0.],
                [0., 3.]])
        """
        if self.ndim < 2 or (self.ndim > 2 and len(set(self.shape)) > 1):
            raise ShapeError(
                "fill_diagonal_: expected a matrix, or more dimensions of one size, "
                f"got shape {self.shape}"
            )
        rows = min(self.shape)
        if wrap and self.ndim == 2:
            rows = self.shape[0]
        step = np.arange(rows)
        places = [step, *[step % (self.shape[1] + 1)] * (self.ndim - 1)]
        kept = places[1] < self.shape[1]
        ids = tuple(_Tensor(p[kept]).to(self.device) for p in places)
        self[ids] = fill_value
        return self

    def copy_(self: Any, src: Any, non_blocking: bool = False) -> Tensor:
        """Take over another tensor's values, broadcast and converted.

        >>> weft.zeros(2).copy_(weft.tensor([1, 2]))
        tensor([1., 2.])
        """
        given = indexing.given_value(src, self).to(self.device)
        value = indexing.value_for(self.shape, self, given, "copy_")
        return overwrite(self, value, "copy_")

    def fill_(self: Any, value: Any) -> Tensor:
        """Set every element to one value.

        >>> weft.zeros(2).fill_(3)
        tensor([3., 3.])
        """
        if isinstance(value, _Tensor) and value.ndim:
            raise ShapeError(
                f"fill_: expected a number or a tensor of no dimensions, got shape "
                f"{value.shape}; copy_ broadcasts"
            )
        value = require_stored("fill_", value, self.dtype)
        return InPlace.copy_(self, value)

    def zero_(self: Any) -> Tensor:
        """Set every element to 0.

        >>> weft.ones(2).zero_()
        tensor([0., 0.])
        """
        return InPlace.copy_(self, 0)

    def _refill(self: Any, values: Any, name: str) -> Tensor:
        return overwrite(self, fitted(self, values, name), name)

    def uniform_(self: Any, from_: float = 0.0, to: float = 1.0, **options: Any) -> Any:
        """Fill with uniform random numbers.

        >>> weft.zeros(2).uniform_(5, 6).min() >= 5
        tensor(True)
        """
        if from_ > to:
            raise ArgumentError(
                f"uniform_: expected from not above to, got {from_} and {to}"
            )
        values = random.rand(
            self.shape, dtype=self.dtype, device=self.device, **options
        )
        return InPlace._refill(self, values * (to - from_) + from_, "uniform_")

    def normal_(self: Any, mean: float = 0.0, std: float = 1.0, **options: Any) -> Any:
        """Fill with normal random numbers.

        >>> weft.zeros(2, 3).normal_().shape
        (2, 3)
        """
        if std < 0:
            raise ArgumentError(f"normal_: expected std of at least 0, got {std}")
        values = random.randn(
            self.shape, dtype=self.dtype, device=self.device, **options
        )
        return InPlace._refill(self, values * std + mean, "normal_")

    def bernoulli_(self: Any, p: float = 0.5, **options: Any) -> Any:
        """Fill with 1 with probability p, else 0.

        >>> weft.zeros(2).bernoulli_(1.0)
        tensor([1., 1.])
        """
        chance = creation.full_like(self, float(p), dtype=dtypes.float32)
        values = random.bernoulli(chance, **options).to(self.dtype)
        return InPlace._refill(self, values, "bernoulli_")

    def exponential_(self: Any, lambd: float = 1.0, **options: Any) -> Any:
        """Fill with exponentially distributed random numbers of rate ``lambd``.

        >>> bool((weft.zeros(2).exponential_(2.0) >= 0).all())
        True
        """
        if not lambd > 0:
            raise ArgumentError(f"exponential_: expected lambd above 0, got {lambd}")
        values = random.rand(
            self.shape, dtype=self.dtype, device=self.device, **options
        )
        return InPlace._refill(self, -(-values).log1p() / lambd, "exponential_")

    def baddbmm_(
        self: Any, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
    ) -> Tensor:
        """The in-place form of ``baddbmm``.

        >>> weft.ones(1, 1, 1).baddbmm_(weft.ones(1, 1, 2), weft.ones(1, 2, 1))
        tensor([[[3.]]])
        """
        values = products.baddbmm(self, batch1, batch2, beta=beta, alpha=alpha)
        return assign(self, fitted(self, values, "baddbmm_"), "baddbmm_")

    def cauchy_(self: Any, median: float = 0, sigma: float = 1, **options: Any) -> Any:
        """Fill with random numbers of Cauchy's distribution.

        >>> weft.zeros(3).cauchy_().shape
        (3,)
        """
        if not sigma > 0:
            raise ArgumentError(f"cauchy_: expected sigma above 0, got {sigma}")
        values = _uniform(self, options)
        drawn = ((values - 0.5) * np.pi).tan() * sigma + median
        return InPlace._refill(self, drawn, "cauchy_")

    def log_normal_(self: Any, mean: float = 1, std: float = 2, **options: Any) -> Any:
        """Fill with exponentials of normal random numbers.

        >>> bool((weft.zeros(3).log_normal_() > 0).all())
        True
        """
        if not std > 0:
            raise ArgumentError(f"log_normal_: expected std above 0, got {std}")
        values = random.randn(
            self.shape, dtype=self.dtype, device=self.device, **options
        )
        return InPlace._refill(self, (values * std + mean).exp(), "log_normal_")

    def geometric_(self: Any, p: float, **options: Any) -> Any:
        """Fill with the random number of trials until the first success.

        >>> bool((weft.zeros(3).geometric_(0.5) >= 1).all())
        True
        """
        if not 0 < p < 1:
            raise ArgumentError(f"geometric_: expected p between 0 and 1, got {p}")
        drawn = ((-_uniform(self, options)).log1p() / np.log1p(-p)).ceil().clamp(min=1)
        return InPlace._refill(self, drawn.to(self.dtype), "geometric_")

    def random_(self: Any, from_: int, to: int | None = None, **options: Any) -> Any:
        """Fill with random whole numbers from ``from_`` (or 0) up to ``to``.

        >>> weft.zeros(2).random_(1)
        tensor([0., 0.])
        """
        low, high = (0, from_) if to is None else (from_, to)
        values = random.randint(low, high, self.shape, device=self.device, **options)
        return InPlace._refill(self, values.to(self.dtype), "random_")


def _uniform(x: Any, options: dict[str, Any]) -> Any:
    """Uniform random numbers for a tensor, whole numbers in the default dtype."""
    kind = x.dtype if x.dtype.is_floating_point else dtypes.default_dtype()
    return random.rand(x.shape, dtype=kind, device=x.device, **options)
