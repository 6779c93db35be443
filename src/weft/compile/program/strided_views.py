"""Operands of library calls as strided views of the values that they are views of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compile.fusion.groups import Operand
from weft.core.op import Op
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.ops.shaping import reshape_op
from weft.ops.slicing import slice_op


def outline(shape: Any, dtype: Any) -> np.ndarray:
    """An array with a shape, strides and an address, but no memory: it is not read.

    >>> from weft.compile.program.strided_views import outline
    >>> outline((10**9, 10**6), "float32").strides
    (4000000, 4)
    """
    one = np.empty((), dtype)
    strides, step = [], one.itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return np.lib.stride_tricks.as_strided(one, shape, strides[::-1])


def is_contiguous(view: Node) -> bool:
    """Whether a view of row-major memory is row-major too: whole rows, or reshaped."""
    if view.op is reshape_op:
        return True
    if view.op is not slice_op:
        return False
    first, *rest = view.params["index"] or (slice(None),)
    steps = first.step if isinstance(first, slice) else None
    whole = all(i == slice(None) for i in rest)
    return first is not None and steps in (None, 1) and whole


def needs_copy(node: Node) -> bool:
    """Whether an operand may not be a strided view of its base."""
    moved = False
    for view in reversed(Operand(node).views):
        if view.op is reshape_op and moved:
            return True
        moved = moved or not is_contiguous(view)
    return False


def is_moved(node: Node) -> bool:
    """Whether an operand may have another layout than its base, row-major."""
    return any(view.op is not reshape_op for view in Operand(node).views)


def view_of(operand: Operand, sizes: Mapping[str, int]) -> Any:
    """An operand and its base, as outlines; None if it is no view."""
    base = operand.base
    start = outline(resolve(base.shape, sizes), base.dtype.np)
    array = start
    for view in reversed(operand.views):
        array = seen(array, view.op, resolve(view.params, sizes))
        if array is None:
            return None
    whole = all(s % array.itemsize == 0 for s in array.strides)
    return (array, start) if whole else None


def seen(array: np.ndarray, op: Op, params: Mapping[str, Any]) -> Any:
    """A view of an array; None if that would copy its elements."""
    if not op.view:
        return None
    if op is not reshape_op:
        return op.kernel(array, **params)
    try:
        return np.reshape(array, params["shape"], copy=False)
    except ValueError:
        return None


class Batches(NamedTuple):
    """Matrices at equal distances: where each stack of them begins, and its axes."""

    offsets: list[list[int]]  # of each array, in elements, for each stack
    sizes: list[int]  # of a stack's axes, the outer one first
    steps: list[list[int]]  # of each axis, for each array


def batches(
    shape: Sequence[int], strides: Sequence[Sequence[int]], most: int
) -> Batches:
    """Leading axes as stacks of at most so many axes; ``strides`` are each array's.

    Axes that lie behind one another in all arrays are one.

    >>> from weft.compile.program.strided_views import batches
    >>> batches((2, 3), [(12, 4), (3, 1)], most=1)
    Batches(offsets=[[0, 0]], sizes=[6], steps=[[4, 1]])
    """
    axes: list[tuple[int, list[int]]] = []  # the last one first
    for d, n in reversed(list(enumerate(shape))):
        steps = [one[d] for one in strides]
        if n == 1:
            continue
        inner, near = axes[-1] if axes else (1, [])
        if axes and steps == [inner * step for step in near]:
            axes[-1] = inner * n, near
        else:
            axes.append((n, steps))
    while len(axes) < most:
        axes.append((1, [0] * len(strides)))
    own, rest = axes[:most][::-1], axes[most:]
    offsets = [
        [sum(i * steps[k] for i, (_, steps) in zip(index, rest, strict=True))
         for k in range(len(strides))]
        for index in itertools.product(*[range(n) for n, _ in rest])
    ]  # fmt: skip
    return Batches(offsets, [n for n, _ in own], [steps for _, steps in own])
