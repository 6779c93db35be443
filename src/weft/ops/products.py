"""The matrix product, and functions made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.core.autocast import lowered
from weft.core.blas import product
from weft.core.dims import normalize_dims
from weft.core.eager_kernels import COMPOSED, SLOW
from weft.core.fast_path import result
from weft.core.lowering import Library
from weft.core.mode import QUIET, RECORDING, mode
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.dtype import (
    DType,
    as_dtype,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
    uint8,
)  # fmt: skip
from weft.errors import ArgumentError, DTypeError, RankError, ShapeError
from weft.ops import dividing
from weft.ops.arithmetic import scaled
from weft.ops.broadcasting import expand
from weft.ops.copies import HALF, cast
from weft.ops.elementwise import FORMS, broadcast_shapes, conj, result_type
from weft.ops.inplace import inplace
from weft.ops.operands import as_tensorlike
from weft.ops.public import public
from weft.ops.reduce import sum
from weft.ops.shaping import permute, reshape, transpose


def _matmul_eval(x: Any, y: Any) -> Any:
    kind = x.dtype.char
    if kind in HALF:
        return product(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
    return product(x, y)


def _matmul_type(x: TensorType, y: TensorType) -> TensorType:
    _check_inner(x.shape, y.shape)
    if x.dtype is not y.dtype:
        raise DTypeError(
            f"matmul: expected equal dtypes, got {x.dtype.name} and {y.dtype.name}"
        )
    if x.shape[:-2] != y.shape[:-2]:
        raise ShapeError(
            f"matmul: expected equal batch dimensions, got {x.shape} and {y.shape}"
        )
    return TensorType((*x.shape[:-1], y.shape[-1]), x.dtype)


def _check_inner(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    inner = y[-2] if len(y) > 1 else y[-1]
    if x[-1] != inner:
        raise ShapeError(
            f"matmul: cannot multiply shapes {x} and {y}: the last axis of the first "
            f"has size {x[-1]}, axis {-2 if len(y) > 1 else -1} of the second has "
            f"size {inner}; expected equal sizes"
        )


def _transposed(x: Any) -> Any:
    return transpose(conj(x), -2, -1)


def _plain(x: Any, y: Any) -> bool:
    """Two CPU matrices, and nothing to record: NumPy will do."""
    return type(x) is Tensor and type(y) is Tensor and mode.state == QUIET and (
        x._data.ndim == 2 and x._data.dtype.char in "fd"
    )  # fmt: skip


def _times_transposed(x: Any, y: Any) -> Any:
    """x @ y.T (conjugated)."""
    if _plain(x, y):
        return Tensor(product(x._data, y._data.T))
    return matmul_op(x, _transposed(y))


def _transposed_times(x: Any, y: Any) -> Any:
    """x.T (conjugated) @ y."""
    if _plain(x, y):
        return Tensor(product(x._data.T, y._data))
    return matmul_op(_transposed(x), y)


def _matmul_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    x, y = args
    if x.ndim == 3 and batched[0] and not batched[1] and y.ndim == 2:
        # one matrix for the whole batch: fold the batch into the rows
        rows = reshape(x, (size * x.shape[1], x.shape[2]))
        return reshape(op(rows, y, **params), (size, x.shape[1], y.shape[1]))
    full = [
        a if b else expand(a, (size, *a.shape))
        for a, b in zip(args, batched, strict=True)
    ]
    return op(*full, **params)


def _samples(rng: Any, params: dict[str, Any]) -> list[Sample]:
    return [
        Sample((rng.uniform(-2, 2, a), rng.uniform(-2, 2, b)), params)
        for a, b in (
            ((3, 4), (4, 2)),
            ((2, 3, 4), (2, 4, 2)),
            ((0, 3), (3, 2)),
            ((2, 0), (0, 3)),
            ((1, 1), (1, 1)),
        )
    ]


def _summed(x: Any, y: Any) -> Any:
    return (x[..., :, :, None] * y[..., None, :, :]).sum(-2)


# NumPy converts the first two, and multiplies the others one by one.
_NARROW = {"e": COMPOSED, "E": COMPOSED, "b": SLOW // 2, "B": SLOW // 2}

matmul_op: Op = define(
    "matmul",
    divides=dividing.multiplied,
    inputs="x y",
    eval=_matmul_eval,
    type=_matmul_type,
    lower=Library("product", "plain"),
    flops=lambda out, x, y: (2, *out, x[-1]),
    vjp={
        "x": lambda g, y: _times_transposed(g, y),
        "y": lambda g, x: _transposed_times(x, g),
    },
    jvp={"x": lambda t, y: matmul_op(t, y), "y": lambda t, x: matmul_op(x, t)},
    batch=_matmul_batch,
    samples=lambda rng: _samples(rng, {}),
    reference=lambda x, y: _summed(x, y),
    bulk=_NARROW,
)

# -- the product in a wider dtype than its operands


def _wide_eval(x: Any, y: Any, *, dtype: DType) -> Any:
    if dtype is int32:  # products of bytes are exact in float64, for any k there is
        found = product(x.astype(np.float64), y.astype(np.float64))
        return found.astype(np.int64).astype(np.int32)
    return product(x.astype(dtype.np), y.astype(dtype.np))


def _wide_type(x: TensorType, y: TensorType, *, dtype: DType) -> TensorType:
    wide = _matmul_type(*(TensorType(kind.shape, dtype) for kind in (x, y)))
    for kind in (x, y):
        if not _widens(kind.dtype, dtype):
            raise DTypeError(
                f"wide_matmul: expected operands that {dtype.name} can hold, got "
                f"{kind.dtype.name}"
            )
    return wide


def _widens(dtype: DType, to: DType) -> bool:
    """Whether a product's operands may have this dtype, for a result of another."""
    if to is int32:
        return dtype in (int8, uint8)
    return (
        dtype.is_floating_point
        and to.is_floating_point
        and (dtype.np.itemsize <= to.np.itemsize)
    )


wide_matmul_op: Op = define(
    "wide_matmul",
    inputs="x y",
    eval=_wide_eval,
    type=_wide_type,
    lower=Library("product", "wide"),
    flops=lambda out, x, y: (2, *out, x[-1]),
    vjp={
        "x": lambda g, y, x_dtype, dtype: cast(
            _times_transposed(g, cast(y, dtype)), x_dtype
        ),
        "y": lambda g, x, y_dtype, dtype: cast(
            _transposed_times(cast(x, dtype), g), y_dtype
        ),
    },
    jvp={
        "x": lambda t, y, dtype: wide_matmul_op(t, y, dtype=dtype),
        "y": lambda t, x, dtype: wide_matmul_op(x, t, dtype=dtype),
    },
    batch=_matmul_batch,
    samples=lambda rng: _samples(rng, {"dtype": float64}),
    reference=lambda x, y, *, dtype: _summed(x.astype(dtype.np), y.astype(dtype.np)),
    bulk=_NARROW,
)

_PLANS = [matmul_op.plan((bool(k & 1), bool(k & 2))) for k in range(4)]


def _matmul_any(input: Any, other: Any) -> Tensor:
    if mode.autocast is not None:
        input, other = lowered(input, other)
    x, y = (_matrix_operand(v) for v in (input, other))
    _check_inner(x.shape, y.shape)
    dtype = result_type(x.dtype, y.dtype)
    x, y = cast(x, dtype), cast(y, dtype)
    if x.ndim == 1 and y.ndim == 1:
        return sum(x * y, dtype=dtype)
    left = reshape(x, (1, -1)) if x.ndim == 1 else x
    right = reshape(y, (y.shape[0], 1)) if y.ndim == 1 else y
    if right.ndim == 2 and left.ndim > 2:
        # rows of all batches in one product
        rows = reshape(left, (math.prod(left.shape[:-1]), left.shape[-1]))
        out = matmul_op(rows, right)
        out = reshape(out, (*left.shape[:-1], right.shape[-1]))
    else:
        lead = broadcast_shapes("matmul", left.shape[:-2], right.shape[:-2])
        out = matmul_op(
            expand(left, (*lead, *left.shape[-2:])),
            expand(right, (*lead, *right.shape[-2:])),
        )
    if x.ndim == 1:
        out = out.squeeze(-2)
    return out.squeeze(-1) if y.ndim == 1 else out


def _product_of(slow: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``matmul``, with a way for all but plain matrices."""

    def matmul(input: Tensor, other: Tensor) -> Tensor:
        state = mode.quick
        if state and type(input) is Tensor is type(other):
            x, y = input._data, other._data
            dtype = x.dtype
            if x.ndim == 2 == y.ndim and dtype is y.dtype and dtype.char in "fd":
                try:
                    r = product(x, y)
                except Exception:  # explained there
                    return slow(input, other)
                nx, ny = input._node, other._node
                if (nx is None and ny is None) or not state & RECORDING:
                    return result(r)
                plan = _PLANS[(nx is not None) + 2 * (ny is not None)]
                return result(r, plan, (nx, ny), (input, other))
        return slow(input, other)

    matmul.__qualname__ = "matmul"
    matmul.__doc__ = """The matrix product of matrices, vectors and batches of them.

    >>> weft.ones(2, 3) @ weft.ones(3)
    tensor([3., 3.])
    """
    return matmul


matmul = public(method=True, ufuncs=("matmul",))(_product_of(_matmul_any))
FORMS[matmul] = _product_of


def _matrix_operand(value: Any) -> Tensor:
    if isinstance(value, np.ndarray):
        value = as_tensorlike(value)
    if not isinstance(value, Tensor):
        raise DTypeError(f"matmul: expected two tensors, got {type(value).__name__}")
    if value.ndim == 0:
        raise ShapeError(
            "matmul: expected tensors of at least one dimension, got a 0-d tensor; "
            "use * to scale"
        )
    return value


@public(method=True)
def mm(input: Tensor, mat2: Tensor, *, out_dtype: DType | None = None) -> Tensor:
    """The product of two matrices.

    ``out_dtype`` gives the result without rounding it to the operands' dtype: float32
    for float16 and bfloat16, int32 for int8 and uint8 (also one of each). Sums are made
    in that dtype; those of integers are exact as long as int32 holds them.

    >>> weft.mm(weft.ones(1, 2), weft.ones(2, 1))
    tensor([[2.]])
    >>> x = weft.full((1, 3), 100, dtype=weft.int8)
    >>> weft.mm(x, x.T, out_dtype=weft.int32)
    tensor([[30000]], dtype=weft.int32)
    """
    x, y = _with_rank("mm", 2, input, mat2)
    return matmul(x, y) if out_dtype is None else _wide("mm", x, y, out_dtype)


@public(method=True)
def bmm(input: Tensor, mat2: Tensor, *, out_dtype: DType | None = None) -> Tensor:
    """The products of two batches of matrices; ``out_dtype`` is as for ``mm``.

    >>> weft.bmm(weft.ones(5, 1, 2), weft.ones(5, 2, 3)).shape
    (5, 1, 3)
    """
    x, y = _with_rank("bmm", 3, input, mat2)
    return matmul(x, y) if out_dtype is None else _wide("bmm", x, y, out_dtype)


# The dtypes of a product's result, by those of its operands.
_WIDER = {
    float16: (float16, float32),
    bfloat16: (bfloat16, float32),
    int8: (int8, int32),
    uint8: (uint8, int32),
}


def _wide(name: str, x: Tensor, y: Tensor, to: Any) -> Tensor:
    """A product in the wanted dtype."""
    to = as_dtype(to)
    _check_inner(x.shape, y.shape)
    if x.shape[:-2] != y.shape[:-2]:
        raise ShapeError(
            f"{name}: expected equal batch dimensions, got {x.shape} and {y.shape}"
        )
    bytes_ = to is int32 and {x.dtype, y.dtype} <= {int8, uint8}
    if x.dtype is not y.dtype and not bytes_:
        raise DTypeError(
            f"{name}: expected equal dtypes, or int8 and uint8 for out_dtype=int32, "
            f"got {x.dtype.name} and {y.dtype.name}"
        )
    allowed = _WIDER.get(x.dtype, (x.dtype,))
    if to not in allowed:
        names = " or ".join(dtype.name for dtype in allowed)
        raise DTypeError(
            f"{name}: expected out_dtype {names} for operands of {x.dtype.name}, got "
            f"{to.name}; cast the operands, or the result"
        )
    return matmul(x, y) if to is x.dtype else wide_matmul_op(x, y, dtype=to)


@public(method=True)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector.

    >>> weft.mv(weft.ones(2, 3), weft.ones(3))
    tensor([3., 3.])
    """
    _with_rank("mv", 2, input)
    _with_rank("mv", 1, vec)
    return matmul(input, vec)


@public(method=True)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The dot product of two vectors.

    >>> weft.dot(weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return matmul(*_with_rank("dot", 1, input, tensor))


def _with_rank(name: str, ndim: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    for x in tensors:
        if x.ndim != ndim:
            raise RankError(f"{name}: expected {ndim}-d tensors, got shape {x.shape}")
    return tensors


@public(method=True, inplace="x, x")
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2``.

    >>> weft.addmm(weft.ones(1, 1), weft.ones(1, 2), weft.ones(2, 1))
    tensor([[3.]])
    """
    if mode.autocast is not None:
        input, mat1, mat2 = lowered(input, mat1, mat2)
    return scaled_sum("addmm", input, mm(mat1, mat2), beta, alpha)


def scaled_sum(
    name: str, input: Tensor, product: Tensor, beta: Any, alpha: Any
) -> Tensor:
    """``beta * input + alpha * product``; where ``beta`` is 0, ``input`` is not read.

    So NaN and infinities that memory happens to hold stay out, as in BLAS.
    """
    shape = product.shape
    if broadcast_shapes(name, input.shape, shape) != shape:
        raise ShapeError(
            f"{name}: expected an input that can be expanded to the product's shape "
            f"{shape}, got shape {input.shape}"
        )
    dtype = result_type(input, product)
    if alpha != 1:
        product = cast(scaled(name, product, product, alpha), dtype)
    if beta == 0:
        return cast(product, dtype)
    if beta != 1:
        input = cast(scaled(name, input, input, beta), dtype)
    return input + product


@public(method=True)
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of an element of one vector with one of the other.

    >>> weft.outer(weft.tensor([1, 2]), weft.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    x, y = _with_rank("outer", 1, input, vec2)
    return reshape(x, (-1, 1)) * y if x.numel() else reshape(x, (0, 1)) * y


@public(method=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Products summed over the last dimension of both.

    >>> weft.inner(weft.ones(2, 3), weft.ones(4, 3)).shape
    (2, 4)
    """
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    return tensordot(input, other, ([-1], [-1]))


@public()
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Products summed over several dimensions.

    ``dims`` is a number (the last ones of ``a``, the first ones of ``b``) or two
    lists of dimensions.

    >>> weft.tensordot(weft.ones(2, 3), weft.ones(3, 4), 1).shape
    (2, 4)
    """
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise ArgumentError(
                f"tensordot: cannot sum over {dims} dimensions of shapes {a.shape} "
                f"and {b.shape}"
            )
        da, db = range(a.ndim - dims, a.ndim), range(dims)
    else:
        da, db = dims
    xs = normalize_dims("tensordot", tuple(da), a.ndim)
    ys = normalize_dims("tensordot", tuple(db), b.ndim)
    pairs = [(a.shape[d], b.shape[e], d, e) for d, e in zip(xs, ys, strict=False)]
    if len(xs) != len(ys) or any(n != m and 1 not in (n, m) for n, m, *_ in pairs):
        raise ShapeError(
            f"tensordot: shapes {a.shape} and {b.shape} differ along dims {xs} and {ys}"
        )
    # a size of 1 is broadcast: the other operand is summed along its dimension
    if ones := tuple(d for n, m, d, _ in pairs if m == 1 != n):
        a = sum(a, ones, keepdim=True, dtype=a.dtype)
    if ones := tuple(e for n, m, _, e in pairs if n == 1 != m):
        b = sum(b, ones, keepdim=True, dtype=b.dtype)
    free_a = [d for d in range(a.ndim) if d not in xs]
    free_b = [d for d in range(b.ndim) if d not in ys]
    left = _fold(permute(a, (*free_a, *xs)), len(free_a))
    right = _fold(permute(b, (*ys, *free_b)), len(ys))
    shape = [a.shape[d] for d in free_a] + [b.shape[d] for d in free_b]
    return reshape(matmul(left, right), shape)


def _fold(x: Tensor, rows: int) -> Tensor:
    """A matrix whose rows are the first ``rows`` dimensions."""
    shape: Sequence[int] = x.shape
    return reshape(x, (math.prod(shape[:rows]), math.prod(shape[rows:])))


@public(method=True)
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * batch1 @ batch2``, for batches of matrices.

    >>> weft.baddbmm(weft.ones(1, 1), weft.ones(4, 1, 2), weft.ones(4, 2, 1)).shape
    (4, 1, 1)
    """
    if mode.autocast is not None:
        input, batch1, batch2 = lowered(input, batch1, batch2)
    return scaled_sum("baddbmm", input, bmm(batch1, batch2), beta, alpha)


@public(method=True, inplace=partial(inplace, given="weft.eye(2), x", size="2"))
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * mat @ vec``.

    >>> weft.addmv(weft.ones(2), weft.ones(2, 3), weft.ones(3))
    tensor([4., 4.])
    """
    return scaled_sum("addmv", input, mv(mat, vec), beta, alpha)


@public(method=True, inplace="weft.ones(2), weft.ones(2)")
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input`` plus ``alpha`` times all products of two vectors' elements.

    >>> weft.addr(weft.zeros(1, 2), weft.tensor([2.0]), weft.tensor([3.0, 4.0]))
    tensor([[6., 8.]])
    """
    return scaled_sum("addr", input, outer(vec1, vec2), beta, alpha)


@public(method=True)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The dot product with the first vector conjugated.

    >>> weft.vdot(weft.tensor([1j]), weft.tensor([1j]))
    tensor(1.+0.j)
    """
    return dot(conj(input), other)


@public(method=True)
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker's product: ``other`` scaled by each element of ``input``, in blocks.

    >>> weft.kron(weft.tensor([1, 10]), weft.tensor([1, 2]))
    tensor([ 1,  2, 10, 20])
    """
    ndim = max(input.ndim, other.ndim)
    a, b = ((1,) * (ndim - x.ndim) + tuple(x.shape) for x in (input, other))
    left = reshape(input, [n for size in a for n in (size, 1)])
    right = reshape(other, [n for size in b for n in (1, size)])
    return reshape(left * right, [n * m for n, m in zip(a, b, strict=True)])
