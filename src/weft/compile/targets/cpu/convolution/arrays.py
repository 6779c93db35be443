"""Generated convolutions over NumPy arrays: all bounds are checked before the call."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.emit.isa import Isa, new_module
from weft.compile.targets.cpu.background import ahead
from weft.compile.targets.cpu.convolution.generate import RARE, USUAL, emit_conv
from weft.compile.targets.cpu.convolution.job_builder import Plan
from weft.compile.targets.cpu.convolution.plan import GEMM, Planner
from weft.compile.targets.cpu.convolution.shape import Shape, shape_of
from weft.compile.targets.cpu.matmul.arrays import compiled as compiled_gemm
from weft.compile.targets.cpu.object_code import Library, compile_known, host_isa
from weft.compile.tuning.choices import Columns
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.runtime.cpu import pool
from weft.runtime.cpu.address import aligned_memory

ndarray = np.ndarray
Pairs = Sequence[Sequence[int]]
_TASKS = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


class Convolutions:
    """The compiled convolutions of one element type for one instruction set."""

    def __init__(self, dtype: str, isa: Isa) -> None:
        self.gemm = compiled_gemm(dtype, isa)
        self.dtype, self.isa = dtype, isa
        self._usual = ahead(functools.partial(self._library, USUAL))
        self.itemsize = np.dtype(dtype).itemsize
        self.plan = functools.lru_cache(maxsize=256)(self._plan)

    def start(self) -> None:
        """Compile in the background: only running needs the code."""
        self.gemm.start()
        self._usual.start()

    @property
    def library(self) -> Library:
        return self._usual()

    def address(self, function: str) -> int:
        """The address of a plan's function."""
        if function == GEMM:
            return self.gemm.address
        part = RARE.get(function)
        library = self.library if part is None else self._rare(part)
        return library.address(f"conv_{function}")

    @functools.cache  # noqa: B019  there is one of each type, for good
    def _rare(self, part: str) -> Library:
        return self._library(part)

    def _library(self, part: str) -> Library:
        make = functools.partial(_module, self.dtype, self.isa, part)
        text = f"conv {self.dtype} {self.gemm.tile} {part}"
        return compile_known(text, make, self.isa, level=0, linked=True)

    def _plan(
        self,
        kind: str,
        shape: Shape,
        threads: int,
        exact: bool = False,
        cuts: Columns | None = None,
    ) -> Plan:
        """The plan for some sizes; ``kind`` names a method of `Planner`."""
        tile = self.gemm.tile
        planner = Planner(tile, self.itemsize, threads, exact=exact, cuts=cuts)
        return getattr(planner, kind)(shape)

    def run(self, plan: Plan, arrays: Sequence[ndarray], threads: int) -> None:
        """Carry out a plan on the operands and the result that it was made for."""
        address = self.address(plan.function)
        workers = pool.default().threads if threads > 1 else 1
        # The memory lives until all jobs are done.
        _memory, start = aligned_memory(workers * plan.workspace)
        for fields in plan.jobs:
            job = fields.copy()
            for field, array in zip(plan.pointers, arrays, strict=True):
                job[field] = array.ctypes.data
            job[-2:] = start, plan.workspace
            if threads > 1:
                pool.default().run(address, job.ctypes.data, plan.tasks)
            else:
                _TASKS(address)(job.ctypes.data, 0, plan.tasks, 0)


def _module(dtype: str, isa: Isa, part: str) -> ir.Module:
    module = new_module(f"conv_{dtype}", isa)
    emit_conv(module, dtype, isa, part=part)
    return module


@ahead
def compiled(dtype: str, isa: Isa) -> Convolutions:
    """The convolutions of an element type, made once."""
    return Convolutions(dtype, isa)


def convolve(
    x: ndarray,
    w: ndarray,
    bias: ndarray | None = None,
    *,
    stride: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    groups: int = 1,
    exact: bool = False,
    isa: Isa | None = None,
    threads: int = 1,
) -> ndarray:
    """The convolution of x (N, C, *S) with w (O, C / groups, *K).

    ``exact`` keeps to sums of products of elements (see `Planner`).

    >>> from weft.compile.targets.cpu.convolution import convolve
    >>> x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    >>> w = np.ones((1, 1, 3), np.float32)
    >>> convolve(x, w, stride=(1,), padding=((1, 1),), dilation=(1,))
    array([[[1., 3., 6., 9., 7.]]], dtype=float32)
    """
    shape = _checked("convolve", x.shape, w.shape, stride, padding, dilation, groups)
    operands = [x, w] if bias is None else [x, w, bias]
    if bias is not None and bias.shape != (shape.filters,):
        raise ShapeError(
            f"convolve: expected a bias of shape {(shape.filters,)}, got {bias.shape}"
        )
    out = (shape.images, shape.filters, *shape.counts[3 - len(stride) :])
    kind = "forward" if bias is None else "biased"
    return _run("convolve", kind, shape, exact, operands, out, isa, threads)


def input_grad(
    y: ndarray,
    w: ndarray,
    *,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    groups: int = 1,
    exact: bool = False,
    isa: Isa | None = None,
    threads: int = 1,
) -> ndarray:
    """The gradient with respect to x, of spatial ``size``, from y's gradient.

    >>> from weft.compile.targets.cpu.convolution import input_grad
    >>> y, w = np.ones((1, 1, 2), np.float32), np.ones((1, 1, 3), np.float32)
    >>> options = dict(stride=(2,), padding=((0, 0),), dilation=(1,))
    >>> input_grad(y, w, size=(5,), **options)
    array([[[1., 1., 2., 1., 1.]]], dtype=float32)
    """
    out = (y.shape[0], w.shape[1] * groups, *size)
    shape = _checked("input_grad", out, w.shape, stride, padding, dilation, groups)
    _check_y("input_grad", shape, y)
    return _run("input_grad", "input_grad", shape, exact, [y, w], out, isa, threads)


def weight_grad(
    x: ndarray,
    y: ndarray,
    *,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    groups: int = 1,
    exact: bool = False,
    isa: Isa | None = None,
    threads: int = 1,
) -> ndarray:
    """The gradient with respect to w, of spatial ``size``, from y's gradient.

    >>> from weft.compile.targets.cpu.convolution import weight_grad
    >>> x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    >>> y = np.ones((1, 1, 3), np.float32)
    >>> options = dict(stride=(1,), padding=((0, 0),), dilation=(1,))
    >>> weight_grad(x, y, size=(3,), **options)
    array([[[3., 6., 9.]]], dtype=float32)
    """
    out = (y.shape[1], x.shape[1] // max(groups, 1), *size)
    shape = _checked("weight_grad", x.shape, out, stride, padding, dilation, groups)
    _check_y("weight_grad", shape, y)
    return _run("weight_grad", "weight_grad", shape, exact, [x, y], out, isa, threads)


def _run(
    name: str,
    kind: str,
    shape: Shape,
    exact: bool,
    operands: list[ndarray],
    size: Sequence[int],
    isa: Isa | None,
    threads: int,
) -> ndarray:
    dtype = operands[0].dtype
    if any(a.dtype != dtype or not a.dtype.isnative for a in operands):
        kinds = ", ".join(str(a.dtype) for a in operands)
        raise DTypeError(f"{name}: expected one native dtype, got {kinds}")
    if dtype not in (np.float32, np.float64):
        raise DTypeError(f"{name}: expected float32 or float64, got {dtype}")
    out = np.empty(tuple(size), dtype)
    if out.size:
        code = compiled(dtype.name, isa or host_isa())
        arrays = [np.ascontiguousarray(a) for a in operands]
        code.run(code.plan(kind, shape, threads, exact), [*arrays, out], threads)
    return out


def _checked(
    name: str,
    x: Sequence[int],
    w: Sequence[int],
    stride: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    groups: int,
) -> Shape:
    """The convolution, if there is one of these sizes."""
    rank = len(stride)
    even = len(padding) == len(dilation) == rank
    if not even or rank not in (1, 2, 3) or not len(x) == len(w) == rank + 2:
        raise ShapeError(
            f"{name}: expected 1 to 3 spatial dimensions throughout, got x {tuple(x)}, "
            f"w {tuple(w)}, stride {tuple(stride)}"
        )
    if min(*stride, *dilation, groups) < 1:
        raise ArgumentError(
            f"{name}: expected stride, dilation and groups of at least 1, got "
            f"{tuple(stride)}, {tuple(dilation)} and {groups}"
        )
    if x[1] != w[1] * groups or w[0] % groups:
        raise ShapeError(
            f"{name}: expected channels of {groups} groups, got x {tuple(x)} and "
            f"w {tuple(w)}"
        )
    shape = shape_of(x, w, stride, padding, dilation, groups)
    if min(shape.counts) < 1 or min(shape.kernel) < 1:
        raise ShapeError(f"{name}: no window fits x {tuple(x)}, w {tuple(w)}")
    return shape


def _check_y(name: str, shape: Shape, y: Any) -> None:
    want = (shape.images, shape.filters, *shape.counts[5 - y.ndim :])
    if y.shape != want:
        raise ShapeError(f"{name}: expected y of shape {want}, got {y.shape}")
