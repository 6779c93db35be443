"""Values that a function requires, checked eagerly and in programs alike.

A check is an operator: a captured, compiled, static or saved program makes it too, and
raises the same error with the user's line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft import errors
from weft.core.dispatch import unable
from weft.core.lowering import Element
from weft.core.meta import meta
from weft.core.mode import mode
from weft.core.number import Number
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.dtype_info import check_stored, fits, refusal_to_store
from weft.errors import DTypeError, OutOfRangeError, ShapeError
from weft.ops import dividing
from weft.ops.elementwise import elementwise_batch


def known(x: Tensor) -> bool:
    """Whether a tensor's values can be looked at: not in a transform or capture, nor
    on the meta device."""
    if x._interpreter is not None or mode.capture is not None:
        return False
    return x.device is not meta


def require_known(error: errors.WeftError, *tensors: Tensor) -> None:
    """Raise an error unless the tensors' values can be looked at."""
    if not all(known(x) for x in tensors):
        raise unable(error, *tensors)


def _refuse(x: Any, holds: Any, error: str, text: str) -> None:
    """Raise the error that a check names, with the first value that is refused."""
    x, holds = np.broadcast_arrays(x, holds)
    position = tuple(int(k) for k in np.argwhere(~holds)[0])
    words = {
        "value": x[position].item(),
        "where": f" at position {position}" if position else "",
        "low": x.min().item(),
        "high": x.max().item(),
    }
    raise getattr(errors, error)(text.format(**words))


def _require_eval(x: Any, holds: Any, *, error: str, text: str) -> Any:
    if not np.all(holds):
        _refuse(x, holds, error, text)
    return x.copy()


def _require_type(
    x: TensorType, holds: TensorType, *, error: str, text: str
) -> TensorType:
    if holds.dtype is not dtypes.bool_:
        raise DTypeError(f"require: expected booleans, got {holds.dtype.name}")
    if tuple(holds.shape) != tuple(x.shape):
        raise ShapeError(
            f"require: expected a boolean for each of {x.shape}, got {holds.shape}"
        )
    return x


def _required(k: Any, out: Any, x: Any, holds: Any, **params: Any) -> Any:
    """The element itself; an index that is below 1 only where the check holds."""
    k.within(k.call("logical_not", holds[out], dtype=dtypes.bool_), 1)
    return x[out]


def _require_samples(rng: np.random.Generator) -> Any:
    params = {"error": "ArgumentError", "text": "expected less than {value}"}
    for shape in ((3, 4), (), (0, 2)):
        yield Sample((rng.uniform(-2, 2, shape), np.ones(shape, bool)), params)


require_op: Op = define(
    "require",
    divides=dividing.elementwise,
    inputs="x holds",
    eval=_require_eval,
    type=_require_type,
    lower=Element(_required, here=lambda out, **params: (out, out)),
    vjp={"x": lambda g: g},
    jvp={"x": lambda t: t},
    batch=elementwise_batch,
    samples=_require_samples,
    reference=lambda x, holds, **params: x / 1.0,
    refuses={"holds": False},
)


def require(
    x: Tensor,
    holds: Callable[[Any], Any],
    text: str,
    error: type[errors.WeftError] = errors.ArgumentError,
) -> Tensor:
    """``x``, of whose elements ``holds`` must be true; else an error with this text.

    ``holds`` gets an array or a tensor and compares its elements with numbers. The text
    may name ``{value}``, the first element that is refused, ``{where}`` it is, and the
    ``{low}`` and ``{high}`` end of all elements.

    >>> from weft.ops.require import require
    >>> chance = weft.tensor([0.5, 2.0])
    >>> require(chance, lambda p: p <= 1, "expected at most 1, got {value}")
    Traceback (most recent call last):
    weft.errors.ArgumentError: expected at most 1, got 2.0
    ...
    """
    if not known(x):
        return require_op(x, holds(x), error=error.__name__, text=text)
    array = x.to_host()
    found = holds(array)
    if not np.all(found):
        _refuse(array, found, error.__name__, text)
    return x


def require_stored(name: str, value: Any, dtype: DType) -> Any:
    """A number that a dtype holds; one that a program is given is checked in each run.

    >>> from weft.ops.require import require_stored
    >>> require_stored("fill_", 300, weft.int8)
    Traceback (most recent call last):
    weft.errors.ArgumentError: fill_: 300 does not fit into int8 (-128 to 127); ...
    ...
    """
    if type(value) is not Number or dtype.category != dtypes.INT:
        check_stored(name, value, dtype)
        return value
    text = refusal_to_store(name, "{value}", dtype)
    return value.replaced(require(value.tensor, lambda x: fits(x, dtype), text))


def require_index(
    name: str, ids: Tensor, size: Any, axis: int, *, wrap: bool = True
) -> Tensor:
    """Indices that must be in range of an axis; negative ones wrap if they may.

    >>> from weft.ops.require import require_index
    >>> require_index("one_hot", weft.tensor([0, 3]), 3, -1)
    Traceback (most recent call last):
    weft.errors.OutOfRangeError: one_hot: index 3 at position (1,) is out of range ...
    ...
    """
    low = -size if wrap else 0

    def holds(i: Any) -> Any:
        if isinstance(i, Tensor):  # a short integer would wrap the bounds
            i = i.to(dtypes.int64)
        return (i >= low) & (i < size)

    return require(
        ids,
        holds,
        f"{name}: index {{value}}{{where}} is out of range for axis {axis} of size "
        f"{size}",
        OutOfRangeError,
    )
