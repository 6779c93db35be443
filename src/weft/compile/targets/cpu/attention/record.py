"""The record of an attention's job, and the layout of its workspace.

A job is for stacks of heads with two leading axes, ``outer`` and ``head``. Forward
tasks compute some rows of one head's output. Backward tasks are for a whole head, or,
where ``apart``, for a block of its keys (``dk`` and ``dv``) or of its rows (``dq``).
"""

from __future__ import annotations

from typing import Any

from weft.compile.emit.control_flow import I8
from weft.compile.emit.values import select
from weft.compile.targets.cpu.matmul.functions import names_of
from weft.compile.targets.cpu.matmul.tasks import divide

# Sizes: ``rows`` of queries, ``keys``, ``depth`` features of both, ``width`` features
# of values. Strides count elements; fields that end with ``_at`` are bytes into the
# workspace.
JOB = [
    "status", "*q", "*k", "*v", "*mask", "*o", "*lse", "*g", "*delta", "*dq", "*dk",
    "*dv", "heads", "rows", "keys", "depth", "width",
    "q_outer", "q_head", "q_row", "k_outer", "k_head", "k_row",
    "v_outer", "v_head", "v_row", "g_outer", "g_head", "g_row",
    "mask_outer", "mask_head", "mask_row", "mask_col", "mask_kind",
    "causal", "zeros", "scale", "apart", "tasks",
    "block_rows", "block_keys", "keys_row",
    "*transposed_at", "*other_at", "*scores_at", "*slopes_at", "*tops_at", "*sums_at",
    "i8*workspace", "workspace_bytes",
]  # fmt: skip
NAMES = names_of(JOB)
ADDED, CHOSEN = 1, 2  # kinds of masks: numbers to add, or who takes part


def enter_head(s: Any, head: Any) -> None:
    """Move all pointers of a job to one head; results are contiguous by heads."""
    outer, inner = divide(head, s.heads)
    for name in ("q", "k", "v", "g"):
        far = outer * getattr(s, f"{name}_outer")
        near = inner * getattr(s, f"{name}_head")
        setattr(s, name, getattr(s, name) + (far + near))
    place = outer * s.mask_outer + inner * s.mask_head
    s.mask = _in_mask(s, place)
    sizes = {"o": s.rows * s.width, "lse": s.rows, "delta": s.rows,
             "dq": s.rows * s.depth, "dk": s.keys * s.depth,
             "dv": s.keys * s.width}  # fmt: skip
    for name, size in sizes.items():
        array = getattr(s, name)
        setattr(s, name, select(array.is_given(), array + head * size, array))


def mask_at(s: Any, row: Any, key: Any) -> Any:
    """The address of the element of a head's mask for a row and a key."""
    return _in_mask(s, row * s.mask_row + key * s.mask_col)


def _in_mask(s: Any, place: Any) -> Any:
    added = s.mask_kind.equals(ADDED)
    return select(added, s.mask + place, s.mask.of(I8) + place)
