"""Tensors from outside a static graph, and what they are inside it.

    a leaf that requires grad            a trainable variable
    a module's other parameter, buffer   a variable
    a tensor without gradient            a constant
    a tensor computed from parameters    refused: its gradient would be lost

Each tensor has one variable in a graph, whose first value is the tensor's when it was
met. Running the graph changes the variable in the session, never the tensor itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.mode import mode
from weft.core.tape import Leaf
from weft.core.tensor import Tensor
from weft.graph.ir import GraphError, Node
from weft.graph.labels import state_names

if TYPE_CHECKING:
    from weft.static.graph import Graph
    from weft.static.variable import Variable


class Outside:
    """The tensors from outside that one graph has met."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.held: dict[int, tuple[Tensor, Variable]] = {}
        self._names: dict[int, str] = {}  # of the tensors of modules met so far
        self._modules: dict[int, Any] = {}
        self._reads: dict[int, Node] = {}  # this call's readings of buffers
        self._borrowed: list[_Borrowed] = []
        self._calling = False

    def node(self, tensor: Tensor) -> Node:
        """The node of a tensor from outside."""
        found = self.held.get(id(tensor))
        if found is None and not self._is_state(tensor):
            return self.graph.builder.constant(np.array(tensor.to_host()), "Const")
        variable = self._variable(tensor) if found is None else found[1]
        return variable.node if variable.trainable else self._read(tensor, variable)

    def _is_state(self, tensor: Tensor) -> bool:
        if type(tensor._node) is Leaf or id(tensor) in self._names:
            return True
        if tensor._node is not None:
            raise GraphError(
                "a tensor that was computed eagerly from one that requires grad would "
                f"be a constant in {self.graph.describe()}, without its gradient. "
                "Compute it from static nodes or inside the module's forward, or pass "
                "its .detach()"
            )
        return False

    def _variable(self, tensor: Tensor) -> Variable:
        from weft.static.variable import Variable

        name = self._names.get(id(tensor), "tensor")
        with self.graph.as_default(), self.graph.builder.at_top():
            made = Variable(tensor.to_host(), type(tensor._node) is Leaf, name)
        self.held[id(tensor)] = tensor, made
        return made

    def _read(self, tensor: Tensor, variable: Variable) -> Node:
        """A buffer's value now: an earlier call of the module may have changed it."""
        found = self._reads.get(id(tensor))
        if found is None:
            found = self._reads[id(tensor)] = variable.read_value().node
        return found

    def meet(self, module: Any) -> str | None:
        """Name the tensors of a module that is new here; returns the scope's name."""
        if id(module) in self._modules:
            return None
        self._modules[id(module)] = module
        lead = self.graph.unique_scope(type(module).__name__)
        for key, name in state_names(module).items():
            self._names.setdefault(key, f"{lead}/{name.replace('.', '/')}")
        return lead

    # -- a module's call

    @contextmanager
    def called(self, updates: list[Node]) -> Iterator[None]:
        """Let buffers change while a module runs; ``updates`` gets the nodes to run."""
        self._reads, self._calling = {}, True
        try:
            yield
            updates += [one.assign(self.graph) for one in self._borrowed]
        finally:
            for one in self._borrowed:
                one.give_back()
            self._borrowed, self._reads, self._calling = [], {}, False

    def change(self, tensor: Tensor, name: str) -> None:
        """Let a buffer be a symbol, so that an in-place operator can change it."""
        if tensor._interpreter is not None:
            return
        if not self._changeable(tensor):
            raise GraphError(
                f"{name}: a tensor from outside {self.graph.describe()} cannot be "
                "changed in place while the graph is built (only whole buffers of a "
                "module can, outside of branches and bodies of control flow); assign "
                "to a Variable"
            )
        node = self.node(tensor)
        self._borrowed.append(_Borrowed(tensor, self.held[id(tensor)][1]))
        self.graph.embody(tensor, node)

    def _changeable(self, tensor: Tensor) -> bool:
        whole = tensor._base is None and id(tensor) in self._names
        return whole and self._calling and mode.capture is self.graph


class _Borrowed:
    """A buffer that is a symbol for the time of a module's call."""

    def __init__(self, tensor: Tensor, variable: Variable) -> None:
        self.tensor = tensor
        self.variable = variable
        self.kind = type(tensor)
        self.tape = tensor._node

    def assign(self, graph: Graph) -> Node:
        return graph.builder.assign(self.variable.variable, graph.lift(self.tensor))

    def give_back(self) -> None:
        tensor: Any = self.tensor
        tensor.__class__ = self.kind
        del tensor.node, tensor._interpreter
        tensor._node = self.tape
