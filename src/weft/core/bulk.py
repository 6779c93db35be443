"""Large work in eager mode: the compiler's kernels, for one operator at a time.

An operator's record says from how many elements on a kernel of the compiler's is worth
asking for (``bulk``). Making one takes some hundredths of a second, and loading the
compiler some tenths, so that waits until NumPy has been at such work for about as long:

    NumPy  →  all large work together took PATIENCE: the compiler is loaded
           →  this operator's took EACH: its kernel is made, and used from then on

How long it took is estimated from sizes, so that a program gives the same bits in every
run. ``weft.config.eager_kernels = False`` (``WEFT_EAGER_KERNELS=0``) leaves all to
NumPy. So does an operator, dtype or layout of memory that has no kernel.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from weft.config import config
from weft.core.mode import mode
from weft.core.tensor import Tensor

ndarray = np.ndarray
PATIENCE = 0.25  # seconds of large work before the compiler is loaded
EACH = 0.03  # seconds of one operator's before its kernel is made

# Elements from which a kernel pays; calling one takes some 15 µs.
SLOW = 1 << 13  # for functions that NumPy does not have, or has for one at a time
COMPOSED = 1 << 15  # for several operators in one
COSTLY = 1 << 17  # for sums, exponentials and the like
LARGE = 1 << 20  # for functions that NumPy has as fast, on one thread
CHEAP = 1 << 22  # for arithmetic, which waits for memory
NEVER = 1 << 62  # for functions that NumPy has faster

_spent: dict[Hashable, float] = {}  # seconds by operator or composition
_lock = threading.Lock()
_kernels: Any = None  # the compiler's side, once it is loaded


def run(op: Any, arrays: Any, params: dict[str, Any]) -> Any:
    """What an operator with a ``bulk`` gives, by a kernel where that pays."""
    if len(arrays) == 1 and arrays[0].size < op.bulk:  # what is small is not to wait
        return op.kernel(*arrays, **params)
    least = op.bulk
    if type(least) is dict:
        least = least.get(arrays[0].dtype.char, NEVER)
    size = _size(op, arrays, params)
    if size < least or not config.eager_kernels or op.kernel is not op.eval:
        return op.kernel(*arrays, **params)
    if is_due(op, size, least):
        found = _kernels.run(op, arrays, params)
        if found is not None:
            return found
    return op.kernel(*arrays, **params)


def _size(op: Any, arrays: Any, params: dict[str, Any]) -> int:
    """How many elements the work is about: those of the largest argument, of the
    index where there is one, of the result where that is random."""
    if op.inputs[-1] == "index":
        return arrays[-1].size if type(arrays[-1]) is ndarray else 0
    if op.inputs[-1] == "counter":
        return math.prod(params["shape"])
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
    if mode.due is None and _is_watched():
        return fn(*tensors)
    if is_due(name, first._data.size, COMPOSED):
        found = _kernels.fused(name, fn, tensors, key)
        if found is not None:
            return found
    return fn(*tensors)


def _plain(tensors: Any) -> bool:
    """Whether tensors hold arrays that a kernel can take."""
    if not config.eager_kernels or mode.capture is not None:
        return False
    code = tensors[0]._data.dtype.char
    return code in "fd" and all(
        t is None
        or (
            type(t) is Tensor
            and t._data.dtype.char == code
            and t._data.flags.c_contiguous
        )
        for t in tensors
    )


def _is_watched() -> bool:
    """Whether somebody wants to see each operator of a composition."""
    if mode.evaluator is not None and not mode.evaluator.takes_whole:
        return True
    return bool(mode.observers) or mode.measured


def is_due(what: Hashable, size: int, bulk: int) -> bool:
    """Whether there was so much of some work that a kernel is to be made for it."""
    if _kernels is not None and _spent.get(what, 0.0) >= EACH:
        return mode.due is None or what in mode.due
    seconds = size * max(COSTLY / bulk, 1) * 1e-9
    with _lock:
        _spent[what] = _spent.get(what, 0.0) + seconds
        if _kernels is None and sum(_spent.values()) >= PATIENCE:
            _load()
    return False


def due() -> frozenset[Any]:
    """What is run by kernels now: a function that is run again must use the same."""
    if mode.due is not None or _kernels is None:
        return mode.due or frozenset()
    with _lock:
        found = [what for what, seconds in _spent.items() if seconds >= EACH]
    if _is_watched():
        found = [what for what in found if not isinstance(what, str)]
    return frozenset(found)


def _load() -> None:
    """The compiler's side; without it (no llvmlite for this machine) all is NumPy's."""
    global _kernels
    try:
        from weft.compile import single

        _kernels = single
    except Exception:
        config.eager_kernels = False
