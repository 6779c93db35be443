"""A job that is being filled in, and a plan made of such jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.compile.targets.cpu.convolution.shape import Shape
from weft.compile.targets.cpu.convolution.tables import View
from weft.compile.targets.cpu.convolution.tasks import NAMES
from weft.compile.targets.cpu.matmul.tiling import Tiling
from weft.runtime.cpu.address import ALIGNMENT

_FIELDS = {name: index for index, name in enumerate(NAMES)}
IMAGE, OTHER, BIAS, OUT = (_FIELDS[name] for name in ("image", "other", "bias", "out"))
EPILOGUE = _FIELDS["epilogue"]


class Plan(NamedTuple):
    """Jobs for a function, of equally many tasks each.

    ``pointers`` gives the fields that are the addresses of the operands, in their
    order, and of the result. ``epilogue`` is the field of the epilogue, and the next
    that of its context; -1 if there can be none, because pixels are scattered.
    ``tables`` are, of each job, the fields that are addresses of tables, and these;
    they must live as long as the jobs.
    """

    function: str
    jobs: list[np.ndarray]
    pointers: tuple[int, ...]
    tasks: int
    workspace: int  # bytes for each worker
    tables: list[list[tuple[int, np.ndarray]]]
    epilogue: int = -1


def plan_of(function: str, drafts: list[Draft], pointers: Sequence[int]) -> Plan:
    """A plan of finished jobs."""
    tasks = max(draft.tasks for draft in drafts)
    workspace = max(draft["workspace_bytes"] for draft in drafts)
    tables = [draft.tables for draft in drafts]
    rows = [draft.fields for draft in drafts]
    epilogue = -1 if any(draft["spots"] for draft in drafts) else EPILOGUE
    return Plan(function, rows, tuple(pointers), tasks, workspace, tables, epilogue)


class Draft:
    """The fields of a job for some tiling, by name, and the tables that they name."""

    def __init__(self, tile: Tiling, itemsize: int) -> None:
        self.tile, self.itemsize = tile, itemsize
        self.fields = np.zeros(len(NAMES), np.int64)
        self.tables: list[tuple[int, np.ndarray]] = []
        self.tasks = 0

    def __getitem__(self, name: str) -> int:
        return int(self.fields[_FIELDS[name]])

    def set(self, **values: int) -> None:
        """Fill in some fields."""
        for name, value in values.items():
            self.fields[_FIELDS[name]] = value

    def table(self, name: str, array: np.ndarray) -> None:
        """Fill in the address of a table."""
        self.tables.append((_FIELDS[name], array))
        self.set(**{name: array.ctypes.data})

    def view(self, shape: Shape, view: View, channels: int, vectors: int) -> None:
        """Say how windows are read, ``vectors`` of columns at a time."""
        masks_row = 4 * vectors
        places = view.places(self["image_step"], self.tile.lanes)
        self.set(
            groups=shape.groups, images=shape.images, pixels=view.pixels,
            size0=view.size[0], size1=view.size[1], size2=view.size[2],
            step=view.step, places_row=places.shape[1], tap_count=view.taps,
            masks_row=masks_row,
        )  # fmt: skip
        self.table("places", places)
        self.table("taps", np.ascontiguousarray(view.tap_offsets, np.int32))
        self.table("windows", view.windows(channels, masks_row))

    def lay_out_panels(self, across: int, sums: int, vectors: int, taps: int) -> None:
        """Lay out a workspace with panels of some columns and so many sums."""
        tile = self.tile
        slack = tile.width * tile.lanes
        regions = {
            "rows": tile.row_panel,
            "panels": tile.depth * across + slack,
            "sums": sums + tile.lanes,
        }
        self.lay_out(regions, self.table_regions("", vectors, taps))

    def table_regions(self, prefix: str, vectors: int, taps: int) -> dict[str, int]:
        """Bytes of the tables about a block's windows."""
        runs = 16 * vectors * self.tile.lanes
        sizes = {"masks": 4 * vectors * taps, "runs": runs, "counts": 8 * vectors}
        return {prefix + name: size for name, size in sizes.items()}

    def lay_out(self, elements: dict[str, int], sizes: dict[str, int]) -> None:
        """Lay out the regions of a workspace, given in elements and in bytes.

        Packed rows come first.
        """
        regions = {name: count * self.itemsize for name, count in elements.items()}
        at = 0
        for name, size in (regions | sizes).items():
            if name != "rows":
                self.set(**{f"{name}_at": at})
            at += up(size, ALIGNMENT)
        self.set(workspace_bytes=at)

    def count_rectangles(self) -> None:
        """Count the tasks that are rectangles of C."""
        down = ceil(self["rows"], self["task_rows"])
        across = ceil(self["columns"], self["task_columns"])
        self.tasks = down * across * self["groups"]


def ceil(x: int, y: int) -> int:
    """The quotient rounded up, at least 1."""
    return max(-(-x // y), 1)


def up(x: int, y: int) -> int:
    """The next multiple of y, one y at least."""
    return ceil(x, y) * y
