"""Predicates on elements (``isnan``, ``isfinite``) and on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.op import Sample
from weft.core.tensor import Tensor
from weft.ops.elementwise import unary
from weft.ops.public import Names, public

# -- elements


def _predicate(
    name: str, eval: Any, reference: Any, text: str, shown: str, public: Names
) -> Any:
    def samples(rng: np.random.Generator) -> Any:
        for shape in ((3, 4), (), (0, 2)):
            x = rng.choice([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan], shape)
            yield Sample((np.asarray(x),))

    return unary(
        name,
        eval,
        accepts="real" if name == "signbit" else "all",
        returns="bool",
        samples=samples,
        reference=reference,
        public=public,
        doc=f"""Whether each element is {text}.

    >>> weft.{name}(weft.tensor([1.0, float("inf"), float("nan")]))
    tensor([{shown}])
    """,
    )


isnan = _predicate(
    "isnan", np.isnan, lambda x: x != x, "NaN", "False, False,  True",
    public=Names(inplace=False, array_api=True),
)  # fmt: skip

isinf = _predicate(
    "isinf", np.isinf, lambda x: (x - x != x - x) & (x == x), "infinite",
    "False,  True, False",
    public=Names(inplace=False, array_api=True),
)  # fmt: skip

isfinite = _predicate(
    "isfinite", np.isfinite, lambda x: x - x == 0, "a finite number",
    " True, False, False",
    public=Names(inplace=False, array_api=True),
)  # fmt: skip

isposinf = _predicate(
    "isposinf", lambda x: x == np.inf, lambda x: np.isinf(x) & (x > 0),
    "positive infinity", "False,  True, False",
    public=Names(inplace=False),
)  # fmt: skip

isneginf = _predicate(
    "isneginf", lambda x: x == -np.inf, lambda x: np.isinf(x) & (x < 0),
    "negative infinity", "False, False, False",
    public=Names(inplace=False),
)  # fmt: skip

signbit = _predicate(
    "signbit", np.signbit, lambda x: np.copysign(1, x) < 0, "negative (or -0)",
    "False, False, False",
    public=Names(inplace=False, array_api=True),
)  # fmt: skip


# -- tensors


@public()
def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor.

    >>> weft.is_tensor(weft.ones(1)), weft.is_tensor([1])
    (True, False)
    """
    return isinstance(obj, Tensor)


@public()
def numel(input: Tensor) -> int:
    """The number of elements.

    >>> weft.numel(weft.zeros(2, 3))
    6
    """
    return input.numel()


@public()
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating-point type.

    >>> weft.is_floating_point(weft.ones(1))
    True
    """
    return input.dtype.is_floating_point


@public()
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is a complex type.

    >>> weft.is_complex(weft.ones(1))
    False
    """
    return input.dtype.is_complex


@public(method=True)
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero.

    >>> weft.is_nonzero(weft.tensor([0.0]))
    False
    """
    return bool(input)


@public(method=True)
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape.

    >>> weft.is_same_size(weft.ones(2), weft.zeros(2))
    True
    """
    return input.shape == other.shape


@public()
def can_cast(from_: Any, to: Any) -> bool:
    """Whether promotion may turn one dtype into another.

    >>> weft.can_cast(weft.int64, weft.float32), weft.can_cast(weft.float32, weft.int64)
    (True, False)
    """
    return dtypes.as_dtype(from_).category <= dtypes.as_dtype(to).category


@public()
def is_signed(input: Tensor) -> bool:
    """Whether the dtype holds negative numbers.

    >>> weft.is_signed(weft.ones(1))
    True
    """
    return input.dtype.is_signed
