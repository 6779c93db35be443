"""Strategies: how a model is shared out to processes, and which has what of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from weft.distributed.planning.work import Layer, Weight, Work
from weft.errors import ArgumentError

# What data parallel processes share out: each has the things before it as well.
SHARDING = ("none", "states", "gradients", "all")


class Strategy(NamedTuple):
    """How a model is shared out: ``data * tensor * pipeline`` processes.

    ``rounds`` are the stages of each process, ``microbatch`` the samples of one,
    ``sharding`` is ``states``, ``gradients`` or ``all`` for ZeRO-1, 2 and 3. With
    ``recompute``, activations are computed again in backward; with ``sequence``, tensor
    parallel processes share out what is between their products, too.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    microbatch: int = 1
    rounds: int = 1
    sharding: str = "none"
    recompute: bool = False
    sequence: bool = False

    @property
    def world(self) -> int:
        """The number of processes."""
        return self.data * self.tensor * self.pipeline


def microbatches(work: Work, strategy: Strategy) -> int:
    """The number of microbatches; an error if the strategy does not fit the work."""
    if strategy.sharding not in SHARDING:
        raise ArgumentError(
            f"Strategy: expected sharding of {', '.join(SHARDING)}, got "
            f"{strategy.sharding!r}"
        )
    samples = strategy.data * strategy.microbatch
    if min(strategy[:5]) < 1 or work.batch % samples:
        raise ArgumentError(
            f"simulate: a batch of {work.batch} does not divide into microbatches of "
            f"{strategy.microbatch} on {strategy.data} processes"
        )
    count = work.batch // samples
    if strategy.rounds > 1 and count % strategy.pipeline:
        raise ArgumentError(
            f"simulate: {count} microbatches are no multiple of {strategy.pipeline} "
            "processes, as several stages of each need"
        )
    number = strategy.pipeline * strategy.rounds
    pieces = len(pieces_of(work, strategy.tensor))
    if number > pieces:
        raise ArgumentError(f"simulate: {pieces} layers do not make {number} stages")
    return count


def pieces_of(work: Work, tensor: int) -> list[list[Layer]]:
    """Layers that stay together: those between which tensors are in parts."""
    if tensor == 1 or not work.joined:
        return [[layer] for layer in work.layers]
    every = iter(work.layers)
    return [list(itertools.islice(every, count)) for count in work.joined]


def stages_of(work: Work, strategy: Strategy) -> list[list[Layer]]:
    """The layers of each stage: runs of about as many operations."""
    pieces = pieces_of(work, strategy.tensor)
    number = strategy.pipeline * strategy.rounds
    flops = [sum(one.flops for one in piece) for piece in pieces]
    return [
        [layer for k in some for layer in pieces[k]] for some in _parts(flops, number)
    ]


def held(layers: Sequence[Layer], tensor: int, rank: int = 0) -> float:
    """The elements of the parameters of which a tensor parallel process has parts."""
    if layers and layers[0].weights:
        return sum(math.prod(w.part(tensor, rank)) for w in weights(layers))
    return sum(one.parameters for one in layers) / tensor


def weights(layers: Sequence[Layer]) -> list[Weight]:
    """The parameters of some layers in the model's order, shared ones once."""
    found = {w.place: w for one in reversed(layers) for w in reversed(one.weights)}
    return [found[place] for place in sorted(found)]


def _parts(flops: Sequence[float], number: int) -> list[list[int]]:
    """Indices in as many runs of about as many operations."""
    total = sum(flops)
    parts: list[list[int]] = [[] for _ in range(number)]
    done = 0.0
    for k, own in enumerate(flops):
        at = int((done + own / 2) / total * number) if total else k
        left = len(flops) - k  # every later stage needs a layer
        first = next((s for s, part in enumerate(parts) if not part), number)
        at = min(max(at, 0), number - 1, first)
        if number - first >= left:
            at = min(first, number - 1)
        parts[at].append(k)
        done += own
    return parts
