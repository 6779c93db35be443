"""Clusters: devices, and the links between them."""

from __future__ import annotations

import json
import math
import os
import time
from typing import Any

import weft
from weft.errors import ArgumentError, FileFormatError


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

    @staticmethod
    def measured() -> Cluster:
        """This machine: what a product reaches, and copies between processes.

        Links are measured as a copy of memory, which a message takes two of.
        """
        a = weft.ones(512, 512)
        flops = 2 * 512**3 / _fastest(lambda: a @ a)
        x = weft.ones(1 << 22)
        speed = x.nbytes / _fastest(lambda: x.clone())
        return Cluster(
            flops=flops,
            bandwidth=2 * speed,
            near=speed / 2,
            per_machine=os.cpu_count() or 1,
            latency=1e-4,
        )

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value:g}" for name, value in vars(self).items())
        return f"Cluster({said})"


def _fastest(call: Any) -> float:
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
