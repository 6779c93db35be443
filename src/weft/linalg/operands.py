"""Checks and conversions of the matrices that functions are given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import signature
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from weft.core.device import cpu
from weft.core.mode import mode
from weft.core.pytree import tree_flatten, tree_map
from weft.core.tensor import Tensor
from weft.dtype import DType, float32, int64
from weft.errors import DTypeError
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.creation import zeros
from weft.ops.diagonals import tril, triu
from weft.ops.elementwise import broadcast_shapes, conj
from weft.ops.extremes import amax
from weft.ops.inplace import write_out
from weft.ops.joining import stack
from weft.ops.linalg.algebra import adjoint, check_kind, check_matrix
from weft.ops.operands import concrete
from weft.ops.reduce import sum
from weft.ops.shaping import reshape

Function = TypeVar("Function", bound=Callable[..., Any])


def wide(fn: Function) -> Function:
    """A function that computes in float32 for half types, and returns these.

    Without a tolerance of their own, ranks are those of numbers as coarse as the half
    type's. Complex results, of which there is no half type, are complex64. Results are
    written into ``out``, where it is given.
    """
    takes_out = "out" in signature(fn).parameters
    tolerance = next(
        (n for n in ("rtol", "rcond") if n in signature(fn).parameters), ""
    )

    @functools.wraps(fn)
    def widened(*args: Any, **options: Any) -> Any:
        if "out" in options and not takes_out:
            out = options.pop("out")
            found = widened(*args, **options)
            return found if out is None else write_out(out, found, fn.__name__)
        kind = _half_type((*args, *options.values()))
        if kind is None or options.get("dtype") is not None:
            return fn(*args, **options)
        if tolerance and _untold(fn, args, options, tolerance):
            most = max(args[0].shape[-2:]) if args[0].ndim > 1 else 0
            options[tolerance] = float(ml_dtypes.finfo(kind.np).eps) * most
        result = fn(*tree_map(_widened, args), **tree_map(_widened, options))
        return tree_map(lambda x: _narrowed(x, kind), result)

    return widened  # type: ignore[return-value]


def _untold(fn: Any, args: Any, options: Any, tolerance: str) -> bool:
    """Whether a call says nothing about what counts as zero."""
    given = signature(fn).bind_partial(*args, **options).arguments
    return all(given.get(name) is None for name in (tolerance, "atol"))


def _half_type(values: Any) -> DType | None:
    """The half type of all floating-point tensors among values, if it is one."""
    tensors = [x for x in tree_flatten(values)[0] if isinstance(x, Tensor)]
    kinds = {x.dtype for x in tensors if x.dtype.is_inexact}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind is not None and kind.to_total() is not kind else None


def _widened(x: Any) -> Any:
    return cast(x, x.dtype.to_total()) if isinstance(x, Tensor) else x


def _narrowed(x: Any, kind: DType) -> Any:
    return cast(x, kind) if isinstance(x, Tensor) and x.dtype is float32 else x


def as_matrix(name: str, x: Any, *, square: bool = False) -> Tensor:
    """A tensor checked to be a (batch of) matrix in a type LAPACK takes."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    check_matrix(name, x.shape, square)
    check_kind(name, x.dtype)
    return x


def one_type(name: str, a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"{name}: expected equal dtypes, got {a.dtype.name} and {b.dtype.name}"
        )


def one_batch(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the batch dimensions that they have in common."""
    if a.ndim == 2 == b.ndim:
        return a, b
    lead = broadcast_shapes(name, a.shape[:-2], b.shape[:-2])
    return expand(a, (*lead, *a.shape[-2:])), expand(b, (*lead, *b.shape[-2:]))


def mirrored(x: Tensor, upper: bool) -> Tensor:
    """The Hermitian matrix of which one triangle is given.

    Its value comes from that triangle; its derivative is taken as if the whole
    matrix had been given, so that the gradient is Hermitian too.
    """
    if _is_hermitian(x):
        return x
    half = triu(x, 1) if upper else tril(x, -1)
    whole = half + adjoint(half) + _diagonal_part(x)
    return x + (whole - x).detach()


def _is_hermitian(x: Tensor) -> bool:
    """Whether a value at hand is; where there is none, it counts as any matrix."""
    if mode.capture is not None or x._interpreter is not None or x.device is not cpu:
        return False
    array = x._data
    return bool((array == array.swapaxes(-1, -2).conj()).all())


def _diagonal_part(x: Tensor) -> Tensor:
    d = triu(tril(x))
    return (d + conj(d)) * 0.5 if x.dtype.is_complex else d


def as_number(name: str, tolerance: Any) -> float | None:
    """A tolerance as a number; a tensor of one element is one."""
    if tolerance is None:
        return None
    if isinstance(tolerance, Tensor) and tolerance.numel() == 1:
        return float(tolerance)
    if isinstance(tolerance, (int, float)):
        return float(tolerance)
    raise DTypeError(
        f"linalg.{name}: expected a tolerance to be a number, got "
        f"{type(tolerance).__name__}"
    )


def one_by_one(
    name: str, fn: Callable[..., Tensor], x: Tensor, tolerances: dict[str, Any]
) -> Tensor | None:
    """A function of each matrix with its own tolerances; None if one is for all."""
    several = [
        t for t in tolerances.values() if isinstance(t, Tensor) and t.numel() != 1
    ]
    if not several:
        return None
    shapes = [t.shape for t in several]
    lead = broadcast_shapes(f"linalg.{name}", x.shape[:-2], *shapes)
    full = expand(x, (*lead, *x.shape[-2:]))
    each = {
        key: np.broadcast_to(concrete(name, t), lead)
        for key, t in tolerances.items()
        if isinstance(t, Tensor)
    }
    rest = {key: t for key, t in tolerances.items() if key not in each}
    results = [
        fn(full[entry], **rest, **{key: float(t[entry]) for key, t in each.items()})
        for entry in np.ndindex(lead)
    ]
    if not results:
        return fn(full, **rest, **dict.fromkeys(each, 0.0))
    return reshape(stack(results), (*lead, *results[0].shape))


def rank_of(s: Tensor, shape: tuple[int, ...], atol: Any, rtol: Any) -> Tensor:
    if s.shape[-1] == 0:
        return zeros(s.shape[:-1], dtype=int64, device=s.device)
    if rtol is None:
        rtol = 0.0 if atol else max(shape[-2:]) * float(np.finfo(s.dtype.np).eps)
    least = amax(s, -1, keepdim=True) * rtol
    return sum(cast((s > least) & (s > (atol or 0.0)), int64), -1)
