"""The base of distributions: shapes, checks of values, and what all of them offer."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import weft
from weft import Tensor
from weft.core.dispatch import beside
from weft.core.size import Shape
from weft.distributions import constraints
from weft.distributions.transforms import Transform
from weft.distributions.utils import check_values, lazy_property
from weft.errors import ArgumentError


class Distribution:
    """A probability distribution over tensors.

    A sample has the shape ``sample_shape + batch_shape + event_shape``. Parameters and
    values are checked, unless ``validate_args=False``; captured programs check too.

    >>> d = weft.distributions.Normal(weft.zeros(3), 1.0)
    >>> d.batch_shape, d.event_shape, d.sample((2,)).shape
    ((3,), (), (2, 3))
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    # For ``expand``: each parameter with its number of event axes, and the names of
    # the distributions that this one is made of.
    _parameters: Mapping[str, int] = {}
    _parts: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        """Draw where the parameters are computed: now, or in their graph."""
        super().__init_subclass__()
        for name in ("sample", "rsample"):
            if name in vars(cls):
                setattr(cls, name, _drawn(vars(cls)[name]))

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check values, where they are not told.

        >>> weft.distributions.Distribution.set_default_validate_args(True)
        """
        if value not in (True, False):
            raise ArgumentError(
                f"set_default_validate_args: expected a bool, got {value!r}"
            )
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Any = (),
        event_shape: Any = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Shape(batch_shape)
        self._event_shape = Shape(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            found = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self).__name__} does not define `arg_constraints`; pass "
                "validate_args=False to turn the check off",
                stacklevel=4,
            )
            return
        for name, constraint in found.items():
            lazy = isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or (
                lazy and name not in self.__dict__
            ):
                continue
            value = getattr(self, name)
            self._check(f"parameter {name}", constraint, value)

    def _check(self, what: str, constraint: Any, value: Tensor) -> None:
        text = (
            f"{type(self).__name__}: expected {what} (of shape {tuple(value.shape)}) "
            f"to satisfy the constraint {constraint!r}, but found "
        )
        text = text.replace("{", "{{").replace("}", "}}") + "{value}{where}"
        check_values(value, constraint.check(value), text)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with its parameters expanded to a batch shape.

        >>> weft.distributions.Normal(0.0, 1.0).expand((2, 3)).batch_shape
        (2, 3)
        """
        new = self._get_checked_instance(self._owner(), _instance)
        shape = tuple(batch_shape)
        for name, ndim in self._parameters.items():
            if name in self.__dict__:
                value = self.__dict__[name]
                event = value.shape[value.ndim - ndim :]
                setattr(new, name, value.expand((*shape, *event)))
        for name in self._parts:
            setattr(new, name, getattr(self, name).expand(shape))
        self._expand_rest(new)
        Distribution.__init__(new, shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _owner(self) -> type:
        """The class that says how this distribution is expanded."""
        owner = next(c for c in type(self).__mro__ if "_parameters" in vars(c))
        if owner is Distribution:
            raise NotImplementedError(f"{type(self).__name__} has no expand")
        return owner

    def _expand_rest(self, new: Any) -> None:
        """Give an expanded copy what has no batch shape."""

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"{type(self).__name__} has an __init__ of its own and must define "
                "expand as well"
            )
        return self.__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Shape:
        """The shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Shape:
        """The shape of one sample (without batching)."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """The constraints of the parameters, by name."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self).__name__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation.

        >>> weft.distributions.Normal(0.0, 2.0).stddev
        tensor(2.)
        """
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Samples, without a gradient.

        >>> weft.distributions.Normal(0.0, 1.0).sample((2, 3)).shape
        (2, 3)
        """
        with weft.no_grad():
            return self.rsample(sample_shape).detach()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Samples through which gradients of the parameters flow."""
        raise NotImplementedError(
            f"{type(self).__name__} has no rsample; its samples have no gradient"
        )

    def sample_n(self, n: int) -> Tensor:
        """``n`` samples; ``sample((n,))`` is newer."""
        warnings.warn(
            "sample_n(n) will be deprecated. Use .sample((n,)) instead.",
            UserWarning,
            stacklevel=2,
        )
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at a value."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first axis."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy.

        >>> weft.distributions.Categorical(weft.ones(4)).perplexity()
        tensor(4.)
        """
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> tuple[int, ...]:
        return (*tuple(sample_shape), *self._batch_shape, *self._event_shape)

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """Values (n, *event) along the first axis, beside or over the batch."""
        event = values.shape[1:]
        ones = (1,) * len(self._batch_shape)
        values = values.reshape(values.shape[0], *ones, *event)
        shape = (values.shape[0], *self._batch_shape, *event)
        return values.expand(shape) if expand else values

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentError(
                f"{type(self).__name__}: expected the value to be a tensor, got "
                f"{type(value).__name__}"
            )
        event = len(self._event_shape)
        if value.shape[value.ndim - event :] != self._event_shape:
            raise ArgumentError(
                f"{type(self).__name__}: expected a value whose last dimensions are "
                f"the event shape {self._event_shape}, got {tuple(value.shape)}"
            )
        expected = (*self._batch_shape, *self._event_shape)
        pairs = zip(reversed(value.shape), reversed(expected), strict=False)
        if any(i != 1 and j != 1 and i != j for i, j in pairs):
            raise ArgumentError(
                f"{type(self).__name__}: expected a value that broadcasts with "
                f"{expected}, got {tuple(value.shape)}"
            )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self).__name__} does not define `support`; pass "
                "validate_args=False to turn the check off",
                stacklevel=3,
            )
            return
        self._check("the value", support, value)

    def _given(self, value: Tensor) -> Tensor:
        """A value of this distribution, checked where values are."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def __repr__(self) -> str:
        names = [k for k in self.arg_constraints if k in self.__dict__]
        shown = ", ".join(f"{k}: {_short(self.__dict__[k])}" for k in names)
        return f"{type(self).__name__}({shown})"


def _drawn(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(draw)
    def drawn(self: Any, *args: Any, **options: Any) -> Tensor:
        traced = next((x for x in _tensors(self) if x._interpreter is not None), None)
        if traced is None:
            return draw(self, *args, **options)
        with beside(traced):
            return draw(self, *args, **options)

    return drawn


def _tensors(d: Any) -> Iterator[Tensor]:
    """All tensors that a distribution is made of."""
    for value in vars(d).values():
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (Distribution, Transform)):
            yield from _tensors(value)
        elif type(value) is list:
            for one in value:
                yield from _tensors(one)


def _short(value: Tensor) -> str:
    """A parameter in a distribution's text: a number, or its shape."""
    if value._interpreter is not None or value.numel() != 1:
        return str(tuple(value.shape))
    return str(value.item()) if value.ndim == 0 else str(value)
