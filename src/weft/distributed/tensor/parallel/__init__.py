"""``weft.distributed.tensor.parallel``: the layers of a model in parts.

parallelize_module(block, mesh["tp"], {
    "up": ColwiseParallel(),     # x → every process has some columns of the result
    "down": RowwiseParallel(),   # which are what it needs here; sums are combined
})
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any

from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor.parallel.styles import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)
from weft.errors import ArgumentError
from weft.nn import Module

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput",
    "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel",
    "SequenceParallel", "parallelize_module",
]  # fmt: skip


def parallelize_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Any:
    """Let the layers of a module work on parts, each in a style; returns the module.

    A plan names layers by their path, in which ``*`` is any name, or is the style of
    the module itself. The mesh has one dimension.

    >>> dist, parallel = weft.distributed, weft.distributed.tensor.parallel
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> net = weft.nn.Sequential(weft.nn.Linear(4, 8), weft.nn.Linear(8, 2))
    >>> _ = parallel.parallelize_module(net, dist.init_device_mesh("cpu", (1,)), {
    ...     "0": parallel.ColwiseParallel(), "1": parallel.RowwiseParallel()})
    >>> net(weft.ones(3, 4)).shape, net[0].weight.placements
    ((3, 2), (Shard(dim=0),))
    >>> dist.destroy_process_group()
    """
    if device_mesh is None or device_mesh.ndim != 1:
        raise ArgumentError(
            "parallelize_module: expected a mesh of one dimension, such as mesh['tp'], "
            f"got {device_mesh}"
        )
    if isinstance(parallelize_plan, ParallelStyle):
        return parallelize_plan.apply(module, device_mesh)
    if not isinstance(parallelize_plan, Mapping):
        raise ArgumentError(
            "parallelize_module: expected a style, or a dictionary of styles by path, "
            f"got {parallelize_plan!r}"
        )
    for path, style in parallelize_plan.items():
        if not isinstance(style, ParallelStyle):
            raise ArgumentError(
                f"parallelize_module: expected a style for {path!r}, got {style!r}"
            )
        found = list(_matching(module, path.split(".") if path else []))
        if not found:
            names = [name for name, _ in module.named_modules() if name]
            raise ArgumentError(
                f"parallelize_module: {path!r} is no path of a layer; there are "
                f"{', '.join(names)}"
            )
        for layer in found:
            style.apply(layer, device_mesh)
    return module


def _matching(module: Module, path: list[str]) -> Iterator[Module]:
    if not path:
        yield module
        return
    for name, child in _named(module, path):
        yield from _matching(child, path[len(name.split(".")) :])


def _named(module: Module, path: list[str]) -> Iterator[tuple[str, Module]]:
    for name, child in module.named_children():
        parts = name.split(".")
        pairs = zip(parts, path, strict=False)
        if len(parts) <= len(path) and all(fnmatch.fnmatch(a, b) for a, b in pairs):
            yield name, child
