"""``Variable``: PyTorch's old name of a tensor that has gradients."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor


class VariableMeta(type):
    """Every tensor is a variable."""

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)


class Variable(metaclass=VariableMeta):
    """A tensor, with the wish for gradients.

    >>> weft.autograd.Variable(weft.ones(1), requires_grad=True).requires_grad
    True
    """

    def __new__(  # type: ignore[misc]
        cls, data: Any = None, requires_grad: bool = False, volatile: bool = False
    ) -> Tensor:
        from weft.ops.creation import empty

        made = empty(0) if data is None else data
        return made.requires_grad_() if requires_grad else made
