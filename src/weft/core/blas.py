"""Matrix products of arrays, with bits that no number of threads changes.

NumPy's library (OpenBLAS) shares a large product out to as many threads as there are
cores, and cuts its sums accordingly: the bits depend on the machine's cores and on
``OPENBLAS_NUM_THREADS``. Small products run on one thread. So

    product(x, y)        NumPy's for small products, the compiler's kernel for others
    with one_thread():   NumPy's library on one thread, where there is no kernel:
                         complex numbers, and LAPACK's factorisations

``solve_triangular`` calls that library by itself, because NumPy has no such function.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.config import config
from weft.core import eager_kernels
from weft.core.record import Record

# Multiplications up to which OpenBLAS surely uses one thread: its own limits are 2^18
# for two matrices, 9216 for a matrix and a vector.
MATRIX = 1 << 17
VECTOR = 1 << 13


def product(x: Any, y: Any) -> Any:
    """``x @ y`` of arrays with at least two dimensions, and equal leading ones.

    >>> from weft.core.blas import product
    >>> product(np.ones((2, 3)), np.ones((3, 1)))
    array([[3.],
           [3.]])
    """
    shape = x.shape
    work = x.size * y.shape[-1]
    if work <= MATRIX and not config.batch_invariant:
        vector = shape[-2] == 1 or y.shape[-1] == 1
        if work <= VECTOR or not vector:
            return x.dot(y) if len(shape) == 2 == y.ndim else np.matmul(x, y)
    return _large(x, y)


def _large(x: Any, y: Any) -> Any:
    """A product by the kernel, if it has one for these arrays."""
    kind = x.dtype.char
    wanted = config.eager_kernels or config.batch_invariant
    if kind in "fd" and y.dtype == x.dtype and wanted:
        kernels = eager_kernels.kernels()
        found = None if kernels is None else kernels.product(x, y)
        if found is not None:
            return found
    if kind in "fdFD":
        with one_thread():
            return np.matmul(x, y)
    return np.matmul(x, y)


class _Switch(Record):
    """OpenBLAS's own functions for its number of threads."""

    get: Callable[[], int]
    set: Callable[[int], None]


@functools.cache
def _library() -> Any:
    """The library that NumPy's linear algebra uses, with what it depends on."""
    from numpy.linalg import _umath_linalg

    try:
        return ctypes.CDLL(_umath_linalg.__file__)
    except OSError:
        return None


@functools.cache
def _switch() -> _Switch | None:
    """The switch of the library that NumPy uses, if it is OpenBLAS."""
    for before in ("scipy_openblas", "openblas"):
        for after in ("64_", ""):
            names = (f"{before}_{verb}_num_threads{after}" for verb in ("get", "set"))
            with contextlib.suppress(AttributeError):
                return _Switch(*[getattr(_library(), name) for name in names])
    return None


_lock = threading.Lock()
_inside = 0  # how many calls want one thread now
_outside = 1  # the threads before the first of them


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy's products and factorisations use one thread, in this block.

    >>> from weft.core.blas import one_thread
    >>> with one_thread():
    ...     np.linalg.det(np.eye(3))
    np.float64(1.0)
    """
    global _inside, _outside
    switch = _switch()
    if switch is None:
        yield
        return
    with _lock:
        if not _inside:
            _outside = switch.get()
            switch.set(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                switch.set(_outside)


# -- triangular systems

_ROWS, _LEFT, _UPPER, _LOWER = 101, 141, 121, 122  # the words of CBLAS
_PLAIN, _TRANSPOSED, _ANY_DIAGONAL, _ONES = 111, 112, 131, 132


@functools.cache
def _solver(kind: str) -> Any:
    """CBLAS's ``trsm`` for a dtype's character, or None."""
    letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[kind]
    number = {"f": ctypes.c_float, "d": ctypes.c_double}.get(kind, ctypes.c_void_p)
    found = getattr(_library(), f"scipy_cblas_{letter}trsm64_", None)
    if found is not None:
        matrix = [ctypes.c_void_p, ctypes.c_int64]
        sizes = [ctypes.c_int64] * 2
        found.argtypes = [ctypes.c_int] * 5 + [*sizes, number, *matrix, *matrix]
        found.restype = None
    return found


def solve_triangular(a: Any, b: Any, *, upper: bool, ones: bool) -> Any:
    """``x`` of ``a @ x = b`` for matrices, of which one triangle of ``a`` is read.

    With ``ones``, the diagonal is taken for ones. It is None where NumPy's library has
    no such function.

    >>> from weft.core.blas import solve_triangular
    >>> a = np.array([[2.0, 9.0], [1.0, 1.0]])
    >>> solve_triangular(a, np.ones((2, 1)), upper=False, ones=False)
    array([[0.5],
           [0.5]])
    """
    solve = _solver(b.dtype.char)
    if solve is None:
        return None
    turned = a.flags.f_contiguous and not a.flags.c_contiguous
    rows = a.T if turned else np.ascontiguousarray(a)
    x = np.array(b, order="C")
    n, m = x.shape
    one = x.dtype.type(1)
    solve(
        _ROWS, _LEFT, _UPPER if upper is not turned else _LOWER,
        _TRANSPOSED if turned else _PLAIN, _ONES if ones else _ANY_DIAGONAL,
        n, m, one if one.dtype.kind == "f" else np.array(one).ctypes.data,
        rows.ctypes.data, max(n, 1), x.ctypes.data, max(m, 1),
    )  # fmt: skip
    return x
