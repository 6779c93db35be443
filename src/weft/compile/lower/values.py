"""Numbers and dtypes of the values that kernels compute with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.compile.loop.ir import Call, Const, Position
from weft.core.lowering import Reduction
from weft.core.op import find_op
from weft.core.size import Size
from weft.dtype import DType
from weft.graph.ir import Node


def number(value: Any, dtype: DType, scope: Any) -> Any:
    """A Python number or a size as a value of a dtype."""
    if isinstance(value, Size):
        kind = dtypes.float64 if value.fractional else dtypes.int64
        found = Position(rescoped(value, scope), kind)
        return found if dtype is kind else Call("cast", (found,), dtype)
    if isinstance(value, np.generic):
        value = value.item()
    return Const(value, dtype)


def as_dtype(value: Any, dtype: DType) -> Any:
    """A value, converted if its dtype is another."""
    return value if value.dtype is dtype else Call("cast", (value,), dtype)


def total_dtype(node: Node) -> DType:
    """The dtype in which a reduction accumulates: float32 for half types."""
    rule = node.op.lower
    rounds = isinstance(rule, Reduction) and not find_op(rule.combine).facts.idempotent
    return node.dtype.to_total() if rounds else node.dtype


def identity(combine: str, dtype: DType) -> Const:
    """The identity of a combination."""
    start = find_op(combine).facts.identity
    assert start is not None, combine
    if dtype.is_inexact or math.isfinite(start):
        return Const(start, dtype)
    limits = np.iinfo(dtype.np) if dtype is not dtypes.bool_ else None
    low, high = (0, 1) if limits is None else (limits.min, limits.max)
    return Const(low if start < 0 else high, dtype)


def rescoped(value: Any, scope: Any) -> Any:
    """A size of the graph as one of a kernel."""
    if not isinstance(value, Size) or value.scope is scope:
        return value
    return Size(*value.terms, scope=scope)
