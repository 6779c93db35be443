"""Random nodes: new numbers in every run, from a counter that the graph keeps."""

from __future__ import annotations

from typing import Any

from weft import ops
from weft.dtype import as_dtype, float32, float64, int64
from weft.errors import ArgumentError
from weft.ops import random as draws
from weft.ops.random import Generator
from weft.static.building import as_node, building, function, named
from weft.static.graph import StaticTensor, get_default_graph
from weft.static.shapes import sizes_of
from weft.static.unranked import record_all


def set_random_seed(seed: int) -> None:
    """Seed the random nodes that the default graph gets from here on.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.set_random_seed(1)
    """
    get_default_graph().generator = Generator().manual_seed(seed)  # type: ignore[attr-defined]


def _generator(seed: int | None) -> Generator:
    if seed is not None:
        return Generator().manual_seed(seed)
    graph = get_default_graph()
    found = graph.__dict__.get("generator")
    if found is None:
        found = Generator().manual_seed(draws.initial_seed())
        graph.generator = found  # type: ignore[attr-defined]
    return found


def _whole(shape: Any, low: Any, high: Any, dtype: Any, seed: Any) -> Any:
    if high is None:
        raise ArgumentError("random_uniform: whole numbers need maxval=")
    drawn = draws.randint(
        int(low), int(high), sizes_of(shape), generator=_generator(seed)
    )
    return drawn.to(dtype)


def random_uniform(
    shape: Any,
    minval: float = 0.0,
    maxval: float | None = None,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> StaticTensor:
    """Uniform numbers, new ones in every run.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.random_uniform([2, 3])).shape
    (2, 3)
    """
    wanted = as_dtype(dtype)
    with building():
        if not wanted.is_inexact:
            return named(_whole(shape, minval, maxval, wanted, seed), name)
        unit = draws.rand(sizes_of(shape), dtype=wanted, generator=_generator(seed))
        top = 1.0 if maxval is None else maxval
        return named(unit * (top - minval) + minval, name)


def random_normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> StaticTensor:
    """Normal numbers, new ones in every run.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.random_normal([4])).shape
    (4,)
    """
    with building():
        unit = draws.randn(
            sizes_of(shape), dtype=as_dtype(dtype), generator=_generator(seed)
        )
        return named(unit * stddev + mean, name)


def truncated_normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
    name: str | None = None,
) -> StaticTensor:
    """Normal numbers no further than two deviations from the mean.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     bool((abs(session.run(weft.static.truncated_normal([99]))) <= 2).all())
    True
    """
    from weft.special import erfinv

    # the distribution's quantiles, uniform between those of -2 and 2
    edge = 0.9544997361036416  # erf(2 / sqrt(2))
    unit = random_uniform(shape, -edge, edge, dtype, seed)
    with building():
        z = erfinv(unit) * 2.0**0.5
        return named(ops.select.clamp(z, -2.0, 2.0) * stddev + mean, name)


@function
def random_shuffle(value: Any, seed: int | None = None) -> Any:
    """The rows of a tensor in random order, another one in every run.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     sorted(session.run(weft.static.random_shuffle([3, 1, 2])).tolist())
    [1, 2, 3]
    """
    x = as_node(value)
    keys = draws.rand((x.shape[0],), dtype=float64, generator=_generator(seed))
    return ops.index.index_select(x, 0, ops.sorting.argsort(keys))


@function
def multinomial(
    logits: Any, num_samples: int, seed: int | None = None, output_dtype: Any = int64
) -> Any:
    """Classes drawn for each row, by the logarithms of their chances.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.multinomial([[0.0, -99.0]], 3))
    array([[0, 0, 0]])
    """
    x = as_node(logits)
    # the largest of log-chances plus Gumbel noise is drawn by those chances
    shape = (x.shape[0], num_samples, x.shape[1])
    noise = draws.rand(shape, dtype=float64, generator=_generator(seed))
    noise = -(-(noise.clamp(1e-300)).log()).log()
    return (x.unsqueeze(1).to(float64) + noise).argmax(-1).to(as_dtype(output_dtype))


@function
def random_crop(value: Any, size: Any, seed: int | None = None) -> Any:
    """A block of a given size, at a random place in every run.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.random_crop(np.ones((4, 4, 3)), [2, 2, 3])).shape
    (2, 2, 3)
    """
    x = as_node(value)
    for d, n in enumerate(sizes_of(size)):
        spare = x.shape[d] - n
        if isinstance(spare, int) and spare == 0:
            continue
        start = draws.rand((), dtype=float64, generator=_generator(seed))
        start = (start * (spare + 1)).floor().to(int64)
        places = start + ops.creation.arange(n)
        x = ops.index.index_select(x, d, places)
    return x


def random_gamma(
    shape: Any, alpha: Any, beta: Any = 1.0, dtype: Any = float32, seed: Any = None,
    name: str | None = None,
) -> StaticTensor:  # fmt: skip
    """Numbers of gamma distributions, new ones in every run.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.random_gamma([3], 2.0)).shape
    (3,)
    """
    from weft.distributions import Gamma

    with building():
        a, b = as_node(alpha, dtype), as_node(beta, dtype)
        made = Gamma(a, b, validate_args=False).rsample(sizes_of(shape))
        return named(made, name)


record_all(globals())
