"""The pipeline: the compiler's table of contents.

    Graph ──passes──▶ Graph ──fuse──▶ groups ──select──▶ steps with Loop IR
          ──order, alias, vectorize──▶ Lowered ──emit──▶ code ──plan──▶ Executable

Every stage is a function from one form of the program to the next, and can be looked
at: ``WEFT_PRINT=fold`` prints to stderr what ``fold`` got and gave, ``WEFT_PRINT=all``
every stage that changed something. ``WEFT_VERIFY=1`` checks the program after each.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from weft.compile import passes as p
from weft.compile.fusion.groups import Fusion
from weft.compile.fusion.recomputed_reads import recompute_reads
from weft.compile.lower.deduplicate import KernelTable
from weft.compile.passes.check_before_writes import check_before_writes
from weft.compile.passes.copy_view_outputs import copy_view_outputs
from weft.compile.passes.expand_composites import expand_composites
from weft.compile.passes.expand_library import expand_library
from weft.compile.passes.hoist_small_values import hoist_small_values
from weft.compile.passes.inplace_concat import inplace_concat
from weft.compile.passes.recompute_state import recompute_state
from weft.compile.passes.rename_sizes import rename_sizes
from weft.compile.passes.separate_column_sums import separate_column_sums
from weft.compile.passes.split_k import split_k
from weft.compile.passes.split_reductions import split_reductions
from weft.compile.passes.widen_half_products import widen_half_products
from weft.compile.program import text as texts
from weft.compile.program.aliasing import alias
from weft.compile.program.check import verify_layout, verify_lowered
from weft.compile.program.lowered import Lowered, name_kernels, vectorize
from weft.compile.program.memory_layout import lay_out
from weft.compile.program.phases import phase
from weft.compile.program.select import proofs, select
from weft.compile.program.steps import Loop, hoisted, ordered
from weft.compile.recompute.lean import lean
from weft.compile.targets import Plan, Target
from weft.errors import ArgumentError
from weft.graph.custom import without_backward
from weft.graph.ir import Graph, Variable
from weft.graph.verify import verify

Pass = Callable[..., Graph]
Passes = Sequence[tuple[str, Pass]]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("without_backward", without_backward),  # nothing is differentiated any more
    ("dead_code", p.dead_code),
    ("sink_checks", p.sink_checks),
    ("sum_pool_windows", p.sum_pool_windows),
    ("user_rules", p.user_rules),  # on the program as it was captured
    ("simplify_views", p.simplify_views),
    ("fold", p.fold),
    ("simplify", p.simplify),
    ("concat_padded_sums", p.concat_padded_sums),
    ("transpose_products", p.transpose_products),
    ("merge_product_sums", p.merge_product_sums),
    ("sum_after_loops", p.sum_after_loops),
    ("stack_carries", p.stack_carries),
    ("slice_strided_convolutions", p.slice_strided_convolutions),
    ("cse", p.cse),
    ("fuse_attention", p.fuse_attention),
    ("channels_last", p.channels_last),
    ("sink_permutes", p.sink_permutes),
    ("fold_into_convolution", p.fold_into_convolution),
    ("fold_again", p.fold),  # the weights of frozen convolutions, and new zeros
    ("merge_sibling_products", p.merge_sibling_products),
    ("expand_library", expand_library),
    ("simplify_again", p.simplify),
    ("canonicalize", p.canonicalize),
    ("simplify_views_again", p.simplify_views),
    ("cse_again", p.cse),  # what became equal in its canonical form
    ("recompute", lean),  # or what ``weft.compile(f, memory=...)`` asks for
    ("check_before_writes", check_before_writes),  # of state, which then is in place
    ("recompute_state", recompute_state),  # behind checks of it
    ("rename_sizes", rename_sizes),  # from here on, the graph is shaped for kernels
    ("widen_half_products", widen_half_products),
    ("expand_composites", expand_composites),
    ("hoist_small_values", hoist_small_values),
    ("split_k", split_k),
    ("split_reductions", split_reductions),
    ("separate_column_sums", separate_column_sums),
    ("copy_view_outputs", copy_view_outputs),
    ("inplace_concat", inplace_concat),
)
_RECOMPUTE = [name for name, _ in PASSES].index("recompute")
TENSOR_PASSES = PASSES[:_RECOMPUTE]  # simpler programs over tensors, for any target
KERNEL_PASSES = PASSES[_RECOMPUTE + 1 :]  # the same programs, as kernels compute them
# They are told what may be written over.
_IN_PLACE = ("recompute", "check_before_writes", "recompute_state")
STAGES = (
    "fuse", "select", "order", "alias", "vectorize", "name_kernels", "emit", "plan"
)  # fmt: skip


def with_recompute(passes: Passes, recompute: Pass | None) -> Passes:
    """The passes with another one for recomputation, if it is given."""
    if recompute is None:
        return passes
    return [(n, recompute if n == "recompute" else one) for n, one in passes]


class Step(NamedTuple):
    """One stage of a run: the program before and after, and how long it took."""

    name: str
    before: Any
    after: Any
    seconds: float

    def __str__(self) -> str:
        nodes = f"{len(self.before)} → {len(self.after)} nodes"
        return f"{self.name}: {nodes}, {self.seconds * 1e3:.1f} ms"


@phase("passes")
def run(
    graph: Graph,
    passes: Passes = TENSOR_PASSES,
    trace: Callable[[Step], object] | None = None,
    in_place: Collection[Variable] = (),
) -> Graph:
    """The graph after passes; ``trace`` is called with each ``Step``.

    >>> from weft.compile import pipeline
    >>> g = weft.graph.capture(lambda x: (x * 1).exp() + x.exp(), weft.ones(3)).graph
    >>> print(pipeline.run(g))
    graph program(%x: float32[3]) {
      %exp: float32[3] = exp(%x)
      %add: float32[3] = add(%exp, %exp)
      return %add
    }
    """
    shown = _asked(passes)
    check = bool(os.environ.get("WEFT_VERIFY"))
    for name, one in passes:
        start = time.perf_counter()
        after = one(graph, in_place) if name in _IN_PLACE else one(graph)
        step = Step(name, graph, after, time.perf_counter() - start)
        if check:
            verify(after)
        if name in shown:
            _print_pass(step)
        if trace is not None:
            trace(step)
        graph = after
    return graph


@phase("lowering")
def lower(
    graph: Graph,
    target: Target,
    *,
    in_place: Collection[Variable] = (),
    pack_weights: bool = False,
    loop: Loop | None = None,
) -> Lowered:
    """Kernels and calls for a graph after all passes, in the order they run.

    ``loop`` says that the graph is a loop's body, and which of its inputs are fixed.

    >>> from weft.compile import pipeline
    >>> from weft.compile import targets
    >>> g = weft.graph.capture(lambda x: x.exp().sum(), weft.ones(3)).graph
    >>> [step.name for step in pipeline.lower(g, targets.default()).steps]
    ['kernel0']
    """
    fusion = Fusion(graph, target.supports)
    recompute_reads(fusion)
    _show("fuse", lambda: texts.groups_text(fusion))
    table = KernelTable(target)
    steps, refused = select(graph, fusion, table, target)
    _show("select", lambda: texts.steps_text(steps, loops=True))
    same = graph.inputs[: loop.fixed] if loop else ()
    steps = target.refine(graph, steps, pack_weights=pack_weights, fixed=same)
    steps, steady = hoisted(ordered(steps, graph), graph, same)
    _show("order", lambda: texts.steps_text(steps))
    aliasing, steps = alias(
        graph, steps, in_place, steady, loop and loop.carries(graph)
    )
    _show("alias", lambda: texts.aliasing_text(aliasing))
    steps = vectorize(steps, table, target)
    _show("vectorize", lambda: texts.steps_text(steps, loops=True))
    steps, kernels = name_kernels(steps, table)
    _show("name_kernels", lambda: texts.steps_text(steps))
    lowered = Lowered(
        graph, target, fusion, steps, refused, aliasing, kernels, table, steady
    )
    if os.environ.get("WEFT_VERIFY"):
        verify_lowered(lowered)
    return lowered


def emit(lowered: Lowered) -> Any:
    """The target's code of all kernels."""
    proofs().save()
    kernels, target = lowered.kernels.values(), lowered.target
    code = target.emit(lowered.table, kernels)
    _show("emit", lambda: "\n".join(target.source(kernel) for kernel in kernels))
    return code


def plan(lowered: Lowered, code: Any, sizes: Mapping[str, int]) -> Plan:
    """The program for some sizes: memory is laid out, steps are the target's data."""
    layout = lay_out(lowered, sizes)
    _show("plan", lambda: texts.layout_text(layout))
    if os.environ.get("WEFT_VERIFY"):
        verify_layout(layout)
    return lowered.target.plan(layout, code)


# -- looking at it


def _asked(passes: Passes = ()) -> set[str]:
    """The stages that WEFT_PRINT asks for, of ours and of a list of passes."""
    asked = os.environ.get("WEFT_PRINT", "")
    names = {*dict(PASSES), *STAGES, *dict(passes)}
    wanted = {name.strip() for name in asked.split(",") if name.strip()}
    if wanted - names - {"all"}:
        raise ArgumentError(
            f"WEFT_PRINT: expected 'all' or some of {', '.join(sorted(names))}, got "
            f"{asked!r}"
        )
    return names if "all" in wanted else wanted


def _show(stage: str, text: Callable[[], str]) -> None:
    """Print what a stage after the passes gave, if WEFT_PRINT asks for it."""
    if os.environ.get("WEFT_PRINT") and stage in _asked():
        print(f"# after {stage}\n{text()}", file=sys.stderr)


def _print_pass(step: Step) -> None:
    if step.after is step.before:
        print(f"# {step.name}: nothing to do", file=sys.stderr)
        return
    for when, graph in (("before", step.before), ("after", step.after)):
        print(f"# {when} {step.name}: {len(graph)} nodes", file=sys.stderr)
        print(graph, file=sys.stderr)
