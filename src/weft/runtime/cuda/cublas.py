"""cuBLAS, where it is installed: matrix products by NVIDIA's own kernels."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from weft.errors import DeviceError
from weft.runtime.cuda.libraries import from_system, from_wheels

NAMES = ("libcublas.so.13", "libcublas.so.12", "libcublas.so")
KINDS = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t
COMPUTE = {"float32": 68, "float64": 70, "tf32": 77}  # cublasComputeType_t
WORKSPACE = 32 << 20  # bytes: what cuBLAS asks for on Hopper


@functools.cache
def _library() -> Any:
    """The library, of the system or of a wheel; None if there is none."""
    return from_system(NAMES) or from_wheels(NAMES[:2])


def is_installed() -> bool:
    """Whether cuBLAS can be loaded."""
    return _library() is not None


class Cublas:
    """A handle for the queue of one GPU."""

    def __init__(self, runtime: Any, workspace: int) -> None:
        self.library = _library()
        self.handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self.handle))
        self._call(
            "cublasSetStream_v2", self.handle, ctypes.c_void_p(int(runtime.stream))
        )
        self._call(
            "cublasSetWorkspace_v2", self.handle, ctypes.c_void_p(workspace),
            ctypes.c_size_t(WORKSPACE),
        )  # fmt: skip
        self.scales = {
            "float64": (ctypes.c_double(1), ctypes.c_double(0)),
            "float32": (ctypes.c_float(1), ctypes.c_float(0)),
        }

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self.library, name)(*args)
        if code:
            raise DeviceError(f"cuda: {name} failed with status {code}")

    def product(
        self, operand: str, result: str, tf32: bool, sizes: tuple[int, int, int],
        left: tuple[int, bool, int, int], right: tuple[int, bool, int, int],
        out: tuple[int, int, int], count: int,
    ) -> None:  # fmt: skip
        """C = A @ B, row by row; operands are (address, transposed, pitch, stride).

        Strides lead from one matrix of a batch to the next, in elements.
        """
        m, n, k = sizes
        total = "float64" if result == "float64" else "float32"
        one, zero = self.scales[total]
        compute = COMPUTE["tf32" if tf32 and operand == "float32" else total]
        whole, word = ctypes.c_int, ctypes.c_longlong
        # cuBLAS has columns where we have rows: C' = B' A'
        self._call(
            "cublasGemmStridedBatchedEx", self.handle, whole(right[1]), whole(left[1]),
            whole(n), whole(m), whole(k), ctypes.byref(one),
            ctypes.c_void_p(right[0]), whole(KINDS[operand]), whole(right[2]),
            word(right[3]), ctypes.c_void_p(left[0]), whole(KINDS[operand]),
            whole(left[2]), word(left[3]), ctypes.byref(zero), ctypes.c_void_p(out[0]),
            whole(KINDS[result]), whole(out[1]), word(out[2]), whole(count),
            whole(compute), whole(-1),
        )  # fmt: skip
