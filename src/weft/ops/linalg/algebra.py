"""Small words of matrix algebra, and what the records of this package share.

Every operator works on the last two dimensions and takes any number of equal
leading ones. A Hermitian operator (cholesky, eigh) works on the Hermitian part
of its input, so that its derivative exists in every direction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.blas import one_thread
from weft.core.op import TensorType
from weft.core.size import same_shape
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import AutogradError, DTypeError, ShapeError, WeftError
from weft.ops.arithmetic import reciprocal
from weft.ops.copies import cast
from weft.ops.creation import eye
from weft.ops.diagonals import diagonal, tril
from weft.ops.elementwise import absorb, conj
from weft.ops.select import where
from weft.ops.shaping import transpose

Array = np.ndarray
CODES = "fdFD"


class LinAlgError(WeftError, np.linalg.LinAlgError, RuntimeError):
    """A matrix that has no such decomposition or solution."""


# -- small words of matrix algebra


def adjoint(x: Tensor) -> Tensor:
    return transpose(conj(x), -2, -1)


def hermitian(x: Tensor) -> Tensor:
    """The Hermitian part."""
    return (x + adjoint(x)) * 0.5


def skew(x: Tensor) -> Tensor:
    return x - adjoint(x)


def diagonal_of(x: Tensor) -> Tensor:
    return diagonal(x, 0, -2, -1)


def identity(n: int, like: Tensor) -> Tensor:
    return eye(n, dtype=like.dtype, device=like.device)


def half_lower(x: Tensor) -> Tensor:
    """The lower triangle with its diagonal halved."""
    return (tril(x) + tril(x, -1)) * 0.5


def rows(x: Tensor) -> Tensor:
    """A vector as factors of rows."""
    return x.unsqueeze(-1)


def columns(x: Tensor) -> Tensor:
    """A vector as factors of columns."""
    return x.unsqueeze(-2)


def gaps(values: Tensor, like: Tensor) -> Tensor:
    """``1 / (values[k] - values[j])`` off the diagonal, and 0 on it."""
    on = eye(values.shape[-1], dtype=dtypes.bool_, device=values.device)
    differences = columns(values) - rows(values)
    inverse = reciprocal(where(on, 1, differences))
    return cast(where(on, 0, inverse), like.dtype)


def times(x: Tensor, factor: Tensor) -> Tensor:
    """A product in which zero times infinity is zero."""
    full = factor if same_shape(factor.shape, x.shape) else factor.expand(x.shape)
    return absorb(x, cast(full, x.dtype))


# -- types


def check_kind(name: str, dtype: DType) -> None:
    """Refuse dtypes for which LAPACK has no routine."""
    if dtype.np.char not in CODES:
        raise DTypeError(
            f"{name}: expected float32, float64, complex64 or complex128, got "
            f"{dtype.name}; convert it with .float() or .double()"
        )


def check_matrix(name: str, shape: tuple[int, ...], square: bool = False) -> None:
    """Refuse anything but a (batch of) matrix, square if it must be."""
    if len(shape) < 2:
        raise ShapeError(
            f"{name}: expected a matrix or a batch of matrices, got shape {shape}"
        )
    if square and shape[-1] != shape[-2]:
        raise ShapeError(f"{name}: expected square matrices, got shape {shape}")


def same_type(name: str) -> Callable[..., TensorType]:
    """Square matrices in, matrices of the same type out."""

    def rule(x: TensorType, **params: Any) -> TensorType:
        check_kind(name, x.dtype)
        check_matrix(name, x.shape, square=True)
        return x

    return rule


# -- evaluation


def lapack(name: str, finite: bool = False) -> Callable[..., Any]:
    """Evaluate with NumPy's LAPACK; say which matrix of a batch it refuses.

    With ``finite``, NaN and infinity are refused first: an iteration would not
    converge on them.
    """

    def wrap(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def checked(*arrays: Any, **params: Any) -> Any:
            if arrays[0].dtype.char not in CODES:
                raise TypeError(f"unsupported dtype {arrays[0].dtype}")
            if finite and not np.isfinite(arrays[0]).all():
                raise _refused(name, "holds a NaN or an infinity", _odd(arrays[0]))
            with np.errstate(all="ignore"), one_thread():
                try:
                    return fn(*arrays, **params)
                except np.linalg.LinAlgError as error:
                    reason = _REASONS.get(name, str(error))
                    entry = _culprit(fn, arrays, params)
            raise _refused(name, reason, entry)

        return checked

    return wrap


_REASONS = {
    "inv": "is singular, so it has no inverse",
    "solve": "is singular, so the system has no unique solution",
    "solve_triangular": "has a zero on its diagonal, so it is singular",
    "cholesky": "is not positive-definite",
}


def _odd(array: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0][:-2])


def _culprit(fn: Any, arrays: Any, params: Any) -> tuple[int, ...] | None:
    """The first matrix of the batch that is refused on its own."""
    for entry in np.ndindex(arrays[0].shape[:-2]):
        try:
            fn(*[a[entry] for a in arrays], **params)
        except np.linalg.LinAlgError:
            return entry
    return None


def _refused(name: str, reason: str, entry: tuple[int, ...] | None) -> LinAlgError:
    which = f"batch entry {entry}: the matrix" if entry else "the matrix"
    return LinAlgError(f"linalg.{name}: {which} {reason}")


def canonical(v: Array) -> Array:
    """Factors that turn each column's first large element real and positive.

    Vectors are then the same on every machine. "Large" is 0.6 of the largest:
    equal sizes are common in symmetric matrices, this ratio is not.
    """
    if not v.size:
        return np.ones((*v.shape[:-2], 1, v.shape[-1]), v.dtype)
    size = np.abs(v)
    first = np.argmax(size >= 0.6 * size.max(-2, keepdims=True), -2)[..., None, :]
    chosen = np.take_along_axis(v, first, -2)
    return chosen.conj() / np.abs(chosen)


def no_derivative(what: str) -> Callable[..., Any]:
    def rule(g: Any) -> Any:
        raise AutogradError(what)

    return rule
