"""Checks and conversions of the matrices that functions are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.elementwise import broadcast_shapes, conj
from weft.core.tensor import Tensor
from weft.dtype import int64
from weft.errors import DTypeError
from weft.ops.broadcasting import expand
from weft.ops.copies import cast
from weft.ops.creation import zeros
from weft.ops.diagonals import tril, triu
from weft.ops.extremes import amax
from weft.ops.linalg.algebra import adjoint, check_kind, check_matrix
from weft.ops.reduce import sum


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
    lead = broadcast_shapes(name, a.shape[:-2], b.shape[:-2])
    return expand(a, (*lead, *a.shape[-2:])), expand(b, (*lead, *b.shape[-2:]))


def mirrored(x: Tensor, upper: bool) -> Tensor:
    """The Hermitian matrix of which one triangle is given.

    Its value comes from that triangle; its derivative is taken as if the whole
    matrix had been given, so that the gradient is Hermitian too.
    """
    half = triu(x, 1) if upper else tril(x, -1)
    whole = half + adjoint(half) + _diagonal_part(x)
    return x + (whole - x).detach()


def _diagonal_part(x: Tensor) -> Tensor:
    d = triu(tril(x))
    return (d + conj(d)) * 0.5 if x.dtype.is_complex else d


def as_number(name: str, tolerance: Any) -> float | None:
    if tolerance is None:
        return None
    if isinstance(tolerance, (int, float)):
        return float(tolerance)
    raise DTypeError(
        f"linalg.{name}: expected a tolerance to be a number, got "
        f"{type(tolerance).__name__}"
    )


def rank_of(s: Tensor, shape: tuple[int, ...], atol: Any, rtol: Any) -> Tensor:
    if s.shape[-1] == 0:
        return zeros(s.shape[:-1], dtype=int64, device=s.device)
    if rtol is None:
        rtol = 0.0 if atol else max(shape[-2:]) * float(np.finfo(s.dtype.np).eps)
    least = amax(s, -1, keepdim=True) * rtol
    return sum(cast((s > least) & (s > (atol or 0.0)), int64), -1)
