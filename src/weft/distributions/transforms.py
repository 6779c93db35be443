"""Transforms: invertible maps of tensors, with the determinants of their Jacobians."""

from __future__ import annotations

import functools
import math
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import weft
from weft import Tensor
from weft.distributions import constraints
from weft.distributions.utils import (
    sum_rightmost,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)
from weft.errors import ArgumentError
from weft.nn import functional as F

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform",
    "CorrCholeskyTransform", "CumulativeDistributionTransform", "ExpTransform",
    "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform",
    "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform",
    "Transform", "identity_transform",
]  # fmt: skip


class Transform:
    """A map ``y = t(x)``, its inverse ``t.inv(y)`` and ``log |det dy/dx|``.

    A subclass writes ``_call``, ``_inverse`` and ``log_abs_det_jacobian``. With
    ``cache_size=1`` the inverse of the last result is the argument that gave it.

    >>> t = weft.distributions.ExpTransform()
    >>> x = weft.tensor(0.5)
    >>> t.inv(t(x)), t.log_abs_det_jacobian(x, t(x))
    (tensor(0.5000, dtype=float32), tensor(0.5000, dtype=float32))
    """

    bijective: Any = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ArgumentError(f"cache_size: expected 0 or 1, got {cache_size!r}")
        self._cache_size = cache_size
        self._inv: Any = None
        if cache_size:
            self._cached_x_y: tuple[Any, Any] = (None, None)
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_inv"] = None
        return state

    @property
    def event_dim(self) -> int:
        """The number of axes of an event, where both sides have the same."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ArgumentError("use .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """The inverse, whose inverse is this transform again."""
        found = None if self._inv is None else self._inv()
        if found is None:
            found = _InverseTransform(self)
            self._inv = weakref.ref(found)
        return found

    @property
    def sign(self) -> Any:
        """The sign of the Jacobian's determinant, of a bijection of numbers."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with another size of cache."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self).__name__} has no with_cache")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __call__(self, x: Tensor) -> Tensor:
        """The transform of ``x``."""
        if self._cache_size == 0:
            return self._call(x)
        x_old, y_old = self._cached_x_y
        if x is x_old:
            return y_old
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        x_old, y_old = self._cached_x_y
        if y is y_old:
            return x_old
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``log |det dy/dx|``, given both sides."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        """The shape of the result for an argument's shape."""
        return tuple(shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        """The shape of the argument for a result's shape."""
        return tuple(shape)


class _InverseTransform(Transform):
    """The inverse of a transform."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    @property
    def domain(self) -> Any:
        return self._inv.codomain

    @property
    def codomain(self) -> Any:
        return self._inv.domain

    @property
    def bijective(self) -> Any:
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self.inv.with_cache(cache_size).inv

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """Transforms, one after the other.

    >>> parts = [weft.distributions.ExpTransform(), weft.distributions.AbsTransform()]
    >>> weft.distributions.ComposeTransform(parts)(weft.tensor(0.0))
    tensor(1., dtype=float32)
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        if cache_size:
            parts = [part.with_cache(cache_size) for part in parts]
        super().__init__(cache_size=cache_size)
        self.parts = list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    @property
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        domain = self.parts[0].domain
        event = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            event += part.domain.event_dim - part.codomain.event_dim
            event = max(event, part.domain.event_dim)
        return _widened(domain, event)

    @property
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        codomain = self.parts[-1].codomain
        event = self.parts[0].domain.event_dim
        for part in self.parts:
            event += part.codomain.event_dim - part.domain.event_dim
            event = max(event, part.codomain.event_dim)
        return _widened(codomain, event)

    @property
    def bijective(self) -> Any:
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        return functools.reduce(operator.mul, (p.sign for p in self.parts), 1)

    @property
    def inv(self) -> Transform:
        found = None if self._inv is None else self._inv()
        if found is None:
            found = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv = weakref.ref(found)
            found._inv = weakref.ref(self)
        return found

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return weft.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        terms = []
        event = self.domain.event_dim
        for part, before, after in zip(self.parts, values, values[1:], strict=False):
            term = part.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(term, event - part.domain.event_dim))
            event += part.codomain.event_dim - part.domain.event_dim
        return functools.reduce(operator.add, terms)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def __repr__(self) -> str:
        inner = ",\n    ".join(repr(p) for p in self.parts)
        return f"{type(self).__name__}(\n    {inner}\n)"


def _widened(constraint: Any, event_dim: int) -> Any:
    """A constraint whose events have at least so many axes."""
    more = event_dim - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last batch axes belong to an event.

    >>> D = weft.distributions
    >>> t = D.IndependentTransform(D.ExpTransform(), 1)
    >>> x = weft.ones(2, 3)
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor([3., 3.], shape=(2,), dtype=float32)
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int,
                 cache_size: int = 0) -> None:  # fmt: skip
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(
            self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size
        )

    @property
    def domain(self) -> Any:
        return constraints.independent(
            self.base_transform.domain, self.reinterpreted_batch_ndims
        )

    @property
    def codomain(self) -> Any:
        return constraints.independent(
            self.base_transform.codomain, self.reinterpreted_batch_ndims
        )

    @property
    def bijective(self) -> Any:
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        _check_ndim(self, x, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        _check_ndim(self, y, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(found, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.base_transform!r}, "
            f"{self.reinterpreted_batch_ndims})"
        )

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        return self.base_transform.inverse_shape(shape)


def _check_ndim(transform: Transform, value: Tensor, ndim: int) -> None:
    if value.ndim < ndim:
        raise ArgumentError(
            f"{type(transform).__name__}: expected at least {ndim} dimensions, got "
            f"{value.ndim}"
        )


class ReshapeTransform(Transform):
    """Events in another shape.

    >>> weft.distributions.ReshapeTransform((2, 3), (6,))(weft.ones(4, 2, 3)).shape
    (4, 6)
    """

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ArgumentError(
                "ReshapeTransform: expected shapes of as many elements, got "
                f"{self.in_shape} and {self.out_shape}"
            )
        super().__init__(cache_size=cache_size)

    @property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return ReshapeTransform(self.in_shape, self.out_shape, cache_size=cache_size)

    def _call(self, x: Tensor) -> Tensor:
        batch = x.shape[: x.ndim - len(self.in_shape)]
        return x.reshape((*batch, *self.out_shape))

    def _inverse(self, y: Tensor) -> Tensor:
        batch = y.shape[: y.ndim - len(self.out_shape)]
        return y.reshape((*batch, *self.in_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        return _reshaped(tuple(shape), self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        return _reshaped(tuple(shape), self.out_shape, self.in_shape)


def _reshaped(shape: tuple[int, ...], old: Any, new: Any) -> tuple[int, ...]:
    cut = len(shape) - len(old)
    if cut < 0 or shape[cut:] != old:
        raise ArgumentError(
            f"ReshapeTransform: expected a shape that ends in {old}, got {shape}"
        )
    return (*shape[:cut], *new)


class _Elementwise(Transform):
    """A bijection of numbers that has no parameters: all of a kind are equal."""

    bijective = True
    domain: Any = constraints.real
    sign = +1

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = object.__hash__


class ExpTransform(_Elementwise):
    """``y = exp(x)``.

    >>> weft.distributions.ExpTransform()(weft.tensor(0.0))
    tensor(1., dtype=float32)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """``y = x ** exponent`` of positive numbers.

    >>> weft.distributions.PowerTransform(2.0)(weft.tensor(3.0))
    tensor(9., dtype=float32)
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else (
            weft.tensor(exponent, dtype=weft.get_default_dtype())
        )  # fmt: skip

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return PowerTransform(self.exponent, cache_size=cache_size)

    @property
    def sign(self) -> Any:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool(
            self.exponent.eq(other.exponent).all()
        )

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        return weft.broadcast_shapes(tuple(shape), self.exponent.shape)

    inverse_shape = forward_shape


class SigmoidTransform(_Elementwise):
    """``y = 1 / (1 + exp(-x))``.

    >>> weft.distributions.SigmoidTransform()(weft.tensor(0.0))
    tensor(0.5000, dtype=float32)
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        info = weft.finfo(x.dtype)
        return x.sigmoid().clamp(info.tiny, 1 - info.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        info = weft.finfo(y.dtype)
        y = y.clamp(info.tiny, 1 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(_Elementwise):
    """``y = log(1 + exp(x))``.

    >>> weft.distributions.SoftplusTransform()(weft.tensor(0.0))
    tensor(0.6931, dtype=float32)
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class TanhTransform(_Elementwise):
    """``y = tanh(x)``.

    >>> weft.distributions.TanhTransform()(weft.tensor(0.0))
    tensor(0., dtype=float32)
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(Transform):
    """``y = |x|``, whose inverse is the positive one.

    >>> weft.distributions.AbsTransform()(weft.tensor(-2.0))
    tensor(2., dtype=float32)
    """

    domain = constraints.real
    codomain = constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """``y = loc + scale * x``.

    >>> weft.distributions.AffineTransform(1.0, 2.0)(weft.tensor(3.0))
    tensor(7., dtype=float32)
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0,
                 cache_size: int = 0) -> None:  # fmt: skip
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @property
    def domain(self) -> Any:
        return _widened(constraints.real, self.event_dim)

    codomain = domain

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return AffineTransform(
            self.loc, self.scale, self.event_dim, cache_size=cache_size
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AffineTransform)
            and _equal(self.loc, other.loc)
            and _equal(self.scale, other.scale)
        )

    __hash__ = object.__hash__

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            found = self.scale.abs().log()
        else:
            found = weft.full_like(x, math.log(abs(self.scale)))
        batch = x.shape[: x.ndim - self.event_dim]
        if self.event_dim:
            found = found.expand(weft.broadcast_shapes(found.shape, x.shape))
            found = sum_rightmost(found, self.event_dim)
        return found.expand(batch)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        return weft.broadcast_shapes(
            tuple(shape),
            getattr(self.loc, "shape", ()),
            getattr(self.scale, "shape", ()),
        )

    inverse_shape = forward_shape


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return bool(weft.as_tensor(a == b).all())
    return a == b


class CorrCholeskyTransform(Transform):
    """Vectors of D (D - 1) / 2 numbers as Cholesky factors of correlation matrices.

    >>> weft.distributions.CorrCholeskyTransform()(weft.zeros(3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        x = x.tanh()
        eps = weft.finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.clamp(-1 + eps, 1 - eps), diag=-1)
        rest = (1 - r * r).sqrt().cumprod(-1)  # what the row has left for the next
        r = r + weft.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * F.pad(rest[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        left = F.pad(left[..., :-1], [1, 0], value=1)
        lower = tril_matrix_to_vec(y, diag=-1)
        root = tril_matrix_to_vec(left, diag=-1).sqrt()
        return (lower / root).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor,
                             intermediates: Any = None) -> Tensor:  # fmt: skip
        left = 1 - (y * y).cumsum(-1)
        rows = tril_matrix_to_vec(left, diag=-2).log().sum(-1) / 2
        slopes = -2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(-1)
        return rows + slopes

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        n = shape[-1]
        d = round((0.25 + 2 * n) ** 0.5 + 0.5)
        if d * (d - 1) // 2 != n:
            raise ArgumentError(
                "CorrCholeskyTransform: the last size must be that of a triangle, got "
                f"{n}"
            )
        return (*tuple(shape)[:-1], d, d)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        _check_square(self, shape)
        d = shape[-1]
        return (*tuple(shape)[:-2], d * (d - 1) // 2)


def _check_square(transform: Transform, shape: Any) -> None:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ArgumentError(
            f"{type(transform).__name__}: expected square matrices, got {tuple(shape)}"
        )


class SoftmaxTransform(Transform):
    """``y = exp(x)``, normalised along the last axis.

    >>> weft.distributions.SoftmaxTransform()(weft.zeros(2))
    tensor([0.5000, 0.5000], shape=(2,), dtype=float32)
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftmaxTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        probs = (x - x.max(-1, keepdim=True).values).exp()
        return probs / probs.sum(-1, keepdim=True)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        if len(shape) < 1:
            raise ArgumentError("SoftmaxTransform: expected at least one dimension")
        return tuple(shape)

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """K - 1 numbers as K parts of a stick.

    >>> weft.distributions.StickBreakingTransform()(weft.zeros(2))
    tensor([0.3333, 0.3333, 0.3333], shape=(3,), dtype=float32)
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingTransform)

    __hash__ = object.__hash__

    def _offset(self, x: Tensor) -> Tensor:
        """The logarithms of the number of parts that are left, at each break."""
        n = x.shape[-1]
        return weft.arange(n, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Tensor) -> Tensor:
        z = (x - self._offset(x)).sigmoid()
        rest = (1 - z).cumprod(-1)
        return F.pad(z, [0, 1], value=1) * F.pad(rest, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        body = y[..., :-1]
        rest = (1 - body.cumsum(-1)).clamp(min=weft.finfo(y.dtype).tiny)
        return body.log() - rest.log() + self._offset(body)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._offset(x)
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        if len(shape) < 1:
            raise ArgumentError("StickBreakingTransform: expected at least one axis")
        return (*tuple(shape)[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        if len(shape) < 1:
            raise ArgumentError("StickBreakingTransform: expected at least one axis")
        return (*tuple(shape)[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """Square matrices as lower triangular ones with a positive diagonal.

    >>> weft.distributions.LowerCholeskyTransform()(weft.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        diagonal = x.diagonal(dim1=-2, dim2=-1).exp()
        return x.tril(-1) + weft.diag_embed(diagonal)

    def _inverse(self, y: Tensor) -> Tensor:
        diagonal = y.diagonal(dim1=-2, dim2=-1).log()
        return y.tril(-1) + weft.diag_embed(diagonal)


class PositiveDefiniteTransform(Transform):
    """Square matrices as positive definite ones.

    >>> weft.distributions.PositiveDefiniteTransform()(weft.zeros(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositiveDefiniteTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(weft.linalg.cholesky(y))


class _Joined(Transform):
    """Transforms of the parts of a tensor along an axis."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0,
                 cache_size: int = 0) -> None:  # fmt: skip
        if not all(isinstance(t, Transform) for t in tseq):
            raise ArgumentError(f"{type(self).__name__}: expected transforms")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq]
        self.dim = dim

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _join(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._parts(x), strict=True)
        return self._join([t(v) for t, v in pairs], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._parts(y), strict=True)
        return self._join([t.inv(v) for t, v in pairs], self.dim)


class CatTransform(_Joined):
    """Transforms of consecutive slices along an axis.

    >>> D = weft.distributions
    >>> t = D.CatTransform([D.ExpTransform(), D.identity_transform], lengths=[1, 2])
    >>> t(weft.zeros(3))
    tensor([1., 0., 0.], shape=(3,), dtype=float32)
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0,
                 lengths: Sequence[int] | None = None, cache_size: int = 0,
                 ) -> None:  # fmt: skip
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ArgumentError(
                f"CatTransform: expected {len(self.transforms)} lengths, got "
                f"{len(self.lengths)}"
            )

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of the axis."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        if value.shape[self.dim] != self.length:
            raise ArgumentError(
                f"CatTransform: expected axis {self.dim} to have size {self.length}, "
                f"got {value.shape[self.dim]}"
            )
        return value.split(self.lengths, self.dim)

    def _join(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        return weft.cat(list(parts), dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = []
        rows = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        for t, before, after in rows:
            term = t.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(term, self.event_dim - t.event_dim))
        dim = self.dim - x.ndim if self.dim >= 0 else self.dim
        dim += self.event_dim
        if dim < 0:
            return weft.cat(terms, dim)
        return functools.reduce(operator.add, terms)

    @property
    def domain(self) -> Any:
        return constraints.cat(
            [t.domain for t in self.transforms], self.dim, self.lengths
        )

    @property
    def codomain(self) -> Any:
        return constraints.cat(
            [t.codomain for t in self.transforms], self.dim, self.lengths
        )


class StackTransform(_Joined):
    """Transforms of the slices along an axis.

    >>> D = weft.distributions
    >>> t = D.StackTransform([D.ExpTransform(), D.identity_transform])
    >>> t(weft.zeros(2))
    tensor([1., 0.], shape=(2,), dtype=float32)
    """

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return StackTransform(self.transforms, self.dim, cache_size)

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        if value.shape[self.dim] != len(self.transforms):
            raise ArgumentError(
                f"StackTransform: expected axis {self.dim} to have size "
                f"{len(self.transforms)}, got {value.shape[self.dim]}"
            )
        return value.unbind(self.dim)

    def _join(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        return weft.stack(list(parts), dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rows = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return weft.stack([t.log_abs_det_jacobian(a, b) for t, a, b in rows], self.dim)

    @property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)


class CumulativeDistributionTransform(Transform):
    """The cumulative distribution function of a distribution.

    >>> d = weft.distributions.Normal(0.0, 1.0)
    >>> weft.distributions.CumulativeDistributionTransform(d)(weft.tensor(0.0))
    tensor(0.5000, dtype=float32)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = +1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return CumulativeDistributionTransform(self.distribution, cache_size)
