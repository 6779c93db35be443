"""From the Graph IR to an ONNX graph: a rule for each operator, and names for values.

    rule(w, node, *inputs) -> the name of the result, or a tuple of names

``inputs`` are names of values; a number or an open size has become a constant or a
value that is computed from the inputs' shapes. ``w`` writes nodes:

    w("Add", a, b, axis=1)        the name of a new node's result
    w.ints([2, size])             the name of a vector of whole numbers
    w.constant(array)             the name of a constant
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from weft.core.size import Atom, Size
from weft.dtype import DType
from weft.graph import ir
from weft.onnx.types import NUMBERS

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


class Refused(Exception):
    """A node that cannot be written, and why."""


def rule(names: str) -> Callable[[Rule], Rule]:
    """Enter a rule into the table under some names."""

    def enter(function: Rule) -> Rule:
        for name in names.split():
            RULES[name] = function
        return function

    return enter


class Refusal(NamedTuple):
    """An operator that is refused, and the user's line."""

    what: str
    line: str


class Writer:
    """Writes one graph; those inside of its nodes have writers of their own."""

    def __init__(self, opset: int, outer: Writer | None = None) -> None:
        self.opset = opset
        self.outer = outer
        self.nodes: list[NodeProto] = []
        self.values: dict[ir.Node, Any] = {}  # names of nodes' results
        self.sizes: dict[str, str] = {}  # names of scalars that are open sizes
        self.symbols: dict[str, Any] = {}  # sizes of a body, as those around it
        self.cells: dict[Any, str] = outer.cells if outer else {}  # of variables
        self.taken: set[str] = outer.taken if outer else set()
        self.refused: list[Refusal] = outer.refused if outer else []
        self.constants: dict[Any, str] = {}
        self.label = ""  # of the node that is written

    # -- names, nodes and constants

    def name(self, wanted: str) -> str:
        """A name that no other value has."""
        found, k = wanted, 0
        while found in self.taken:
            k += 1
            found = f"{wanted}_{k}"
        self.taken.add(found)
        return found

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.many(op, 1, *inputs, **attributes)[0]

    def many(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """The names of several results of one node."""
        base = self.label or op.lower()
        outputs = [self.name(base) for _ in range(count)]
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        made = helper.make_node(op, list(inputs), outputs, name=outputs[0])
        for key, value in attributes.items():
            if value is not None:
                made.attribute.append(helper.make_attribute(key, value))
        self.nodes.append(made)
        return outputs

    def constant(self, value: Any, dtype: DType | None = None) -> str:
        """The name of a constant; equal ones have one name."""
        array = np.asarray(value, dtype=None if dtype is None else dtype.np)
        key = array.dtype.str, array.dtype.name, array.shape, array.tobytes()
        if key not in self.constants:
            output = self.name("constant")
            proto = numpy_helper.from_array(array, output)
            made = helper.make_node("Constant", [], [output], value=proto)
            self.nodes.append(made)
            self.constants[key] = output
        return self.constants[key]

    def ints(self, values: Sequence[Any]) -> str:
        """The name of a vector of whole numbers, some of which may be open sizes."""
        if all(type(n) is int for n in values):
            return self.constant(np.array(values, np.int64))
        parts: list[str] = []
        run: list[int] = []
        for n in values:
            if type(n) is int:
                run.append(n)
                continue
            if run:
                parts.append(self.constant(np.array(run, np.int64)))
                run = []
            axes = self.constant(np.array([0], np.int64))
            parts.append(self("Unsqueeze", self.size(n), axes))
        if run:
            parts.append(self.constant(np.array(run, np.int64)))
        return parts[0] if len(parts) == 1 else self("Concat", *parts, axis=0)

    def cast(self, value: str, dtype: DType) -> str:
        return self("Cast", value, to=NUMBERS[dtype])

    # -- open sizes

    def size(self, value: Any) -> str:
        """The name of a scalar that is a size."""
        if type(value) is not Size:
            return self.constant(np.array(value, np.int64))
        text = str(value)
        if text not in self.sizes:
            self.sizes[text] = self._sum(value)
        return self.sizes[text]

    def _sum(self, size: Size) -> str:
        terms = []
        for atoms, factor in size.terms:
            values = [self._atom(atom) for atom in atoms]
            if factor != 1 or not values:
                values.append(self.size(factor))
            terms.append(functools.reduce(lambda a, b: self("Mul", a, b), values))
        return functools.reduce(lambda a, b: self("Add", a, b), terms)

    def _atom(self, atom: Atom) -> str:
        if atom.a is not None:
            ops = {"//": "Div", "%": "Mod", "max": "Max", "min": "Min"}
            if atom.kind not in ops:
                raise Refused(f"the size {atom} has no form in ONNX")
            return self(ops[atom.kind], self.size(atom.a), self.size(atom.b))
        outer = self.symbols.get(atom.kind)
        if self.outer is not None:
            if outer is None:
                raise Refused(f"the size {atom} is known to no tensor around it")
            return self.outer.size(outer)
        if atom.kind not in self.sizes:
            raise Refused(f"the size {atom} is known to no input")
        return self.sizes[atom.kind]

    def know_sizes(self, node: ir.Node, name: str) -> None:
        """Note the open sizes that are those of a tensor's dimensions."""
        for axis, size in enumerate(node.shape):
            symbol = getattr(size, "symbol_name", "")
            if symbol and symbol not in self.sizes:
                shape = self("Shape", name)
                at = self.constant(np.array(axis, np.int64))
                self.sizes[symbol] = self("Gather", shape, at, axis=0)

    # -- values of the program

    def read(self, value: Any, dtype: DType | None = None) -> str:
        """The name of a node's value, of a number or of a size."""
        if isinstance(value, ir.Node):
            return self.values[value]
        if type(value) is Size:
            found = self.size(value)
            return found if dtype is None else self.cast(found, dtype)
        return self.constant(value, dtype)

    def write(self, graph: ir.Graph) -> None:
        """Write the nodes of a graph, whose inputs have names."""
        for node in graph.nodes:
            if node not in self.values:
                self.label = node.name.replace("/", "_")
                try:
                    self.values[node] = self._written(node)
                except Refused as why:
                    self.refused.append(Refusal(f"{node.op.name}: {why}", node.line))
                    self.values[node] = _Anything()
                self.label = ""

    def _written(self, node: ir.Node) -> Any:
        if node.op is ir.PICK:
            found = self.values[node.inputs[0]]
            return found[node.params["index"]]
        if node.op is ir.CONSTANT:
            return self.constant(node.params["value"])
        if node.op is ir.READ:
            return self.cells[node.params["variable"]]
        if node.op is ir.ASSIGN:
            raise Refused(
                f"the program changes {node.params['variable'].name!r}, and ONNX's "
                "models have no state; call .eval() on the module, or return the value"
            )
        found = RULES.get(node.op.name)
        if found is None:
            raise Refused(
                "random numbers have no form in ONNX; call .eval() on the module"
                if node.op.facts.random else "this operator has no form in ONNX"
            )  # fmt: skip
        if any(_is_complex(x) for x in (node, *node.inputs)):
            raise Refused("complex numbers have no form in ONNX")
        of_numbers = [node] if node.op.facts.returns == "same" else node.inputs
        dtype = next((x.dtype for x in of_numbers if _is_tensor(x)), None)
        names = [self.read(x, dtype) for x in plain_inputs(node)]
        return found(self, node, *names)


class _Anything(str):
    """Stands for the results of a node that was refused."""

    def __getitem__(self, index: Any) -> str:
        return ""


def _is_tensor(value: Any) -> bool:
    return isinstance(value, ir.Node) and hasattr(value.type, "dtype")


def _is_complex(value: Any) -> bool:
    return _is_tensor(value) and value.dtype.is_complex


def plain_inputs(node: ir.Node) -> list[Any]:
    """A node's inputs, without repetitions that ONNX's broadcasting does itself."""
    inputs = list(node.inputs)
    if not node.op.facts.elementwise or not _is_tensor(node):
        return inputs
    plain = [_is_tensor(x) and x.op.name != "expand" for x in inputs]
    if not any(p and x.shape == node.shape for p, x in zip(plain, inputs, strict=True)):
        return inputs
    return [
        x.inputs[0] if _is_tensor(x) and x.op.name == "expand" else x for x in inputs
    ]


def static(sizes: Sequence[Any], what: str) -> list[int]:
    """Sizes that have to be numbers."""
    if not all(type(n) is int for n in sizes):
        raise Refused(f"{what} needs sizes that are numbers, got {list(sizes)}")
    return list(sizes)
