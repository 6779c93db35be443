"""Parameters: tensors that a module owns and an optimizer moves.

A parameter is an ordinary tensor with a mark, not a subclass, so that operators
treat it like any other. ``isinstance(p, Parameter)`` looks at the mark.
"""

from __future__ import annotations

from typing import Any

from weft import Tensor
from weft.errors import DTypeError


class _Marked(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, value: Any) -> bool:
        if cls is not Parameter:  # a subclass that a program defines
            return type.__instancecheck__(cls, value)
        return isinstance(value, Tensor) and value._parameter


class Parameter(Tensor, metaclass=_Marked):
    """A tensor that becomes a module's parameter when assigned to it.

    >>> weft.nn.Parameter(weft.zeros(2))
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        from weft import empty

        if data is None:
            data = empty(0)
        if not isinstance(data, Tensor):
            raise DTypeError(
                f"Parameter: expected a tensor, got {type(data).__name__}; make one "
                "with weft.tensor(...)"
            )
        made = data.detach()
        if cls is not Parameter:
            made = made.as_subclass(cls)
        made._parameter = True
        return made.requires_grad_() if requires_grad else made


class _MarkedBuffer(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and getattr(value, "_is_buffer", False)


class Buffer(Tensor, metaclass=_MarkedBuffer):
    """A tensor that becomes a module's buffer when assigned to it.

    >>> layer = weft.nn.Module()
    >>> layer.scale = weft.nn.Buffer(weft.ones(2), persistent=False)
    >>> [name for name, _ in layer.named_buffers()], list(layer.state_dict())
    (['scale'], [])
    """

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        from weft import empty

        made: Any = (empty(0) if data is None else data).detach()
        made._is_buffer = True
        made.persistent = persistent
        return made


class UninitializedParameter:
    """A parameter or buffer whose shape is not known yet (lazy modules).

    >>> weft.nn.LazyLinear(3).weight
    <uninitialized parameter>
    """

    def __init__(
        self, requires_grad: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        self.requires_grad, self.device, self.dtype = requires_grad, device, dtype

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Refused: a lazy layer makes its parameters itself, at its first call."""
        raise RuntimeError(
            "materialize: parameters of unknown shape belong to lazy layers, which "
            "make them at the first call; use LazyLinear and the like, or make the "
            "parameter in forward when the shape is known"
        )

    def __repr__(self) -> str:
        return "<uninitialized parameter>"


class UninitializedBuffer(UninitializedParameter):
    """A buffer whose shape is not known yet."""

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: Any = None,
        persistent: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(requires_grad, device, dtype)
        self.persistent = persistent


UninitializedTensorMixin = UninitializedParameter


def is_lazy(param: Any) -> bool:
    """Whether a parameter's shape is not known yet.

    >>> weft.nn.parameter.is_lazy(weft.nn.LazyLinear(3).weight)
    True
    """
    return isinstance(param, UninitializedParameter)


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The options among ``kwargs`` with which tensors are made, checked.

    >>> weft.nn.factory_kwargs({"dtype": weft.float64})
    {'dtype': weft.float64}
    """
    if kwargs is None:
        return {}
    known = {"device", "dtype", "memory_format"}
    if not set(kwargs) <= {*known, "factory_kwargs"}:
        raise TypeError(f"unexpected kwargs {set(kwargs) - known}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for name in known & set(kwargs):
        if name in found:
            raise TypeError(f"{name} specified twice, also in factory_kwargs")
        found[name] = kwargs[name]
    return found
