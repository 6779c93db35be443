"""When there is no memory for a compiled step: what needs it, and what would help."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from weft.compile.explain.memory import short_line
from weft.compile.passes.recompute import BackwardRuns
from weft.compile.pipeline import run as run_passes
from weft.compile.recompute.draft import Draft
from weft.compile.recompute.lean import lean
from weft.compile.recompute.policies import memory_of
from weft.core.op import TensorType
from weft.core.rows import nbytes
from weft.errors import AllocationError
from weft.graph.interpret import resolve
from weft.graph.ir import Graph, Variable
from weft.memory import get_memory_limit
from weft.memory.report import LARGEST, lacking
from weft.memory.scan import Held

TRIED = ("selective", "sqrt")  # policies whose savings are computed


def explained(
    graph: Graph, in_place: Collection[Variable], recompute: Any, error: AllocationError
) -> AllocationError:
    """The error of an arena that could not be allocated, with its values and advice.

    ``recompute`` is the pass of that name that the graph was compiled with.
    """
    optimized = run_passes(graph)
    draft = Draft(recompute(optimized, in_place), in_place)
    savings = [(draft.arena // 2, "half the batch")]
    if recompute is lean:
        savings += _policies(graph.name, optimized, in_place, draft)
    else:
        savings.append((draft.arena // 4, "a smaller memory= of weft.compile"))
    why, largest = _why(error), _largest(draft)
    return lacking(graph.name, draft.arena, why, largest, savings)


def _why(error: AllocationError) -> str:
    limit = get_memory_limit()
    if limit is not None and "would exceed the limit" in str(error):
        return (
            f"would exceed the limit of {nbytes(limit)} that set_memory_limit has set"
        )
    reason = str(error).partition("\n")[0].removeprefix("arena: ")
    return f"are not to be had: {reason}"


def _policies(
    name: str, graph: Graph, in_place: Collection[Variable], draft: Draft
) -> Iterator[tuple[int, str]]:
    """The bytes that policies would save, for a step with gradients."""
    if not BackwardRuns(draft.graph).of:
        return
    for policy in TRIED:
        try:
            less = memory_of(policy).adapting(None)(graph, in_place)  # type: ignore[arg-type]
            saved = draft.arena - Draft(less, in_place).arena
        except AllocationError:  # costs are measured, which takes memory too
            continue
        if saved > 0:
            yield saved, f'weft.compile({name}, memory="{policy}")'


def _largest(draft: Draft) -> list[Held]:
    """The largest values at the peak of memory."""
    largest = []
    for value in draft.memory.top[:LARGEST]:
        node = value.node
        kind = node.type if isinstance(node.type, TensorType) else node.type[0]
        shape = resolve(kind.shape, draft.sizes)
        name = f"{node.op.name} in {node.module}" if node.module else node.op.name
        line = short_line(node)
        largest.append(
            Held(value.nbytes, "activations", shape, kind.dtype.name, name, line)
        )
    return largest
