"""A training step within a budget: plans and drafts in turn, until one obeys."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import NamedTuple

from weft.compile.cost.machine import Machine, machine
from weft.compile.passes.recompute import recompute
from weft.compile.recompute.draft import Draft
from weft.compile.recompute.planner import Choice, Planner
from weft.compile.recompute.segments import runs_of
from weft.graph.ir import Graph, Node, Variable

TRIES = 5  # drafts for one budget
CLOSE = 0.04  # of the budget: a plan that leaves no more is good enough


class Plan(NamedTuple):
    """A graph in which some values are recomputed."""

    graph: Graph
    needs: int  # bytes of a run
    seconds: float  # more than if everything were kept, by the model


class Budget:
    """Plans for one graph; ``in_place`` are the variables that may be written to."""

    def __init__(
        self,
        graph: Graph,
        in_place: Collection[Variable] = (),
        roof: Machine | None = None,
    ) -> None:
        self.in_place = in_place
        self.all = Draft(graph, in_place)  # with everything kept
        self._roof = roof

    @cached_property
    def planners(self) -> list[Planner]:
        roof = machine() if self._roof is None else self._roof
        return [Planner(run) for run in runs_of(self.all, roof)]

    def within(self, nbytes: int) -> Plan | None:
        """The plan of least time whose run needs at most so many bytes, if any.

        The planners' model of memory is approximate, whereas a draft is exact: the goal
        for the next plan is moved by the bytes that the last one lacked or left.
        """
        if self.all.needs <= nbytes:
            return Plan(self.all.graph, self.all.needs, 0.0)
        best: Plan | None = None
        goal, low, high = nbytes - (self.all.needs - self.all.arena), 0, self.all.needs
        for _ in range(TRIES):
            plan = self._plan(goal)
            if plan is None:
                break
            left = nbytes - plan.needs
            if left >= 0:
                if best is None or plan.seconds < best.seconds:
                    best = plan
                low = max(low, goal)
                if left <= CLOSE * nbytes:
                    break
            else:
                high = min(high, goal)
            if best is not None and high - low <= CLOSE * nbytes:
                break
            goal += round(0.7 * left if left > 0 else 1.2 * left - CLOSE * nbytes / 2)
            goal = (low + high) // 2 if best and not low < goal < high else goal
        if best is None and self.least.needs <= nbytes:
            best = self.least
        return best

    @cached_property
    def least(self) -> Plan:
        """The plan that needs the fewest bytes, of those that were drafted."""
        plans = [Plan(self.all.graph, self.all.needs, 0.0), *self._lean()]
        return min(plans, key=lambda plan: plan.needs)

    def _lean(self) -> Iterator[Plan]:
        """Plans for budgets near the smallest."""
        least = max((p.least for p in self.planners), default=0)
        for factor in (1.0, 1.1, 1.25):
            plan = self._plan(round(least * factor))
            if plan is not None:
                yield plan

    def _plan(self, goal: int) -> Plan | None:
        """The plan for an arena of so many bytes, by the planners' model."""
        choices: list[Choice] = []
        for planner in self.planners:
            choice = planner.best(goal)
            if choice is None:
                return None
            choices.append(choice)
        dropped: frozenset[Node] = frozenset().union(*[c.dropped for c in choices])
        graph = recompute(self.all.graph, lambda node: node not in dropped)
        draft = Draft(graph, self.in_place)
        return Plan(graph, draft.needs, sum(c.seconds for c in choices))
