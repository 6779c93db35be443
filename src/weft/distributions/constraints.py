"""Constraints: sets of tensors, as parameters and samples are declared to be in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft import Tensor
from weft.errors import ArgumentError

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky",
    "dependent", "dependent_property", "greater_than", "greater_than_eq",
    "half_open_interval", "independent", "integer_interval", "interval",
    "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial",
    "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
    "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex",
    "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values. An element of it has ``event_dim`` axes.

    >>> from weft.distributions import constraints
    >>> constraints.positive.check(weft.tensor([1.0, -1.0])).tolist()
    [True, False]
    """

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """A boolean for each event of a value: whether it is in the set."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__.removeprefix('_')}()"


class _Dependent(Constraint):
    """A set that depends on other parameters, so that it cannot be checked alone."""

    def __init__(self, *, is_discrete: Any = NotImplemented,
                 event_dim: Any = NotImplemented) -> None:  # fmt: skip
        self._is_discrete, self._event_dim = is_discrete, event_dim
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return bool(self._is_discrete)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return int(self._event_dim)

    def __call__(self, *, is_discrete: Any = NotImplemented,
                 event_dim: Any = NotImplemented) -> _Dependent:  # fmt: skip
        """The same with other properties."""
        if is_discrete is NotImplemented:
            is_discrete = self._is_discrete
        if event_dim is NotImplemented:
            event_dim = self._event_dim
        return _Dependent(is_discrete=is_discrete, event_dim=event_dim)

    def check(self, value: Tensor) -> Tensor:
        raise ArgumentError("a constraint that depends on others cannot be checked")


class _DependentProperty(property, _Dependent):
    """A property that gives a constraint, and is a dependent one on the class."""

    def __init__(self, fn: Callable[[Any], Any] | None = None, *,
                 is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented,
                 ) -> None:  # fmt: skip
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[[Any], Any]) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(
            fn, is_discrete=self._is_discrete, event_dim=self._event_dim
        )


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint depends on others.

    >>> from weft.distributions import constraints
    >>> constraints.is_dependent(constraints.dependent)
    True
    """
    return isinstance(constraint, _Dependent)


class _IndependentConstraint(Constraint):
    """A constraint of whose axes the last ones belong to an event."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        if not isinstance(reinterpreted_batch_ndims, int) or (
            reinterpreted_batch_ndims < 0
        ):
            raise ArgumentError(
                "independent: expected a number of axes of at least 0, got "
                f"{reinterpreted_batch_ndims!r}"
            )
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        good = self.base_constraint.check(value)
        if good.ndim < self.reinterpreted_batch_ndims:
            raise ArgumentError(
                f"independent: expected a value of at least {self.event_dim} "
                f"dimensions, got {value.ndim}"
            )
        kept = good.shape[: good.ndim - self.reinterpreted_batch_ndims]
        return good.reshape(*kept, -1).all(-1)

    def __repr__(self) -> str:
        return (
            f"Independent({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"
        )


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture: every component's."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        dim = value.ndim - 1 - self.event_dim
        good = self.base_constraint.check(value.unsqueeze(dim + 1))
        kept = good.shape[: dim + 1]
        return good.reshape(*kept, -1).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Boolean(Constraint):
    """Zero or one."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """Vectors of zeros and a single one."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        binary = ((value == 0) | (value == 1)).all(-1)
        return binary & (value.sum(-1) == 1)


class _Bounded(Constraint):
    """A set between bounds, which its text shows."""

    bounds: tuple[str, ...] = ()

    def __repr__(self) -> str:
        name = type(self).__name__.removeprefix("_")
        shown = ", ".join(f"{k}={_shown(getattr(self, k))}" for k in self.bounds)
        return f"{name}({shown})"


def _shown(bound: Any) -> str:
    """A bound as text; its shape, where values are not known yet."""
    if isinstance(bound, Tensor) and bound._interpreter is not None:
        return f"<{tuple(bound.shape)}>"
    return str(bound)


class _Between(_Bounded):
    bounds = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        super().__init__()


class _Interval(_Between):
    """Real numbers in [lower_bound, upper_bound]."""

    def check(self, value: Tensor) -> Tensor:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    """Real numbers in [lower_bound, upper_bound)."""

    def check(self, value: Tensor) -> Tensor:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _IntegerInterval(_Between):
    """Whole numbers in [lower_bound, upper_bound]."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        within = (self.lower_bound <= value) & (value <= self.upper_bound)
        return (value % 1 == 0) & within


class _LowerBounded(_Bounded):
    bounds = ("lower_bound",)

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound
        super().__init__()


class _GreaterThan(_LowerBounded):
    """Real numbers above ``lower_bound``."""

    def check(self, value: Tensor) -> Tensor:
        return self.lower_bound < value


class _GreaterThanEq(_LowerBounded):
    """Real numbers of at least ``lower_bound``."""

    def check(self, value: Tensor) -> Tensor:
        return self.lower_bound <= value


class _IntegerGreaterThan(_LowerBounded):
    """Whole numbers of at least ``lower_bound``."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _LessThan(_Bounded):
    """Real numbers below ``upper_bound``."""

    bounds = ("upper_bound",)

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Real(Constraint):
    """Numbers, not NaN."""

    def check(self, value: Tensor) -> Tensor:
        return value == value


class _Simplex(Constraint):
    """Vectors of non-negative numbers with sum 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Vectors of counts with sum ``upper_bound``."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    """Square matrices with nothing above the diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(Constraint):
    """Lower triangular matrices with a positive diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        lower = (value.tril() == value).flatten(-2).all(-1)
        return lower & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    """Lower Cholesky factors whose rows have norm 1."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        tolerance = weft.finfo(value.dtype).eps * value.shape[-1] * 10
        norm = (value * value).sum(-1).sqrt()
        return _LowerCholesky().check(value) & ((norm - 1).abs() < tolerance).all(-1)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        square = value.shape[-2] == value.shape[-1]
        return weft.full(value.shape[:-2], square, dtype=weft.bool, device=value.device)


class _Symmetric(_Square):
    """Matrices that are (almost) their transposes."""

    def check(self, value: Tensor) -> Tensor:
        square = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return square
        return square & value.isclose(value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices with eigenvalues of at least 0."""

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return symmetric
        return symmetric & (weft.linalg.eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices with positive eigenvalues."""

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return symmetric
        return symmetric & (weft.linalg.eigvalsh(value) > 0).all(-1)


class _Joined(Constraint):
    """Constraints for parts of a value along an axis."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(c.event_dim for c in self.cseq)


class _Cat(_Joined):
    """Constraints for consecutive slices along an axis."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0,
                 lengths: Sequence[int] | None = None) -> None:  # fmt: skip
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ArgumentError(
                f"cat: expected {len(self.cseq)} lengths, got {len(self.lengths)}"
            )

    def check(self, value: Tensor) -> Tensor:
        parts = value.split(self.lengths, self.dim)
        pairs = zip(self.cseq, parts, strict=True)
        return weft.cat([c.check(v) for c, v in pairs], self.dim)


class _Stack(_Joined):
    """Constraints for the slices along an axis."""

    def check(self, value: Tensor) -> Tensor:
        pairs = zip(self.cseq, value.unbind(self.dim), strict=True)
        return weft.stack([c.check(v) for c, v in pairs], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
