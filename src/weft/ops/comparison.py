"""Comparing elements with one another."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.dtype import bool_
from weft.errors import ArgumentError
from weft.ops.arithmetic import abs
from weft.ops.elementwise import Public, binary, integer_samples
from weft.ops.operands import as_tensorlike
from weft.ops.predicates import isfinite, isnan
from weft.ops.public import Names, public


def _compare(
    name: str,
    infix: str,
    eval: Any,
    reference: Any,
    text: str,
    shown: str,
    public: Names,
) -> Any:
    equality = infix in ("==", "!=")
    return binary(
        name,
        eval,
        accepts="all" if equality else "ordered",
        returns="bool",
        samples=integer_samples(2, -2, 3),
        reference=reference,
        commutes=equality,
        numbers="all",
        infix=infix,
        public=public,
        doc=f"""Whether each element is {text} the other's.

    >>> weft.{name}(weft.tensor([1, 2, 3]), 2)
    tensor([{shown}])
    """,
    )


eq: Public = _compare(
    "eq",
    "==",
    np.equal,
    lambda x, y: (x - y) == 0,
    "equal to",
    "False,  True, False",
    public=Names(array_api="equal"),
)

ne: Public = _compare(
    "ne", "!=", np.not_equal, lambda x, y: (x - y) != 0, "different from",
    " True, False,  True",
    public=Names(also=("not_equal",), array_api="not_equal"),
)  # fmt: skip

lt: Public = _compare(
    "lt",
    "<",
    np.less,
    lambda x, y: (y - x) > 0,
    "less than",
    " True, False, False",
    public=Names(also=("less",), array_api="less"),
)

le: Public = _compare(
    "le",
    "<=",
    np.less_equal,
    lambda x, y: (y - x) >= 0,
    "at most",
    " True,  True, False",
    public=Names(also=("less_equal",), array_api="less_equal"),
)

gt: Public = _compare(
    "gt",
    ">",
    np.greater,
    lambda x, y: (x - y) > 0,
    "greater than",
    "False, False,  True",
    public=Names(also=("greater",), array_api="greater"),
)

ge: Public = _compare(
    "ge", ">=", np.greater_equal, lambda x, y: (x - y) >= 0, "at least",
    "False,  True,  True",
    public=Names(also=("greater_equal",), array_api="greater_equal"),
)  # fmt: skip


@public(method=True)
def isclose(
    input: Tensor,
    other: Any,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Whether ``|input - other| <= atol + rtol * |other|``, element by element.

    >>> weft.isclose(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 2.1]))
    tensor([ True, False])
    """
    if rtol < 0 or atol < 0:
        raise ArgumentError(
            f"isclose: expected rtol and atol of at least 0, got {rtol} and {atol}"
        )
    other = as_tensorlike(other)
    if input.dtype is bool_ or other.dtype is bool_:
        return input == other
    near = (abs(input - other) <= atol + rtol * abs(other)) & isfinite(other)
    near = near | (input == other)
    if equal_nan:
        near = near | (isnan(input) & isnan(other))
    return near


@public(method=True)
def allclose(
    input: Tensor,
    other: Any,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether all elements are close; see ``isclose``.

    >>> weft.allclose(weft.tensor([1.0]), weft.tensor([1.0 + 1e-9]))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public(method=True)
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and the same elements.

    >>> weft.equal(weft.tensor([1, 2]), weft.tensor([1, 2]))
    True
    """
    return input.shape == other.shape and bool((input == other).all())
