"""Internal functions of a product's library, with their arguments by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import I64, VOID, function
from weft.compile.emit.isa import Isa, prepare_function
from weft.compile.emit.vectors import PTR
from weft.compile.targets.cpu.matmul.kinds import Kind
from weft.compile.targets.cpu.matmul.tiling import Tiling


class Library(NamedTuple):
    """The module, element kind and tiling that the functions of a product share."""

    module: ir.Module
    name: str
    kind: Kind
    isa: Isa
    tile: Tiling

    @property
    def element(self) -> Any:
        """The type of C's elements, of sums and of words."""
        return self.kind.element

    @property
    def item(self) -> Any:
        """The type of A's and B's elements."""
        return self.kind.item

    @property
    def vector(self) -> Any:
        """The type of a full vector."""
        return ir.VectorType(self.element, self.tile.lanes)

    @property
    def masks_are_free(self) -> bool:
        """Whether masked loads and stores cost no more than plain ones."""
        return self.isa.bits == 512

    @contextmanager
    def function(
        self, name: str, arguments: str, *, public: bool = False
    ) -> Iterator[tuple[Any, Any, ir.Function]]:
        """A function whose arguments are named; ``*x`` is a pointer, ``x`` an int64.

        Gives the builder, the arguments and the function.
        """
        names = arguments.split()
        types = [PTR if word.startswith("*") else I64 for word in names]
        full = self.name + (f"_{name}" if name else "")
        with function(self.module, full, VOID, types) as (b, new):
            prepare_function(new, self.isa)
            if not public:
                new.linkage = "internal"
                new.attributes.add("noinline")
            for argument, word in zip(new.args, names, strict=True):
                argument.name = word.lstrip("*")
            yield b, SimpleNamespace(**{arg.name: arg for arg in new.args}), new
            b.ret_void()
