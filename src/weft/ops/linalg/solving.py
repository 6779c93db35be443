"""Inverses and the solutions of linear systems.

The rules are those of Giles, Collected matrix derivative results, 2008, and for
the pseudo-inverse of Golub and Pereyra, 1973.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.core.blas import solve_triangular
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import DTypeError, ShapeError
from weft.ops.diagonals import tril, triu
from weft.ops.elementwise import elementwise_batch
from weft.ops.linalg.algebra import (
    Array,
    adjoint,
    check_kind,
    check_matrix,
    identity,
    lapack,
    same_type,
)
from weft.ops.linalg.references import (
    any_samples,
    each_matrix,
    gauss_jordan,
    inverse_reference,
    square_samples,
    system_samples,
    triangular_samples,
)
from weft.ops.products import matmul_op as mm

inv_op = define(
    "inv",
    refuses={"x": 0.0},
    inputs="x",
    eval=lapack("inv")(np.linalg.inv),
    type=same_type("inv"),
    vjp={"x": lambda g, out: -mm(mm(adjoint(out), g), adjoint(out))},
    jvp={"x": lambda t, out: -mm(mm(out, t), out)},
    batch=elementwise_batch,
    samples=square_samples(),
    reference=each_matrix(inverse_reference),
)


def _solve_type(name: str) -> Callable[..., TensorType]:
    def rule(a: TensorType, b: TensorType, **params: Any) -> TensorType:
        same_type(name)(a)
        if a.dtype is not b.dtype:
            raise DTypeError(
                f"{name}: expected equal dtypes, got {a.dtype.name} and {b.dtype.name}"
            )
        check_matrix(name, b.shape)
        if a.shape[:-1] != b.shape[:-1]:
            raise ShapeError(
                f"{name}: matrices of shape {a.shape} and right-hand sides of shape "
                f"{b.shape} do not fit: expected {a.shape[:-1]} before the last axis"
            )
        return b

    return rule


def _solve_vjp(g: Tensor, need: Any, a: Tensor, out: Tensor) -> tuple[Any, Any]:
    gb = solve_op(adjoint(a), g)
    return (-mm(gb, adjoint(out)) if need[0] else None), gb


solve_op: Op = define(
    "solve",
    refuses={"a": 0.0},
    inputs="a b",
    eval=lapack("solve")(np.linalg.solve),
    type=_solve_type("solve"),
    vjp=_solve_vjp,
    jvp={
        "a": lambda t, a, out: -solve_op(a, mm(t, out)),
        "b": lambda t, a: solve_op(a, t),
    },
    batch=elementwise_batch,
    samples=system_samples,
    reference=each_matrix(gauss_jordan),
)


# -- triangular systems

_SMALL = 8  # rows below which a call for each matrix takes longer than it saves


def _triangle(a: Any, upper: bool, unitriangular: bool) -> Any:
    """The part of an array that a triangular solve reads."""
    if not unitriangular:
        return np.triu(a) if upper else np.tril(a)
    return (np.triu(a, 1) if upper else np.tril(a, -1)) + np.eye(
        a.shape[-1], dtype=a.dtype
    )


def _read(x: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    """The same part of a tangent or cotangent, in which constants are 0."""
    offset = 1 if unitriangular else 0
    return triu(x, offset) if upper else tril(x, -offset)


def _solved(a: Any, b: Any, upper: bool, ones: bool) -> Any:
    """The solution by substitution; None where there is no function for it.

    Batches of small matrices are solved at once, as systems of any kind are.
    """
    if a.ndim == 2:
        return solve_triangular(a, b, upper=upper, ones=ones)
    if a.shape[-1] < _SMALL or not b.size:
        return None
    pairs = zip(*(x.reshape(-1, *x.shape[-2:]) for x in (a, b)), strict=True)
    each = [solve_triangular(*pair, upper=upper, ones=ones) for pair in pairs]
    return None if each[0] is None else np.stack(each).reshape(b.shape)


@lapack("solve_triangular")
def _solve_triangular_eval(a: Any, b: Any, *, upper: bool, unitriangular: bool) -> Any:
    if not unitriangular and not np.diagonal(a, 0, -2, -1).all():
        raise np.linalg.LinAlgError
    found = _solved(a, b, upper, unitriangular)
    if found is not None:
        return found
    return np.linalg.solve(_triangle(a, upper, unitriangular), b)


def _solve_triangular_vjp(
    g: Tensor, need: Any, a: Tensor, out: Tensor, upper: bool, unitriangular: bool
) -> tuple[Any, Any]:
    gb = solve_triangular_op(
        adjoint(a), g, upper=not upper, unitriangular=unitriangular
    )
    if not need[0]:
        return None, gb
    return -_read(mm(gb, adjoint(out)), upper, unitriangular), gb


def _solve_triangular_da(
    t: Tensor, a: Tensor, out: Tensor, upper: bool, unitriangular: bool
) -> Tensor:
    moved = mm(_read(t, upper, unitriangular), out)
    return -solve_triangular_op(a, moved, upper=upper, unitriangular=unitriangular)


solve_triangular_op: Op = define(
    "solve_triangular",
    refuses={"a": 0.0},
    inputs="a b",
    eval=_solve_triangular_eval,
    type=_solve_type("solve_triangular"),
    vjp=_solve_triangular_vjp,
    jvp={
        "a": _solve_triangular_da,
        "b": lambda t, a, upper, unitriangular: solve_triangular_op(
            a, t, upper=upper, unitriangular=unitriangular
        ),
    },
    batch=elementwise_batch,
    samples=triangular_samples,
    reference=each_matrix(
        lambda a, b, *, upper, unitriangular: gauss_jordan(
            _triangle(a, upper, unitriangular), b
        )
    ),
)


def under(t: Tensor, b: Tensor, *, upper: bool) -> Tensor:
    """``inv(t) @ b`` for a triangular t."""
    return solve_triangular_op(t, b, upper=upper, unitriangular=False)


def over(b: Tensor, t: Tensor, *, upper: bool) -> Tensor:
    """``b @ inv(t)`` for a triangular t."""
    return adjoint(under(adjoint(t), adjoint(b), upper=not upper))


# -- the pseudo-inverse


def kept(s: Array, shape: tuple[int, ...], atol: Any, rtol: Any) -> Array:
    """A mask of the singular values that count as more than zero."""
    if rtol is None:
        rtol = max(shape[-2:]) * np.finfo(s.dtype).eps if not atol else 0.0
    largest = s.max(-1, keepdims=True, initial=0)
    return s > np.maximum(atol or 0.0, rtol * largest)


@lapack("pinv", finite=True)
def _pinv_eval(x: Any, *, atol: Any, rtol: Any) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    keep = kept(s, x.shape, atol, rtol)
    inverse = np.where(keep, 1 / np.where(keep, s, 1), 0).astype(s.dtype)
    uh = u.swapaxes(-1, -2).conj()
    return vh.swapaxes(-1, -2).conj() @ (inverse[..., None] * uh)


def _pinv_type(x: TensorType, *, atol: Any, rtol: Any) -> TensorType:
    check_kind("pinv", x.dtype)
    check_matrix("pinv", x.shape)
    return TensorType((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)


def _outside(x: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """The projections onto what x does not reach, and what x loses."""
    m, n = x.shape[-2:]
    return identity(m, x) - mm(x, out), identity(n, x) - mm(out, x)


def _pinv_vjp(g: Tensor, x: Tensor, out: Tensor) -> Tensor:
    left, right = _outside(x, out)
    p, gh = adjoint(out), adjoint(g)
    lost = mm(mm(left, gh), mm(out, p)) + mm(mm(p, out), mm(gh, right))
    return lost - mm(mm(p, g), p)


def _pinv_jvp(t: Tensor, x: Tensor, out: Tensor) -> Tensor:
    left, right = _outside(x, out)
    p, th = adjoint(out), adjoint(t)
    lost = mm(mm(out, p), mm(th, left)) + mm(mm(right, th), mm(p, out))
    return lost - mm(mm(out, t), out)


def _pinv_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for sample in any_samples(rng):
        yield Sample(sample.args, {"atol": None, "rtol": None})


def _pinv_reference(a: Array, **params: Any) -> Array:
    """The pseudo-inverse by the normal equations of the shorter side."""
    if a.shape[0] < a.shape[1]:
        return _pinv_reference(a.T).T
    return gauss_jordan(a.T @ a, a.T)


pinv_op = define(
    "pinv",
    refuses={"x": math.nan},
    inputs="x",
    eval=_pinv_eval,
    type=_pinv_type,
    vjp={"x": _pinv_vjp},
    jvp={"x": _pinv_jvp},
    batch=elementwise_batch,
    samples=_pinv_samples,
    reference=each_matrix(_pinv_reference),
)
