"""NumPy's ufuncs that are operators of Weft, with their names here."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.tensor import Tensor

_RENAMED = {
    "absolute": "abs", "fabs": "abs", "add": "add", "arccos": "acos",
    "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "conjugate": "conj", "divide": "div",
    "equal": "eq", "greater": "gt", "greater_equal": "ge", "invert": "bitwise_not",
    "left_shift": "bitwise_left_shift", "less": "lt", "less_equal": "le",
    "multiply": "mul", "negative": "neg", "not_equal": "ne", "power": "pow",
    "right_shift": "bitwise_right_shift", "rint": "round", "subtract": "sub",
    "degrees": "rad2deg", "radians": "deg2rad",
}  # fmt: skip
_SAME_NAME = [
    "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "copysign", "cos", "cosh",
    "deg2rad", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "gcd", "hypot",
    "isfinite", "isinf", "isnan", "lcm", "log", "log10", "log1p", "log2", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "maximum",
    "minimum", "nextafter", "positive", "rad2deg", "reciprocal", "remainder",
    "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]  # fmt: skip
SAME: dict[Any, str] = {
    getattr(np, theirs): ours
    for theirs, ours in {**_RENAMED, **{n: n for n in _SAME_NAME}}.items()
}
_PLAIN = (int, float)


def plain_call(ufunc: Any, args: tuple[Any, ...]) -> Any:
    """A ufunc of tensors and Python numbers; None where it takes more than that.

    >>> weft.ufuncs.plain_call(np.sqrt, (weft.tensor([4.0, 9.0]),))
    tensor([2., 3.], shape=(2,), dtype=float32)
    """
    name = SAME.get(ufunc)
    if name is None:
        return None
    for a in args:
        if not isinstance(a, Tensor) and type(a) not in _PLAIN:
            return None
    import weft

    return getattr(weft, name)(*args)
