"""The Python array API standard, version 2024.12, over Weft's operators.

    xp = x.__array_namespace__()
    y = xp.exp(x - xp.max(x, axis=-1, keepdims=True))

Arrays are ``weft.Tensor``, so results are differentiable and go through every
transform. The functions follow the standard in names, defaults and calling
(positional-only arrays, keyword-only options), with these departures:

- ``Tensor.size`` is PyTorch's method, not the standard's attribute;
  ``Tensor.numel()`` is the number of elements.
- The operators (``+``, ``*``, ...) on tensors promote as PyTorch does, where a
  0-d tensor yields to one with dimensions of the same kind; the functions here
  promote as the standard says. Integer division by zero is refused.
"""

# ruff: noqa: F401
from __future__ import annotations

import importlib as _importlib
import math as _math
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from weft.array_api._creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from weft.array_api._dtypes import (
    __array_namespace_info__,
    astype,
    can_cast,
    finfo,
    iinfo,
    isdtype,
    result_type,
)
from weft.array_api._elementwise import DECLARED as _DECLARED
from weft.array_api._elementwise import clip, floor_divide, imag, round, sign
from weft.array_api._manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from weft.array_api._products import matmul, tensordot, vecdot
from weft.array_api._searching import (
    argmax,
    argmin,
    argsort,
    nonzero,
    searchsorted,
    sort,
    take,
    take_along_axis,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    where,
)
from weft.array_api._statistical import (
    all,
    any,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from weft.dtype import bool_ as bool
from weft.dtype import (
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

if _TYPE_CHECKING:
    from weft.array_api._declared import *
else:
    globals().update(_DECLARED)

__array_api_version__ = "2024.12"

e, pi, inf, nan = _math.e, _math.pi, _math.inf, _math.nan
newaxis = None


def __getattr__(name: str) -> _Any:
    if name in ("fft", "linalg"):
        return _importlib.import_module(f"weft.array_api.{name}")
    raise AttributeError(f"module 'weft.array_api' has no attribute {name!r}")


__all__ = [
    name for name in globals() if not name.startswith("_") and name != "annotations"
]
__all__ += ["__array_api_version__", "__array_namespace_info__", "fft", "linalg"]
