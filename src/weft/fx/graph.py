"""Graphs of ``fx``: a list of nodes that can be changed, and its Python code."""

from __future__ import annotations

import builtins
import copy
import keyword
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import weft
from weft import naming
from weft.dtype import DType
from weft.fx.node import Node, is_ours, map_aggregate, map_arg, qualified_name

# How calls of Python's operators are written.
BINARY = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//",
    operator.truediv: "/", operator.mod: "%", operator.lshift: "<<",
    operator.rshift: ">>", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.matmul: "@", operator.pow: "**", operator.eq: "==", operator.ne: "!=",
    operator.lt: "<", operator.gt: ">", operator.le: "<=", operator.ge: ">=",
}  # fmt: skip
UNARY = {operator.neg: "-", operator.invert: "~", operator.pos: "+"}
_WORDS = re.compile(r"[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"(.*)_(\d+)$")


class PythonCode:
    """The source of a graph, and the values that it names.

    >>> graph = weft.fx.symbolic_trace(lambda x: x + 1).graph
    >>> sorted(graph.python_code("self").globals)
    ['device', 'inf', 'nan', 'torch', 'weft']
    """

    def __init__(self, src: str, globals: dict[str, Any]) -> None:
        self.src, self.globals = src, globals


class Namespace:
    """Names that are not taken yet.

    >>> names = weft.fx.graph.Namespace()
    >>> names.create_name("x"), names.create_name("x"), names.create_name("sum")
    ('x', 'x_1', 'sum_1')
    """

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.count: dict[str, int] = defaultdict(int)

    def create_name(self, candidate: str, _: Any = None) -> str:
        candidate = _WORDS.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = _NUMBERED.match(candidate)
        base, number = (match[1], int(match[2])) if match else (candidate, 0)
        number = number or self.count[base]
        while candidate in self.used or _is_taken(candidate):
            number += 1
            candidate = f"{base}_{number}"
        self.used.add(candidate)
        self.count[base] = number
        return candidate


def _is_taken(name: str) -> bool:
    return keyword.iskeyword(name) or name in vars(builtins) or name in _GLOBALS


_GLOBALS: dict[str, Any] = {
    "inf": math.inf,
    "nan": math.nan,
    "device": weft.device,
    "torch": weft,
    "weft": weft,
}


class _Nodes:
    """The nodes of a graph in their order."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self.graph, self.backwards = graph, backwards

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._prev if self.backwards else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self.backwards else node._next

    def __len__(self) -> int:
        return self.graph._size

    def __reversed__(self) -> Any:
        return iter(_Nodes(self.graph, not self.backwards))


class Graph:
    """A program as a list of nodes, under PyTorch's names.

    >>> graph = weft.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(weft.relu, (x,)))
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=weft.relu](args = (%x,), \
kwargs = {})
        return relu
    """

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: Any = None,
        tracer_extras: Any = None,
    ) -> None:
        self._names = Namespace()
        self._size = 0
        self._root = Node(self, "", "call_function", len, (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls

    @property
    def nodes(self) -> Any:
        """The nodes in the order in which they run."""
        return _Nodes(self)

    # -- making nodes

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A new node where nodes are inserted now: at the end if nothing is said."""
        name = self._names.create_name(name or _candidate(target))
        node = Node(self, name, op, target, args or (), kwargs or {}, type_expr)
        self._insert(node)
        self._size += 1
        return node

    def placeholder(
        self, name: str, type_expr: Any = None, default_value: Any = ...
    ) -> Node:
        """An argument of the program."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: Any = None,
        kwargs: Any = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a submodule."""
        return self.create_node(
            "call_module", module_name, args, kwargs, None, type_expr
        )

    def call_method(
        self,
        method_name: str,
        args: Any = None,
        kwargs: Any = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a method of the first argument."""
        return self.create_node(
            "call_method", method_name, args, kwargs, None, type_expr
        )

    def call_function(
        self, the_function: Any, args: Any = None, kwargs: Any = None,
        type_expr: Any = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """A call of a function."""
        return self.create_node(
            "call_function", the_function, args, kwargs, name, type_expr
        )

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """The program's result."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def output_node(self) -> Node:
        """The node of the result."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def find_nodes(
        self, *, op: str, target: Any = None, sort: bool = True
    ) -> list[Node]:
        """The nodes of a kind, and of a target where one is given."""
        return [
            node
            for node in self.nodes
            if node.op == op and (target is None or node.target == target)
        ]

    # -- changing

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nothing uses."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had "
                f"{len(to_erase.users)} users in the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._unlink()
        to_erase._erased = True
        to_erase._set((), {})
        self._size -= 1

    @contextmanager
    def _inserting(self, insert: Callable[[Node], None]) -> Iterator[None]:
        before, self._insert = self._insert, insert
        try:
            yield
        finally:
            self._insert = before

    def inserting_before(self, n: Node | None = None) -> Any:
        """Put new nodes in front of a node within a block."""
        return self._inserting((self._root._next if n is None else n).prepend)

    def inserting_after(self, n: Node | None = None) -> Any:
        """Put new nodes behind a node within a block."""
        after = self._root if n is None else n
        return self._inserting(lambda node: after._next.prepend(node))

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x
    ) -> Node:
        """A node like one of another graph, whose inputs are transformed."""
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        made = self.create_node(
            node.op, node.target, args, kwargs, node.name, node.type
        )
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Any], return_output_node: bool = False
    ) -> Any:
        """The nodes of another graph, up to its result, which is returned."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], val_map.__getitem__)
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo: Any = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        found = made.graph_copy(self, {}, return_output_node=True)
        if found is not None:
            result, old = found
            made.output(result, old.type).meta = copy.copy(old.meta)
        return made

    def __reduce__(self) -> Any:
        def plain(node: Node) -> Any:
            return _Reference(node.name)

        rows = [
            (n.op, n.target, *map_arg((n.args, n.kwargs), plain), n.name, n.type)
            for n in self.nodes
        ]
        return _rebuilt, (rows,)

    def eliminate_dead_code(
        self, is_impure_node: Callable[[Node], bool] | None = None
    ) -> bool:
        """Remove nodes whose values nobody uses; tells whether there were any."""
        keep = is_impure_node or (lambda node: self._is_impure(node))
        changed = False
        for node in reversed(self.nodes):
            if not node.users and node.op not in ("placeholder", "output"):
                if keep(node):
                    continue
                self.erase_node(node)
                changed = True
        return changed

    def _is_impure(self, node: Node) -> bool:
        if node.op != "call_module" or self.owning_module is None:
            return node.is_impure()
        module = self.owning_module.get_submodule(node.target)
        return bool(list(module.buffers())) and module.training

    def lint(self) -> None:
        """Check that nodes come before their users and that names are different."""
        seen: dict[str, Node] = {}
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used.graph is not self:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' does not belong to this "
                        "Graph, but was used as an argument! If you are copying nodes "
                        "from another graph, make sure to use ``arg_transform``"
                    )
                if seen.get(used.name) is not used:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' was used before it has "
                        "been defined! Please check that Nodes in the graph are "
                        "topologically ordered"
                    )
            if node.name in seen:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen[node.name] = node
            if (
                node.op in ("get_attr", "call_module")
                and self.owning_module is not None
            ):
                self._lint_target(node)

    def _lint_target(self, node: Node) -> None:
        found = self.owning_module
        for part in node.target.split("."):
            if not hasattr(found, part):
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent "
                    f"attribute {part} of {type(found).__name__}"
                )
            found = getattr(found, part)

    def on_generate_code(self, make_transformer: Any) -> Any:
        """Refused: the text of a graph is not transformed."""
        raise NotImplementedError(
            "Graph.on_generate_code: change the graph's nodes instead of its text"
        )

    # -- text

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        return "graph():" + "".join(f"\n    {line}" for line in lines)

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        head = ["opcode", "name", "target", "args", "kwargs"]
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        table = [head, *([str(cell) for cell in row] for row in rows)]
        widths = [max(len(row[k]) for row in table) for k in range(5)]
        table.insert(1, ["-" * width for width in widths])
        for row in table:
            cells = (c.ljust(w) for c, w in zip(row, widths, strict=True))
            print("  ".join(cells).rstrip())

    def python_code(self, root_module: str = "self", **_: Any) -> PythonCode:
        """The program as a function in Python."""
        return _Writer(self, root_module).write()


class _Reference:
    """A node in a file."""

    def __init__(self, name: str) -> None:
        self.name = name


def _rebuilt(rows: list[Any]) -> Graph:
    graph = Graph()
    made: dict[str, Node] = {}

    def find(value: Any) -> Any:
        return made[value.name] if isinstance(value, _Reference) else value

    for op, target, args, kwargs, name, kind in rows:
        args, kwargs = map_aggregate((args, kwargs), find)
        made[name] = graph.create_node(op, target, args, kwargs, name, kind)
    return graph


def _candidate(target: Any) -> str:
    name = str(target)
    if callable(target):
        name = getattr(target, "__name__", type(target).__name__)
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    magic = name.startswith("__") and name.endswith("__")
    return name[2:-2] if magic else name


class _Writer:
    """Writes a graph as Python; a value is let go after its last use."""

    def __init__(self, graph: Graph, root: str) -> None:
        self.graph, self.root = graph, root
        self.globals = dict(_GLOBALS)
        self.free: list[str] = []
        self.lines: list[str] = []
        self.returns = ""

    def write(self) -> PythonCode:
        ends = self._last_uses()
        for node in self.graph.nodes:
            self._node(node)
            if node.op in ("placeholder", "output"):
                continue
            gone = [*ends.get(node, ()), *([] if node.users else [node])]
            if gone:
                self.lines[-1] += f";  {' = '.join([*map(repr, gone), 'None'])}"
        names = ", ".join([self.root, *self.free])
        body = "\n    ".join([*(self.lines or ["pass"]), ""])
        source = f"\n\n\ndef forward({names}){self.returns}:\n    {body}"
        return PythonCode(source, self.globals)

    def _last_uses(self) -> dict[Node, list[Node]]:
        ends: dict[Node, list[Node]] = defaultdict(list)
        seen: set[Node] = set()
        for node in reversed(self.graph.nodes):
            for used in node.all_input_nodes:
                if used not in seen:
                    seen.add(used)
                    ends[node].append(used)
        return ends

    def _node(self, node: Node) -> None:
        if node.op == "placeholder":
            default = f" = {self._value(node.args[0])}" if node.args else ""
            self.free.append(f"{node.target}{self._type(node)}{default}")
            plain = str(node.target).replace("*", "")
            if plain != node.name:
                self.lines.append(f"{node.name} = {plain}")
        elif node.op == "output":
            if isinstance(node.type, type):
                self.returns = f" -> {self._name_of(node.type)}"
            self.lines.append(f"return {self._value(node.args[0])}")
        else:
            self.lines.append(f"{node.name}{self._type(node)} = {self._call(node)}")

    def _type(self, node: Node) -> str:
        return f" : {self._name_of(node.type)}" if isinstance(node.type, type) else ""

    def _call(self, node: Node) -> str:
        if node.op == "get_attr":
            return _path(self.root, node.target)
        if node.op == "call_method":
            return (
                f"{_path(self._value(node.args[0]), node.target)}({self._rest(node)})"
            )
        if node.op == "call_module":
            return f"{_path(self.root, node.target)}({self._arguments(node)})"
        short = None if node.kwargs else self._operator(node)
        if short is not None:
            return short
        return f"{self._name_of(node.target)}({self._arguments(node)})"

    def _operator(self, node: Node) -> str | None:
        target, args = node.target, [self._value(a) for a in node.args]
        if target is getattr and len(args) == 2 and isinstance(node.args[1], str):
            return _path(args[0], node.args[1])
        if target is operator.getitem and len(args) == 2:
            return f"{args[0]}[{args[1]}]"
        if target in BINARY and len(args) == 2:
            return f"{args[0]} {BINARY[target]} {args[1]}"
        return f"{UNARY[target]}{args[0]}" if target in UNARY else None

    def _rest(self, node: Node) -> str:
        return self._arguments(node, skip=1)

    def _arguments(self, node: Node, skip: int = 0) -> str:
        given = [self._value(a) for a in node.args[skip:]]
        return ", ".join(
            [*given, *(f"{k} = {self._value(v)}" for k, v in node.kwargs.items())]
        )

    def _value(self, value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, tuple) and type(value) is not weft.Size:
            items = ", ".join(map(self._value, value))
            if hasattr(value, "_fields"):
                return f"{self._name_of(type(value))}({items})"
            return f"({items},)" if len(value) == 1 else f"({items})"
        if isinstance(value, dict):
            pairs = (f"{self._value(k)}: {self._value(v)}" for k, v in value.items())
            return "{" + ", ".join(pairs) + "}"
        if isinstance(value, slice):
            ends = (value.start, value.stop, value.step)
            return f"slice({', '.join(map(self._value, ends))})"
        if type(value) is weft.Size:
            return f"{naming.library()}.Size({list(value)})"
        if isinstance(value, Node | DType) or value is None:
            return repr(value)
        if callable(value):
            return self._name_of(value)
        text = repr(value)
        if text.startswith("<"):  # an object: the code refers to it by a name
            return self._global(type(value).__name__.lower(), value)
        return text

    def _name_of(self, value: Any) -> str:
        path = qualified_name(value)
        if getattr(builtins, path, None) is value:
            return path
        if is_ours(value) and path.startswith(naming.library()) and _finds(path, value):
            return path
        return self._global(path.replace(".", "_").strip("<>"), value)

    def _global(self, name: str, value: Any) -> str:
        name = _WORDS.sub("_", name)
        while self.globals.get(name, value) is not value:
            name += "_1"
        self.globals[name] = value
        return name


def _finds(path: str, value: Any) -> bool:
    found: Any = weft
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    return found is value


def _path(base: str, target: str) -> str:
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base
