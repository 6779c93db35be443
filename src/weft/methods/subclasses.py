"""A tensor as an object of a subclass; ``weft.overrides`` has the protocol."""

from __future__ import annotations

from typing import Any

from weft import late


class Subclasses:
    """Tensors of subclasses, and the functions that they take over."""

    def as_subclass(self: Any, cls: Any) -> Any:
        """The same tensor, as an object of a subclass of ``Tensor``.

        >>> class Points(weft.Tensor):
        ...     pass
        >>> isinstance(weft.ones(2).as_subclass(Points), Points)
        True
        """
        return late.find("overrides").as_subclass(self, cls)

    @staticmethod
    def _make_subclass(cls: Any, data: Any, require_grad: bool = False) -> Any:
        """A tensor of a subclass over the memory of another one."""
        return late.find("overrides").make_subclass(cls, data, require_grad)

    @staticmethod
    def _make_wrapper_subclass(cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Refused: a tensor without memory needs ``__torch_dispatch__``."""
        return late.find("overrides").refuse_wrapper(cls)

    @classmethod
    def __torch_function__(
        cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the function itself; tensors that come out are of this class."""
        return late.find("overrides").run(cls, func, types, args, kwargs)
