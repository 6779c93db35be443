"""Logic on truth values, and whole numbers by their bits and divisors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.ops.elementwise import Public, binary, integer_samples, unary
from weft.ops.public import Names


def _logical(
    name: str, eval: Any, reference: Any, text: str, shown: str, **facts: Any
) -> Any:
    return binary(
        name,
        eval,
        returns="bool",
        samples=integer_samples(2, 0, 2),
        reference=reference,
        commutes=True,
        **facts,
        doc=f"""{text}; nonzero elements count as true.

    >>> a = weft.tensor([True, True, False])
    >>> weft.{name}(a, weft.tensor([True, False, False]))
    tensor([{shown}])
    """,
    )


logical_and = _logical(
    "logical_and", np.logical_and, lambda x, y: x * y != 0, "Both are true",
    " True, False, False", idempotent=True, identity=1, infix="and",
    public=Names(array_api=True),
)  # fmt: skip

logical_or = _logical(
    "logical_or", np.logical_or, lambda x, y: x + y != 0, "At least one is true",
    " True,  True, False", idempotent=True, identity=0, infix="or",
    public=Names(array_api=True),
)  # fmt: skip

logical_xor = _logical(
    "logical_xor", np.logical_xor, lambda x, y: x != y, "Exactly one is true",
    "False,  True, False",
    public=Names(array_api=True),
)  # fmt: skip

logical_not: Public = unary(
    "logical_not",
    np.logical_not,
    accepts="all",
    returns="bool",
    samples=integer_samples(1, 0, 2),
    reference=lambda x: x == 0,
    public=Names(array_api=True),
    doc="""Whether each element is false (zero).

    >>> weft.logical_not(weft.tensor([True, False]))
    tensor([False,  True])
    """,
)


def _bits(
    name: str,
    eval: Any,
    reference: Any,
    text: str,
    shown: str,
    accepts: str,
    **facts: Any,
) -> Any:
    return binary(
        name,
        eval,
        accepts=accepts,
        samples=integer_samples(2, 0, 6),
        reference=reference,
        **facts,
        doc=f"""{text}

    >>> weft.{name}(weft.tensor([6, 5]), 3)
    tensor([{shown}])
    """,
    )


def _by_bit(combine: Any) -> Any:
    """A reference that works bit by bit with arithmetic only."""

    def reference(x: Any, y: Any) -> Any:
        total = np.zeros(np.shape(x), np.int64)
        for k in range(4):
            total += (combine((x // 2**k) % 2, (y // 2**k) % 2)) * 2**k
        return total

    return reference


bitwise_and = _bits(
    "bitwise_and", np.bitwise_and, _by_bit(lambda a, b: a * b),
    "The bits that both have.", "2, 1", "integral", commutes=True,
    public=Names(array_api=True),
)  # fmt: skip

bitwise_or = _bits(
    "bitwise_or", np.bitwise_or, _by_bit(lambda a, b: a + b - a * b),
    "The bits that at least one has.", "7, 7", "integral", commutes=True,
    public=Names(array_api=True),
)  # fmt: skip

bitwise_xor = _bits(
    "bitwise_xor", np.bitwise_xor, _by_bit(lambda a, b: (a + b) % 2),
    "The bits that exactly one has.", "5, 6", "integral", commutes=True,
    public=Names(array_api=True),
)  # fmt: skip

bitwise_left_shift = _bits(
    "bitwise_left_shift", np.left_shift, lambda x, y: x * 2**y,
    "The bits moved up.", "48, 40", "integer",
    public=Names(array_api=True),
)  # fmt: skip

bitwise_right_shift = _bits(
    "bitwise_right_shift", np.right_shift, lambda x, y: x // 2**y,
    "The bits moved down.", "0, 0", "integer",
    public=Names(array_api=True),
)  # fmt: skip

gcd = _bits(
    "gcd", np.gcd, np.vectorize(math.gcd, otypes=[np.int64]),
    "The greatest common divisor.", "3, 1", "integer", cost=100,
)  # fmt: skip

lcm = _bits(
    "lcm", np.lcm, np.vectorize(math.lcm, otypes=[np.int64]),
    "The least common multiple.", " 6, 15", "integer", cost=100,
)  # fmt: skip

bitwise_not: Public = unary(
    "bitwise_not",
    np.invert,
    accepts="integral",
    samples=integer_samples(1, -4, 5),
    reference=lambda x: -x - 1,
    public=Names(array_api="bitwise_invert"),
    doc="""Each bit turned; for booleans, logical not.

    >>> ~weft.tensor([0, 5])
    tensor([-1, -6])
    """,
)
