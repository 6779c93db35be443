"""From tensors to formulas, and derivatives by the operators' own rules.

A derivative here is the backward program that ``weft.graph.gradients`` writes, read as
a formula and simplified: there is no second table of derivatives.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from weft.core.lowering import View
from weft.core.op import Op, TensorType, find_op
from weft.dtype import float64
from weft.errors import ArgumentError, DTypeError
from weft.graph.gradients import add_gradients
from weft.graph.ir import CONSTANT, INPUT, RENEW, Builder, Graph, Node
from weft.graph.symbol import Building, Symbol
from weft.symbolic.expression import Expression, call, number, product, total, variable

_names = itertools.count(1)


class Formulas(Building):
    """The interpreter of symbolic variables: operators on them become nodes."""

    name = "a formula"


def variables(names: str) -> list[Symbol]:
    """Real variables by name; Weft's functions of them are formulas.

    >>> x1, x2 = weft.symbolic.variables("x1 x2")
    >>> weft.symbolic.diff(weft.log(x1) + x1 * x2 - weft.sin(x2), x1)
    x2 + 1/x1
    """
    given = names.replace(",", " ").split()
    if len(set(given)) != len(given) or not given:
        raise ArgumentError(f"variables: expected different names, got {names!r}")
    build = Formulas(Builder(f"formula_{next(_names)}"))
    kind = TensorType((), float64)
    return [build.symbol(build.builder.input(kind, name)) for name in given]


def expression(source: Any) -> Expression:
    """The formula of a tensor of ``variables``, of a function, or of a number.

    >>> weft.symbolic.expression(lambda x, y: x * y + weft.sin(x))
    x*y + sin(x)
    """
    if isinstance(source, Expression):
        return source
    if isinstance(source, (int, float)):
        return number(source)
    if isinstance(source, Symbol):
        return read(source.node)
    if callable(source):
        names = list(inspect.signature(source).parameters)
        out = source(*variables(" ".join(names))) if names else source()
        return expression(out)
    raise DTypeError(
        "expression: expected a tensor of weft.symbolic.variables, a function or a "
        f"number, got {type(source).__name__}"
    )


# -- graphs to formulas

Reader = Callable[..., Expression]

# The operators that are arithmetic, in the formulas' own terms. ``absorb`` is the
# product of derivative rules.
_READ: dict[str, Reader] = {
    "add": lambda x, y: total(x, y),
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: product(x, y),
    "absorb": lambda x, y: product(x, y),
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "pow": lambda x, y: x**y,
    "square": lambda x: x**2,
    "reciprocal": lambda x: x**-1,
    "sqrt": lambda x: x**0.5,
    "rsqrt": lambda x: x**-0.5,
}
_CAST, _SUM = find_op("cast"), find_op("sum")


def read(root: Node, names: dict[Node, Expression] | None = None) -> Expression:
    """The formula of a node (of which ``names`` may stand for some)."""
    found: dict[Any, Expression] = dict(names or {})
    for node in _ancestors(root, found):
        found[node] = _formula(node, found)
    return found[root]


def _ancestors(root: Node, known: dict[Any, Expression]) -> list[Node]:
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen and node not in known:
            seen.add(node)
            stack.append((node, True))
            stack += [(i, False) for i in node.inputs if type(i) is Node]
    return order


def _formula(node: Node, found: dict[Any, Expression]) -> Expression:
    if node.op is INPUT:
        return variable(node.name)
    if not isinstance(node.type, TensorType) or node.type.shape != ():
        raise ArgumentError(
            f"expression: formulas are over single numbers, but {node.name!r} is "
            f"{node.type}\n  made at {node.line}"
        )
    if node.op is CONSTANT:
        return number(node.params["value"].item())
    if node.op.name == "full":
        return number(node.params["value"])
    args = [found[i] if type(i) is Node else number(i) for i in node.inputs]
    if _is_same(node.op):
        return args[0]
    arithmetic = _READ.get(node.op.name)
    if arithmetic is not None:
        return arithmetic(*args)
    return call(node.op, tuple(args), node.params)


def _is_same(op: Op) -> bool:
    """Whether an operator leaves a single number as it is."""
    return isinstance(op.lower, View) or op is RENEW or op is _CAST or op is _SUM


# -- derivatives


def diff(source: Any, *by: Any, simplify: bool = True) -> Expression:
    """The derivative of a formula by a variable (by several: one after the other).

    ``source`` is what ``expression`` takes; a variable is a name or a symbol.
    ``simplify=False`` leaves the formula as the operators' rules write it.

    >>> (x,) = weft.symbolic.variables("x")
    >>> weft.symbolic.diff(weft.sin(x) * weft.exp(x), x)
    cos(x)*exp(x) + exp(x)*sin(x)
    >>> weft.symbolic.diff(x**4, x, x)
    12*x^2
    """
    if not by:
        raise ArgumentError("diff: expected at least one variable to derive by")
    found = expression(source)
    for one in by:
        found = derivative(found, _name(one))
        found = found.simplify() if simplify else found
    return found


def gradient(source: Any, by: Sequence[Any], simplify: bool = True) -> list[Expression]:
    """The derivatives by each of several variables.

    >>> x, y = weft.symbolic.variables("x y")
    >>> weft.symbolic.gradient(x * y + weft.sin(x), [x, y])
    [y + cos(x), x]
    """
    return [diff(source, one, simplify=simplify) for one in by]


def _name(one: Any) -> str:
    if isinstance(one, str):
        return one
    if isinstance(one, Symbol) and one.node.op is INPUT:
        return one.name
    raise DTypeError(
        f"diff: expected a variable or its name, got {type(one).__name__} {one}"
    )


def derivative(e: Expression, name: str) -> Expression:
    """The derivative as the operators' rules write it."""
    if name not in e.variables:
        return number(0)
    build, inputs, out = rebuild(e)
    (slope,) = add_gradients(build, [out], [inputs[name]])
    return number(0) if slope is None else read(slope)


def rebuild(e: Expression) -> tuple[Formulas, dict[str, Node], Node]:
    """A formula as a graph: the graph, its inputs by name, its output."""
    symbols = variables(" ".join(e.variables))
    build: Formulas = symbols[0]._interpreter
    out = e.evaluate({s.name: s for s in symbols})
    return build, {s.name: s.node for s in symbols}, build.lift(out)


def graph_of(e: Expression) -> Graph:
    """A formula as a graph with its variables as inputs.

    >>> g = weft.symbolic.graph_of(weft.symbolic.expression(lambda x: x * x))
    >>> [node.name for node in g.nodes]
    ['x', 'mul']
    """
    build, _, out = rebuild(e)
    return build.builder.finish([out])
