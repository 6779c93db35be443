"""NumPy's functions on tensors.

``np.sin(x)`` is answered by the operator of the same meaning, so the result is
a tensor with its node on the tape. A NumPy function without such an operator
runs on the tensors' values if no derivative would be lost, and its arrays come
back as tensors; otherwise the error names the function.

``UFUNCS`` maps ufuncs to Weft's functions, ``FUNCTIONS`` maps other functions to
ones with NumPy's own parameter names. A call that has an argument that Weft's
function does not know is a call without an operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft import array_api as xp
from weft.core.tensor import Tensor
from weft.dtype import _BY_NP
from weft.errors import AutogradError, DTypeError, ShapeError
from weft.interchange import plain
from weft.ops import (
    arithmetic,
    complex_numbers,
    copies,
    cumulative,
    diagonals,
    gathering,
    index,
    joining,
    operands,
    padding,
    products,
    reduce,
    select,
    shaping,
    slicing,
    sorting,
    statistics,
)
from weft.ops.operands import as_tensorlike
from weft.ops.public import UFUNCS as DECLARED_UFUNCS

# -- ufuncs

UFUNCS: dict[Any, Callable[..., Any]] = {
    ufunc: getattr(weft, name) for ufunc, name in DECLARED_UFUNCS.items()
}
UFUNCS[np.sign] = xp.sign
UFUNCS[np.vecdot] = xp.vecdot

_REDUCE: dict[Any, Callable[..., Any]] = {
    np.add: xp.sum,
    np.multiply: xp.prod,
    np.maximum: xp.max,
    np.minimum: xp.min,
    np.logical_and: xp.all,
    np.logical_or: xp.any,
}
_ACCUMULATE: dict[Any, Callable[..., Any]] = {
    np.add: cumulative.cumsum,
    np.multiply: cumulative.cumprod,
    np.maximum: lambda x, dim: sorting.cummax(x, dim).values,
    np.minimum: lambda x, dim: sorting.cummin(x, dim).values,
}


def call_ufunc(ufunc: Any, method: str, args: tuple[Any, ...], kwargs: Any) -> Any:
    """The answer to a ufunc, or one of its methods, called on tensors."""
    if kwargs.pop("where", True) is not True:
        raise DTypeError(
            f"np.{ufunc.__name__}: where= is not available on tensors; choose between "
            "results with np.where"
        )
    out = kwargs.pop("out", None)
    if out is not None:
        result = call_ufunc(ufunc, method, args, kwargs)
        results = result if isinstance(result, tuple) else (result,)
        return _store(ufunc.__name__, results, out)
    handler = _METHODS.get(method)
    if handler is None:
        raise DTypeError(
            f"np.{ufunc.__name__}.{method}: not available on tensors; expected one of "
            f"{', '.join(k for k in _METHODS if k != '__call__')}"
        )
    return handler(ufunc, args, kwargs)


def _call(ufunc: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    op = UFUNCS.get(ufunc)
    dtype = kwargs.get("dtype")
    if op is None or not set(kwargs) <= {"dtype"}:
        return on_values(f"np.{ufunc.__name__}", ufunc, args, kwargs)
    operands = [_operand(a) for a in args]
    if dtype is not None:
        operands = [as_tensorlike(a).to(dtype) for a in operands]
    return op(*operands)


def _operand(value: Any) -> Any:
    """A ufunc's argument as Weft's functions take it."""
    if isinstance(value, (Tensor, bool, int, float, complex)):
        return value.item() if isinstance(value, np.generic) else value
    return weft.as_tensor(value)


def _reduce(ufunc: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    op = _REDUCE.get(ufunc)
    if op is None or not set(kwargs) <= {"axis", "dtype", "keepdims"} or len(args) > 1:
        return on_values(f"np.{ufunc.__name__}.reduce", ufunc.reduce, args, kwargs)
    options = {"axis": 0, **kwargs}
    if options.get("dtype") is None:
        options.pop("dtype", None)
    return op(args[0], **options)


def _accumulate(ufunc: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    op = _ACCUMULATE.get(ufunc)
    if op is None or not set(kwargs) <= {"axis"} or len(args) > 1:
        name = f"np.{ufunc.__name__}.accumulate"
        return on_values(name, ufunc.accumulate, args, kwargs)
    return op(args[0], kwargs.get("axis", 0))


def _outer(ufunc: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    a, b = (as_tensorlike(v) for v in args)
    wide = shaping.reshape(a, (*a.shape, *(1,) * b.ndim))
    return _call(ufunc, (wide, b), kwargs)


_METHODS = {
    "__call__": _call,
    "reduce": _reduce,
    "accumulate": _accumulate,
    "outer": _outer,
}


def _store(name: str, results: tuple[Any, ...], outs: tuple[Any, ...]) -> Any:
    """Write results into ``out=``, which may be arrays or tensors."""
    stored = tuple(
        value if out is None else _store_one(name, value, out)
        for value, out in zip(results, outs, strict=True)
    )
    return stored[0] if len(stored) == 1 else stored


def _store_one(name: str, value: Any, out: Any) -> Any:
    if tuple(out.shape) != tuple(value.shape):
        raise ShapeError(
            f"np.{name}: the result has shape {tuple(value.shape)}, but out has "
            f"{tuple(out.shape)}"
        )
    if isinstance(out, Tensor):
        return out.copy_(value)
    np.copyto(out, plain(f"np.{name}(out=array)", value), casting="same_kind")
    return out


# -- other functions

FUNCTIONS: dict[Any, Callable[..., Any]] = {}


def _answers(*functions: Any) -> Callable[..., Any]:
    """Register the function below as the answer to NumPy's."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(functions, fn))
        return fn

    return register


def call_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer to a NumPy function called on tensors."""
    found = FUNCTIONS.get(func)
    if found is not None and _fits(found, args, kwargs):
        return found(*_as_tensors(args), **_as_tensors(kwargs))
    name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
    return on_values(name, func, args, kwargs)


def _fits(fn: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _as_tensors(value: Any) -> Any:
    """Arrays among the arguments become tensors."""
    return _map(value, np.ndarray, weft.from_numpy)


def _map(value: Any, kind: type, fn: Callable[..., Any]) -> Any:
    if isinstance(value, kind):
        return fn(value)
    if isinstance(value, dict):
        return {key: _map(item, kind, fn) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_map(item, kind, fn) for item in value])
    return value


def on_values(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """Run NumPy on the tensors' values; its arrays come back as tensors."""

    def value(x: Tensor) -> np.ndarray:
        if x._node is not None:
            raise AutogradError(
                f"{name}: Weft has no differentiable form of this call, and a tensor "
                "in it requires grad; use Weft's own functions, or .detach()"
            )
        return plain(name, x)

    result = func(*_map(args, Tensor, value), **_map(kwargs, Tensor, value))
    return _back(result)


def _back(result: Any) -> Any:
    if isinstance(result, (np.ndarray, np.generic)):
        array = np.asarray(result)
        return Tensor(array) if array.dtype in _BY_NP else result
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(_back, result))
    if type(result) in (list, tuple):
        return type(result)([_back(item) for item in result])
    return result


# -- what a tensor is

FUNCTIONS[np.shape] = lambda a: tuple(a.shape)
FUNCTIONS[np.ndim] = lambda a: a.ndim
FUNCTIONS[np.size] = lambda a, axis=None: a.numel() if axis is None else a.shape[axis]
FUNCTIONS[np.copy] = lambda a: copies.clone(a)
FUNCTIONS[np.real] = lambda val: complex_numbers.real(val)
FUNCTIONS[np.imag] = lambda val: complex_numbers.imag(val)
FUNCTIONS[np.angle] = lambda z: weft.angle(z)
FUNCTIONS[np.zeros_like] = lambda a, dtype=None: weft.zeros_like(a, dtype=dtype)
FUNCTIONS[np.ones_like] = lambda a, dtype=None: weft.ones_like(a, dtype=dtype)
FUNCTIONS[np.empty_like] = lambda prototype, dtype=None: weft.empty_like(
    prototype, dtype=dtype
)
FUNCTIONS[np.full_like] = lambda a, fill_value, dtype=None: weft.full_like(
    a, fill_value, dtype=dtype
)

# -- reductions


@_answers(np.sum)
def _sum(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return xp.sum(a, axis=axis, dtype=dtype, keepdims=keepdims)


@_answers(np.prod)
def _prod(
    a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False
) -> Any:
    return xp.prod(a, axis=axis, dtype=dtype, keepdims=keepdims)


@_answers(np.mean)
def _mean(
    a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False
) -> Any:
    return statistics.mean(a, axis, keepdims, dtype=dtype)


def _spread(fn: Callable[..., Any]) -> Callable[..., Any]:
    def answer(
        a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False
    ) -> Any:
        return fn(a, axis=axis, correction=ddof, keepdims=keepdims)

    return answer


FUNCTIONS[np.var] = _spread(xp.var)
FUNCTIONS[np.std] = _spread(xp.std)


def _extreme(fn: Callable[..., Any]) -> Callable[..., Any]:
    def answer(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return fn(a, axis=axis, keepdims=keepdims)

    return answer


for _theirs, _ours in {
    np.max: xp.max, np.amax: xp.max, np.min: xp.min, np.amin: xp.min,
    np.argmax: xp.argmax, np.argmin: xp.argmin, np.all: xp.all, np.any: xp.any,
    np.count_nonzero: xp.count_nonzero,
}.items():  # fmt: skip
    FUNCTIONS[_theirs] = _extreme(_ours)

FUNCTIONS[np.nansum] = lambda a, axis=None: reduce.nansum(a, axis)
FUNCTIONS[np.nanmean] = lambda a, axis=None: statistics.nanmean(a, axis)


def _running(fn: Callable[..., Any]) -> Callable[..., Any]:
    def answer(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
        x, along = (shaping.ravel(a), 0) if axis is None else (a, axis)
        return fn(x, along, dtype=dtype)

    return answer


FUNCTIONS[np.cumsum] = _running(cumulative.cumsum)
FUNCTIONS[np.cumprod] = _running(cumulative.cumprod)
FUNCTIONS[np.diff] = lambda a, n=1, axis=-1: xp.diff(a, n=n, axis=axis)
FUNCTIONS[np.trace] = lambda a, offset=0: xp.sum(diagonals.diagonal(a, offset), axis=-1)

# -- shapes


@_answers(np.concatenate)
def _concatenate(arrays: Any, axis: int | None = 0) -> Any:
    return xp.concat([as_tensorlike(a) for a in arrays], axis=axis)


@_answers(np.stack)
def _stack(arrays: Any, axis: int = 0) -> Any:
    return xp.stack([as_tensorlike(a) for a in arrays], axis=axis)


@_answers(np.transpose, np.permute_dims)
def _transpose(a: Any, axes: Any = None) -> Any:
    return a.T if axes is None else shaping.permute(a, tuple(axes))


@_answers(np.squeeze)
def _squeeze(a: Any, axis: Any = None) -> Any:
    return shaping.squeeze(a) if axis is None else xp.squeeze(a, axis)


@_answers(np.flip)
def _flip(m: Any, axis: Any = None) -> Any:
    return xp.flip(m, axis=axis)


FUNCTIONS[np.hstack] = lambda tup: joining.hstack(list(tup))
FUNCTIONS[np.vstack] = lambda tup: joining.vstack(list(tup))
FUNCTIONS[np.dstack] = lambda tup: joining.dstack(list(tup))
FUNCTIONS[np.reshape] = lambda a, shape: xp.reshape(a, shape)
FUNCTIONS[np.ravel] = lambda a: shaping.ravel(a)
FUNCTIONS[np.swapaxes] = lambda a, axis1, axis2: shaping.transpose(a, axis1, axis2)
FUNCTIONS[np.moveaxis] = lambda a, source, destination: shaping.movedim(
    a, source, destination
)
FUNCTIONS[np.expand_dims] = lambda a, axis: xp.expand_dims(
    a, axis=tuple(axis) if isinstance(axis, (list, tuple)) else axis
)
FUNCTIONS[np.broadcast_to] = lambda array, shape: xp.broadcast_to(array, shape)
FUNCTIONS[np.matrix_transpose] = lambda x: x.mT
FUNCTIONS[np.roll] = lambda a, shift, axis=None: xp.roll(a, shift, axis=axis)
FUNCTIONS[np.tile] = lambda A, reps: padding.tile(
    A, (reps,) if isinstance(reps, int) else tuple(reps)
)
FUNCTIONS[np.repeat] = lambda a, repeats, axis=None: xp.repeat(a, repeats, axis=axis)
FUNCTIONS[np.tril] = lambda m, k=0: diagonals.tril(m, k)
FUNCTIONS[np.triu] = lambda m, k=0: diagonals.triu(m, k)
FUNCTIONS[np.unstack] = lambda x, *, axis=0: slicing.unbind(x, axis)
FUNCTIONS[np.diagonal] = lambda a, offset=0, axis1=0, axis2=1: diagonals.diagonal(
    a, offset, axis1, axis2
)

# -- choosing


@_answers(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return operands.nonzero(condition, as_tuple=True)
    truth = as_tensorlike(condition)
    if truth.dtype is not weft.bool:
        truth = truth != 0
    return select.where(truth, x, y)


@_answers(np.clip)
def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> Any:
    return select.clamp(a, a_min, a_max)


@_answers(np.take)
def _take(a: Any, indices: Any, axis: int | None = None) -> Any:
    places = weft.as_tensor(indices)
    if axis is None:
        return index.take(a, places)
    if places.ndim > 1:
        return a[(slice(None),) * (axis % a.ndim) + (places,)]
    return xp.take(a, places, axis=axis)


FUNCTIONS[np.take_along_axis] = lambda arr, indices, axis=-1: gathering.take_along_dim(
    arr, weft.as_tensor(indices), axis
)
FUNCTIONS[np.sort] = lambda a, axis=-1: (
    xp.sort(a, axis=axis) if axis is not None else xp.sort(shaping.ravel(a))
)
FUNCTIONS[np.argsort] = lambda a, axis=-1: (
    xp.argsort(a, axis=axis) if axis is not None else xp.argsort(shaping.ravel(a))
)
FUNCTIONS[np.nonzero] = lambda a: xp.nonzero(a)
FUNCTIONS[np.nan_to_num] = lambda x, *, nan=0.0, posinf=None, neginf=None: (
    select.nan_to_num(x, nan, posinf, neginf)
)
FUNCTIONS[np.sinc] = lambda x: weft.sinc(x)

# -- products


@_answers(np.dot)
def _dot(a: Any, b: Any) -> Any:
    a, b = (as_tensorlike(v) for v in (a, b))
    if a.ndim == 0 or b.ndim == 0:
        return arithmetic.mul(a, b)
    if b.ndim <= 2:
        return xp.matmul(a, b)
    return xp.tensordot(a, b, axes=([-1], [-2]))


@_answers(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if not isinstance(axes, int):
        axes = [[d] if isinstance(d, int) else list(d) for d in axes]
    return xp.tensordot(*map(as_tensorlike, (a, b)), axes=axes)


FUNCTIONS[np.inner] = lambda a, b: products.inner(*map(as_tensorlike, (a, b)))
FUNCTIONS[np.outer] = lambda a, b: products.outer(
    *(shaping.ravel(as_tensorlike(v)) for v in (a, b))
)


def _einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Any:
    tensors = [as_tensorlike(x) for x in operands]
    return weft.einsum(subscripts, *tensors)


def _register_optional() -> None:
    """Functions of modules that name them as NumPy does."""
    if hasattr(weft, "einsum"):
        FUNCTIONS[np.einsum] = _einsum
    for name in ("cholesky", "det", "eigvalsh", "inv", "matrix_power", "solve"):
        FUNCTIONS[getattr(np.linalg, name)] = _linalg(name)


def _linalg(name: str) -> Callable[..., Any]:
    def answer(a: Any, *rest: Any) -> Any:
        return getattr(xp.linalg, name)(a, *rest)

    return answer


_register_optional()
