"""Running a graph on NumPy arrays.

A ``Program`` is a graph prepared for one set of fetches: the nodes they need, in
order, each with its kernel and the slots of its arguments, and the slots that
can be let go afterwards. Preparing is done once; running is one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.core.dispatch import explain
from weft.core.op import TensorType
from weft.core.size import Size, evaluate
from weft.core.tensor import Tensor
from weft.dtype import of_array
from weft.errors import ArgumentError, DTypeError, ShapeError, WeftError
from weft.graph.ir import (
    ASSIGN,
    CONSTANT,
    INPUT,
    PICK,
    READ,
    Graph,
    Node,
    Variable,
    sized,
    unrunnable,
)

ndarray = np.ndarray
Step = tuple[Any, ...]


class Program:
    """The part of a graph that some fetches need, ready to run many times."""

    def __init__(
        self,
        graph: Graph,
        fetches: Sequence[Node],
        *,
        effects: bool = True,
        fed: Iterable[Node] = (),
    ) -> None:
        self.graph = graph
        self.sizes = graph.sizes
        self.fetches = tuple(fetches)
        self.fed = (*graph.inputs, *[n for n in fed if n.op is not INPUT])
        roots = [*fetches, *(graph.effects if effects else ())]
        self.used: set[Node] = set()  # of the fed nodes
        self.nodes = self._needed(roots)
        self.slots = {node: k for k, node in enumerate(self.fed)}
        self.template: list[Any] = [None] * len(self.fed)
        self.steps = self._plan()
        self.reads = list(
            dict.fromkeys(n.params["variable"] for n in self.nodes if n.op is READ)
        )
        self.symbolic = any(self._open(node) for node in self.nodes)
        self._prepared: dict[tuple[Any, ...], list[Step]] = {}

    def _needed(self, roots: Iterable[Node]) -> list[Node]:
        """The nodes that must run, in order; none behind a fed node."""
        given = set(self.fed)
        seen: set[Node] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in given:
                self.used.add(node)
            elif node not in seen:
                seen.add(node)
                stack.extend(node.parents)
        return [node for node in self.graph.nodes if node in seen]

    @staticmethod
    def _open(node: Node) -> bool:
        return any(sized(v) for v in (*node.inputs, *node.params.values()))

    def _slot(self, value: Any) -> int:
        if type(value) is Node:
            return self.slots[value]
        self.template.append(value)
        return len(self.template) - 1

    def _plan(self) -> list[Step]:
        last: dict[int, int] = {}
        rows = []
        for k, node in enumerate(self.nodes):
            ins = tuple([self._slot(i) for i in node.inputs])
            self.template.append(None)
            out = self.slots[node] = len(self.template) - 1
            if node.op is CONSTANT:
                self.template[out] = node.params["value"]
                continue
            rows.append((node, ins, out, k))
        for row, (_, ins, _, _) in enumerate(rows):
            for i in ins:
                last[i] = row
        keep = {self.slots[f] for f in self.fetches if f in self.slots}
        held = {i for i, v in enumerate(self.template) if v is not None}
        dead: list[list[int]] = [[] for _ in rows]
        for i, row in last.items():
            if i not in keep and i not in held and i >= len(self.fed):
                dead[row].append(i)
        return [
            (_kernel(node), ins, node.params, out, tuple(dead[row]), node)
            for row, (node, ins, out, _) in enumerate(rows)
        ]

    # -- running

    def run(
        self, feeds: Sequence[Any], store: Mapping[Variable, ndarray]
    ) -> tuple[list[ndarray], dict[Variable, ndarray]]:
        """The fetches' values, and the new values of the assigned variables.

        ``feeds`` are the values of the graph's inputs (and of other fed nodes), in
        order; an input that nothing needs may be None.
        """
        sizes = bind_sizes(self.fed, feeds)
        if self.sizes.assumptions:
            self.sizes.check(sizes)
        env = self.template.copy()
        env[: len(feeds)] = feeds
        changed: dict[Variable, ndarray] = {}
        steps = self._for_sizes(sizes, env) if self.symbolic else self.steps
        with np.errstate(all="ignore"):
            self._loop(steps, env, store, changed)
        return [env[self.slots[f]] for f in self.fetches], changed

    def function(
        self, sizes: Mapping[str, int]
    ) -> Callable[[Sequence[Any]], list[ndarray]]:
        """The fetches as a function of the feeds, for sizes that are known already.

        Nothing is checked, and there are no variables: the body of a loop.
        """
        template = self.template.copy()
        steps = self._for_sizes(dict(sizes), template) if self.symbolic else self.steps
        positions = [self.slots[fetch] for fetch in self.fetches]

        def call(feeds: Sequence[Any]) -> list[ndarray]:
            env = template.copy()
            env[: len(feeds)] = feeds
            self._loop(steps, env, {}, {})
            return [env[position] for position in positions]

        return call

    def _loop(
        self, steps: list[Step], env: list[Any], store: Any, changed: Any
    ) -> None:
        for step in steps:
            kernel, ins, params, out, dead, node = step
            if kernel is None:
                value = _structural(node, env, ins, store, changed)
            else:
                try:
                    value = kernel(*[env[i] for i in ins], **params)
                except Exception as error:
                    raise failed(node, [env[i] for i in ins], params, error) from None
                if type(value) is not ndarray:
                    value = _as_arrays(value)
            env[out] = value
            for i in dead:
                env[i] = None

    def _for_sizes(self, sizes: dict[str, int], env: list[Any]) -> list[Step]:
        """The steps with numbers for symbolic sizes; kept for later."""
        key = tuple(sorted(sizes.items()))
        steps = self._prepared.get(key)
        for i, value in enumerate(self.template):
            if isinstance(value, Size):
                env[i] = evaluate(value, sizes)
        if steps is None:
            if len(self._prepared) >= 64:
                self._prepared.clear()
            steps = self._prepared[key] = [
                (kernel, ins, resolve(params, sizes), out, dead, node)
                for kernel, ins, params, out, dead, node in self.steps
            ]
        return steps


def _kernel(node: Node) -> Any:
    return None if node.op.kernel is unrunnable else node.op.kernel


def _as_arrays(found: Any) -> Any:
    if type(found) is tuple:
        return tuple([np.asarray(one) for one in found])
    return np.asarray(found)


def _structural(node: Node, env: list[Any], ins: Any, store: Any, changed: Any) -> Any:
    """The value of a node that is no mathematics."""
    if node.op is PICK:
        return env[ins[0]][node.params["index"]]
    if node.op is READ:
        return _read(node, store, changed)
    if node.op is ASSIGN:
        changed[node.params["variable"]] = env[ins[0]]
        return env[ins[0]]
    return None


def _read(node: Node, store: Any, changed: Any) -> ndarray:
    variable = node.params["variable"]
    value = changed.get(variable)
    if value is None:
        value = store.get(variable)
    if value is None:
        raise unread(node)
    return value


def unread(node: Node) -> ArgumentError:
    """The error of a node that reads a variable without a value."""
    return ArgumentError(
        f"variable {node.params['variable'].name!r} is read before it has a value; run "
        f"its initializer first.\n  read at {node.line}"
    )


def failed(node: Node, args: list[Any], params: Any, error: Exception) -> Exception:
    """The error of a node, told with its name and the line that made it."""
    shown = tuple(Tensor(a) if isinstance(a, ndarray) else a for a in args)
    clear = explain(node.op, shown, params, error)
    text = str(clear).partition("\n  at ")[0]
    kind = type(clear) if isinstance(clear, WeftError) else ArgumentError
    return kind(f"{text}\n  in node {node.name!r}, made at {node.line}")


def resolve(value: Any, sizes: Mapping[str, int]) -> Any:
    """A parameter with its symbolic sizes replaced by numbers."""
    if isinstance(value, Size):
        return value.evaluate(sizes)
    if type(value) is dict:
        return {k: resolve(v, sizes) for k, v in value.items()}
    if type(value) is tuple and sized(value):
        return tuple(resolve(v, sizes) for v in value)
    if type(value) is slice and sized(value):
        return slice(
            *[resolve(v, sizes) for v in (value.start, value.stop, value.step)]
        )
    return value


def bind_sizes(inputs: Sequence[Node], arrays: Sequence[Any]) -> dict[str, int]:
    """Check the values of inputs, and find their named sizes."""
    sizes: dict[str, int] = {}
    later: list[Any] = []
    for node, array in zip(inputs, arrays, strict=True):
        if array is None:
            continue
        want: TensorType = node.type
        if not _is_memory(array) or of_array(array) is not want.dtype:
            raise DTypeError(
                f"{node.name}: expected {want}, got {_described(array)}"
                f"\n  declared at {node.line}"
            )
        if len(array.shape) != len(want.shape):
            raise _mismatch(node, array)
        for have, size in zip(array.shape, want.shape, strict=True):
            if not isinstance(size, Size):
                if have != size:
                    raise _mismatch(node, array)
            elif len(size.terms) == 1 and str(size) in size.scope.hints:
                if sizes.setdefault(str(size), have) != have:
                    raise _mismatch(node, array, f"{size} is {sizes[str(size)]}")
            else:
                later.append((node, array, size, have))
    for node, array, size, have in later:
        if not _solve(size, have, sizes):
            continue  # nothing that was given knows this size
        if size.evaluate(sizes) != have:
            raise _mismatch(node, array, f"{size} is {size.evaluate(sizes)}")
    return sizes


def _is_memory(array: Any) -> bool:
    """Whether this is an array, or a buffer of another device."""
    if isinstance(array, (ndarray, np.generic)):
        return type(array) is ndarray
    return hasattr(array, "shape") and hasattr(array, "dtype")


def _solve(size: Size, have: int, sizes: dict[str, int]) -> bool:
    """Whether a size is known by now; ``4*B`` of 12 tells that B is 3."""
    unknown = size.symbols - sizes.keys()
    (atoms, factor), *rest = size.terms
    if len(unknown) == 1 and not rest and len(atoms) == 1 and atoms[0].a is None:
        sizes[atoms[0].kind] = have // factor
        return True
    return not unknown


def _described(array: Any) -> str:
    if not isinstance(array, ndarray):
        return type(array).__name__
    return f"{array.dtype.name}{list(array.shape)}"


def _mismatch(node: Node, array: ndarray, why: str = "") -> ShapeError:
    because = f" ({why} here)" if why else ""
    return ShapeError(
        f"{node.name}: expected {node.type}, got {_described(array)}{because}"
        f"\n  declared at {node.line}"
    )


def run_graph(graph: Graph, arrays: Sequence[ndarray]) -> list[ndarray]:
    """A graph without variables as a function of arrays."""
    return Program(graph, graph.outputs).run(arrays, {})[0]
