"""Reductions and running sums.

The primitives are ``sum prod amax amin argmax argmin any all cumsum cumprod
linear_scan``; means, variances, norms and log-sum-exp are made of them.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import normalize_dim, reduced_dims
from weft.core.dispatch import bind
from weft.core.elementwise import check_accepts, conj
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.dtype import as_dtype, default_dtype
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.elementwise import abs, real, where
from weft.ops.movement import cast, expand, flip_op, reshape
from weft.ops.transcendental import exp, log, sqrt

builtin_max: Any = max
builtin_min: Any = min
HALF = ("e", "E")  # summed in float32


# -- shared pieces


def reduced_shape(
    shape: tuple[int, ...], dim: tuple[int, ...], keepdim: bool
) -> tuple[int, ...]:
    """A shape with the reduced axes of size 1, or left out."""
    if keepdim:
        return tuple(1 if i in dim else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dim)


def restore(g: Tensor, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Tensor:
    """A reduced value spread again over the shape it came from."""
    dims = dim if isinstance(dim, tuple) else (dim,)
    if not keepdim and g.ndim:
        g = reshape(g, reduced_shape(shape, dims, True))
    return expand(g, shape)


def _reduce_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Any:
    dim = params["dim"]
    if isinstance(dim, tuple):
        shifted: Any = tuple(d + 1 for d in dim)
    else:
        shifted = dim + 1
    return bind(op, tuple(args), dict(params, dim=shifted))


def _samples(low: float = -2.0, high: float = 2.0) -> Callable[..., Any]:
    def samples(rng: np.random.Generator) -> Any:
        for shape, dim, keep in (
            ((3, 4), (0,), False),
            ((3, 4), (0, 1), True),
            ((2, 3, 2), (0, 2), False),
            ((), (), False),
            ((2, 0), (0,), False),
        ):
            x = rng.permuted(np.linspace(low, high, builtins.max(math.prod(shape), 1)))
            x = x[: math.prod(shape)].reshape(shape)
            yield Sample((x,), {"dim": dim, "keepdim": keep})

    return samples


def _along_samples(low: float = -2.0, high: float = 2.0) -> Callable[..., Any]:
    """Samples for operators over one dimension of at least one element."""

    def samples(rng: np.random.Generator) -> Any:
        for shape, dim in (((3, 4), 1), ((4, 2, 3), 0), ((5,), 0), ((3, 0), 0)):
            yield Sample((rng.uniform(low, high, shape),), {"dim": dim})

    return samples


def _slices(x: Any, dim: int) -> list[Any]:
    return [np.take(x, i, dim) for i in range(x.shape[dim])]


# -- sum


def _sum_eval(x: Any, *, dim: tuple[int, ...], keepdim: bool) -> Any:
    if x.dtype.char in HALF:
        total = x.astype(np.float32).sum(dim, keepdims=keepdim)
        return np.asarray(total).astype(x.dtype)
    return np.add.reduce(x, dim, x.dtype, None, keepdim)  # type: ignore[call-overload]


def _reduce_type(x: TensorType, *, dim: tuple[int, ...], keepdim: bool) -> TensorType:
    return TensorType(reduced_shape(x.shape, dim, keepdim), x.dtype)


def _sum_reference(x: Any, *, dim: tuple[int, ...], keepdim: bool) -> Any:
    ones = np.ones([x.shape[d] for d in dim])
    out = np.tensordot(x, ones, (dim, tuple(range(len(dim)))))
    return out.reshape(reduced_shape(x.shape, dim, keepdim))


sum_op: Op = define(
    "sum",
    inputs="x",
    eval=_sum_eval,
    type=_reduce_type,
    vjp={"x": lambda g, x_shape, dim, keepdim: restore(g, x_shape, dim, keepdim)},
    linear=True,
    batch=_reduce_batch,
    samples=_samples(),
    reference=_sum_reference,
)


def sum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The sum of all elements, or along dimensions; integers sum to int64.

    >>> weft.tensor([[1, 2], [3, 4]]).sum(dim=0)
    tensor([4, 6], shape=(2,), dtype=int64)
    """
    x = _widen(input, dtype)
    dims = reduced_dims("sum", dim, x.ndim)
    return bind(sum_op, (x,), {"dim": dims, "keepdim": bool(keepdim)})


def _widen(x: Tensor, dtype: Any) -> Tensor:
    """Integers to int64, unless a dtype is asked for."""
    if dtype is not None:
        return cast(x, as_dtype(dtype))
    kind = x._data.dtype.char if type(x) is Tensor else x.dtype.np.char
    return x if kind in dtypes.INEXACT_CODES else cast(x, dtypes.int64)


def _count(x: Tensor, dims: tuple[int, ...]) -> int:
    return math.prod(x.shape[d] for d in dims)


def _floating(name: str, x: Tensor, dtype: Any = None) -> Tensor:
    if dtype is not None:
        x = cast(x, as_dtype(dtype))
    if not x.dtype.is_inexact:
        raise DTypeError(
            f"{name}: expected a floating-point or complex dtype, got "
            f"{x.dtype.name}. Convert it with .float() first"
        )
    return x


def mean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The mean of all elements, or along dimensions.

    >>> weft.tensor([1.0, 2.0, 6.0]).mean()
    tensor(3., dtype=float32)
    """
    x = _floating("mean", input, dtype)
    dims = reduced_dims("mean", dim, x.ndim)
    count = _count(x, dims)
    total = sum(x, dims, keepdim)
    return total / count if count else total * math.nan


def nansum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The sum of the elements that are not NaN.

    >>> weft.nansum(weft.tensor([1.0, float("nan")]))
    tensor(1., dtype=float32)
    """
    return sum(where(input != input, 0, input), dim, keepdim, dtype=dtype)


def nanmean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The mean of the elements that are not NaN.

    >>> weft.nanmean(weft.tensor([1.0, float("nan"), 3.0]))
    tensor(2., dtype=float32)
    """
    x = _floating("nanmean", input, dtype)
    return nansum(x, dim, keepdim) / sum(x == x, dim, keepdim)


def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not zero.

    >>> weft.count_nonzero(weft.tensor([0, 3, 0, 4]))
    tensor(2, dtype=int64)
    """
    return sum(input != 0, dim)


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The variance, with ``correction`` degrees of freedom (1) taken off.

    >>> weft.tensor([1.0, 2.0, 3.0]).var()
    tensor(1., dtype=float32)
    """
    return _spread("var", input, dim, unbiased, keepdim, correction)


def _spread(
    name: str,
    input: Tensor,
    dim: Any,
    unbiased: bool | None,
    keepdim: bool,
    correction: float | None,
) -> Tensor:
    if isinstance(dim, bool):  # PyTorch's var(unbiased)
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise ArgumentError(f"{name}: expected unbiased or correction, got both")
    if correction is None:
        correction = 0 if unbiased is False else 1
    x = _floating(name, input)
    dims = reduced_dims(name, dim, x.ndim)
    off = x - mean(x, dims, keepdim=True)
    total = sum(real(off * conj(off)), dims, keepdim)
    left = _count(x, dims) - correction
    return total / builtin_max(left, 0)


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The standard deviation; its gradient where all elements are equal is 0.

    >>> weft.tensor([1.0, 2.0, 3.0]).std()
    tensor(1., dtype=float32)
    """
    return sqrt(_spread("std", input, dim, unbiased, keepdim, correction))


def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The variance and the mean.

    >>> weft.var_mean(weft.tensor([1.0, 3.0]))
    (tensor(2., dtype=float32), tensor(2., dtype=float32))
    """
    spread = _spread("var_mean", input, dim, unbiased, keepdim, correction)
    return spread, mean(input, None if isinstance(dim, bool) else dim, keepdim)


def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean.

    >>> weft.std_mean(weft.tensor([1.0, 1.0]))
    (tensor(0., dtype=float32), tensor(1., dtype=float32))
    """
    spread, middle = var_mean(input, dim, unbiased, keepdim, correction=correction)
    return sqrt(spread), middle


# -- product


def _prod_vjp(g: Tensor, x: Tensor, dim: int) -> Tensor:
    """Each element's share: the product of all the others (exact at zeros)."""
    left = _shifted_products(x, dim)
    right = flip_op(_shifted_products(flip_op(x, dims=(dim,)), dim), dims=(dim,))
    return restore(g, x.shape, dim, False) * conj(left * right)


def _shifted_products(x: Tensor, dim: int) -> Tensor:
    """The product of the elements before each one."""
    return cumprod_op(_shift(x, dim, 1), dim=dim)


def _shift(x: Tensor, dim: int, fill: float) -> Tensor:
    """Move the elements one place up, the first becoming ``fill``."""
    from weft.ops.creation import full_like
    from weft.ops.movement import along, cat_op

    first = full_like(along(x, dim, slice(0, 1)), fill)
    return cat_op(first, along(x, dim, slice(0, -1)), dim=dim)


def _prod_eval(x: Any, *, dim: int) -> Any:
    if x.dtype.char in HALF:
        return np.asarray(_prod_eval(x.astype(np.float32), dim=dim)).astype(x.dtype)
    return np.multiply.reduce(x, dim, x.dtype)


def _along_type(x: TensorType, *, dim: int) -> TensorType:
    return TensorType(reduced_shape(x.shape, (dim,), False), x.dtype)


prod_op: Op = define(
    "prod",
    inputs="x",
    eval=_prod_eval,
    type=_along_type,
    vjp={"x": lambda g, x, dim: _prod_vjp(g, x, dim)},
    jvp={"x": lambda t, x, dim: sum(t * _others(x, dim), dim)},
    batch=_reduce_batch,
    samples=_along_samples(),
    reference=lambda x, *, dim: (
        np.cumprod(x, dim).take(-1, dim)
        if x.shape[dim]
        else np.ones(reduced_shape(x.shape, (dim,), False))
    ),
)


def _others(x: Tensor, dim: int) -> Tensor:
    """For each element, the product of the others along a dimension."""
    left = _shifted_products(x, dim)
    turned = flip_op(x, dims=(dim,))
    return left * flip_op(_shifted_products(turned, dim), dims=(dim,))


def prod(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The product of all elements, or along a dimension.

    >>> weft.tensor([2.0, 3.0, 4.0]).prod()
    tensor(24., dtype=float32)
    """
    x = _widen(input, dtype)
    if dim is None:
        return bind(prod_op, (reshape(x, (x.numel(),)),), {"dim": 0})
    d = normalize_dim("prod", dim, x.ndim)
    if x.ndim == 0:
        return x
    out = bind(prod_op, (x,), {"dim": d})
    return out.unsqueeze(d) if keepdim else out


# -- extremes


def _extreme_type(name: str) -> Callable[..., Any]:
    def rule(x: TensorType, *, dim: tuple[int, ...], keepdim: bool) -> TensorType:
        check_accepts(name, "ordered", x.dtype)
        _check_nonempty(name, x.shape, dim)
        return _reduce_type(x, dim=dim, keepdim=keepdim)

    return rule


def _check_nonempty(name: str, shape: tuple[int, ...], dim: tuple[int, ...]) -> None:
    for d in dim:
        if shape[d] == 0:
            raise ShapeError(
                f"{name}: expected at least one element, but dim {d} of shape {shape} "
                "is empty"
            )


def _extreme_share(x: Tensor, out: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """1 / (number of winners) at each winner, 0 elsewhere."""
    won = cast(x == restore(out, x.shape, dim, keepdim), x.dtype)
    return won / restore(sum(won, dim, True), x.shape, dim, True)


def _extreme(name: str, ufunc: Any, reference: Any) -> Op:
    return define(
        name,
        inputs="x",
        eval=lambda x, *, dim, keepdim: ufunc.reduce(x, dim, keepdims=keepdim),
        type=_extreme_type(name),
        vjp={
            "x": lambda g, x, out, dim, keepdim: (
                restore(g, x.shape, dim, keepdim) * _extreme_share(x, out, dim, keepdim)
            )
        },
        jvp={
            "x": lambda t, x, out, dim, keepdim: sum(
                t * _extreme_share(x, out, dim, keepdim), dim, keepdim
            )
        },
        batch=_reduce_batch,
        samples=lambda rng: [
            s
            for s in _samples()(rng)
            if 0 not in [s.args[0].shape[d] for d in s.params["dim"]]
        ],
        reference=reference,
    )


def _sorted_reference(place: int) -> Callable[..., Any]:
    def reference(x: Any, *, dim: tuple[int, ...], keepdim: bool) -> Any:
        kept = [i for i in range(x.ndim) if i not in dim]
        count = math.prod(x.shape[i] for i in dim)
        rows = [x.shape[i] for i in kept]
        flat = np.transpose(x, (*kept, *dim)).reshape([*rows, count])
        out = np.sort(flat, -1)[..., place]
        return out.reshape(reduced_shape(x.shape, dim, keepdim))

    return reference


amax_op = _extreme("amax", np.maximum, _sorted_reference(-1))
amin_op = _extreme("amin", np.minimum, _sorted_reference(0))


def _reduce_extreme(op: Op, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    check_accepts(op.name, "ordered", input.dtype)
    dims = reduced_dims(op.name, dim, input.ndim)
    _check_nonempty(op.name, input.shape, dims)
    return bind(op, (input,), {"dim": dims, "keepdim": bool(keepdim)})


def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest element; equal ones share its gradient.

    >>> weft.tensor([[1, 9], [3, 4]]).amax(dim=1)
    tensor([9, 4], shape=(2,), dtype=int64)
    """
    return _reduce_extreme(amax_op, input, dim, keepdim)


def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest element; equal ones share its gradient.

    >>> weft.tensor([[1, 9], [3, 4]]).amin(dim=1)
    tensor([1, 3], shape=(2,), dtype=int64)
    """
    return _reduce_extreme(amin_op, input, dim, keepdim)


def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest and the largest element.

    >>> weft.aminmax(weft.tensor([3, 1, 2])).max
    tensor(3, dtype=int64)
    """
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))


class MinMax(NamedTuple):
    """What ``aminmax`` returns."""

    min: Tensor
    max: Tensor


def _arg_type(x: TensorType, *, dim: int, keepdim: bool) -> TensorType:
    check_accepts("argmax", "ordered", x.dtype)
    _check_nonempty("argmax", x.shape, (dim,))
    return TensorType(reduced_shape(x.shape, (dim,), keepdim), dtypes.int64)


def _arg_samples(rng: np.random.Generator) -> Any:
    for sample in _along_samples()(rng):
        if sample.args[0].shape[sample.params["dim"]]:
            yield Sample(sample.args, dict(sample.params, keepdim=False))


def _arg(name: str, fn: Any, place: int) -> Op:
    return define(
        name,
        inputs="x",
        eval=lambda x, *, dim, keepdim: np.asarray(fn(x, dim, keepdims=keepdim)),
        type=_arg_type,
        batch=_reduce_batch,
        samples=_arg_samples,
        reference=lambda x, *, dim, keepdim: np.argsort(x, dim, kind="stable").take(
            place, dim
        ),
    )


argmax_op = _arg("argmax", np.argmax, -1)
argmin_op = _arg("argmin", np.argmin, 0)


def _reduce_arg(op: Op, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    check_accepts(op.name, "ordered", input.dtype)
    if dim is None or input.ndim == 0:
        if input.numel() == 0:
            raise ShapeError(f"{op.name}: expected at least one element, got none")
        flat = reshape(input, (input.numel(),))
        out = bind(op, (flat,), {"dim": 0, "keepdim": False})
        return reshape(out, (1,) * input.ndim) if keepdim else out
    d = normalize_dim(op.name, dim, input.ndim)
    _check_nonempty(op.name, input.shape, (d,))
    return bind(op, (input,), {"dim": d, "keepdim": bool(keepdim)})


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the largest element (of all, flattened, without ``dim``).

    >>> weft.tensor([1, 9, 3]).argmax()
    tensor(1, dtype=int64)
    """
    return _reduce_arg(argmax_op, input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element (of all, flattened, without ``dim``).

    >>> weft.tensor([5, 9, 3]).argmin()
    tensor(2, dtype=int64)
    """
    return _reduce_arg(argmin_op, input, dim, keepdim)


class Extreme(NamedTuple):
    """What ``max``, ``min``, ``median``, ``cummax`` return along a dimension."""

    values: Tensor
    indices: Tensor


def _pick_extreme(
    name: str, whole: Any, arg: Any, pair: Any, input: Tensor, dim: Any, keepdim: bool
) -> Any:
    from weft.ops.index import gather

    if dim is None:
        return whole(input)
    if isinstance(dim, Tensor):
        return pair(input, dim)
    indices = arg(input, dim, True)
    if input.ndim == 0:
        return Extreme(input, indices)
    d = normalize_dim(name, dim, input.ndim)
    values = gather(input, d, indices)
    if not keepdim:
        values, indices = values.squeeze(d), indices.squeeze(d)
    return Extreme(values, indices)


def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest element; along a dimension, values and indices.

    With a tensor in place of ``dim``, the element-wise maximum.

    >>> weft.tensor([[1, 9], [3, 4]]).max(dim=1).indices
    tensor([1, 1], shape=(2,), dtype=int64)
    """
    from weft.ops.elementwise import maximum

    return _pick_extreme("max", amax, argmax, maximum, input, dim, keepdim)


def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest element; along a dimension, values and indices.

    With a tensor in place of ``dim``, the element-wise minimum.

    >>> weft.tensor([[1, 9], [3, 4]]).min()
    tensor(1, dtype=int64)
    """
    from weft.ops.elementwise import minimum

    return _pick_extreme("min", amin, argmin, minimum, input, dim, keepdim)


# -- logic


def _bool_type(x: TensorType, *, dim: tuple[int, ...], keepdim: bool) -> TensorType:
    return TensorType(reduced_shape(x.shape, dim, keepdim), dtypes.bool_)


def _bool_samples(rng: np.random.Generator) -> Any:
    for sample in _samples()(rng):
        yield Sample((sample.args[0] > 0.5,), sample.params)


any_op: Op = define(
    "any",
    inputs="x",
    eval=lambda x, *, dim, keepdim: np.any(x, dim, keepdims=keepdim),
    type=_bool_type,
    batch=_reduce_batch,
    samples=_bool_samples,
    reference=lambda x, *, dim, keepdim: (
        _sum_reference(x * 1.0, dim=dim, keepdim=keepdim) > 0
    ),
)

all_op: Op = define(
    "all",
    inputs="x",
    eval=lambda x, *, dim, keepdim: np.all(x, dim, keepdims=keepdim),
    type=_bool_type,
    batch=_reduce_batch,
    samples=_bool_samples,
    reference=lambda x, *, dim, keepdim: (
        _sum_reference(1.0 - x, dim=dim, keepdim=keepdim) == 0
    ),
)


def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether at least one element is true (not zero).

    >>> weft.tensor([False, True]).any()
    tensor(True, dtype=bool)
    """
    dims = reduced_dims("any", dim, input.ndim)
    return bind(any_op, (input,), {"dim": dims, "keepdim": bool(keepdim)})


def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether every element is true (not zero).

    >>> weft.tensor([False, True]).all()
    tensor(False, dtype=bool)
    """
    dims = reduced_dims("all", dim, input.ndim)
    return bind(all_op, (input,), {"dim": dims, "keepdim": bool(keepdim)})


# -- running sums and products


def _cumulative_type(x: TensorType, *, dim: int) -> TensorType:
    return x


def _running_eval(ufunc: Any) -> Callable[..., Any]:
    def eval(x: Any, *, dim: int) -> Any:
        if x.dtype.char in HALF:
            return ufunc.accumulate(x.astype(np.float32), dim).astype(x.dtype)
        return ufunc.accumulate(x, dim, x.dtype)

    return eval


def _reverse_cumsum(g: Tensor, dim: int) -> Tensor:
    return flip_op(cumsum_op(flip_op(g, dims=(dim,)), dim=dim), dims=(dim,))


cumsum_op: Op = define(
    "cumsum",
    inputs="x",
    eval=_running_eval(np.add),
    type=_cumulative_type,
    vjp={"x": lambda g, dim: _reverse_cumsum(g, dim)},
    linear=True,
    batch=_reduce_batch,
    samples=_along_samples(),
    reference=lambda x, *, dim: (
        np.stack(
            [np.sum(np.take(x, range(k + 1), dim), dim) for k in range(x.shape[dim])],
            dim,
        )
        if x.shape[dim]
        else x
    ),
)


def _scan_eval(a: Any, b: Any, *, dim: int) -> Any:
    out = np.empty_like(b)
    rows, decay, add = (np.moveaxis(v, dim, 0) for v in (out, a, b))
    state = np.zeros(rows.shape[1:], b.dtype)
    for k in range(rows.shape[0]):
        state = decay[k] * state + add[k]
        rows[k] = state
    return out


def _scan_back(g: Tensor, a: Tensor, dim: int) -> Tensor:
    """The adjoint state: the same recurrence, run from the end."""
    turned = flip_op(g, dims=(dim,))
    decay = _shift(flip_op(conj(a), dims=(dim,)), dim, 0)
    return flip_op(linear_scan(decay, turned, dim=dim), dims=(dim,))


linear_scan: Op = define(
    "linear_scan",
    inputs="a b",
    eval=_scan_eval,
    type=lambda a, b, *, dim: b,
    vjp={
        "a": lambda g, a, out, dim: _scan_back(g, a, dim) * conj(_shift(out, dim, 0)),
        "b": lambda g, a, dim: _scan_back(g, a, dim),
    },
    jvp={
        "a": lambda t, a, out, dim: linear_scan(a, t * _shift(out, dim, 0), dim=dim),
        "b": lambda t, a, dim: linear_scan(a, t, dim=dim),
    },
    batch=lambda op, size, args, batched, params: linear_scan(
        *[
            v if b else expand(v, (size, *v.shape))
            for v, b in zip(args, batched, strict=True)
        ],
        dim=params["dim"] + 1,
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, s), rng.uniform(-1, 1, s)), {"dim": d})
        for s, d in (((3, 4), 1), ((4,), 0), ((3, 0), 0))
    ],
    reference=lambda a, b, *, dim: _scan_reference(a, b, dim),
    doc="h[i] = a[i] * h[i-1] + b[i], along a dimension; closed under derivatives.",
)


def _scan_reference(a: Any, b: Any, dim: int) -> Any:
    """Each state as an explicit sum of products."""
    a, b = np.moveaxis(a, dim, 0), np.moveaxis(b, dim, 0)
    out = np.zeros_like(b)
    for i in range(len(b)):
        for j in range(i + 1):
            out[i] += b[j] * np.prod(a[j + 1 : i + 1], axis=0)
    return np.moveaxis(out, 0, dim)


def _cumprod_vjp(g: Tensor, x: Tensor, dim: int) -> Tensor:
    return conj(_shifted_products(x, dim)) * _scan_back(g, x, dim)


cumprod_op: Op = define(
    "cumprod",
    inputs="x",
    eval=_running_eval(np.multiply),
    type=_cumulative_type,
    vjp={"x": lambda g, x, dim: _cumprod_vjp(g, x, dim)},
    jvp={"x": lambda t, x, dim: linear_scan(x, t * _shifted_products(x, dim), dim=dim)},
    batch=_reduce_batch,
    samples=_along_samples(),
    reference=lambda x, *, dim: (
        np.stack(
            [np.prod(np.take(x, range(k + 1), dim), dim) for k in range(x.shape[dim])],
            dim,
        )
        if x.shape[dim]
        else x
    ),
)


def _running(op: Op, input: Tensor, dim: int, dtype: Any) -> Tensor:
    x = _widen(input, dtype)
    d = normalize_dim(op.name, dim, x.ndim)
    return bind(op, (x,), {"dim": d}) if x.ndim else x


def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The running sum along a dimension.

    >>> weft.tensor([1, 2, 3]).cumsum(0)
    tensor([1, 3, 6], shape=(3,), dtype=int64)
    """
    return _running(cumsum_op, input, dim, dtype)


def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The running product along a dimension.

    >>> weft.tensor([1, 2, 3]).cumprod(0)
    tensor([1, 2, 6], shape=(3,), dtype=int64)
    """
    return _running(cumprod_op, input, dim, dtype)


def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The differences of neighbours along a dimension, n times.

    >>> weft.tensor([1, 4, 9]).diff()
    tensor([3, 5], shape=(2,), dtype=int64)
    """
    from weft.ops.movement import along, cat

    if input.ndim == 0:
        raise ShapeError("diff: expected at least one dimension, got a 0-d tensor")
    if n < 0:
        raise ArgumentError(f"diff: expected n of at least 0, got {n}")
    d = normalize_dim("diff", dim, input.ndim)
    out = input
    if prepend is not None or append is not None:
        out = cat([x for x in (prepend, input, append) if x is not None], d)
    for _ in range(n):
        later, earlier = along(out, d, slice(1, None)), along(out, d, slice(0, -1))
        out = later ^ earlier if out.dtype is dtypes.bool_ else later - earlier
    return out


# -- log-sum-exp and norms


def logsumexp(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(x)))``, without overflow.

    >>> weft.logsumexp(weft.tensor([1000.0, 0.0]), 0)
    tensor(1000., dtype=float32)
    """
    x = input if input.dtype.is_inexact else cast(input, default_dtype())
    dims = reduced_dims("logsumexp", dim, x.ndim)
    if _count(x, dims) == 0:
        return log(sum(exp(x), dims, keepdim))
    top = amax(x.detach(), dims, keepdim=True)
    top = where(abs(top) == math.inf, 0, top)
    total = log(sum(exp(x - top), dims, keepdim))
    return total + reshape(top, total.shape)


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of the running sum of exponentials along a dimension.

    >>> weft.logcumsumexp(weft.tensor([0.0, 0.0]), 0)
    tensor([0.0000, 0.6931], shape=(2,), dtype=float32)
    """
    from weft.ops.movement import along, stack
    from weft.ops.transcendental import logaddexp

    d = normalize_dim("logcumsumexp", dim, input.ndim)
    if input.ndim == 0 or input.shape[d] == 0:
        return input + 0.0
    parts = [along(input, d, 0)]
    for k in range(1, input.shape[d]):
        parts.append(logaddexp(parts[-1], along(input, d, k)))
    return stack(parts, d)


def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """The p-norm of the elements; its gradient at 0 is 0.

    >>> weft.tensor([3.0, 4.0]).norm()
    tensor(5., dtype=float32)
    """
    x = _floating("norm", input, dtype)
    dims = reduced_dims("norm", dim, x.ndim)
    if p in ("fro", 2, 2.0, None):
        return sqrt(sum(real(x * conj(x)), dims, keepdim))
    size = abs(x)
    if p == 0:
        return sum(cast(size != 0, size.dtype), dims, keepdim)
    if p == 1:
        return sum(size, dims, keepdim)
    if p == math.inf:
        return amax(size, dims, keepdim)
    if p == -math.inf:
        return amin(size, dims, keepdim)
    if not isinstance(p, (int, float)):
        raise ArgumentError(f"norm: expected p to be a number or 'fro', got {p!r}")
    return sum(size**p, dims, keepdim) ** (1.0 / p)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference.

    >>> weft.dist(weft.tensor([1.0, 1.0]), weft.tensor([4.0, 5.0]))
    tensor(5., dtype=float32)
    """
    return norm(input - other, p)


# -- statistics of several variables


def cov(input: Tensor, *, correction: int = 1) -> Tensor:
    """The covariance matrix of variables (rows) over observations (columns).

    >>> weft.cov(weft.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]], shape=(2, 2), dtype=float32)
    """
    if input.ndim > 2:
        raise ShapeError(f"cov: expected at most 2 dimensions, got shape {input.shape}")
    x = input if input.ndim == 2 else reshape(input, (1, input.numel()))
    x = x if x.dtype.is_inexact else cast(x, default_dtype())
    off = x - mean(x, 1, keepdim=True)
    table = off @ conj(off).T / builtin_max(x.shape[1] - correction, 0)
    return table if input.ndim == 2 else reshape(table, ())


def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of variables (rows).

    >>> weft.corrcoef(weft.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]], shape=(2, 2), dtype=float32)
    """
    table = cov(input)
    if table.ndim == 0:
        return table / table
    spread = sqrt(real(table.diagonal()))
    return table / spread.unsqueeze(1) / spread.unsqueeze(0)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distance of each row of one matrix from each of the other.

    >>> weft.cdist(weft.tensor([[0.0, 0.0]]), weft.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[5., 0.]], shape=(1, 2), dtype=float32)
    """
    if builtin_min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            "cdist: expected matrices (or batches) with rows of one length, got shapes "
            f"{x1.shape} and {x2.shape}"
        )
    off = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if x1.shape[-1] == 0:
        return sum(off, -1)
    return norm(off, p, -1)


def _widths(name: str, y: Tensor, x: Any, dx: Any, dim: int) -> Any:
    """The steps between samples, and the sums of neighbouring ones."""
    from weft.ops.movement import along

    if x is not None and dx is not None:
        raise ArgumentError(f"{name}: expected x or dx, got both")
    if y.ndim == 0:
        raise ShapeError(f"{name}: expected at least one dimension, got a 0-d tensor")
    if x is not None and (not isinstance(x, Tensor) or x.ndim == 0):
        raise ArgumentError(f"{name}: expected x to be a tensor of sample points")
    d = normalize_dim(name, dim, y.ndim)
    pairs = along(y, d, slice(1, None)) + along(y, d, slice(0, -1))
    if x is None:
        return d, pairs * (1 if dx is None else dx) / 2
    lone = (x.shape[0],) + (1,) * (y.ndim - d - 1)
    grid = reshape(x, lone) if x.ndim == 1 else x
    return d, pairs * diff(grid, dim=grid.ndim - y.ndim + d) / 2


def trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral along a dimension by the trapezoidal rule.

    >>> weft.trapezoid(weft.tensor([1.0, 3.0, 5.0]))
    tensor(6., dtype=float32)
    """
    d, areas = _widths("trapezoid", y, x, dx, dim)
    return sum(areas, d)


def cumulative_trapezoid(
    y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1
) -> Tensor:
    """The running integral along a dimension by the trapezoidal rule.

    >>> weft.cumulative_trapezoid(weft.tensor([1.0, 3.0, 5.0]))
    tensor([2., 6.], shape=(2,), dtype=float32)
    """
    d, areas = _widths("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(areas, d)


trapz = trapezoid
