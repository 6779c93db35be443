"""Captured programs as native code: their graphs are there already."""

from __future__ import annotations

from typing import Any

from weft.compile.frontend.specialization import Specialization
from weft.core.pytree import tree_flatten
from weft.errors import ArgumentError
from weft.graph.captured_program import Captured


class CompiledProgram:
    """A captured or loaded program that runs natively, on the same tensors.

    >>> program = weft.graph.capture(lambda x: x * 2, weft.ones(3))
    >>> weft.compile(program)(weft.arange(3.0))
    tensor([0., 2., 4.])
    """

    def __init__(self, program: Captured, pack_weights: bool = False) -> None:
        self.captured = program
        if not program.wanting:  # files do not tell it of programs that are interpreted
            program.wanting = [False] * len(program.values)
        self.entry = Specialization(program, pack_weights=pack_weights)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        self.captured.check(structure, leaves)
        return self.entry.run(leaves, self.captured.arrays_of(leaves), (args, kwargs))

    def __repr__(self) -> str:
        return f"<compiled {self.captured.graph!r}>"


def compiled_program(program: Captured, pack_weights: bool, **options: Any) -> Any:
    """A program that runs natively; one that does so already is returned as it is."""
    given = [name for name, value in options.items() if value]
    if given:
        raise ArgumentError(
            f"compile: {given[0]!r} is an option for functions and modules; a captured "
            "program is compiled as it is"
        )
    if getattr(program, "native", False):
        return program
    return CompiledProgram(program, pack_weights)
