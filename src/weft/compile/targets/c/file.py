"""A C file and its header: programs as functions of one model.

    int model_init(model *m, void *memory, size_t size);
    int model_run(model *m, const float *x, const int64_t x_shape[2], …);

The memory that ``init`` is given holds the model's state and the workspace of its
programs; nothing is allocated. Every function gives a code, 0 where all went well.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from weft.compile.passes.rename_sizes import spelling
from weft.compile.program.lowered import Lowered
from weft.compile.targets.c.memory import ALIGNMENT, CLayout, rounded
from weft.compile.targets.c.program import Names, variables_of, write_program
from weft.compile.targets.c.source import (
    Indices,
    Source,
    array,
    comment,
    identifier,
    memory_type,
)
from weft.compile.targets.c.weights import reader
from weft.core.size import Size, may_be_negative
from weft.dtype import DType
from weft.errors import ArgumentError
from weft.graph.ir import Node

# No sum is fused with a product. GCC makes no vectors of code that may trap otherwise.
_PRAGMAS = """\
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#endif
"""
Pack = Callable[[Mapping[str, np.ndarray]], bytes]
CODES = {
    "OK": "no error",
    "NOT_INITIALIZED": "a call before init, or after init has failed",
    "NULL_POINTER": "a pointer is NULL",
    "SHAPE": "a shape is not one that the program was made for",
    "MEMORY_TOO_SMALL": "the memory that init was given is too small",
    "VALUE": "an index is out of range, a divisor is 0 or a checked value is wrong",
    "WEIGHTS": "the file of weights cannot be read, or belongs to another model",
}


@dataclass(frozen=True)
class Entry:
    """A function of the file: a lowered program, and the names of its results."""

    name: str
    lowered: Lowered
    layout: CLayout
    open_sizes: Sequence[str]  # in the order in which the inputs' shapes name them
    ranges: Mapping[str, tuple[int, int]]  # of open sizes
    outputs: Sequence[str]
    state: Mapping[str, str]  # the part of the model's state that each variable is


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


class CFile(NamedTuple):
    """The texts of a header and of a source, and the file of weights beside them."""

    header: str
    source: str
    weights: bytes


def write_file(
    name: str,
    entries: Sequence[Entry],
    state: Mapping[str, tuple[DType, np.ndarray]],
    *,
    pack: Pack | None = None,
    made_of: str = "",
) -> CFile:
    """The C file of some programs; ``state`` has dtypes and first values by name.

    ``pack`` makes a safetensors file of arrays; without it, they are in the C file.
    """
    file = _File(name, entries, state, pack, made_of)
    file.check_names()
    return file.made()


class _File:
    """One file, while it is written."""

    def __init__(
        self, name: str, entries: Sequence[Entry], state: Mapping[str, Any],
        pack: Pack | None, made_of: str,
    ) -> None:  # fmt: skip
        if not name.isprintable() or '"' in name or "\\" in name:
            raise ArgumentError(f"export: {name!r} cannot be the name of a C file")
        self.name, self.stem = identifier(name), name
        self.entries, self.made_of = entries, made_of
        self.upper = self.name.upper()
        self.source = Source()
        self.names = Names(self.source, self.upper, beside=pack is not None)
        self.pack, self.packed = pack, b""
        self.places: dict[str, int] = {}
        self.state = state
        self.state_bytes = 0
        for key, (_, value) in state.items():
            self.places[key] = self.state_bytes
            self.state_bytes += rounded(value.nbytes)

    def check_names(self) -> None:
        """Refuse names that C does not allow, or that are taken."""
        taken = {f"{self.name}_{end}" for end in ("model", "init", "message", "state")}
        for entry in self.entries:
            plain = entry.name.isascii() and entry.name.isidentifier()
            mine = {f"{self.name}_{entry.name}", f"{self.name}_{entry.name}_memory"}
            if not plain or mine & taken:
                raise ArgumentError(
                    f"export: {entry.name!r} cannot be the name of a function in C, or "
                    "is taken; give it another name"
                )
            taken |= mine
        self.public = taken

    def made(self) -> CFile:
        functions = [self._entry(entry) for entry in self.entries]
        if self.pack is not None and self.names.weights:
            self.packed = self.pack(self.names.weights)
        init = self._init()
        if both := sorted(self.public & self.source.definitions.keys()):
            raise ArgumentError(
                f"export: the file has a function {both[0]!r} of its own; give the "
                "file another name"
            )
        head = [
            comment(f"{self.stem}.c: {self.made_of}"),
            f'#include "{self.stem}.h"\n',
            "#include <math.h>", "#include <string.h>", *self._more_headers(), "",
            _PRAGMAS,
        ]  # fmt: skip
        text = "\n".join([*head, str(self.source), init, self._state_function(),
                          *functions])  # fmt: skip
        return CFile(self._header(), text, self.packed)

    def _more_headers(self) -> list[str]:
        return ["#include <stdio.h>"] if self.names.weights else []

    # -- the header

    def _header(self) -> str:
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
#define {upper}_MEMORY {self._least_memory()}

/* a model in memory of yours, which it uses from init on; all begins with zeros */
typedef struct {self.name}_model {{
  uint32_t ready;
  unsigned char *state, *workspace;
  const unsigned char *weights;
  size_t size;
}} {self.name}_model;

{self._init_head()};
{self._state_declared()}\
{"".join(self._declared(entry) for entry in self.entries)}
#ifdef __cplusplus
}}
#endif
#endif
"""

    def _state_head(self) -> str:
        name = self.name
        return f"void *{name}_state({name}_model *m, const char *part, size_t *bytes)"

    def _state_declared(self) -> str:
        if not self.state:
            return ""
        parts = [
            comment(f'"{key}": {dtype.name}{list(value.shape)}')
            for key, (dtype, value) in self.state.items()
        ]
        what = comment("a part of the state by its name; NULL if there is none")
        return "\n".join(["", what, *parts, f"{self._state_head()};\n"])

    def _state_function(self) -> str:
        if not self.state:
            return ""
        rows = ",\n".join(
            f'  {{"{key}", {self.places[key]}, {value.nbytes}}}'
            for key, (_, value) in self.state.items()
        )
        return f"""\
static const struct {{
  const char *name;
  size_t place, bytes;
}} parts[] = {{
{rows},
}};

{self._state_head()} {{
  if (m == NULL || m->ready != READY || part == NULL) return NULL;
  for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {{
    if (strcmp(parts[k].name, part) != 0) continue;
    if (bytes != NULL) *bytes = parts[k].bytes;
    return m->state + parts[k].place;
  }}
  return NULL;
}}

"""

    def _declared(self, entry: Entry) -> str:
        lines = [f"\n{comment(self._described(entry))}"]
        if entry.layout.open:
            lines.append(comment(f"bytes of memory for {entry.name} of these sizes"))
            lines.append(f"{self._size_head(entry)};")
        return "\n".join([*lines, f"{self._head(entry)};\n"])

    def _described(self, entry: Entry) -> str:
        given = ", ".join(f"{a.name}: {a.node.type}" for a in self._arguments(entry, 0))
        made = ", ".join(f"{a.name}: {a.node.type}" for a in self._arguments(entry, 1))
        return f"({given}) gives {made}"

    def _least_memory(self) -> int:
        fixed = [int(e.layout.nbytes) for e in self.entries if not e.layout.open]
        return self._base() + max(fixed, default=0)

    def _base(self) -> int:
        """Bytes of state and weights, with those to align them."""
        return ALIGNMENT + self.state_bytes + self.names.weight_bytes

    def _init_head(self) -> str:
        path = ", const char *weights" if self.names.weights else ""
        given = f"{self.name}_model *m, void *memory, size_t size{path}"
        return f"int {self.name}_init({given})"

    def _size_head(self, entry: Entry) -> str:
        sizes = ", ".join(f"int64_t {identifier(n, 'n')}" for n in entry.open_sizes)
        return f"size_t {self.name}_{entry.name}_memory({sizes})"

    def _head(self, entry: Entry) -> str:
        both = [*self._arguments(entry, 0), *self._arguments(entry, 1)]
        given = ", ".join([f"{self.name}_model *m", *[a.text for a in both]])
        return f"int {self.name}_{entry.name}({given})"

    def _arguments(self, entry: Entry, which: int) -> list[Argument]:
        """The inputs or the outputs of a function, under names that C allows."""
        graph, taken = entry.lowered.graph, {"m", "n", "io", "size"}
        found: list[Argument] = []
        pairs = [(node.name, node, True) for node in graph.inputs]
        pairs += [
            (n, node, False)
            for n, node in zip(entry.outputs, graph.outputs, strict=True)
        ]
        for name, node, const in pairs:
            plain = identifier(name)
            while plain in taken or f"{plain}_shape" in taken:
                plain += "_"
            taken |= {plain, f"{plain}_shape"}
            found.append(Argument(plain, node, const))
        count = len(graph.inputs)
        return found[count:] if which else found[:count]

    # -- the functions

    def _init(self) -> str:
        upper, name = self.upper, self.name
        lines = []
        for key, (dtype, value) in self.state.items():
            place = f"m->state + {self.places[key]}"
            if not value.any():
                lines.append(f"memset({place}, 0, {value.nbytes});")
                continue
            made = f"first{len(lines)}"
            self.source.define(made, functools.partial(array, made, value, dtype))
            lines.append(f"memcpy({place}, {made}, sizeof {made});")
        if self.names.weights:
            lines.append(f"if (read_weights(m->workspace, weights) != 0) "
                         f"return {upper}_WEIGHTS;")  # fmt: skip
            lines.append("m->weights = m->workspace;")
            lines.append(f"m->workspace += {self.names.weight_bytes};")
            self._weight_reader()
        body = "\n  ".join(lines)
        cases = "\n".join(
            f'    case {upper}_{key}: return "{text}";' for key, text in CODES.items()
        )
        path = " || weights == NULL" if self.names.weights else ""
        return f"""\
#define READY 0x57454654u
#define {upper}_BASE {self._base()}

const char *{name}_message(int code) {{
  switch (code) {{
{cases}
    default: return "no such code";
  }}
}}

{self._init_head()} {{
  if (m == NULL) return {upper}_NULL_POINTER;
  m->ready = 0;
  if (memory == NULL{path}) return {upper}_NULL_POINTER;
  if (size < {upper}_MEMORY) return {upper}_MEMORY_TOO_SMALL;
  const size_t rest = ({ALIGNMENT} - (uintptr_t)memory % {ALIGNMENT}) % {ALIGNMENT};
  m->state = (unsigned char *)memory + rest;
  m->workspace = m->state + {self.state_bytes};
  m->weights = NULL;
  m->size = size;
  {body}
  m->ready = READY;
  return {upper}_OK;
}}
"""

    def _weight_reader(self) -> None:
        text = reader(self.packed, self.names.places)
        self.source.define("read_weights", lambda: text)

    def _entry(self, entry: Entry) -> str:
        upper = self.upper
        program = write_program(
            self.names, entry.lowered, entry.layout, entry.open_sizes,
            f"program_{entry.name}",
        )  # fmt: skip
        given, made = self._arguments(entry, 0), self._arguments(entry, 1)
        checks = _Checks(self.source, entry, given, made)
        lines = [
            f"if (m == NULL || m->ready != READY) return {upper}_NOT_INITIALIZED;",
            *[
                f"if ({a.missing}) return {upper}_NULL_POINTER;"
                for a in (*given, *made)
            ],
            *checks.lines(f"return {upper}_SHAPE;"),
        ]
        if entry.layout.open:
            sizes = ", ".join(checks.names[spelling(n)] for n in entry.open_sizes)
            need = f"{self.name}_{entry.name}_memory({sizes})"
            lines.append(f"if (m->size < {need}) return {upper}_MEMORY_TOO_SMALL;")
        io = ["(void *)m->weights", *[f"(void *){a.name}" for a in (*given, *made)]]
        for variable in variables_of(entry.lowered.graph):
            io.append(f"m->state + {self.places[entry.state[variable.name]]}")
        lines += [
            f"void *const io[] = {{\n    {_listed(io)}\n  }};",
            f"const int64_t n[] = {{{', '.join(['0', *checks.sizes])}}};",
            f"return {program}(m->workspace, io, n) ? {upper}_VALUE : {upper}_OK;",
        ]
        body = "\n".join(f"  {line}" for line in lines if line)
        return f"{self._memory_function(entry)}{self._head(entry)} {{\n{body}\n}}\n"

    def _memory_function(self, entry: Entry) -> str:
        if not entry.layout.open:
            return ""
        names = {spelling(n): identifier(n, "n") for n in entry.open_sizes}
        indices = Indices(self.source, names)
        need = entry.layout.nbytes
        known = need.symbols if isinstance(need, Size) else ()
        unused = "".join(f"  (void){n};\n" for k, n in names.items() if k not in known)
        return f"""\
{self._size_head(entry)} {{
{unused}\
  const double bytes = {indices.real(need)};
  if (!(bytes >= 0 && bytes < 1e15)) return SIZE_MAX;
  return (size_t)({self.upper}_BASE + {indices.text(need)});
}}

"""


def _listed(items: Sequence[str]) -> str:
    return ",\n    ".join(items)


class _Checks:
    """What the shapes of a call must satisfy, and the sizes that they decide."""

    def __init__(
        self, source: Source, entry: Entry, given: Sequence[Argument],
        made: Sequence[Argument],
    ) -> None:  # fmt: skip
        self.entry, self.given, self.made = entry, given, made
        self.names: dict[str, str] = {}
        self.indices = Indices(source, self.names)
        self.order = [spelling(n) for n in entry.open_sizes]

    @property
    def sizes(self) -> list[str]:
        return [self.names[name] for name in self.order]

    def lines(self, fail: str) -> list[str]:
        lines, later = [], []
        for argument in self.given:
            for d, n in enumerate(argument.node.shape):
                have = f"{argument.name}_shape[{d}]"
                name = n.symbol_name if isinstance(n, Size) else ""
                if name and name not in self.names:
                    self.names[name] = f"size{len(self.names)}"
                    lines.append(f"const int64_t {self.names[name]} = {have};")
                    lines.append(f"if ({self._outside(name)}) {fail}")
                else:
                    later.append((have, n))
        missing = [n for n in self.order if n not in self.names]
        if missing:
            raise ArgumentError(
                f"export: no input has the size {missing[0]!r} by itself as a "
                "dimension, so that C cannot know it"
            )
        lines += self._bounded(fail)
        for argument in self.made:
            later += [(f"{argument.name}_shape[{d}]", n)
                      for d, n in enumerate(argument.node.shape)]  # fmt: skip
        lines += [f"if ({have} != {self.indices.text(n)}) {fail}" for have, n in later]
        for assumption in self.entry.lowered.graph.sizes.assumptions.values():
            sides = (assumption.left, assumption.right)
            known = self.names.keys()
            if all(not isinstance(s, Size) or s.symbols <= known for s in sides):
                left, right = map(self.indices.text, sides)
                lines.append(f"if (!({left} {assumption.relation} {right})) {fail}")
        return lines

    def _outside(self, name: str) -> str:
        """Whether a size is out of its range; all are 1 at least."""
        plain = {spelling(n): n for n in self.entry.open_sizes}[name]
        low, high = self.entry.ranges.get(plain, (1, 2**63 - 1))
        made = self.names[name]
        text = f"{made} < {max(low, 1)}"
        return text if high >= 2**63 - 1 else f"{text} || {made} > INT64_C({high})"

    def _bounded(self, fail: str) -> list[str]:
        """Refuse sizes whose products overflow, or of which others are negative."""
        counts = [
            math.prod(node.shape, start=node.dtype.itemsize)
            for node in self.entry.lowered.graph.nodes
            if type(node.type) is not tuple
        ]
        terms = {self.indices.real(c) for c in counts if isinstance(c, Size)
                 and c.symbols <= self.names.keys()}  # fmt: skip
        lines = [f"if (!({term} < 1e15)) {fail}" for term in sorted(terms)]
        sizes = {
            self.indices.text(n)
            for node in self.entry.lowered.graph.nodes
            if type(node.type) is not tuple
            for n in node.shape
            if isinstance(n, Size) and may_be_negative(n)
            and n.symbols <= self.names.keys()
        }  # fmt: skip
        return lines + [f"if ({size} < 0) {fail}" for size in sorted(sizes)]
