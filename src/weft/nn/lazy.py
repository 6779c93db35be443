"""Layers whose input size is learnt from their first input."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from weft import Tensor, default_generator
from weft.core.members import HOOKS
from weft.errors import ArgumentError, DTypeError
from weft.nn.module import Module
from weft.nn.parameter import UninitializedParameter


class LazyMixin:
    """Turns into the plain layer (``becomes``) on the first call.

    It takes the plain layer's arguments without the ``missing`` one, which
    ``size(input)`` gives.
    """

    becomes: type[Module]
    missing: str
    defaults: ClassVar[dict[str, Any]] = {}  # that differ from the plain layer's
    _waiting: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "becomes" in cls.__dict__:
            given = inspect.signature(cls.becomes).parameters.values()
            cls.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
                [p for p in given if p.name != cls.missing]
            )

    def __init__(self, *args: Any, **options: Any) -> None:
        Module.__init__(self)  # type: ignore[arg-type]
        try:
            bound = inspect.signature(type(self)).bind(*args, **options)
        except TypeError as error:
            raise DTypeError(f"{type(self).__name__}: {error}") from None
        self._waiting = {**self.defaults, **bound.arguments}
        self.weight: Any = UninitializedParameter()

    def size(self, input: Tensor) -> int:
        raise NotImplementedError

    def initialize(self, input: Tensor) -> None:
        """Become the plain layer for inputs like this one."""
        training = self.__dict__["training"]
        hooks = {k: self.__dict__[k] for k in HOOKS}
        options = {self.missing: self.size(input), **self._waiting}
        if "dtype" not in options:
            options["dtype"] = input.dtype
        self.__dict__.clear()
        self.__class__ = self.becomes  # type: ignore[assignment]
        self.__init__(**options)  # type: ignore[misc]
        self.__dict__.update(hooks, training=training)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.initialize(args[0])
        return self(*args, **kwargs)  # now the plain layer

    def _own(self) -> Any:
        return iter(())

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        raise ArgumentError(
            f"{type(self).__name__}: run it once before loading, so that its shapes "
            "are known"
        )

    def extra_repr(self) -> str:
        before = default_generator.get_state()  # which initialisation moves
        plain: Any = self.becomes(
            **{self.missing: self._waiting.get("groups", 1), **self._waiting}
        )
        default_generator.set_state(before)
        setattr(plain, self.missing, 0)
        return plain.extra_repr()
