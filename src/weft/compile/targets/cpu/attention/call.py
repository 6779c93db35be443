"""Attention and its gradients as launches of the generated kernels.

Operands are read through the views they are, as strides, if their features are
contiguous; a mask may also be repeated along any axis. Others are copied first. The
causal half that no query sees is not computed; the formula's FLOP count includes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from weft import dtype as dtypes
from weft.compile.emit.isa import Isa
from weft.compile.fusion.groups import Operand
from weft.compile.program.steps import LibraryCall
from weft.compile.program.strided_views import outline, view_of
from weft.compile.targets.cpu.attention import plan as plans
from weft.compile.targets.cpu.attention.arrays import compiled
from weft.compile.targets.cpu.attention.plan import Options, Plan
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.executable import Symbol
from weft.compile.targets.cpu.jobs import Job, Pointer, Work
from weft.core.lowering import Library
from weft.core.size import Size, is_one, same
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.ops.attention import attention_op
from weft.ops.broadcasting import expand_op
from weft.ops.shaping import permute_op, reshape_op
from weft.ops.slicing import slice_op
from weft.runtime.cpu import pool


def is_attention(node: Node) -> bool:
    """Whether a node is an attention that the generated kernels compute."""
    rule = node.op.lower
    if not isinstance(rule, Library) or rule.family != "attention":
        return False
    if not all(type(i) is Node for i in node.inputs):
        return False
    return node.inputs[0].dtype.name in ("float32", "float64")


def is_apart(node: Node) -> bool:
    """Whether the last axis of an operand may not be contiguous in its base.

    Axes may be exchanged, repeated, cut and split, but for the last: that may be cut.
    """
    moved = False
    for view in reversed(Operand(node).views):
        (before,) = (i for i in view.inputs if type(i) is Node)
        if view.op is reshape_op:
            if moved and not _splits(before.shape, view.shape):
                return True
            continue
        moved = True
        if not _keeps_last(view, before):
            return True
    return False


def _keeps_last(view: Node, before: Node) -> bool:
    if view.op is permute_op:
        return view.params["dims"][-1] == len(before.shape) - 1
    if view.op is expand_op:  # a mask may be the same for all keys
        if view.dtype is dtypes.bool_:
            return True
        return before.shape != () and same(before.shape[-1], view.shape[-1])
    if view.op is slice_op:
        index = view.params["index"]
        whole = len([i for i in index if i is not None]) < len(before.shape)
        last = index[-1] if index else None
        return whole or (isinstance(last, slice) and last.step in (None, 1))
    return False


def _splits(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Whether a reshape only cuts axes into several, and adds axes of size one."""
    rest = [n for n in after if not is_one(n)]
    for n in (n for n in before if not is_one(n)):
        have: Any = 1
        while rest and not same(have, n):
            have = have * rest.pop(0)
        if not same(have, n):
            return False
    return not rest


def usual_function(node: Node) -> str:
    """The function that most likely computes an attention with symbolic sizes."""
    rule: Library = node.op.lower
    rows, masked = node.inputs[0].shape[-2], len(node.inputs) == len(rule.operands)
    forward = rule.kind == "forward"
    if forward and not isinstance(rows, Size) and rows <= COST.attention.few_rows:
        return "few_tasks"
    return f"{'masked_' * masked}{'forward' if forward else 'backward'}_tasks"


class Attention(LibraryCall):
    """Attention or its gradients; each output that is used is a value of its own."""

    computes = staticmethod(is_attention)
    copies = staticmethod(is_apart)

    @staticmethod
    def row_axes(node: Node) -> int | None:
        return None  # an element of a row is finished with the last block of keys

    def work(self, sizes: Mapping[str, int], isa: Isa) -> Work | None:
        """One job for each stack of heads."""
        given, outputs = self.node.op.lower.operands, self.node.op.outputs
        views = [view_of(operand, sizes) for operand in self.operands]
        if any(view is None for view in views) or not self.picks:
            return None
        used = {outputs[pick.params["index"]] for pick in self.picks}
        if self.node.op is attention_op and "o" not in used:
            return None  # the kernels write it in any case
        arrays = {n: v[0] for n, v in zip(given, views, strict=False)}
        owners = {n: (v[1], o.base) for n, v, o in zip(given, views, self.operands,
                                                       strict=False)}  # fmt: skip
        for pick in self.picks:
            name = outputs[pick.params["index"]]
            array = outline(resolve(pick.shape, sizes), pick.dtype.np)
            arrays[name], owners[name] = array, (array, pick)
        jobs = math.prod(arrays["q"].shape[:-4])
        if not plans.fits(arrays) or jobs > COST.matmul.most_jobs:
            return None
        code = compiled(arrays["q"].dtype.name, isa)
        params = resolve(self.node.params, sizes)
        options = Options(params["causal"], params["scale"], params["zeros"])
        kind = "forward" if self.node.op is attention_op else "backward"
        threads = max(pool.get_num_threads(), 2)
        plan: Plan = getattr(plans, kind)(arrays, options, code.tile, threads)
        jobs = [
            Job(fields, _pointers(arrays, owners, place))
            for fields, place in zip(plan.jobs, plan.places, strict=True)
        ]
        function = Symbol("attention", arrays["q"].dtype.name, plan.function)
        return Work(function, jobs, plan.tasks, plan.workspace)


def _pointers(
    arrays: Mapping[str, Any], owners: Mapping[str, Any], place: tuple[int, ...]
) -> list[Pointer]:
    """The pointers of a job: its arrays as offsets into their bases."""
    pointers = []
    for name, array in arrays.items():
        start, base = owners[name]
        offset = array[place].ctypes.data - start.ctypes.data
        pointers.append(Pointer(plans.field(name), base, offset))
    return pointers
