"""Modules that are a function with options, declared by naming both.

    class LeakyReLU(FunctionalModule):
        function = F.leaky_relu
        options = {"negative_slope": 0.01, "inplace": False}

The options are the constructor's arguments, in order, with their defaults; a
default of ``REQUIRED`` must be given. Tensors among them (class weights) become
buffers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from weft import Tensor
from weft.errors import DTypeError
from weft.nn.module import Module

REQUIRED = inspect.Parameter.empty


class FunctionalModule(Module):
    """A module whose ``forward`` calls one function with fixed options."""

    function: Callable[..., Any]
    options: ClassVar[dict[str, Any]] = {}
    shows: ClassVar[str | None] = None  # a format of what the text shows, if not all

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "function" in cls.__dict__:
            cls.function = staticmethod(cls.__dict__["function"])
        cls.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default
                )
                for name, default in cls.options.items()
            ]
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        try:
            bound = type(self).__signature__.bind(*args, **kwargs)  # type: ignore[attr-defined]
        except TypeError as error:
            takes = ", ".join(self.options) or "no arguments"
            raise DTypeError(
                f"{type(self).__name__}: {error}; it takes {takes}"
            ) from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def chosen(self) -> dict[str, Any]:
        """The options as they are now."""
        return {name: getattr(self, name) for name in self.options}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs, **self.chosen())

    def extra_repr(self) -> str:
        if self.shows is not None:
            return self.shows.format(**vars(self))
        shown = []
        for name in self.options:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                shown.append(f"{name}=<{tuple(value.shape)}>")
            elif name != "inplace" or value:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)


class TrainingModule(FunctionalModule):
    """A functional module that also tells its function whether it is training."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, training=self.training, **kwargs)
