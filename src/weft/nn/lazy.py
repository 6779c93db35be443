"""Layers whose input size is learnt from their first input."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.nn.module import Module


class LazyMixin:
    """Turns into the plain layer (``becomes``) on the first call or load.

    ``infer(input)`` gives the constructor's arguments that were missing.
    """

    becomes: type[Module]
    _waiting: dict[str, Any]

    def infer(self, input: Tensor) -> dict[str, Any]:
        raise NotImplementedError

    def initialize(self, input: Tensor) -> None:
        """Become the plain layer for inputs like this one."""
        training = self.__dict__["training"]
        hooks = {k: self.__dict__[k] for k in Module._hook_kinds}
        options = {**self.infer(input), **self._waiting}
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
        return ", ".join(f"{k}={v!r}" for k, v in self._waiting.items())
