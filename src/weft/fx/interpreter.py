"""Running an ``fx`` graph node by node, and making another graph of it."""

from __future__ import annotations

from typing import Any

from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_aggregate, map_arg
from weft.fx.proxy import Proxy
from weft.fx.symbolic_trace import Tracer
from weft.nn import Module


class Interpreter:
    """Runs a graph module node by node; override a method to change what nodes do.

    >>> class Count(weft.fx.Interpreter):
    ...     calls = 0
    ...     def call_function(self, target, args, kwargs):
    ...         self.calls += 1
    ...         return super().call_function(target, args, kwargs)
    >>> run = Count(weft.fx.symbolic_trace(lambda x: (x + 1) * 2))
    >>> run.run(weft.ones(1)), run.calls
    (tensor([4.]), 2)
    """

    def __init__(
        self,
        module: Module,
        garbage_collect_values: bool = True,
        graph: Graph | None = None,
    ) -> None:
        self.module = module
        self.graph: Any = graph if graph is not None else module.graph
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.args_iter: Any = iter(())

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """The result for some arguments."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        ends = self._last_uses() if self.garbage_collect_values else {}
        for node in self.graph.nodes:
            if node not in self.env:
                self.env[node] = self.run_node(node)
            for old in ends.get(node, ()):
                self.env.pop(old, None)
            if node.op == "output":
                return self.env[node]
        return None

    def _last_uses(self) -> dict[Node, list[Node]]:
        last: dict[Node, Node] = {}
        for node in self.graph.nodes:
            last.update(dict.fromkeys(node.all_input_nodes, node))
        ends: dict[Node, list[Node]] = {}
        for used, node in last.items():
            ends.setdefault(node, []).append(used)
        return ends

    def boxed_run(self, args_list: list[Any]) -> Any:
        """``run`` on a list of arguments, which it empties."""
        args = list(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n: Node) -> Any:
        """The value of a node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument, or its default."""
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was "
                "not passed in!"
            ) from None

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call of a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call of a method."""
        first, *rest = args
        return getattr(first, target)(*rest, **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call of a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The value at a path."""
        found: Any = self.module
        for k, part in enumerate(parts := target.split(".")):
            if not hasattr(found, part):
                raise RuntimeError(
                    f"Node referenced nonexistent target {'.'.join(parts[: k + 1])}"
                )
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """The values of a node's arguments."""
        args = self.map_nodes_to_values(n.args, n)
        return args, self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Nested arguments with values for nodes."""

        def load(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() "
                    "to diagnose such issues"
                )
            return self.env[node]

        return map_arg(args, load)


class Transformer(Interpreter):
    """An interpreter on proxies: what the methods do becomes a new graph module.

    >>> class Twice(weft.fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(target, args, kwargs) * 2
    >>> gm = weft.fx.symbolic_trace(lambda x: weft.relu(x))
    >>> Twice(gm).transform()(weft.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = _Appending(self.new_graph, module)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Proxy:
        default = args[0] if args else ...
        return Proxy(
            self.new_graph.placeholder(target, default_value=default), self.tracer
        )

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new graph module."""
        result = super().run(enable_io_processing=False)
        found = map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a)
        self.new_graph.output(found)
        return GraphModule(self.module, self.new_graph)


class _Appending(Tracer):
    def __init__(self, graph: Graph, root: Module) -> None:
        super().__init__()
        self.graph, self.root, self._constants = graph, root, {}
