"""Tracing: a function runs once on proxies, and its calls become a graph.

While it runs, Weft's public functions and the calls of modules look for proxies among
their arguments. Tensors without proxies are computed, and become constants.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import itertools
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from weft.core.tensor import Tensor
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import NAMESPACES, is_ours, map_aggregate
from weft.fx.proxy import (
    REFLECTED,
    Proxy,
    TraceError,
    TracerBase,
    proxies_in,
    recorded,
)
from weft.nn import Module, Parameter, Sequential
from weft.switches import _assert

__all__ = ["PH", "ProxyableClassMeta", "TraceError", "Tracer", "symbolic_trace", "wrap"]


class _Placeholder:
    def __repr__(self) -> str:
        return "PH"


PH = _Placeholder()
_STARRED = (
    "symbolic_trace: a function with *args has no fixed number of values; give them "
    "names, or pass concrete_args"
)
# Functions of the user's that are recorded and not looked into, by module and name.
_wrapped: list[tuple[dict[str, Any], str]] = []


def wrap(fn_or_name: Any) -> Any:
    """Record calls of a function of this module, and do not look into it.

    >>> weft.fx.wrap(abs) is abs
    True
    """
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or "
            "string name"
        )
    frame = sys._getframe(1)
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    _wrapped.append((frame.f_globals, name))
    return fn_or_name


class ProxyableClassMeta(type):
    """A class whose construction from proxies is recorded.

    >>> class Pair(metaclass=weft.fx.ProxyableClassMeta):
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> Pair(1, 2).x
    1
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if proxies_in((args, kwargs)):
            return recorded(cls, args, kwargs)
        return super().__call__(*args, **kwargs)


class Tracer(TracerBase):
    """Makes a graph of a module or function; override its methods to trace otherwise.

    >>> graph = weft.fx.Tracer().trace(weft.nn.Sequential(weft.nn.ReLU()))
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_module', 'output']
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Any, ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self.autowrap_modules = autowrap_modules
        self.autowrap_functions = autowrap_functions
        self.root: Any = None

    # -- choices

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of a module are recorded, and not looked into."""
        return is_ours(type(m)) and not isinstance(m, (Sequential, GraphModule))

    def path_of_module(self, mod: Module) -> str:
        """The name of a module under the root."""
        for name, found in self.root.named_modules():
            if found is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """The call of a module: a node, or what its ``forward`` does."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    # -- values

    def _one(self, value: Any) -> Any:
        if isinstance(value, Proxy):
            return value.node
        if isinstance(value, Parameter):
            for name, found in self.root.named_parameters():
                if found is value:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(value, Tensor):
            return self.create_node("get_attr", self._path_of(value), (), {})
        if isinstance(value, Module):
            return self.create_node("get_attr", self.path_of_module(value), (), {})
        return value

    def _path_of(self, value: Tensor) -> str:
        for name, found in self.root.named_buffers():
            if found is value:
                return name
        for module_name, module in self.root.named_modules():
            for name, found in vars(module).items():
                if found is value:
                    return f"{module_name}.{name}" if module_name else name
        for name, found in self._constants.items():
            if found is value:
                return name
        k = len(self._constants)
        while hasattr(self.root, f"_tensor_constant{k}"):
            k += 1
        name = f"_tensor_constant{k}"
        self._constants[name] = value
        setattr(self.root, name, value)
        return name

    # -- tracing

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module or function."""
        if isinstance(root, Module):
            self.root, fn = root, type(root).forward
            bound: tuple[Any, ...] = (root,)
        else:
            self.root, fn, bound = Module(), root, ()
        self._constants: dict[str, Tensor] = {}
        self.graph = Graph(tracer_cls=type(self))
        args, kwargs = self._arguments(fn, bound, concrete_args or {})
        with self._watching(fn):
            found = fn(*bound, *args, **kwargs)
        returns = getattr(fn, "__annotations__", {}).get("return")
        kind = returns if isinstance(returns, type) else None
        self.create_node("output", "output", (self.create_arg(found),), {}, None, kind)
        return self.graph

    def _arguments(self, fn: Any, bound: Any, concrete: Any) -> tuple[list[Any], Any]:
        signature = inspect.signature(inspect.unwrap(fn))
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in list(signature.parameters.values())[len(bound) :]:
            name = parameter.name
            if name in concrete and concrete[name] is not PH:
                value = self._partly(name, concrete[name])
            elif parameter.kind is parameter.VAR_POSITIONAL:
                raise TraceError(_STARRED)
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._placeholder(f"**{name}", parameter)
                continue
            else:
                value = self._placeholder(name, parameter)
            if parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return args, kwargs

    def _partly(self, name: str, value: Any) -> Any:
        """A value that is known, but for the places that are marked by ``PH``.

        Known numbers are arguments too, which the program checks when it runs.
        """
        count = itertools.count(1)

        def one(known: Any) -> Any:
            given = self.create_proxy("placeholder", f"{name}_{next(count)}", (), {})
            if known is PH:
                return given
            if known is None or isinstance(known, (bool, int, float, str)):
                same = given == known
                text = f"{name} has been specialized to have value {known} but got "
                text += "another value"
                self.create_proxy("call_function", _assert, (same, text), {})
            return known

        return map_aggregate(value, one)

    def _placeholder(self, name: str, parameter: Any) -> Any:
        default = () if parameter.default is parameter.empty else (parameter.default,)
        kind = parameter.annotation if isinstance(parameter.annotation, type) else None
        if kind is parameter.empty:
            kind = None
        return self.create_proxy(
            "placeholder", name, default, {}, name.strip("*"), type_expr=kind
        )

    @contextmanager
    def _watching(self, fn: Any) -> Iterator[None]:
        patches = _Patches()
        tracer, call = self, Module.__call__

        def called(module: Module, *args: Any, **kwargs: Any) -> Any:
            if not proxies_in((args, kwargs)) and module is not tracer.root:
                return call(module, *args, **kwargs)
            return tracer.call_module(
                module, functools.partial(_run, module), args, kwargs
            )

        try:
            patches.set(Module, "__call__", called)
            patches.functions(fn, self.root, self)
            yield
        finally:
            patches.undo()


def _run(module: Module, *args: Any, **kwargs: Any) -> Any:
    return module.forward(*args, **kwargs)


class _Patches:
    """Replaced attributes, put back at the end."""

    def __init__(self) -> None:
        self.undone: list[tuple[Any, str, Any]] = []
        self.made: dict[int, Any] = {}

    def set(self, owner: Any, name: str, value: Any) -> None:
        space = owner if isinstance(owner, dict) else vars(owner)
        self.undone.append((owner, name, space.get(name, _ABSENT)))
        _assign(owner, name, value)

    def undo(self) -> None:
        for owner, name, value in reversed(self.undone):
            _assign(owner, name, value)
        originals = {id(new): old for old, new in self.made.values()}
        for module in list(sys.modules.values()):  # names that were looked up meanwhile
            if type(module).__name__ == "Alias":
                for name, value in list(vars(module).items()):
                    if id(value) in originals:
                        vars(module)[name] = originals[id(value)]

    def functions(self, fn: Any, root: Module, tracer: Tracer) -> None:
        spaces: list[Any] = []
        for name in NAMESPACES:
            module = importlib.import_module(f"weft.{name}" if name else "weft")
            for found in dir(module):  # some come when they are first asked for
                value = getattr(module, found, None)
                if isinstance(value, FunctionType) and found not in vars(module):
                    self.set(module, found, value)
            spaces.append(module)
        spaces += [m for m in sys.modules.values() if type(m).__name__ == "Alias"]
        spaces += [_Space(scope) for scope in _scopes(fn, root)]
        for space in spaces:
            for name, value in list(vars(space).items()):
                if isinstance(value, FunctionType) and is_ours(value):
                    self.set(space.scope if isinstance(space, _Space) else space, name,
                             self._watched(value))  # fmt: skip
        for name, value in list(vars(Tensor).items()):
            if isinstance(value, FunctionType) and name not in _PLAIN:
                self.set(Tensor, name, self._watched(value, name in REFLECTED))
        for module in tracer.autowrap_modules:
            for name, value in list(vars(module).items()):
                if callable(value) and not name.startswith("_"):
                    self.set(module, name, self._watched(value))
        for scope, name in _wrapped:
            value = scope.get(name, getattr(builtins, name, None))
            self.set(scope, name, self._watched(value))
        for value in tracer.autowrap_functions:
            for scope in _scopes(fn, root):
                for name in [n for n, v in scope.items() if v is value]:
                    self.set(scope, name, self._watched(value))

    def _watched(self, function: Any, reflected: bool = False) -> Any:
        if id(function) in self.made:
            return self.made[id(function)][1]

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not proxies_in((args, kwargs)):
                return function(*args, **kwargs)
            return NotImplemented if reflected else recorded(function, args, kwargs)

        self.made[id(function)] = function, watched
        return watched


class _Space:
    """A dictionary of globals, as ``vars`` gives it."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return self.scope


_ABSENT: Any = object()
_PLAIN = {"__class__", "__init__", "__repr__", "__hash__", "__getattr__", "__new__"}


def _assign(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        if value is _ABSENT:
            owner.pop(name, None)
        else:
            owner[name] = value
    elif isinstance(owner, ModuleType):
        _assign(vars(owner), name, value)
    elif value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def _scopes(fn: Any, root: Module) -> list[dict[str, Any]]:
    """The globals of the function and of the modules' classes, each once."""
    found = [getattr(inspect.unwrap(fn), "__globals__", {})]
    for module in root.modules():
        for kind in type(module).__mro__:
            if not is_ours(kind) and kind is not object:
                found.append(vars(sys.modules.get(kind.__module__, builtins)))
    own = [s for s in found if not str(s.get("__name__", "")).startswith("weft")]
    return list({id(s): s for s in own if s is not vars(builtins)}.values())


def symbolic_trace(
    root: Any, concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """Trace a module or function into a ``GraphModule``.

    >>> gm = weft.fx.symbolic_trace(lambda x, y: weft.relu(x) + y)
    >>> print(gm.code.strip())
    def forward(self, x, y):
        relu = weft.relu(x);  x = None
        add = relu + y;  relu = y = None
        return add
    >>> gm(-weft.ones(2), weft.ones(2))
    tensor([1., 1.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    made = GraphModule(tracer.root, graph, name.strip("<>"))
    for constant, value in tracer._constants.items():
        if isinstance(root, Module):
            delattr(root, constant)
        if not hasattr(made, constant):
            setattr(made, constant, value)
    return made
