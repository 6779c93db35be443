"""Branches and bodies as graphs of their own.

A function is run once on symbols. Whatever it uses from outside, at any level (a
parameter, a symbol of the graph around it, a tracer), becomes one more input of its
graph, so that gradients reach it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.dispatch import type_of
from weft.core.mode import mode
from weft.core.op import TensorType
from weft.core.pytree import Structure, tree_flatten, tree_unflatten
from weft.core.size import Scope, same_shape
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.errors import ArgumentError, AutogradError, DTypeError
from weft.graph.ir import Builder, Graph, Node
from weft.graph.symbol import (
    Building,
    CaptureError,
    Symbol,
    refusal,
    refuse,
    refusing,
)
from weft.ops.copies import clone
from weft.runtime.cpu.buffers import owned


def unshared(leaves: list[Tensor]) -> list[Tensor]:
    """Results that share no memory, as those of a graph; copies where they do.

    Reference counts tell; the list alone may hold a result.
    """
    for k in range(len(leaves)):
        leaf = leaves[k]
        if not isinstance(leaf, Tensor):
            continue
        held = sys.getrefcount(leaf) > 3  # the list, here, and the question
        if type(leaf) is Tensor:
            array = leaf._data
            held = held or not owned(array) or sys.getrefcount(array) > 3
        if held or leaf._base is not None:
            leaves[k] = clone(leaf)
    return leaves


class Staging(Building):
    """The interpreter of one branch or body while it becomes a graph."""

    name = "a branch or body"

    def __init__(self, name: str, outer: Building | None) -> None:
        scope = Scope() if outer is None else outer.builder.sizes
        super().__init__(Builder(name, scope))
        self.outer = outer
        self.replays = outer is not None and outer.replays
        self.outside: dict[int, tuple[Tensor, Node]] = {}
        self.grads: dict[int, Tensor | None] = {}  # of the tensors outside
        self.numbers: dict[Any, tuple[Any, Node, Any]] = {}
        self.closed = False

    def __enter__(self) -> Staging:
        self.batching, mode.batching = mode.batching, ()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        mode.batching = self.batching
        self.closed = True

    def process(self, op: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if self.closed:
            symbol = next(a for a in args if isinstance(a, Symbol))
            raise refusal(
                f"this tensor ({symbol.described()}) was made inside "
                f"{self.describe()}, which is over, so it has no value; return it."
                f"\n  made at {symbol.node.line}"
            )
        return super().process(op, args, params)

    # -- tensors from outside

    def lift(self, value: Any) -> Node:
        if isinstance(value, Symbol) and value._interpreter is self:
            return super().lift(value)
        if type(value) is Tensor and value._capture is self:
            self.embody(value, self.builder.constant(value._data.copy()))
            return value.node  # type: ignore[attr-defined]
        return self.input_for(value)

    def input_for(self, value: Tensor) -> Node:
        """The input that stands for a tensor from outside."""
        known = self.outside.get(id(value))
        if known is None:
            name = (
                value.name.rpartition("/")[2] if isinstance(value, Symbol) else "fixed"
            )
            node = self.builder.input(type_of(value), name)
            known = self.outside[id(value)] = value, node
            self.grads[id(value)] = vars(value).get("grad")
        return known[1]

    def touch(self, tensor: Tensor) -> None:
        if self.outer is not None and type(tensor) is Tensor:
            if tensor._capture is self:
                self.lift(tensor)
            else:
                self.outer.touch(tensor)

    def change(self, tensor: Tensor, name: str) -> None:
        self.touch(tensor)
        base: Any = tensor if tensor._base is None else tensor._base
        if base._interpreter is not self:
            kind = CaptureError if self.replays else AutogradError
            raise refuse(
                kind(
                    f"{name}: a tensor from outside cannot be changed in place inside "
                    "a branch or body of cond, scan or a loop; return the new value (a "
                    "loop: as part of what it carries) and assign it outside"
                )
            )

    def run_module(self, module: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """The graph around this one may want to know the module's tensors."""
        if self.outer is None:
            return super().run_module(module, args, kwargs)
        return self.outer.run_module(module, args, kwargs)

    def check_grads(self) -> None:
        """Refuse a ``backward`` inside that reached tensors outside."""
        for key, (tensor, _) in self.outside.items():
            grad = vars(tensor).get("grad")
            if isinstance(grad, Symbol) and grad._interpreter is self:
                tensor.grad = self.grads[key]
                raise AutogradError(
                    f"backward: called inside {self.describe()}, it would change the "
                    ".grad of a tensor outside; use weft.func.grad there, or call "
                    "backward outside"
                )

    # -- numbers from outside: the counters of random generators

    def number(
        self, key: Any, name: str, get: Any, set: Any, on: Any, dtype: Any
    ) -> Any:
        """A number of the graph around this one; its new value is handed on."""
        if any(run.randomness != "same" for run in self.batching):
            raise ArgumentError(
                "a random operator in a branch or body inside vmap: draw the numbers "
                "outside and pass them in, or use vmap(..., randomness='same')"
            )
        if key not in self.numbers:
            if self.outer is None:  # only types are asked for
                node = self.builder.constant(np.zeros((), dtype.np))
                return self.symbol(node)
            outer = self.outer.number(key, name, get, set, on, dtype)  # type: ignore[attr-defined]
            node = self.lift(outer)
            self.numbers[key] = outer, node, self.symbol(node)
        return self.numbers[key][2]

    def set_number(self, key: Any, value: Any) -> None:
        if key in self.numbers:
            outer, node, _ = self.numbers[key]
            self.numbers[key] = outer, node, value

    def guard(self, what: str, read: Any, *on: Any) -> None:
        if self.outer is not None:
            self.outer.guard(what, read, *on)


class Staged:
    """A function that has been run on symbols, not yet a finished graph.

    It is called with a tree of tensors or types; other leaves are as they are.
    """

    def __init__(
        self,
        name: str,
        outer: Building | None,
        fn: Callable[..., Any],
        leaves: Sequence[Any],
        structure: Structure,
    ) -> None:
        self.run = Staging(name, outer)
        with refusing(), self.run, self.run.taking():
            own = [self._own(leaf) for leaf in leaves]
            self.inputs = [s.node for s in own if isinstance(s, Symbol)]
            result = fn(*tree_unflatten(own, structure))
            found, self.structure = tree_flatten(result)
            self.outputs = [self._output(name, leaf) for leaf in found]
        self.run.check_grads()

    def _own(self, leaf: Any) -> Any:
        if not isinstance(leaf, (Tensor, TensorType)):
            return leaf
        return self.run.symbol(self.run.builder.input(type_of(leaf), "x"))

    def _output(self, name: str, leaf: Any) -> Node:
        return self.run.lift(as_leaf(name, leaf))

    @property
    def types(self) -> list[TensorType]:
        return [node.type for node in self.outputs]

    def changed(self) -> dict[Any, Any]:
        """The numbers from outside that became others, by key."""
        return {
            key: outer
            for key, (outer, node, now) in self.run.numbers.items()
            if now.node is not node
        }

    def number(self, key: Any, outer: Tensor) -> tuple[Node, Node]:
        """A number's input, and its new value."""
        held = self.run.numbers.get(key)
        if held is None:
            node = self.run.input_for(outer)
            return node, node
        return held[1], held[2].node

    def finish(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> Graph:
        builder = self.run.builder
        self.run.outside.clear()  # they would live on in a cycle
        self.run.numbers.clear()
        self.run.grads.clear()
        return Graph(builder.name, builder.nodes, outputs, builder.sizes, inputs)


def as_leaf(name: str, leaf: Any) -> Tensor:
    """A tensor from a leaf of a carry or of an output: a tensor or a number."""
    from weft.ops.creation import as_tensor

    if isinstance(leaf, Tensor):
        return leaf
    if isinstance(leaf, (bool, int, float, complex, np.generic, np.ndarray)):
        return as_tensor(leaf)
    raise DTypeError(f"{name}: expected tensors or numbers, got {type(leaf).__name__}")


def hand_on(outer: Any, keys: Sequence[Any], values: Sequence[Tensor]) -> None:
    """Let the graph around have the numbers that its branches or bodies moved on."""
    for key, value in zip(keys, values, strict=True):
        while isinstance(value, Tracer) and not isinstance(value, Symbol):
            below = value.below  # examples that share their draws: the furthest counts
            value = below if below.ndim == value.ndim else below.amax(0)
        outer.set_number(key, value)


def closed_over(*staged: Staged, without: Sequence[Tensor] = ()) -> list[Tensor]:
    """The tensors that some functions use from outside, each once."""
    skip = {id(tensor) for tensor in without}
    found = {}
    for one in staged:
        for key, (tensor, _) in one.run.outside.items():
            if key not in skip:
                found[key] = tensor
    return list(found.values())


def check_same(name: str, what: str, a: Any, b: Any, words: tuple[str, str]) -> None:
    """Refuse two (leaves, structure) pairs that differ in structure or types."""
    (first, shape), (second, other) = a, b
    if not alike(shape, other):
        raise ArgumentError(
            f"{name}: {what} must have one structure, but {words[0]} has "
            f"{shape_text(shape)} and {words[1]} {shape_text(other)}"
        )
    for k, (x, y) in enumerate(
        zip(map(type_of, first), map(type_of, second), strict=True)
    ):
        if x.dtype is not y.dtype or not same_shape(x.shape, y.shape):
            raise DTypeError(
                f"{name}: {what} must agree in shape and dtype, but leaf {k} is {x} "
                f"{words[0]} and {y} {words[1]}"
            )


def alike(a: Structure, b: Structure) -> bool:
    """Whether two trees are arranged alike; lists and tuples count as one."""
    same = a.kind is b.kind or {a.kind, b.kind} == {list, tuple}
    return (
        same
        and a.keys == b.keys
        and len(a.children) == len(b.children)
        and all(map(alike, a.children, b.children))
    )


def shape_text(structure: Structure) -> str:
    """A structure as text: ``*`` for a leaf."""
    if structure.kind is None:
        return "*"
    parts = [shape_text(child) for child in structure.children]
    if structure.keys is not None and issubclass(structure.kind, dict):
        pairs = zip(structure.keys, parts, strict=True)
        return "{" + ", ".join(f"{k!r}: {v}" for k, v in pairs) + "}"
    return f"{structure.kind.__name__.strip('_')}({', '.join(parts)})"
