"""The record of a convolution's job, and the layout of its workspace.

Three kinds of tasks read it. *Image* tasks compute an image from an image and weights
(forward, or a gradient's phase): C[rows, columns] where a column is a pixel of the
result, counted through all images. *Weight* tasks compute the weights' gradient:
C[rows, columns] where a row is an element of a window and a column an output channel,
summed over pixels. *Direct* ones do the same without packing, for few rows. *Winograd*
ones are image tasks whose columns are tiles; ``y_`` fields describe where tiles go.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft.compile.emit.control_flow import I8
from weft.compile.emit.vectors import at
from weft.compile.targets.cpu.matmul.tasks import fields

# ``image`` is what windows are read from. ``other`` is the weights (image tasks) or the
# result's gradient (weight tasks). Steps, rows and groups are distances in elements;
# sizes that end with ``_at`` are bytes into the workspace. `tables` has the arrays.
# ``image_row`` is 0 unless rows of windows are an image's own, one after the other.
JOB = [
    "status", "*image", "*other", "*bias", "*out", "*epilogue", "*context",
    "rows", "columns", "k", "block", "groups", "images", "pixels",
    "image_step", "image_group", "image_row", "size0", "size1", "size2", "step",
    "*places", "places_row", "*taps", "tap_count", "*windows",
    "*order", "order_run", "order_step", "other_step", "other_row", "other_group",
    "*spots", "spot_run", "out_step", "out_row", "out_group",
    "task_rows", "task_columns", "task_groups", "sums_row",
    "panels_at", "sums_at", "masks_at", "masks_row", "runs_at", "counts_at",
    "*y_places", "y_places_row", "*y_taps", "*y_windows", "y_size1",
    "y_size2", "gradients_at", "y_masks_at", "y_runs_at", "y_counts_at",
    "*workspace", "workspace_bytes",
]  # fmt: skip


def read_job(b: Any, job: Any, worker: Any) -> Any:
    """The fields of a job; ``workspace`` is this worker's, the parts are addresses."""
    s = SimpleNamespace(**fields(b, job, JOB))
    s.workspace = at(b, s.workspace, b.mul(worker, s.workspace_bytes), I8)
    for name in [word for word in JOB if word.endswith("_at")]:
        part = name.removesuffix("_at")
        setattr(s, part, at(b, s.workspace, getattr(s, name), I8))
    return s
