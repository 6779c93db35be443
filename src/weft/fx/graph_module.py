"""Modules made of an ``fx`` graph: the graph as code that runs, prints and changes."""

from __future__ import annotations

import copy
import linecache
from typing import Any

from weft.fx.graph import Graph, PythonCode
from weft.nn import Module
from weft.nn.module import assign

_count = 0


class GraphModule(Module):
    """A module whose ``forward`` is the code of a graph.

    ``root`` gives the submodules and attributes that the graph names: a module, or a
    dictionary of them by path.

    >>> double = weft.fx.symbolic_trace(lambda x: x + x)
    >>> print(double.code.strip())
    def forward(self, x):
        add = x + x;  x = None
        return add
    >>> double(weft.ones(2))
    tensor([2., 2.])
    """

    _code = ""

    def __init__(
        self, root: Any, graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        # Each has a class of its own, with its name and its forward.
        base = type(self)
        self.__class__ = type(class_name, (base,), {"__module__": base.__module__})
        if isinstance(root, Module):
            self.training = root.training
        for path in _targets(graph):
            found = _fetch(root, path)
            if found is not None:
                assign(self, path, found)
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The program; after changes to it, call ``recompile``."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(
                f"Expected a Graph instance, but got {type(graph).__name__}"
            )
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of ``forward``."""
        return self._code

    def recompile(self) -> PythonCode:
        """Make ``forward`` anew from the graph."""
        global _count
        _count += 1
        code = self._graph.python_code("self")
        file = f"<graph module {_count}>"
        lines = code.src.splitlines(keepends=True)
        linecache.cache[file] = (len(code.src), None, lines, file)
        scope = dict(code.globals)
        exec(compile(code.src, file, "exec"), scope)
        setattr(type(self), "forward", scope["forward"])  # noqa: B010
        self.__dict__["_code"] = code.src
        return code

    def print_readable(self, print_output: bool = True, **_: Any) -> str:
        """The module as a class in Python."""
        body = self._code.strip("\n").replace("\n", "\n    ")
        text = f"class {type(self).__name__}(torch.nn.Module):\n    {body}"
        if print_output:
            print(text)
        return text

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a path, with modules in between where there are none."""
        assign(self, target, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at a path; tells whether there was one."""
        *path, last = target.split(".")
        try:
            owner = self.get_submodule(".".join(path))
            if not isinstance(getattr(owner, last), Module):
                return False
        except AttributeError:
            return False
        delattr(owner, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove modules that the graph does not name."""
        used: set[str] = set()
        for path in _targets(self._graph):
            parts = path.split(".")
            used.update(".".join(parts[: k + 1]) for k in range(len(parts)))
            found = _fetch(self, path)
            if isinstance(found, Module):
                used.update(f"{path}.{name}" for name, _ in found.named_modules())
        for name, _ in list(self.named_modules()):
            if name and name not in used:
                self.delete_submodule(name)

    def __deepcopy__(self, memo: Any) -> GraphModule:
        state = {k: copy.deepcopy(v, memo) for k, v in self._used().items()}
        made = GraphModule(state, copy.deepcopy(self._graph), type(self).__name__)
        made.training = self.training
        return made

    def _used(self) -> dict[str, Any]:
        paths = {path.partition(".")[0] for path in _targets(self._graph)}
        return {path: getattr(self, path) for path in paths}

    def __reduce__(self) -> Any:
        return _restored, (self._used(), self._graph, type(self).__name__)

    def __str__(self) -> str:
        return f"{super().__repr__()}\n{self._code}"


def _restored(state: dict[str, Any], graph: Graph, name: str) -> GraphModule:
    return GraphModule(state, graph, name)


def _targets(graph: Graph) -> list[str]:
    """The paths that the graph names, each once."""
    kinds = ("get_attr", "call_module")
    return list(dict.fromkeys(n.target for n in graph.nodes if n.op in kinds))


def _fetch(root: Any, path: str) -> Any:
    if isinstance(root, dict):
        if path in root:
            return root[path]
        first, _, rest = path.partition(".")
        return _fetch(root[first], rest) if first in root and rest else None
    for part in path.split("."):
        root = getattr(root, part, None)
    return root
