"""Copies under the names of views: ``permute_copy`` is ``permute``, then a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.pytree import tree_map
from weft.core.tensor import Tensor

NAMES = [
    "alias",
    "as_strided",
    "detach",
    "diagonal",
    "expand",
    "narrow",
    "permute",
    "select",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unfold",
    "unsqueeze",
    "view",
    "view_as_complex",
    "view_as_real",
]


def _copied(name: str) -> Callable[..., Any]:
    def copied(input: Tensor, *args: Any, **options: Any) -> Any:
        view = input if name == "alias" else _view(name)(input, *args, **options)
        return tree_map(Tensor.clone, view)

    copied.__name__ = copied.__qualname__ = f"{name}_copy"
    copied.__doc__ = f"""``{name}``, in memory of its own."""
    return copied


def _view(name: str) -> Callable[..., Any]:
    import weft

    return getattr(Tensor, name, None) or getattr(weft, name)


for _name in NAMES:
    globals()[f"{_name}_copy"] = _copied(_name)


def slice_copy(
    input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """A slice along a dimension, in memory of its own.

    >>> from weft.ops.view_copies import slice_copy
    >>> slice_copy(weft.arange(5), 0, 1, 4, 2)
    tensor([1, 3])
    """
    index = [slice(None)] * input.ndim
    index[dim] = slice(start, end, step)
    return input[tuple(index)].clone()
