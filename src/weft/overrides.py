"""``weft.overrides``: questions about ``__torch_function__``, which Weft never calls.

A class that wants to see operators observes them (``weft.core.mode.observe``) or
registers a device with its own kernels (``weft.register_device``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.core.tensor import Tensor


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether an argument takes over the call: never.

    >>> weft.overrides.has_torch_function((weft.ones(1),))
    False
    """
    return False


def has_torch_function_unary(value: Any) -> bool:
    """Whether an argument takes over the call: never.

    >>> weft.overrides.has_torch_function_unary(weft.ones(1))
    False
    """
    return False


def has_torch_function_variadic(*values: Any) -> bool:
    """Whether an argument takes over the call: never.

    >>> weft.overrides.has_torch_function_variadic(weft.ones(1), 2)
    False
    """
    return False


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor.

    >>> weft.overrides.is_tensor_like(weft.ones(1)), weft.overrides.is_tensor_like(3)
    (True, False)
    """
    return isinstance(inp, Tensor)


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether a function is a method of tensors.

    >>> weft.overrides.is_tensor_method_or_property(weft.Tensor.sum)
    True
    """
    return any(func is value for value in vars(Tensor).values())


def resolve_name(f: Any) -> str | None:
    """A name for a function, to show.

    >>> weft.overrides.resolve_name(weft.nn.functional.relu)
    'weft.relu'
    """
    name = getattr(f, "__qualname__", None)
    return None if name is None else f"weft.{name}"
