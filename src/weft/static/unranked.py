"""Placeholders without a shape, and what is computed from them.

``placeholder(dtype)`` has a number of dimensions that each run decides. Functions
applied to it, or to what they return, are recorded; a run that feeds it calls them on a
placeholder of that rank, once for each rank::

    x = placeholder(float32)        an Unranked
    y = reduce_mean(x * 2)          an Unranked: reduce_mean of (multiply of x and 2)
    run(y, {x: [1.0, 2.0]})         builds reduce_mean(x1 * 2), x1 a placeholder [None]

So everything that depends on the rank (which axes a mean is over, which shape a
gradient has) is decided by the same code as in other graphs. Where sizes differ from
those that a rank's nodes were built for, they are built for the shapes that were fed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from weft.core.pytree import tree_flatten, tree_map
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.dtype import DType
from weft.errors import ArgumentError, DTypeError, WeftError
from weft.graph import ir
from weft.graph.ir import GraphError, Node
from weft.graph.symbol import Symbol
from weft.static.graph import (
    Graph,
    Operation,
    StaticTensor,
    current,
    is_unranked,
    placeholder,
)

Ranks = dict["Unranked", Any]  # of placeholders: None for each axis, or a size


class UnrankedError(GraphError):
    """The shape of a value was asked for whose rank only a run decides."""


class UnknownShape:
    """The shape of a tensor of which not even the rank is known."""

    ndims = rank = dims = None

    def as_list(self) -> Any:
        raise ValueError("as_list: the number of dimensions is not known")

    def is_fully_defined(self) -> bool:
        return False

    def num_elements(self) -> None:
        return None

    def __repr__(self) -> str:
        return "<unknown>"


class Recorded:
    """A call of a function, to be made when ranks are known."""

    def __init__(self, graph: Any, fn: Any, args: Any, kwargs: Any) -> None:
        self.graph, self.fn, self.args, self.kwargs = graph, fn, args, kwargs
        builder = graph.builder
        self.prefix, self.after = builder.prefix, builder.after
        self.waits = graph.waits
        code, lasti = builder.caller()
        module = builder.module_path()
        self.origin = Node(ir.GROUP, (), {}, (), "", (), module, code, lasti)
        # a function among the arguments, a branch, may refer to any placeholder
        leaves = tree_flatten((args, kwargs))[0]
        every = any(callable(x) and not isinstance(x, Tensor) for x in leaves)
        inputs = [*_unranked((args, kwargs)), *self.waits]
        self.feeds = set(graph.unranked.values() if every else ())
        self.feeds |= set().union(*[one.feeds for one in inputs])
        self.results: dict[Any, Any] = {}

    def result(self, ranks: Ranks) -> Any:
        """What the call returns for these ranks; made once."""
        key = tuple((id(x), ranks[x]) for x in ranks if x in self.feeds)
        if key not in self.results:
            self.results[key] = self._make(ranks)
        return self.results[key]

    def _make(self, ranks: Ranks) -> Any:
        builder = self.graph.builder
        real = functools.partial(at_ranks, ranks=ranks)
        after = [real(one).node for one in self.waits]
        args, kwargs = tree_map(real, (self.args, self.kwargs))
        before = builder.prefix, builder.after
        with self.graph.as_default(), self.graph.at_ranks(ranks):
            builder.prefix, builder.after = self.prefix, (*self.after, *after)
            try:
                with builder.deriving(self.origin):
                    return self.fn(*args, **kwargs)
            except WeftError as error:
                raise self._told(error) from None
            finally:
                builder.prefix, builder.after = before

    def _told(self, error: WeftError) -> WeftError:
        """The error of a recorded call, with the line that made the call."""
        text = str(error).partition("\n  at ")[0]
        if "\n  called at " not in text:
            text += f"\n  called at {self.origin.line}"
        return type(error)(text)


def at_ranks(value: Any, ranks: Ranks) -> Any:
    """A value with the nodes that unranked ones are, for some ranks."""
    return value.at(ranks) if is_unranked(value) else value


def _unranked(values: Any) -> Iterator[Any]:
    """The unranked values among others, also in lists, tuples and dictionaries."""
    if is_unranked(values):
        yield values
    elif isinstance(values, (list, tuple)):
        for one in values:
            yield from _unranked(one)
    elif isinstance(values, dict):
        yield from _unranked(list(values.values()))


def recorded(fn: Callable[..., Any], outputs: Any = None) -> Callable[..., Any]:
    """A function that is recorded where its arguments are unranked.

    So it is where it finds out only later that it needs a shape which is not known, as
    of a value that a branch of control flow refers to. ``outputs`` of the arguments
    returns the unranked results of a recorded call, if that is not one tensor.
    """

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        graph = current()
        if not graph.unranked or graph.ranks is not None:
            return fn(*args, **kwargs)
        if not graph.waits and next(_unranked((args, kwargs)), None) is None:
            try:
                return fn(*args, **kwargs)
            except UnrankedError:
                pass
        made = Recorded(graph, call, args, kwargs)
        return Unranked(made) if outputs is None else outputs(made)

    return call


def above(value: Any) -> tuple[set[Any], set[Node], bool]:
    """What a value depends on: unranked values, nodes, and perhaps others (those that
    a function among the arguments refers to)."""
    unranked: set[Any] = set()
    roots: list[Node] = []
    unknown = False
    stack = [value]
    while stack:
        one = stack.pop()
        if is_unranked(one):
            if one not in unranked and one.recorded is not None:
                stack.extend(tree_flatten((one.recorded.args, one.recorded.kwargs))[0])
            unranked.add(one)
        elif isinstance(one, StaticTensor):
            roots.append(one.node)
        else:
            unknown |= callable(one)
    graph = value.graph.snapshot()
    return unranked, graph.ancestors(roots), unknown


def record_all(module: dict[str, Any]) -> None:
    """Let all public functions of a module be recorded where they have to be."""
    for name, value in list(module.items()):
        own = isinstance(value, FunctionType) and value.__module__ == module["__name__"]
        if own and not name.startswith("_") and not hasattr(value, "__wrapped__"):
            module[name] = recorded(value)


def several(count: Callable[..., int]) -> Callable[[Recorded], list[Unranked]]:
    """As ``outputs`` of ``recorded``: as many as a function of the arguments says."""
    return lambda made: [
        Unranked(made, k) for k in range(count(*made.args, **made.kwargs))
    ]


class _Later:
    """A value that a recorded call returns."""

    unranked = True
    recorded: Recorded | None
    origin: Node  # of a placeholder

    @property
    def feeds(self) -> set[Any]:
        """The placeholders whose ranks decide about it."""
        return {self} if self.recorded is None else self.recorded.feeds

    @property
    def node(self) -> Node:
        ranks = self.graph.ranks  # type: ignore[attr-defined]
        if ranks is not None:
            return self.at(ranks).node
        names = ", ".join(sorted(repr(x.name) for x in self.feeds))
        raise UnrankedError(
            f"the number of dimensions of {names} is known only when it is fed, and a "
            f"function was called that needs it now: use functions of weft.static and "
            "methods of tensors, which wait for it, or give the placeholder a shape"
            f"\n  made at {self.line}"
        )

    @property
    def line(self) -> str:
        """The user's line that made it."""
        return self.origin.line if self.recorded is None else self.recorded.origin.line

    def at(self, ranks: Ranks) -> Any:
        """The real tensor or operation, for some ranks."""
        raise NotImplementedError


class Unranked(_Later, StaticTensor):  # type: ignore[override]
    """A tensor of which only a run knows the number of dimensions."""

    def __init__(self, recorded: Recorded | None, index: int | None = None) -> None:
        self.recorded, self.index = recorded, index
        self._node = None
        if recorded is not None:
            self._interpreter = recorded.graph

    def at(self, ranks: Ranks) -> Any:
        assert self.recorded is not None
        found = self.recorded.result(ranks)
        return found if self.index is None else found[self.index]

    @property
    def name(self) -> str:
        return self.recorded.fn.__name__ if self.recorded else ""

    def get_shape(self) -> Any:
        return UnknownShape()

    def __iter__(self) -> Any:
        raise UnrankedError(
            f"how many tensors {self.name!r} gives is known only in a run, so they "
            "cannot be taken apart while the graph is built; use indices"
        )

    def __repr__(self) -> str:
        return f"<unranked {self.name!r}>"

    __str__ = __repr__
    __hash__ = StaticTensor.__hash__


class UnrankedPlaceholder(Unranked):
    """A placeholder without a shape; ``at`` gives one with a shape, for each rank."""

    def __init__(self, graph: Graph, dtype: DType, origin: Node) -> None:
        super().__init__(None)
        self._interpreter = graph
        self.origin, self.kind = origin, dtype
        self.made: dict[Any, StaticTensor] = {}

    @property
    def name(self) -> str:
        return self.origin.name

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.kind

    def at(self, ranks: Ranks) -> Any:
        if self not in ranks:
            raise ArgumentError(
                f"run: placeholder {self.name!r} ({self.dtype.name}) must be fed; pass "
                f"it in feed_dict\n  made at {self.line}"
            )
        shape = ranks[self]
        if shape not in self.made:
            graph, builder = self.graph, self.graph.builder
            with (
                graph.as_default(), graph.at_ranks(ranks), graph.uncontrolled(),
                builder.at_top(), builder.deriving(self.origin),
            ):  # fmt: skip
                name = f"{self.name}/rank{len(shape)}"
                self.made[shape] = placeholder(self.dtype, shape, name)
        return self.made[shape]


class UnrankedOperation(_Later, Operation):  # type: ignore[override]
    """An operation on values of which only a run knows the number of dimensions."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.graph = recorded.graph
        self.gradients: dict[Any, Any] = {}

    def at(self, ranks: Ranks) -> Any:
        return self.recorded.result(ranks)  # type: ignore[union-attr]

    @property
    def name(self) -> str:
        return self.recorded.fn.__name__  # type: ignore[union-attr]

    def __repr__(self) -> str:
        return f"<unranked {self.name!r}>"


def _methods() -> None:
    """Record the methods of tensors that are unranked, and operators beside them."""
    own = {*vars(StaticTensor), *vars(Symbol), *vars(Tracer)}
    for name in [name for name in vars(StaticTensor) if name.startswith("__i")]:
        if name != "__init__":
            setattr(StaticTensor, name, recorded(getattr(StaticTensor, name)))
    for name in dir(Tensor):
        fn = getattr(Tensor, name)
        public = not name.startswith("_") and name not in own
        if name in OPERATORS:
            setattr(StaticTensor, name, recorded(getattr(StaticTensor, name)))
        elif public and isinstance(fn, FunctionType):
            setattr(Unranked, name, recorded(fn))
        elif name in ("T", "mT", "H"):
            setattr(Unranked, name, property(recorded(fn.fget)))


OPERATORS = {
    "__abs__", "__getitem__", "__invert__", "__neg__", "__pos__",
    *[f"__{side}{name}__" for side in ("", "r") for name in (
        "add", "and", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow",
        "rshift", "sub", "truediv", "xor",
    )],
    *[f"__{name}__" for name in ("eq", "ge", "gt", "le", "lt", "ne")],
}  # fmt: skip
_methods()


def ranks_of(feed_dict: Any, exact: bool) -> tuple[Ranks, dict[Any, Any]]:
    """The ranks that a run feeds, and its feeds by placeholders of these ranks.

    With ``exact``, these have the sizes that are fed, rather than any.
    """
    ranks: Ranks = {}
    for key, value in feed_dict.items():
        if isinstance(key, UnrankedPlaceholder):
            shape = np.shape(value.to_host() if isinstance(value, Tensor) else value)
            ranks[key] = shape if exact else (None,) * len(shape)
        elif is_unranked(key):
            raise DTypeError(
                f"run: {key!r} cannot be fed, since its number of dimensions is not "
                f"known\n  made at {key.line}"
            )
    return ranks, {at_ranks(key, ranks): value for key, value in feed_dict.items()}
