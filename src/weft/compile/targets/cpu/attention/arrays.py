"""Generated attention over NumPy arrays: all bounds are checked before the call."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Mapping

import numpy as np
from llvmlite import ir

from weft.compile.emit.isa import Isa, new_module
from weft.compile.targets.cpu.attention import plan as plans
from weft.compile.targets.cpu.attention.generate import emit_attention, unit_of
from weft.compile.targets.cpu.attention.plan import Options, Plan
from weft.compile.targets.cpu.background import ahead
from weft.compile.targets.cpu.matmul.generate import tile_for
from weft.compile.targets.cpu.object_code import (  # fmt: skip
    Library,
    compile_known,
    host_isa,
)
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.runtime.cpu import pool
from weft.runtime.cpu.address import aligned_memory

ndarray = np.ndarray
_TASKS = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


class Attention:
    """The compiled attention of one element type for one instruction set."""

    def __init__(self, dtype: str, isa: Isa) -> None:
        self.tile = tile_for(dtype, isa)
        self._library = ahead(functools.partial(_library, dtype, isa))

    def start(self, function: str) -> None:
        """Compile a function in the background: only running needs its code."""
        self._library.start(unit_of(function))

    def address(self, function: str) -> int:
        """Where a plan's function is."""
        return self._library(unit_of(function)).address(f"attention_{function}")

    def run(self, plan: Plan, threads: int) -> None:
        """Carry out a plan on the arrays that it was made for."""
        address = self.address(plan.function)
        workers = pool.default().threads if threads > 1 else 1
        # The memory lives until all jobs are done.
        _memory, start = aligned_memory(workers * plan.workspace)
        for job in plan.jobs:
            job[-2:] = start, plan.workspace
            if threads > 1:
                pool.default().run(address, job.ctypes.data, plan.tasks)
            else:
                _TASKS(address)(job.ctypes.data, 0, plan.tasks, 0)


def _library(dtype: str, isa: Isa, unit: str) -> Library:
    text = f"attention {unit} {dtype} {tile_for(dtype, isa)}"
    make = functools.partial(_module, dtype, isa, unit)
    return compile_known(text, make, isa, level=0, linked=True)


def _module(dtype: str, isa: Isa, unit: str) -> ir.Module:
    module = new_module(f"attention_{dtype}", isa)
    emit_attention(module, dtype, isa, unit)
    return module


@ahead
def compiled(dtype: str, isa: Isa) -> Attention:
    """The attention of an element type, made once."""
    return Attention(dtype, isa)


def attend(
    q: ndarray,
    k: ndarray,
    v: ndarray,
    mask: ndarray | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    zeros: bool = True,
    isa: Isa | None = None,
    threads: int = 1,
) -> tuple[ndarray, ndarray]:
    """``softmax(q k^T * scale + mask) v`` and the logarithm of each row's sum.

    Arrays have equal leading axes; see `weft.ops.attention` for the rest.

    >>> from weft.compile.targets.cpu.attention import attend
    >>> q = np.ones((2, 3, 4), np.float32)
    >>> out, lse = attend(q, q, q, scale=0.25)
    >>> out.shape, lse[0].round(4)
    ((2, 3, 4), array([2.0986, 2.0986, 2.0986], dtype=float32))
    """
    arrays = {"q": q, "k": k, "v": v} | ({} if mask is None else {"mask": mask})
    _check("attend", arrays)
    outputs = {
        "o": np.empty((*q.shape[:-1], v.shape[-1]), q.dtype),
        "lse": np.empty(q.shape[:-1], q.dtype),
    }
    options = Options(causal, _scale(q, scale), zeros)
    _run("forward", arrays | outputs, options, isa, threads)
    return outputs["o"], outputs["lse"]


def attend_backward(
    q: ndarray,
    k: ndarray,
    v: ndarray,
    lse: ndarray,
    g: ndarray,
    delta: ndarray,
    mask: ndarray | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    zeros: bool = True,
    isa: Isa | None = None,
    threads: int = 1,
) -> tuple[ndarray, ndarray, ndarray]:
    """The gradients of q, k and v, where g is that of the output.

    ``delta`` is the sum of ``g * out`` for each row.

    >>> from weft.compile.targets.cpu.attention import attend, attend_backward
    >>> q = np.ones((2, 3, 4), np.float32)
    >>> out, lse = attend(q, q, q)
    >>> delta = (out * out).sum(-1)
    >>> attend_backward(q, q, q, lse, out, delta)[2][0, 0].round(4)
    array([1., 1., 1., 1.], dtype=float32)
    """
    arrays = {"q": q, "k": k, "v": v, "g": g} | ({} if mask is None else {"mask": mask})
    _check("attend_backward", arrays)
    saved = {"lse": np.ascontiguousarray(lse), "delta": np.ascontiguousarray(delta)}
    for name, x in saved.items():
        if x.shape != q.shape[:-1] or x.dtype != q.dtype:
            raise ShapeError(
                f"attend_backward: expected {name} of shape {q.shape[:-1]} and "
                f"{q.dtype}, got {x.shape} and {x.dtype}"
            )
    outputs = {
        f"d{n}": np.empty(x.shape, x.dtype) for n, x in (("q", q), ("k", k), ("v", v))
    }
    options = Options(causal, _scale(q, scale), zeros)
    _run("backward", arrays | saved | outputs, options, isa, threads)
    return outputs["dq"], outputs["dk"], outputs["dv"]


def _scale(q: ndarray, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def _run(
    kind: str,
    arrays: Mapping[str, ndarray],
    options: Options,
    isa: Isa | None,
    threads: int,
) -> None:
    code = compiled(arrays["q"].dtype.name, isa or host_isa())
    plan = getattr(plans, kind)(arrays, options, code.tile, threads)
    code.run(plan, threads)


def _check(name: str, arrays: Mapping[str, ndarray]) -> None:
    q, k, v = (arrays[n] for n in "qkv")
    kinds = {str(a.dtype) for n, a in arrays.items() if n != "mask" or a.dtype != bool}
    if len(kinds) > 1 or not q.dtype.isnative:
        raise DTypeError(f"{name}: expected arrays of one dtype, got {sorted(kinds)}")
    wanted = {
        "k": (*q.shape[:-2], k.shape[-2], q.shape[-1]),
        "v": (*q.shape[:-2], k.shape[-2], v.shape[-1]),
        "g": (*q.shape[:-1], v.shape[-1]),
        "mask": (*q.shape[:-1], k.shape[-2]),
    }
    for other, shape in wanted.items():
        if other in arrays and arrays[other].shape != shape:
            raise ShapeError(
                f"{name}: expected {other} of shape {shape}, got {arrays[other].shape}"
            )
    if not plans.fits(arrays):
        raise ArgumentError(
            f"{name}: expected arrays that are not empty and whose last axes are "
            f"contiguous, got strides { {n: a.strides for n, a in arrays.items()} }"
        )
