"""A step of training, simulated: who computes what when, and what is sent.

The order of each process is that of the schedule which would run
(``pipelining.orders``). An event is a microbatch's forward or backward in a stage; it
begins when the process is free and its input has come. Collectives take the time of
their rings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from weft.distributed.pipelining import orders
from weft.distributed.pipelining.orders import Action
from weft.distributed.planning.cluster import Cluster
from weft.distributed.planning.memory import peak
from weft.distributed.planning.profile import Linear, Profiles, Times
from weft.distributed.planning.strategy import (
    Strategy,
    held,
    microbatches,
    stages_of,
)
from weft.distributed.planning.traffic import traffic
from weft.distributed.planning.work import Layer, Work

# How often bytes of parameters go through memory for messages to be made and read.
COPIES = {"none": 4, "states": 9, "gradients": 9, "all": 13}


class Estimate(NamedTuple):
    """What is predicted of a strategy."""

    seconds: float  # of a step
    memory: float  # bytes of the process that has the most
    sent: float  # bytes that such a process sends in a step
    computing: float  # the share of the step in which it computes


class Measured(NamedTuple):
    """Measurements of a model: its layers and loss, and the batch's bytes.

    Where no seconds were, a cluster says how long things take.
    """

    profiles: Profiles
    example: float

    def seconds(self, work: Work, rows: int) -> dict[str, Times]:
        """Times by the names of layers; the loss is called ``loss_fn``."""
        names = [*(one.name for one in work.layers), "loss_fn"]
        return dict(zip(names, self.profiles.seconds(rows), strict=False))


class _Stage(NamedTuple):
    forward: float
    backward: float
    parameters: float
    largest: float  # parameters of one layer
    kept: float
    passes: float
    sent: float


def simulate(
    work: Work,
    strategy: Strategy,
    cluster: Cluster,
    measured: Measured | None = None,
) -> Estimate:
    """The time, memory and traffic of a step.

    ``measured`` are bytes and seconds of layers that were measured.

    >>> planning = weft.distributed.planning
    >>> work = planning.transformer(
    ...     layers=4, width=64, sequence=32, vocab=100, batch=8)
    >>> cluster = planning.Cluster(flops=1e9, near=1e9, latency=1e-9)
    >>> one = planning.simulate(work, planning.Strategy(), cluster)
    >>> two = planning.simulate(work, planning.Strategy(data=2), cluster)
    >>> 1.9 < one.seconds / two.seconds < 2
    True
    """
    count = microbatches(work, strategy)
    parts = stages_of(work, strategy)
    times = {} if measured is None else measured.seconds(work, strategy.microbatch)
    stages = [_stage(part, work, strategy, cluster, times) for part in parts]
    if times:
        stages[-1] = _with_loss(stages[-1], times["loss_fn"], strategy)
    hop = _hop(stages, strategy, cluster)
    seconds, busy = _run(stages, strategy, count, hop)
    shared, bytes_shared = _shared(stages, work, strategy, cluster)
    total = seconds + shared + _update(stages, work, strategy, cluster)
    if measured is None:
        most = _memory(stages, work, strategy, count)
    else:
        profile = measured.profiles.of(strategy.microbatch)
        most = peak(work, strategy, profile, measured.example)
    if work.layers[0].weights:
        sent = float(max(sum(sends.values()) for sends in traffic(work, strategy)))
    else:
        sent = max(
            count * (own.sent + 2 * own.passes * (strategy.pipeline > 1))
            for own in stages
        ) * strategy.rounds + bytes_shared  # fmt: skip
    # Rounded, so that what takes as long is a tie.
    return Estimate(float(f"{total:.12g}"), most, sent, busy / total)


def _stage(
    layers: list[Layer], work: Work, strategy: Strategy, cluster: Cluster,
    times: Mapping[str, Times],
) -> _Stage:  # fmt: skip
    t, b = strategy.tensor, strategy.microbatch
    speed = cluster.flops * cluster.efficiency
    compute = sum(
        b * _each(x.flops, x.alone.flops, t) / speed
        + b * _each(x.moved, x.alone.moved, t, strategy.sequence) / cluster.bandwidth
        + x.operators * cluster.overhead
        for x in layers
    )
    backward = 2 * compute
    if times:
        compute = sum(_seconds(x, times[x.name].forward, strategy) for x in layers)
        backward = sum(_seconds(x, times[x.name].backward, strategy) for x in layers)
    exchanged = b * sum(x.exchanges for x in layers)
    ring, bytes_sent = _ring(exchanged, t, cluster.link(t), cluster)
    forward = compute + ring + cluster.latency * _sums(layers) * (t > 1)
    again = forward if strategy.recompute else 0.0
    kept = sum(
        x.passes if strategy.recompute else _each(x.kept, x.alone.kept, t)
        for x in layers
    )
    return _Stage(
        forward, backward + (forward - compute) + again,
        held(layers, t), max((held([x], t) for x in layers), default=0),
        b * kept, b * layers[-1].passes / t if layers else 0.0,
        bytes_sent * (3 if strategy.recompute else 2),
    )  # fmt: skip


def _seconds(layer: Layer, time: Linear, strategy: Strategy) -> float:
    """The time of a microbatch in a layer that was measured."""
    row = time.row * strategy.microbatch
    share = layer.alone.flops / layer.flops if layer.flops else 1.0
    return time.fixed + _each(row, share * row, strategy.tensor)


def _with_loss(stage: _Stage, time: Times, strategy: Strategy) -> _Stage:
    """The last stage, with the loss."""
    b = strategy.microbatch
    return stage._replace(
        forward=stage.forward + time.forward.of(b),
        backward=stage.backward + time.backward.of(b),
    )


def _each(all_of_it: float, alone: float, count: int, cut: bool = False) -> float:
    """What one of ``count`` does of a work of which each does a part alone."""
    return all_of_it / count if cut else alone + (all_of_it - alone) / count


def _sums(layers: list[Layer]) -> float:
    """The sums over tensor parallel processes in forward."""
    measured = [len(x.sums) + len(x.sums_back) for x in layers if x.weights]
    return sum(measured) / 2 + 2 * sum(not x.weights for x in layers)


def _ring(
    size: float, count: int, speed: float, cluster: Cluster
) -> tuple[float, float]:
    """The time of an ``all_reduce``, and what each process sends."""
    if count == 1:
        return 0.0, 0.0
    sent = 2 * size * (count - 1) / count
    return sent / speed, sent


def _hop(stages: list[_Stage], strategy: Strategy, cluster: Cluster) -> float:
    """The time of a message from a stage to the next."""
    if strategy.pipeline == 1:
        return 0.0
    size = max(one.passes for one in stages)
    return cluster.latency + size / cluster.link(2 * strategy.tensor)


def _order(rank: int, strategy: Strategy, count: int) -> list[Action]:
    size = strategy.pipeline
    if strategy.rounds > 1:
        return list(orders.interleaved(rank, size, strategy.rounds, count))
    return list(orders.one_forward_one_backward(rank, size, count))


def _run(
    stages: list[_Stage], strategy: Strategy, count: int, hop: float
) -> tuple[float, float]:
    """When the last event ends, and how long the busiest process computes."""
    size, last = strategy.pipeline, len(stages) - 1
    waiting = [_order(rank, strategy, count) for rank in range(size)]
    at, free, busy = [0] * size, [0.0] * size, [0.0] * size
    done: dict[Action, float] = {}
    ready = list(range(size))
    while ready:
        rank = ready.pop()
        while at[rank] < len(waiting[rank]):
            event = waiting[rank][at[rank]]
            kind, stage, k = event
            back = kind == "B"
            needs = [Action("F", stage, k)] if back else []
            beside = stage + 1 if back else stage - 1
            if 0 <= beside <= last:
                needs.append(Action(kind, beside, k))
            if not all(need in done for need in needs):
                break
            came = [done[n] + hop * (n.stage != stage) for n in needs]
            takes = stages[stage].backward if back else stages[stage].forward
            free[rank] = done[event] = max([free[rank], *came]) + takes
            busy[rank] += takes
            at[rank] += 1
            after = stage - 1 if back else stage + 1
            if 0 <= after <= last and after % size not in (rank, *ready):
                ready.append(after % size)
    return max(free), max(busy)


def _shared(
    stages: list[_Stage], work: Work, strategy: Strategy, cluster: Cluster
) -> tuple[float, float]:
    """The time and bytes in which data parallel processes combine gradients."""
    d = strategy.data
    held = max(
        sum(one.parameters for one in stages[rank :: strategy.pipeline])
        for rank in range(strategy.pipeline)
    )
    size = held * work.itemsize
    if d == 1:
        return 0.0, 0.0
    # gathering twice and reducing once, or reducing and gathering once
    factor = 1.5 if strategy.sharding == "all" else 1.0
    reach = strategy.world if strategy.tensor < cluster.per_machine else math.inf
    seconds, sent = _ring(
        factor * size, d, cluster.link(int(min(reach, 1 << 60))), cluster
    )
    copies = COPIES[strategy.sharding] * size / cluster.bandwidth
    return seconds + cluster.latency * math.log2(d) + copies, sent


def _update(
    stages: list[_Stage], work: Work, strategy: Strategy, cluster: Cluster
) -> float:
    """The time of the optimizer: it reads all that it has, and writes most of it."""
    shards = strategy.data if strategy.sharding != "none" else 1
    moved = 3 * work.itemsize + 2 * work.states
    most = max(
        sum(one.parameters for one in stages[rank :: strategy.pipeline])
        for rank in range(strategy.pipeline)
    )
    return most / shards * moved / cluster.bandwidth


def _memory(stages: list[_Stage], work: Work, strategy: Strategy, count: int) -> float:
    """The bytes of the process that needs the most."""
    most = 0.0
    d, size = strategy.data, strategy.pipeline
    for rank in range(size):
        own = stages[rank::size]
        held = sum(one.parameters for one in own)
        values, states = 2 * held * work.itemsize, held * work.states
        if strategy.sharding != "none":
            states /= d
        if strategy.sharding == "all":
            whole = max(one.largest for one in own) * work.itemsize
            values = values / d + 2 * whole
        ahead = min(count * strategy.rounds, _ahead(rank, strategy))
        kept = ahead * max(one.kept for one in own)
        most = max(most, values + states + kept)
    return most


def _ahead(rank: int, strategy: Strategy) -> int:
    """Microbatches that a process holds at once, of all of its stages."""
    if strategy.rounds == 1:
        return strategy.pipeline - rank
    return (
        (strategy.rounds - 1) * strategy.pipeline + 2 * (strategy.pipeline - rank) - 1
    )
