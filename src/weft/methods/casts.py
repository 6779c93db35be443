"""Conversions to a dtype by its name: ``x.float()``, ``x.long()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import dtype as dtypes
from weft.ops import copies


def _cast(name: str, dtype: dtypes.DType) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        return copies.cast(self, dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""The tensor converted to {dtype.name}.

    >>> weft.ones(1).{name}().dtype
    weft.{dtype.name}
    """
    return method


class Casts:
    """One method for each dtype."""

    float = _cast("float", dtypes.float32)
    double = _cast("double", dtypes.float64)
    half = _cast("half", dtypes.float16)
    bfloat16 = _cast("bfloat16", dtypes.bfloat16)
    byte = _cast("byte", dtypes.uint8)
    char = _cast("char", dtypes.int8)
    short = _cast("short", dtypes.int16)
    int = _cast("int", dtypes.int32)
    long = _cast("long", dtypes.int64)
    bool = _cast("bool", dtypes.bool_)
    cfloat = _cast("cfloat", dtypes.complex64)
    cdouble = _cast("cdouble", dtypes.complex128)
