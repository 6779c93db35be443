"""Large work in eager mode: the compiler's kernels, for one operator at a time.

An operator's record says from how many elements on a kernel of the compiler's is used
(``bulk``). Whether one is depends on the shapes, dtypes and layouts of the arguments
and on settings alone, never on what ran before: an operator gives the same bits at its
first call and at its thousandth, in a run that was resumed and in one that was not.

    fewer elements      NumPy
    as many, or more    a kernel: it comes from disk, or is made, at the first call

The compiler is loaded with the first kernel. ``weft.config.eager_kernels = False``
(``WEFT_EAGER_KERNELS=0``) leaves all to NumPy. So does an operator or dtype that has no
kernel.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from weft import late
from weft.config import config
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import DeviceError
from weft.runtime import system

ndarray = np.ndarray
# Elements from which a kernel pays; calling one takes some 15 µs.
SLOW = 1 << 13  # for functions that NumPy does not have, or has for one at a time
COMPOSED = 1 << 15  # for several operators in one
COSTLY = 1 << 17  # for sums, exponentials and the like
LARGE = 1 << 20  # for functions that NumPy has as fast, on one thread
CHEAP = 1 << 22  # for arithmetic, which waits for memory
NEVER = 1 << 62  # for functions that NumPy has faster

_kernels: Any = None  # the compiler's side, once it is loaded


def run(op: Any, arrays: Any, params: dict[str, Any]) -> Any:
    """The result of an operator with a ``bulk``, by a kernel where that pays."""
    if config.batch_invariant:
        return _invariant(op, arrays, params)
    if len(arrays) == 1 and arrays[0].size < op.bulk:  # small work is not to wait
        return op.kernel(*arrays, **params)
    least = op.bulk
    if type(least) is dict:
        least = least.get(arrays[0].dtype.char, NEVER)
    size = _size(op, arrays, params)
    if size < least or not config.eager_kernels or op.kernel is not op.eval:
        return op.kernel(*arrays, **params)
    found = None if kernels() is None else _kernels.run(op, arrays, params)
    return op.kernel(*arrays, **params) if found is None else found


def _invariant(op: Any, arrays: Any, params: dict[str, Any]) -> Any:
    """An operator's result where the size of a batch must not change a bit.

    Products, convolutions and attention always have their kernels then, for which a
    batch is a loop. All else is NumPy's: it works on one row after the other.
    """
    own = op.kernel is not op.eval
    found = None if own else kernels().run_invariant(op, arrays, params)
    return op.kernel(*arrays, **params) if found is None else found


def _size(op: Any, arrays: Any, params: dict[str, Any]) -> int:
    """How many elements the work is about: those of the largest argument, of the
    index where there is one, of the result where that is random."""
    if op.inputs[-1] == "index":
        return arrays[-1].size if type(arrays[-1]) is ndarray else 0
    if op.inputs[-1] == "counter":
        size = math.prod(params["shape"])
        # Random numbers have NumPy's bits: few of them load nothing.
        loaded = size >= COSTLY or "weft.compile.eager.operator" in sys.modules
        return size if loaded else 0
    size = 0
    for a in arrays:
        if type(a) is ndarray and a.size > size:
            size = a.size
    return size


def fused(
    name: str, fn: Callable[..., Any], *tensors: Tensor | None, key: Hashable = ()
) -> Any:
    """``fn(*tensors)``, a composition of operators, as one kernel where that pays.

    ``key`` has the values that ``fn`` closes over.
    """
    first: Any = tensors[0]
    if type(first) is not Tensor or first._data.size < COMPOSED or not _plain(tensors):
        return fn(*tensors)
    found = None if kernels() is None else _kernels.fused(name, fn, tensors, key)
    return fn(*tensors) if found is None else found


def lstm(steps: Callable[..., Any], tensors: Any, batch: int, backwards: bool) -> Any:
    """An LSTM over sequences of one length, by kernels where that pays; None elsewhere.

    ``tensors`` are the data of all steps, the first h and c, the weights of data and of
    h, and the bias. ``steps(gates, (h, c), w_hh, b)`` gives the same by operators.
    """
    if any(type(t) is not Tensor for t in tensors) or not _plain(tensors):
        return None
    data, weights = tensors[0]._data, tensors[3]._data
    if data.shape[0] * weights.shape[0] < COMPOSED or kernels() is None:
        return None
    return _kernels.lstm(steps, tensors, batch, backwards)


def _plain(tensors: Any) -> bool:
    """Whether tensors hold arrays that a kernel can take."""
    if not config.eager_kernels or config.batch_invariant or mode.capture is not None:
        return False
    code = tensors[0]._data.dtype.char
    return code in "fd" and all(
        t is None or (type(t) is Tensor and t._data.dtype.char == code) for t in tensors
    )


def kernels() -> Any:
    """The compiler's side, loaded at the first call; None where it cannot be loaded
    (no llvmlite for this machine), and all is NumPy's."""
    global _kernels
    if _kernels is None:
        try:
            if system.WINDOWS:
                raise ImportError("kernels of eager mode were not tried on Windows")
            _kernels = late.find("eager_kernels")
        except (ImportError, OSError) as error:
            if config.batch_invariant:
                raise DeviceError(
                    "batch_invariant: expected llvmlite, as products, convolutions and "
                    f"attention need kernels for it, but {error}"
                ) from None
            config.eager_kernels = False
    return _kernels
