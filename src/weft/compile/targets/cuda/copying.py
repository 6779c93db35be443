"""Copies between arrays of any strides: one kernel for each item size and rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.emit.control_flow import I64, VOID, i64, when
from weft.compile.targets.cuda.kernel import special

RANKS = range(1, 7)
ITEMS = (1, 2, 4, 8, 16)


def copy_name(itemsize: int, rank: int) -> str:
    """The name of a copying function."""
    return f"copy_{itemsize}_{rank}"


def emit_copies(module: ir.Module) -> None:
    """Add all copying functions to a module.

    Each has a target, a source and a count; then sizes, the target's strides and the
    source's, in elements, the last axis first.
    """
    for itemsize in ITEMS:
        for rank in RANKS:
            _emit(module, itemsize, rank)


def _emit(module: ir.Module, itemsize: int, rank: int) -> None:
    element = ir.IntType(8 * itemsize).as_pointer()
    kind = ir.FunctionType(VOID, [element, element, I64, *[I64] * (3 * rank)])
    function = ir.Function(module, kind, copy_name(itemsize, rank))
    function.calling_convention = "ptx_kernel"
    b = ir.IRBuilder(function.append_basic_block("entry"))
    target, source, count, *rest = function.args
    first = b.mul(special(b, "ctaid.x"), special(b, "ntid.x"))
    position = b.add(first, special(b, "tid.x"))
    with when(b, b.icmp_signed("<", position, count)):
        to: Any = i64(0)
        place: Any = i64(0)
        for d in range(rank):
            size, far, near = rest[d], rest[rank + d], rest[2 * rank + d]
            index = position if d == rank - 1 else b.urem(position, size)
            position = b.udiv(position, size)
            to = b.add(to, b.mul(index, far))
            place = b.add(place, b.mul(index, near))
        b.store(b.load(b.gep(source, [place])), b.gep(target, [to]))
    b.ret_void()


def copy_arguments(target: np.ndarray, source: np.ndarray) -> list[list[int]] | None:
    """Sizes and strides of a copy, the last axis first; None: too many axes.

    Axes that are contiguous together in both are one.
    """
    size = target.itemsize
    axes: list[list[int]] = []
    rows = zip(target.shape, target.strides, source.strides, strict=True)
    for n, far, near in reversed(list(rows)):
        if n == 1:
            continue
        far, near = far // size, near // size
        if (
            axes
            and far == axes[-1][0] * axes[-1][1]
            and near == (axes[-1][0] * axes[-1][2])
        ):
            axes[-1][0] *= n
        else:
            axes.append([n, far, near])
    axes = axes or [[1, 1, 1]]
    if len(axes) > RANKS[-1]:
        return None
    return [list(column) for column in zip(*axes, strict=True)]
