"""The record of a convolution's job, and the layout of its workspace.

Three kinds of tasks read it. *Image* tasks compute an image from an image and weights
(forward, or a gradient's phase): C[rows, columns] where a column is a pixel of the
result, counted through all images. *Weight* tasks compute the weights' gradient:
C[rows, columns] where a row is an element of a window and a column an output channel,
summed over pixels. *Direct* ones do the same without packing, for few rows. *Winograd*
ones are image tasks whose columns are tiles; ``y_`` fields describe where tiles go.
"""

from __future__ import annotations

from weft.compile.targets.cpu.matmul.functions import names_of

# ``image`` is what windows are read from. ``other`` is the weights (image tasks) or the
# result's gradient (weight tasks). Steps, rows and groups are distances in elements;
# sizes that end with ``_at`` are bytes into the workspace. `tables` has the arrays.
# ``image_row`` is 0 unless rows of windows are an image's own, one after the other.
JOB = [
    "status", "*image", "*other", "*bias", "*out", "*epilogue", "*context",
    "rows", "columns", "k", "block", "groups", "images", "pixels",
    "image_step", "image_group", "image_row", "size0", "size1", "size2", "step",
    "i32*places", "places_row", "i32*taps", "tap_count", "i64*windows",
    "i64*order", "order_run", "order_step", "other_step", "other_row", "other_group",
    "i64*spots", "spot_run", "out_step", "out_row", "out_group",
    "task_rows", "task_columns", "task_groups", "sums_row",
    "*panels_at", "*sums_at", "i8*masks_at", "masks_row", "i64*runs_at",
    "i64*counts_at",
    "i32*y_places", "y_places_row", "i32*y_taps", "i64*y_windows", "y_size1",
    "y_size2", "*gradients_at", "i8*y_masks_at", "i64*y_runs_at", "i64*y_counts_at",
    "i8*workspace", "workspace_bytes",
]  # fmt: skip
NAMES = names_of(JOB)
