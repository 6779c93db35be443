"""Attention cut into blocks and tasks, and the jobs that say so."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.compile.targets.cpu.attention.record import ADDED, CHOSEN, NAMES
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.tiling import Tiling
from weft.runtime.cpu.address import round_up

_COST = COST.attention
ndarray = np.ndarray
_FIELD = {name: at for at, name in enumerate(NAMES)}
_STRIDED = ("q", "k", "v", "g")


class Plan(NamedTuple):
    """Jobs of equally many tasks."""

    function: str
    jobs: list[ndarray]
    places: list[tuple[int, ...]]  # of each job among the leading axes
    tasks: int  # of each job
    workspace: int  # bytes for each worker


class Options(NamedTuple):
    """The parameters of an attention."""

    causal: bool
    scale: float
    zeros: bool  # a row that sees nobody gives zeros, else NaN


def forward(
    arrays: Mapping[str, ndarray], options: Options, tile: Tiling, threads: int
) -> Plan:
    """The plan of ``o`` and ``lse`` from ``q``, ``k``, ``v`` and maybe ``mask``."""
    *lead, rows, depth = arrays["q"].shape
    width = arrays["v"].shape[-1]
    heads = math.prod(lead)
    panels = _ceil(rows, tile.width)
    each = max(min(_COST.panels, panels * heads // (_COST.heads * threads), panels), 1)
    block = each * tile.width
    slack = tile.width * tile.lanes
    regions = {
        "transposed": block * depth + slack,
        "other": block * (width + tile.lanes),
        "scores": _COST.forward_keys * tile.width + slack,
        "tops": block,
        "sums": block,
    }
    sizes = {"block_rows": block, "block_keys": _COST.forward_keys}
    if rows <= _COST.few_rows:
        return _plan("few_tasks", arrays, options, sizes, regions, 1)
    return _plan("forward_tasks", arrays, options, sizes, regions, _ceil(rows, block))


def backward(
    arrays: Mapping[str, ndarray], options: Options, tile: Tiling, threads: int
) -> Plan:
    """The plan of ``dq``, ``dk`` and ``dv``, or of those that there are."""
    *lead, rows, depth = arrays["q"].shape
    keys, width = arrays["v"].shape[-2:]
    block = _COST.causal_rows if options.causal else _COST.backward_rows
    across = _ceil(_COST.backward_keys, tile.width) * tile.width
    slack = tile.width * tile.lanes
    regions = {
        "transposed": across * depth + slack,
        "other": across * width + slack,
        "scores": block * across,
        "slopes": block * across,
    }
    apart = threads > 1 and math.prod(lead) < _COST.heads * threads
    tasks = _ceil(rows, block) + _ceil(keys, _COST.backward_keys) if apart else 1
    sizes = {"block_rows": block, "block_keys": _COST.backward_keys,
             "keys_row": across, "apart": int(apart), "tasks": tasks}  # fmt: skip
    return _plan("backward_tasks", arrays, options, sizes, regions, tasks)


def _plan(
    function: str,
    arrays: Mapping[str, ndarray],
    options: Options,
    sizes: Mapping[str, int],
    regions: Mapping[str, int],
    tasks: int,
) -> Plan:
    """A plan with a job for each index of the leading axes but two."""
    if "mask" in arrays and function != "few_tasks":
        function = f"masked_{function}"
    lead = arrays["q"].shape[:-2]
    itemsize = arrays["q"].itemsize
    offsets, total = _offsets(regions, itemsize)
    inner = lead[-2:]
    known = {**sizes, **offsets, **_options(options), "heads": (1, *inner)[-1]}
    places = list(np.ndindex(*lead[:-2]))
    jobs = [
        _job({n: a[place] for n, a in arrays.items()}, len(inner), known)
        for place in places
    ]
    return Plan(function, jobs, places, tasks * math.prod(inner), total)


def _offsets(regions: Mapping[str, int], itemsize: int) -> tuple[dict[str, int], int]:
    """The aligned offset of each region in the workspace, and the total, in bytes."""
    found, total = {}, 0
    for name, elements in regions.items():
        found[f"{name}_at"] = total
        total += round_up(elements * itemsize)
    return found, total


def _options(options: Options) -> dict[str, int]:
    (scale,) = struct.unpack("q", struct.pack("d", options.scale))
    return {
        "causal": int(options.causal),
        "zeros": int(options.zeros),
        "scale": scale,
    }


def _job(arrays: Mapping[str, ndarray], lead: int, known: Mapping[str, int]) -> ndarray:
    """The fields of a job on arrays with ``lead`` leading axes, at most two."""
    q, k, v = (arrays[name] for name in "qkv")
    mask = arrays.get("mask")
    job = np.zeros(len(NAMES), np.int64)
    values: dict[str, Any] = dict(known)
    values.update(rows=q.shape[-2], keys=k.shape[-2], depth=q.shape[-1])
    values["width"] = v.shape[-1]
    values.update({name: a.ctypes.data for name, a in arrays.items()})
    for name in _STRIDED:
        if name in arrays:
            names = [f"{name}_{axis}" for axis in ("outer", "head", "row")]
            values.update(zip(names, _strides(arrays[name], lead), strict=True))
    if mask is not None:
        names = [f"mask_{axis}" for axis in ("outer", "head", "row")]
        values.update(zip(names, _strides(mask, lead), strict=True))
        values["mask_col"] = mask.strides[-1] // mask.itemsize
        values["mask_kind"] = CHOSEN if mask.dtype == bool else ADDED
    for name, value in values.items():
        job[_FIELD[name]] = value
    return job


def _strides(array: ndarray, lead: int) -> list[int]:
    """The strides of leading axes and rows, in elements."""
    found = [s // array.itemsize for s in array.strides[: lead + 1]]
    return [0] * (2 - lead) + found


def fits(arrays: Mapping[str, ndarray]) -> bool:
    """Whether features of all operands and a mask's keys are contiguous, or single,
    rows' numbers are contiguous, and there are heads, keys and features."""
    q, k, v = (arrays[name] for name in "qkv")
    if 0 in (*q.shape[:-2], *k.shape, *v.shape):
        return False
    rows = [arrays[name] for name in ("lse", "delta") if name in arrays]
    if not all(a.flags.c_contiguous for a in rows):
        return False
    for name, a in arrays.items():
        step = a.strides[-1] // a.itemsize
        near = step == 1 or (name == "mask" and step == 0)
        alone = a.size == 0 or a.shape[-1] == 1
        if not (near or alone) or any(s % a.itemsize for s in a.strides):
            return False
    return True


def field(name: str) -> int:
    """The index of a job's field."""
    return _FIELD[name]


def _ceil(x: int, y: int) -> int:
    return max(-(-x // y), 1)
