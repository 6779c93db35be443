"""Convolution in any number of dimensions, and the windows that it reads.

Three records, each linear in both inputs, each the derivative of the others:

    conv              x (N, C, *S), w (O, C/groups, *K)  ->  y (N, O, *Y)
    conv_input_grad   y, w  ->  x      (what a transposed convolution computes)
    conv_weight_grad  x, y  ->  w

``conv_bias`` adds one number an output channel on the way. There are also
``im2col`` (every window copied out) with its transpose ``col2im``. Padding
is a (before, after) pair a dimension; a negative one cuts off.

Evaluation copies windows into columns that fit the cache, and multiplies them
with the weights by one matrix product a block. With stride 1, the columns keep
the padded rows' pitch: a tap's column is then one long run of memory, at the
price of a few cells a row that belong to no output.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from weft.core.blas import product
from weft.core.lowering import Element, Library, Varied, cast_element
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import is_one
from weft.core.tensor import Tensor
from weft.errors import DTypeError, ShapeError
from weft.ops.broadcasting import expand
from weft.ops.copies import HALF
from weft.ops.elementwise import check_accepts
from weft.ops.products import matmul
from weft.ops.shaping import movedim, reshape, transpose

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

BLOCK = 1 << 19  # bytes of columns at a time: half of a common second-level cache
WASTE = 1.6  # runs may hold this many cells an output cell
_BULK = 1 << 14  # elements of an argument from which generated kernels pay


# -- sizes


def window_counts(
    size: Sizes, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Sizes:
    """The number of windows along each dimension."""
    return tuple(
        (n + lo + hi - d * (k - 1) - 1) // s + 1
        for n, k, s, (lo, hi), d in zip(
            size, kernel, stride, padding, dilation, strict=True
        )
    )


def is_pointwise(node: Any) -> bool:
    """Whether the windows of a convolution's node are single pixels, each read once.

    Such a convolution, or gradient of one, is a product of matrices.
    """
    params = node.params
    weights = node if node.op is conv_weight_grad_op else node.inputs[1]
    ones = (*weights.shape[2:], *params["stride"], params["groups"])
    return all(map(is_one, ones)) and not any(map(any, params["padding"]))


def _padded(x: Any, padding: Pairs) -> Any:
    """The array with zeros around its last dimensions, or cut where negative."""
    if not any(lo or hi for lo, hi in padding):
        return np.ascontiguousarray(x)
    lead = x.ndim - len(padding)
    sizes = x.shape[lead:]
    shape = [n + lo + hi for n, (lo, hi) in zip(sizes, padding, strict=True)]
    out = np.zeros((*x.shape[:lead], *shape), x.dtype)
    to: list[Any] = []
    come: list[Any] = []
    for n, m, (lo, _) in zip(sizes, shape, padding, strict=True):
        a, b = max(-lo, 0), min(n, m - lo)
        come.append(slice(a, max(a, b)))
        to.append(slice(a + lo, max(a, b) + lo))
    out[(..., *to)] = x[(..., *come)]
    return out


def _unpadded(x: Any, padding: Pairs) -> Any:
    if all(lo >= 0 and hi >= 0 for lo, hi in padding):
        inner = (
            slice(lo, n - hi)
            for n, (lo, hi) in zip(x.shape[-len(padding) :], padding, strict=True)
        )
        return np.ascontiguousarray(x[(..., *inner)])
    return _padded(x, tuple((-lo, -hi) for lo, hi in padding))


class Grid(NamedTuple):
    """The positions of windows in padded rows, and the layout of their columns.

    ``cells`` is the shape of one channel's column: the outputs, or (``runs``) the
    outputs with the rows' pitch, of which only the first ``run`` are copied.
    """

    size: Sizes  # of the padded rows
    kernel: Sizes
    stride: Sizes
    dilation: Sizes
    counts: Sizes  # of windows
    runs: bool

    @property
    def pitch(self) -> Sizes:
        return tuple(math.prod(self.size[k + 1 :]) for k in range(len(self.size)))

    @property
    def cells(self) -> Sizes:
        return (self.counts[0], *self.size[1:]) if self.runs else self.counts

    @property
    def run(self) -> int:
        steps = zip(self.counts, self.pitch, strict=True)
        return sum((n - 1) * p for n, p in steps) + 1

    @property
    def valid(self) -> tuple[Any, ...]:
        """The cells that are outputs."""
        return (..., *(slice(0, n) for n in self.counts))

    def window(self, tap: Sizes) -> tuple[Any, ...]:
        """The padded rows' elements under one element of the kernel."""
        return (
            ...,
            *(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(
                    tap, self.dilation, self.counts, self.stride, strict=True
                )
            ),
        )

    def start(self, tap: Sizes) -> int:
        """The offset of a tap's run."""
        steps = zip(tap, self.dilation, self.pitch, strict=True)
        return sum(t * d * p for t, d, p in steps)

    @property
    def taps(self) -> Iterator[Sizes]:
        return itertools.product(*map(range, self.kernel))


def _grid(
    size: Sizes, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes,
    exact: bool = False,
) -> Grid:  # fmt: skip
    """The layout of these windows; ``exact`` ones hold no cell but outputs."""
    full = tuple(n + lo + hi for n, (lo, hi) in zip(size, padding, strict=True))
    counts = window_counts(size, kernel, stride, padding, dilation)
    cells = counts[0] * math.prod(full[1:])
    fits = cells <= WASTE * math.prod(counts)
    runs = not exact and fits and all(s == 1 for s in stride)
    return Grid(full, kernel, stride, dilation, counts, runs)


# -- columns


def _windows(x: Any, grid: Grid) -> Any:
    """A view (C, *K, N, run or *counts) of padded x (N, C, *size)."""
    sn, sc, *steps = x.strides
    taps = [d * s for d, s in zip(grid.dilation, steps, strict=True)]
    if grid.runs:
        shape: Sizes = (grid.run,)
        last = [x.itemsize]
    else:
        shape = grid.counts
        last = [d * s for d, s in zip(grid.stride, steps, strict=True)]
    return as_strided(
        x,
        (x.shape[1], *grid.kernel, x.shape[0], *shape),
        (sc, *taps, sn, *last),
        writeable=False,
    )


def _blocks(count: int, groups: int, cost: int) -> Iterator[tuple[slice, slice]]:
    """(examples, groups) whose columns fit a block; one costs ``cost`` bytes."""
    some = max(1, min(groups, BLOCK // max(cost, 1)))
    many = max(1, BLOCK // max(cost * some, 1)) if some == groups else 1
    for g in range(0, groups, some):
        for n in range(0, count, many):
            yield slice(n, min(n + many, count)), slice(g, min(g + some, groups))


def _columns(x: Any, grid: Grid, groups: int) -> Iterator[tuple[slice, slice, Any]]:
    """Blocks (examples, groups, columns (g, C/groups * K, n, cells))."""
    view = _windows(x, grid)
    each = x.shape[1] // groups
    rows, cells = each * math.prod(grid.kernel), math.prod(grid.cells)
    before = (slice(None),) * len(grid.kernel)
    store = np.empty(0, x.dtype)
    for ns, gs in _blocks(x.shape[0], groups, rows * cells * x.itemsize):
        n, g = ns.stop - ns.start, gs.stop - gs.start
        if store.size != g * rows * n * cells:
            store = np.empty(g * rows * n * cells, x.dtype)
            if grid.runs:
                store.reshape(-1, cells)[:, grid.run :] = 0
        cols = store.reshape(g * each, *grid.kernel, n, -1)
        part = view[(slice(gs.start * each, gs.stop * each), *before, ns)]
        if grid.runs:
            cols[..., : grid.run] = part
        else:
            cols.reshape(part.shape)[...] = part
        yield ns, gs, store.reshape(g, rows, n * cells)


def _spread(y: Any, grid: Grid) -> Any:
    """Output cells (n, g, o, *counts) in columns' layout, (g, o, n * cells)."""
    n, g, o = y.shape[:3]
    channels = np.moveaxis(y, 0, 2)
    if not grid.runs:
        return channels.reshape(g, o, -1)
    out = np.zeros((g, o, n, *grid.cells), y.dtype)
    out[grid.valid] = channels
    return out.reshape(g, o, -1)


# -- evaluation


def _wide(*arrays: Any) -> list[Any]:
    """Halves as float32: that is how products are summed."""
    return [a.astype(np.float32) if a.dtype.char in HALF else a for a in arrays]


def _conv_eval(
    x: Any, w: Any, *, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int,
    bias: Any = None,
) -> Any:  # fmt: skip
    dtype, kernel = x.dtype, w.shape[2:]
    x, w, *more = _wide(x, w, *([] if bias is None else [bias]))
    counts = window_counts(x.shape[2:], kernel, stride, padding, dilation)
    each = w.shape[0] // groups
    shift = more[0].reshape(groups, each, 1) if more else None
    x = _padded(x, padding)
    if math.prod(kernel) == 1:
        out = _pointwise(x, w, stride, groups)
        if shift is not None:
            out += shift
    else:
        grid = _grid(x.shape[2:], kernel, stride, _none(kernel), dilation)
        rows = w.reshape(groups, each, -1)
        out = np.empty((x.shape[0], groups, each, *counts), x.dtype)
        for ns, gs, cols in _columns(x, grid, groups):
            got = product(rows[gs], cols)
            if shift is not None:
                got += shift[gs]
            got = got.reshape(*got.shape[:2], ns.stop - ns.start, *grid.cells)
            out[ns, gs] = np.moveaxis(got[grid.valid], 2, 0)
    return out.reshape(x.shape[0], w.shape[0], *counts).astype(dtype, copy=False)


def _none(sizes: Sizes) -> Pairs:
    return ((0, 0),) * len(sizes)


def _pointwise(x: Any, w: Any, stride: Sizes, groups: int) -> Any:
    """A kernel of one element: a matrix product over the channels."""
    x = x[(..., *(slice(None, None, s) for s in stride))]
    n, o = x.shape[0], w.shape[0]
    cells = math.prod(x.shape[2:])
    rows = w.reshape(groups, o // groups, w.shape[1])
    return product(rows, x.reshape(n, groups, w.shape[1], cells))


def _input_grad_eval(
    y: Any, w: Any, *, size: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes,
    groups: int,
) -> Any:  # fmt: skip
    dtype, kernel = y.dtype, w.shape[2:]
    if all(s == 1 for s in stride) and w.shape[0] <= w.shape[1] * groups:
        return _flipped_conv(y, w, padding, dilation, groups)
    y, w = _wide(y, w)
    exact = not np.isfinite(w).all()  # a cell of no output must add 0
    grid = _grid(size, kernel, stride, padding, dilation, exact)
    n, each, o = y.shape[0], w.shape[1], w.shape[0] // groups
    y = y.reshape(n, groups, o, *y.shape[2:])
    rows = np.swapaxes(w.reshape(groups, o, -1), 1, 2)
    out = np.zeros((n, groups * each, *grid.size), y.dtype)
    # columns are read once here, so blocks may be larger and fewer
    cost = max(rows.shape[1], o) * math.prod(grid.cells) * y.itemsize // 4
    for ns, gs in _blocks(n, groups, cost):
        cols = product(rows[gs], _spread(y[ns, gs], grid))
        cols = cols.reshape(-1, *kernel, ns.stop - ns.start, *grid.cells)
        part = out[ns, gs.start * each : gs.stop * each]
        _add_windows(np.swapaxes(part, 0, 1), cols, grid)
    return _unpadded(out, padding).astype(dtype, copy=False)


def _flipped_conv(y: Any, w: Any, padding: Pairs, dilation: Sizes, groups: int) -> Any:
    """The gradient for stride 1: y convolved with the flipped weights."""
    kernel = w.shape[2:]
    o, each = w.shape[0] // groups, w.shape[1]
    flipped = np.flip(w, tuple(range(2, w.ndim))).reshape(groups, o, each, *kernel)
    rest = tuple(
        (d * (k - 1) - lo, d * (k - 1) - hi)
        for k, d, (lo, hi) in zip(kernel, dilation, padding, strict=True)
    )
    weights = np.swapaxes(flipped, 1, 2).reshape(groups * each, o, *kernel)
    return _conv_eval(
        y,
        np.ascontiguousarray(weights),
        stride=(1,) * len(kernel),
        padding=rest,
        dilation=dilation,
        groups=groups,
    )


def _add_windows(x: Any, cols: Any, grid: Grid) -> None:
    """Add columns (C, *K, N, *cells) to where padded x (C, N, *size) has them."""
    if not grid.runs:
        for tap in grid.taps:
            x[grid.window(tap)] += cols[(slice(None), *tap)]
        return
    flat = x.reshape(*x.shape[:2], -1)  # x's rows are contiguous: a view
    run = grid.run
    runs = cols.reshape(*cols.shape[: -len(grid.cells)], -1)
    for tap in grid.taps:
        a = grid.start(tap)
        flat[..., a : a + run] += runs[(slice(None), *tap)][..., :run]


def _weight_grad_eval(
    x: Any, y: Any, *, size: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes,
    groups: int,
) -> Any:  # fmt: skip
    dtype = x.dtype
    x, y = _wide(x, y)
    params = (size, stride, padding, dilation, groups)
    out = _correlate(x, y, *params, False)
    if not np.isfinite(out).all():  # a cell of no output may have met infinity
        out = _correlate(x, y, *params, True)
    return out.astype(dtype, copy=False)


def _correlate(
    x: Any, y: Any, size: Sizes, stride: Sizes, padding: Pairs,
    dilation: Sizes, groups: int, exact: bool,
) -> Any:  # fmt: skip
    n, each, o = x.shape[0], x.shape[1] // groups, y.shape[1] // groups
    x = _padded(x, padding)
    grid = _grid(x.shape[2:], size, stride, _none(size), dilation, exact)
    y = y.reshape(n, groups, o, *y.shape[2:])
    out = np.zeros((groups, o, each * math.prod(size)), x.dtype)
    for ns, gs, cols in _columns(x, grid, groups):
        out[gs] += product(_spread(y[ns, gs], grid), np.swapaxes(cols, 1, 2))
    return out.reshape(groups * o, each, *size)


# -- types


def _check_types(name: str, x: TensorType, y: TensorType, spatial: int) -> None:
    check_accepts(name, "real number", x.dtype)
    if x.dtype is not y.dtype:
        raise DTypeError(
            f"{name}: expected equal dtypes, got {x.dtype.name} and {y.dtype.name}"
        )
    if not len(x.shape) == len(y.shape) == spatial + 2:
        raise ShapeError(
            f"{name}: expected two tensors of {spatial + 2} dimensions, got shapes "
            f"{x.shape} and {y.shape}"
        )


def _check_equal(name: str, what: str, have: Any, want: Any) -> None:
    if have != want:
        raise ShapeError(f"{name}: expected {what} {want}, got {have}")


def _conv_type(
    x: TensorType, w: TensorType, *, stride: Sizes, padding: Pairs, dilation: Sizes,
    groups: int,
) -> TensorType:  # fmt: skip
    _check_types("conv", x, w, len(stride))
    _check_equal("conv", "input channels", x.shape[1], w.shape[1] * groups)
    counts = window_counts(x.shape[2:], w.shape[2:], stride, padding, dilation)
    if any(n < 1 for n in counts):
        raise ShapeError(f"conv: no window fits input {x.shape}, weight {w.shape}")
    return TensorType((x.shape[0], w.shape[0], *counts), x.dtype)


def _input_grad_type(
    y: TensorType, w: TensorType, *, size: Sizes, stride: Sizes, padding: Pairs,
    dilation: Sizes, groups: int,
) -> TensorType:  # fmt: skip
    _check_types("conv_input_grad", y, w, len(stride))
    _check_equal("conv_input_grad", "channels", y.shape[1], w.shape[0])
    counts = window_counts(size, w.shape[2:], stride, padding, dilation)
    _check_equal("conv_input_grad", "sizes", y.shape[2:], counts)
    return TensorType((y.shape[0], w.shape[1] * groups, *size), y.dtype)


def _weight_grad_type(
    x: TensorType, y: TensorType, *, size: Sizes, stride: Sizes, padding: Pairs,
    dilation: Sizes, groups: int,
) -> TensorType:  # fmt: skip
    _check_types("conv_weight_grad", x, y, len(stride))
    _check_equal("conv_weight_grad", "batch", y.shape[0], x.shape[0])
    counts = window_counts(x.shape[2:], size, stride, padding, dilation)
    _check_equal("conv_weight_grad", "sizes", y.shape[2:], counts)
    return TensorType((y.shape[1], x.shape[1] // groups, *size), x.dtype)


# -- batching: into the examples where the weights are shared, else into the groups


def _into_channels(x: Tensor, batched: bool, size: int) -> Tensor:
    """x (B, N, C, ...) as (N, B * C, ...), repeated if it has no batch."""
    if not batched:
        x = expand(x, (size, *x.shape))
    x = movedim(x, 0, 1)
    return reshape(x, (x.shape[0], size * x.shape[2], *x.shape[3:]))


def _from_channels(x: Tensor, size: int) -> Tensor:
    x = reshape(x, (x.shape[0], size, x.shape[1] // size, *x.shape[2:]))
    return movedim(x, 1, 0)


def _into_rows(x: Tensor) -> Tensor:
    """(B, N, ...) as (B * N, ...)."""
    return reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def _from_rows(x: Tensor, size: int) -> Tensor:
    return reshape(x, (size, x.shape[0] // size, *x.shape[1:]))


def _conv_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    x, w = args
    if not batched[1]:
        return _from_rows(op(_into_rows(x), w, **params), size)
    if not batched[0] and params["groups"] == 1 and op is conv_op:
        return _from_channels(op(x, _into_rows(w), **params), size)
    more = dict(params, groups=params["groups"] * size)
    x = _into_channels(x, batched[0], size)
    return _from_channels(op(x, _into_rows(w), **more), size)


def _weight_grad_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    x, y = args
    if not batched[0] and params["groups"] == 1:
        y = _into_channels(y, True, size)
        return _from_rows(op(x, y, **params), size)
    more = dict(params, groups=params["groups"] * size)
    x = _into_channels(x, batched[0], size)
    y = _into_channels(y, batched[1], size)
    return _from_rows(op(x, y, **more), size)


# -- samples and references


class _Shape(NamedTuple):
    """One convolution of the tests."""

    x: Sizes
    w: Sizes
    stride: Sizes
    padding: Pairs
    dilation: Sizes
    groups: int

    @property
    def params(self) -> dict[str, Any]:
        return dict(list(self._asdict().items())[2:])

    @property
    def y(self) -> Sizes:
        counts = window_counts(self.x[2:], self.w[2:], *self[2:5])
        return (self.x[0], self.w[0], *counts)


_SHAPES = (
    _Shape((2, 3, 5), (2, 3, 2), (1,), ((1, 0),), (2,), 1),
    _Shape((2, 2, 4, 3), (4, 1, 3, 2), (1, 1), ((1, 1), (0, 1)), (1, 1), 2),
    _Shape((1, 2, 6, 5), (1, 2, 2, 3), (2, 3), ((0, 0), (2, 2)), (1, 1), 1),
    _Shape((2, 4, 3, 3), (2, 2, 1, 1), (1, 2), ((0, 0), (0, 0)), (1, 1), 2),
    _Shape((1, 1, 3, 2, 2), (1, 1, 2, 2, 1), (1, 1, 1), ((0, 0),) * 3, (1, 1, 1), 1),
    _Shape((1, 1, 6), (2, 1, 2), (2,), ((-1, 1),), (1,), 1),
    _Shape((0, 2, 4), (2, 2, 3), (1,), ((0, 0),), (1,), 1),
)


def _conv_samples(rng: np.random.Generator) -> Any:
    for s in _SHAPES:
        yield Sample((rng.uniform(-2, 2, s.x), rng.uniform(-2, 2, s.w)), s.params)


def _input_grad_samples(rng: np.random.Generator) -> Any:
    for s in _SHAPES:
        args = rng.uniform(-2, 2, s.y), rng.uniform(-2, 2, s.w)
        yield Sample(args, dict(s.params, size=s.x[2:]))


def _weight_grad_samples(rng: np.random.Generator) -> Any:
    for s in _SHAPES:
        args = rng.uniform(-2, 2, s.x), rng.uniform(-2, 2, s.y)
        yield Sample(args, dict(s.params, size=s.w[2:]))


def _products(shape: _Shape) -> Iterator[tuple[Sizes, Sizes, Sizes]]:
    """The indices in x, w and y of every product that a convolution sums."""
    each, per = shape.w[1], shape.w[0] // shape.groups
    for n, o, *at in np.ndindex(*shape.y):
        for c, *tap in np.ndindex(*shape.w[1:]):
            position = [
                a * s + t * d - lo
                for a, t, s, d, (lo, _) in zip(
                    at, tap, shape.stride, shape.dilation, shape.padding, strict=True
                )
            ]
            if all(0 <= p < m for p, m in zip(position, shape.x[2:], strict=True)):
                x = (n, o // per * each + c, *position)
                yield x, (o, c, *tap), (n, o, *at)


def _conv_reference(x: Any, w: Any, **params: Any) -> Any:
    shape = _Shape(x.shape, w.shape, **params)
    y = np.zeros(shape.y)
    for i, j, k in _products(shape):
        y[k] += x[i] * w[j]
    return y


def _input_grad_reference(y: Any, w: Any, *, size: Sizes, **params: Any) -> Any:
    x = np.zeros((y.shape[0], w.shape[1] * params["groups"], *size))
    for i, j, k in _products(_Shape(x.shape, w.shape, **params)):
        x[i] += y[k] * w[j]
    return x


def _weight_grad_reference(x: Any, y: Any, *, size: Sizes, **params: Any) -> Any:
    w = np.zeros((y.shape[1], x.shape[1] // params["groups"], *size))
    for i, j, k in _products(_Shape(x.shape, w.shape, **params)):
        w[j] += x[i] * y[k]
    return w


# -- composed of windows and products


def _in_groups(x: Tensor, groups: int, rows: Any, cells: Any) -> Tensor:
    """(N, C, ..., cells) as (N, groups, rows, columns)."""
    return reshape(x, (x.shape[0], groups, rows, math.prod(cells)))


def _group_weights(w: Tensor, count: Any, groups: int) -> Tensor:
    """Weights as a matrix for each group, repeated for each example."""
    rows = w.shape[0] // groups
    flat = reshape(w, (1, groups, rows, math.prod(w.shape[1:])))
    return expand(flat, (count, *flat.shape[1:]))


def _window_columns(x: Tensor, kernel: Any, groups: int, **windows: Any) -> Tensor:
    """Windows as the columns of a matrix for each group of channels."""
    rows = x.shape[1] // groups * math.prod(kernel)
    columns = im2col_op(x, kernel=tuple(kernel), **windows)
    return _in_groups(columns, groups, rows, columns.shape[2 + len(kernel) :])


def _composed_conv(x: Tensor, w: Tensor, *, groups: int, **windows: Any) -> Tensor:
    columns = _window_columns(x, w.shape[2:], groups, **windows)
    y = matmul(_group_weights(w, x.shape[0], groups), columns)
    counts = window_counts(x.shape[2:], w.shape[2:], **windows)
    return reshape(y, (x.shape[0], w.shape[0], *counts))


def _composed_input_grad(
    y: Tensor, w: Tensor, *, size: Sizes, groups: int, **windows: Any
) -> Tensor:
    weights = transpose(_group_weights(w, y.shape[0], groups), -1, -2)
    columns = matmul(weights, _in_groups(y, groups, y.shape[1] // groups, y.shape[2:]))
    shape = (y.shape[0], w.shape[1] * groups, *w.shape[2:], *y.shape[2:])
    return col2im_op(reshape(columns, shape), size=size, **windows)


def _composed_weight_grad(
    x: Tensor, y: Tensor, *, size: Sizes, groups: int, **windows: Any
) -> Tensor:
    columns = _window_columns(x, size, groups, **windows)
    rows = _in_groups(y, groups, y.shape[1] // groups, y.shape[2:])
    # all pixels of all examples are summed: (groups, rows, N * pixels)
    left, right = (
        reshape(movedim(m, 0, 2), (groups, m.shape[2], m.shape[0] * m.shape[3]))
        for m in (rows, columns)
    )
    w = matmul(left, transpose(right, -1, -2))
    return reshape(w, (y.shape[1], x.shape[1] // groups, *size))


def _composed_bias(x: Tensor, w: Tensor, b: Tensor, **params: Any) -> Tensor:
    out = conv_op(x, w, **params)
    return out + _along_channels(b, out)


# -- the records


def _conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Any:
    return conv_op(
        x, w, stride=stride, padding=padding, dilation=dilation, groups=groups
    )


def _input_grad(
    y: Any, w: Any, size: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    return conv_input_grad_op(
        y, w, size=size, stride=stride, padding=padding, dilation=dilation,
        groups=groups,
    )  # fmt: skip


def _weight_grad(
    x: Any, y: Any, size: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    return conv_weight_grad_op(
        x, y, size=size, stride=stride, padding=padding, dilation=dilation,
        groups=groups,
    )  # fmt: skip


conv_op: Op = define(
    "conv",
    inputs="x w",
    eval=_conv_eval,
    bulk=_BULK,
    type=_conv_type,
    lower=Library("conv", "forward", composed=_composed_conv),
    flops=lambda out, x, w: (2, *out, *w[1:]),
    vjp={
        "x": lambda g, x_shape, w, stride, padding, dilation, groups: _input_grad(
            g, w, x_shape[2:], stride, padding, dilation, groups
        ),
        "w": lambda g, x, w_shape, stride, padding, dilation, groups: _weight_grad(
            x, g, w_shape[2:], stride, padding, dilation, groups
        ),
    },
    jvp={
        "x": lambda t, w, stride, padding, dilation, groups: _conv(
            t, w, stride, padding, dilation, groups
        ),
        "w": lambda t, x, stride, padding, dilation, groups: _conv(
            x, t, stride, padding, dilation, groups
        ),
    },
    batch=_conv_batch,
    samples=_conv_samples,
    reference=_conv_reference,
)

conv_input_grad_op: Op = define(
    "conv_input_grad",
    inputs="y w",
    eval=_input_grad_eval,
    bulk=_BULK,
    type=_input_grad_type,
    lower=Library("conv", "input_grad", composed=_composed_input_grad),
    flops=lambda out, y, w: (2, *y, *w[1:]),
    vjp={
        "y": lambda g, w, stride, padding, dilation, groups: _conv(
            g, w, stride, padding, dilation, groups
        ),
        "w": lambda g, y, w_shape, stride, padding, dilation, groups: _weight_grad(
            g, y, w_shape[2:], stride, padding, dilation, groups
        ),
    },
    jvp={
        "y": lambda t, w, size, stride, padding, dilation, groups: _input_grad(
            t, w, size, stride, padding, dilation, groups
        ),
        "w": lambda t, y, size, stride, padding, dilation, groups: _input_grad(
            y, t, size, stride, padding, dilation, groups
        ),
    },
    batch=_conv_batch,
    samples=_input_grad_samples,
    reference=_input_grad_reference,
)

conv_weight_grad_op: Op = define(
    "conv_weight_grad",
    inputs="x y",
    eval=_weight_grad_eval,
    bulk=_BULK,
    type=_weight_grad_type,
    lower=Library("conv", "weight_grad", composed=_composed_weight_grad),
    flops=lambda out, x, y: (2, *y, *out[1:]),
    vjp={
        "x": lambda g, x_shape, y, stride, padding, dilation, groups: _input_grad(
            y, g, x_shape[2:], stride, padding, dilation, groups
        ),
        "y": lambda g, x, stride, padding, dilation, groups: _conv(
            x, g, stride, padding, dilation, groups
        ),
    },
    jvp={
        "x": lambda t, y, size, stride, padding, dilation, groups: _weight_grad(
            t, y, size, stride, padding, dilation, groups
        ),
        "y": lambda t, x, size, stride, padding, dilation, groups: _weight_grad(
            x, t, size, stride, padding, dilation, groups
        ),
    },
    batch=_weight_grad_batch,
    samples=_weight_grad_samples,
    reference=_weight_grad_reference,
)


# -- with a bias, added while a block is in the cache


def _bias_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    x, w, b = args
    if batched[0] or batched[1]:
        out = _conv_batch(conv_op, size, (x, w), batched[:2], params)
    else:
        out = conv_op(x, w, **params)
    lead = (size, 1) if batched[2] else ()
    return out + reshape(b, (*lead, b.shape[-1], *(1,) * (w.ndim - batched[1] - 2)))


def _bias_samples(rng: np.random.Generator) -> Any:
    for args, params in _conv_samples(rng):
        yield Sample((*args, rng.uniform(-2, 2, args[1].shape[0])), params)


def _bias_reference(x: Any, w: Any, b: Any, **params: Any) -> Any:
    out = _conv_reference(x, w, **params)
    for o in range(len(b)):
        out[:, o] += b[o]
    return out


def _along_channels(t: Tensor, out: Tensor) -> Tensor:
    """One number an output channel, at every position."""
    return expand(reshape(t, (-1, *(1,) * (out.ndim - 2))), out.shape)


conv_bias_op: Op = define(
    "conv_bias",
    inputs="x w b",
    eval=lambda x, w, b, **params: _conv_eval(x, w, bias=b, **params),
    bulk=_BULK,
    type=lambda x, w, b, **params: _conv_type(x, w, **params),
    lower=Library("conv", "biased", composed=_composed_bias),
    flops=lambda out, x, w, b: (2, *out, *w[1:]),
    vjp={
        **conv_op.vjp,  # type: ignore[dict-item]
        "b": lambda g: g.sum((0, *range(2, g.ndim))),
    },
    jvp={
        **conv_op.jvp,  # type: ignore[dict-item]
        "b": lambda t, out: _along_channels(t, out),
    },
    batch=_bias_batch,
    samples=_bias_samples,
    reference=_bias_reference,
)


# -- windows copied out, and added back


def _im2col_eval(
    x: Any, *, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Any:
    x = _padded(x, padding)
    grid = _grid(x.shape[2:], kernel, stride, _none(kernel), dilation, True)
    cols = _windows(x, grid)
    return np.ascontiguousarray(np.moveaxis(cols, len(kernel) + 1, 0))


def _col2im_eval(
    x: Any, *, size: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> Any:
    (cols,) = _wide(x)
    kernel = x.shape[2 : 2 + len(size)]
    grid = _grid(size, kernel, stride, padding, dilation, True)
    out = np.zeros((*x.shape[:2], *grid.size), cols.dtype)
    for tap in grid.taps:
        out[grid.window(tap)] += cols[(slice(None), slice(None), *tap)]
    return _unpadded(out, padding).astype(x.dtype, copy=False)


def _im2col_type(
    x: TensorType, *, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes
) -> TensorType:
    counts = window_counts(x.shape[2:], kernel, stride, padding, dilation)
    return TensorType((*x.shape[:2], *kernel, *counts), x.dtype)


def _fold_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    return _from_rows(op(_into_rows(args[0]), **params), size)


def _im2col_samples(rng: np.random.Generator) -> Any:
    for s in _SHAPES:
        params = dict(s.params, kernel=s.w[2:])
        del params["groups"]
        yield Sample((rng.uniform(-2, 2, s.x),), params)


def _col2im_samples(rng: np.random.Generator) -> Any:
    for s in _SHAPES:
        params = dict(s.params, size=s.x[2:])
        del params["groups"]
        yield Sample((rng.uniform(-2, 2, (*s.x[:2], *s.w[2:], *s.y[2:])),), params)


def _im2col_reference(x: Any, *, kernel: Sizes, **params: Any) -> Any:
    c = x.shape[1]
    shape = _Shape(x.shape, (c, 1, *kernel), **params, groups=c)
    out = np.zeros((*x.shape[:2], *kernel, *shape.y[2:]))
    for i, (_, _, *tap), (n, o, *at) in _products(shape):
        out[(n, o, *tap, *at)] = x[i]
    return out


def _col2im_reference(x: Any, *, size: Sizes, **params: Any) -> Any:
    n, c, kernel = x.shape[0], x.shape[1], x.shape[2 : 2 + len(size)]
    out = np.zeros((n, c, *size))
    shape = _Shape(out.shape, (c, 1, *kernel), **params, groups=c)
    for i, (_, _, *tap), (n, o, *at) in _products(shape):
        out[i] += x[(n, o, *tap, *at)]
    return out


def _inside(k: Any, value: Any, positions: list[Any], sizes: Any) -> Any:
    """A value where all indices are inside, else zero."""
    zero = k.number(0)
    for position, n in zip(reversed(positions), reversed(sizes), strict=True):
        value = k.choice(position, 0, zero, k.choice(position, n, value, zero))
    return value


def _im2col_element(
    k: Any, out: Any, x: Any, *, kernel: Sizes, stride: Sizes, padding: Pairs,
    dilation: Sizes,
) -> Any:  # fmt: skip
    taps, at = out[2 : 2 + len(kernel)], out[2 + len(kernel) :]
    positions = [
        i * s + t * d - low
        for i, t, s, d, (low, _) in zip(
            at, taps, stride, dilation, padding, strict=True
        )
    ]
    return _inside(k, x[*out[:2], *positions], positions, x.shape[2:])


def _col2im_element(
    k: Any, out: Any, x: Any, *, size: Sizes, stride: Sizes, padding: Pairs,
    dilation: Sizes,
) -> Any:  # fmt: skip
    """The sum of the taps at this element, in their order."""
    dims = len(size)
    kernel, counts = x.shape[2 : 2 + dims], x.shape[2 + dims :]
    wide = k.dtype.to_total()
    total = k.number(0, wide)
    for tap in itertools.product(*map(range, kernel)):
        positions = [
            i + low - t * d
            for i, t, d, (low, _) in zip(out[2:], tap, dilation, padding, strict=True)
        ]
        windows = [q // s for q, s in zip(positions, stride, strict=True)]
        value = x[*out[:2], *tap, *windows]
        for position, s in zip(positions, stride, strict=True):
            if s != 1:
                hit = k.call("eq", k.at(position % s), k.at(0))
                value = k.call("where", hit, value, k.number(0))
        ends = [(n - 1) * s + 1 for n, s in zip(counts, stride, strict=True)]
        value = cast_element(k, _inside(k, value, positions, ends), wide)
        total = k.call("add", total, value)
    return cast_element(k, total, k.dtype)


def _few_taps(x: Any, *, size: Sizes, **params: Any) -> Any:
    """Taps are written out one by one."""
    kernel = x[2 : 2 + len(size)]
    few = all(isinstance(n, int) for n in kernel) and math.prod(kernel) <= 16
    return Element(_col2im_element) if few else None


im2col_op: Op = define(
    "im2col",
    inputs="x",
    lower=Element(_im2col_element),
    eval=_im2col_eval,
    type=_im2col_type,
    vjp={
        "x": lambda g, x_shape, stride, padding, dilation: col2im_op(
            g, size=x_shape[2:], stride=stride, padding=padding, dilation=dilation
        )
    },
    linear=True,
    batch=_fold_batch,
    samples=_im2col_samples,
    reference=_im2col_reference,
)

col2im_op: Op = define(
    "col2im",
    inputs="x",
    lower=Varied(_few_taps),
    eval=_col2im_eval,
    type=lambda x, *, size, **params: TensorType((*x.shape[:2], *size), x.dtype),
    vjp={
        "x": lambda g, x_shape, size, stride, padding, dilation: im2col_op(
            g,
            kernel=x_shape[2 : 2 + len(size)],
            stride=stride,
            padding=padding,
            dilation=dilation,
        )
    },
    linear=True,
    batch=_fold_batch,
    samples=_col2im_samples,
    reference=_col2im_reference,
)
