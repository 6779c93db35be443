"""Dimensions rearranged by a pattern, and tensors inside of transforms."""

from __future__ import annotations

import math
import re
from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.func.jvp import Dual
from weft.func.vmap import Batched

_REST = ["..."]  # an ellipsis that is no part of a group
_TOKENS = re.compile(r"\(|\)|\.\.\.|1|[A-Za-z_]\w*")


def rearrange(
    tensor: Tensor | list[Tensor] | tuple[Tensor, ...],
    pattern: str,
    **axes_lengths: int,
) -> Tensor:
    """Permute, split and join dimensions, as ``einops.rearrange`` does.

    >>> x = weft.arange(12).reshape(2, 6)
    >>> weft.func.rearrange(x, "a (b c) -> (a c) b", c=2).shape
    (4, 3)
    """
    if isinstance(tensor, (list, tuple)):
        from weft.ops.joining import stack

        tensor = stack(list(tensor))
    left, arrow, right = pattern.partition("->")
    if not arrow:
        raise ArgumentError(f"rearrange: expected a pattern with '->', got {pattern!r}")
    ins, outs = _groups(left, pattern), _groups(right, pattern)
    rest = tensor.ndim - sum(group is not _REST for group in ins)
    hidden = [f"...{k}" for k in range(rest)]
    ins, outs = _open(ins, hidden), _open(outs, hidden)
    names = [name for group in ins for name in group if name != "1"]
    wanted = [name for group in outs for name in group if name != "1"]
    if sorted(names) != sorted(wanted) or len(set(names)) < len(names):
        raise ArgumentError(
            f"rearrange: expected each name once on both sides of {pattern!r}"
        )
    if rest < 0 or len(ins) != tensor.ndim:
        raise ArgumentError(
            f"rearrange: {pattern!r} has {len(ins)} dimensions, the tensor has "
            f"{tensor.ndim}"
        )
    sizes = _sizes(ins, tuple(tensor.shape), axes_lengths, pattern)
    split = tensor.reshape([sizes[name] for name in names])
    moved = split.permute([names.index(name) for name in wanted])
    return moved.reshape(
        [math.prod(sizes[n] for n in group if n != "1") for group in outs]
    )


def _groups(text: str, pattern: str) -> list[list[str]]:
    found: list[list[str]] = []
    inside = False
    if _TOKENS.sub("", text).strip():
        raise ArgumentError(f"rearrange: {pattern!r} is no pattern of names")
    for token in _TOKENS.findall(text):
        if token in "()":
            if (token == "(") == inside:
                raise ArgumentError(f"rearrange: the brackets of {pattern!r} differ")
            inside = not inside
            if inside:
                found.append([])
        elif inside:
            found[-1].append(token)
        else:
            found.append(_REST if token == "..." else [token])
    if inside:
        raise ArgumentError(f"rearrange: the brackets of {pattern!r} differ")
    return found


def _open(groups: list[list[str]], hidden: list[str]) -> list[list[str]]:
    """The groups with the dimensions that an ellipsis stands for."""
    found: list[list[str]] = []
    for group in groups:
        if group is _REST:
            found += [[name] for name in hidden]
        else:
            found.append([n for g in group for n in (hidden if g == "..." else [g])])
    return found


def _sizes(
    groups: list[list[str]], shape: tuple[int, ...], given: dict[str, int], pattern: str
) -> dict[str, int]:
    sizes = dict(given)
    for group, size in zip(groups, shape, strict=True):
        names = [name for name in group if name != "1"]
        unknown = [name for name in names if name not in sizes]
        known = math.prod(sizes[name] for name in names if name in sizes)
        if len(unknown) > 1 or (unknown and (not known or size % known)):
            raise ArgumentError(
                f"rearrange: a size of {size} does not tell {unknown} of {pattern!r}"
            )
        for name in unknown:
            sizes[name] = size // known
        if math.prod(sizes[name] for name in names) != size:
            raise ArgumentError(
                f"rearrange: {group} of {pattern!r} is {size} in the tensor, got "
                f"{ {name: sizes[name] for name in names} }"
            )
    return sizes


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """The value inside of a tensor that a transform is working on, to look at.

    >>> seen = []
    >>> def f(x):
    ...     seen.append(weft.func.debug_unwrap(x).shape)
    ...     return x * 2
    >>> _ = weft.vmap(f)(weft.ones(3, 2))
    >>> seen
    [(3, 2)]
    """
    if isinstance(tensor, Batched):
        inner = tensor.value
    elif isinstance(tensor, Dual):
        inner = tensor.primal
    else:
        return tensor
    return debug_unwrap(inner) if recurse else inner
