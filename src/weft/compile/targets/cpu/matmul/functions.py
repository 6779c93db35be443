"""Internal functions of a product's library, with their arguments by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import I8, I32, I64, VOID, function
from weft.compile.emit.isa import Isa, prepare_function
from weft.compile.emit.values import PTR, Pointer, Value
from weft.compile.targets.cpu.matmul.kinds import Kind
from weft.compile.targets.cpu.matmul.tiling import Tiling


def as_value(b: Any, operand: Any, pointed: Any) -> Value:
    """A pointer to elements of a type, or a number."""
    return Value(b, operand) if pointed is None else Pointer(b, operand, pointed)


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

    def declaration(self, word: str) -> tuple[Any, str]:
        """What an argument's or a field's word says: what it points at, and its name.

        ``x`` is an int64, ``*x`` a pointer to C's elements, ``item*x`` to A's and B's,
        ``i8*x`` to bytes.
        """
        kind, star, name = word.rpartition("*")
        pointed = {
            "": self.element,
            "item": self.item,
            "i8": I8,
            "i32": I32,
            "i64": I64,
        }
        return (pointed[kind] if star else None), name

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
    ) -> Iterator[tuple[Any, ir.Function]]:
        """A function with such arguments (``declaration``); gives them, and itself."""
        words = [self.declaration(word) for word in arguments.split()]
        types = [I64 if pointed is None else PTR for pointed, _ in words]
        full = self.name + (f"_{name}" if name else "")
        with function(self.module, full, VOID, types) as (b, new):
            prepare_function(new, self.isa)
            if not public:
                new.linkage = "internal"
                new.attributes.add("noinline")
            s = SimpleNamespace()
            for argument, (pointed, name) in zip(new.args, words, strict=True):
                argument.name = name
                setattr(s, name, as_value(b, argument, pointed))
            yield s, new
            b.ret_void()


def names_of(words: list[str]) -> list[str]:
    """The names of a job's fields.

    >>> from weft.compile.targets.cpu.matmul.functions import names_of
    >>> names_of(["status", "*c", "i8*masks_at"])
    ['status', 'c', 'masks_at']
    """
    return [word.rpartition("*")[2] for word in words]
