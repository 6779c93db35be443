"""Generated products over NumPy arrays: all bounds are checked before the call."""

from __future__ import annotations

import ctypes
import functools
import threading
from array import array
from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.emit.isa import Isa, new_module
from weft.compile.targets.cpu.background import ahead
from weft.compile.targets.cpu.matmul.dots import several_limit
from weft.compile.targets.cpu.matmul.generate import (
    emit_gemm,
    tile_for,
    workspace_bytes,
)
from weft.compile.targets.cpu.matmul.kinds import RESULTS, kind_of
from weft.compile.targets.cpu.matmul.skinny import few_limit
from weft.compile.targets.cpu.matmul.tasks import JOB, Split, split
from weft.compile.targets.cpu.object_code import Library, compile_known, host_isa
from weft.config import config
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.runtime.cpu import pool
from weft.runtime.cpu.address import address, aligned_memory

_TASKS = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


class Gemm:
    """The compiled products of one element type for one instruction set.

    Without ``few``, they lack the code for few rows or columns: see ``is_few``.
    """

    def __init__(
        self, dtype: str, isa: Isa, shape: int = 0, few: bool = True,
        **options: Any
    ) -> None:  # fmt: skip
        options = {**options, "shape": shape, "few": few}
        make = functools.partial(_module, dtype, isa, options)
        text = f"gemm {dtype} {tile_for(dtype, isa, shape)} {options}"
        self._library = ahead(
            lambda: compile_known(text, make, isa, level=0, linked=True)
        )
        self.tile = tile_for(dtype, isa, shape)
        self.bytes = workspace_bytes(dtype, isa, shape)
        kind = kind_of(dtype, isa)
        self.group = kind.group  # items in a word of a panel
        # rows of C up to which nothing is packed
        self.fewest = max(few_limit(self.tile), several_limit(self.tile, kind))
        self._local = threading.local()
        self._split = functools.lru_cache(1024)(self._cut)

    def _cut(self, m: int, n: int, k: int, batch: int, threads: int) -> Split:
        return split(self.tile, m, n, k, batch=batch, threads=threads)

    def start(self) -> None:
        """Compile in the background: only running needs the code."""
        self._library.start()

    @property
    def library(self) -> Library:
        return self._library()

    @functools.cached_property
    def address(self) -> int:
        return self.library.address("gemm_tasks")

    @functools.cached_property
    def run(self) -> Any:
        return _TASKS(self.address)

    def job(
        self, a: np.ndarray, b: np.ndarray, out: np.ndarray, cut: Split, **options: Any
    ) -> np.ndarray:
        """The job of a product on checked arrays; see `make_job`."""
        workers = options.pop("workers", 1)
        memory = self._workspace(workers)
        return make_job(a, b, out, cut, workspace=(memory, self.bytes), **options)

    def multiply(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        """``out = a @ b`` of checked arrays (batch, m, k) and (batch, k, n), at once.

        It does what ``matmul_arrays`` does, with a tenth of its overhead.
        """
        batch, m, n = out.shape
        k, item = a.shape[2], a.itemsize
        shared = pool.default()
        threads = shared.threads
        cut = self._split(m, n, k, batch, threads)
        (a_batch, a_row, a_col), (b_batch, b_row, b_col) = a.strides, b.strides
        workers = threads if cut.tasks > 1 else 1
        job = array("q", (
            0, address(a), address(b), address(out), 0, 0, 0, m, n, k,
            a_row // item, a_col // item, b_row // item, b_col // item, n,
            0, 0, 0,
            a_batch // item, b_batch // item, m * n, cut.rows, cut.columns,
            self._workspace(workers), self.bytes
        ))  # fmt: skip
        at = job.buffer_info()[0]
        if workers > 1:
            shared.run(self.address, at, cut.tasks)
        else:
            self.run(at, 0, cut.tasks, 0)

    def _workspace(self, workers: int) -> int:
        """The address of workspaces that this thread may use."""
        held = self._local.__dict__
        if held.get("workers", 0) < workers:
            held["memory"], held["start"] = aligned_memory(workers * self.bytes)
            held["workers"] = workers
        return held["start"]


def _module(dtype: str, isa: Isa, options: dict[str, Any]) -> ir.Module:
    module = new_module(f"gemm_{dtype}", isa)
    emit_gemm(module, "gemm", dtype, isa, **options)
    return module


def compiled(dtype: str, isa: Isa, shape: int = 0, few: bool = True) -> Gemm:
    """The products of an element type by one shape of tile, made once."""
    return _compiled(dtype, isa, shape, few)


_compiled = ahead(Gemm)


def name_of(dtype: str, shape: int, few: bool) -> str:
    """The name of compiled products, from which ``named`` finds them."""
    return f"{dtype} {shape} {int(few)}"


def named(name: str, isa: Isa) -> Gemm:
    """Compiled products by their name.

    >>> from weft.compile.targets.cpu.matmul.arrays import compiled, name_of, named
    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> isa = host_isa()
    >>> name = name_of("uint8 int8", 1, False)
    >>> named(name, isa) is compiled("uint8 int8", isa, 1, False)
    True
    """
    dtype, shape, few = name.rsplit(" ", 2)  # some kinds are two words
    return compiled(dtype, isa, int(shape), few == "1")


def kind_name(left: str, right: str) -> str:
    """The name in `kinds` of a product of operands of two dtypes.

    >>> from weft.compile.targets.cpu.matmul.arrays import kind_name
    >>> kind_name("uint8", "int8")
    'uint8 int8'
    """
    if left != right:
        return f"{left} {right}"
    return "bfloat16 widened" if left == "bfloat16" and config.strict_ieee else left


def matmul_arrays(
    a: np.ndarray,
    b: np.ndarray,
    out: np.ndarray | None = None,
    *,
    accumulate: bool = False,
    isa: Isa | None = None,
    threads: int = 1,
) -> np.ndarray:
    """``a @ b`` of matrices, or of stacks of matrices with equal leading sizes.

    Products of float16 and bfloat16 are float32, those of int8 and uint8 int32.
    C is cut for a number of ``threads``, and runs on the pool's if that is more than
    one.

    >>> from weft.compile.targets.cpu.matmul import matmul_arrays
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> matmul_arrays(a, a.T)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    out = _checked_out(a, b, out, accumulate)
    gemm = compiled(kind_name(a.dtype.name, b.dtype.name), isa or host_isa())
    m, n = out.shape[-2:]
    batch = out.shape[0] if out.ndim == 3 else 1
    cut = split(gemm.tile, m, n, a.shape[-1], batch=batch, threads=threads)
    workers = pool.default().threads if threads > 1 else 1
    job = gemm.job(a, b, out, cut, accumulate=accumulate, workers=workers)
    if threads > 1 and cut.tasks > 1:
        pool.default().run(gemm.address, job.ctypes.data, cut.tasks)
    else:
        gemm.run(job.ctypes.data, 0, cut.tasks, 0)
    return out


def make_job(
    a: np.ndarray,
    b: np.ndarray,
    out: np.ndarray,
    cut: Split,
    *,
    workspace: tuple[int, int],
    accumulate: bool = False,
    packed: int = 0,
    epilogue: tuple[int, int] = (0, 0),
    whole: bool = False,
) -> np.ndarray:
    """The fields of a job on checked arrays, which it does not keep alive.

    ``packed`` is the address of B's panels; ``epilogue`` has the addresses of
    the function that runs on blocks of C, and of its context.
    """
    (a_batch, a_row, a_col), (b_batch, b_row, b_col), (c_batch, c_row, _) = (
        [0] * (3 - x.ndim) + [s // x.itemsize for s in x.strides] for x in (a, b, out)
    )
    pointers = a.ctypes.data, b.ctypes.data, out.ctypes.data, packed, *epilogue
    sizes = *out.shape[-2:], a.shape[-1]
    strides = a_row, a_col, b_row, b_col, c_row
    batches = a_batch, b_batch, c_batch
    fields = 0, *pointers, *sizes, *strides, int(accumulate), int(whole), 0, *batches
    job = np.array([*fields, cut.rows, cut.columns, *workspace], np.int64)
    assert len(job) == len(JOB)
    return job


def _checked_out(
    a: np.ndarray, b: np.ndarray, out: np.ndarray | None, accumulate: bool
) -> np.ndarray:
    _check_operands(a, b)
    shape = (*a.shape[:-1], b.shape[-1])
    result = np.dtype(RESULTS[kind_name(a.dtype.name, b.dtype.name)])
    if out is None:
        return (np.zeros if accumulate else np.empty)(shape, result)
    if out.shape != shape:
        raise ShapeError(
            f"matmul_arrays: expected out of shape {shape}, got {out.shape}"
        )
    if out.dtype != result:
        raise DTypeError(f"matmul_arrays: expected out of {result}, got {out.dtype}")
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
    name = kind_name(a.dtype.name, b.dtype.name)
    if name not in RESULTS or not (a.dtype.isnative and b.dtype.isnative):
        raise DTypeError(
            "matmul_arrays: expected float32, float64, float16, bfloat16, int8 or "
            f"uint8, and one native dtype, got {a.dtype} and {b.dtype}"
        )
    fits = a.ndim == b.ndim and a.ndim in (2, 3) and a.shape[:-2] == b.shape[:-2]
    if not fits or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul_arrays: expected (..., m, k) and (..., k, n) with at most one "
            f"leading axis, got {a.shape} and {b.shape}"
        )
    if any(s % x.itemsize for x in (a, b) for s in x.strides):
        raise ArgumentError(
            "matmul_arrays: expected strides of whole elements, got "
            f"{a.strides} and {b.strides}"
        )
