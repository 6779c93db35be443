"""Records of linear algebra: decompositions and solutions of matrices.

Every operator works on the last two dimensions and takes any number of equal
leading ones. The rules are published formulas, for complex matrices too:

    inv, solve, det         Giles, Collected matrix derivative results, 2008
    cholesky, eigh          Seeger et al., Auto-differentiating linear algebra, 2017
    svd                     Townsend, Differentiating the SVD, 2016
    qr                      Walter and Lehmann, 2018
    pinv                    Golub and Pereyra, 1973
    matrix_exp              Mathias, A chain rule for matrix functions, 1996

A Hermitian operator (cholesky, eigh) works on the Hermitian part of its input,
so that its derivative exists in every direction.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.elementwise import absorb, conj, elementwise_batch
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import AutogradError, DTypeError, ShapeError, WeftError
from weft.ops.creation import eye, zeros_like
from weft.ops.elementwise import complex, imag, real, reciprocal, where
from weft.ops.index import diag_embed, diagonal
from weft.ops.movement import cast, cat, transpose, tril, triu
from weft.ops.products import matmul_op as mm
from weft.ops.reduce import sum

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
    return eye(n, dtype=like.dtype)


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
    on = eye(values.shape[-1], dtype=dtypes.bool_)
    differences = columns(values) - rows(values)
    inverse = reciprocal(where(on, 1, differences))
    return cast(where(on, 0, inverse), like.dtype)


def times(x: Tensor, factor: Tensor) -> Tensor:
    """A product in which zero times infinity is zero."""
    full = factor.expand(x.shape) if factor.shape != x.shape else factor
    return absorb(x, cast(full, x.dtype))


# -- types


def check_kind(name: str, dtype: DType) -> None:
    """Refuse what LAPACK has no routine for."""
    if dtype.np.char not in CODES:
        raise DTypeError(
            f"{name}: expected float32, float64, complex64 or complex128, got "
            f"{dtype.name}; convert it with .float() or .double()"
        )


def check_matrix(name: str, shape: tuple[int, ...], square: bool = False) -> None:
    """Refuse what is no (batch of) matrix, or none that is square."""
    if len(shape) < 2:
        raise ShapeError(
            f"{name}: expected a matrix or a batch of matrices, got shape {shape}"
        )
    if square and shape[-1] != shape[-2]:
        raise ShapeError(f"{name}: expected square matrices, got shape {shape}")


def _same(name: str) -> Callable[..., TensorType]:
    """Square matrices in, matrices of the same type out."""

    def rule(x: TensorType, **params: Any) -> TensorType:
        check_kind(name, x.dtype)
        check_matrix(name, x.shape, square=True)
        return x

    return rule


def _solve_type(name: str) -> Callable[..., TensorType]:
    def rule(a: TensorType, b: TensorType, **params: Any) -> TensorType:
        _same(name)(a)
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
            with np.errstate(all="ignore"):
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


# -- samples and references


def well_conditioned(rng: np.random.Generator, *shape: int) -> Array:
    """Matrices with the singular values 1, 1.7, 2.4, ..."""
    u, _, vh = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    return (u * (1 + 0.7 * np.arange(u.shape[-1]))) @ vh


def _square_samples(**params: Any) -> Callable[..., Any]:
    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for shape in ((3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2)):
            yield Sample((well_conditioned(rng, *shape),), params)

    return samples


def _positive_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _square_samples()(rng):
        x = sample.args[0]
        yield Sample((x @ x.swapaxes(-1, -2),))


def _tall_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((3, 3), (4, 2), (2, 3, 2), (0, 0), (0, 2, 2)):
        yield Sample((well_conditioned(rng, *shape),))


def _any_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((3, 3), (4, 2), (2, 3), (2, 3, 2), (0, 0), (3, 0)):
        yield Sample((well_conditioned(rng, *shape),))


def _system_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, b in (
        ((3, 3), (3, 2)), ((2, 2, 2), (2, 2, 1)), ((1, 1), (1, 1)), ((0, 0), (0, 2)),
    ):  # fmt: skip
        yield Sample((well_conditioned(rng, *a), rng.uniform(-2, 2, b)))


def _triangular_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for k, sample in enumerate(_system_samples(rng)):
        a, b = sample.args
        a = a * 0.3 + 2 * np.eye(a.shape[-1])
        yield Sample((a, b), {"upper": k % 2 == 0, "unitriangular": k == 1})


def each_matrix(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A reference for batches from one for matrices."""

    def batched(*arrays: Any, **params: Any) -> Any:
        lead = arrays[0].shape[:-2]
        outs = [fn(*[a[i] for a in arrays], **params) for i in np.ndindex(lead)]
        if not outs:
            outs = [fn(*[np.zeros(a.shape[-2:]) for a in arrays], **params)]
            lead = (0,)
        many = isinstance(outs[0], tuple)
        stacked = [
            _stack(list(column), lead)
            for column in (zip(*outs, strict=True) if many else [outs])
        ]
        return tuple(stacked) if many else stacked[0]

    return batched


def _stack(parts: list[Any], lead: tuple[int, ...]) -> Array:
    first = np.asarray(parts[0])
    if 0 in lead:
        return np.zeros((*lead, *first.shape))
    return np.stack(parts).reshape((*lead, *first.shape))


def gauss_jordan(a: Array, b: Array) -> Array:
    """Solve by elimination with pivots, one row at a time."""
    n = len(a)
    m = np.concatenate([a, b], 1).astype(float)
    for k in range(n):
        pivot = k + int(np.argmax(np.abs(m[k:, k])))
        m[[k, pivot]] = m[[pivot, k]]
        if m[k, k]:
            m[k] /= m[k, k]
        for i in range(n):
            if i != k:
                m[i] -= m[i, k] * m[k]
    return m[:, n:]


def laplace(a: Array) -> float:
    """The determinant by expansion along the first row."""
    if not len(a):
        return 1.0
    minors = [np.delete(a[1:], j, 1) for j in range(len(a))]
    return float(
        np.sum([(-1) ** j * a[0, j] * laplace(m) for j, m in enumerate(minors)])
    )


def _cofactors(a: Array) -> Array:
    out = np.zeros_like(a)
    for i, j in np.ndindex(a.shape):
        minor = np.delete(np.delete(a, i, 0), j, 1)
        out[i, j] = (-1) ** (i + j) * laplace(minor)
    return out


def _banachiewicz(a: Array) -> Array:
    """Cholesky's factor, element by element."""
    a = (a + a.T) / 2
    out = np.zeros_like(a)
    for i in range(len(a)):
        for j in range(i + 1):
            rest = a[i, j] - out[i, :j] @ out[j, :j]
            out[i, j] = np.sqrt(rest) if i == j else rest / out[j, j] if rest else 0
    return out


def _householder(a: Array) -> tuple[Array, Array]:
    """QR by reflections written out."""
    m, n = a.shape
    q, r = np.eye(m), a.copy()
    for k in range(min(m - 1, n)):
        v = r[k:, k].copy()
        v[0] += np.copysign(np.linalg.norm(v), v[0])
        h = np.eye(m)
        h[k:, k:] -= 2 * np.outer(v, v) / (v @ v or 1.0)
        q, r = q @ h, h @ r
    return q[:, :n], np.triu(r[:n])


def jacobi(a: Array) -> tuple[Array, Array]:
    """Eigenvalues (rising) and vectors of the symmetric part, by rotations."""
    a = (a + a.T) / 2
    n = len(a)
    v = np.eye(n)
    for _ in range(20):
        for p in range(n):
            for q in range(p + 1, n):
                angle = 0.5 * np.arctan2(2 * a[p, q], a[q, q] - a[p, p])
                turn = np.eye(n)
                turn[p, p] = turn[q, q] = np.cos(angle)
                turn[p, q], turn[q, p] = np.sin(angle), -np.sin(angle)
                a, v = turn.T @ a @ turn, v @ turn
    order = np.argsort(np.diag(a))
    v = v[:, order]
    return np.diag(a)[order], v * canonical(v)


def _jacobi_svd(a: Array) -> tuple[Array, Array, Array]:
    if a.shape[0] < a.shape[1]:
        v, s, uh = _jacobi_svd(a.T)
        f = canonical(uh.T)
        return uh.T * f, s, (v * f).T
    squares, v = jacobi(a.T @ a)
    s, v = np.sqrt(np.maximum(squares[::-1], 0)), v[:, ::-1]
    u = a @ v / s
    f = canonical(u)
    return u * f, s, (v * f).T


def _taylor(a: Array) -> Array:
    """exp(a) as exp(a / 1024) ** 1024, the inner one by its series."""
    term = total = np.eye(len(a))
    for k in range(1, 12):
        term = term @ a / (1024 * k)
        total = total + term
    for _ in range(10):
        total = total @ total
    return total


# -- solutions


def _inverse_reference(a: Array) -> Array:
    return gauss_jordan(a, np.eye(len(a)))


inv_op = define(
    "inv",
    inputs="x",
    eval=lapack("inv")(np.linalg.inv),
    type=_same("inv"),
    vjp={"x": lambda g, out: -mm(mm(adjoint(out), g), adjoint(out))},
    jvp={"x": lambda t, out: -mm(mm(out, t), out)},
    batch=elementwise_batch,
    samples=_square_samples(),
    reference=each_matrix(_inverse_reference),
)


def _solve_vjp(g: Tensor, need: Any, a: Tensor, out: Tensor) -> tuple[Any, Any]:
    gb = solve_op(adjoint(a), g)
    return (-mm(gb, adjoint(out)) if need[0] else None), gb


solve_op: Op = define(
    "solve",
    inputs="a b",
    eval=lapack("solve")(np.linalg.solve),
    type=_solve_type("solve"),
    vjp=_solve_vjp,
    jvp={
        "a": lambda t, a, out: -solve_op(a, mm(t, out)),
        "b": lambda t, a: solve_op(a, t),
    },
    batch=elementwise_batch,
    samples=_system_samples,
    reference=each_matrix(gauss_jordan),
)


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


@lapack("solve_triangular")
def _solve_triangular_eval(a: Any, b: Any, *, upper: bool, unitriangular: bool) -> Any:
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
    samples=_triangular_samples,
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


# -- determinants


def _scalar_type(name: str) -> Callable[..., TensorType]:
    def rule(x: TensorType) -> TensorType:
        return TensorType(_same(name)(x).shape[:-2], x.dtype)

    return rule


det_op = define(
    "det",
    inputs="x",
    eval=lapack("det")(np.linalg.det),
    type=_scalar_type("det"),
    vjp={"x": lambda g, x: rows(rows(g)) * conj(cofactor_op(x))},
    jvp={"x": lambda t, x: sum(t * cofactor_op(x), (-2, -1))},
    batch=elementwise_batch,
    samples=_square_samples(),
    reference=each_matrix(laplace),
)


@lapack("det", finite=False)
def _cofactor_eval(x: Any) -> Any:
    """det(x) * inv(x).T, by singular values so that x may be singular."""
    if not np.isfinite(x).all():
        return np.full_like(x, np.nan)
    u, s, vh = np.linalg.svd(x)
    phase = (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    others = np.ones_like(s)
    for k in range(s.shape[-1]):
        others[..., k] = np.delete(s, k, -1).prod(-1)
    return (phase * ((u.conj() * others[..., None, :]) @ vh.conj())).astype(x.dtype)


def _cofactor_vjp(g: Tensor, x: Tensor, out: Tensor) -> Tensor:
    if x.shape[-1] <= 1:
        return zeros_like(x)  # the cofactor of a number is 1
    m = conj(transpose(inv_op(x), -2, -1))
    turned = mm(mm(m, transpose(g, -2, -1)), conj(out))
    return m * sum(g * conj(out), (-2, -1), keepdim=True) - turned


def _cofactor_jvp(t: Tensor, x: Tensor, out: Tensor) -> Tensor:
    if x.shape[-1] <= 1:
        return zeros_like(x)
    m = transpose(inv_op(x), -2, -1)
    turned = mm(mm(out, transpose(t, -2, -1)), m)
    return out * sum(t * m, (-2, -1), keepdim=True) - turned


cofactor_op: Op = define(
    "cofactor",
    inputs="x",
    eval=_cofactor_eval,
    type=_same("cofactor"),
    vjp={"x": _cofactor_vjp},
    jvp={"x": _cofactor_jvp},
    batch=elementwise_batch,
    samples=_square_samples(),
    reference=each_matrix(_cofactors),
    doc="The derivative of the determinant; defined for singular matrices too.",
)


def _slogdet_type(x: TensorType) -> tuple[TensorType, TensorType]:
    shape = _same("slogdet")(x).shape[:-2]
    return TensorType(shape, x.dtype), TensorType(shape, x.dtype.to_real())


def _slogdet_vjp(gs: Any, x: Tensor, sign: Tensor) -> tuple[Tensor]:
    g_sign, g_log = gs
    if x.dtype.is_complex:
        g_log = complex(g_log, -imag(conj(g_sign) * sign))
    return (rows(rows(g_log)) * adjoint(inv_op(x)),)


def _slogdet_jvp(t: Tensor, x: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
    z = sum(diagonal_of(solve_op(x, t)), -1)
    if not x.dtype.is_complex:
        return zeros_like(sign), z
    turn = imag(z)
    return sign * complex(zeros_like(turn), turn), real(z)


def _slogdet_reference(a: Array) -> tuple[Any, Any]:
    d = laplace(a)
    return np.array(np.sign(d)), np.array(np.log(np.abs(d)))


slogdet_op = define(
    "slogdet",
    inputs="x",
    outputs="sign logabsdet",
    eval=lapack("slogdet")(lambda x: tuple(np.linalg.slogdet(x))),
    type=_slogdet_type,
    vjp=_slogdet_vjp,
    jvp={"x": _slogdet_jvp},
    batch=elementwise_batch,
    samples=_square_samples(),
    reference=each_matrix(_slogdet_reference),
)

# -- Cholesky


@lapack("cholesky")
def _cholesky_eval(x: Any) -> Any:
    out = np.linalg.cholesky((x + x.swapaxes(-1, -2).conj()) / 2)
    if not np.isfinite(out).all():  # NaN passes through some LAPACKs
        raise np.linalg.LinAlgError
    return out


def _cholesky_vjp(g: Tensor, out: Tensor) -> Tensor:
    inner = half_lower(mm(adjoint(out), g))
    left = under(adjoint(out), inner, upper=True)
    return hermitian(over(left, out, upper=False))


def _cholesky_jvp(t: Tensor, out: Tensor) -> Tensor:
    inner = under(out, hermitian(t), upper=False)
    return mm(out, half_lower(over(inner, adjoint(out), upper=True)))


cholesky_op = define(
    "cholesky",
    inputs="x",
    eval=_cholesky_eval,
    type=_same("cholesky"),
    vjp={"x": _cholesky_vjp},
    jvp={"x": _cholesky_jvp},
    batch=elementwise_batch,
    samples=_positive_samples,
    reference=each_matrix(_banachiewicz),
)

# -- QR (of matrices with at least as many rows as columns)


def _qr_type(x: TensorType) -> tuple[TensorType, TensorType]:
    check_kind("qr", x.dtype)
    check_matrix("qr", x.shape)
    *lead, m, n = x.shape
    if m < n:
        raise ShapeError(
            f"qr: expected at least as many rows as columns, got {x.shape}"
        )
    return x, TensorType((*lead, n, n), x.dtype)


@lapack("qr")
def _qr_eval(x: Any) -> Any:
    if x.shape[-2] < x.shape[-1]:
        raise ValueError("a wide matrix")
    return tuple(np.linalg.qr(x))


def _qr_vjp(gs: Any, q: Tensor, r: Tensor) -> tuple[Tensor]:
    gq, gr = gs
    m = mm(r, adjoint(gr)) - mm(adjoint(gq), q)
    lower = half_lower(m)
    return (over(gq + mm(q, lower + adjoint(lower)), adjoint(r), upper=False),)


def _qr_jvp(t: Tensor, q: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    w = over(t, r, upper=True)
    s = mm(adjoint(q), w)
    lower = tril(s, -1)
    turn = skew(lower)
    if t.dtype.is_complex:
        phase = imag(diagonal_of(s))
        turn = turn + diag_embed(complex(zeros_like(phase), phase))
    change = s - turn
    return w - mm(q, change), mm(triu(change), r)


qr_op = define(
    "qr",
    inputs="x",
    outputs="q r",
    eval=_qr_eval,
    type=_qr_type,
    vjp=_qr_vjp,
    jvp={"x": _qr_jvp},
    batch=elementwise_batch,
    samples=_tall_samples,
    reference=each_matrix(_householder),
)


def _no_derivative(what: str) -> Callable[..., Any]:
    def rule(g: Any) -> Any:
        raise AutogradError(what)

    return rule


_COMPLETION = _no_derivative(
    "linalg: the columns that complete a basis are not unique, so they have no "
    "derivative; use mode='reduced' (qr) or full_matrices=False (svd)"
)


def _complement_type(q: TensorType) -> TensorType:
    *lead, m, n = q.shape
    return TensorType((*lead, m, m - n), q.dtype)


# Not in the registry, which holds what can be differentiated and tested by rule.
complement = Op(
    "complement",
    inputs="q",
    eval=lambda q: np.linalg.qr(q, "complete")[0][..., q.shape[-1] :],
    type=_complement_type,
    vjp=_COMPLETION,
    jvp=_COMPLETION,
    batch=elementwise_batch,
    doc="Orthonormal columns that complete orthonormal columns to a basis.",
)

# -- singular values


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


@lapack("svd", finite=True)
def _svd_eval(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    f = canonical(u)
    return u * f, s, vh * f.swapaxes(-1, -2).conj()


def _svd_type(x: TensorType) -> tuple[TensorType, ...]:
    check_kind("svd", x.dtype)
    check_matrix("svd", x.shape)
    *lead, m, n = x.shape
    k = min(m, n)
    return (
        TensorType((*lead, m, k), x.dtype),
        TensorType((*lead, k), x.dtype.to_real()),
        TensorType((*lead, k, n), x.dtype),
    )


def _svd_vjp(gs: Any, u: Tensor, s: Tensor, vh: Tensor) -> tuple[Tensor]:
    gu, g_s, gvh = gs
    v, gv = adjoint(vh), adjoint(gvh)
    in_u, in_v = mm(adjoint(u), gu), mm(vh, gv)
    f = gaps(s * s, u)
    inner = times(skew(in_u), f) * columns(s) + rows(s) * times(skew(in_v), f)
    inner = inner + diag_embed(_svd_diagonal(g_s, in_u, in_v, s))
    over_s = reciprocal(s)
    left = mm(u, inner) + times(gu - mm(u, in_u), columns(over_s))
    right = times(gv - mm(v, in_v), columns(over_s))
    return (mm(left, vh) + mm(u, adjoint(right)),)


def _svd_diagonal(g_s: Tensor, in_u: Tensor, in_v: Tensor, s: Tensor) -> Tensor:
    """What comes back to the singular values, and to their vectors' phases."""
    if not in_u.dtype.is_complex:
        return g_s
    phase = imag(diagonal_of(in_u)) - imag(diagonal_of(in_v))
    return complex(g_s, times(phase, reciprocal(s)) * 0.5)


def _svd_jvp(t: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> tuple[Tensor, ...]:
    v = adjoint(vh)
    tv, tu = mm(t, v), mm(adjoint(t), u)
    p = mm(adjoint(u), tv)
    f = gaps(s * s, u)
    x = times(p * columns(s) + rows(s) * adjoint(p), f)
    y = times(rows(s) * p + adjoint(p) * columns(s), f)
    if t.dtype.is_complex:
        turn = times(imag(diagonal_of(p)), reciprocal(s)) * 0.5
        phase = diag_embed(complex(zeros_like(turn), turn))
        x, y = x + phase, y - phase
    over_s = columns(reciprocal(s))
    du = mm(u, x) + times(tv - mm(u, p), over_s)
    dv = mm(v, y) + times(tu - mm(v, adjoint(p)), over_s)
    return du, real(diagonal_of(p)), adjoint(dv)


svd_op: Op = define(
    "svd",
    inputs="x",
    outputs="u s vh",
    eval=_svd_eval,
    type=_svd_type,
    vjp=_svd_vjp,
    jvp={"x": _svd_jvp},
    batch=elementwise_batch,
    samples=_any_samples,
    reference=each_matrix(_jacobi_svd),
)


def _svdvals_vjp(g: Tensor, x: Tensor) -> Tensor:
    u, _, vh = svd_op(x)
    return mm(u * columns(cast(g, u.dtype)), vh)


def _svdvals_jvp(t: Tensor, x: Tensor) -> Tensor:
    u, _, vh = svd_op(x)
    return real(diagonal_of(mm(mm(adjoint(u), t), adjoint(vh))))


svdvals_op = define(
    "svdvals",
    inputs="x",
    eval=lapack("svdvals", finite=True)(lambda x: np.linalg.svd(x, compute_uv=False)),
    type=lambda x: _svd_type(x)[1],
    vjp={"x": _svdvals_vjp},
    jvp={"x": _svdvals_jvp},
    batch=elementwise_batch,
    samples=_any_samples,
    reference=each_matrix(lambda a: _jacobi_svd(a)[1]),
)

# -- eigenvalues


@lapack("eigh", finite=True)
def _eigh_eval(x: Any) -> Any:
    w, v = np.linalg.eigh((x + x.swapaxes(-1, -2).conj()) / 2)
    return w, v * canonical(v)


def _eigh_type(x: TensorType) -> tuple[TensorType, TensorType]:
    _same("eigh")(x)
    return TensorType(x.shape[:-1], x.dtype.to_real()), x


def _eigh_vjp(gs: Any, w: Tensor, v: Tensor) -> tuple[Tensor]:
    gw, gv = gs
    inner = times(mm(adjoint(v), gv), gaps(w, v)) + diag_embed(cast(gw, v.dtype))
    return (hermitian(mm(mm(v, inner), adjoint(v))),)


def _eigh_jvp(t: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    p = mm(mm(adjoint(v), hermitian(t)), v)
    return real(diagonal_of(p)), mm(v, times(p, gaps(w, v)))


eigh_op = define(
    "eigh",
    inputs="x",
    outputs="w v",
    eval=_eigh_eval,
    type=_eigh_type,
    vjp=_eigh_vjp,
    jvp={"x": _eigh_jvp},
    batch=elementwise_batch,
    samples=_positive_samples,
    reference=each_matrix(jacobi),
)


def _eigvalsh_vjp(g: Tensor, x: Tensor) -> Tensor:
    _, v = eigh_op(x)
    return mm(v * columns(cast(g, v.dtype)), adjoint(v))


def _eigvalsh_jvp(t: Tensor, x: Tensor) -> Tensor:
    _, v = eigh_op(x)
    return real(diagonal_of(mm(mm(adjoint(v), t), v)))


eigvalsh_op = define(
    "eigvalsh",
    inputs="x",
    eval=lapack("eigvalsh", finite=True)(
        lambda x: np.linalg.eigvalsh((x + x.swapaxes(-1, -2).conj()) / 2)
    ),
    type=lambda x: _eigh_type(x)[0],
    vjp={"x": _eigvalsh_vjp},
    jvp={"x": _eigvalsh_jvp},
    batch=elementwise_batch,
    samples=_positive_samples,
    reference=each_matrix(lambda a: jacobi(a)[0]),
)


@lapack("eig", finite=True)
def _eig_eval(x: Any) -> Any:
    w, v = np.linalg.eig(x)
    kind = dtypes.of_array(x).to_complex().np
    return w.astype(kind), (v * canonical(v)).astype(kind)


def _eig_type(x: TensorType) -> tuple[TensorType, TensorType]:
    _same("eig")(x)
    kind = x.dtype.to_complex()
    return TensorType(x.shape[:-1], kind), TensorType(x.shape, kind)


_NOT_EIG = _no_derivative(
    "linalg.eig: eigenvalues of general matrices have no derivative rule; use eigh "
    "for Hermitian matrices, or pass A.detach()"
)

eig_op = Op(
    "eig",
    inputs="x",
    outputs="w v",
    eval=_eig_eval,
    type=_eig_type,
    vjp=_NOT_EIG,
    jvp=_NOT_EIG,
    batch=elementwise_batch,
)

# -- the pseudo-inverse


def kept(s: Array, shape: tuple[int, ...], atol: Any, rtol: Any) -> Array:
    """Which singular values count as more than zero."""
    if rtol is None:
        rtol = max(shape[-2:]) * np.finfo(s.dtype).eps if not atol else 0.0
    largest = s.max(-1, keepdims=True, initial=0)
    return s > np.maximum(atol or 0.0, rtol * largest)


@lapack("pinv", finite=True)
def _pinv_eval(x: Any, *, atol: Any, rtol: Any) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    keep = kept(s, x.shape, atol, rtol)
    inverse = np.where(keep, 1 / np.where(keep, s, 1), 0).astype(s.dtype)
    turned = u.swapaxes(-1, -2).conj()
    return vh.swapaxes(-1, -2).conj() @ (inverse[..., None] * turned)


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
    for sample in _any_samples(rng):
        yield Sample(sample.args, {"atol": None, "rtol": None})


def _pinv_reference(a: Array, **params: Any) -> Array:
    """By the normal equations of the shorter side."""
    if a.shape[0] < a.shape[1]:
        return _pinv_reference(a.T).T
    return gauss_jordan(a.T @ a, a.T)


pinv_op = define(
    "pinv",
    inputs="x",
    eval=_pinv_eval,
    type=_pinv_type,
    vjp={"x": _pinv_vjp},
    jvp={"x": _pinv_jvp},
    batch=elementwise_batch,
    samples=_pinv_samples,
    reference=each_matrix(_pinv_reference),
)

# -- the exponential

_PADE = [
    math.factorial(26 - k) / (math.factorial(13 - k) * math.factorial(k))
    for k in range(14)
]  # numerator of the approximant of degree 13, up to a common factor


@lapack("matrix_exp")
def _matrix_exp_eval(x: Any) -> Any:
    """Scaling and squaring (Higham 2005), each matrix by its own power of 2."""
    if not x.size:
        return x.copy()
    norm = np.abs(x).sum(-2).max(-1)
    norm = np.where(np.isfinite(norm), norm, 0)
    squarings = np.maximum(np.ceil(np.log2(np.maximum(norm, 1e-30) / 4)), 0).astype(int)
    small = x / (2.0**squarings).astype(x.real.dtype)[..., None, None]
    one = np.eye(x.shape[-1], dtype=x.dtype)
    even, odd, power = _PADE[0] * one, _PADE[1] * one, one
    square = small @ small
    for k in range(2, 14, 2):
        power = power @ square
        even, odd = even + _PADE[k] * power, odd + _PADE[k + 1] * power
    odd = small @ odd
    out = np.linalg.solve(even - odd, even + odd)
    for k in range(int(squarings.max())):
        more = (squarings > k)[..., None, None]
        out = np.where(more, out @ out, out)
    return out


def _block(x: Tensor, t: Tensor) -> Tensor:
    """[[x, t], [0, x]], whose exponential holds the derivative along t."""
    top = cat([x, t], -1)
    return cat([top, cat([zeros_like(x), x], -1)], -2)


def _exp_along(x: Tensor, t: Tensor) -> Tensor:
    n = x.shape[-1]
    return matrix_exp_op(_block(x, t))[..., :n, n:]


matrix_exp_op: Op = define(
    "matrix_exp",
    inputs="x",
    eval=_matrix_exp_eval,
    type=_same("matrix_exp"),
    vjp={"x": lambda g, x: _exp_along(adjoint(x), g)},
    jvp={"x": lambda t, x: _exp_along(x, t)},
    batch=elementwise_batch,
    samples=_square_samples(),
    reference=each_matrix(_taylor),
)
