"""Programs as files: a graph, its parameters and state, and how to call it.

Every section is a list of JSON in the metadata; ``docs/format.md`` describes them.
Graphs come before the nodes that hold them, nodes before their users.

    values     [scope, text]            in the language of graph/values.py
    texts      "…"                      operators, modules and source lines
    scopes     [[size, …], [example, …], [[left, relation, right, line], …]]
    variables  [name, type, trainable, initial node | null, tensor | null]
    params     [[key, reference], …]
    nodes      [name, op, [input, …], params, type, module, line, [after, …]]
    graphs     [name, first node, end, [input, …], [output, …], scope]
    roles      [gradient | null, recomputes | null, [region, …], [node, …]]
    arguments, results                  structures, as in structure.py
    given, returned                     a value for each leaf, or null for a tensor

There are ``roles`` where a node has one. In version 2, for compiled functions and
programs that change their arguments, there are also

    changed    [argument, recorded]     the last outputs are new values for these
    fixed      [name, text]             Python values the program was captured with
    native     [with a gradient, …]     runs as machine code; for each result
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from weft.core.op import Op, TensorType
from weft.core.pytree import LEAF, Structure
from weft.core.size import Assumption, Scope, Size
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, FileFormatError, WeftError
from weft.graph.captured_program import TENSOR, Captured, Rewritten
from weft.graph.ir import (
    FORWARD,
    STRUCTURAL,
    Graph,
    Node,
    Role,
    Variable,
    subgraphs,
)
from weft.graph.state_cells import Cell
from weft.graph.tokens import Tokens
from weft.graph.values import WORDS, Reader, Writer
from weft.graph.verify import verify
from weft.serialization.container import Contents, FileReader, as_stored, from_stored
from weft.serialization.loaded import HeldCell, Loaded
from weft.serialization.structure import decode_structure, encode_structure

FORMAT = "weft graph"
VERSION = "1"
LATER = "2"  # for programs of which version 1 cannot tell everything
NODE_COST = 800  # bytes of objects for one node, with those of its checking
VALUE_COST = 1000  # for a value, a set of parameters, a variable, a graph
TEXT_COST = 300
SCOPE_COST = 4000  # with the reader of its values
LONGEST = 1000  # of a line's text
RELATIONS = ("==", "!=", "<", "<=", ">", ">=")


# -- writing


class _Table:
    """Distinct values and their numbers."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, key: Any) -> int:
        return self.numbers.setdefault(key, len(self.numbers))


class _Encoder:
    """The lists of one program."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}
        self.values, self.texts, self.params = _Table(), _Table(), _Table()
        self.scopes: list[Scope] = []
        self.variables: dict[str, int] = {}
        self.held: list[Variable] = []
        self.nodes: list[list[Any]] = []
        self.roles: dict[Role, list[int]] = {}  # but for FORWARD
        self.numbers: dict[Node, int] = {}
        self.graphs: dict[int, int] = {}  # by identity: the number
        self.rows: list[list[Any]] = []
        self.writer = Writer(constants="full")
        self.folder = os.path.join(os.getcwd(), "")

    def value(self, value: Any, scope: int, where: str) -> int:
        try:
            return self.values((scope, self.writer.value(value)))
        except (WeftError, NotImplementedError) as error:
            text = str(error).partition("\n  at ")[0]
            raise ArgumentError(f"save: {where}: {text}") from None

    def scope(self, sizes: Scope) -> int:
        for number, known in enumerate(self.scopes):
            if known is sizes:
                return number
        for name in sizes.hints:
            if name in WORDS or not name.isidentifier():
                raise ArgumentError(
                    f"save: the size {name!r} cannot be a word in files"
                )
        self.scopes.append(sizes)
        return len(self.scopes) - 1

    # -- graphs, inner ones first

    def graph(self, graph: Graph) -> int:
        found = self.graphs.get(id(graph))
        if found is not None:
            return found
        for node in graph.nodes:
            for _, inner in subgraphs(node):
                self.graph(inner)
        scope, first = self.scope(graph.sizes), len(self.nodes)
        for node in graph.nodes:
            self.numbers[node] = len(self.nodes)
            if node.role != FORWARD:
                self.roles.setdefault(node.role, []).append(len(self.nodes))
            self.nodes.append(self.node(node, scope))
        row = [graph.name, first, len(self.nodes), self.positions(graph.inputs),
               self.positions(graph.outputs), scope]  # fmt: skip
        self.graphs[id(graph)] = len(self.rows)
        self.rows.append(row)
        return len(self.rows) - 1

    def positions(self, nodes: Any) -> list[int]:
        return [self.numbers[node] for node in nodes]

    def node(self, node: Node, scope: int) -> list[Any]:
        where = f"node {node.name!r}"
        inputs = [
            self.numbers[i] if type(i) is Node else -1 - self.value(i, scope, where)
            for i in node.inputs
        ]
        params = [[k, self.reference(v, scope, node)] for k, v in node.params.items()]
        return [
            node.name, self.texts(node.op.name), inputs,
            self.params(json.dumps(params, separators=(",", ":"))),
            self.value(node.type, scope, where), self.texts(node.module),
            self.texts(self.line(node.line)), self.positions(node.after),
        ]  # fmt: skip

    def line(self, line: str) -> str:
        """A line's text; files below the working folder go by their path from it."""
        return line.removeprefix(self.folder)[:LONGEST]

    def reference(self, value: Any, scope: int, node: Node) -> Any:
        if isinstance(value, Variable):
            return f"@{self.variable(value)}"
        if isinstance(value, Graph):
            return f"%{self.graphs[id(value)]}"
        if type(value) is np.ndarray:
            return f"#{self.tensor(f'constant.{node.name}', value)}"
        if type(value) is tuple and any(isinstance(v, Graph) for v in value):
            return [self.reference(v, scope, node) for v in value]
        return self.value(value, scope, f"node {node.name!r}")

    def variable(self, variable: Variable) -> int:
        number = self.variables.setdefault(variable.name, len(self.held))
        if number == len(self.held):
            self.held.append(variable)
        elif self.held[number] is not variable:
            raise ArgumentError(f"save: two variables are named {variable.name!r}")
        return number

    def tensor(self, name: str, array: np.ndarray) -> str:
        base = name.encode("utf-8", "replace").decode()  # no lone surrogates
        found, count = base, 1
        while found in self.tensors or found == "__metadata__":
            count += 1
            found = f"{base}#{count}"
        self.tensors[found] = as_stored(array)
        return found

    # -- the whole

    def state(self, cells: dict[str, Cell]) -> list[list[Any]]:
        rows = []
        for variable in self.held:
            name = variable.name
            cell, stored = cells.get(name), None
            found = None if cell is None or cell.show() is None else cell.get()
            if found is not None:
                stored = self.tensor(name, np.asarray(found))
            kind = self.value(variable.type, 0, f"variable {name!r}")
            initial = self.numbers.get(variable.initial)
            rows.append([name, kind, variable.trainable, initial, stored])
        return rows

    def sizes(self) -> list[Any]:
        return [
            [list(s.hints), list(s.hints.values()), self.assumptions(s)]
            for s in self.scopes
        ]

    def assumptions(self, scope: Scope) -> list[Any]:
        return [
            [str(a.left), a.relation, str(a.right), self.line(a.line)]
            for a in scope.assumptions.values()
        ]

    def leaves(self, values: list[Any], tensor: Any, what: str) -> list[Any]:
        return [
            None if tensor(v) else self.value(v, 0, f"the Python value {v!r} {what}")
            for v in values
        ]

    def contents(self, lists: dict[str, Any]) -> Contents:
        metadata = {"format": FORMAT, "version": LATER if "fixed" in lists else VERSION}
        for key, items in lists.items():
            metadata[key] = json.dumps(items, separators=(",", ":"), allow_nan=False)
        params = ",".join(self.params.numbers)
        metadata["params"] = f"[{params}]"
        lengths = sum(len(text) for _, text in self.values.numbers)
        kept = [self.values.numbers, self.params.numbers, self.held, self.rows]
        cost = NODE_COST * len(self.nodes) + VALUE_COST * sum(map(len, kept))
        cost += TEXT_COST * len(self.texts.numbers) + 2 * lengths + 2 * len(params)
        for *names, region, nodes in lists.get("roles", ()):
            cost += _role_cost(names, region, nodes)
        for name, text in lists.get("fixed", ()):
            cost += 2 * TEXT_COST + len(name) + len(text)
        return Contents(metadata, self.tensors, cost)


def encode_program(
    obj: Graph | Captured, fixed: Mapping[str, str] | None = None, native: bool = False
) -> Contents:
    """The contents of a file for a graph, or a captured program and its state."""
    encoder = _Encoder()
    if isinstance(obj, Graph):
        graph, cells = obj, {}
        ins = Structure(tuple, None, (_leaves(len(graph.inputs)), _NO_NAMES))
        outs = _leaves(len(graph.outputs)) if len(graph.outputs) != 1 else LEAF
        given, returned = [TENSOR] * len(graph.inputs), list(graph.outputs)
    else:
        graph, cells = obj.graph, obj.cells
        if obj.effects:
            raise ArgumentError(
                f"save: the program {graph.name!r} changes Python objects or prints in "
                "every run, which a program in a file cannot; return the values instead"
            )
        ins, outs, given, returned = obj.ins, obj.outs, obj.given, obj.values
    encoder.graph(graph)
    lists = {
        "nodes": encoder.nodes,
        "graphs": encoder.rows,
        "variables": encoder.state(cells),
        "arguments": encode_structure(ins),
        "given": encoder.leaves(given, lambda v: v is TENSOR, "given"),
        "results": encode_structure(outs),
        "returned": encoder.leaves(returned, lambda v: type(v) is Node, "returned"),
        "scopes": encoder.sizes(),
        "texts": list(encoder.texts.numbers),
    }
    lists["values"] = [list(key) for key in encoder.values.numbers]
    if encoder.roles:
        lists["roles"] = [[*role, nodes] for role, nodes in encoder.roles.items()]
    if isinstance(obj, Captured):
        lists |= _later(obj, {**_plain_guards(obj), **(fixed or {})}, native)
    return encoder.contents(lists)


def _later(program: Captured, fixed: Mapping[str, str], native: bool) -> dict[str, Any]:
    """The lists of version 2, where they are needed."""
    if not (program.rewritten or fixed or native):
        return {}
    return {
        "changed": [[position, recorded] for position, recorded in program.rewritten],
        "fixed": [[name[:LONGEST], text[:LONGEST]] for name, text in fixed.items()],
        "native": [bool(one) for one in program.wanting] if native else [],
    }


def _plain_guards(program: Captured) -> dict[str, str]:
    kinds = (bool, int, float, str, tuple, type(None))
    return {
        guard.what: repr(guard.value)
        for guard in program.guards
        if isinstance(guard.value, kinds) and "identity" not in guard.what
    }


def _role_cost(names: list[str | None], region: list[int], nodes: list[int]) -> int:
    """Bytes of objects for a role and for the table of the nodes that have it."""
    texts = sum(5 * len(name) for name in names if name is not None)
    return VALUE_COST + texts + 100 * (len(region) + len(nodes))


_NO_NAMES = Structure(dict, (), ())


def _leaves(count: int) -> Structure:
    return Structure(tuple, None, (LEAF,) * count)


# -- reading


class _Values(Reader):
    """Values of a file; graphs are in a list of their own."""

    def read(self, text: str) -> Any:
        self.tokens, self._depth = Tokens(text), 0
        found = self.value()
        if self.tokens.kind != "end":
            self.tokens.fail("the end of the value")
        return found

    def graph(self) -> NoReturn:
        self.tokens.fail("a value; graphs have their own list")


class _Decoder:
    """The objects of one file, list by list; each refers to those before it."""

    def __init__(self, reader: FileReader) -> None:
        self.reader = reader
        self.later = reader.metadata.get("version") == LATER
        self.tensors = reader.tensors()
        self.ops = _operators()
        self.texts: list[str] = []
        self.values: list[Any] = []
        self.params: list[dict[str, Any] | None] = []
        self.rows: list[Any] = []
        self.nodes: list[Node] = []
        self.roles: dict[int, Role] = {}  # of nodes, by their number
        self.graphs: list[Graph] = []
        self.cells: dict[str, HeldCell] = {}
        self.variables: list[Variable] = []

    def bad(self, problem: str) -> FileFormatError:
        return self.reader.bad(f"{problem} (the format {FORMAT!r}, version {VERSION})")

    def need(self, truth: bool, what: str, item: Any) -> None:
        if not truth:
            raise self.bad(f"expected {what}, got {_short(item)}")

    def at(self, table: list[Any], index: Any, what: str) -> Any:
        """An item of a table that was read before."""
        if type(index) is not int or not 0 <= index < len(table):
            raise self.bad(f"expected the number of {what}, got {_short(index)}")
        return table[index]

    def run(self) -> Loaded:
        self.read_texts()
        scopes = [self.scope(item) for item in self.reader.items("scopes")]
        self.read_values(scopes)
        initial = [self.variable(item) for item in self.reader.items("variables")]
        self.read_params()
        for item in self.reader.items("graphs"):
            self.rows.append(self.row(item, scopes))
        if "roles" in self.reader.metadata:
            self.read_roles()
        self.read_nodes()
        self.need(bool(self.graphs), "a graph", None)
        for variable, index in zip(self.variables, initial, strict=True):
            if index is not None:
                variable.initial = self.at(self.nodes, index, "a node")
        if self.tensors:
            raise self.bad(f"nothing uses the tensor {next(iter(self.tensors))!r}")
        return self.program(self.graphs[-1])

    def program(self, graph: Graph) -> Loaded:
        self.check(graph)
        ins, given = self.ends("arguments", "given")
        outs, returned = self.ends("results", "returned")
        nodes = iter(graph.outputs)
        self.need(given.count(TENSOR) == len(graph.inputs), "an input for each tensor",
                  given)  # fmt: skip
        changed = self.changed(graph)
        self.need(returned.count(TENSOR) + len(changed) == len(graph.outputs),
                  "an output for each tensor", returned)  # fmt: skip
        values = [next(nodes) if v is TENSOR else v for v in returned]
        pair = ins.kind is tuple and [c.kind for c in ins.children] == [tuple, dict]
        self.need(pair, "arguments by place and by name", ins)
        cells: dict[str, Any] = dict(self.cells)
        found = Loaded(graph, cells, ins, outs, values, given, [])
        found.rewritten = changed
        if self.later:
            found.fixed = dict(self.fixed())
            self.native(found)
        return found

    # -- version 2

    def changed(self, graph: Graph) -> list[Rewritten]:
        """The arguments that the program changes."""
        changed: list[Rewritten] = []
        for item in self.charged("changed") if self.later else ():
            match item:
                case [int(position), bool(recorded)] if (
                    0 <= position < len(graph.inputs)
                ):
                    self.need(
                        position not in [f.position for f in changed], "each once", item
                    )
                    changed.append(Rewritten(position, recorded))
                case _:
                    raise self.bad(f"expected a changed argument, got {_short(item)}")
        self.need(len(changed) <= len(graph.outputs), "an output for each", changed)
        outs = graph.outputs[len(graph.outputs) - len(changed) :]
        for one, out in zip(changed, outs, strict=True):
            want = graph.inputs[one.position].type
            self.need(str(out.type) == str(want), f"a new value as {want}", out.type)
        return changed

    def fixed(self) -> Iterator[tuple[str, str]]:
        for item in self.charged("fixed"):
            match item:
                case [str(name), str(text)] if max(len(name), len(text)) <= LONGEST:
                    self.reader.budget.spend(TEXT_COST + len(name) + len(text))
                    yield name, text
                case _:
                    raise self.bad(f"expected a name and a text, got {_short(item)}")

    def native(self, program: Loaded) -> None:
        wanting = list(self.charged("native"))
        self.need(all(type(one) is bool for one in wanting), "true or false", wanting)
        self.need(len(wanting) in (0, len(program.values)), "one a result", wanting)
        if not wanting and program.values:
            return
        program.native, program.wanting = True, wanting
        for variable in self.variables:
            held = self.cells[variable.name].tensor
            if any(wanting) and variable.trainable and held is not None:
                held.requires_grad_()

    def check(self, graph: Graph) -> None:
        """Refuse a program with any mistake, without running any of it."""
        try:
            verify(graph)
        except MemoryError:
            raise
        except Exception as error:
            text = str(error).partition("\n  at ")[0] or type(error).__name__
            raise self.bad(f"the program is not well formed: {text}") from None

    def ends(self, structure: str, leaves: str) -> tuple[Structure, list[Any]]:
        try:
            decoded = decode_structure(self.charged(structure))
        except FileFormatError:
            raise
        except ValueError as error:
            raise self.bad(f"{structure}: {error}") from None
        values = [
            TENSOR if item is None else self.at(self.values, item, "a value")
            for item in self.charged(leaves)
        ]
        self.need(len(values) == decoded.num_leaves, f"a value for each leaf of "
                  f"{structure}", values)  # fmt: skip
        return decoded, values

    def charged(self, key: str) -> Iterator[Any]:
        """The items of a list, each of which becomes a few small objects."""
        for item in self.reader.items(key):
            self.reader.budget.spend(TEXT_COST)
            yield item

    # -- tables

    def read_texts(self) -> None:
        for item in self.reader.items("texts"):
            self.need(type(item) is str and len(item) <= LONGEST, "a text", item)
            self.reader.budget.spend(len(item) + TEXT_COST)
            self.texts.append(item)

    def scope(self, item: Any) -> Scope:
        match item:
            case [list(names), list(examples), list(assumed)]:
                self.need(len(names) == len(examples), "an example a size", item)
            case _:
                raise self.bad(f"expected sizes, got {_short(item)}")
        parts = len(names) + len(assumed)
        self.reader.budget.spend(SCOPE_COST + VALUE_COST * parts)
        scope = Scope()
        for name, example in zip(names, examples, strict=True):
            plain = type(name) is str and name.isidentifier() and name not in WORDS
            self.need(plain and name not in scope.hints, "the name of a size", name)
            known = type(example) is int and 0 <= example < 1 << 63
            self.need(known or example is None, "an example of a size", example)
            scope.symbol(name, example)
        values = _Values(Tokens(""), scope)
        for one in assumed:
            kept = self.assumption(one, values)
            scope.assumptions.setdefault(str(kept), kept)
        return scope

    def assumption(self, item: Any, values: _Values) -> Assumption:
        match item:
            case [str(left), str(relation), str(right), str(line)]:
                self.need(relation in RELATIONS, "a relation", relation)
                sides = [self.parse(values, text) for text in (left, right)]
                for side in sides:
                    self.need(isinstance(side, (int, float, Size)), "a size", side)
                return Assumption(sides[0], relation, sides[1], line[:LONGEST])
        raise self.bad(f"expected an assumption, got {_short(item)}")

    def parse(self, values: _Values, text: str) -> Any:
        self.reader.budget.reserve(100 * len(text))
        try:
            return values.read(text)
        except MemoryError:
            raise
        except Exception as error:
            why = str(error).partition("\n")[0]
            raise self.bad(f"{_short(text)} is no value: {why}") from None

    def read_values(self, scopes: list[Scope]) -> None:
        readers = [_Values(Tokens(""), scope) for scope in scopes]
        for item in self.reader.items("values"):
            match item:
                case [int(scope), str(text)]:
                    values = self.at(readers, scope, "a scope")
                    self.reader.budget.spend(VALUE_COST + 2 * len(text))
                    self.values.append(self.parse(values, text))
                case _:
                    raise self.bad(f"expected a value, got {_short(item)}")

    def variable(self, item: Any) -> Any:
        match item:
            case [str(name), int(kind), bool(trainable), initial, stored]:
                type_ = self.at(self.values, kind, "a type")
                self.need(isinstance(type_, TensorType), "a type", type_)
                self.need(name not in self.cells, "a new name", name)
                found = Variable(name, type_, trainable=trainable)
                self.cells[name] = HeldCell(found, self.stored(found, stored))
                self.variables.append(found)
                self.reader.budget.spend(VALUE_COST)
                return initial
        raise self.bad(f"expected a variable, got {_short(item)}")

    def stored(self, variable: Variable, name: Any) -> Tensor | None:
        if name is None:
            return None
        found = self.tensor(name, variable.type.dtype)
        same = tuple(variable.type.shape) == found.shape
        self.need(same, f"{variable.name!r} as {variable.type}", found.shape)
        return found

    def tensor(self, name: Any, dtype: Any) -> Tensor:
        self.need(type(name) is str and name in self.tensors, "a tensor's name", name)
        found = from_stored(self.tensors.pop(name), dtype)
        if found is None:
            raise self.bad(f"tensor {name!r}: expected {dtype.name}")
        return found

    def read_params(self) -> None:
        """Parameters are made when a node needs them: graphs come in between."""
        for item in self.reader.items("params"):
            pairs = type(item) is list and all(
                type(p) is list and len(p) == 2 and type(p[0]) is str for p in item
            )
            self.need(pairs, "parameters", item)
            self.reader.budget.spend(VALUE_COST + 100 * len(item))
            self.params.append(item)

    def row(self, item: Any, scopes: list[Scope]) -> Any:
        match item:
            case [str(name), int(first), int(end), list(ins), list(outs), int(scope)]:
                before = self.rows[-1][2] if self.rows else 0
                self.need(first == before <= end, "nodes after those before", item)
                self.reader.budget.spend(VALUE_COST + 16 * (len(ins) + len(outs)))
                return name, first, end, ins, outs, self.at(scopes, scope, "a scope")
        raise self.bad(f"expected a graph, got {_short(item)}")

    def read_roles(self) -> None:
        count = self.rows[-1][2] if self.rows else 0
        for item in self.reader.items("roles"):
            match item:
                case [str() | None as gradient, str() | None as copied, list(region),
                      list(nodes)]:  # fmt: skip
                    cost = _role_cost([gradient, copied], region, nodes)
                    self.reader.budget.spend(cost)
                    role = Role(gradient, copied, tuple(region))
                case _:
                    raise self.bad(f"expected a role, got {_short(item)}")
            known = all(type(k) is int and 0 <= k < 1 << 31 for k in region)
            self.need(known, "numbers of regions", region)
            for k in nodes:
                new = type(k) is int and 0 <= k < count and k not in self.roles
                self.need(new, "the number of a node, once", k)
                self.roles[k] = role

    # -- nodes

    def read_nodes(self) -> None:
        rows = iter(self.rows)
        row = next(rows, None)
        for item in self.reader.items("nodes"):
            while row is not None and len(self.nodes) == row[2]:
                self.graphs.append(self.graph(row))
                row = next(rows, None)
            if row is None:
                raise self.bad("there are more nodes than the graphs have")
            self.reader.budget.spend(NODE_COST)
            self.nodes.append(self.node(item, row[1]))
        while row is not None and len(self.nodes) == row[2]:
            self.graphs.append(self.graph(row))
            row = next(rows, None)
        self.need(row is None, "as many nodes as the graphs have", len(self.nodes))

    def graph(self, row: Any) -> Graph:
        name, first, end, ins, outs, scope = row
        inputs = [self.inside(i, first, "an input") for i in ins]
        outputs = [self.inside(i, first, "an output") for i in outs]
        return Graph(name, self.nodes[first:end], outputs, scope, inputs)

    def inside(self, index: Any, first: int, what: str) -> Node:
        """A node of the graph that is being read."""
        found = self.at(self.nodes, index, what)
        self.need(index >= first, f"{what} of the same graph", index)
        return found

    def node(self, item: Any, first: int) -> Node:
        match item:
            case [str(name), int(op), list(inputs), int(params), int(kind), int(module),
                  int(line), list(after)]:  # fmt: skip
                record = self.op(self.at(self.texts, op, "an operator"), name)
                type_ = self.at(self.values, kind, "a type")
                self.need(_is_type(type_), f"a type for node {name!r}", type_)
                return Node(
                    record,
                    tuple([self.input(i, first) for i in inputs]),
                    self.parameters(self.at(self.params, params, "parameters"), type_),
                    type_,
                    name,
                    tuple([self.inside(i, first, "a node before") for i in after]),
                    self.at(self.texts, module, "a module"),
                    self.at(self.texts, line, "a line"),
                    role=self.roles.get(len(self.nodes), FORWARD),
                )
        raise self.bad(f"expected a node, got {_short(item)}")

    def op(self, name: str, node: str) -> Op:
        found = self.ops.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self.ops, 3)
            hint = f"; there is {', '.join(close)}" if close else ""
            raise self.bad(f"node {node!r}: no operator is named {name!r}{hint}")
        return found

    def input(self, index: Any, first: int) -> Any:
        if type(index) is int and index < 0:
            return self.at(self.values, -1 - index, "a value")
        return self.inside(index, first, "a node before")

    def parameters(self, pairs: Any, kind: Any) -> dict[str, Any]:
        found = {key: self.reference(ref, kind) for key, ref in pairs}
        self.need(len(found) == len(pairs), "each parameter once", pairs)
        return found

    def reference(self, ref: Any, kind: Any) -> Any:
        if type(ref) is list:
            return tuple(self.reference(one, kind) for one in ref)
        if type(ref) is not str:
            return self.at(self.values, ref, "a value")
        sigil, rest = ref[:1], ref[1:]
        if sigil == "#":
            return self.constant(rest, kind)
        self.need(rest.isdecimal() and len(rest) < 10, "a reference", ref)
        if sigil == "@":
            return self.at(self.variables, int(rest), "a variable")
        self.need(sigil == "%", "a reference", ref)
        return self.at(self.graphs, int(rest), "a graph")

    def constant(self, name: str, kind: Any) -> np.ndarray:
        """An array; its dtype is the node's, where a pair of reals may be complex."""
        self.need(name in self.tensors, "a tensor's name", name)
        held = self.tensors[name].dtype
        dtype = kind.dtype if isinstance(kind, TensorType) else held
        whole = dtype if dtype.to_real() is held else held
        return self.tensor(name, whole).array()


def _is_type(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_type, value))
    return isinstance(value, TensorType)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _operators() -> dict[str, Op]:
    """Every operator there is; some are registered when their package is used."""
    import weft.graph.control
    import weft.nn

    return {**{op.name: op for op in weft.core.op.all_ops()}, **STRUCTURAL}


def decode_program(reader: FileReader) -> Loaded:
    """The program in a file, checked."""
    reader.check_version(VERSION, LATER)
    return _Decoder(reader).run()
