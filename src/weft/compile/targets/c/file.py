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
from weft.compile.targets.c.interface import (
    CODES,
    NO_CODE,
    READY,
    Argument,
    Interface,
    Signature,
)
from weft.compile.targets.c.memory import ALIGNMENT, CLayout
from weft.compile.targets.c.program import Names, variables_of, write_program
from weft.compile.targets.c.source import (
    Indices,
    Source,
    array,
    comment,
    identifier,
)
from weft.compile.targets.c.weights import reader
from weft.core.size import Size, may_be_negative
from weft.dtype import DType
from weft.errors import ArgumentError

# No sum is fused with a product. GCC makes no vectors of code that may trap otherwise.
_PRAGMAS = """\
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#endif
"""
Pack = Callable[[Mapping[str, np.ndarray]], bytes]


@dataclass(frozen=True)
class Entry(Signature):
    """A function of the file: its signature, its steps and their memory."""

    lowered: Lowered
    layout: CLayout


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
    return _File(name, entries, state, pack, made_of).made()


class _File:
    """One file, while it is written."""

    def __init__(
        self, name: str, entries: Sequence[Entry], state: Mapping[str, Any],
        pack: Pack | None, made_of: str,
    ) -> None:  # fmt: skip
        self.interface = Interface(name, entries, state, made_of)
        self.name, self.stem = self.interface.name, name
        self.entries, self.made_of = entries, made_of
        self.upper = self.interface.upper
        self.source = Source()
        self.names = Names(self.source, self.upper, beside=pack is not None)
        self.pack, self.packed = pack, b""
        self.places, self.state = self.interface.places, state
        self.state_bytes = self.interface.state_bytes

    def made(self) -> CFile:
        functions = [self._entry(entry) for entry in self.entries]
        self.interface.weight_bytes = self.names.weight_bytes
        if self.pack is not None and self.names.weights:
            self.packed = self.pack(self.names.weights)
        init = self._init()
        if both := sorted(self.interface.public & self.source.definitions.keys()):
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
        return CFile(self.interface.header(self._least_memory()), text, self.packed)

    def _more_headers(self) -> list[str]:
        return ["#include <stdio.h>"] if self.names.weights else []

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

{self.interface.state_head} {{
  if (m == NULL || m->ready != READY || part == NULL) return NULL;
  for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {{
    if (strcmp(parts[k].name, part) != 0) continue;
    if (bytes != NULL) *bytes = parts[k].bytes;
    return m->state + parts[k].place;
  }}
  return NULL;
}}

"""

    def _least_memory(self) -> int:
        fixed = [int(e.layout.nbytes) for e in self.entries if not e.layout.open]
        return self.interface.base + max(fixed, default=0)

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
#define READY {READY:#x}u
#define {upper}_BASE {self.interface.base}

const char *{name}_message(int code) {{
  switch (code) {{
{cases}
    default: return "{NO_CODE}";
  }}
}}

{self.interface.init_head} {{
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
        given, made = entry.arguments
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
        head = self.interface.head(entry)
        return f"{self._memory_function(entry)}{head} {{\n{body}\n}}\n"

    def _memory_function(self, entry: Entry) -> str:
        if not entry.layout.open:
            return ""
        names = {spelling(n): identifier(n, "n") for n in entry.open_sizes}
        indices = Indices(self.source, names)
        need = entry.layout.nbytes
        known = need.symbols if isinstance(need, Size) else ()
        unused = "".join(f"  (void){n};\n" for k, n in names.items() if k not in known)
        return f"""\
{self.interface.memory_head(entry)} {{
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
