"""Samples, and references written out in plain loops, for the records' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.core.op import Sample
from weft.ops.linalg.algebra import Array, canonical

# -- samples


def well_conditioned(rng: np.random.Generator, *shape: int) -> Array:
    """Matrices with the singular values 1, 1.7, 2.4, ..."""
    u, _, vh = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    return (u * (1 + 0.7 * np.arange(u.shape[-1]))) @ vh


def square_samples(**params: Any) -> Callable[..., Any]:
    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for shape in ((3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2)):
            yield Sample((well_conditioned(rng, *shape),), params)

    return samples


def positive_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for sample in square_samples()(rng):
        x = sample.args[0]
        yield Sample((x @ x.swapaxes(-1, -2),))


def tall_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((3, 3), (4, 2), (2, 3, 2), (0, 0), (0, 2, 2)):
        yield Sample((well_conditioned(rng, *shape),))


def any_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((3, 3), (4, 2), (2, 3), (2, 3, 2), (0, 0), (3, 0)):
        yield Sample((well_conditioned(rng, *shape),))


def system_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, b in (
        ((3, 3), (3, 2)), ((2, 2, 2), (2, 2, 1)), ((1, 1), (1, 1)), ((0, 0), (0, 2)),
    ):  # fmt: skip
        yield Sample((well_conditioned(rng, *a), rng.uniform(-2, 2, b)))


def triangular_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for k, sample in enumerate(system_samples(rng)):
        a, b = sample.args
        a = a * 0.3 + 2 * np.eye(a.shape[-1])
        yield Sample((a, b), {"upper": k % 2 == 0, "unitriangular": k == 1})


# -- references


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


def cofactors(a: Array) -> Array:
    out = np.zeros_like(a)
    for i, j in np.ndindex(a.shape):
        minor = np.delete(np.delete(a, i, 0), j, 1)
        out[i, j] = (-1) ** (i + j) * laplace(minor)
    return out


def banachiewicz(a: Array) -> Array:
    """Cholesky's factor, element by element."""
    a = (a + a.T) / 2
    out = np.zeros_like(a)
    for i in range(len(a)):
        for j in range(i + 1):
            rest = a[i, j] - out[i, :j] @ out[j, :j]
            out[i, j] = np.sqrt(rest) if i == j else rest / out[j, j] if rest else 0
    return out


def householder(a: Array) -> tuple[Array, Array]:
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


def jacobi_svd(a: Array) -> tuple[Array, Array, Array]:
    if a.shape[0] < a.shape[1]:
        v, s, uh = jacobi_svd(a.T)
        f = canonical(uh.T)
        return uh.T * f, s, (v * f).T
    squares, v = jacobi(a.T @ a)
    s, v = np.sqrt(np.maximum(squares[::-1], 0)), v[:, ::-1]
    u = a @ v / s
    f = canonical(u)
    return u * f, s, (v * f).T


def taylor(a: Array) -> Array:
    """exp(a) as exp(a / 1024) ** 1024, the inner one by its series."""
    term = total = np.eye(len(a))
    for k in range(1, 12):
        term = term @ a / (1024 * k)
        total = total + term
    for _ in range(10):
        total = total @ total
    return total


def inverse_reference(a: Array) -> Array:
    return gauss_jordan(a, np.eye(len(a)))
