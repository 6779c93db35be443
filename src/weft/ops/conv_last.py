"""Convolutions of arrays whose channels come last, which GPUs compute fastest.

    conv_last              x (N, *S, C), w (O, *K, C/groups)  ->  y (N, *Y, O)
    conv_last_input_grad   y, w  ->  x
    conv_last_weight_grad  x, y  ->  w

Each is a record of ``ops.conv`` between permutes. Programs get them by the pass
``channels_last``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.core.lowering import Library
from weft.core.op import Op, Sample, TensorType, define, rule_names
from weft.core.tensor import Tensor
from weft.ops.conv import conv_input_grad_op, conv_op, conv_weight_grad_op
from weft.ops.shaping import movedim


def _first(x: Any) -> Any:
    """Channels moved to the second axis, of a tensor, an array, a type or a shape."""
    if isinstance(x, TensorType):
        return TensorType(_first(x.shape), x.dtype)
    if isinstance(x, tuple):
        return (x[0], x[-1], *x[1:-1])
    return movedim(x, -1, 1) if isinstance(x, Tensor) else np.moveaxis(x, -1, 1)


def _last(x: Any) -> Any:
    """Channels moved to the last axis."""
    if isinstance(x, TensorType):
        return TensorType((x.shape[0], *x.shape[2:], x.shape[1]), x.dtype)
    if isinstance(x, Tensor):
        return movedim(x, 1, -1)
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def _between(function: Any) -> Callable[..., Any]:
    """A function of channels-first arguments as one of channels-last ones."""

    def call(*args: Any, **params: Any) -> Any:
        return _last(function(*map(_first, args), **params))

    return call


def _rule(op: Op, rule: Any) -> Callable[..., Any]:
    """A record's derivative rule as the rule of channels-last arrays."""
    names = rule_names(rule)[1:]
    arrays = {*op.inputs, *[f"{name}_shape" for name in op.inputs]}

    def call(g: Any, *values: Any) -> Any:
        given = [
            _first(value) if name in arrays else value
            for name, value in zip(names, values, strict=True)
        ]
        return _last(rule(_first(g), *given))

    call.names = names  # type: ignore[attr-defined]
    return call


def _samples(op: Op) -> Callable[..., Any]:
    def made(rng: np.random.Generator) -> Iterator[Sample]:
        for args, params in op.samples(rng):  # type: ignore[misc]
            yield Sample(tuple(map(_last, args)), params)

    return made


def _record(op: Op) -> Op:
    rules = [
        {name: _rule(op, rule) for name, rule in given.items()}  # type: ignore[union-attr]
        for given in (op.vjp, op.jvp)
    ]
    return define(
        op.name.replace("conv", "conv_last"),
        inputs=" ".join(op.inputs),
        eval=_between(op.eval),
        type=_between(op.type),
        lower=Library("conv_last", op.lower.kind, composed=_between(op), expands=True),
        flops=op.facts.flops,
        vjp=rules[0],
        jvp=rules[1],
        samples=_samples(op),
        reference=_between(op.reference),
    )


conv_last_op, conv_last_input_grad_op, conv_last_weight_grad_op = map(
    _record, (conv_op, conv_input_grad_op, conv_weight_grad_op)
)
