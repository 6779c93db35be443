"""What the native loop reads: a row for each launch, and what rows lead to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compile.driver import FIELDS, driver
from weft.compile.followers import FIRST, WIDTH, Follower
from weft.compile.jobs import Routine
from weft.compile.joined import Piece
from weft.compile.launches import Launch, Use
from weft.compile.placed import Placed
from weft.compile.tuning.choices import Loops
from weft.core.size import evaluate
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.runtime.address import address

if TYPE_CHECKING:
    from weft.compile.native import Native

GRAIN = Loops().grain


class Tables(Placed):
    """Rows, sizes and addresses of a native graph's launches (see ``driver``)."""

    def __init__(self, native: Native, sizes: Mapping[str, int]) -> None:
        super().__init__(native, sizes)
        self.contexts: list[np.ndarray] = []  # of followers
        self._describe()
        self._plan()

    def _describe(self) -> None:
        """What the native loop reads of each launch: see ``driver``."""
        self.uses: list[Use] = []
        for step in self.launches:
            use = step.follower if isinstance(step, Routine) else step
            self.uses += [use] if use is not None else []
        nodes = [node for use in self.uses for node in use.owners]
        self.where = np.array([self.places[n] for n in nodes], np.int64)
        gaps = [gap for u in self.uses for gap in u.gaps or [0] * len(u.owners)]
        self.gaps = np.array(gaps, np.int64) if any(gaps) else None
        self.table = np.zeros(len(nodes), np.int64)
        self.jobs.link(self.places)
        self._give_sizes()
        rows = [
            self._row(step) if isinstance(step, Use) else self._job_row(step)
            for step in self.launches
        ]
        self.rows = np.array(rows, np.int64).reshape(-1, FIELDS)

    def _give_sizes(self) -> None:
        """The sizes that kernels need, and their errors' flags, in one array."""
        numbers: list[int] = []
        flags: list[int] = []
        starts: dict[Use, tuple[int, int]] = {}  # of each one's addresses and sizes
        at = 0
        names = {use.name: use.kernel for use in self.uses}  # equal ones have one name
        self.needed = {name: kernel.sizes for name, kernel in names.items()}
        for use in self.uses:
            starts[use] = at, len(numbers)
            known = self._known(use)
            numbers += [known[name] for name in self.needed[use.name]]
            if use.checks:
                flags.append(len(numbers))
                numbers.append(0)
            at += len(use.owners)
        self.numbers = np.array([*numbers, 0], np.int64)
        self.flags = np.array(flags, np.int64)
        table, sizes = address(self.table), address(self.numbers)
        self.found = {u: (table + 8 * a, sizes + 8 * s) for u, (a, s) in starts.items()}

    def _known(self, use: Use) -> dict[str, int]:
        given = {k: evaluate(n, self.sizes) for k, n in use.kernel.given}
        return {**self.sizes, **given}

    def _row(self, use: Use) -> list[int]:
        known = self._known(use)
        count = math.prod(evaluate(n, known) for _, n in use.kernel.parallel)
        if isinstance(use, Piece) and self.inside.get(use.piece) is use:
            count = 0  # it is there
        work = sum(self._count(n) for n in use.works)
        share = max(work // max(count, 1), 1) * max(len(use.group.nodes), 1)
        function, body = self._function(use), driver().iterations
        _, cuts = self.native.alike.cut(use.kernel)
        worth = GRAIN if cuts.grain == Loops().grain else cuts.grain
        grain = max(worth // share, 1)
        return [0, function, *self.found[use], count, grain, body, 0, 0]

    def _job_row(self, routine: Routine) -> list[int]:
        if routine.follower is not None:
            self._lead_on(routine, routine.follower)
        return [*self.jobs.row(routine, driver().jobs), 0]

    def _lead_on(self, routine: Routine, use: Follower) -> None:
        """Tell a routine's jobs what follows."""
        names = self.needed[use.name]
        first, width = (names.index(n) if n in names else -1 for n in (FIRST, WIDTH))
        each = evaluate(use.each, self.sizes)
        fields = self._function(use), *self.found[use], len(names)
        context = np.array([*fields, first, width, each], np.int64)
        self.contexts.append(context)
        self.jobs.lead_to(routine, address(context))

    def _function(self, use: Use) -> int:
        """The address of a use's code, for those values that do share a place here.

        A product may be a call for these sizes, or apart from what follows it.
        """
        names = [buffer.name for buffer in use.kernel.buffers]
        slots = {n: self.places[o] for n, o in zip(names, use.owners, strict=True)}
        return self.native.function(
            use.kernel,
            tuple(p for p in use.kernel.shared if self._is_one(*map(slots.get, p))),
        )

    def _is_one(self, a: Any, b: Any) -> bool:
        """Whether two slots are the same memory, in every run."""
        return a == b or 0 != self.addresses[a] == self.addresses[b]

    def _count(self, node: Node) -> int:
        return math.prod(resolve(node.shape, self.sizes))

    def _plan(self) -> None:
        """Waves of launches, run natively without a stop, and calls between them."""
        self.plan: list[Any] = []
        gangs: list[list[int]] = []
        k, at = 0, 0
        self.stop = -1  # the place in the plan before which errors are looked for
        while at < len(self.steps):
            if self.stop < 0 and at >= self.order.safe:
                self.stop = len(self.plan)
                fresh = True
            else:
                fresh = not self.plan or not isinstance(self.plan[-1], tuple)
            if not isinstance(self.steps[at], Launch):
                self.plan.append(self.steps[at])
                at += 1
                continue
            wave, first = self.order.waves[at], k
            while at < len(self.steps) and self.order.waves[at] == wave:
                at, k = at + 1, k + 1
            gangs.append(self._gang(first, k))
            if fresh:
                self.plan.append((len(gangs) - 1, len(gangs)))
            else:
                self.plan[-1] = (self.plan[-1][0], len(gangs))
        if self.stop < 0:
            self.stop = len(self.plan)
        self.gangs = np.array(gangs, np.int64).reshape(-1, FIELDS)
        self.rows_at = address(self.gangs)

    def _gang(self, first: int, last: int) -> list[int]:
        """The row of a wave's launches together."""
        rows = self.rows[first:last]
        if len(rows) == 1:
            return rows[0].tolist()
        grains = -(-rows[:, 4] // rows[:, 5])
        rows[:, 8] = np.cumsum(grains) - grains
        total = int(grains.sum())
        tiny = (rows[:, 6] == driver().iterations) & (rows[:, 4] <= rows[:, 5])
        work = sum(
            1.0 if not small else float(row[4]) / float(row[5])
            for row, small in zip(rows, tiny, strict=True)
        )
        grain = 1 if work >= 2 else total
        return [0, 0, address(rows), len(rows), total, grain, driver().gang, 0, 0]
