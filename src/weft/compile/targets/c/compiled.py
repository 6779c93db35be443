"""From graphs to a C file: the passes, the checks and the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.compile import pipeline, targets
from weft.compile.program.bodies import own_outputs, own_state
from weft.compile.program.lowered import Lowered
from weft.compile.targets.c.file import CFile, Entry, Pack, write_file
from weft.compile.targets.c.interface import open_sizes
from weft.compile.targets.c.memory import lay_out
from weft.compile.targets.c.program import refused, refused_for, variables_of
from weft.compile.targets.c.target import C
from weft.errors import ArgumentError
from weft.graph.ir import Graph

PASSES = (
    *pipeline.TENSOR_PASSES,
    *pipeline.KERNEL_PASSES,
    ("own_outputs", own_outputs),
    ("own_state", own_state),
)


def lowered(graph: Graph) -> Lowered:
    """A graph's steps for C; its variables may be written in place."""
    state = variables_of(graph)
    with targets.compiling_for(C):
        graph = pipeline.run(graph, PASSES, in_place=state)
        return pipeline.lower(graph, C, in_place=state)


def c_file(
    name: str, programs: Sequence[Any], state: Mapping[str, np.ndarray], *,
    pack: Pack | None = None, made_of: str = "",
) -> CFile:  # fmt: skip
    """The C file of some programs (see ``weft.export``), with their state.

    Operators that C lacks are an error that names all of them.
    """
    made = [lowered(program.graph) for program in programs]
    refuse([node for one in made for node in refused(one)])
    with targets.compiling_for(C):
        layouts = [lay_out(one, {}) for one in made]
        refuse([node for layout in layouts for node in refused_for(layout)])
        entries = [
            Entry(p.name, one.graph, open_sizes(p.graph), p.ranges, p.outputs,
                  p.state, one, layout)
            for p, one, layout in zip(programs, made, layouts, strict=True)
        ]  # fmt: skip
        held = {k: (dtypes.of_array(v), v) for k, v in state.items()}
        return write_file(name, entries, held, pack=pack, made_of=made_of)


def refuse(nodes: Sequence[Any], what: str = "C") -> None:
    """Raise an error that names all nodes that cannot be exported, if there are any."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        lines = found.setdefault(node.op.name, [])
        line = node.line.partition("\n")[0]
        if line not in lines:
            lines.append(line)
    if found:
        text = "\n".join(f"  {op}: {'; '.join(lines)}" for op, lines in found.items())
        raise ArgumentError(
            f"export: {what} has no form of these operators, for these dtypes and "
            f"shapes; compute them outside the program, or in another way:\n{text}"
        )
