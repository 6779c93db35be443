"""Max pooling's operators: the largest element of each window, and its index."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.eager_kernels import SLOW
from weft.core.lowering import Element, Fold, Varied, cast_element
from weft.core.op import Op, Sample, TensorType, define, register_unlisted
from weft.core.size import larger
from weft.core.tensor import Tensor
from weft.ops.broadcasting import expand
from weft.ops.conv import Sizes
from weft.ops.creation import arange
from weft.ops.elementwise import check_accepts
from weft.ops.index import add_at, take_op, zeros_of
from weft.ops.shaping import reshape

# -- windows that all have one size


def _lowest(dtype: np.dtype) -> Any:
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min)
    return dtype.type(-np.inf)


def _surrounded(
    x: Any, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, counts: Sizes
) -> Any:
    """x with the lowest number around it, as far as windows reach."""
    ends = [
        (n - 1) * s + d * (k - 1) + 1
        for n, k, s, d in zip(counts, kernel, stride, dilation, strict=True)
    ]
    sizes = x.shape[2:]
    if not any(padding) and all(e <= n for e, n in zip(ends, sizes, strict=True)):
        return x
    shape = [max(e, n + p) for e, n, p in zip(ends, sizes, padding, strict=True)]
    out = np.full((*x.shape[:2], *shape), _lowest(x.dtype), x.dtype)
    inner: list[Any] = [slice(p, p + n) for p, n in zip(padding, sizes, strict=True)]
    out[(..., *inner)] = x
    return out


def _largest_tap(
    x: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
    counts: Sizes,
) -> Any:  # fmt: skip
    """The number of each window's largest element, in its window."""
    full = _surrounded(x, kernel, stride, padding, dilation, counts)
    taps = [
        full[(..., *_tap_slices(tap, stride, dilation, counts))]
        for tap in itertools.product(*map(range, kernel))
    ]
    first = _first_taps(kernel, stride, padding, dilation, counts)
    return _largest(taps, first, _lowest(x.dtype))


def _max_index_eval(
    x: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
    counts: Sizes,
) -> Any:  # fmt: skip
    tap = _largest_tap(
        x, kernel=kernel, stride=stride, padding=padding, dilation=dilation,
        counts=counts,
    )  # fmt: skip
    return _flat_index(tap, x.shape[2:], kernel, stride, padding, dilation)


def _tap_slices(tap: Sizes, stride: Sizes, dilation: Sizes, counts: Sizes) -> Any:
    return (
        slice(t * d, t * d + (n - 1) * s + 1, s)
        for t, d, n, s in zip(tap, dilation, counts, stride, strict=True)
    )


def _first_taps(
    kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, counts: Sizes
) -> Any:
    """The number of each window's first tap that is not padding."""
    out: Any = 0
    for k, s, p, d, n in zip(kernel, stride, padding, dilation, counts, strict=True):
        skipped = np.maximum(-((np.arange(n) * s - p) // d), 0)
        out = np.asarray(out)[..., None] * k + skipped
    return out


def _largest(taps: list[Any], first: Any, lowest: Any) -> Any:
    """The number of the largest tap: the first of equals, the last NaN."""
    kind = np.int8 if len(taps) < 128 else np.int32
    shape = taps[0].shape
    best = np.full(shape, lowest, taps[0].dtype)
    tap = np.broadcast_to(first, shape).astype(kind, order="C")
    for k, value in enumerate(taps):
        better = value > best
        np.maximum(tap, np.multiply(better, kind(k), dtype=kind), out=tap)
        np.maximum(best, value, out=best)
    if best.dtype.kind not in "iu":
        for k, value in enumerate(taps if np.isnan(best).any() else ()):
            tap[np.isnan(value)] = k
    return tap


def _flat_index(
    tap: Any, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> Any:
    """Indices into the flattened spatial dimensions, from numbers of taps."""
    offsets, starts = np.zeros(1, np.int64), np.zeros((), np.int64)
    counts = tap.shape[2:]
    for n, k, s, p, d, m in zip(
        size, kernel, stride, padding, dilation, counts, strict=True
    ):
        offsets = (offsets[:, None] * n + np.arange(k) * d).reshape(-1)
        starts = starts[..., None] * n + (np.arange(m) * s - p)
    out = offsets.take(tap)
    out += starts
    return out


def _max_index_type(x: TensorType, *, counts: Sizes, **params: Any) -> TensorType:
    check_accepts("max_pool_index", "real number", x.dtype)
    return TensorType((*x.shape[:2], *counts), dtypes.int64)


def _into_rows(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    (x,) = args
    out = op(reshape(x, (size * x.shape[1], *x.shape[2:])), **params)
    return reshape(out, (size, x.shape[1], *out.shape[1:]))


_WINDOWS: tuple[tuple[Sizes, ...], ...] = (  # x, kernel, stride, padding, dilation, out
    ((2, 2, 5), (2,), (2,), (0,), (1,), (2,)),
    ((1, 2, 4, 5), (3, 2), (2, 1), (1, 1), (1, 2), (2, 5)),
    ((1, 1, 3, 2, 2), (2, 2, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1), (2, 1, 2)),
    ((2, 1, 5), (2,), (2,), (0,), (1,), (3,)),
    ((0, 2, 4), (2,), (2,), (0,), (1,), (2,)),
)
_NAMES = ("kernel", "stride", "padding", "dilation", "counts")


def _max_index_samples(rng: np.random.Generator) -> Any:
    for shape, *sizes in _WINDOWS:
        params = dict(zip(_NAMES, sizes, strict=True))
        yield Sample((rng.uniform(-2, 2, shape),), params)


def _max_index_reference(
    x: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
    counts: Sizes,
) -> Any:  # fmt: skip
    out = np.zeros((*x.shape[:2], *counts), np.int64)
    for n, c, *at in np.ndindex(*out.shape):
        seen = {}
        for tap in np.ndindex(*kernel):
            position = [
                a * s + t * d - p
                for a, s, t, d, p in zip(
                    at, stride, tap, dilation, padding, strict=True
                )
            ]
            if all(0 <= i < m for i, m in zip(position, x.shape[2:], strict=True)):
                seen[int(np.ravel_multi_index(position, x.shape[2:]))] = x[
                    (n, c, *position)
                ]
        out[(n, c, *at)] = max(seen, key=lambda i: seen[i])
    return out


class _Window:
    """The indices of a window's taps, for the window at an index of the output."""

    def __init__(
        self, k: Any, out: Any, x: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes,
        dilation: Sizes, counts: Sizes,
    ) -> None:  # fmt: skip
        self.k, self.x, self.lead, self.dilation = k, x, out[:2], dilation
        at = zip(out[2:], stride, padding, strict=True)
        self.starts = [i * s - p for i, s, p in at]

    def first(self) -> Any:
        """The flat index of the first tap that is not padding."""
        pairs = zip(self.starts, self.dilation, strict=True)
        inside = [a + larger(-(a // d), 0) * d for a, d in pairs]
        return self.k.at(_row_major(inside, self.x.shape[2:]))

    def tap(self, tap: Any) -> tuple[Any, Any]:
        """The value and the flat index of a tap; the lowest number for padding."""
        k, size, lowest = self.k, self.x.shape[2:], _lowest_of(self.k, self.x)
        pairs = zip(self.starts, tap, self.dilation, strict=True)
        positions = [a + t * d for a, t, d in pairs]
        value = self.x[*self.lead, *positions]
        for position, n in zip(reversed(positions), reversed(size), strict=True):
            inside = k.choice(position, n, value, lowest)
            value = k.choice(position, 0, lowest, inside)
        return value, k.at(_row_major(positions, size))


def _lowest_of(k: Any, x: Any) -> Any:
    return k.number(_lowest(x.dtype.np).item(), x.dtype)


def _leading(k: Any, states: Any, value: Any, index: Any) -> Any:
    """The best value and its index: the first of equals, the last NaN."""
    best, found = states
    better = _better(k, value, best)
    return k.call("where", better, value, best), k.call("where", better, index, found)


def _better(k: Any, value: Any, best: Any) -> Any:
    better = k.call("gt", value, best)
    if value.dtype.is_inexact:
        better = k.call("logical_or", better, k.call("isnan", value))
    return better


def _max_index_start(k: Any, out: Any, x: Any, **params: Any) -> Any:
    return _lowest_of(k, x), _Window(k, out, x, **params).first()


def _max_index_step(
    k: Any, out: Any, at: Any, states: Any, x: Any, **params: Any
) -> Any:
    return _leading(k, states, *_Window(k, out, x, **params).tap(at))


def _row_major(index: Any, shape: Any) -> Any:
    total: Any = 0
    for i, n in zip(index, shape, strict=True):
        total = total * n + i
    return total


def _second(k: Any, out: Any, states: Any, x: Any, **params: Any) -> Any:
    return states[1]


def _first(k: Any, out: Any, states: Any, x: Any, **params: Any) -> Any:
    return states[0]


WRITTEN = 16  # taps that are written out one by one


def _loops(which: Any) -> Any:
    """The lowering of an operator that wants the value or the index of a window."""

    def element(k: Any, out: Any, x: Any, *, kernel: Sizes, **params: Any) -> Any:
        states = _max_index_start(k, out, x, kernel=kernel, **params)
        for tap in itertools.product(*map(range, kernel)):
            states = _max_index_step(k, out, tap, states, x, kernel=kernel, **params)
        return which(k, out, states, x)

    def loops(x: Any, *, kernel: Sizes, **params: Any) -> Any:
        if math.prod(kernel) <= WRITTEN:
            return Element(element)
        return Fold(
            lambda x, **params: kernel, _max_index_start, _max_index_step, which
        )

    return Varied(loops)


max_pool_index_op: Op = define(
    "max_pool_index",
    bulk=SLOW,
    inputs="x",
    lower=_loops(_second),
    eval=_max_index_eval,
    type=_max_index_type,
    batch=_into_rows,
    samples=_max_index_samples,
    reference=_max_index_reference,
)


def _max_eval(x: Any, **params: Any) -> Any:
    return _along_rows(x, _max_index_eval(x, **params))


def _along_rows(x: Any, index: Any) -> Any:
    rows = x.shape[0] * x.shape[1]
    flat = index.reshape(rows, math.prod(index.shape[2:]))
    taken = np.take_along_axis(x.reshape(rows, math.prod(x.shape[2:])), flat, 1)
    return taken.reshape(index.shape)


def picked(x: Tensor, index: Tensor) -> Tensor:
    """Elements of x (N, C, *S) by flat indices into *S, (N, C, *Y)."""
    flat = reshape(x, (x.numel(),))
    places = reshape(into_all(x.shape, index), (index.numel(),))
    return reshape(take_op(flat, places), index.shape)


def into_all(shape: Any, index: Tensor) -> Tensor:
    """Flat indices into the whole of a tensor, from those into its *S."""
    size = math.prod(shape[2:])
    start = arange(shape[0] * shape[1], device=index.device) * size
    start = reshape(start, (*shape[:2], *(1,) * (len(shape) - 2)))
    return index + start


def _found(
    x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
    counts: Sizes,
) -> Tensor:  # fmt: skip
    sizes = kernel, stride, padding, dilation, counts
    return max_pool_index_op(x, **dict(zip(_NAMES, sizes, strict=True)))


def overlap(kernel: Sizes, stride: Sizes, dilation: Sizes | None = None) -> bool:
    """Whether an element may be in several windows, or windows have holes."""
    spread = dilation or (1,) * len(kernel)
    return any(
        d * (k - 1) >= s or d > 1
        for k, s, d in zip(kernel, stride, spread, strict=True)
    )


def _put_back(
    g: Tensor, x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes,
    dilation: Sizes, counts: Sizes,
) -> Tensor:  # fmt: skip
    """The gradient of the input: each window's goes to its largest element."""
    if not overlap(kernel, stride, dilation):
        sizes = {"kernel": kernel, "stride": stride, "padding": padding}
        return max_pool_grad_op(g, x, **sizes)
    index = _found(x, kernel, stride, padding, dilation, counts)
    places = reshape(into_all(x.shape, index), (index.numel(),))
    added = add_at(reshape(g, (g.numel(),)), places, size=x.numel())
    return reshape(added, x.shape)


max_pool_op: Op = define(
    "max_pool",
    bulk=SLOW,
    inputs="x",
    lower=_loops(_first),
    eval=_max_eval,
    type=lambda x, **params: TensorType(_max_index_type(x, **params).shape, x.dtype),
    vjp={"x": _put_back},
    jvp={
        "x": lambda t, x, kernel, stride, padding, dilation, counts: picked(
            t, _found(x, kernel, stride, padding, dilation, counts)
        )
    },
    batch=_into_rows,
    samples=_max_index_samples,
    reference=lambda x, **params: _along_rows(x, _max_index_reference(x, **params)),
)


# -- the gradient where windows are side by side: every element looks at its own window


def _max_grad_eval(
    dy: Any, x: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    ones, counts = (1,) * len(kernel), dy.shape[2:]
    sizes = kernel, stride, padding, ones, counts
    index = _max_index_eval(x, **dict(zip(_NAMES, sizes, strict=True)))
    rows = x.shape[0] * x.shape[1]
    out = np.zeros((rows, math.prod(x.shape[2:])), dy.dtype)
    flat = rows, math.prod(counts)
    np.put_along_axis(out, index.reshape(flat), dy.reshape(flat), 1)
    return out.reshape(x.shape)


def _max_grad_element(
    k: Any, out: Any, dy: Any, x: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    """The gradient of the element's window if that picked it, else zero."""
    places = [i + p for i, p in zip(out[2:], padding, strict=True)]
    at = [i // s for i, s in zip(places, stride, strict=True)]
    taps = [i % s for i, s in zip(places, stride, strict=True)]
    ones = (1,) * len(kernel)
    sizes = dict(zip(_NAMES, (kernel, stride, padding, ones, ()), strict=True))
    window = _Window(k, (*out[:2], *at), x, **sizes)

    def number(tap: Any) -> Any:
        return cast_element(k, k.at(_row_major(tap, kernel)), dtypes.int32)

    states = _lowest_of(k, x), number([larger(-a, 0) for a in window.starts])
    for tap in itertools.product(*map(range, kernel)):
        states = _leading(k, states, window.tap(tap)[0], number(tap))
    zero = k.number(0, dy.dtype)
    own = k.call("eq", states[1], number(taps))
    value = k.call("where", own, dy[*out[:2], *at], zero)
    for tap, j, n, m in zip(taps, at, kernel, dy.shape[2:], strict=True):
        value = k.choice(tap, n, k.choice(j, m, value, zero), zero)
    return value


def _max_grad_samples(rng: np.random.Generator) -> Any:
    for shape, kernel, stride, padding, _, counts in (
        *_WINDOWS, ((1, 2, 4, 6), (2, 2), (2, 3), (1, 1), (1, 1), (3, 2))
    ):  # fmt: skip
        if not overlap(kernel, stride):
            dy, x = (rng.uniform(-2, 2, s) for s in ((*shape[:2], *counts), shape))
            yield Sample(
                (dy, x), {"kernel": kernel, "stride": stride, "padding": padding}
            )


def _max_grad_reference(
    dy: Any, x: Any, *, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    sizes = kernel, stride, padding, (1,) * len(kernel), dy.shape[2:]
    index = _max_index_reference(x, **dict(zip(_NAMES, sizes, strict=True)))
    out = np.zeros((*x.shape[:2], math.prod(x.shape[2:])), dy.dtype)
    for n, c, *at in np.ndindex(*index.shape):
        out[n, c, index[(n, c, *at)]] += dy[(n, c, *at)]
    return out.reshape(x.shape)


def _max_grad_pull(
    g: Tensor, x: Tensor, dy_shape: Any, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Tensor:
    ones = (1,) * len(kernel)
    return picked(g, _found(x, kernel, stride, padding, ones, dy_shape[2:]))


def _max_grad_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    rows = [
        reshape(
            a if b else expand(a, (size, *a.shape)),
            (size * a.shape[-n], *a.shape[1 - n :]),
        )
        for a, b in zip(args, batched, strict=True)
        for n in [a.ndim - b]
    ]
    out = op(*rows, **params)
    return reshape(out, (size, out.shape[0] // size, *out.shape[1:]))


max_pool_grad_op: Op = define(
    "max_pool_grad",
    bulk=SLOW,
    inputs="dy x",
    lower=Element(_max_grad_element, quotients=True),
    eval=_max_grad_eval,
    type=lambda dy, x, **params: TensorType(x.shape, dy.dtype),
    vjp={
        "dy": _max_grad_pull,
        "x": lambda g, x_shape: zeros_of(x_shape, g),
    },
    jvp={
        "dy": lambda t, x, kernel, stride, padding: max_pool_grad_op(
            t, x, kernel=kernel, stride=stride, padding=padding
        ),
        "x": lambda t: t * 0,
    },
    batch=_max_grad_batch,
    samples=_max_grad_samples,
    reference=_max_grad_reference,
)


# -- for compiled programs: the number of each window's largest tap, and its gradient


def _tap_eval(x: Any, **window: Sizes) -> Any:
    return _largest_tap(x, **window).astype(np.uint8)


def _tap_element(
    k: Any, out: Any, x: Any, *, kernel: Sizes, dilation: Sizes, **params: Any
) -> Any:
    window = _Window(k, out, x, kernel=kernel, dilation=dilation, **params)
    pairs = zip(window.starts, dilation, strict=True)
    first = _row_major([larger(-(a // d), 0) for a, d in pairs], kernel)
    states = _lowest_of(k, x), k.at(first)
    for tap in itertools.product(*map(range, kernel)):
        number = k.at(_row_major(tap, kernel))
        states = _leading(k, states, window.tap(tap)[0], number)
    return cast_element(k, states[1], dtypes.uint8)


def _spread_eval(
    dy: Any, tap: Any, *, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes
) -> Any:
    ones, wide = (1,) * len(kernel), dy.astype(np.result_type(dy.dtype, np.float32))
    ends = zip(size, kernel, stride, padding, dy.shape[2:], strict=True)
    sizes = [max(n + 2 * p, (m - 1) * s + k) for n, k, s, p, m in ends]
    out = np.zeros((*dy.shape[:2], *sizes), wide.dtype)
    for number, at in enumerate(itertools.product(*map(range, kernel))):
        index = (..., *_tap_slices(at, stride, ones, dy.shape[2:]))
        out[index] += np.where(tap == number, wide, 0)
    inner: list[Any] = [slice(p, p + n) for p, n in zip(padding, size, strict=True)]
    return out[(..., *inner)].astype(dy.dtype)


def _spread_element(
    k: Any, out: Any, dy: Any, tap: Any, *, size: Sizes, kernel: Sizes, stride: Sizes,
    padding: Sizes,
) -> Any:  # fmt: skip
    """The sum over the windows that an element is the largest of."""
    wide = k.dtype.to_total()
    total, zero = k.number(0, wide), k.number(0, dy.dtype)
    places = [i + p for i, p in zip(out[2:], padding, strict=True)]
    for back in itertools.product(*windows_of(kernel, stride)):
        at = [q // s - b for q, s, b in zip(places, stride, back, strict=True)]
        own = [q % s + b * s for q, s, b in zip(places, stride, back, strict=True)]
        number = cast_element(k, k.at(_row_major(own, kernel)), dtypes.uint8)
        picked = k.call("eq", tap[*out[:2], *at], number)
        value = k.call("where", picked, dy[*out[:2], *at], zero)
        for t, j, n, m in zip(own, at, kernel, dy.shape[2:], strict=True):
            inside = k.choice(j, 0, zero, k.choice(j, m, value, zero))
            value = k.choice(t, n, inside, zero)
        total = k.call("add", total, cast_element(k, value, wide))
    return cast_element(k, total, k.dtype)


def windows_of(kernel: Sizes, stride: Sizes) -> list[range]:
    """How many windows before the last one an element may be in, along each axis."""
    return [range(-(-n // s)) for n, s in zip(kernel, stride, strict=True)]


max_pool_tap_op = register_unlisted(
    Op(
        "max_pool_tap",
        inputs="x",
        eval=_tap_eval,
        type=lambda x, **params: TensorType(
            _max_index_type(x, **params).shape, dtypes.uint8
        ),
        lower=Element(_tap_element),
    )
)

max_pool_spread_op = register_unlisted(
    Op(
        "max_pool_spread",
        inputs="dy tap",
        eval=_spread_eval,
        type=lambda dy, tap, *, size, **params: TensorType(
            (*dy.shape[:2], *size), dy.dtype
        ),
        lower=Element(_spread_element),
    )
)


# -- windows that share out the input (adaptive pooling)


def adaptive_bounds(size: int, count: int) -> tuple[Any, Any]:
    """The bounds of each of ``count`` windows over ``size`` elements."""
    at = np.arange(count)
    return at * size // count, -((-(at + 1) * size) // count)


def _adaptive_index_eval(x: Any, *, counts: Sizes) -> Any:
    """Along each dimension windows of the longest length, repeating their ends."""
    positions = [
        _adaptive_positions(n, m) for n, m in zip(x.shape[2:], counts, strict=True)
    ]
    width = [p.shape[1] for p in positions]
    shape = (*x.shape[:2], *counts)
    flat = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    index = np.stack(
        [
            _position(positions, x.shape[2:], tap)
            for tap in itertools.product(*map(range, width))
        ]
    )
    taps = [flat[..., i].reshape(shape) for i in index]
    tap = _largest(taps, np.zeros(counts, np.int8), _lowest(x.dtype))
    picked = index[tap.reshape(-1, index.shape[1]), np.arange(index.shape[1])]
    return picked.reshape(shape)


@functools.lru_cache(maxsize=256)
def _adaptive_positions(size: int, count: int) -> Any:
    """(count, width) elements of each window, the last one repeated."""
    start, stop = adaptive_bounds(size, count)
    width = int((stop - start).max(initial=1))
    return np.minimum(start[:, None] + np.arange(width), stop[:, None] - 1)


def _position(positions: list[Any], size: Sizes, tap: Sizes) -> Any:
    """The flat index of one tap in every window, flattened."""
    out: Any = np.zeros((), np.int64)
    for p, n, t in zip(positions, size, tap, strict=True):
        out = out[..., None] * n + p[:, t]
    return out.reshape(-1)


def _adaptive_index_reference(x: Any, *, counts: Sizes) -> Any:
    out = np.zeros((*x.shape[:2], *counts), np.int64)
    for n, c, *at in np.ndindex(*out.shape):
        ranges = []
        for a, m, k in zip(at, x.shape[2:], counts, strict=True):
            ranges.append(range(math.floor(a * m / k), math.ceil((a + 1) * m / k)))
        seen = {
            int(np.ravel_multi_index(p, x.shape[2:])): x[(n, c, *p)]
            for p in itertools.product(*ranges)
        }
        out[(n, c, *at)] = max(seen, key=lambda i: seen[i])
    return out


def _adaptive_tap(
    k: Any, out: Any, at: Any, states: Any, x: Any, *, counts: Sizes
) -> Any:
    """The next element of a window; past its end, the last one."""
    positions = []
    for i, t, n, m in zip(out[2:], at, x.shape[2:], counts, strict=True):
        positions.append(k.listed(_adaptive_positions(n, m), (i, t), n))
    value = x[*out[:2], *positions]
    return _leading(k, states, value, k.at(_row_major(positions, x.shape[2:])))


def _adaptive_start(k: Any, out: Any, x: Any, *, counts: Sizes) -> Any:
    """The first element: it is the answer where all are as low as can be."""
    positions = []
    for i, n, m in zip(out[2:], x.shape[2:], counts, strict=True):
        positions.append(k.listed(_adaptive_positions(n, m), (i, 0), n))
    return _lowest_of(k, x), k.at(_row_major(positions, x.shape[2:]))


def _adaptive_element(k: Any, out: Any, x: Any, *, counts: Sizes) -> Any:
    states = _adaptive_start(k, out, x, counts=counts)
    for tap in itertools.product(*map(range, _widths(x.shape[2:], counts))):
        states = _adaptive_tap(k, out, tap, states, x, counts=counts)
    return states[1]


def _widths(size: Sizes, counts: Sizes) -> Sizes:
    pairs = zip(size, counts, strict=True)
    return tuple(_adaptive_positions(n, m).shape[1] for n, m in pairs)


def _adaptive_index_loops(x: Any, *, counts: Sizes) -> Any:
    if not all(isinstance(n, int) for n in x[2:]):
        return None  # the windows are not known
    widths = _widths(x[2:], counts)
    if math.prod(widths) <= WRITTEN:
        return Element(_adaptive_element)
    return Fold(lambda x, counts: widths, _adaptive_start, _adaptive_tap, _second)


adaptive_max_index_op: Op = define(
    "adaptive_max_index",
    inputs="x",
    lower=Varied(_adaptive_index_loops),
    eval=_adaptive_index_eval,
    type=lambda x, *, counts: TensorType((*x.shape[:2], *counts), dtypes.int64),
    batch=_into_rows,
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, shape),), {"counts": counts})
        for shape, counts in (
            ((2, 2, 5), (3,)),
            ((1, 2, 4, 7), (4, 3)),
            ((1, 1, 3, 2, 2), (2, 1, 3)),
            ((0, 1, 4), (2,)),
        )
    ],
    reference=_adaptive_index_reference,
)
