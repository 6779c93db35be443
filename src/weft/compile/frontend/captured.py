"""Captured programs as native code: their graphs are there already."""

from __future__ import annotations

from typing import Any

from weft.compile.frontend.specialization import Specialization
from weft.core.pytree import tree_flatten
from weft.graph.captured_program import Captured


class CompiledProgram:
    """A captured or loaded program that runs natively, on the same tensors.

    >>> program = weft.graph.capture(lambda x: x * 2, weft.ones(3))
    >>> weft.compile(program)(weft.arange(3.0))
    tensor([0., 2., 4.])
    """

    def __init__(self, program: Captured) -> None:
        self.captured = program
        if not program.wanting:  # files do not tell it of programs that are interpreted
            program.wanting = [False] * len(program.values)
        self.entry = Specialization(program)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        self.captured.check(structure, leaves)
        return self.entry.run(leaves, self.captured.arrays_of(leaves), (args, kwargs))

    def __repr__(self) -> str:
        return f"<compiled {self.captured.graph!r}>"
