"""Operators of Python between a tensor and an object of another library."""

import operator

import pytest

import weft


class Foreign:
    """An object with operators of its own, as libraries define them."""

    def answer(self, other):
        return "foreign", other

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = answer
    __rpow__ = __rmatmul__ = __rand__ = __ror__ = __rxor__ = answer
    __rlshift__ = __rrshift__ = __lt__ = __le__ = __gt__ = __ge__ = answer


NAMES = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_",
    "xor", "lshift", "rshift", "lt", "le", "gt", "ge",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_operators_leave_foreign_operands_to_them(name):
    x, other = weft.ones(2), Foreign()
    assert getattr(operator, name)(x, other) == ("foreign", x)
    with pytest.raises(TypeError):
        getattr(operator, name)(x, object())
    with pytest.raises(TypeError):
        getattr(operator, name)(x, None)
