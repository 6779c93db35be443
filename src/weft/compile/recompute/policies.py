"""Policies and budgets for ``weft.compile(f, memory=...)``.

nothing         everything that is not cheap to recompute is kept (see ``lean``)
"keep"          everything that backward needs is kept
"recompute"     nothing is kept
"selective"     results of matrix products, convolutions and attention
"sqrt"          values that cross about sqrt(N) cuts through the model
{"matmul"}      results of some operators
function        results for which it returns True
"512MB"         the values that fit and save most time
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from weft.autograd.policies import named, selective
from weft.autograd.segment import Named, Result
from weft.compile.cost.machine import machine
from weft.compile.cost.work import size_of
from weft.compile.passes.recompute import Keep, recompute
from weft.compile.recompute.budget import Budget
from weft.compile.recompute.draft import Draft
from weft.compile.recompute.footprint import fixed_bytes
from weft.compile.recompute.lean import lean
from weft.compile.recompute.planner import Planner, square_root
from weft.compile.recompute.segments import runs_of
from weft.core.rows import nbytes
from weft.errors import AllocationError, ArgumentError
from weft.graph.captured_program import Captured
from weft.graph.interpret import resolve
from weft.graph.ir import Graph, Node, Variable
from weft.memory.sizes import parse_bytes

POLICIES = ("keep", "recompute", "selective", "sqrt")


class Memory(NamedTuple):
    """The memory that a compiled step may use: a policy, or at most so many bytes."""

    policy: Any = "keep"
    limit: int | None = None

    @property
    def stamp(self) -> str:
        """A text that identifies it in cache keys; empty for a function."""
        if isinstance(self.policy, Named):
            return ",".join(sorted(self.policy.names))
        return f"{self.policy} {self.limit}" if isinstance(self.policy, str) else ""

    def adapting(self, captured: Captured) -> Adapt:
        """The pass that adapts the graph of a captured step."""
        return Adapt(self, captured)


class Adapt(NamedTuple):
    """A pass after which values that are not kept are recomputed."""

    memory: Memory
    captured: Captured

    @property
    def stamp(self) -> str:
        return self.memory.stamp

    def __call__(self, graph: Graph, in_place: Collection[Variable]) -> Graph:
        policy, limit = self.memory
        if limit is not None:
            return _within(graph, self.captured, in_place, limit)
        if policy == "keep":
            return graph
        draft = Draft(graph, in_place)
        return recompute(draft.graph, _keep(policy, draft))


def memory_of(memory: Any) -> Memory:
    """The meaning of the argument ``memory`` of ``weft.compile``.

    >>> from weft.compile.recompute.policies import memory_of
    >>> memory_of("1.5 GB").limit, memory_of("sqrt").policy
    (1500000000, 'sqrt')
    """
    if memory is None:
        return Memory()
    if isinstance(memory, str):
        if memory in POLICIES:
            return Memory(memory)
        if not memory.strip()[:1].isdigit() and memory.strip()[:1] not in tuple("+-."):
            raise ArgumentError(
                "compile: expected memory to be a size such as '512MB', one of the "
                f"policies {', '.join(map(repr, POLICIES))}, a set of operators' names "
                f"or a function, got {memory!r}"
            )
    elif callable(memory):
        return Memory(memory)
    elif isinstance(memory, Iterable):
        return Memory(named("compile", memory))
    return Memory("budget", parse_bytes(memory, "compile"))


def _keep(policy: Any, draft: Draft) -> Keep:
    """The function that tells whether a node's result is kept."""
    if policy == "recompute":
        return lambda node: False
    if policy == "sqrt":
        return _by_cuts(draft)
    says = selective() if policy == "selective" else policy
    return lambda node: bool(says(result_of(node, draft.sizes)))


def result_of(node: Node, sizes: Any) -> Result:
    """A node as a policy sees it."""
    first = node.type if hasattr(node.type, "dtype") else node.type[0]
    shape = resolve(first.shape, sizes)
    return Result(node.op.name, shape, first.dtype, size_of(node, sizes), node.params)


def _by_cuts(draft: Draft) -> Keep:
    dropped: set[Node] = set()
    for run in runs_of(draft, machine()):
        kept: set[Node] = set()
        cuts = [*square_root(run)]
        for cut in cuts:
            kept |= run.crossing[cut]
        last = cuts[-1] if cuts else 0  # backward begins with the values after it
        kept |= {v.node for some in run.at[last:] for v in some}
        dropped |= Planner(run).choice(frozenset(kept)).dropped
    return lambda node: node not in dropped


def _within(
    graph: Graph, captured: Captured, in_place: Collection[Variable], limit: int
) -> Graph:
    usual = lean(graph)  # it costs no time
    draft = Draft(usual, in_place)
    fixed = fixed_bytes(captured, draft)
    if draft.needs + fixed <= limit:
        return usual
    budget = Budget(graph, in_place)
    plan = budget.within(limit - fixed)
    if plan is None:
        least = budget.least.needs + fixed
        raise AllocationError(
            f"compile: {graph.name} cannot run within {nbytes(limit)} ({limit:,} "
            f"bytes). The smallest budget is {math.ceil(least / 1e4) / 100:,} MB "
            f"({least:,} bytes): {nbytes(fixed)} for parameters, gradients, optimizer "
            f"state, buffers and arguments, and {nbytes(budget.least.needs)} for what "
            f"is computed. Without a budget it takes "
            f"{nbytes(draft.needs + fixed)}"
        )
    return plan.graph
