"""Patterns: a function of tensors that is looked for in a graph.

A pattern is the function itself. Traced on examples it gives the operators to look
for, and with them what its arguments could be; traced again on the types of those
it must give exactly the nodes that were found. So parameters that follow from
types (the order of dimensions of a transpose, the shape of an expand) need no
syntax of their own, and a function matches what capturing it would have made.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from weft.core.op import TensorType
from weft.core.size import Scope
from weft.dtype import as_dtype, default_dtype, float32, int64
from weft.errors import ArgumentError, WeftError
from weft.graph.capture import Spec
from weft.graph.ir import INPUT, STATEFUL, Builder, Node
from weft.graph.symbol import Building
from weft.graph.values import value_text
from weft.graph.verify import same_type

_MANY = 256  # how many values for the open numbers of a pattern are tried


class RuleError(ArgumentError):
    """A rewrite rule that cannot be one."""


class Open(NamedTuple):
    """A number or parameter that may have any value; ``example`` is one."""

    example: Any


class Pattern(NamedTuple):
    """A function traced on some types."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    root: Node  # the output that everything else leads to

    @property
    def inner(self) -> set[Node]:
        """The nodes that nothing outside may use: no input, no output."""
        return below(self.root) - {*self.inputs, *self.outputs}


Pairs = dict[Node, Node]


class Function:
    """A function that stands for a pattern: tensors, then open numbers."""

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self.fn = fn
        self.name = name
        parameters = inspect.signature(fn).parameters.values()
        self.tensors = [p.name for p in parameters if p.default is p.empty]
        self.open: dict[str, Any] = {}
        for p in parameters:
            if p.default is not p.empty:
                self.open[p.name] = self._example(p)

    def _example(self, parameter: inspect.Parameter) -> Any:
        if not isinstance(parameter.default, Open):
            raise RuleError(
                f"rule {self.name!r}: the argument {parameter.name!r} must have no "
                "default (a tensor) or weft.graph.rewrite.any(example) (a number)"
            )
        return parameter.default.example

    def trace(self, types: Sequence[TensorType], values: Any, scope: Scope) -> Pattern:
        """The pattern for tensors of these types and these numbers."""
        build = Building(Builder(self.name, scope))
        with build, build.taking():
            named = zip(types, self.tensors, strict=True)
            symbols = [build.symbol(build.builder.input(t, n)) for t, n in named]
            found = self.fn(*symbols, **values)
            outs = found if isinstance(found, tuple) else (found,)
            outputs = tuple([build.lift(out) for out in outs])
        inputs = tuple([s.node for s in symbols])
        return self._checked(inputs, outputs)

    def _checked(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> Pattern:
        leading = [out for out in outputs if below(out) >= set(outputs)]
        if not leading:
            self._refuse("must have one output that leads to the others")
        root, needed = leading[0], below(leading[0])
        unused = [n.name for n in inputs if n not in needed]
        stateful = [n.name for n in needed if n.op in STATEFUL]
        if unused:
            self._refuse(f"does not use {unused[0]!r}")
        if root.op is INPUT:
            self._refuse("applies no operator")
        if stateful:
            self._refuse(f"cannot use the variable {stateful[0]!r}")
        return Pattern(tuple(inputs), tuple(outputs), root)

    def _refuse(self, problem: str) -> NoReturn:
        raise RuleError(f"rule {self.name!r}: `before` {problem}")

    def examples(self, given: Sequence[Any] | None) -> list[Pattern]:
        """The function traced on examples, once for each shape of pattern."""
        patterns: dict[str, Pattern] = {}
        failure: Exception | None = None
        for types in self._types(given):
            try:
                one = self.trace(types, self.open, Scope())
            except RuleError:
                raise
            except (WeftError, TypeError, ValueError, IndexError) as error:
                failure = error
            else:
                patterns.setdefault(_outline(one), one)
        if not patterns:
            raise RuleError(
                f"rule {self.name!r}: `before` cannot be traced on "
                f"{'the' if given else 'small'} examples ({failure}); give "
                "examples=(…), a tensor or Spec for each tensor"
            ) from failure
        return list(patterns.values())

    def _types(self, given: Sequence[Any] | None) -> Iterator[list[TensorType]]:
        if given is not None:
            if len(given) != len(self.tensors):
                raise RuleError(
                    f"rule {self.name!r}: expected {len(self.tensors)} examples "
                    f"({', '.join(self.tensors)}), got {len(given)}"
                )
            yield [_type_of(one) for one in given]
            return
        count = len(self.tensors)
        top = {0: 5, 1: 5, 2: 5, 3: 4}.get(count)  # ranks below this, all together
        ranks = itertools.product(range(top), repeat=count) if top else None
        for row in ranks or [(rank,) * count for rank in range(5)]:
            for dtype in (float32, int64):  # integers meet numbers in another way
                yield [TensorType((2,) * rank, dtype) for rank in row]


def _type_of(example: Any) -> TensorType:
    if isinstance(example, Spec):
        dtype = default_dtype() if example.dtype is None else as_dtype(example.dtype)
        shape = tuple(2 if isinstance(n, str) else n for n in example.shape)
        return TensorType(shape, dtype)
    return TensorType(tuple(example.shape), example.dtype)


def below(root: Node) -> set[Node]:
    """The nodes that lead to this one, itself included."""
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.parents)
    return seen


def _outline(pattern: Pattern) -> str:
    """The operators and how they are connected, without parameters."""
    order: dict[Node, int] = {}

    def visit(node: Any) -> str:
        if type(node) is not Node:
            return "·"
        if node in order:
            return f"%{order[node]}"
        order[node] = len(order)
        if node.op is INPUT:
            return f"{order[node]}:{node.name}"
        inside = ",".join([visit(i) for i in node.inputs])
        return f"{order[node]}:{node.op.name}({inside})"

    return visit(pattern.root)


# -- matching


def match(pattern: Pattern, root: Node, *, exact: bool) -> Pairs | None:
    """The node that each of the pattern's is, or None; parameters count if exact."""
    pairs: Pairs = {}
    stack: list[tuple[Node, Node]] = [(pattern.root, root)]
    while stack:
        want, have = stack.pop()
        if want in pairs:
            if pairs[want] is not have:
                return None
            continue
        pairs[want] = have
        if want.op is INPUT:
            continue
        if want.op is not have.op or len(want.inputs) != len(have.inputs):
            return None
        if have.after or (exact and not _same_node(want, have)):
            return None
        for a, b in zip(want.inputs, have.inputs, strict=True):
            if (type(a) is Node) is not (type(b) is Node):
                return None
            if type(a) is Node:
                stack.append((a, b))
            elif exact and not same_value(a, b):
                return None
    return pairs


def _same_node(want: Node, have: Node) -> bool:
    if not same_type(want.type, have.type) or want.params.keys() != have.params.keys():
        return False
    return all(same_value(v, have.params[k]) for k, v in want.params.items())


def same_value(a: Any, b: Any) -> bool:
    """Whether two parameters are the same; 1 and 1.0 are, 0.0 and -0.0 are not."""
    if a is b:
        return True
    if type(a) in (int, float) and type(b) in (int, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return type(a) is type(b) and value_text(a) == value_text(b)


def candidates(function: Function, pairs: Pairs) -> Iterator[dict[str, Any]]:
    """Values for the pattern's open numbers, found in the nodes that match."""
    if not function.open:
        yield {}
        return
    numbers: dict[str, Any] = {}
    for want, have in pairs.items():
        if want.op is not INPUT:
            values = [i for i in have.inputs if type(i) is not Node]
            for value in (*values, *have.params.values()):
                _collect(value, numbers)
    rows = itertools.product(numbers.values(), repeat=len(function.open))
    for row in itertools.islice(rows, _MANY):
        yield dict(zip(function.open, row, strict=True))


def _collect(value: Any, found: dict[str, Any]) -> None:
    found.setdefault(value_text(value), value)
    if type(value) is tuple:
        for one in value:
            _collect(one, found)
