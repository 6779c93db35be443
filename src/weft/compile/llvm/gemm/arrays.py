"""Generated products over NumPy arrays: all bounds are checked before the call."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

import numpy as np

from weft.compile.llvm.gemm.generate import emit_gemm, tile_for, workspace_bytes
from weft.compile.llvm.gemm.tasks import JOB, Split, split
from weft.compile.llvm.target import Target, compile_module, host_target, new_module
from weft.errors import ArgumentError, DTypeError, ShapeError

_ALIGN = 64
_TASKS = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


class Gemm:
    """The compiled products of one element type for one target."""

    def __init__(self, dtype: str, target: Target, **options: Any) -> None:
        module = new_module(f"gemm_{dtype}", target)
        emit_gemm(module, "gemm", dtype, target, **options)
        self.library = compile_module(module, target, level=0)
        self.run = _TASKS(self.library.address("gemm_tasks"))
        self.tile = tile_for(dtype, target)
        self._bytes = workspace_bytes(dtype, target)
        self._local = threading.local()

    def workspace(self) -> int:
        """The address of this thread's workspace."""
        held = self._local.__dict__
        if "memory" not in held:
            held["memory"] = np.empty(self._bytes + _ALIGN, np.uint8)
            start = held["memory"].ctypes.data
            held["address"] = start + -start % _ALIGN
        return held["address"]

    def tasks(self, job: np.ndarray, begin: int, end: int) -> None:
        """Run a range of a job's tasks in this thread."""
        self.run(job.ctypes.data, begin, end, self.workspace())


@functools.cache
def compiled(dtype: str, target: Target) -> Gemm:
    """The products of an element type, compiled once."""
    return Gemm(dtype, target)


def matmul_arrays(
    a: np.ndarray,
    b: np.ndarray,
    out: np.ndarray | None = None,
    *,
    accumulate: bool = False,
    target: Target | None = None,
) -> np.ndarray:
    """``a @ b`` of matrices, or of stacks of matrices with equal leading sizes.

    >>> from weft.compile.llvm.gemm import matmul_arrays
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> matmul_arrays(a, a.T)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    out = _checked_out(a, b, out, accumulate)
    gemm = compiled(a.dtype.name, target or host_target())
    batch = out.shape[0] if out.ndim == 3 else 1
    m, n = out.shape[-2:]
    cut = split(gemm.tile, m, n, a.shape[-1], batch=batch)
    gemm.tasks(make_job(a, b, out, cut, accumulate=accumulate), 0, cut.tasks)
    return out


def make_job(
    a: np.ndarray,
    b: np.ndarray,
    out: np.ndarray,
    cut: Split,
    *,
    accumulate: bool = False,
    context: int = 0,
) -> np.ndarray:
    """The fields of a job on checked arrays, which it does not keep alive."""
    size = a.itemsize
    (a_batch, a_row, a_col), (b_batch, b_row, b_col), (c_batch, c_row, _) = (
        [0] * (3 - x.ndim) + [s // size for s in x.strides] for x in (a, b, out)
    )
    pointers = a.ctypes.data, b.ctypes.data, out.ctypes.data, context
    sizes = *out.shape[-2:], a.shape[-1]
    strides = a_row, a_col, b_row, b_col, c_row
    flags = int(accumulate), 0
    fields = *pointers, *sizes, *strides, *flags, a_batch, b_batch, c_batch
    job = np.array([*fields, cut.rows, cut.columns], np.int64)
    assert len(job) == len(JOB)
    return job


def _checked_out(
    a: np.ndarray, b: np.ndarray, out: np.ndarray | None, accumulate: bool
) -> np.ndarray:
    _check_operands(a, b)
    shape = (*a.shape[:-1], b.shape[-1])
    if out is None:
        return (np.zeros if accumulate else np.empty)(shape, a.dtype)
    if out.shape != shape:
        raise ShapeError(
            f"matmul_arrays: expected out of shape {shape}, got {out.shape}"
        )
    if out.dtype != a.dtype:
        raise DTypeError(f"matmul_arrays: expected out of {a.dtype}, got {out.dtype}")
    if not out.flags.writeable:
        raise ArgumentError("matmul_arrays: expected out to be writable")
    if out.size and (out.shape[-1] > 1 and out.strides[-1] != out.itemsize):
        raise ArgumentError(
            f"matmul_arrays: expected contiguous rows of out, got strides {out.strides}"
        )
    if any(np.may_share_memory(out, x) for x in (a, b)):
        raise ArgumentError("matmul_arrays: expected out to overlap no operand")
    return out


def _check_operands(a: np.ndarray, b: np.ndarray) -> None:
    if a.dtype != b.dtype or not a.dtype.isnative:
        raise DTypeError(
            f"matmul_arrays: expected one native dtype, got {a.dtype} and {b.dtype}"
        )
    fits = a.ndim == b.ndim and a.ndim in (2, 3) and a.shape[:-2] == b.shape[:-2]
    if not fits or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul_arrays: expected (..., m, k) and (..., k, n) with at most one "
            f"leading axis, got {a.shape} and {b.shape}"
        )
    if any(s % a.itemsize for x in (a, b) for s in x.strides):
        raise ArgumentError(
            "matmul_arrays: expected strides of whole elements, got "
            f"{a.strides} and {b.strides}"
        )
