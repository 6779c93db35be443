"""Functions under PyTorch's names that are compositions of other operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft import naming
from weft.core.dims import normalize_dim, normalize_dims
from weft.core.results import results
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.arithmetic import abs as absolute
from weft.ops.copies import cast, in_float32
from weft.ops.creation import full, ones
from weft.ops.elementwise import check_accepts
from weft.ops.index import as_row
from weft.ops.joining import cat
from weft.ops.operands import concrete
from weft.ops.products import mm, scaled_sum
from weft.ops.public import public
from weft.ops.random import drawn_with, randint
from weft.ops.scattering import scatter_reduce
from weft.ops.select import where
from weft.ops.shaping import movedim, reshape, unsqueeze
from weft.ops.slicing import narrow, split
from weft.ops.statistics import norm

# -- products


@public(method=True, inplace="weft.zeros(1, 2, 4), weft.zeros(1, 4, 2)")
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input`` plus ``alpha`` times the sum of a batch of matrix products.

    >>> a = weft.ones(3, 2, 2)
    >>> weft.addbmm(weft.zeros(2, 2), a, a)
    tensor([[6., 6.],
            [6., 6.]])
    """
    if batch1.ndim != 3 or batch2.ndim != 3:
        raise ShapeError(
            "addbmm: expected batches of matrices, got shapes "
            f"{batch1.shape} and {batch2.shape}"
        )
    if batch1.shape[::2] != batch2.shape[:2]:
        raise ShapeError(
            f"addbmm: shapes {batch1.shape} and {batch2.shape} do not fit; expected "
            "(b, n, m) and (b, m, p)"
        )
    # side by side, the batch is one long sum: it is rounded once
    left = movedim(batch1, 0, 1).flatten(1)
    product = mm(left, batch2.flatten(0, 1))
    return scaled_sum("addbmm", input, product, beta, alpha)


@public(method=True)
def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """The outer product of two vectors, under its older name.

    >>> weft.ger(weft.tensor([1, 2]), weft.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    from weft.ops.products import outer

    return outer(input, vec2)


# -- pieces


@public(method=True)
def split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Pieces of these lengths along a dimension.

    >>> [len(part) for part in weft.arange(5).split_with_sizes([2, 3])]
    [2, 3]
    """
    return split(input, list(split_sizes), dim)


@public(method=True)
def unsafe_split(input: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """``split``, under PyTorch's name for pieces that may each change in place.

    >>> [len(part) for part in weft.arange(5).unsafe_split(2)]
    [2, 2, 1]
    """
    return split(input, split_size, dim)


@public(method=True)
def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """``split_with_sizes``, under PyTorch's other name.

    >>> [len(part) for part in weft.arange(5).unsafe_split_with_sizes([2, 3])]
    [2, 3]
    """
    return split(input, list(split_sizes), dim)


@public(method=True)
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``chunk``, under PyTorch's other name.

    >>> [len(part) for part in weft.arange(5).unsafe_chunk(2)]
    [3, 2]
    """
    return input.chunk(chunks, dim)


@public(method=True)
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A part along a dimension, in memory of its own.

    >>> weft.arange(5).narrow_copy(0, 1, 2)
    tensor([1, 2])
    """
    return narrow(input, dim, start, length).clone()


@public(method=True)
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int = 0
) -> Tensor:
    """A copy of the tensor with the elements that ``as_strided`` sees replaced.

    >>> weft.zeros(2, 2).as_strided_scatter(weft.ones(2), (2,), (3,))
    tensor([[1., 0.],
            [0., 1.]])
    """
    out = input.clone()
    out.as_strided(size, stride, storage_offset).copy_(src)
    return out


@public()
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like another one, of one value.

    >>> weft.fill(weft.zeros(2), 3)
    tensor([3., 3.])
    """
    return input.clone().fill_(value)


@public()
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """The tensor with constants around it; ``pad`` begins with the last dimension.

    >>> weft.constant_pad_nd(weft.ones(1), (1, 2), 5)
    tensor([5., 1., 5., 5.])
    """
    from weft.ops.padding import pad as padded

    return padded(input, tuple(pad), "constant", value)


# -- norms


@public()
def frobenius_norm(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The root of the sum of squares, of all elements or along dimensions.

    >>> weft.frobenius_norm(weft.tensor([[3.0, 4.0]]))
    tensor(5.)
    """
    chosen = None if isinstance(dim, (list, tuple)) and not dim else dim
    return norm(input, 2, chosen, keepdim)


@public()
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but one, which stays.

    >>> weft.norm_except_dim(weft.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5.],
            [1.]])
    """
    if dim == -1:
        return norm(v, pow)
    d = normalize_dim("norm_except_dim", dim, v.ndim)
    if v.ndim == 1:
        return absolute(v)
    return norm(v, pow, tuple(k for k in range(v.ndim) if k != d), True)


@public(method=True, inplace="2, 0, 1")
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The tensor with slices along a dimension scaled down to a largest norm.

    >>> weft.tensor([[3.0, 4.0], [0.0, 1.0]]).renorm(2, 0, 1)
    tensor([[0.6000, 0.8000],
            [0.0000, 1.0000]])
    """
    check_accepts("renorm", "inexact", input.dtype)
    if input.ndim < 2:
        raise ShapeError(
            f"renorm: expected at least 2 dimensions, got shape {input.shape}"
        )
    if p <= 0 or maxnorm < 0:
        raise ArgumentError(
            f"renorm: expected p above 0 and maxnorm of at least 0, got {p}, {maxnorm}"
        )
    d = normalize_dim("renorm", dim, input.ndim)
    rest = tuple(k for k in range(input.ndim) if k != d)

    def scaled_down(x: Tensor) -> Tensor:
        size = norm(x, p, rest, True)
        return x * cast(where(size > maxnorm, maxnorm / (size + 1e-7), 1.0), x.dtype)

    return in_float32(scaled_down, input)


# -- reductions by index


_INDEX_REDUCE = {"prod": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}


@public(
    method=True,
    inplace="0, weft.tensor([0]), weft.ones(1, 2), 'amax'",
)
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """A copy with slices of ``source`` combined with those at the indices.

    >>> x, ids = weft.tensor([1.0, 2.0]), weft.tensor([0, 0])
    >>> x.index_reduce(0, ids, weft.tensor([5.0, 3.0]), "amax")
    tensor([5., 2.])
    """
    if reduce not in _INDEX_REDUCE:
        raise ArgumentError(
            "index_reduce: reduce must be 'prod', 'mean', 'amax' or 'amin', got "
            f"{reduce!r}"
        )
    if input.ndim == 0:
        rows = index_reduce(
            as_row(input), dim, index, as_row(source), reduce, include_self=include_self
        )
        return reshape(rows, ())
    d = normalize_dim("index_reduce", dim, input.ndim)
    if index.ndim > 1:
        raise ShapeError(
            f"index_reduce: expected a vector of indices, got {index.shape}"
        )
    ids = index.reshape([-1 if k == d else 1 for k in range(max(source.ndim, 1))])
    spread = ids.expand(source.shape).to(dtypes.int64)
    return scatter_reduce(input, d, spread, source, reduce, include_self=include_self)


@public()
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Sums, means, products or extremes of consecutive segments of a dimension.

    >>> x = weft.tensor([1.0, 2.0, 3.0, 4.0])
    >>> weft.segment_reduce(x, "max", lengths=weft.tensor([1, 3]))
    tensor([1., 4.])
    """
    starts = {"sum": 0, "mean": 0, "prod": 1, "max": -math.inf, "min": math.inf}
    if reduce not in starts:
        raise ArgumentError(
            f"segment_reduce: reduce must be one of {sorted(starts)}, got {reduce!r}"
        )
    counts = _segment_lengths(lengths, offsets)
    batch = counts.ndim - 1
    if axis != batch:
        raise ArgumentError(
            "segment_reduce: expected axis to be the last dimension of lengths, "
            f"{batch}, got {axis}"
        )
    sizes = concrete("segment_reduce", counts)
    if not unsafe and ((sizes < 0).any() or (sizes.sum(-1) != data.shape[axis]).any()):
        raise ArgumentError(
            f"segment_reduce: expected lengths that add up to {data.shape[axis]}, got "
            f"{sizes.tolist()}"
        )
    first = starts[reduce] if initial is None else initial
    rows = np.array([np.repeat(np.arange(len(row)), row)
                     for row in sizes.reshape(-1, sizes.shape[-1])])  # fmt: skip
    where_to = Tensor(rows.reshape(*sizes.shape[:-1], -1)).to(data.device)
    for _ in range(data.ndim - where_to.ndim):
        where_to = unsqueeze(where_to, -1)
    shape = list(data.shape)
    shape[axis] = sizes.shape[-1]
    start = full(shape, first, dtype=data.dtype, device=data.device)
    how = {"max": "amax", "min": "amin", "mean": "sum"}.get(reduce, reduce)
    out = scatter_reduce(start, axis, where_to.expand(data.shape), data, how)
    if reduce != "mean":
        return out
    for _ in range(data.ndim - counts.ndim):
        counts = unsqueeze(counts, -1)
    mean = out / cast(counts, out.dtype)
    return mean if initial is None else where(counts > 0, mean, initial)


def _segment_lengths(lengths: Tensor | None, offsets: Tensor | None) -> Tensor:
    if lengths is not None:
        return lengths
    if offsets is None:
        raise ArgumentError("segment_reduce: expected lengths or offsets")
    return offsets.diff(dim=-1)


# -- samples of a function


@public()
def gradient(
    input: Tensor,
    *,
    spacing: Any = 1,
    dim: Any = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """Estimates of a sampled function's derivative along dimensions, to second order.

    ``spacing`` is the distance of samples, one for each dimension, or the samples'
    coordinates.

    >>> weft.gradient(weft.tensor([1.0, 4.0, 9.0, 16.0]))[0]
    tensor([3., 4., 6., 7.])
    """
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order must be 1 or 2, got {edge_order}")
    dims = normalize_dims("gradient", dim, input.ndim)
    spacing = 1 if spacing is None else spacing
    steps = (
        list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    )
    if len(steps) != len(dims):
        raise ArgumentError(
            f"gradient: expected a spacing for each of {len(dims)} dimensions, got "
            f"{len(steps)}"
        )
    if not input.dtype.is_inexact:
        input = cast(input, dtypes.default_dtype())
    return tuple(
        _slope(input, d, step, edge_order) for d, step in zip(dims, steps, strict=True)
    )


def _slope(x: Tensor, dim: int, step: Any, edge_order: int) -> Tensor:
    n = x.shape[dim]
    if n <= edge_order:
        raise ShapeError(
            f"gradient: expected more than {edge_order} samples along dimension {dim}, "
            f"got {n}"
        )
    if isinstance(step, Tensor) and step.ndim == 1:
        if step.shape[0] != n:
            raise ShapeError(
                f"gradient: expected {n} coordinates for dimension {dim}, got "
                f"{step.shape[0]}"
            )
        gaps = cast(step.diff(), x.dtype.to_real())
    else:
        gaps = ones(n - 1, dtype=x.dtype.to_real(), device=x.device) * step
    y = movedim(x, dim, -1)
    rises = (y[..., 1:] - y[..., :-1]) / gaps
    before, after = gaps[:-1], gaps[1:]
    middle = (before * rises[..., 1:] + after * rises[..., :-1]) / (before + after)
    first, last = rises[..., :1], rises[..., -1:]
    if edge_order == 2:
        a, b = gaps[0], gaps[1]
        first = first + (first - rises[..., 1:2]) * (a / (a + b))
        a, b = gaps[-1], gaps[-2]
        last = last + (last - rises[..., -2:-1]) * (a / (a + b))
    return movedim(cat([first, middle, last], -1), -1, dim)


@results("frexp")
class Frexp(NamedTuple):
    """The result of ``frexp``."""

    mantissa: Tensor
    exponent: Tensor


@public(method=True)
def frexp(input: Tensor) -> Frexp:
    """A mantissa in [0.5, 1) and a power of 2 for each element.

    The gradient flows through the mantissa.

    >>> weft.frexp(weft.tensor([8.0, 0.75]))
    weft.return_types.frexp(
    mantissa=tensor([0.5000, 0.7500]),
    exponent=tensor([4, 0], dtype=weft.int32))
    """
    check_accepts("frexp", "floating", input.dtype)
    array = concrete("frexp", input.detach())
    _, power = np.frexp(array.astype(np.float64))
    exponent = Tensor(np.asarray(power, np.int32)).to(input.device)
    wide = array.dtype.itemsize < 4
    half = cast(input, dtypes.float32) if wide else input
    low = exponent // 2  # in two steps, for powers that have no float of their own
    mantissa = half.ldexp(-low).ldexp(low - exponent)
    mantissa = where(input.isfinite(), mantissa, half)
    return Frexp(cast(mantissa, input.dtype), exponent)


@public(method=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The positions of nonzero elements, as many rows as said.

    >>> weft.tensor([0, 3, 4]).nonzero_static(size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    if not isinstance(size, int) or size < 0:
        raise ArgumentError(
            f"nonzero_static: expected size of at least 0, got {size!r}"
        )
    found = input.nonzero()[:size]
    rest = full((size - found.shape[0], input.ndim), fill_value, dtype=dtypes.int64)
    return cat([found, rest.to(input.device)])


@public(method=True, inplace="2")
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions.

    >>> weft.mvlgamma(weft.tensor([3.0]), 2)
    tensor([1.5502])
    """
    from weft.ops.gamma_functions import multigammaln

    return multigammaln(input, p)


def typename(obj: Any, /) -> str:
    """The name of a tensor's type, or of an object's class.

    >>> weft.typename(weft.zeros(1)), weft.typename(3)
    ('torch.FloatTensor', 'int')
    """
    if isinstance(obj, Tensor):
        return obj.type()
    kind = type(obj)
    module = getattr(obj, "__module__", None) or kind.__module__
    name = getattr(obj, "__qualname__", None) or kind.__qualname__
    if module == "builtins":
        return name
    first, _, rest = f"{module}.{name}".partition(".")
    return f"{naming.library() if first == 'weft' else first}.{rest}"


# -- random numbers


@public()
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Random counts, each with the mean that the element says.

    >>> weft.poisson(weft.zeros(2))
    tensor([0., 0.])
    """
    check_accepts("poisson", "floating", input.dtype)
    means = concrete("poisson", input.detach()).astype(np.float64)
    if (means < 0).any() or np.isnan(means).any():
        raise ArgumentError("poisson: expected means of at least 0")
    drawn = _numpy_stream(generator).poisson(means)
    return drawn_with(Tensor(np.asarray(drawn, input.dtype.np)).to(input.device), input)


@public()
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Random numbers of successes among ``count`` trials of probability ``prob``.

    >>> weft.binomial(weft.tensor([4.0]), weft.tensor([1.0]))
    tensor([4.])
    """
    check_accepts("binomial", "floating", count.dtype)
    if count.dtype is not prob.dtype:
        raise DTypeError(
            f"binomial: expected one dtype, got {count.dtype.name} and "
            f"{prob.dtype.name}"
        )
    n = concrete("binomial", count.detach()).astype(np.float64)
    p = concrete("binomial", prob.detach()).astype(np.float64)
    if (n < 0).any() or (p < 0).any() or (p > 1).any():
        raise ArgumentError(
            "binomial: expected counts of at least 0 and probabilities from 0 to 1"
        )
    drawn = _numpy_stream(generator).binomial(np.floor(n).astype(np.int64), p)
    numbers = Tensor(np.asarray(drawn, count.dtype.np)).to(count.device)
    return drawn_with(numbers, count, prob)


def _numpy_stream(generator: Any) -> np.random.Generator:
    """NumPy's generator, seeded by the next words of one of ours."""
    seed = randint(0, 2**62, (2,), generator=generator)
    return np.random.default_rng(concrete("random", seed).tolist())
