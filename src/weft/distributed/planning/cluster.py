"""Clusters: devices, and the links between them."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from typing import Any

import weft
from weft.distributed import collectives, groups
from weft.errors import ArgumentError, FileFormatError

LONG = 0.15  # seconds in which something is measured
CHAIN = 50  # operators in a row


class Cluster:
    """Devices of one kind, some of which share a machine.

    ``flops`` are operations a second of which ``efficiency`` is what products reach,
    ``memory`` bytes of a device and ``bandwidth`` bytes a second of its memory.
    ``near`` and ``far`` are bytes a second that a device sends, inside of a machine of
    ``per_machine`` devices and to others; ``latency`` is the time of an empty message
    and ``overhead`` that of an operator on no elements.

    >>> pair = weft.distributed.planning.Cluster(flops=1e12, near=1e9, per_machine=2)
    >>> pair.link(2), pair.link(4)
    (1000000000.0, 1000000000.0)
    """

    def __init__(
        self,
        *,
        flops: float,
        efficiency: float = 1.0,
        memory: float = math.inf,
        bandwidth: float = math.inf,
        near: float,
        far: float | None = None,
        per_machine: int = 1,
        latency: float = 1e-5,
        overhead: float = 0.0,
    ) -> None:
        self.flops, self.efficiency, self.memory = flops, efficiency, memory
        self.bandwidth = bandwidth
        self.near, self.far = near, near if far is None else far
        self.per_machine, self.latency = per_machine, latency
        self.overhead = overhead
        for name, value in vars(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            none = name == "overhead" and value == 0
            if not number or not (value > 0 or none):
                raise ArgumentError(
                    f"Cluster: expected {name} to be a number above 0, got {value!r}"
                )

    def link(self, reach: int) -> float:
        """Bytes a second among devices that are ``reach`` places apart, or fewer."""
        return self.near if reach <= self.per_machine else self.far

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Cluster:
        """A cluster from a JSON file with the names of the arguments."""
        try:
            with open(path, encoding="utf-8") as file:
                found: Any = json.load(file)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"{path}: this is no JSON: {error}") from None
        known = ("flops", "efficiency", "memory", "bandwidth", "near", "far",
                 "per_machine", "latency", "overhead")  # fmt: skip
        if not isinstance(found, dict) or not {"flops", "near"} <= set(found):
            raise FileFormatError(f"{path}: expected an object with flops and near")
        unknown = [name for name in found if name not in known]
        if unknown:
            raise FileFormatError(
                f"{path}: unknown {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return Cluster(**found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a JSON file, which ``load`` reads.

        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     weft.distributed.planning.Cluster(flops=2.0, near=1.0).save(file.name)
        ...     weft.distributed.planning.Cluster.load(file.name).flops
        2.0
        """
        known = {k: v for k, v in vars(self).items() if v != math.inf}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(known, file, indent=1)

    @staticmethod
    def measured(size: int = 1 << 20) -> Cluster:
        """This machine: products, memory, and operators on few elements.

        All processes of the world measure at the same time, so that what they share is
        measured as they share it; the slowest one's times count. Links are measured by
        sums of ``size`` numbers. A process alone takes a message for two copies of
        memory. It takes about a second.
        """
        size_of_world = groups.world().links.size if groups.initialized() else 1
        a, x = weft.ones(384, 384), weft.ones(1 << 22)
        product, copy = _slowest(lambda: a @ a), _slowest(lambda: x + x)
        small = _slowest(_chain) / (3 * CHAIN)  # backward takes as long as two forwards
        near, latency = x.nbytes / copy / 2, 1e-4
        if size_of_world > 1:
            latency = _slowest(lambda: collectives.all_reduce(weft.ones(1)))
            y = weft.ones(size)
            whole = _slowest(lambda: collectives.all_reduce(y))
            sent = 2 * (size_of_world - 1) / size_of_world * y.nbytes
            near = sent / max(whole - latency, 1e-9)
        return Cluster(
            flops=2 * 384**3 / product,
            bandwidth=3 * x.nbytes / copy,
            near=near,
            per_machine=os.cpu_count() or 1,
            latency=latency,
            overhead=small,
        )

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value:g}" for name, value in vars(self).items())
        return f"Cluster({said})"


def _chain() -> None:
    y = weft.ones(1, requires_grad=True)
    for _ in range(CHAIN):
        y = y * 2
    y.backward()


def _slowest(call: Callable[[], Any]) -> float:
    """The mean time of a call on the slowest of all processes, which call it as often.

    It is called long enough that processes which share a core all get their turn.
    """
    together = groups.initialized()
    start = time.perf_counter()
    call()
    once = _most(time.perf_counter() - start, together)
    count = max(3, math.ceil(LONG / once))
    start = time.perf_counter()
    for _ in range(count):
        call()
    return _most((time.perf_counter() - start) / count, together)


def _most(seconds: float, together: bool) -> float:
    """The largest of all processes' numbers."""
    found = weft.tensor([seconds], dtype=weft.float64)
    if together:
        collectives.all_reduce(found, collectives.ReduceOp.MAX)
    return found.item()
