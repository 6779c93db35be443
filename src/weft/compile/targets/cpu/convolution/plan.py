"""The plan of a convolution for its sizes: a function, and jobs for it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compile.targets.cpu.convolution.job_builder import (
    BIAS,
    IMAGE,
    OTHER,
    OUT,
    Draft,
    Plan,
    ceil,
    plan_of,
    up,
)  # fmt: skip
from weft.compile.targets.cpu.convolution.partition import Work, best_cut, runs_of
from weft.compile.targets.cpu.convolution.shape import Shape
from weft.compile.targets.cpu.convolution.tables import (
    View,
    forward_view,
    phase_spots,
    phase_view,
)  # fmt: skip
from weft.compile.targets.cpu.convolution.winograd_plans import (
    has_winograd,
    input_grad_draft,
    input_grad_shape,
    kernels_plan,
    tiles_pay,
    winograd_draft,
    winograd_plan,
)  # fmt: skip
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.tasks import NAMES as PRODUCT
from weft.compile.targets.cpu.matmul.tasks import split
from weft.compile.targets.cpu.matmul.tiling import Tiling
from weft.compile.tuning.choices import Columns

_COST = COST.convolution
GEMM = "gemm"  # the function of a plan that is a product of matrices


class Planner:
    """Plans for one element type and tiling.

    ``exact`` ones sum products of the operands' elements alone. Others may sum
    products of sums; then an infinity or NaN also reaches neighbouring results.
    """

    def __init__(
        self,
        tile: Tiling,
        itemsize: int,
        threads: int,
        *,
        exact: bool = False,
        cuts: Columns | None = None,
    ) -> None:
        self.tile, self.itemsize = tile, itemsize
        self.threads, self.exact = threads, exact
        self.cuts = cuts or Columns()

    def _draft(self) -> Draft:
        return Draft(self.tile, self.itemsize)

    def forward(self, shape: Shape) -> Plan:
        """y from x and weights."""
        if self._is_product(shape, shape.filters, shape.channels):
            return self._product(shape)
        return self._forward(shape, (IMAGE, OTHER, OUT))

    def biased(self, shape: Shape) -> Plan:
        """y from x, weights and a bias."""
        return self._forward(shape, (IMAGE, OTHER, BIAS, OUT))

    def _forward(self, shape: Shape, pointers: Sequence[int]) -> Plan:
        if self._in_tiles(shape, shape.group_filters, shape.group_channels):
            draft = winograd_draft(self._draft(), shape)
            return winograd_plan(draft, shape, self.threads, pointers, self.cuts.tiles)
        view = forward_view(shape)
        job = self._draft()
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
        if self._is_product(shape, shape.channels, shape.filters):
            return self._product(shape, transposed=True)
        transposed = input_grad_shape(shape)
        if self._in_tiles(transposed, shape.group_channels, shape.group_filters):
            draft = input_grad_draft(self._draft(), shape)
            ends = IMAGE, OTHER, OUT
            return winograd_plan(draft, transposed, self.threads, ends, self.cuts.tiles)
        phases = itertools.product(
            *(range(min(s, n)) for s, n in zip(shape.stride, shape.size, strict=True))
        )
        jobs = [self._phase(shape, phase) for phase in phases]
        return self._images(shape, jobs, shape.group_filters, (IMAGE, OTHER, OUT))

    def _is_product(self, shape: Shape, rows: int, k: int) -> bool:
        """Whether a matrix product for each image is the best way.

        Pixels of several images fill vectors better, if packing them costs little.
        """
        small = shape.pixels < _COST.product_pixels
        if not shape.pointwise or shape.groups != 1 or small:
            return False
        full = shape.pixels >= _COST.full_pixels or shape.pixels % self.tile.lanes == 0
        few = shape.images < _COST.packed_images
        return full or few or min(rows, k) < _COST.packed_channels

    def _product(self, shape: Shape, *, transposed: bool = False) -> Plan:
        """Weights, or their transpose, times each image."""
        m, n, k = shape.filters, shape.pixels, shape.channels
        strides = (k, 1)
        if transposed:
            m, k, strides = k, m, (1, k)
        cut = split(self.tile, m, n, k, batch=shape.images, threads=self.threads)
        job = np.zeros(len(PRODUCT), np.int64)
        fields = {
            "m": m, "n": n, "k": k, "a_row": strides[0], "a_col": strides[1],
            "b_row": n, "b_col": 1, "c_row": n, "b_batch": n * k, "c_batch": n * m,
            "task_rows": cut.rows, "task_columns": cut.columns,
        }  # fmt: skip
        for name, value in fields.items():
            job[PRODUCT.index(name)] = value
        pointers = tuple(PRODUCT.index(name) for name in ("b", "a", "c"))
        workspace = self.tile.workspace * self.itemsize
        epilogue = PRODUCT.index("epilogue")
        return Plan(GEMM, [job], pointers, cut.tasks, workspace, [[]], epilogue)

    def _in_tiles(self, shape: Shape, rows: int, k: int, least: int = 0) -> bool:
        """Whether Winograd's method is to be used."""
        allowed = has_winograd(self.tile) and not self.exact
        return allowed and tiles_pay(shape, rows, k, least)

    def _images(
        self,
        shape: Shape,
        jobs: list[tuple[Draft, View]],
        channels: int,
        pointers: Sequence[int],
    ) -> Plan:
        """Jobs that compute an image, by packing windows or directly."""
        direct = jobs[0][0]["rows"] <= _COST.direct_rows
        for job, view in jobs:
            (self._direct if direct else self._image)(job, shape, view, channels)
        function = "direct_tasks" if direct else "image_tasks"
        return plan_of(function, [job for job, _ in jobs], pointers)

    def _phase(self, shape: Shape, phase: Any) -> tuple[Draft, View]:
        view = phase_view(shape, phase)
        job = self._draft()
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
            job.set(spot_run=view.axes[-1].length if shape.stride[-1] == 2 else 0)
        return job, view

    def _image(self, job: Draft, shape: Shape, view: View, channels: int) -> None:
        """Fill in a job of image tasks."""
        tile, rows = self.tile, job["rows"]
        columns = shape.images * view.pixels
        far = job["order_run"] < 0
        heavy = rows * job["k"] * self.itemsize > _COST.heavy or far
        weights = _COST.scattered_packing if far else _COST.packing
        windows = _COST.packing * runs_of(view, tile.lanes)
        work = Work(rows, columns, shape.groups, weights, windows)
        most = (1 + heavy) * self.cuts.columns
        height, across = best_cut(work, tile, most, self.threads)
        vectors = across // tile.lanes
        job.set(
            columns=columns, task_rows=height, task_columns=across,
            sums_row=across + tile.lanes,
        )  # fmt: skip
        job.view(shape, view, channels, vectors)
        job.lay_out_panels(across, rows * (across + tile.lanes), vectors, view.taps)
        job.count_rectangles()

    def _direct(self, job: Draft, shape: Shape, view: View, channels: int) -> None:
        """Fill in a job of direct tasks; columns are those of one image."""
        tile, rows, k = self.tile, job["rows"], job["k"]
        across = min(self.cuts.columns, up(view.pixels, tile.width))
        vectors, work = across // tile.lanes, max(rows * k, 1) * across
        job.set(
            columns=view.pixels, task_columns=across, sums_row=across + tile.lanes,
            task_groups=min(shape.groups, ceil(_COST.direct_task, work)),
        )  # fmt: skip
        if not job["order"]:
            job.table("order", np.arange(k))
        job.view(shape, view, channels, vectors)
        job.lay_out_panels(0, rows * (across + tile.lanes), vectors, view.taps)
        chunks = ceil(shape.groups, job["task_groups"])
        job.tasks = chunks * ceil(view.pixels, across) * shape.images

    def weight_grad(self, shape: Shape) -> Plan:
        """The weights' gradient from x and y's gradient."""
        if shape.group_filters <= _COST.dots_columns:
            return self._dots(shape)
        least = COST.winograd.wide_channels if shape.square == 5 else 0
        if self._in_tiles(shape, shape.group_filters, shape.group_channels, least):
            return kernels_plan(self._weight_job(shape), shape, self.threads)
        return self._weight(shape)

    def _dots(self, shape: Shape) -> Plan:
        view, tile, job = forward_view(shape), self.tile, self._weight_job(shape)
        weights = job["rows"] * job["columns"]
        block = min(self.cuts.columns, up(shape.pixels, tile.lanes))
        groups = ceil(_COST.dots_sums, weights * tile.lanes)
        groups = min(groups, ceil(shape.groups, 2 * self.threads))
        vectors = block // tile.lanes
        job.set(block=block, task_groups=groups)
        job.view(shape, view, shape.group_channels, vectors)
        job.lay_out_panels(0, groups * weights * tile.lanes, vectors, view.taps)
        job.tasks = ceil(shape.groups, groups)
        return plan_of("dots_tasks", [job], (IMAGE, OTHER, OUT))

    def _weight_job(self, shape: Shape) -> Draft:
        """The job of the weights' gradient, before its tasks are cut."""
        rows, columns = shape.group_channels * shape.taps, shape.group_filters
        job = self._draft()
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
        block = self._whole_block(shape)
        # Windows are rows here.
        windows = 1 if block else _COST.packing * runs_of(view, tile.lanes)
        work = Work(rows, columns, shape.groups, windows, _COST.transposed_packing)
        most, tall = self.cuts.columns, _COST.tall * tile.height
        height, across = best_cut(work, tile, most, self.threads, tall)
        vectors = tile.depth // tile.lanes
        job.set(
            block=block or tile.depth, image_row=shape.plane if block else 0,
            task_rows=height, task_columns=across, sums_row=across + tile.lanes,
        )  # fmt: skip
        job.view(shape, view, shape.group_channels, vectors)
        job.lay_out_panels(across, rows * (across + tile.lanes), vectors, view.taps)
        job.count_rectangles()
        return plan_of("weight_tasks", [job], (IMAGE, OTHER, OUT))

    def _whole_block(self, shape: Shape) -> int:
        """The longest block that divides an image's pixels.

        0 if that is too short, if windows are not single pixels, or if rows would
        share few sets of a cache.
        """
        aliases = shape.plane * self.itemsize % COST.caches.half_alias == 0
        if not shape.pointwise or aliases:
            return 0
        depth = self.tile.depth
        sizes = range(min(depth, shape.pixels), depth // _COST.short, -1)
        return next((n for n in sizes if shape.pixels % n == 0), 0)
