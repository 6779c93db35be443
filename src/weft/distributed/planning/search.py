"""The search for the best strategy: all that there are, and the fastest that fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from weft.distributed.planning.cluster import Cluster
from weft.distributed.planning.simulate import SHARDING, Estimate, Strategy, simulate
from weft.distributed.planning.work import Work, measured_work
from weft.errors import ArgumentError
from weft.memory import parse_bytes


class Plan(NamedTuple):
    """The strategies that fit, the fastest first, with what is predicted of them."""

    work: Work
    found: tuple[tuple[Strategy, Estimate], ...]

    @property
    def best(self) -> Strategy:
        """The fastest strategy."""
        return self.found[0][0]

    @property
    def estimate(self) -> Estimate:
        """What is predicted of it."""
        return self.found[0][1]

    def __str__(self) -> str:
        head = (
            f"{self.work.parameters:,} parameters in {len(self.work.layers)} layers, a "
            f"batch of {self.work.batch}"
        )
        names = "data tensor pipeline microbatch sharding ms/step memory sent computing"
        rows = [names.split()]
        for s, e in self.found[:8]:
            rows.append([
                *map(str, (s.data, s.tensor, s.pipeline, s.microbatch, s.sharding)),
                f"{e.seconds * 1e3:.3g}", _bytes(e.memory), _bytes(e.sent),
                f"{e.computing:.0%}",
            ])  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join([head, *lines])

    def __repr__(self) -> str:
        return str(self)


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def parallel(
    module: Any,
    example: Any = None,
    *,
    world: int,
    memory: Any = None,
    cluster: Any = None,
) -> Plan:
    """Search for the best way to train a module on ``world`` processes.

    ``example`` is a whole batch of inputs. ``memory`` is what each process may take, as
    bytes or ``"16 GB"``; ``cluster`` is a ``Cluster`` or the path of a JSON file, or
    else this machine is measured. The plan prints as a table of the fastest strategies,
    whose times, memory and bytes are predictions of a model.

    >>> net = weft.nn.Sequential(weft.nn.Linear(64, 256), weft.nn.Linear(256, 8))
    >>> cluster = weft.distributed.planning.Cluster(flops=1e9, near=1e8, latency=1e-6)
    >>> plan = weft.distributed.planning.parallel(
    ...     net, weft.ones(64, 64), world=4, cluster=cluster)
    >>> plan.best.world
    4
    """
    if type(world) is not int or world < 1:
        raise ArgumentError(f"parallel: expected world of at least 1, got {world!r}")
    if cluster is None:
        cluster = Cluster.measured()
    elif not isinstance(cluster, Cluster):
        cluster = Cluster.load(cluster)
    most = cluster.memory if memory is None else parse_bytes(memory, "parallel")
    work = module if isinstance(module, Work) else measured_work(module, example)
    every = [(s, simulate(work, s, cluster)) for s in strategies(work, world)]
    if not every:
        raise ArgumentError(
            f"parallel: a batch of {work.batch} and {len(work.layers)} layers cannot "
            f"be shared out to {world} processes; change the batch"
        )
    fitting = [one for one in every if one[1].memory <= most]
    if not fitting:
        least = min(every, key=lambda one: one[1].memory)
        raise ArgumentError(
            f"parallel: nothing fits into {_bytes(most)} a process; the least is "
            f"{_bytes(least[1].memory)}, with {least[0]}"
        )
    fitting.sort(key=lambda one: (one[1].seconds, one[1].memory))
    return Plan(work, tuple(fitting))


def strategies(work: Work, world: int) -> Iterator[Strategy]:
    """All strategies of as many processes."""
    for pipeline in _divisors(world):
        if pipeline > len(work.layers):
            continue
        for tensor in _divisors(world // pipeline):
            data = world // pipeline // tensor
            if work.batch % data:
                continue
            for microbatch in _divisors(work.batch // data):
                if pipeline == 1 and microbatch < work.batch // data:
                    continue  # without a pipeline, nothing is gained
                for sharding in SHARDING if data > 1 else SHARDING[:1]:
                    yield Strategy(data, tensor, pipeline, microbatch, 1, sharding)


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]
