"""Nodes of an ``fx`` graph: a call each, with the nodes that it uses.

node = placeholder(name) | get_attr(path) | output(args)
     | call_function(function) | call_method(name) | call_module(path)
"""

from __future__ import annotations

import builtins
import importlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft import naming

if TYPE_CHECKING:
    from weft.fx.graph import Graph

OPS = {
    "placeholder", "get_attr", "call_function", "call_method", "call_module", "output",
}  # fmt: skip
# Namespaces whose functions have a public path, the preferred ones first.
NAMESPACES = (
    "", "nn.functional", "linalg", "special", "fft", "sparse", "func", "nn.init",
    "utils.checkpoint",
)  # fmt: skip
_impure: set[Any] = set()


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Keep calls of a function when unused nodes are removed.

    >>> weft.fx.has_side_effect(print) is print
    True
    """
    _impure.add(fn)
    return fn


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Replace every node in nested arguments.

    >>> weft.fx.map_arg([1, (2,)], lambda node: node.name)
    [1, (2,)]
    """
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Replace every leaf of nested tuples, lists, dictionaries and slices.

    >>> weft.fx.node.map_aggregate({"a": [1, 2]}, lambda x: x + 1)
    {'a': [2, 3]}
    """
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {k: map_aggregate(v, fn) for k, v in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(x, fn) for x in (a.start, a.stop, a.step)))
    return fn(a)


def qualified_name(function: Any) -> str:
    """The path of a function in the text of a graph.

    >>> weft.fx.node.qualified_name(weft.relu), weft.fx.node.qualified_name(len)
    ('weft.relu', 'len')
    """
    name = getattr(function, "__name__", type(function).__name__)
    if getattr(builtins, name, None) is function:
        return name
    if is_ours(function):
        for space in NAMESPACES:
            path = f".{space}" if space else ""
            home = importlib.import_module(f"weft{path}")
            if getattr(home, name, None) is function:
                return f"{naming.library()}{path}.{name}"
    module = str(function.__module__).replace("_operator", "operator")
    return f"{module.replace('weft', naming.library(), 1)}.{name}"


def is_ours(function: Any) -> bool:
    """Whether a function or class is Weft's."""
    return str(getattr(function, "__module__", "")).partition(".")[0] == "weft"


class Node:
    """One call in a graph; ``users`` are the nodes that read its value.

    >>> graph = weft.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(weft.relu, (x,))
    >>> y.format_node(), y.all_input_nodes, list(x.users)
    ('%relu : [num_users=0] = call_function[target=weft.relu](args = (%x,), \
kwargs = {})', [x], [relu])
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise ValueError(f"Node: expected op to be one of {sorted(OPS)}, got {op}")
        if op == "call_function" and not callable(target):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{type(target).__name__} but a Callable is expected"
            )
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{type(target).__name__} but a str is expected"
            )
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self.stack_trace: str | None = None
        self._prev = self._next = self
        self._erased = False
        self._inputs: dict[Node, None] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._set(tuple(args), dict(kwargs))

    # -- arguments

    def _set(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for node in self._inputs:
            node.users.pop(self, None)
        self._inputs = {}
        self._args, self._kwargs = args, kwargs
        map_arg((args, kwargs), self._note)

    def _note(self, node: Node) -> Node:
        self._inputs[node] = None
        node.users[self] = None
        return node

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments; nodes in them are inputs."""
        return self._args

    @args.setter
    def args(self, args: Any) -> None:
        self._set(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: Any) -> None:
        self._set(self._args, dict(kwargs))

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes that this one uses, each once."""
        return list(self._inputs)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replace one positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Insert a positional argument."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError(
                f"insert_args index must be between 0 and len(self.args), got {idx}"
            )
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Replace one keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    # -- places in the graph

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move a node of this graph in front of this one."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._unlink()
        x._prev, x._next = self._prev, self
        self._prev._next = x
        self._prev = x

    def append(self, x: Node) -> None:
        """Move a node of this graph behind this one."""
        self._next.prepend(x)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def __lt__(self, other: Node) -> bool:
        order = list(self.graph.nodes)
        return order.index(self) < order.index(other)

    # -- uses

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let the users of this node use another; gives the users that changed."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use another node instead of one of the inputs."""
        pair = map_arg(
            (self._args, self._kwargs), lambda n: new_input if n is old_input else n
        )
        self._set(*pair)

    def is_impure(self) -> bool:
        """Whether the call does more than return a value, as far as is known."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _impure
        return self.op == "call_method" and str(self.target).endswith("_")

    # -- text

    def _pretty_print_target(self, target: Any) -> str:
        if isinstance(target, str):
            return target
        path = qualified_name(target)
        return path if "." in path else f"builtins.{path}"

    def format_node(self, *_: Any) -> str:
        """The line of the graph's text."""
        if self.op == "output":
            return f"return {self.args[0]}"
        typed = f"{_type_name(self.type)} " if self.type else ""
        target = self._pretty_print_target(self.target)
        head = f"%{self.name} : {typed}[num_users={len(self.users)}] = {self.op}"
        text = f"{head}[target={target}]"
        if self.op == "get_attr":
            return text
        if self.op == "placeholder":
            return f"{text}(default={self.args[0]})" if self.args else text
        args, kwargs = format_arg(self.args), format_arg(self.kwargs)
        return f"{text}(args = {args}, kwargs = {kwargs})"

    def __repr__(self) -> str:
        return self.name


def _type_name(kind: Any) -> str:
    return qualified_name(kind) if isinstance(kind, type) else str(kind)


def format_arg(arg: Any) -> str:
    """Arguments as text, nodes as ``%name``.

    >>> weft.fx.node.format_arg((1, [2]))
    '(1, [2])'
    """
    if isinstance(arg, Node):
        return f"%{arg.name}"
    if isinstance(arg, list):
        return f"[{', '.join(map(format_arg, arg))}]"
    if isinstance(arg, tuple):
        items = ", ".join(map(format_arg, arg))
        return f"({items},)" if len(arg) == 1 else f"({items})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {format_arg(v)}" for k, v in arg.items()) + "}"
    if isinstance(arg, types.FunctionType):
        return qualified_name(arg)
    return str(arg)
