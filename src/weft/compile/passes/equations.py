"""Equations as data: ``add(x, neg(y)) = sub(x, y)``, read from left to right.

On the left side a name stands for any operand, the same name for the same one, and
a number for itself or a tensor full of it. Operands of operators that commute are
tried in both orders. The right side is a name, a number or a call.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from weft.compile.passes.facts import FULL, same_number, splat, takes_numbers
from weft.compile.passes.policy import Policy
from weft.compile.passes.walk import Call, Replacement
from weft.core.op import Op, find_op
from weft.dtype import DType
from weft.graph.ir import CONSTANT, Node
from weft.graph.verify import same_type

Bound = dict[str, Any]
Matcher = Callable[[Any, Bound], bool]
Maker = Callable[[Bound], Any]


class Equation(NamedTuple):
    """A parsed equation."""

    text: str
    policy: Policy
    op: Op
    match: Matcher
    make: Maker
    wants: tuple[frozenset[Any], ...]  # operators, or None for numbers: an input each

    def __call__(self, node: Node) -> Replacement:
        bound: Bound = {}
        if not self.policy.allows(node.dtype) or not self.match(node, bound):
            return None
        right, kind = self.make(bound), node.type
        if type(right) is Call:
            return right if _possible(right, kind.dtype) else None
        if type(right) is Node:
            return right if same_type(right.type, kind) else None
        return Call(
            FULL, (), {"shape": kind.shape, "value": right, "dtype": kind.dtype}
        )


def _possible(call: Call, dtype: DType) -> bool:
    """Whether each operator gets a tensor, and numbers only if it takes them."""
    kinds = {type(i) for i in call.inputs}
    if not kinds & {Node, Call} or not (kinds <= {Node, Call} or takes_numbers(dtype)):
        return False
    return all(_possible(i, dtype) for i in call.inputs if type(i) is Call)


def equations(policy: Policy, texts: str) -> list[Equation]:
    """Parse equations, one a line."""
    return [_equation(policy, t.strip()) for t in texts.strip().splitlines()]


def table(rows: Iterable[Equation]) -> dict[Op, list[Equation]]:
    """Equations by the operator that they replace."""
    by_op: dict[Op, list[Equation]] = {}
    for one in rows:
        by_op.setdefault(one.op, []).append(one)
    return by_op


def fitting(rows: Iterable[Equation], node: Node) -> list[Equation]:
    """The equations that may apply to a node, by the operators of its inputs."""
    kinds = [i.op if type(i) is Node else None for i in node.inputs]
    return [
        one for one in rows if not any(want.isdisjoint(kinds) for want in one.wants)
    ]


def _equation(policy: Policy, text: str) -> Equation:
    left, right = [
        ast.parse(side.strip(), mode="eval").body for side in text.split("=")
    ]
    assert isinstance(left, ast.Call)
    wants = tuple([_want(arg) for arg in left.args if not isinstance(arg, ast.Name)])
    return Equation(text, policy, _op(left), _matcher(left), _maker(right), wants)


def _want(arg: ast.expr) -> frozenset[Any]:
    if isinstance(arg, ast.Call):
        return frozenset([_op(arg)])
    return frozenset([None, FULL, CONSTANT])  # where there may be a number


def _op(call: ast.Call) -> Op:
    assert isinstance(call.func, ast.Name)
    return find_op(call.func.id)


# -- the left side


def _matcher(side: ast.expr) -> Matcher:
    if isinstance(side, ast.Name):
        return _named(side.id)
    assert isinstance(side, ast.Call)
    numbers, others = [], []
    for k, arg in enumerate(side.args):
        if isinstance(arg, (ast.Name, ast.Call)):
            others.append((k, _matcher(arg)))
        else:
            numbers.append((k, ast.literal_eval(arg)))
    return _called(_op(side), numbers, others)


def _named(name: str) -> Matcher:
    def match(value: Any, bound: Bound) -> bool:
        return bound.setdefault(name, value) is value

    return match


def _called(
    op: Op, numbers: list[tuple[int, Any]], others: list[tuple[int, Matcher]]
) -> Matcher:
    commutes = op.facts.commutes

    def match(value: Any, bound: Bound) -> bool:
        if type(value) is not Node or value.op is not op:
            return False
        inputs = value.inputs
        return fits(inputs, bound) or (commutes and fits(inputs[::-1], bound))

    def fits(inputs: tuple[Any, ...], bound: Bound) -> bool:
        for k, number in numbers:
            have = splat(inputs[k])
            if have is None or not same_number(have, number):
                return False
        tried = bound.copy()
        for k, matcher in others:
            if not matcher(inputs[k], tried):
                return False
        bound.update(tried)
        return True

    return match


# -- the right side


def _maker(side: ast.expr) -> Maker:
    if isinstance(side, ast.Name):
        name = side.id
        return lambda bound: bound[name]
    if not isinstance(side, ast.Call):
        number = ast.literal_eval(side)
        return lambda bound: number
    op, args = _op(side), [_maker(arg) for arg in side.args]
    return lambda bound: Call(op, tuple([arg(bound) for arg in args]))
