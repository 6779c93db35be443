"""The C interface of exported programs: a header, and the names that it declares.

Sources in C and object code have the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.compile.targets.c.memory import ALIGNMENT, rounded
from weft.compile.targets.c.source import comment, identifier, memory_type
from weft.core.size import Size
from weft.dtype import DType
from weft.errors import ArgumentError
from weft.graph.ir import Graph, Node

READY = 0x57454654  # the first word of a model after init
CODES = {
    "OK": "no error",
    "NOT_INITIALIZED": "a call before init, or after init has failed",
    "NULL_POINTER": "a pointer is NULL",
    "SHAPE": "a shape is not one that the program was made for",
    "MEMORY_TOO_SMALL": "the memory that init was given is too small",
    "VALUE": "an index is out of range, a divisor is 0 or a checked value is wrong",
    "WEIGHTS": "the file of weights cannot be read, or belongs to another model",
}
NO_CODE = "no such code"


@dataclass(frozen=True)
class Signature:
    """A function of an exported file: a graph, and the names of its results."""

    name: str
    graph: Graph
    open_sizes: Sequence[str]  # in the order in which the inputs' shapes name them
    ranges: Mapping[str, tuple[int, int]]  # of open sizes
    outputs: Sequence[str]
    state: Mapping[str, str]  # the part of the model's state that each variable is

    @property
    def arguments(self) -> tuple[list[Argument], list[Argument]]:
        """The inputs and the outputs, under names that C allows."""
        taken = {"m", "n", "io", "size"}
        found: list[Argument] = []
        pairs = [(node.name, node, True) for node in self.graph.inputs]
        pairs += [
            (n, node, False)
            for n, node in zip(self.outputs, self.graph.outputs, strict=True)
        ]
        for name, node, const in pairs:
            plain = identifier(name)
            while plain in taken or f"{plain}_shape" in taken:
                plain += "_"
            taken |= {plain, f"{plain}_shape"}
            found.append(Argument(plain, node, const))
        count = len(self.graph.inputs)
        return found[:count], found[count:]


class Argument(NamedTuple):
    """A tensor that a function is given."""

    name: str
    node: Node
    const: bool

    @property
    def rank(self) -> int:
        return len(self.node.shape)

    @property
    def text(self) -> str:
        """The parameters: a pointer, and a shape where there are dimensions."""
        kind = memory_type(self.node.dtype)
        pointer = f"{'const ' if self.const else ''}{kind} *{self.name}"
        if not self.rank:
            return pointer
        return f"{pointer}, const int64_t {self.name}_shape[{self.rank}]"

    @property
    def missing(self) -> str:
        """Whether a pointer is NULL."""
        names = [self.name, f"{self.name}_shape"][: 1 + (self.rank > 0)]
        return " || ".join(f"{name} == NULL" for name in names)


def open_sizes(graph: Graph) -> list[str]:
    """The open sizes of a graph's inputs, in their order."""
    names: dict[str, None] = {}
    for node in graph.inputs:
        for n in node.shape:
            if isinstance(n, Size):
                names.update(dict.fromkeys(sorted(n.symbols)))
    return list(names)


class Interface:
    """The functions of one exported file, and where its state is."""

    weight_bytes = 0  # of memory for weights from a file beside
    threads = 0  # that a library may use; 0 if they are not chosen at run time

    def __init__(
        self, stem: str, functions: Sequence[Signature],
        state: Mapping[str, tuple[DType, np.ndarray]], made_of: str,
    ) -> None:  # fmt: skip
        if not stem.isprintable() or '"' in stem or "\\" in stem:
            raise ArgumentError(f"export: {stem!r} cannot be the name of a C file")
        self.name, self.stem = identifier(stem), stem
        self.upper = self.name.upper()
        self.functions, self.state, self.made_of = functions, state, made_of
        self.places: dict[str, int] = {}  # of parts of the state, in bytes
        self.state_bytes = 0
        for key, (_, value) in state.items():
            self.places[key] = self.state_bytes
            self.state_bytes += rounded(value.nbytes)
        self.public = self._public()

    def _public(self) -> set[str]:
        """The names of all functions; those that C does not allow are refused."""
        ends = ("model", "init", "message", "state", "threads")
        taken = {f"{self.name}_{end}" for end in ends}
        for one in self.functions:
            plain = one.name.isascii() and one.name.isidentifier()
            mine = {f"{self.name}_{one.name}", f"{self.name}_{one.name}_memory"}
            if not plain or mine & taken:
                raise ArgumentError(
                    f"export: {one.name!r} cannot be the name of a function in C, or "
                    "is taken; give it another name"
                )
            taken |= mine
        return taken

    @property
    def base(self) -> int:
        """Bytes of state and weights, with those to align them."""
        return ALIGNMENT + self.state_bytes + self.weight_bytes

    # -- heads of functions

    @property
    def init_head(self) -> str:
        path = ", const char *weights" if self.weight_bytes else ""
        given = f"{self.name}_model *m, void *memory, size_t size{path}"
        return f"int {self.name}_init({given})"

    @property
    def state_head(self) -> str:
        name = self.name
        return f"void *{name}_state({name}_model *m, const char *part, size_t *bytes)"

    def memory_head(self, one: Signature) -> str:
        sizes = ", ".join(f"int64_t {identifier(n, 'n')}" for n in one.open_sizes)
        return f"size_t {self.name}_{one.name}_memory({sizes})"

    def head(self, one: Signature) -> str:
        given, made = one.arguments
        texts = ", ".join([f"{self.name}_model *m", *[a.text for a in (*given, *made)]])
        return f"int {self.name}_{one.name}({texts})"

    # -- the header

    def header(self, least: int) -> str:
        """The header; ``least`` is the number of bytes that init needs."""
        upper = self.upper
        codes = "\n".join(
            f"  {upper}_{key}{' = 0' if key == 'OK' else ''}, {comment(text)}"
            for key, text in CODES.items()
        )
        return f"""\
{comment(f"{self.stem}.h: {self.made_of}")}
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* what functions give */
enum {{
{codes}
}};

/* a code in words */
const char *{self.name}_message(int code);

/* bytes of memory that {self.name}_init needs at least */
#define {upper}_MEMORY {least}

/* a model in memory of yours, which it uses from init on; all begins with zeros */
typedef struct {self.name}_model {{
  uint32_t ready;
  unsigned char *state, *workspace;
  const unsigned char *weights;
  size_t size;
}} {self.name}_model;

{self.init_head};
{self._threads_declared()}{self._state_declared()}\
{"".join(self._declared(one) for one in self.functions)}
#ifdef __cplusplus
}}
#endif
#endif
"""

    def _threads_declared(self) -> str:
        if not self.threads:
            return ""
        what = (
            f"let all models use some threads, {self.threads} at most, as they do "
            "until then; gives how many"
        )
        return f"\n{comment(what)}\nint {self.name}_threads(int count);\n"

    def _state_declared(self) -> str:
        if not self.state:
            return ""
        parts = [
            comment(f'"{key}": {dtype.name}{list(value.shape)}')
            for key, (dtype, value) in self.state.items()
        ]
        what = comment("a part of the state by its name; NULL if there is none")
        return "\n".join(["", what, *parts, f"{self.state_head};\n"])

    def _declared(self, one: Signature) -> str:
        lines = [f"\n{comment(self._described(one))}"]
        if one.open_sizes:
            lines.append(comment(f"bytes of memory for {one.name} of these sizes"))
            lines.append(f"{self.memory_head(one)};")
        return "\n".join([*lines, f"{self.head(one)};\n"])

    def _described(self, one: Signature) -> str:
        given, made = (
            ", ".join(f"{a.name}: {a.node.type}" for a in some)
            for some in one.arguments
        )
        return f"({given}) gives {made}"
