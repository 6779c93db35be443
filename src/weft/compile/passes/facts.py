"""Facts about a node's value that are known before anything runs.

``splat``        the number that all elements are equal to
``exact_cast``   whether every value of one dtype is a value of another
``Ranges``       whether a value can be infinite or NaN
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.lowering import SAME, Reduction, View
from weft.core.op import Op, TensorType, find_op
from weft.core.size import Size
from weft.dtype import DType
from weft.graph.ir import CONSTANT, RENEW, Node
from weft.ops.elementwise import NATIVE_CODES

FULL = find_op("full")
EXPAND = find_op("expand")
RESHAPE = find_op("reshape")
CAST = find_op("cast")
WHERE = find_op("where")


def is_same(op: Op) -> bool:
    """Whether an operator returns its first input, as far as values are concerned."""
    return op.lower is SAME or op is RENEW


def is_reduction(op: Op) -> bool:
    """Whether an operator combines the elements along the axes ``dim``."""
    return isinstance(op.lower, Reduction) and op.lower.splits


def rounds(op: Op) -> bool:
    """Whether a reduction's result depends on the order of its elements."""
    return not find_op(op.lower.combine).facts.idempotent


def splat(value: Any) -> Any:
    """The number that all elements are equal to, or None.

    >>> g = weft.graph.capture(lambda x: x + weft.full((3,), 2.0), weft.ones(3)).graph
    >>> weft.compile.passes.facts.splat(g["full"])
    2.0
    """
    if type(value) is not Node:
        return None if isinstance(value, Size) else value
    if value.op is FULL:
        return _as(value.params["value"], value.dtype)
    if value.op is CONSTANT and value.params["value"].size == 1:
        return value.params["value"].item()
    return None


def _as(value: Any, dtype: DType) -> Any:
    """The number of a ``full``, converted to its dtype."""
    if isinstance(value, Size):
        return None
    if type(value) in (float, int) and dtype.category == dtypes.FLOAT:
        return value
    return np.asarray(value).astype(dtype.np).item()


def same_number(a: Any, b: Any) -> bool:
    """Whether two numbers are equal; zeros must have the same sign."""
    return a == b and (a != 0 or math.copysign(1, a) == math.copysign(1, b))


def takes_numbers(dtype: DType) -> bool:
    """Whether arithmetic on this dtype keeps it when the other operand is a number."""
    return dtype.np.char in NATIVE_CODES or dtype.category == dtypes.INT


def known_size(kind: Any) -> int | None:
    """The bytes of a value; None if its sizes are symbolic."""
    if not isinstance(kind, TensorType) or any(isinstance(n, Size) for n in kind.shape):
        return None
    return math.prod(kind.shape) * kind.dtype.itemsize


# -- dtypes


_BITS = {  # bits of the significand, and of the exponent
    "float16": (11, 5), "bfloat16": (8, 8), "float32": (24, 8), "float64": (53, 11),
}  # fmt: skip


def exact_cast(a: DType, b: DType) -> bool:
    """Whether every value of ``a`` is a value of ``b``.

    >>> exact = weft.compile.passes.facts.exact_cast
    >>> exact(weft.float16, weft.float32), exact(weft.int64, weft.float64)
    (True, False)
    """
    if a is b or a is dtypes.bool_:
        return True
    if a.category == dtypes.INT and b.category == dtypes.INT:
        return np.can_cast(a.np, b.np, "safe")
    if a.category == dtypes.INT and b.name in _BITS:
        bits, exponent = _BITS[b.name]
        return 8 * a.itemsize <= min(bits, 1 << (exponent - 1))
    if a.name in _BITS and b.name in _BITS:
        return all(x <= y for x, y in zip(_BITS[a.name], _BITS[b.name], strict=True))
    return False


# -- ranges


UNKNOWN, NOT_INFINITE, FINITE = range(3)  # NaN is not infinite, and not finite


class Ranges:
    """Whether nodes can be infinite or NaN, by their inputs; noted in graph order."""

    def __init__(self) -> None:
        self._of: dict[Node, int] = {}

    def __getitem__(self, value: Any) -> int:
        if type(value) is Node:
            return self._of.get(value, UNKNOWN)
        finite = isinstance(value, Size) or np.isfinite(value)
        return FINITE if finite else UNKNOWN

    def note(self, node: Node) -> None:
        known = self._range(node)
        if known:
            self._of[node] = known

    def _range(self, node: Node) -> int:
        op, inputs = node.op, node.inputs
        number = splat(node)
        if number is not None:
            return FINITE if np.isfinite(number) else UNKNOWN
        if op is CONSTANT:
            small = node.params["value"].size <= 1 << 14
            return FINITE if small and np.isfinite(node.params["value"]).all() else 0
        if op.facts.bounds is not None and all(map(math.isfinite, op.facts.bounds)):
            ranges = [] if op.facts.random else [self[i] for i in inputs]
            return max(min(ranges, default=FINITE), NOT_INFINITE)
        if op.facts.keeps_finite or isinstance(op.lower, View) or is_same(op):
            return self[inputs[0]]
        if op is WHERE:
            return min(self[inputs[1]], self[inputs[2]])
        if op is CAST:
            return self._cast(inputs[0], node.dtype)
        return UNKNOWN

    def _cast(self, x: Node, dtype: DType) -> int:
        wide = x.dtype.category == dtypes.INT and dtype is not dtypes.float16
        exact = exact_cast(x.dtype, dtype)
        return FINITE if wide or (exact and not x.dtype.is_inexact) else (
            self[x] if exact else UNKNOWN
        )  # fmt: skip
