"""Forward mode: each value carries its tangent, and nothing is kept.

Dual(primal, tangent)      op(dual) = Dual(op(primal), jvp rule)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.autograd.modes import enable_grad
from weft.core.dispatch import Interpreter, bind
from weft.core.mode import mode
from weft.core.op import Op
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.size import Shape
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError


class Dual(Tracer):
    """A tensor with a tangent (None for zero), inside one run of ``jvp``."""

    @property
    def primal(self) -> Tensor:
        return self.parts[0]

    @property
    def tangent(self) -> Any:
        return self.parts[1]

    @property
    def shape(self) -> Shape:
        return self.primal.shape

    @property
    def ndim(self) -> int:
        return self.primal.ndim

    def has_tangent(self) -> bool:
        return self.tangent is not None or super().has_tangent()

    def array(self) -> np.ndarray:
        return self.primal.array()

    def plain(self) -> Tensor:
        return self.primal if self.tangent is None else self

    def stopped(self) -> Tensor:
        return self._with((self.primal.stopped(), None), None)

    def become(self, other: Any) -> None:
        self.parts = self._interpreter.split(other)


class Forward(Interpreter):
    """The interpreter of one ``jvp``."""

    name = "jvp"

    def split(self, value: Any) -> tuple[Any, Any]:
        if type(value) is Dual and value._interpreter is self:
            return value.primal, value.tangent
        return value, None

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        pairs = [self.split(a) for a in args]
        primals = tuple(p for p, _ in pairs)
        tangents = [t for _, t in pairs]
        out = bind(op, primals, params)
        many = type(out) is tuple
        outs = out if many else (out,)
        moved: Any = [None] * len(outs)
        if mode.forward and any(t is not None for t in tangents):
            moved = push_forward(op, primals, tangents, out, params)
            moved = moved if many else [moved]
        duals = tuple(
            Dual(o, t if o.dtype.is_inexact else None, interpreter=self)
            for o, t in zip(outs, moved, strict=True)
        )
        return duals if many else duals[0]


def push_forward(
    op: Op, primals: Any, tangents: Any, out: Any, params: dict[str, Any]
) -> Any:
    """The output's tangent, from the operator's jvp rule."""
    if op.linear and op.jvp is None:
        return bind(op, (tangents[0],), params)
    if callable(op.jvp):
        return op.jvp(tangents, *_values(op, op.jvp, primals, out, params))
    if isinstance(op.jvp, Mapping):
        total = None
        for name, t in zip(op.inputs, tangents, strict=True):
            if t is None or name not in op.jvp:
                continue
            rule = op.jvp[name]
            part = rule(t, *_values(op, rule, primals, out, params))
            total = part if total is None else _add(total, part)
        return (
            total if total is not None or type(out) is not tuple else [None] * len(out)
        )
    if op.vjp is not None:
        return _transposed(op, primals, tangents, out, params)
    return [None] * len(out) if type(out) is tuple else None


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, (tuple, list)):
        return tuple(_add(x, y) for x, y in zip(a, b, strict=True))
    if a is None or b is None:
        return a if b is None else b
    return a + b


def _values(op: Op, rule: Any, primals: Any, out: Any, params: Any) -> list[Any]:
    """A rule's arguments, by the names it gives them."""
    outs = out if type(out) is tuple else (out,)
    values = []
    for kind, position, name in op.sources(rule):
        if kind == "param":
            values.append(params[name])
        elif kind == "out":
            values.append(list(outs) if op.many else outs[position])
        elif op.variadic:
            values.append([p if kind == "in" else getattr(p, kind) for p in primals])
        else:
            values.append(
                primals[position] if kind == "in" else getattr(primals[position], kind)
            )
    return values


def _transposed(op: Op, primals: Any, tangents: Any, out: Any, params: Any) -> Any:
    """The jvp of an operator that only has a vjp.

    The vjp is linear in the cotangent u; the derivative by u of
    ``<vjp(u), t>`` is the jvp of t.
    """
    from weft.autograd.engine import pull
    from weft.core.tape import Leaf, Node, leads_outside
    from weft.ops.creation import ones_like, zeros_like

    many = type(out) is tuple
    outs = out if many else (out,)
    with enable_grad():
        us = []
        for o in outs:
            u = zeros_like(o)
            if o.dtype.is_inexact:
                u._node = Leaf(u)
            us.append(u)
        need = tuple(t is not None for t in tangents)
        plan = op.plan(need)
        node = Node.of(plan, (), (*primals, outs), params)
        total = None
        for i, ct in node.pull_back(tuple(us) if many else us[0]):
            if ct is not None and tangents[i] is not None:
                part = (ct * tangents[i].conj()).sum()
                total = part if total is None else total + part
        if total is None or total._node is None:
            return [None] * len(outs) if many else None
        seeds = [(total._node, ones_like(total))]
        leaves = [u._node for u in us if u._node is not None]
        found = pull(seeds, leaves, retain_graph=False, create_graph=True)
    moved = [found.get(u._node) if u._node is not None else None for u in us]
    moved = [
        m if m is None else m.relinked(lambda n: leads_outside(n, leaves))
        for m in moved
    ]
    return tuple(moved) if many else moved[0]


def jvp(
    func: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """The value of ``func`` and its derivative along ``tangents``.

    Memory does not grow with the length of the program. Returns
    ``(output, tangent)``, and the auxiliary output third with ``has_aux``.

    >>> x = weft.tensor(2.0)
    >>> weft.func.jvp(lambda x: x**3, (x,), (weft.tensor(1.0),))
    (tensor(8.), tensor(12.))
    """
    leaves, structure = tree_flatten(_as_tuple("jvp", "primals", primals))
    moves, shape = tree_flatten(_as_tuple("jvp", "tangents", tangents))
    if shape != structure:
        raise ArgumentError(
            f"jvp: expected tangents of the structure of the primals, got "
            f"{len(moves)} tangents for {len(leaves)} primals"
        )
    with Forward() as run, enable_grad():
        duals = [_dual(run, x, t) for x, t in zip(leaves, moves, strict=True)]
        result = func(*tree_unflatten(duals, structure))
        aux = None
        if has_aux:
            result, aux = _with_aux("jvp", result)
        out, tangent = _unwrap(run, result, strict)
        if has_aux:
            return out, tangent, _unwrap(run, aux, False)[0]
    return out, tangent


def _as_tuple(name: str, what: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise ArgumentError(
            f"{name}: expected a tuple of {what}, got {type(value).__name__}"
        )
    return tuple(value)


def _with_aux(name: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(
            f"{name}: with has_aux=True the function must return (output, aux)"
        )
    return result


def _dual(run: Forward, x: Any, t: Any) -> Any:
    if not isinstance(x, Tensor) or not isinstance(t, Tensor):
        raise DTypeError(
            f"jvp: expected tensors, got {type(x).__name__} and {type(t).__name__}"
        )
    if x.shape != t.shape:
        raise ShapeError(
            f"jvp: a primal of shape {x.shape} needs a tangent of that shape, got "
            f"{t.shape}"
        )
    if not x.dtype.is_inexact:
        raise DTypeError(f"jvp: expected floating-point primals, got {x.dtype.name}")
    from weft.ops.copies import cast

    return Dual(x, cast(t, x.dtype), interpreter=run)


def _unwrap(run: Forward, tree: Any, strict: bool) -> tuple[Any, Any]:
    """A tree of duals as a tree of values and one of tangents."""
    from weft.ops.creation import zeros_like

    leaves, structure = tree_flatten(tree)
    pairs = [run.split(leaf) for leaf in leaves]
    if strict and any(t is None for _, t in pairs):
        raise AutogradError(
            "jvp: an output does not depend on the inputs (strict=True)"
        )
    values = [p for p, _ in pairs]
    moved = [
        zeros_like(p) if t is None and isinstance(p, Tensor) else t for p, t in pairs
    ]
    return tree_unflatten(values, structure), tree_unflatten(moved, structure)
