"""Matrix products of arrays, with bits that no number of threads changes.

NumPy's library (OpenBLAS) shares a large product out to as many threads as there are
cores, and cuts its sums accordingly: the bits depend on the machine's cores and on
``OPENBLAS_NUM_THREADS``. Small products run on one thread. So

    product(x, y)        NumPy's for small products, the compiler's kernel for others
    with one_thread():   NumPy's library on one thread, where there is no kernel:
                         complex numbers, and LAPACK's factorisations
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
def _switch() -> _Switch | None:
    """The switch of the library that NumPy uses, if it is OpenBLAS."""
    from numpy.linalg import _umath_linalg

    try:
        library = ctypes.CDLL(_umath_linalg.__file__)
    except OSError:
        return None
    for before in ("scipy_openblas", "openblas"):
        for after in ("64_", ""):
            names = (f"{before}_{verb}_num_threads{after}" for verb in ("get", "set"))
            with contextlib.suppress(AttributeError):
                return _Switch(*[getattr(library, name) for name in names])
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
