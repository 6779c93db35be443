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
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.tiling import Tiling

_COST = COST.winograd


def has_winograd(tile: Tiling) -> bool:
    """Whether there is code for tiles: a 3x3 kernel must fit a vector of float32."""
    return tile.lanes >= 16


def tiles_pay(shape: Shape, rows: int, k: int) -> bool:
    """Whether tiles are possible, and worth it for so many channels."""
    _, n1, n2 = shape.counts
    tiles = shape.images * ceil(n1, 2) * ceil(n2, 2)
    full = shape.images * shape.pixels >= 2 * tiles >= 2 * _COST.least_tiles
    return shape.is_3x3 and full and min(rows, k) >= _COST.least_channels


def input_grad_shape(shape: Shape) -> Shape:
    """The convolution with rotated kernels of y's gradient that gives x's."""
    _, low1, low2 = shape.low
    return shape._replace(
        size=shape.counts, counts=shape.size, low=(0, 2 - low1, 2 - low2)
    )


def winograd_draft(draft: Draft, shape: Shape) -> Draft:
    """Fill in the operands of y by tiles."""
    each, row = shape.group_channels, 9 * shape.group_channels
    draft.set(
        rows=shape.group_filters, k=each,
        image_step=shape.channels * shape.plane, image_group=each * shape.plane,
        other_row=row, order_step=9, other_group=shape.group_filters * row,
        out_step=shape.filters * shape.pixels, out_row=shape.pixels,
        out_group=shape.group_filters * shape.pixels,
    )  # fmt: skip
    return draft


def input_grad_draft(draft: Draft, shape: Shape) -> Draft:
    """Fill in the operands of x's gradient by tiles."""
    each, row = shape.group_filters, 9 * shape.group_channels
    draft.set(
        rows=shape.group_channels, k=each,
        image_step=shape.filters * shape.pixels, image_group=each * shape.pixels,
        other_row=9, order_step=row, order_run=1, other_group=each * row,
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
    height, across = best_cut(work, tile, many, threads)
    block = min(_COST.block, up(draft["k"], tile.lanes))
    draft.set(
        columns=columns, block=block, task_columns=across, task_rows=height,
        sums_row=across + tile.lanes,
    )  # fmt: skip
    _describe(draft, shape, view, tiles, draft["k"], across)
    regions = {
        "rows": 16 * block * tile.height,
        "panels": 16 * block * across,
        "sums": 16 * rows * draft["sums_row"],
    }
    _lay_out(draft, regions, across)
    draft.count_rectangles()
    return plan_of("winograd_tasks", [draft], pointers)


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
    block = min(_COST.weight_block, up(k, tile.lanes))
    draft.set(
        rows=rows, k=k, block=block, task_rows=height, task_columns=across,
        sums_row=across + tile.lanes,
    )  # fmt: skip
    _describe(draft, shape, view, tiles, shape.group_channels, block)
    draft.table("y_windows", tiles.windows(columns, draft["masks_row"]))
    regions = {
        "rows": 16 * block * tile.height,
        "panels": 16 * (block * across + tile.width * tile.lanes),
        "gradients": 16 * block * tile.width,
        "sums": 16 * rows * draft["sums_row"],
    }
    _lay_out(draft, regions, block)
    draft.count_rectangles()
    return plan_of("kernels_tasks", [draft], (IMAGE, OTHER, OUT))


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


def _lay_out(draft: Draft, regions: dict[str, int], columns: int) -> None:
    vectors = columns // draft.tile.lanes
    tables = draft.table_regions("", vectors, 16) | draft.table_regions(
        "y_", vectors, 4
    )
    draft.lay_out(regions, tables)
