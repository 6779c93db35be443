"""The search for the best strategy: all that there are, and the fastest that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from weft.core.tensor import Tensor
from weft.distributed import groups
from weft.distributed.objects import broadcast_object_list
from weft.distributed.planning.cluster import Cluster
from weft.distributed.planning.simulate import Estimate, Measured, simulate
from weft.distributed.planning.strategy import SHARDING, Strategy, pieces_of
from weft.distributed.planning.training import TrainingStep
from weft.distributed.planning.work import Model, Work
from weft.errors import ArgumentError
from weft.memory import parse_bytes
from weft.optim.optimizer import Optimizer


class Plan(NamedTuple):
    """The strategies that fit, the fastest first, with what is predicted of them."""

    work: Work
    found: tuple[tuple[Strategy, Estimate], ...]
    model: Model | None = None

    @property
    def best(self) -> Strategy:
        """The fastest strategy."""
        return self.found[0][0]

    @property
    def estimate(self) -> Estimate:
        """What is predicted of it."""
        return self.found[0][1]

    def training_step(self, *, strategy: Strategy | None = None) -> TrainingStep:
        """Share the module out to the processes, as the best strategy says or another.

        The result is called with a whole batch on every process: ``step(*inputs,
        target)`` trains, and returns the loss of the batch. The plan needs a
        ``loss_fn``, and an optimizer of the module's parameters that has made no step.
        """
        if self.model is None:
            raise ArgumentError(
                "training_step: this plan is of work alone; pass the module to parallel"
            )
        if strategy is None:  # rank 0's, should others have measured otherwise
            held: list[Any] = [list(self.best)]
            if groups.started().links.size > 1:
                broadcast_object_list(held, 0)
            strategy = Strategy(*held[0])
        return TrainingStep(self.model, strategy)

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
    loss_fn: Callable[[Any, Any], Any] | None = None,
    optimizer: Optimizer | None = None,
    world: int | None = None,
    memory: Any = None,
    cluster: Any = None,
) -> Plan:
    """Search for the best way to train a module on ``world`` processes.

    ``example`` is a whole batch of inputs; with ``loss_fn(output, target)``, a mean
    over samples, the target is its last part. ``world`` are the processes that there
    are, unless it says how many. ``memory`` is what each may take, as bytes or
    ``"16 GB"``; ``cluster`` is a ``Cluster`` or the path of a JSON file, or else this
    machine is measured, by all processes together if there are some. The plan prints as
    a table of the fastest strategies, whose times and memory are predictions; its
    ``training_step`` runs one of them.

    >>> net = weft.nn.Sequential(weft.nn.Linear(64, 256), weft.nn.Linear(256, 8))
    >>> cluster = weft.distributed.planning.Cluster(flops=1e9, near=1e8, latency=1e-6)
    >>> plan = weft.distributed.planning.parallel(
    ...     net, weft.ones(64, 64), world=4, cluster=cluster)
    >>> plan.best.world
    4
    """
    if world is None:
        world = groups.started().groups[""].size()
    if type(world) is not int or world < 1:
        raise ArgumentError(f"parallel: expected world of at least 1, got {world!r}")
    model = None
    if not isinstance(module, Work):
        model = Model(module, example, loss_fn, optimizer)
    here = cluster is None
    if cluster is None:
        cluster = Cluster.measured()
    elif not isinstance(cluster, Cluster):
        cluster = Cluster.load(cluster)
    most = cluster.memory if memory is None else parse_bytes(memory, "parallel")
    work = module if model is None else model.work()
    found = None if model is None else _measured(model, most, here)
    every = [
        (s, simulate(model.work(s.tensor) if model else work, s, cluster, found))
        for s in strategies(model or work, world)
    ]
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
    return Plan(work, tuple(fitting), model)


def _measured(model: Model, limit: float, here: bool) -> Measured:
    """A model's needs on few rows, and its times if this machine is planned for."""
    example = sum(x.nbytes for x in model.example if isinstance(x, Tensor))
    return Measured(model.profiles(limit, here), float(example))


def strategies(source: Model | Work, world: int) -> Iterator[Strategy]:
    """All strategies of as many processes."""
    for tensor in _divisors(world):
        work = source.work(tensor) if isinstance(source, Model) else source
        if tensor > 1 and all(x.flops == x.alone.flops > 0 for x in work.layers):
            continue  # no layer can work on parts
        most = len(pieces_of(work, tensor))
        for pipeline in _divisors(world // tensor):
            data = world // pipeline // tensor
            if work.batch % data or pipeline > most:
                continue
            for microbatch in _divisors(work.batch // data):
                for sharding in SHARDING if data > 1 else SHARDING[:1]:
                    yield Strategy(data, tensor, pipeline, microbatch, 1, sharding)


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]
