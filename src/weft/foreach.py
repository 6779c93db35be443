"""``weft._foreach_*``: one operator over lists of tensors, under PyTorch's names.

    weft._foreach_add_(params, grads, alpha=-0.1)

Libraries of optimizers call them. Each is a loop over the lists; an operand is a list
with one value for each tensor, or one value for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError


def find(name: str) -> Callable[..., Any]:
    """The function of a name such as ``_foreach_add_``.

    >>> weft._foreach_mul([weft.ones(1), weft.ones(1)], [2.0, 3.0])
    [tensor([2.]), tensor([3.])]
    """
    base = name.removeprefix("_foreach_")
    if not any(hasattr(Tensor, name) for name in (base, f"{base}_", base.strip("_"))):
        raise AttributeError(f"module 'weft' has no attribute {name!r}")

    def each(first: Any, *others: Any, **options: Any) -> Any:
        tensors = others[0] if base == "pow" and _is_number(first) else first
        count = len(tensors)
        columns = [_column(name, one, count) for one in (first, *others)]
        third = base.rstrip("_") in ("addcdiv", "addcmul") and len(columns) == 4
        values = columns.pop() if third else None
        value = options.pop("scalars", None)
        if value is not None:
            values = _column(name, value, count)
        found = []
        for i, row in enumerate(zip(*columns, strict=True)):
            given = options if values is None else {**options, "value": values[i]}
            found.append(_apply(base, row, given))
        return None if base.endswith("_") else found

    each.__name__ = each.__qualname__ = name
    each.__doc__ = f"``{base}`` for each tensor of a list."
    return each


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex))


def _column(name: str, given: Any, count: int) -> Sequence[Any]:
    """One operand for each tensor."""
    if isinstance(given, Tensor) and given.ndim == 1 and given.shape[0] == count > 1:
        return given.tolist()
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise ArgumentError(
            f"{name}: expected lists of one length, got {count} and {len(given)}"
        )
    return given


def _apply(base: str, row: tuple[Any, ...], options: dict[str, Any]) -> Any:
    plain = base.removesuffix("_")
    if plain == "pow" and _is_number(row[0]):
        return weft.pow(*row)
    if plain == "norm":
        return weft.linalg.vector_norm(row[0], *(row[1:] or (2,)), **options)
    if base == "copy":
        return row[0].clone().copy_(row[1])
    if base == "zero":
        return weft.zeros_like(row[0])
    if hasattr(Tensor, base):
        return getattr(Tensor, base)(*row, **options)
    return row[0].copy_(getattr(Tensor, plain)(*row, **options))
