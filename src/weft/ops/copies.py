"""Copies of a tensor: in another dtype, in memory of its own, or off the tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dispatch import bind
from weft.core.lowering import SAME, Pointwise
from weft.core.mode import mode
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import DTypeError
from weft.ops.elementwise import elementwise_batch, result_type, samples_in
from weft.ops.memory_format import check_format, contiguous_format, laid_out
from weft.ops.public import public

# -- cast


def _cast_eval(x: Any, *, dtype: dtypes.DType) -> Any:
    if x.dtype.kind == "c" and not dtype.is_complex:
        x = x.real
    if _SATURATES and x.dtype.kind not in "biuc" and dtype.np.kind == "u":
        return _wrapped(x, dtype)
    return x.astype(dtype.np)


# Whether this machine's casts make 0 of what lies below 0, as aarch64 does; those of
# x86-64 and of compiled code make what PyTorch makes, -1 the largest number.
_SATURATES = bool(np.array([-1.0], np.float32).astype(np.uint8)[0] == 0)


def _wrapped(x: Any, dtype: dtypes.DType) -> Any:
    """Floating-point numbers as whole ones without sign, by way of signed ones."""
    if dtype is not dtypes.uint64:
        return x.astype(np.int64).astype(dtype.np)
    below, above = np.minimum(x, 0).astype(np.int64), np.maximum(x, 0).astype(np.uint64)
    return np.where(x < 0, below.astype(np.uint64), above)


cast_op: Op = define(
    "cast",
    inputs="x",
    eval=_cast_eval,
    type=lambda x, *, dtype: TensorType(x.shape, dtype),
    elementwise=True,
    cost=0,
    lower=Pointwise("cast"),
    vjp={"x": lambda g, x_dtype: cast(g, x_dtype) if x_dtype.is_inexact else None},
    linear=True,
    batch=elementwise_batch,
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, s),), {"dtype": d})
        for s in ((3, 4), (), (0, 2))
        for d in (dtypes.float64, dtypes.complex128)
    ],
    reference=lambda x, *, dtype: x + np.zeros((), dtype.np),
)


def cast(x: Tensor, dtype: dtypes.DType) -> Tensor:
    """The tensor with another dtype; itself if it has that dtype already."""
    if x.dtype is dtype:
        return x
    return bind(cast_op, (x,), {"dtype": dtype})


# Types that compositions compute wide; by NumPy's codes.
HALF = ("e", "E")


def in_float32(fn: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """``fn(*tensors)``, a composition that computes in float32 and rounds once.

    Half-precision tensors are cast to float32, and the result to the dtype that they
    are promoted to. Steps in half precision would each lose as much as the result may.

    >>> from weft.ops.copies import in_float32
    >>> x = weft.tensor([1000.0, 1004.0], dtype=weft.bfloat16)
    >>> in_float32(lambda x: x - x.mean(), x)
    tensor([-2.,  2.], dtype=weft.bfloat16)
    """
    if not any(isinstance(t, Tensor) and t.dtype.np.char in HALF for t in tensors):
        return fn(*tensors)
    given = [t for t in tensors if t is not None]
    kind = result_type(*given)
    wide = [
        t if t is None or t.dtype.np.char not in HALF else cast(t, dtypes.float32)
        for t in tensors
    ]
    return cast(fn(*wide), kind)


# -- clone


clone_op: Op = define(
    "clone",
    inputs="x",
    lower=SAME,
    eval=lambda x: x.copy(order="C") if type(x) is np.ndarray else x,
    type=lambda x: x,
    elementwise=True,
    vjp={"x": lambda g: g},
    linear=True,
    batch=elementwise_batch,
    samples=samples_in((-2.0, 2.0)),
    reference=lambda x: x + 0.0,
)


@public(method=True)
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy that gradients flow through, contiguous unless a format is given.

    >>> x = weft.ones(2)
    >>> x.clone().add_(1)
    tensor([2., 2.])
    >>> x
    tensor([1., 1.])
    """
    if memory_format is not None:
        form = check_format("clone", memory_format)
        return laid_out("clone", input, form, copy=True)
    if not isinstance(input, Tensor):
        kind = type(input).__name__
        raise DTypeError(f"clone: expected `input` to be a tensor, got {kind}")
    return bind(clone_op, (input,), {})


alias_op: Op = define(
    "alias",
    inputs="x",
    lower=SAME,
    eval=lambda x: x,
    type=lambda x: x,
    elementwise=True,
    vjp={"x": lambda g: g},
    linear=True,
    view=True,
    batch=elementwise_batch,
    samples=samples_in((-2.0, 2.0)),
    reference=lambda x: x + 0.0,
)


@public(exported=False, method=True)
def contiguous(input: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """The tensor itself if its memory is in order, else a copy.

    >>> weft.zeros(2, 3).t().contiguous().is_contiguous()
    True
    """
    if memory_format is not contiguous_format:
        return laid_out("contiguous", input, check_format("contiguous", memory_format))
    array = input.layout_array()
    if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
        out = clone(input)
        if mode.capture is not None and input._interpreter is mode.capture:
            mode.capture.taken_for_copy(input, out)  # eagerly, it may be in order
        return out
    return input.in_order()


@public()
def detach(input: Tensor) -> Tensor:
    """The same memory, cut off from gradients and tangents.

    >>> weft.detach(weft.ones(1, requires_grad=True)).requires_grad
    False
    """
    return input.detach()
