"""The record of an attention's job, and the layout of its workspace.

A job is for stacks of heads with two leading axes, ``outer`` and ``head``. Forward
tasks compute some rows of one head's output. Backward tasks are for a whole head, or,
where ``apart``, for a block of its keys (``dk`` and ``dv``) or of its rows (``dq``).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft.compile.emit.control_flow import I8, I64, i64
from weft.compile.emit.vectors import at
from weft.compile.targets.cpu.matmul.tasks import divide, fields

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
    "transposed_at", "other_at", "scores_at", "slopes_at", "tops_at", "sums_at",
    "*workspace", "workspace_bytes",
]  # fmt: skip
ADDED, CHOSEN = 1, 2  # kinds of masks: numbers to add, or who takes part


def read_job(b: Any, job: Any, worker: Any) -> Any:
    """The fields of a job; ``workspace`` is this worker's, the parts are addresses."""
    s = SimpleNamespace(**fields(b, job, JOB))
    s.workspace = at(b, s.workspace, b.mul(worker, s.workspace_bytes), I8)
    for name in [word for word in JOB if word.endswith("_at")]:
        part = name.removesuffix("_at")
        setattr(s, part, at(b, s.workspace, getattr(s, name), I8))
    return s


def enter_head(b: Any, s: Any, head: Any, element: Any) -> None:
    """Move all pointers of a job to one head; results are contiguous by heads."""
    outer, inner = divide(b, head, s.heads)
    for name in ("q", "k", "v", "g"):
        far = b.mul(outer, getattr(s, f"{name}_outer"))
        near = b.mul(inner, getattr(s, f"{name}_head"))
        setattr(s, name, at(b, getattr(s, name), b.add(far, near), element))
    place = b.add(b.mul(outer, s.mask_outer), b.mul(inner, s.mask_head))
    s.mask = _in_mask(b, s, place, element)
    sizes = {"o": b.mul(s.rows, s.width), "lse": s.rows, "delta": s.rows,
             "dq": b.mul(s.rows, s.depth), "dk": b.mul(s.keys, s.depth),
             "dv": b.mul(s.keys, s.width)}  # fmt: skip
    for name, size in sizes.items():
        here, pointer = b.mul(head, size), getattr(s, name)
        moved = at(b, pointer, here, element)
        setattr(s, name, b.select(given(b, pointer), moved, pointer))


def mask_at(b: Any, s: Any, row: Any, key: Any, element: Any) -> Any:
    """Where a head's mask has the element of a row and a key."""
    place = b.add(b.mul(row, s.mask_row), b.mul(key, s.mask_col))
    return _in_mask(b, s, place, element)


def _in_mask(b: Any, s: Any, place: Any, element: Any) -> Any:
    added = b.icmp_signed("==", s.mask_kind, i64(ADDED))
    return b.select(added, at(b, s.mask, place, element), at(b, s.mask, place, I8))


def given(b: Any, pointer: Any) -> Any:
    """Whether there is such an array."""
    return b.icmp_unsigned("!=", b.ptrtoint(pointer, I64), i64(0))
