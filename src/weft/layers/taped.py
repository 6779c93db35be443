"""A layer with a hand-written backward as one operator of a tensor program.

The layer's forward runs with nothing traced inside. What it kept for its backward is
put aside call by call, so that one layer can be called several times.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import weft
from weft.autograd.function import Function
from weft.core.mode import mode
from weft.errors import AutogradError
from weft.graph.capture import paused
from weft.layers.faces import check_grads, entered
from weft.layers.forms import padded, tensors_of
from weft.layers.layer import Layer
from weft.nn.module import Module


def _twin(layer: Layer) -> Layer:
    """The layer as it is now, apart from what happens to it later."""
    inside = mode.capture is not None
    with paused() if inside else nullcontext():  # what it holds is not read here
        twin = copy.copy(layer)
    if inside:
        vars(twin)["_made_inside"] = True
    for name, child in list(twin._modules.items()):
        twin._modules[name] = _apart(child)
    for name, value in list(vars(twin).items()):
        if type(value) in (list, tuple, dict):
            vars(twin)[name] = _apart(value)
    return twin


def _apart(value: Any) -> Any:
    """A value that a layer holds, with layers in it apart too."""
    if isinstance(value, Layer):
        return _twin(value)
    if type(value) in (list, tuple) and any(isinstance(v, Layer) for v in value):
        return type(value)(_apart(v) for v in value)
    if type(value) is dict and any(isinstance(v, Layer) for v in value.values()):
        return {k: _apart(v) for k, v in value.items()}
    return value


class HandWritten(Function):
    """``apply(layer, needs, *inputs, *parameters)``."""

    @staticmethod
    def forward(ctx: Any, layer: Any, needs: Any, *tensors: Any) -> Any:
        ctx.needs = needs
        count, held = len(needs), layer.params
        still = [t.stopped() for t in tensors]
        ctx.params = dict(zip(layer.all_params(), still[count:], strict=True))
        layer.__dict__["_parameters"] = {key: ctx.params[key] for key in held}
        try:
            out = Module.__call__(layer, *still[:count])
            ctx.call = _twin(layer)
        finally:
            layer.__dict__["_parameters"] = held
        ctx.save_for_backward(*tensors)  # so that later changes are noticed
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        call = _twin(ctx.call)
        call.grads = {}
        with entered(call):
            found = tensors_of(call.backward(*grads, propagate_down=ctx.needs))
            learning = ctx.needs_input_grad[2 + len(ctx.needs) :]
            check_grads(call, ctx.params, learning)
        by_param = [call.grads.get(key) for key in ctx.params]
        given = [*padded(call, found, ctx.needs), *by_param]
        if mode.recording:  # for a derivative of this gradient
            xs = [t for t in ctx.saved_tensors if t.requires_grad]
            given = [g if g is None else _bound(call, g, xs) for g in given]
        return (None, None, *given)


def _bound(layer: Layer, g: Any, xs: list[Any]) -> Any:
    """A gradient that depends on these values in a way that nobody wrote down.

    It is linear in the gradient from above, which the tape follows; its dependence on
    the values is a term of zeros whose derivative is refused.
    """
    return g + Unwritten.apply(layer._title, weft.zeros_like(g), *xs) if xs else g


class Unwritten(Function):
    """Zeros that stand for the second derivatives of a hand-written backward."""

    @staticmethod
    def forward(ctx: Any, label: str, zeros: Any, *xs: Any) -> Any:
        ctx.label = label
        return zeros * 1

    @staticmethod
    def backward(ctx: Any, gg: Any) -> Any:
        raise AutogradError(
            f"{ctx.label}: its backward is written by hand and cannot be "
            "differentiated again; use a layer of tensor operations without a "
            "backward, whose derivatives of every order are derived"
        )
