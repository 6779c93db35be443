"""Generated convolutions over NumPy arrays: all bounds are checked before the call."""

from __future__ import annotations

import ctypes
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compile.llvm.conv.generate import emit_conv
from weft.compile.llvm.conv.plan import Plan, Planner
from weft.compile.llvm.conv.shape import shape_of
from weft.compile.llvm.gemm.generate import tile_for
from weft.compile.llvm.target import (
    Library,
    Target,
    host_target,
    new_module,
    object_code,
)  # fmt: skip
from weft.runtime import cache, pool

_ALIGN = 64
_TASKS = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


class Convolutions:
    """The compiled convolutions of one element type for one target."""

    def __init__(self, dtype: str, target: Target) -> None:
        make = functools.partial(_object_code, dtype, target)
        self.library = Library(cache.get(_key(dtype, target), make), target)
        self.tile = tile_for(dtype, target)
        self.itemsize = np.dtype(dtype).itemsize

    def address(self, function: str) -> int:
        """Where a plan's function is."""
        return self.library.address(f"conv_{function}")

    def planner(self, threads: int) -> Planner:
        """What makes plans for so many threads."""
        return Planner(self.tile, self.itemsize, threads)

    def run(self, plan: Plan, arrays: Sequence[np.ndarray], threads: int) -> None:
        """Carry out a plan: on operands and result that it was made for."""
        address = self.address(plan.function)
        workers = pool.default().threads if threads > 1 else 1
        memory = np.empty(workers * plan.workspace + _ALIGN, np.uint8)
        start = memory.ctypes.data
        for job in plan.jobs:
            job = job.copy()
            for field, array in zip(plan.pointers, arrays, strict=True):
                job[field] = array.ctypes.data
            job[-2:] = start + -start % _ALIGN, plan.workspace
            if threads > 1:
                pool.default().run(address, job.ctypes.data, plan.tasks)
            else:
                _TASKS(address)(job.ctypes.data, 0, plan.tasks, 0)


def _object_code(dtype: str, target: Target) -> bytes:
    module = new_module(f"conv_{dtype}", target)
    emit_conv(module, dtype, target)
    return object_code(module, target, level=0)


def _key(dtype: str, target: Target) -> str:
    """What generated code depends on, without generating it."""
    folder = pathlib.Path(__file__).parent
    folders = folder, folder.parent / "gemm", folder.parent
    files = [file for f in folders for file in sorted(f.glob("*.py"))]
    recipe = [repr(tile_for(dtype, target)), dtype, *(f.read_text() for f in files)]
    return cache.key_of("\n".join(recipe), target.key, level=0)


@functools.cache
def compiled(dtype: str, target: Target) -> Convolutions:
    """The convolutions of an element type, compiled once."""
    return Convolutions(dtype, target)


def convolve(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int = 1,
    target: Any = None,
    threads: int = 1,
) -> Any:
    conv = compiled(x.dtype.name, target or host_target())
    shape = shape_of(x.shape, w.shape, stride, padding, dilation, groups)
    out = np.empty((x.shape[0], w.shape[0], *shape.counts[3 - len(stride) :]), x.dtype)
    plan = conv.planner(threads).forward(shape, bias=bias is not None)
    conv.run(plan, [x, w, *([] if bias is None else [bias]), out], threads)
    return out


def input_grad(
    y: Any,
    w: Any,
    *,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int = 1,
    target: Any = None,
    threads: int = 1,
) -> Any:
    conv = compiled(y.dtype.name, target or host_target())
    out = np.empty((y.shape[0], w.shape[1] * groups, *size), y.dtype)
    shape = shape_of(out.shape, w.shape, stride, padding, dilation, groups)
    plan = conv.planner(threads).input_grad(shape)
    conv.run(plan, [y, w, out], threads)
    return out


def weight_grad(
    x: Any,
    y: Any,
    *,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int = 1,
    target: Any = None,
    threads: int = 1,
) -> Any:
    conv = compiled(x.dtype.name, target or host_target())
    out = np.empty((y.shape[1], x.shape[1] // groups, *size), y.dtype)
    shape = shape_of(x.shape, out.shape, stride, padding, dilation, groups)
    plan = conv.planner(threads).weight_grad(shape)
    conv.run(plan, [x, y, out], threads)
    return out
