"""From a captured program to an ``fx`` graph whose state is lifted to inputs.

    state @weight                       p_weight = placeholder
    %weight = read(@weight)
    %y = mul(%x, %weight)        ▶      mul = weft.ops.mul(x, p_weight)
    assign(@count, %n)                  return (n, mul)

Sizes that are open become nodes that ask a tensor for them.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from weft.core.dispatch import bind
from weft.core.mode import mode
from weft.core.op import Op
from weft.core.size import Atom, Size, quotient
from weft.core.tensor import Tensor
from weft.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from weft.fx import graph as fx
from weft.fx.node import Node as FxNode
from weft.fx.node import has_side_effect
from weft.graph import ir
from weft.graph.captured_program import TENSOR, Captured
from weft.graph.control.bodies import with_sizes
from weft.ops.random import default_generator

_LETTERS = {
    InputKind.PARAMETER: "p",
    InputKind.BUFFER: "b",
    InputKind.CONSTANT_TENSOR: "c",
}
_NUMBERS = {"//": operator.floordiv, "%": operator.mod, "max": max, "min": min,
            "/": quotient}  # fmt: skip
_CHANGES = {
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.CONSTANT_TENSOR: OutputKind.BUFFER_MUTATION,
}


class Operator:
    """An operator as the target of a call: tensors first, parameters by keyword."""

    def __init__(self, op: Op) -> None:
        self.op, self.__name__, self.__module__ = op, op.name, "weft.ops"

    def __call__(self, *args: Any, **params: Any) -> Any:
        if params.get("sizes") and ir.has_graphs(params):
            run = mode.capture
            params = with_sizes(params, None if run is None else run.builder.sizes)
        return bind(self.op, args, params)

    def __repr__(self) -> str:
        return f"weft.ops.{self.__name__}"

    def __reduce__(self) -> Any:
        return operator_named, (self.__name__,)


@functools.cache
def operator_of(op: Op) -> Operator:
    """The target of an operator's calls, the same each time."""
    return Operator(op)


def operator_named(name: str) -> Operator:
    """The target of the operator with a name."""
    from weft.core.op import all_ops

    return operator_of(next(op for op in all_ops() if op.name == name))


def sym_size(x: Tensor, dim: int) -> int:
    """The size of a dimension."""
    return x.shape[dim]


def random_state() -> tuple[Tensor, Tensor]:
    """The seed and the counter of the default generator."""
    return default_generator.take(0)


@has_side_effect
def set_random_counter(counter: Tensor) -> None:
    """Move the default generator on to a counter."""
    _, now = default_generator.take(0)
    if mode.capture is not None:
        mode.capture.set_number((default_generator, "counter"), counter)
    else:
        default_generator.take(4 * int(counter - now))


has_side_effect(Tensor.copy_)


class Lifter:
    """Makes the graph and its signature.

    ``kinds`` says what each variable is, ``names`` are those of the arguments' leaves.
    """

    def __init__(
        self,
        program: Captured,
        kinds: dict[str, tuple[InputKind, bool]],
        names: list[str],
    ) -> None:
        self.program, self.kinds, self.names = program, kinds, names
        self.graph = fx.Graph()
        self.env: dict[ir.Node, Any] = {}
        self.shapes: list[tuple[Any, Any]] = []  # nodes so far with their shapes
        self.state: dict[str, FxNode] = {}
        self.changed: dict[str, FxNode] = {}
        self.random: FxNode | None = None
        self.sizes: dict[str, FxNode] = {}
        self.constants: dict[str, Tensor] = {}
        self.inputs: list[InputSpec] = []

    def run(self) -> tuple[fx.Graph, ExportGraphSignature, dict[str, Tensor]]:
        self._placeholders()
        for node in self.program.graph.nodes:
            if node not in self.env:
                self.env[node] = self._node(node)
                self._note(node, self.env[node])
        outputs = self._outputs()
        return self.graph, ExportGraphSignature(self.inputs, outputs), self.constants

    # -- inputs

    def _placeholders(self) -> None:
        graph = self.program.graph
        for kind, letter in _LETTERS.items():
            for name in graph.variables:
                if self.kinds.get(name, (None,))[0] is kind:
                    self.state[name] = self._lifted(letter, name, *self.kinds[name])
        for node in graph.nodes:
            if node.op is ir.CONSTANT:
                self.env[node] = self._constant(node.params["value"])
        tensors = iter(graph.inputs)
        for name, given in zip(self.names, self.program.given, strict=True):
            made = self.graph.placeholder(name.replace(".", "_"))
            if given is TENSOR:
                node = next(tensors)
                self.env[node] = made
                self._note(node, made)
                arg: Any = TensorArgument(made.name)
            else:
                arg = ConstantArgument(made.name, given)
            self.inputs.append(InputSpec(InputKind.USER_INPUT, arg))

    def _lifted(
        self, letter: str, name: str, kind: InputKind, persistent: bool
    ) -> FxNode:
        made = self.graph.placeholder(f"{letter}_{name.replace('.', '_')}")
        kept = persistent if kind is InputKind.BUFFER else None
        self.inputs.append(InputSpec(kind, TensorArgument(made.name), name, kept))
        return made

    def _constant(self, value: np.ndarray) -> FxNode:
        name = f"lifted_tensor_{len(self.constants)}"
        self.constants[name] = Tensor(value)
        return self._lifted("c", name, InputKind.CONSTANT_TENSOR, False)

    # -- nodes

    def _note(self, node: ir.Node, made: FxNode) -> None:
        made.meta["val"] = node.type
        if node.module:
            made.meta["nn_module_stack"] = node.module
        made.stack_trace = made.meta["stack_trace"] = node.line
        if hasattr(node.type, "shape"):
            self.shapes.append((made, node.type.shape))

    def _node(self, node: ir.Node) -> Any:
        call = self.graph.call_function
        args = tuple(self._value(x) for x in node.inputs)
        if node.op is ir.PICK:
            return call(operator.getitem, (*args, node.params["index"]))
        if node.op is ir.DETACH:
            return self.graph.call_method("detach", args)
        if node.op is ir.READ:
            return self._read(node.params["variable"].name)
        if node.op is ir.ASSIGN:
            self.changed[node.params["variable"].name] = args[0]
            return args[0]
        params = {k: self._value(v) for k, v in node.params.items()}
        return call(operator_of(node.op), args, params)

    def _read(self, name: str) -> FxNode:
        if name in self.changed:
            return self.changed[name]
        if name in self.state:
            return self.state[name]
        if self.random is None:
            self.random = self.graph.call_function(random_state)
        return self.graph.call_function(
            operator.getitem, (self.random, int(name.endswith("counter")))
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, ir.Node):
            return self.env[value]
        if type(value) is Size:
            return self._size(value)
        if type(value) is tuple:
            return tuple(map(self._value, value))
        if type(value) is slice:
            return slice(*map(self._value, (value.start, value.stop, value.step)))
        return value

    def _size(self, size: Any) -> Any:
        if type(size) is not Size:
            return size
        text = str(size)
        if text not in self.sizes:
            self.sizes[text] = self._sum(size)
        return self.sizes[text]

    def _sum(self, size: Size) -> Any:
        call, total = self.graph.call_function, None
        for atoms, factor in size.terms:
            values = [*map(self._atom, atoms), *([] if factor == 1 else [factor])]
            term = functools.reduce(
                lambda a, b: call(operator.mul, (a, b)), values or [1]
            )
            total = term if total is None else call(operator.add, (total, term))
        return total

    def _atom(self, atom: Atom) -> FxNode:
        if atom.a is not None:
            args = self._size(atom.a), self._size(atom.b)
            return self.graph.call_function(_NUMBERS[atom.kind], args)
        if atom.kind not in self.sizes:
            self.sizes[atom.kind] = self._asked(atom.kind)
        return self.sizes[atom.kind]

    def _asked(self, name: str) -> FxNode:
        for made, shape in self.shapes:
            for dim, size in enumerate(shape):
                if type(size) is Size and size.symbol_name == name:
                    return self.graph.call_function(sym_size, (made, dim))
        raise NotImplementedError(
            f"export: the size {name} is known to no tensor of the program"
        )

    # -- outputs

    def _outputs(self) -> list[OutputSpec]:
        specs: list[OutputSpec] = []
        nodes: list[Any] = []
        for name, made in self.changed.items():
            if name in self.state:
                kind = _CHANGES[self.kinds[name][0]]
                specs.append(OutputSpec(kind, TensorArgument(made.name), name))
                nodes.append(made)
            else:
                self.graph.call_function(set_random_counter, (made,))
        tensors = [
            spec.arg.name
            for spec in self.inputs
            if spec.kind is InputKind.USER_INPUT
            and isinstance(spec.arg, TensorArgument)
        ]
        rewritten = self.program.rewritten
        ends = self.program.graph.outputs[-len(rewritten) :] if rewritten else ()
        for (position, _), node in zip(rewritten, ends, strict=True):
            made = self.env[node]
            arg: Any = TensorArgument(made.name)
            kind = OutputKind.USER_INPUT_MUTATION
            specs.append(OutputSpec(kind, arg, tensors[position]))
            nodes.append(made)
        for value in self.program.values:
            made = self._value(value)
            arg = (
                TensorArgument(made.name)
                if isinstance(made, FxNode)
                else ConstantArgument("", made)
            )
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, arg))
            nodes.append(made)
        self.graph.output(tuple(nodes))
        return specs
