"""Rounding elements, and their neighbours among the floating-point numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.eager_kernels import SLOW
from weft.core.tensor import Tensor
from weft.ops.creation import ones_like
from weft.ops.elementwise import Public, binary, unary
from weft.ops.public import Names, public


def _rounding(
    name: str,
    eval: Any,
    reference: Any,
    text: str,
    shown: str,
    public: Names | None,
) -> Any:
    return unary(
        name,
        eval,
        accepts="real",
        d=lambda x: x * 0,
        reference=reference,
        domain=(1.1, 1.4),
        exact=True,
        public=public,
        doc=f"""{text}; its derivative is zero.

    >>> weft.{name}(weft.tensor([-1.7, 1.5, 2.5]))
    tensor([{shown}])
    """,
    )


floor: Public = _rounding(
    "floor", np.floor, lambda x: x - np.mod(x, 1), "The whole number below",
    "-2.,  1.,  2.",
    public=Names(array_api=True),
)  # fmt: skip

ceil: Public = _rounding(
    "ceil", np.ceil, lambda x: x + np.mod(-x, 1), "The whole number above",
    "-1.,  2.,  3.",
    public=Names(array_api=True),
)  # fmt: skip

trunc: Public = _rounding(
    "trunc", np.trunc, lambda x: np.sign(x) * np.floor(np.abs(x)),
    "The whole part", "-1.,  1.,  2.",
    public=Names(also=("fix",), array_api=True),
)  # fmt: skip

_round: Public = _rounding(
    "round", lambda x: x.copy() if x.dtype.kind in "iub" else np.rint(x),
    lambda x: np.floor(x + 0.5),
    "The nearest whole number, ties to even", "-2.,  2.,  2.",
    public=None,
)  # fmt: skip


@public(method=True, inplace="", ufuncs=("rint",))
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Each element rounded, ties to even.

    >>> weft.round(weft.tensor([0.5, 1.25]), decimals=1)
    tensor([0.5000, 1.2000])
    """
    if decimals == 0:
        return _round(input)
    return _round(input * 10.0**decimals) / 10.0**decimals


@public(method=True, inplace="")
def frac(input: Tensor) -> Tensor:
    """The part behind the point, with the element's sign.

    >>> weft.frac(weft.tensor([1.25, -1.5]))
    tensor([ 0.2500, -0.5000])
    """
    return input - trunc(input)


nextafter: Public = binary(
    "nextafter",
    np.nextafter,
    accepts="floating",
    d={"x": lambda x: ones_like(x), "y": lambda y: y * 0},
    domain=((1.1, 1.4), (1.6, 1.9)),
    bulk=SLOW,
    reference=lambda x, y: x + np.spacing(x),
    cost=10,
    exact=True,
    public=Names(array_api=True),
    doc="""The next floating-point number towards the other element.

    >>> weft.nextafter(weft.tensor([1.0]), weft.tensor([2.0])) > 1
    tensor([True])
    """,
)
