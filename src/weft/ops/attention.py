"""Attention: ``softmax(q k^T * scale + mask) v``, whose scores need not be kept.

    s = q k^T * scale + mask      p = exp(s - lse)      o = p v

``lse``, the logarithm of each row's sum of exponentials, is all that the backward pass
needs to recompute the weights p. With g the cotangent of o and ``delta = sum(g * o)``
along each row:

    dv = p^T g      ds = p * (g v^T - delta) * scale      dq = ds k      dk = ds^T q

Here both are composed, for reference; compiled programs compute the scores in blocks
(``compile.targets.cpu.attention``).

Operands are (..., rows, features) with equal leading axes. A mask of the scores' shape
comes last: numbers are added, truth values say who takes part. ``causal`` hides keys
behind a query: row i sees keys 0 to i. A row that sees nobody gives zeros, or NaN as
softmax does if ``zeros`` is False. Half types are computed in float32, which ``lse``
and ``delta`` have too: rounded, they would shift all weights of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.blas import product
from weft.core.lowering import Library
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import DTypeError, ShapeError
from weft.ops import dividing
from weft.ops.broadcasting import expand
from weft.ops.copies import HALF, cast
from weft.ops.creation import ones
from weft.ops.diagonals import tril
from weft.ops.elementwise import (
    broadcast_shapes,
    check_accepts,
    elementwise_batch,
    result_type,
)  # fmt: skip
from weft.ops.products import matmul, wide_matmul_op
from weft.ops.select import where
from weft.ops.shaping import transpose

_BULK = 1 << 14  # elements of an argument from which generated kernels pay

# -- evaluation


def _wide(*arrays: Any) -> list[Any]:
    """Half types are computed in float32."""
    return [
        x.astype(np.float32) if x is not None and x.dtype.char in HALF else x
        for x in arrays
    ]


def _scores_eval(q: Any, k: Any, mask: Any, causal: bool, scale: float) -> Any:
    scores = product(q * q.dtype.type(scale), np.swapaxes(k, -1, -2))
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, scores.dtype.type(-math.inf))
    elif mask is not None:
        scores += mask
    if causal:
        seen = np.tril(np.ones(scores.shape[-2:], bool))
        scores = np.where(seen, scores, scores.dtype.type(-math.inf))
    return scores


def _attention_eval(
    q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool, scale: float, zeros: bool
) -> Any:
    kind = q.dtype
    q, k, v, mask = _wide(q, k, v, mask)
    scores = _scores_eval(q, k, mask, causal, scale)
    with np.errstate(all="ignore"):
        top = scores.max(-1, keepdims=True, initial=-math.inf)
        scores -= np.where(top == -math.inf, top.dtype.type(0), top)
        np.exp(scores, out=scores)
        total = scores.sum(-1, keepdims=True)
        nobody = total == 0
        lse = top + np.log(total)
        if not zeros:
            lse = np.where(nobody, lse.dtype.type(math.nan), lse)
        scores /= np.where(nobody, total.dtype.type(1 if zeros else math.nan), total)
        out = product(scores, v)
    return out.astype(kind, copy=False), lse[..., 0]


def _backward_eval(
    q: Any, k: Any, v: Any, lse: Any, g: Any, delta: Any, mask: Any = None, *,
    causal: bool, scale: float, zeros: bool,
) -> Any:  # fmt: skip
    kind = q.dtype
    q, k, v, lse, g, delta, mask = _wide(q, k, v, lse, g, delta, mask)
    with np.errstate(all="ignore"):
        weights = _scores_eval(q, k, mask, causal, scale)
        weights -= np.where(lse == -math.inf, lse.dtype.type(0), lse)[..., None]
        np.exp(weights, out=weights)
        dv = product(np.swapaxes(weights, -1, -2), g)
        slopes = product(g, np.swapaxes(v, -1, -2))
        slopes -= delta[..., None]
        slopes *= weights
        slopes *= slopes.dtype.type(scale)
        dq, dk = product(slopes, k), product(np.swapaxes(slopes, -1, -2), q)
    return tuple(x.astype(kind, copy=False) for x in (dq, dk, dv))


# -- types


def _attention_type(
    q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None, *,
    causal: bool, scale: float, zeros: bool, name: str = "attention",
) -> tuple[TensorType, TensorType]:  # fmt: skip
    check_accepts(name, "floating", q.dtype)
    if min(len(x.shape) for x in (q, k, v)) < 2:
        raise ShapeError(
            f"{name}: expected at least 2 dimensions, got {q.shape}, {k.shape} and "
            f"{v.shape}"
        )
    *lead, rows, depth = q.shape
    keys = k.shape[-2]
    _expect(name, "key", k, (*lead, keys, depth), q.dtype)
    _expect(name, "value", v, (*lead, keys, v.shape[-1]), q.dtype)
    if mask is not None:
        kind = mask.dtype if mask.dtype is dtypes.bool_ else q.dtype
        _expect(name, "mask", mask, (*lead, rows, keys), kind)
    out = TensorType((*lead, rows, v.shape[-1]), q.dtype)
    return out, TensorType((*lead, rows), q.dtype.to_total())


def _backward_type(
    q: TensorType, k: TensorType, v: TensorType, lse: TensorType, g: TensorType,
    delta: TensorType, *mask: TensorType, **params: Any,
) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
    name = "attention_backward"
    out, row = _attention_type(q, k, v, *mask, **params, name=name)
    _expect(name, "the output's gradient", g, out.shape, q.dtype)
    _expect(name, "lse", lse, row.shape, row.dtype)
    _expect(name, "delta", delta, row.shape, row.dtype)
    return q, k, v


def _expect(name: str, what: str, x: TensorType, shape: Any, dtype: Any) -> None:
    if x.shape != tuple(shape):
        raise ShapeError(
            f"{name}: expected {what} of shape {tuple(shape)}, got {x.shape}"
        )
    if x.dtype is not dtype:
        raise DTypeError(f"{name}: expected {what} of {dtype.name}, got {x.dtype.name}")


# -- derivatives, composed: whatever is kept here has the scores' shape


def _transposed(x: Tensor) -> Tensor:
    return transpose(x, -2, -1)


def _widened(x: Tensor) -> Tensor:
    """A tensor in the dtype of sums."""
    return cast(x, x.dtype.to_total())


def _weights(
    q: Tensor, k: Tensor, lse: Tensor, mask: list[Tensor], causal: bool, scale: float
) -> Tensor:
    """The weights, from the numbers that the forward pass kept of a row."""
    scores = matmul(q * scale, _transposed(k))
    hidden = -math.inf
    if mask and mask[0].dtype is dtypes.bool_:
        scores = where(mask[0], scores, hidden)
    elif mask:
        scores = scores + mask[0]
    if causal:
        seen = tril(ones(scores.shape[-2:], dtype=dtypes.bool_, device=scores.device))
        scores = where(seen, scores, hidden)
    lse = where(lse == hidden, 0.0, lse)
    return (scores - lse.unsqueeze(-1)).exp()


def _attention_vjp(
    gs: Any, xs: list[Tensor], o: Tensor, lse: Tensor, need: Any, causal: bool,
    scale: float, zeros: bool,
) -> list[Tensor | None]:  # fmt: skip
    g, g_lse = gs
    q, k, v, *mask = xs
    delta = (_widened(g) * _widened(o)).sum(-1) - g_lse
    cotangents: Any = attention_backward_op(
        q, k, v, lse, g, delta, *mask, causal=causal, scale=scale, zeros=zeros
    )
    cotangents = [*cotangents, *[None] * len(mask)]
    if mask and need[3]:
        wide_q, wide_k, wide_v, wide_g = map(_widened, (q, k, v, g))
        weights = _weights(wide_q, wide_k, lse, mask, causal, scale)
        rise = matmul(wide_g, _transposed(wide_v)) - delta.unsqueeze(-1)
        cotangents[3] = cast(weights * rise, mask[0].dtype)
    return cotangents


def _attention_jvp(
    ts: list[Any], xs: list[Tensor], lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    kind = xs[0].dtype
    q, k, v = map(_widened, xs[:3])
    mask = xs[3:]
    tq, tk, tv, *tm = (t if t is None else _widened(t) for t in ts)
    weights = _weights(q, k, lse, mask, causal, scale)
    moved = [matmul(t * scale, _transposed(k)) for t in (tq,) if t is not None]
    moved += [matmul(q * scale, _transposed(t)) for t in (tk,) if t is not None]
    moved += [t for t in tm if t is not None]
    out = matmul(weights, tv) if tv is not None else None
    if not moved:
        assert out is not None
        return cast(out, kind), lse * 0.0
    slopes = weights * sum(moved[1:], moved[0])
    t_lse = slopes.sum(-1)
    t_out = matmul(slopes - weights * t_lse.unsqueeze(-1), v)
    return cast(t_out if out is None else out + t_out, kind), t_lse


def _backward_vjp(
    gs: Any, xs: list[Tensor], need: Any, causal: bool, scale: float
) -> list[Tensor | None]:
    """The reverse of the equations at the top, line by line."""
    a, b, c = map(_widened, gs)  # of dq, dk and dv
    kinds = [x.dtype for x in xs]
    lse, delta, mask = xs[3], xs[5], xs[6:]
    q, k, v, g = (_widened(xs[at]) for at in (0, 1, 2, 4))
    p = _weights(q, k, lse, mask, causal, scale)
    rise = matmul(g, _transposed(v)) - delta.unsqueeze(-1)
    slopes = p * rise * scale
    of_slopes = (matmul(a, _transposed(k)) + matmul(q, _transposed(b))) * scale
    of_rise = of_slopes * p
    of_scores = (of_slopes * rise + matmul(g, _transposed(c))) * p
    cotangents = [
        matmul(of_scores, k) * scale + matmul(slopes, b),
        matmul(_transposed(of_scores), q) * scale + matmul(_transposed(slopes), a),
        matmul(_transposed(of_rise), g),
        -of_scores.sum(-1),
        matmul(of_rise, v) + matmul(p, c),
        -of_rise.sum(-1),
    ]
    cotangents += [of_scores] * len(mask)
    return [
        cast(x, kind) if one else None
        for x, kind, one in zip(cotangents, kinds, need, strict=True)
    ]


# -- samples and references


def _arguments(rng: np.random.Generator) -> Any:
    """q, k, v, a mask or None, and parameters."""
    sizes = (
        ((), 3, 4, 2, 3),
        ((2,), 4, 3, 2, 2),
        ((2, 1), 2, 5, 3, 1),
        ((1,), 0, 2, 2, 2),
    )
    for kind, (lead, rows, keys, depth, width) in enumerate(sizes):
        shapes = (rows, depth), (keys, depth), (keys, width)
        args = [rng.uniform(-2, 2, (*lead, *shape)) for shape in shapes]
        for causal in (False, True):
            params = {"causal": causal, "scale": 0.5 + kind, "zeros": bool(kind % 2)}
            mask = rng.uniform(-1, 1, (*lead, rows, keys))
            takes_part = mask > -0.4
            takes_part[..., 0] = True
            yield args, [(), (mask,), (takes_part,)][(kind + causal) % 3], params


def _attention_samples(rng: np.random.Generator) -> Any:
    for args, mask, params in _arguments(rng):
        yield Sample((*args, *mask), params)


def _backward_samples(rng: np.random.Generator) -> Any:
    for (q, k, v), mask, params in _arguments(rng):
        g = rng.uniform(-1, 1, (*q.shape[:-1], v.shape[-1]))
        lse, delta = rng.uniform(2, 4, q.shape[:-1]), rng.uniform(-1, 1, q.shape[:-1])
        yield Sample((q, k, v, lse, g, delta, *mask), params)


def _score(q: Any, k: Any, mask: Any, position: Any, key: int, params: Any) -> float:
    """One score, -infinity where a key is hidden."""
    if params["causal"] and key > position[-1]:
        return -math.inf
    score = params["scale"] * float(np.dot(q[position], k[(*position[:-1], key)]))
    if not mask:
        return score
    one = mask[0][(*position, key)]
    if mask[0].dtype == bool:
        return score if one else -math.inf
    return score + float(one)


def _attention_reference(q: Any, k: Any, v: Any, *mask: Any, **params: Any) -> Any:
    out, lse = np.zeros((*q.shape[:-1], v.shape[-1])), np.zeros(q.shape[:-1])
    for position in np.ndindex(*q.shape[:-1]):
        keys = range(k.shape[-2])
        terms = [math.exp(_score(q, k, mask, position, j, params)) for j in keys]
        for j in keys:
            out[position] += terms[j] / math.fsum(terms) * v[(*position[:-1], j)]
        lse[position] = math.log(math.fsum(terms))
    return out, lse


def _backward_reference(
    q: Any, k: Any, v: Any, lse: Any, g: Any, delta: Any, *mask: Any, **params: Any
) -> Any:
    dq, dk, dv = (np.zeros(x.shape) for x in (q, k, v))
    for *lead, i, j in np.ndindex(*q.shape[:-1], k.shape[-2]):
        row, key = (*lead, i), (*lead, j)
        weight = math.exp(_score(q, k, mask, row, j, params) - lse[row])
        slope = weight * (np.dot(g[row], v[key]) - delta[row]) * params["scale"]
        dv[key] += weight * g[row]
        dq[row] += slope * k[key]
        dk[key] += slope * q[row]
    return dq, dk, dv


# -- composed of other operators


def _wide_product(x: Tensor, y: Tensor) -> Tensor:
    """A product in the dtype of sums."""
    return wide_matmul_op(x, y, dtype=x.dtype.to_total())


def _composed_scores(
    q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    scores = _wide_product(q, transpose(k, -1, -2)) * scale
    if mask is not None and mask.dtype is dtypes.bool_:
        scores = where(mask, scores, -math.inf)
    elif mask is not None:
        scores = scores + cast(mask, scores.dtype)
    if causal:
        seen = tril(ones(scores.shape[-2:], dtype=dtypes.bool_))
        scores = where(expand(seen, scores.shape), scores, -math.inf)
    return scores


def _composed(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    causal: bool, scale: float, zeros: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    scores = _composed_scores(q, k, mask, causal, scale)
    top = scores.amax(-1, keepdim=True)
    weights = (scores - where(top == -math.inf, 0.0, top)).exp()
    total = weights.sum(-1, keepdim=True)
    nobody = total == 0
    lse = top + total.log()
    if not zeros:
        lse = where(nobody, math.nan, lse)
    weights = weights / where(nobody, 1.0 if zeros else math.nan, total)
    return matmul(cast(weights, v.dtype), v), lse[..., 0]


def _composed_backward(
    q: Tensor, k: Tensor, v: Tensor, lse: Tensor, g: Tensor, delta: Tensor,
    mask: Tensor | None = None, *, causal: bool, scale: float, zeros: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    scores = _composed_scores(q, k, mask, causal, scale)
    weights = (scores - where(lse == -math.inf, 0.0, lse)[..., None]).exp()
    dv = matmul(transpose(cast(weights, g.dtype), -1, -2), g)
    slopes = _wide_product(g, transpose(v, -1, -2)) - delta[..., None]
    slopes = cast(slopes * weights * scale, q.dtype)
    return matmul(slopes, k), matmul(transpose(slopes, -1, -2), q), dv


# -- the records


def _products(of_keys: int, of_values: int) -> Callable[..., tuple[Any, ...]]:
    """The operations of so many products with keys, and with values."""

    def factors(out: Any, q: Any, k: Any, v: Any, *others: Any) -> tuple[Any, ...]:
        return (2, *q[:-1], k[-2], of_keys * q[-1] + of_values * v[-1])

    return factors


attention_op: Op = define(
    "attention",
    divides=dividing.attended,
    inputs="*xs",  # q, k, v, and maybe a mask
    outputs="o lse",
    eval=_attention_eval,
    bulk=_BULK,
    type=_attention_type,
    lower=Library("attention", "forward", ("q", "k", "v", "mask"), _composed),
    flops=_products(1, 1),
    vjp=_attention_vjp,
    jvp=_attention_jvp,
    batch=elementwise_batch,
    samples=_attention_samples,
    reference=_attention_reference,
)

attention_backward_op: Op = define(
    "attention_backward",
    divides=dividing.attended,
    inputs="*xs",  # q, k, v, lse, g, delta, and maybe a mask
    outputs="dq dk dv",
    eval=_backward_eval,
    bulk=_BULK,
    type=_backward_type,
    lower=Library(
        "attention",
        "backward",
        ("q", "k", "v", "lse", "g", "delta", "mask"),
        _composed_backward,
    ),
    flops=_products(3, 2),
    vjp=_backward_vjp,
    batch=elementwise_batch,
    samples=_backward_samples,
    reference=_backward_reference,
)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float,
    zeros: bool = True,
) -> Tensor:
    """``softmax(q k^T * scale + mask) v``, with leading axes broadcast.

    >>> q = weft.ones(2, 1, 3, 4)
    >>> k = weft.ones(5, 7, 4)
    >>> weft.ops.attention.attention(q, k, k, scale=0.5).shape
    (2, 5, 3, 4)
    """
    given = [q, k, v, *([] if mask is None or mask.dtype is dtypes.bool_ else [mask])]
    dtype = result_type(*given)
    lead = broadcast_shapes("attention", q.shape[:-2], k.shape[:-2], v.shape[:-2])
    if mask is not None:
        lead = broadcast_shapes("attention", lead, mask.shape[:-2])
    args = [expand(cast(x, dtype), (*lead, *x.shape[-2:])) for x in (q, k, v)]
    if mask is not None:
        mask = mask if mask.dtype is dtypes.bool_ else cast(mask, dtype)
        args.append(expand(mask, (*lead, q.shape[-2], k.shape[-2])))
    params = {"causal": causal, "scale": float(scale), "zeros": zeros}
    return attention_op(*args, **params)[0]
