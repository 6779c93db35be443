"""Random nodes: new numbers in every run, from a counter that the graph keeps."""

from __future__ import annotations

from typing import Any

from weft import ops
from weft.dtype import as_dtype, float32
from weft.ops import random as draws
from weft.ops.random import Generator
from weft.static.graph import StaticTensor, get_default_graph
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


def random_uniform(
    shape: Any,
    minval: float = 0.0,
    maxval: float = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
) -> StaticTensor:
    """Uniform numbers, new ones in every run.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.random_uniform([2, 3])).shape
    (2, 3)
    """
    graph = get_default_graph()
    with graph.taking():
        unit = draws.rand(
            tuple(shape), dtype=as_dtype(dtype), generator=_generator(seed)
        )
        return unit * (maxval - minval) + minval


def random_normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
) -> StaticTensor:
    """Normal numbers, new ones in every run.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.random_normal([4])).shape
    (4,)
    """
    graph = get_default_graph()
    with graph.taking():
        unit = draws.randn(
            tuple(shape), dtype=as_dtype(dtype), generator=_generator(seed)
        )
        return unit * stddev + mean


def truncated_normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = float32,
    seed: int | None = None,
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
    with get_default_graph().taking():
        z = erfinv(unit) * 2.0**0.5
        return ops.select.clamp(z, -2.0, 2.0) * stddev + mean


record_all(globals())
