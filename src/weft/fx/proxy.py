"""Values that stand for a node while a program is traced."""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Iterator
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.fx.graph import BINARY, UNARY
from weft.fx.node import Node, map_aggregate


class TraceError(ValueError):
    """A program asked for a value that tracing does not know."""


class Proxy:
    """The value of a node: whatever is done to it becomes a node too.

    >>> graph = weft.fx.Graph()
    >>> x = weft.fx.Proxy(graph.placeholder("x"))
    >>> (x + 1).relu()
    Proxy(relu)
    """

    def __init__(self, node: Node, tracer: Any = None) -> None:
        self.node = node
        self.tracer = tracer or GraphAppendingTracer(node.graph)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy(
            "call_method", "__call__", (self, *args), kwargs
        )

    def __getitem__(self, index: Any) -> Any:
        return self.tracer.create_proxy(
            "call_function", operator.getitem, (self, index), {}
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy(
            "call_function", operator.setitem, (self, index, value), {}
        )

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        step = next(
            (
                i
                for i in dis.get_instructions(frame.f_code)
                if i.offset == frame.f_lasti
            ),
            None,
        )
        if step is not None and step.opname == "UNPACK_SEQUENCE":
            return iter([self[k] for k in range(step.argval)])
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """The keys of a mapping: refused by most tracers."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this "
            "call to be recorded, please call torch.fx.wrap('len') at module scope"
        )

    def __index__(self) -> int:
        raise TraceError(
            "symbolically traced variables have no value, so they are no index or "
            "range; make the number an argument of the tracer (concrete_args)"
        )

    __int__ = __float__ = __index__

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Record the call of a function that got a proxy."""
        return recorded(orig_method, args, kwargs or {})


class Attribute(Proxy):
    """``proxy.name``: a method if it is called, else a value."""

    def __init__(self, root: Proxy, name: str) -> None:
        self.root, self.attr, self.tracer = root, name, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            made = self.tracer.create_proxy(
                "call_function", getattr, (self.root, self.attr), {}
            )
            self._node = made.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy(
            "call_method", self.attr, (self.root, *args), kwargs
        )


def _binary(function: Any, swapped: bool) -> Any:
    def method(self: Proxy, other: Any) -> Any:
        args = (other, self) if swapped else (self, other)
        return self.tracer.create_proxy("call_function", function, args, {})

    return method


def _unary(function: Any) -> Any:
    def method(self: Proxy) -> Any:
        return self.tracer.create_proxy("call_function", function, (self,), {})

    return method


REFLECTED: set[str] = set()
for _function, _sign in BINARY.items():
    _plain = _function.__name__.strip("_")
    REFLECTED |= {f"__{_plain}__", f"__r{_plain}__"}
    setattr(Proxy, f"__{_plain}__", _binary(_function, False))
    if _sign.strip("=!") and _sign not in ("<", ">", "<=", ">="):  # no comparison
        setattr(Proxy, f"__r{_plain}__", _binary(_function, True))
        _inplace = getattr(operator, f"i{_plain}")
        setattr(Proxy, f"__i{_plain}__", _binary(_inplace, False))
for _single in UNARY:
    setattr(Proxy, f"__{_single.__name__}__", _unary(_single))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


def proxies_in(value: Any) -> list[Proxy]:
    """The proxies in nested arguments."""
    found: list[Proxy] = []

    def look(x: Any) -> Any:
        if isinstance(x, Proxy):
            found.append(x)
        return x

    map_aggregate(value, look)
    return found


def recorded(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A node for a call that got a proxy."""
    tracer = proxies_in((args, kwargs))[0].tracer
    if function is weft.einsum and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])  # as PyTorch calls itself
    name = getattr(function, "__name__", "")
    if getattr(Tensor, name, None) is function and name not in REFLECTED:
        return tracer.create_proxy("call_method", name, args, kwargs)
    return tracer.create_proxy("call_function", function, args, kwargs)


class TracerBase:
    """Makes nodes of calls, and arguments of values."""

    graph: Any

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A node of the graph."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """A value that stands for a node."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None,
        type_expr: Any = None, proxy_factory_fn: Any = None,
    ) -> Any:  # fmt: skip
        """A node, and a value that stands for it."""
        args, kwargs = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args, kwargs, name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a: Any) -> Any:
        """An argument of a node: proxies become their nodes."""
        return map_aggregate(a, self._one)

    def _one(self, value: Any) -> Any:
        if isinstance(value, Proxy):
            return value.node
        return value

    def to_bool(self, obj: Proxy) -> bool:
        """Refuse a value that decides which way the program goes."""
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow"
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Refuse a loop over a value whose length is not known."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is "
            "used in a loop or as a *args or **kwargs function argument. See the "
            "torch.fx docs on pytorch.org for a more detailed explanation of what "
            "types of control flow can be traced, and check out the Proxy docstring "
            "for help troubleshooting Proxy iteration errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """The keys of a value, as another value."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """A tracer that only appends to a graph."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
