"""What is to be done for a convolution's sizes: a function, and jobs for it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compile.llvm.conv.record import JOB
from weft.compile.llvm.conv.shape import Shape
from weft.compile.llvm.conv.tables import (
    View,
    forward_view,
    phase_spots,
    phase_view,
    tile_views,
)  # fmt: skip
from weft.compile.llvm.gemm.tasks import JOB as PRODUCT
from weft.compile.llvm.gemm.tasks import split
from weft.compile.llvm.gemm.tiling import Tiling

COLUMNS = 256  # of C that a task computes at a time
TALL = 18  # strips of the weights' gradient that a task has at most
HEAVY_BYTES = 1 << 21  # of weights that should be read for more columns at a time
FEW_ROWS = 8  # of C for which windows are not packed
FEW_COLUMNS = 8  # of the weights' gradient that dot products compute
DIRECT_WORK = 1 << 17  # multiplications that are worth a task
DOTS_SUMS = 1 << 14  # elements of sums that stay in the first cache
WINOGRAD_CHANNELS = 16  # fewer are not worth the transforms
FEW_TILES = 12  # fewer fill no vector
WINOGRAD_TILES = 128  # that a task computes at a time
WINOGRAD_BLOCK = 128  # channels that are summed at a time
KERNEL_ROWS, KERNEL_COLUMNS = 126, 256  # channels of x and of y in a task
KERNEL_BLOCK = 128  # tiles that are summed at a time
MANY_PIXELS = 192  # of an image that are worth a product of its own
GEMM = "gemm"  # the function of a plan that is a product of matrices
_FIELDS = {word.lstrip("*"): index for index, word in enumerate(JOB)}
IMAGE, OTHER, BIAS, OUT = (_FIELDS[name] for name in ("image", "other", "bias", "out"))


class Plan(NamedTuple):
    """Jobs for a function, of equally many tasks each.

    ``pointers`` gives the fields that are the addresses of the operands, in their
    order, and of the result. ``tables`` must live as long as the jobs.
    """

    function: str
    jobs: list[np.ndarray]
    pointers: tuple[int, ...]
    tasks: int
    workspace: int  # bytes for each worker
    tables: tuple[np.ndarray, ...]


class Planner:
    """Plans for one element type and target.

    ``exact`` ones sum products of the operands' elements alone. Others may sum
    products of sums; then an infinity or NaN also reaches the results beside those
    that it has part in.
    """

    def __init__(
        self, tile: Tiling, itemsize: int, threads: int, *, exact: bool = False
    ) -> None:
        self.tile, self.itemsize = tile, itemsize
        self.threads, self.exact = threads, exact

    def forward(self, shape: Shape) -> Plan:
        """y from x and weights."""
        if self._is_product(shape, shape.pixels):
            return self._product(shape)
        return self._forward(shape, (IMAGE, OTHER, OUT))

    def biased(self, shape: Shape) -> Plan:
        """y from x, weights and a bias."""
        return self._forward(shape, (IMAGE, OTHER, BIAS, OUT))

    def _forward(self, shape: Shape, pointers: Sequence[int]) -> Plan:
        if self._is_winograd(shape, shape.group_filters, shape.group_channels):
            return self._winograd(_winograd_job(shape), shape, pointers)
        view = forward_view(shape)
        job = _Job()
        k = shape.group_channels * shape.taps
        job.set(
            rows=shape.group_filters, k=k, block=self.tile.depth,
            image_step=shape.channels * shape.plane,
            image_group=shape.group_channels * shape.plane,
            other_row=k, other_group=shape.group_filters * k,
            out_step=shape.filters * shape.pixels, out_row=shape.pixels,
            out_group=shape.group_filters * shape.pixels,
        )  # fmt: skip
        return self._images(shape, [(job, view)], shape.group_channels, pointers)

    def input_grad(self, shape: Shape) -> Plan:
        """x's gradient from y's and weights: a job for each phase of the stride."""
        if self._is_product(shape, shape.pixels):
            return self._product(shape, turned=True)
        turned = _turned(shape)
        if self._is_winograd(turned, shape.group_channels, shape.group_filters):
            job = _winograd_grad_job(shape)
            return self._winograd(job, turned, (IMAGE, OTHER, OUT))
        phases = itertools.product(
            *(range(min(s, n)) for s, n in zip(shape.stride, shape.size, strict=True))
        )
        jobs = [self._phase(shape, phase) for phase in phases]
        return self._images(shape, jobs, shape.group_filters, (IMAGE, OTHER, OUT))

    def _is_product(self, shape: Shape, columns: int) -> bool:
        """Whether a matrix product for each image is the best way."""
        return shape.pointwise and shape.groups == 1 and columns >= MANY_PIXELS

    def _product(self, shape: Shape, *, turned: bool = False) -> Plan:
        """Weights, or their transpose, times each image."""
        m, n, k = shape.filters, shape.pixels, shape.channels
        strides = (k, 1)
        if turned:
            m, k, strides = k, m, (1, k)
        cut = split(self.tile, m, n, k, batch=shape.images, threads=self.threads)
        job = np.zeros(len(PRODUCT), np.int64)
        given = {
            "m": m, "n": n, "k": k, "a_row": strides[0], "a_col": strides[1],
            "b_row": n, "b_col": 1, "c_row": n, "b_batch": n * k, "c_batch": n * m,
            "task_rows": cut.rows, "task_columns": cut.columns,
        }  # fmt: skip
        for name, value in given.items():
            job[PRODUCT.index(name)] = value
        pointers = tuple(PRODUCT.index(name) for name in ("*b", "*a", "*c"))
        room = self.tile.workspace * self.itemsize
        return Plan(GEMM, [job], pointers, cut.tasks, room, ())

    def _is_winograd(self, shape: Shape, rows: int, k: int) -> bool:
        """Whether tiles are possible, and worth it for so many channels."""
        _, n1, n2 = shape.counts
        tiles = shape.images * _ceil(n1, 2) * _ceil(n2, 2)
        full = shape.images * shape.pixels >= 2 * tiles >= 2 * FEW_TILES
        worth = full and min(rows, k) >= WINOGRAD_CHANNELS and not self.exact
        return worth and has_winograd(self.tile) and shape.is_3x3

    def _winograd(self, job: _Job, shape: Shape, pointers: Sequence[int]) -> Plan:
        """Tiles of y from x, in the sizes of ``shape``."""
        tile, rows = self.tile, job["rows"]
        view, tiles = tile_views(shape)
        columns = shape.images * view.pixels
        across = min(WINOGRAD_TILES, _up(columns, tile.width))
        blocks = _ceil(columns, across) * shape.groups
        down = min(_ceil(2 * self.threads, blocks), _ceil(rows, tile.height))
        block = min(WINOGRAD_BLOCK, _up(job["k"], tile.lanes))
        job.set(
            columns=columns, block=block, task_columns=across,
            task_rows=_up(_ceil(rows, down), tile.height),
            sums_row=across + tile.lanes,
        )  # fmt: skip
        self._tiles(job, shape, view, tiles, job["k"], across)
        parts = {
            "rows": 16 * block * tile.height,
            "panels": 16 * block * across,
            "sums": 16 * rows * job["sums_row"],
        }
        self._tile_room(job, parts, across)
        job.count_rectangles()
        return self._plan("winograd_tasks", [job], pointers)

    def _kernels(self, shape: Shape) -> Plan:
        """The weights' gradient by tiles."""
        tile, job = self.tile, self._weight_job(shape)
        view, tiles = tile_views(shape)
        rows, columns = shape.group_channels, shape.group_filters
        across = min(KERNEL_COLUMNS, _up(columns, tile.width))
        blocks = _ceil(columns, across) * shape.groups
        down = max(_ceil(rows, KERNEL_ROWS), _ceil(self.threads, blocks))
        height = _up(_ceil(rows, min(down, _ceil(rows, tile.height))), tile.height)
        k = shape.images * view.pixels
        block = min(KERNEL_BLOCK, _up(k, tile.lanes))
        job.set(
            rows=rows, k=k, block=block, task_rows=height, task_columns=across,
            sums_row=across + tile.lanes,
        )  # fmt: skip
        self._tiles(job, shape, view, tiles, shape.group_channels, block)
        job.table("y_windows", tiles.windows(columns, job["masks_row"]))
        parts = {
            "rows": 16 * block * tile.height,
            "panels": 16 * (block * across + tile.width * tile.lanes),
            "turns": 16 * block * tile.width,
            "sums": 16 * rows * job["sums_row"],
        }
        self._tile_room(job, parts, block)
        job.count_rectangles()
        return self._plan("kernels_tasks", [job], (IMAGE, OTHER, OUT))

    def _tiles(
        self,
        job: _Job,
        shape: Shape,
        view: View,
        tiles: View,
        channels: int,
        columns: int,
    ) -> None:
        """How tiles are read, and where their results lie."""
        step = job["out_step"] or job["other_step"]
        places = tiles.places(step, self.tile.lanes)
        _, n1, n2 = tiles.size
        job.set(y_places_row=places.shape[1], y_size1=n1, y_size2=n2)
        job.table("y_places", places)
        job.table("y_taps", np.ascontiguousarray(tiles.tap_offsets, np.int32))
        self._view(job, shape, view, channels, columns // self.tile.lanes)
        job.set(step=2)

    def _tile_room(self, job: _Job, parts: dict[str, int], columns: int) -> None:
        vectors = columns // self.tile.lanes
        sizes = {name: size * self.itemsize for name, size in parts.items()}
        sizes |= self._table_room("", vectors, 16)
        _lay_out(job, sizes | self._table_room("y_", vectors, 4))

    def _images(
        self,
        shape: Shape,
        jobs: list[tuple[_Job, View]],
        channels: int,
        pointers: Sequence[int],
    ) -> Plan:
        """Jobs that compute an image, by packing windows or directly."""
        direct = jobs[0][0]["rows"] <= FEW_ROWS
        for job, view in jobs:
            (self._direct if direct else self._image)(job, shape, view, channels)
        function = "direct_tasks" if direct else "image_tasks"
        return self._plan(function, [job for job, _ in jobs], pointers)

    def _phase(self, shape: Shape, phase: Any) -> tuple[_Job, View]:
        view = phase_view(shape, phase)
        job = _Job()
        taps, filters = view.taps, shape.group_filters
        row = shape.group_channels * shape.taps
        whole = taps == shape.taps and taps <= self.tile.depth
        block = self.tile.depth // taps * taps if whole else self.tile.depth
        job.set(
            rows=shape.group_channels, k=filters * taps, block=block,
            image_step=shape.filters * shape.pixels,
            image_group=filters * shape.pixels,
            order_run=taps if whole else -1, order_step=row,
            other_row=shape.taps, other_group=filters * row,
            out_step=shape.channels * shape.plane, out_row=shape.plane,
            out_group=shape.group_channels * shape.plane,
        )  # fmt: skip
        order = np.arange(filters)[:, None] * row + view.kernel_places(shape.kernel)
        job.table("order", np.ascontiguousarray(order.reshape(-1), np.int64))
        if shape.stride != (1, 1, 1):
            spots = phase_spots(shape, phase)
            job.table("spots", np.ascontiguousarray(spots, np.int64))
        return job, view

    def _image(self, job: _Job, shape: Shape, view: View, channels: int) -> None:
        """What image tasks have in common."""
        tile, rows = self.tile, job["rows"]
        columns = shape.images * view.pixels
        heavy = rows * job["k"] * self.itemsize > HEAVY_BYTES or job["order_run"] < 0
        across = min((1 + heavy) * COLUMNS, _up(columns, tile.width))
        blocks = _ceil(columns, across) * shape.groups
        down = min(_ceil(2 * self.threads, blocks), _ceil(rows, tile.height))
        height = _up(_ceil(rows, down), tile.height)
        vectors = across // tile.lanes
        job.set(
            columns=columns, task_rows=height, task_columns=across,
            sums_row=across + tile.lanes,
        )  # fmt: skip
        self._view(job, shape, view, channels, vectors)
        self._room(job, across, rows * (across + tile.lanes), vectors, view.taps)
        job.count_rectangles()

    def _direct(self, job: _Job, shape: Shape, view: View, channels: int) -> None:
        """What direct tasks have in common; columns are those of one image."""
        tile, rows, k = self.tile, job["rows"], job["k"]
        across = min(COLUMNS, _up(view.pixels, tile.width))
        vectors, work = across // tile.lanes, max(rows * k, 1) * across
        job.set(
            columns=view.pixels, task_columns=across, sums_row=across + tile.lanes,
            task_groups=min(shape.groups, _ceil(DIRECT_WORK, work)),
        )  # fmt: skip
        if not job["order"]:
            job.table("order", np.arange(k))
        self._view(job, shape, view, channels, vectors)
        self._room(job, 0, rows * (across + tile.lanes), vectors, view.taps)
        parts = _ceil(shape.groups, job["task_groups"])
        job.tasks = parts * _ceil(view.pixels, across) * shape.images

    def weight_grad(self, shape: Shape) -> Plan:
        """The weights' gradient from x and y's gradient."""
        if shape.group_filters <= FEW_COLUMNS:
            return self._dots(shape)
        if self._is_winograd(shape, shape.group_filters, shape.group_channels):
            return self._kernels(shape)
        return self._weight(shape)

    def _dots(self, shape: Shape) -> Plan:
        view, tile, job = forward_view(shape), self.tile, self._weight_job(shape)
        weights = job["rows"] * job["columns"]
        block = min(COLUMNS, _up(shape.pixels, tile.lanes))
        groups = _ceil(DOTS_SUMS, weights * tile.lanes)
        groups = min(groups, _ceil(shape.groups, 2 * self.threads))
        vectors = block // tile.lanes
        job.set(block=block, task_groups=groups)
        self._view(job, shape, view, shape.group_channels, vectors)
        self._room(job, 0, groups * weights * tile.lanes, vectors, view.taps)
        job.tasks = _ceil(shape.groups, groups)
        return self._plan("dots_tasks", [job], (IMAGE, OTHER, OUT))

    def _weight_job(self, shape: Shape) -> _Job:
        """What both ways to the weights' gradient have in common."""
        rows, columns = shape.group_channels * shape.taps, shape.group_filters
        job = _Job()
        job.set(
            rows=rows, columns=columns, k=shape.images * shape.pixels,
            image_step=shape.channels * shape.plane,
            image_group=shape.group_channels * shape.plane,
            other_step=shape.filters * shape.pixels, other_row=shape.pixels,
            other_group=columns * shape.pixels,
            out_row=rows, out_group=rows * columns,
        )  # fmt: skip
        return job

    def _weight(self, shape: Shape) -> Plan:
        view, tile, job = forward_view(shape), self.tile, self._weight_job(shape)
        rows, columns = job["rows"], job["columns"]
        # Threads share columns before rows: gradients, which each block of rows needs,
        # cost more to pack than windows, which each block of columns needs.
        pieces = _ceil(self.threads, shape.groups)
        apart = min(pieces, _ceil(columns, 2 * tile.width))
        across = min(COLUMNS, _up(_ceil(columns, apart), tile.width))
        blocks = _ceil(columns, across)
        down = max(_ceil(rows, TALL * tile.height), _ceil(pieces, blocks))
        height = _up(_ceil(rows, min(down, _ceil(rows, tile.height))), tile.height)
        vectors = tile.depth // tile.lanes
        job.set(
            block=tile.depth, task_rows=height, task_columns=across,
            sums_row=across + tile.lanes,
        )  # fmt: skip
        self._view(job, shape, view, shape.group_channels, vectors)
        self._room(job, across, rows * (across + tile.lanes), vectors, view.taps)
        job.count_rectangles()
        return self._plan("weight_tasks", [job], (IMAGE, OTHER, OUT))

    def _view(
        self, job: _Job, shape: Shape, view: View, channels: int, vectors: int
    ) -> None:
        """How windows are read, ``vectors`` of columns at a time."""
        masks_row = 4 * vectors
        places = view.places(job["image_step"], self.tile.lanes)
        job.set(
            groups=shape.groups, images=shape.images, pixels=view.pixels,
            size0=view.size[0], size1=view.size[1], size2=view.size[2],
            step=view.step, places_row=places.shape[1], tap_count=view.taps,
            masks_row=masks_row,
        )  # fmt: skip
        job.table("places", places)
        job.table("taps", np.ascontiguousarray(view.tap_offsets, np.int32))
        job.table("windows", view.windows(channels, masks_row))

    def _room(self, job: _Job, across: int, sums: int, vectors: int, taps: int) -> None:
        """Where the parts of a workspace lie, and how large it is."""
        tile = self.tile
        slack = tile.width * tile.lanes
        parts = {
            "rows": tile.row_panel * self.itemsize,
            "panels": (tile.depth * across + slack) * self.itemsize,
            "sums": (sums + tile.lanes) * self.itemsize,
            **self._table_room("", vectors, taps),
        }
        _lay_out(job, parts)

    def _table_room(self, prefix: str, vectors: int, taps: int) -> dict[str, int]:
        """Bytes of what is known about a block's windows."""
        runs = 16 * vectors * self.tile.lanes
        sizes = {"masks": 4 * vectors * taps, "runs": runs, "counts": 8 * vectors}
        return {prefix + name: size for name, size in sizes.items()}

    def _plan(self, function: str, jobs: list[_Job], pointers: Sequence[int]) -> Plan:
        tasks = max(job.tasks for job in jobs)
        room = max(job["workspace_bytes"] for job in jobs)
        tables = tuple(table for job in jobs for table in job.tables)
        rows = [job.fields for job in jobs]
        return Plan(function, rows, tuple(pointers), tasks, room, tables)


class _Job:
    """A job that is being filled in."""

    def __init__(self) -> None:
        self.fields = np.zeros(len(JOB), np.int64)
        self.tables: list[np.ndarray] = []
        self.tasks = 0

    def __getitem__(self, name: str) -> int:
        return int(self.fields[_FIELDS[name]])

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self.fields[_FIELDS[name]] = value

    def table(self, name: str, array: np.ndarray) -> None:
        self.tables.append(array)
        self.set(**{name: array.ctypes.data})

    def count_rectangles(self) -> None:
        down = _ceil(self["rows"], self["task_rows"])
        across = _ceil(self["columns"], self["task_columns"])
        self.tasks = down * across * self["groups"]


def _lay_out(job: _Job, parts: dict[str, int]) -> None:
    """Put the parts of a workspace one after the other; packed rows come first."""
    at = 0
    for name, size in parts.items():
        if name != "rows":
            job.set(**{f"{name}_at": at})
        at += _up(size, 64)
    job.set(workspace_bytes=at)


def has_winograd(tile: Tiling) -> bool:
    """Whether there is code for tiles: a 3x3 kernel must fit a vector of float32."""
    return tile.lanes >= 16


def _winograd_job(shape: Shape) -> _Job:
    job, each, row = _Job(), shape.group_channels, 9 * shape.group_channels
    job.set(
        rows=shape.group_filters, k=each,
        image_step=shape.channels * shape.plane, image_group=each * shape.plane,
        other_row=row, order_step=9, other_group=shape.group_filters * row,
        out_step=shape.filters * shape.pixels, out_row=shape.pixels,
        out_group=shape.group_filters * shape.pixels,
    )  # fmt: skip
    return job


def _winograd_grad_job(shape: Shape) -> _Job:
    job, each, row = _Job(), shape.group_filters, 9 * shape.group_channels
    job.set(
        rows=shape.group_channels, k=each,
        image_step=shape.filters * shape.pixels, image_group=each * shape.pixels,
        other_row=9, order_step=row, order_run=1, other_group=each * row,
        out_step=shape.channels * shape.plane, out_row=shape.plane,
        out_group=shape.group_channels * shape.plane,
    )  # fmt: skip
    return job


def _turned(shape: Shape) -> Shape:
    """The convolution with turned kernels that leads from y's gradient to x's."""
    _, low1, low2 = shape.low
    return shape._replace(
        size=shape.counts, counts=shape.size, low=(0, 2 - low1, 2 - low2)
    )


def _ceil(x: int, y: int) -> int:
    return max(-(-x // y), 1)


def _up(x: int, y: int) -> int:
    """The next multiple of y, one y at least."""
    return _ceil(x, y) * y
