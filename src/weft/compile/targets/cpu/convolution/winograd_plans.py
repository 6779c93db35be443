"""Plans for Winograd's method: see `winograd` and `kernels`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compile.targets.cpu.convolution.job_builder import (
    IMAGE,
    OTHER,
    OUT,
    Draft,
    Plan,
    ceil,
    plan_of,
    up,
)
from weft.compile.targets.cpu.convolution.partition import Work, best_cut
from weft.compile.targets.cpu.convolution.shape import Shape
from weft.compile.targets.cpu.convolution.tables import View, tile_views
from weft.compile.targets.cpu.convolution.winograd_transforms import SCHEMES, Scheme
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.winograd


def has_winograd(tile: Tiling) -> bool:
    """Whether there is code for tiles: vectors must be of 16 elements."""
    return tile.lanes >= 16


def tiles_pay(shape: Shape, rows: int, k: int, least: int = 0) -> bool:
    """Whether tiles are possible, and worth it for so many channels."""
    least = max(least, _COST.least_channels)
    _, n1, n2 = shape.counts
    tiles = shape.images * ceil(n1, 2) * ceil(n2, 2)
    full = shape.images * shape.pixels >= 2 * tiles >= 2 * _COST.least_tiles
    return shape.square in SCHEMES and full and min(rows, k) >= least


def input_grad_shape(shape: Shape) -> Shape:
    """The convolution with rotated kernels of y's gradient that gives x's."""
    _, low1, low2 = shape.low
    _, k1, k2 = shape.kernel
    return shape._replace(
        size=shape.counts, counts=shape.size, low=(0, k1 - 1 - low1, k2 - 1 - low2)
    )


def winograd_draft(draft: Draft, shape: Shape) -> Draft:
    """Fill in the operands of y by tiles."""
    each, row = shape.group_channels, shape.taps * shape.group_channels
    draft.set(
        rows=shape.group_filters, k=each,
        image_step=shape.channels * shape.plane, image_group=each * shape.plane,
        other_row=row, order_step=shape.taps, other_group=shape.group_filters * row,
        out_step=shape.filters * shape.pixels, out_row=shape.pixels,
        out_group=shape.group_filters * shape.pixels,
    )  # fmt: skip
    return draft


def input_grad_draft(draft: Draft, shape: Shape) -> Draft:
    """Fill in the operands of x's gradient by tiles."""
    each, row = shape.group_filters, shape.taps * shape.group_channels
    draft.set(
        rows=shape.group_channels, k=each,
        image_step=shape.filters * shape.pixels, image_group=each * shape.pixels,
        other_row=shape.taps, order_step=row, order_run=1, other_group=each * row,
        out_step=shape.channels * shape.plane, out_row=shape.plane,
        out_group=shape.group_channels * shape.plane,
    )  # fmt: skip
    return draft


def winograd_plan(
    draft: Draft, shape: Shape, threads: int, pointers: Sequence[int], many: int
) -> Plan:
    """Tiles of y from x, in the sizes of ``shape``, so many at a time."""
    tile, rows = draft.tile, draft["rows"]
    view, tiles = tile_views(shape)
    columns = shape.images * view.pixels
    work = Work(rows, columns, shape.groups)
    scheme = SCHEMES[shape.square]
    many = many // 2 if scheme.size == 5 else many
    height, across = best_cut(work, tile, many, threads)
    block = min(_COST.block, up(draft["k"], tile.lanes))
    draft.set(
        columns=columns, block=block, task_columns=across, task_rows=height,
        sums_row=across + tile.lanes,
    )  # fmt: skip
    _describe(draft, shape, view, tiles, draft["k"], across)
    regions = {
        "rows": scheme.memory(block * tile.height),
        "panels": scheme.memory(block * across),
        "sums": scheme.memory(rows * draft["sums_row"]),
    }
    _lay_out(draft, regions, across, scheme)
    draft.count_rectangles()
    return plan_of(f"winograd{scheme.name}_tasks", [draft], pointers)


def kernels_plan(draft: Draft, shape: Shape, threads: int) -> Plan:
    """The weights' gradient by tiles."""
    tile = draft.tile
    view, tiles = tile_views(shape)
    rows, columns = shape.group_channels, shape.group_filters
    across = min(_COST.weight_columns, up(columns, tile.width))
    blocks = ceil(columns, across) * shape.groups
    down = max(ceil(rows, _COST.weight_rows), ceil(threads, blocks))
    height = up(ceil(rows, min(down, ceil(rows, tile.height))), COST.convolution.even)
    k = shape.images * view.pixels
    scheme = SCHEMES[shape.square]
    most = _COST.wide_block if scheme.size == 5 else _COST.weight_block
    block = min(most, up(k, tile.lanes))
    draft.set(
        rows=rows, k=k, block=block, task_rows=height, task_columns=across,
        sums_row=across + tile.lanes,
    )  # fmt: skip
    _describe(draft, shape, view, tiles, shape.group_channels, block)
    draft.table("y_windows", tiles.windows(columns, draft["masks_row"]))
    regions = {
        "rows": scheme.memory(block * tile.height),
        "panels": scheme.memory(block * across + tile.width * tile.lanes),
        "gradients": scheme.memory(block * tile.width),
        "sums": scheme.memory(rows * draft["sums_row"]),
    }
    _lay_out(draft, regions, block, scheme)
    draft.count_rectangles()
    return plan_of(f"kernels{scheme.name}_tasks", [draft], (IMAGE, OTHER, OUT))


def _describe(
    draft: Draft, shape: Shape, view: View, tiles: View, channels: int, columns: int
) -> None:
    """Fill in how tiles are read, and where their results are stored."""
    step = draft["out_step"] or draft["other_step"]
    places = tiles.places(step, draft.tile.lanes)
    _, n1, n2 = tiles.size
    draft.set(y_places_row=places.shape[1], y_size1=n1, y_size2=n2)
    draft.table("y_places", places)
    draft.table("y_taps", np.ascontiguousarray(tiles.tap_offsets, np.int32))
    draft.view(shape, view, channels, columns // draft.tile.lanes)
    draft.set(step=2)


def _lay_out(
    draft: Draft, regions: dict[str, int], columns: int, scheme: Scheme
) -> None:
    vectors = columns // draft.tile.lanes
    tables = draft.table_regions("", vectors, scheme.pixels) | draft.table_regions(
        "y_", vectors, 4
    )
    draft.lay_out(regions, tables)
