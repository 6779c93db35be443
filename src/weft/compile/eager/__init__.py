"""Kernels that eager execution calls, for one operator at a time.

``run(op, arrays, params)`` returns an operator's result, or None if there is no kernel
for it: then NumPy's is used. Products, convolutions and attention have library kernels,
which are called here; kernels for other operators are generated (``operator``), and the
compiler is loaded with the first of them.

Results do not depend on the number of threads: a library kernel's plan only says which
thread computes what.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.compile.targets.cpu.matmul.arrays import (
    Gemm,
    compiled,
    kind_name,
    matmul_arrays,
)
from weft.compile.targets.cpu.matmul.kinds import RESULTS
from weft.compile.targets.cpu.matmul.weight_only import multiply
from weft.compile.targets.cpu.object_code import host_isa
from weft.config import config
from weft.core.lowering import Library
from weft.core.op import Op
from weft.errors import AllocationError
from weft.ops.copies import cast_op
from weft.runtime.cpu import pool
from weft.runtime.cpu.buffers import empty

ndarray = np.ndarray


def run(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """An operator's result from a kernel, or None if there is none."""
    if isinstance(op.lower, Library):
        return _LIBRARY[op.lower.family](op.lower.kind, arrays, params)
    from weft.compile.eager import operator

    return operator.run(op, arrays, params)


def run_invariant(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of a library kernel whose bits do not depend on the batch size."""
    rule = op.lower
    if not isinstance(rule, Library) or rule.family == "product":  # see ``product``
        return None
    return _LIBRARY[rule.family](rule.kind, arrays, params)


def fused(
    name: str, fn: Callable[..., Any], tensors: Sequence[Any], key: Hashable
) -> Any:
    """A composition's result from kernels of its own, or None if it has none."""
    from weft.compile.eager import operator

    return operator.fused(name, fn, tensors, key)


def lstm(
    steps: Callable[..., Any], tensors: Sequence[Any], batch: int, backwards: bool
) -> Any:
    """An LSTM over sequences of one length; None if there are no kernels for it."""
    from weft.compile.eager import sequences

    return sequences.lstm(steps, tensors, batch, backwards)


def new_output(shape: Sequence[int], dtype: Any) -> ndarray:
    """Allocate a result; whoever runs the operator explains a lack of memory."""
    try:
        return empty(shape, dtype)
    except AllocationError as error:
        raise MemoryError(str(error)) from None


# -- products


def product(x: ndarray, y: ndarray) -> ndarray | None:
    """``x @ y`` of float32 or float64, for leading axes that broadcast."""
    lead = x.shape[:-2]
    if lead != y.shape[:-2]:
        lead = np.broadcast_shapes(lead, y.shape[:-2])
        x, y = (np.broadcast_to(a, lead + a.shape[-2:]) for a in (x, y))
    m, k = x.shape[-2:]
    n = y.shape[-1]
    if k != y.shape[-2] or not (x.flags.aligned and y.flags.aligned):
        return None
    if len(lead) != 1:
        batch = math.prod(lead)
        x, y = x.reshape(batch, m, k), y.reshape(batch, k, n)
    out = new_output((len(x), m, n), x.dtype)
    if out.size:
        _gemm(x.dtype.char, not config.batch_invariant).multiply(x, y, out)
    return out.reshape((*lead, m, n))


@functools.cache
def _gemm(code: str, few: bool) -> Gemm:
    return compiled(np.dtype(code).name, host_isa(), few=few)


def _narrow_product(
    kind: str, arrays: Sequence[ndarray], params: dict[str, Any]
) -> Any:
    """A product of short elements: summed in wide ones, rounded unless ``dtype`` is.

    With packed weights, it is one of float32.
    """
    if kind == "weight_only":
        x, weight, scale = arrays
        return multiply(x, weight, scale, **params)
    (x, y), dtype = arrays, params.get("dtype")
    name = kind_name(x.dtype.name, y.dtype.name)
    wide = RESULTS.get(name)
    if wide is None or (dtype is not None and dtype.name != wide):
        return None
    if any(s % a.itemsize for a in (x, y) for s in a.strides):
        return None
    stacks = [a.reshape(-1, *a.shape[-2:]) if a.ndim > 3 else a for a in (x, y)]
    out: ndarray | None = matmul_arrays(*stacks, threads=_threads())
    if dtype is None:
        from weft.compile.eager import operator

        cast = {"dtype": dtypes.of_code(x.dtype.char)}
        out = operator.general(cast_op, [out], cast)
    return None if out is None else out.reshape(*x.shape[:-1], y.shape[-1])


def _threads() -> int:
    """The threads to plan for: a plan for one would never use the pool."""
    return max(pool.get_num_threads(), 2)


# -- convolutions


def _convolution(kind: str, arrays: Sequence[ndarray], params: dict[str, Any]) -> Any:
    from weft.compile.targets.cpu.convolution import arrays as convolutions

    first = arrays[0]
    if first.dtype.char not in "fd" or not 3 <= first.ndim <= 5:
        return None
    if any(a.dtype != first.dtype for a in arrays):
        return None
    name = "convolve" if kind in ("forward", "biased") else kind
    call: Callable[..., ndarray] = getattr(convolutions, name)
    # A batch with an infinity takes another algorithm, which changes all its images.
    exact = config.strict_ieee or config.batch_invariant
    exact = exact or not all(np.isfinite(a).all() for a in arrays)
    return call(*arrays, **params, threads=_threads(), exact=exact)


# -- attention


def _attention(kind: str, arrays: Sequence[ndarray], params: dict[str, Any]) -> Any:
    from weft.compile.targets.cpu.attention import arrays as attentions

    if arrays[0].dtype.char not in "fd" or any(0 in a.shape for a in arrays):
        return None
    arrays = [np.asarray(a, order="C") for a in arrays]
    call = attentions.attend if kind == "forward" else attentions.attend_backward
    return call(*arrays, **params, threads=_threads())


_LIBRARY: dict[str, Callable[..., Any]] = {  # by the family of ``Library``
    "product": _narrow_product,
    "conv": _convolution,
    "attention": _attention,
}
