"""Copies under the names of views: ``permute_copy`` is ``permute``, then a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.pytree import tree_map
from weft.core.tensor import Tensor

# The views, each with arguments and the result as the docs show them.
NAMES = {
    "alias": ("weft.arange(2)", "tensor([0, 1])"),
    "as_strided": ("weft.arange(4), (3,), (1,), 1", "tensor([1, 2, 3])"),
    "detach": ("weft.arange(2)", "tensor([0, 1])"),
    "diagonal": ("weft.eye(2)", "tensor([1., 1.])"),
    "expand": ("weft.ones(1), (2,)", "tensor([1., 1.])"),
    "narrow": ("weft.arange(4), 0, 1, 2", "tensor([1, 2])"),
    "permute": ("weft.ones(2, 1), (1, 0)", "tensor([[1., 1.]])"),
    "select": ("weft.eye(2), 0, 1", "tensor([0., 1.])"),
    "split": ("weft.arange(3), 2", "(tensor([0, 1]), tensor([2]))"),
    "split_with_sizes": ("weft.arange(3), (1, 2)", "(tensor([0]), tensor([1, 2]))"),
    "squeeze": ("weft.ones(1, 2)", "tensor([1., 1.])"),
    "t": ("weft.ones(2, 1)", "tensor([[1., 1.]])"),
    "transpose": ("weft.ones(2, 1), 0, 1", "tensor([[1., 1.]])"),
    "unbind": ("weft.arange(2)", "(tensor(0), tensor(1))"),
    "unfold": ("weft.arange(3), 0, 3, 1", "tensor([[0, 1, 2]])"),
    "unsqueeze": ("weft.arange(2), 0", "tensor([[0, 1]])"),
    "view": ("weft.arange(2), (1, 2)", "tensor([[0, 1]])"),
    "view_as_complex": ("weft.ones(1, 2)", "tensor([1.+1.j])"),
    "view_as_real": ("weft.ones(1) * 1j", "tensor([[0., 1.]])"),
}


def _copied(name: str, given: str, found: str) -> Callable[..., Any]:
    def copied(input: Tensor, *args: Any, **options: Any) -> Any:
        view = input if name == "alias" else _view(name)(input, *args, **options)
        return tree_map(Tensor.clone, view)

    copied.__name__ = copied.__qualname__ = f"{name}_copy"
    copied.__doc__ = f"""``{name}``, in memory of its own.

    >>> weft.{name}_copy({given})
    {found}
    """
    return copied


def _view(name: str) -> Callable[..., Any]:
    import weft

    return getattr(Tensor, name, None) or getattr(weft, name)


for _name, _example in NAMES.items():
    globals()[f"{_name}_copy"] = _copied(_name, *_example)


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
