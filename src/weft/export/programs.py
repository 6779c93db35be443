"""Programs for artefacts: functions and modules as graphs that share their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compile.passes.freeze import freeze
from weft.core.pytree import Structure
from weft.errors import ArgumentError
from weft.export.dynamic_shapes import ValueRange, named_sizes
from weft.export.exported_program import ExportedProgram, captured, ranges_of
from weft.graph.captured_program import Captured
from weft.graph.effects import Printed
from weft.graph.ir import ASSIGN, READ, Graph
from weft.graph.labels import labels_of
from weft.graph.passes import dead_code
from weft.graph.state_cells import Cell
from weft.nn import Module


class Program(NamedTuple):
    """One entry point of an artefact."""

    name: str
    graph: Graph
    ranges: Mapping[str, ValueRange]  # of open sizes
    outputs: Sequence[str]  # names
    state: Mapping[str, str]  # names of the parts of the state, by variable


class Programs(NamedTuple):
    """The entry points of an artefact, and the state that they share."""

    entries: Sequence[Program]
    state: Mapping[str, np.ndarray]  # first values, by name


def programs_of(entries: Mapping[str, Any], dynamic_shapes: Any) -> Programs:
    """Capture functions, given with example arguments, by name.

    What no entry point changes becomes constant. Everything else is state.
    """
    runs = {
        name: captured_entry(name, program, example, dynamic_shapes)
        for name, (program, example) in entries.items()
    }
    cells = _Cells([run for run, _ in runs.values()])
    made = []
    for name, (run, ranges) in runs.items():
        graph = _with_state(run, cells)
        outputs = output_names_of(run)
        variables = {v.name: cells.names[id(v)] for v in _variables(graph)}
        made.append(Program(name, graph, ranges, outputs, variables))
    used = {part for one in made for part in one.state.values()}
    return Programs(made, {k: v for k, v in cells.first.items() if k in used})


def captured_entry(
    name: str, program: Any, example: Any, dynamic_shapes: Any
) -> tuple[Captured, dict[str, ValueRange]]:
    if isinstance(program, Captured):
        _check(name, program)
        return program, {}
    args, options = example if isinstance(example, tuple) else (example,), {}
    if isinstance(program, ExportedProgram):
        args, options = program._examples()
        wanted = program._wanted(args, options)
        program = program.module()
    else:
        if not callable(program):
            raise ArgumentError(
                f"export: expected a module, a function or an exported program for "
                f"{name!r}, got {type(program).__name__}"
            )
        forward = program.forward if isinstance(program, Module) else program
        labels = labels_of(program, args, {})
        wanted = named_sizes(forward, args, {}, dynamic_shapes, labels)
    run = captured(program, args, options, wanted)
    _check(name, run)
    return run, ranges_of(run, wanted.dims)


def _check(name: str, run: Captured) -> None:
    if any(not isinstance(effect, Printed) for effect in run.effects):
        raise ArgumentError(
            f"export: {name!r} changes lists, dictionaries or other objects of Python, "
            "which an artefact does not have; return the values instead"
        )
    if run.rewritten:
        raise ArgumentError(
            f"export: {name!r} changes an argument in place, which an artefact's "
            "function does not; return the new value instead"
        )


class _Cells:
    """The tensors outside that programs read and change, under one name each."""

    def __init__(self, runs: Sequence[Captured]) -> None:
        self.names: dict[int, str] = {}  # by the variable's identity
        self.first: dict[str, np.ndarray] = {}
        self.read: set[str] = set()
        self.changed: set[str] = set()
        keys: dict[Any, str] = {}
        for run in runs:
            for name, cell in run.cells.items():
                variable = run.graph.variables.get(name, cell.variable)
                key = _key(name, cell)
                if key not in keys:
                    plain, k = name, 0
                    while plain in keys.values():
                        k += 1
                        plain = f"{name}.{k}"
                    keys[key] = plain
                self.names[id(variable)] = self.names[id(cell.variable)] = keys[key]
            for node in run.graph.nodes:
                if node.op in (READ, ASSIGN):
                    part = self.names[id(node.params["variable"])]
                    (self.read if node.op is READ else self.changed).add(part)
            for cell in run.cells.values():
                part = self.names[id(cell.variable)]
                if part in self.read and part not in self.first:
                    self.first[part] = np.array(cell.get())


def _key(name: str, cell: Cell) -> Any:
    if type(cell) is Cell:
        return id(cell.tensor)
    held = cell.tensor if hasattr(cell, "tensor") else None
    return type(cell), name if held is None else id(held)


def _variables(graph: Graph) -> list[Any]:
    nodes = (n for n in graph.nodes if n.op in (READ, ASSIGN))
    return list(dict.fromkeys(n.params["variable"] for n in nodes))


def _with_state(run: Captured, cells: _Cells) -> Graph:
    """The graph, with constants for what never changes, and no writes of what is
    never read."""
    graph = run.graph
    part = lambda node: cells.names[id(node.params["variable"])]  # noqa: E731
    nodes = [n for n in graph.nodes if n.op is not ASSIGN or part(n) in cells.read]
    graph = Graph(graph.name, nodes, graph.outputs, graph.sizes, graph.inputs)
    final = {
        n.params["variable"].name: cells.first[part(n)]
        for n in graph.nodes
        if n.op is READ and part(n) not in cells.changed
    }
    return dead_code(freeze(graph, final))


def output_names_of(run: Captured) -> list[str]:
    """Names of the results: keys of dictionaries, or numbers."""
    names = _paths(run.outs, "")
    found = [n for n, v in zip(names, run.values, strict=True) if hasattr(v, "type")]
    if found == [""]:
        return ["out"]
    return [f"out{name}" if name[:1].isdigit() else name for name in found]


def _paths(structure: Structure, start: str) -> list[str]:
    if structure.kind is None:
        return [start]
    keys = structure.keys or range(len(structure.children))
    join = f"{start}_" if start else ""
    return [
        path
        for key, child in zip(keys, structure.children, strict=True)
        for path in _paths(child, f"{join}{key}")
    ]
