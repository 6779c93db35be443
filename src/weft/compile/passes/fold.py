"""Constant folding: what can be computed now is.

    %a: int64[] = full(shape=(), value=16, dtype=int64)
    %b: int64[] = mul(%a, %a)                 →  full(shape=(), value=256, …)
    %c: int64[] = add(%x, %b)                    add(%x, %b)

The records' own evaluations compute the values, so a folded program has the same
bits. A value whose elements are all the same number becomes a ``full`` of any size,
also of a symbolic one. Others are computed if they are small, or no larger than their
inputs; a constant is never expanded. A ``cond`` whose predicate is known is replaced by
the branch that is taken. Random numbers are not folded, nor operators that fail: the
run reports their errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compile.passes.facts import (
    EXPAND,
    FULL,
    is_reduction,
    known_size,
    rounds,
    splat,
)
from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.lowering import View
from weft.core.op import Op, TensorType, find_op
from weft.core.size import Size
from weft.dtype import of_array
from weft.graph.control.branch import cond_op
from weft.graph.ir import (
    CONSTANT,
    INPUT,
    PICK,
    READ,
    STRUCTURAL,
    Graph,
    Node,
    sized,
    subgraphs,
)

SMALL = 1 << 16  # bytes that a constant may always have
_GIVEN = (INPUT, READ)
_SUM = find_op("sum")
_CAT = find_op("cat")
_MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def fold(graph: Graph) -> Graph:
    """Compute the nodes that depend on constants alone.

    >>> g = weft.graph.capture(
    ...     lambda x: x + weft.full((), 2) * weft.full((), 3),
    ...     weft.tensor(1)).graph
    >>> print(weft.compile.passes.fold(g))
    graph program(%x: int64[]) {
      %mul: int64[] = full(shape=(), value=6, dtype=int64)
      %add: int64[] = add(%x, %mul)
      return %add
    }
    """
    return _Fold(graph).run()


class _Fold(Walk):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.values: dict[Node, np.ndarray | None] = {}
        self.branches: dict[Node, list[Node] | None] = {}
        self.unknown: set[Node] = set()  # nodes that depend on inputs or variables

    def note(self, node: Node) -> None:
        if node.op in _GIVEN or not self.unknown.isdisjoint(_nodes(node.inputs)):
            self.unknown.add(node)

    def visit(self, node: Node) -> Replacement:
        if node.op is CONSTANT:
            return self.uniform(node)
        if node.op is PICK and node.inputs[0].op is cond_op:
            return self.branch_taken(node)
        if not node.inputs or not isinstance(node.type, TensorType):
            return None
        if not self.unknown.isdisjoint(_nodes(node.inputs)):
            return None
        number = self.number(node)
        if number is not None:
            return _full(node.type, number)
        if node.op is EXPAND:
            return None
        value = self.value(node)
        return None if value is None else _constant(value)

    def uniform(self, node: Node) -> Replacement:
        value = node.params["value"]
        if 1 < value.size <= SMALL // value.itemsize and _all_same(value):
            return _full(node.type, value.flat[0].item())
        return None

    # -- branches

    def branch_taken(self, pick: Node) -> Replacement:
        """An output of the branch that is always taken, inlined into this graph."""
        cond: Node = pick.inputs[0]
        chosen = splat(cond.inputs[0])
        if chosen is None:
            return None
        if cond not in self.branches:
            branch = cond.params["then" if chosen else "other"]
            own = branch.sizes is not self.graph.sizes and branch.sizes.hints
            self.branches[cond] = None if own else self.inlined(branch, cond)
        outputs = self.branches[cond]
        return None if outputs is None else outputs[pick.params["index"]]

    def inlined(self, branch: Graph, cond: Node) -> list[Node]:
        """Add the branch's nodes to this graph; return those of its outputs."""
        env: dict[Any, Any] = dict(zip(branch.inputs, cond.inputs[1:], strict=True))
        own = [node for node in branch.nodes if node not in env]
        names = {node.name: self.free(f"{cond.name}/{node.name}") for node in own}

        def renamed(name: str) -> str:
            return names.get(name, f"{cond.name}/{name}")

        for node in own:
            fresh = Node(
                node.op, tuple([env[i] if type(i) is Node else i for i in node.inputs]),
                node.params, node.type, renamed(node.name),
                tuple([env[i] for i in node.after]), node.module, node.code, node.lasti,
                node.role.inside(cond.role, renamed),
            )  # fmt: skip
            env[node] = self.settled(fresh, fresh)
        return [env[out] for out in branch.outputs]

    # -- values whose elements are all the same number

    def number(self, node: Node) -> Any:
        """The number that all elements are equal to, if the inputs are such values."""
        numbers = [splat(i) for i in node.inputs]
        if any(n is None for n in numbers):
            return None
        if node.op.facts.elementwise:
            return self.evaluated(node, numbers)
        equal = len(set(map(repr, numbers))) == 1
        if isinstance(node.op.lower, View) or (node.op is _CAT and equal):
            return numbers[0]
        return self.reduced(node, numbers)

    def reduced(self, node: Node, numbers: list[Any]) -> Any:
        """A reduction of equal numbers, if every order of adding gives the same."""
        if not is_reduction(node.op) or (rounds(node.op) and node.op is not _SUM):
            return None
        shape = node.inputs[0].shape
        count: Any = 1
        for d in node.params["dim"]:
            count = count * shape[d]
        if isinstance(count, Size) or count == 0:
            return None
        if not rounds(node.op):
            return self.evaluated(node, numbers, dim=(), keepdim=False)
        total = numbers[0] * count
        if node.dtype.is_inexact:
            real = not isinstance(numbers[0], complex)
            exact = real and float(numbers[0]).is_integer()
            limit = 1 << _MANTISSA.get(node.dtype.name, 0)
            return total if exact and abs(total) <= limit else None
        return np.asarray(total).astype(node.dtype.np).item()

    def evaluated(self, node: Node, numbers: list[Any], **params: Any) -> Any:
        args = [
            np.asarray(n, i.dtype.np) if type(i) is Node else n
            for n, i in zip(numbers, node.inputs, strict=True)
        ]
        value = _run(node.op, args, params or node.params)
        return None if value is None else _item(value, node)

    # -- arrays

    def value(self, node: Any) -> np.ndarray | None:
        """A node's array, if it is known and not too large."""
        if type(node) is not Node:
            return node
        if node.op is CONSTANT:
            return node.params["value"]
        if node not in self.values:
            self.values[node] = self.computed(node)
        return self.values[node]

    def computed(self, node: Node) -> np.ndarray | None:
        args = []
        for one in node.inputs:
            args.append(self.value(one))
            if args[-1] is None:
                return None
        size = known_size(node.type)
        if size is None or not _foldable(node):
            return None
        inputs = sum(getattr(a, "nbytes", 0) for a in args)
        if size > max(SMALL, inputs if node.op is not EXPAND else 0):
            return None
        value = _run(node.op, args, node.params)
        fits = value is not None and (value.shape, of_array(value)) == node.type
        return value if fits else None


def _nodes(inputs: tuple[Any, ...]) -> list[Node]:
    return [i for i in inputs if type(i) is Node]


def _foldable(node: Node) -> bool:
    op = node.op
    if op.facts.random or op.facts.effect or op.name in STRUCTURAL or op.composite:
        return False
    if any(sized(v) for v in (*node.inputs, *node.params.values())):
        return False
    return not any(True for _ in subgraphs(node))


def _run(op: Op, args: list[Any], params: dict[str, Any]) -> np.ndarray | None:
    try:
        with np.errstate(all="ignore"):
            return np.asarray(op.kernel(*args, **params))
    except Exception:  # the run will report it with its line
        return None


def _item(value: np.ndarray, node: Node) -> Any:
    if value.shape != () or of_array(value) is not node.dtype:
        return None
    return value.item()


def _all_same(value: np.ndarray) -> bool:
    """Whether all elements have the same bits."""
    flat = np.ascontiguousarray(value).reshape(-1)
    if flat[:1].tobytes() != flat[-1:].tobytes():
        return False
    return flat.tobytes() == flat[:1].tobytes() * flat.size


def _constant(value: np.ndarray) -> Call:
    if value.size and _all_same(value):
        kind = TensorType(value.shape, of_array(value))
        return _full(kind, value.flat[0].item())
    return Call(CONSTANT, (), {"value": np.array(value, order="C")})


def _full(kind: TensorType, number: Any) -> Call:
    return Call(FULL, (), {"shape": kind.shape, "value": number, "dtype": kind.dtype})
