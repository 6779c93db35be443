"""Python floats that are inputs of a captured program.

A float argument that differs from call to call is no constant of the program. During
a capture it is a ``Number``: a 0-d float64 value that takes part in arithmetic as a
Python float does, with other numbers and with tensors. Code that needs its value (a
comparison, ``int``, a shape, ``math.sqrt``) is refused; the float is a constant then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from weft.errors import called_by_user


class Number:
    """A Python float whose value is known when the program runs.

    ``owner`` is the capture; ``value`` an argument's in the call that is captured.
    """

    __slots__ = ("owner", "tensor", "value")

    def __init__(self, tensor: Any, owner: Any, value: float | None = None) -> None:
        self.tensor, self.owner, self.value = tensor, owner, value

    __class__ = float  # type: ignore[assignment]  # to ``isinstance``

    def _unknown(self, *args: Any) -> NoReturn:
        raise self.owner.refuse_number(
            "the value of a float argument, which differs from call to call, is needed "
            "while the function is captured"
        )

    def _with(self, tensor: Any) -> Number:
        return Number(tensor, self.owner)

    def replaced(self, tensor: Any) -> Number:
        """The same number, as another tensor has it: one that was checked."""
        return Number(tensor, self.owner, self.value)

    def __neg__(self) -> Number:
        return self._with(-self.tensor)

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        return self._with(abs(self.tensor))

    def __truediv__(self, other: Any) -> Any:
        if type(other) is Number:
            return other.__rtruediv__(self)
        if _operand(other) is None:
            return NotImplemented
        if not other:
            raise ZeroDivisionError("float division by zero")
        return self._with(self.tensor / float(other))

    def __rtruediv__(self, other: Any) -> Any:
        operand = _operand(other)
        if operand is None:
            return NotImplemented
        if not self.value:  # Python would raise; or nobody can tell before a run
            self._unknown()
        self.owner.nonzero.add(self.tensor.node)
        return self._with(operand / self.tensor)

    __bool__ = __int__ = __float__ = __index__ = __complex__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __round__ = _unknown
    __eq__ = __ne__ = _unknown
    __divmod__ = __rdivmod__ = __trunc__ = __floor__ = __ceil__ = _unknown
    __str__ = __format__ = __reduce_ex__ = _unknown

    def __repr__(self) -> str:
        if called_by_user(sys._getframe(1)):
            self._unknown()
        return f"<float {self.tensor.name!r}>"

    def __getattr__(self, name: str) -> Any:
        self._unknown()


def _operand(value: Any) -> Any:
    """A number that a float can be combined with; None for other values."""
    if type(value) is Number:
        return value.tensor
    return float(value) if type(value) in (bool, int, float) else None


def _binary(name: str) -> Callable[[Number, Any], Any]:
    def method(self: Number, other: Any) -> Any:
        operand = _operand(other)
        if operand is None:
            return NotImplemented  # a tensor, which knows what to do
        return self._with(getattr(self.tensor, name)(operand))

    return method


def _left_to_tensors(self: Number, other: Any) -> Any:
    return NotImplemented if _operand(other) is None else self._unknown()


for _name in ("__pow__", "__rpow__", "__mod__", "__rmod__", "__floordiv__"):
    setattr(Number, _name, _left_to_tensors)
for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__"):
    setattr(Number, _name, _binary(_name))
