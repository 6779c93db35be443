"""The pipeline: one flat list of named passes, each of which can be looked at.

``WEFT_PRINT=fold`` prints what ``fold`` got and gave to stderr, ``WEFT_PRINT=all``
every pass that changed something. ``WEFT_VERIFY=1`` checks the graph after each.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from weft.compile import passes as p
from weft.compile.program.phases import phase
from weft.errors import ArgumentError
from weft.graph.custom import without_backward
from weft.graph.ir import Graph
from weft.graph.verify import verify

Pass = Callable[[Graph], Graph]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("without_backward", without_backward),  # nothing is differentiated any more
    ("dead_code", p.dead_code),
    ("sink_checks", p.sink_checks),
    ("user_rules", p.user_rules),  # on the program as it was captured
    ("simplify_views", p.simplify_views),
    ("fold", p.fold),
    ("simplify", p.simplify),
    ("concat_padded_sums", p.concat_padded_sums),
    ("transpose_products", p.transpose_products),
    ("merge_product_sums", p.merge_product_sums),
    ("slice_strided_convolutions", p.slice_strided_convolutions),
    ("cse", p.cse),
    ("fuse_attention", p.fuse_attention),
    ("sink_permutes", p.sink_permutes),
    ("fold_into_convolution", p.fold_into_convolution),
    ("fold_again", p.fold),  # the weights of frozen convolutions, and new zeros
    ("merge_sibling_products", p.merge_sibling_products),
    ("simplify_again", p.simplify),
    ("canonicalize", p.canonicalize),
    ("simplify_views_again", p.simplify_views),
    ("cse_again", p.cse),  # what became equal in its canonical form
)


class Step(NamedTuple):
    """One pass of a run: the graphs before and after, and how long it took."""

    name: str
    before: Graph
    after: Graph
    seconds: float

    def __str__(self) -> str:
        nodes = f"{len(self.before)} → {len(self.after)} nodes"
        return f"{self.name}: {nodes}, {self.seconds * 1e3:.1f} ms"


@phase("passes")
def run(
    graph: Graph,
    passes: Sequence[tuple[str, Pass]] = PASSES,
    trace: Callable[[Step], object] | None = None,
) -> Graph:
    """The graph after all passes; ``trace`` is called with each ``Step``.

    >>> from weft.compile import pipeline
    >>> g = weft.graph.capture(lambda x: (x * 1).exp() + x.exp(), weft.ones(3)).graph
    >>> print(pipeline.run(g))
    graph program(%x: float32[3]) {
      %exp: float32[3] = exp(%x)
      %add: float32[3] = add(%exp, %exp)
      return %add
    }
    """
    shown = _shown(passes)
    check = bool(os.environ.get("WEFT_VERIFY"))
    for name, one in passes:
        start = time.perf_counter()
        after = one(graph)
        step = Step(name, graph, after, time.perf_counter() - start)
        if check:
            verify(after)
        if name in shown:
            _print(step)
        if trace is not None:
            trace(step)
        graph = after
    return graph


def _shown(passes: Sequence[tuple[str, Pass]]) -> set[str]:
    """The passes that WEFT_PRINT asks for."""
    asked = os.environ.get("WEFT_PRINT", "")
    names = {name for name, _ in passes}
    if asked == "all":
        return names
    wanted = {name.strip() for name in asked.split(",") if name.strip()}
    if passes is PASSES and wanted - names:
        raise ArgumentError(
            f"WEFT_PRINT: expected 'all' or some of {', '.join(sorted(names))}, got "
            f"{asked!r}"
        )
    return wanted


def _print(step: Step) -> None:
    if step.after is step.before:
        print(f"# {step.name}: nothing to do", file=sys.stderr)
        return
    for when, graph in (("before", step.before), ("after", step.after)):
        print(f"# {when} {step.name}: {len(graph)} nodes", file=sys.stderr)
        print(graph, file=sys.stderr)
