"""Numbers and dtypes of the values that kernels compute with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.compile.loop.ir import Call, Const, Position
from weft.core.lowering import Reduction
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
    """What a reduction adds or multiplies in: half types in float32."""
    rule = node.op.lower
    if not isinstance(rule, Reduction) or rule.combine not in ("add", "mul"):
        return node.dtype
    return node.dtype.to_total()


def identity(combine: str, dtype: DType) -> Const:
    """What a combination starts from."""
    if combine in ("add", "logical_or"):
        return Const(0, dtype)
    if combine in ("mul", "logical_and"):
        return Const(1, dtype)
    if dtype.is_inexact:
        return Const(-math.inf if combine == "maximum" else math.inf, dtype)
    limits = np.iinfo(dtype.np) if dtype is not dtypes.bool_ else None
    low, high = (0, 1) if limits is None else (limits.min, limits.max)
    return Const(low if combine == "maximum" else high, dtype)


def rescoped(value: Any, scope: Any) -> Any:
    """A size of the graph as one of a kernel."""
    if not isinstance(value, Size) or value.scope is scope:
        return value
    return Size(*value.terms, scope=scope)
