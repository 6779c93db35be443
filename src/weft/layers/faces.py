"""The ways into a layer: what happens around the methods that its class writes.

A call from outside runs without a tape, and names the layer in errors. A call from the
layer's own method (through ``super()``) goes straight on. A call from something that a
tape follows becomes a part of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from weft import as_tensor, no_grad, zeros
from weft.autograd import enable_grad, grad
from weft.core.mode import mode
from weft.core.size import hinted
from weft.core.tensor import Tensor
from weft.errors import AutogradError, DTypeError, ShapeError, module_stack
from weft.graph.capture import paused
from weft.graph.symbol import made_outside
from weft.layers.forms import (
    Method,
    are_blobs,
    backward_form,
    fill,
    forward_form,
    hand_down,
    single,
)
from weft.nn.module import Module


def running(layer: Any) -> bool:
    """Whether the innermost call is this layer's own (through ``super()``, say)."""
    stack = module_stack()
    return bool(stack) and stack[-1] is layer


def taped() -> bool:
    """Whether a layer or module is running around this call, and being recorded."""
    return bool(module_stack()) and mode.recording


@contextmanager
def entered(layer: Module) -> Iterator[None]:
    """Errors inside name this layer."""
    stack = module_stack()
    stack.append(layer)
    try:
        yield
    finally:
        stack.pop()


def written(layer: Any) -> Any:
    """The form of this layer's forward."""
    return type(layer).forward.form


def prepare(layer: Any, inputs: Sequence[Tensor]) -> None:
    """Let a layer see its inputs before its first forward.

    During a capture it sees zeros like them, outside of it: what it makes of their
    shapes is there before the program, as after an eager call.
    """
    if layer._prepared:
        return
    if mode.capture is None:
        return _set_up(layer, inputs)
    shapes = [hinted(x.shape) for x in inputs]
    if layer._made_inside or any(shape is None for shape in shapes):
        return _set_up(layer, inputs)
    dtypes = [x.dtype for x in inputs]
    with paused():
        pairs = zip(shapes, dtypes, strict=True)
        _set_up(layer, [zeros(shape, dtype=dtype) for shape, dtype in pairs])
    raise made_outside()


def _set_up(layer: Any, inputs: Sequence[Tensor]) -> None:
    loaded = drop_loaded(layer)
    with entered(layer), no_grad():
        written(layer).prepare(layer, inputs)
    layer._prepared = True
    for key, value in loaded.items():
        slots = layer._buffers if key in layer._buffers else layer.params
        if key not in slots or slots[key].shape != value.shape:
            made = slots[key].shape if key in slots else "nothing"
            raise ShapeError(
                f"{layer._title}: {key!r} was loaded with shape {value.shape}, but "
                f"these inputs ask for {made}"
            )
        slots[key] = value


def take_loaded(layer: Any, values: Mapping[str, Any]) -> None:
    """Give a layer that has seen no input parameters and buffers from a file."""
    layer.__dict__["_loaded"] = tuple(values)
    for key, value in values.items():
        slots = layer._buffers if key in layer._buffers else layer.params
        slots[key] = as_tensor(value).detach().clone()


def drop_loaded(layer: Any) -> dict[str, Any]:
    """Take away what was loaded, so that the layer can make its own; return it."""
    loaded = {}
    for key in layer.__dict__.pop("_loaded", ()):
        slots = layer._buffers if key in layer._buffers else layer.params
        loaded[key] = slots[key]
        if slots is layer._buffers:
            slots[key] = None
        else:
            del slots[key]
    return loaded


def forward_face(fn: Method) -> Method:
    form = forward_form(fn)

    @functools.wraps(fn)
    def forward(self: Any, *args: Any) -> Any:
        blobs = len(args) == 2 and are_blobs(args[0]) and are_blobs(args[1])
        if running(self):
            return (
                form.blobs(self, *args) if blobs else single(form.tensors(self, args))
            )
        if taped() and not blobs:
            return self(*args)  # part of something that a tape follows
        inputs = (
            [b.data for b in args[0]]
            if blobs
            else [as_tensor(x).detach() for x in args]
        )
        prepare(self, inputs)
        with entered(self):
            if not self.hand_written:
                outs = _derivable(self, form, inputs)
                return fill(self, args[1], outs) if blobs else single(outs)
            with no_grad():
                if blobs:
                    return form.blobs(self, *args)
                return single(form.tensors(self, inputs))

    forward.form = form  # type: ignore[attr-defined]
    return forward


def _derivable(layer: Any, form: Any, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """Run a forward that has no backward, and keep its tape while training."""
    _keep_tape(layer, None)
    if not layer.training:
        with no_grad():
            return form.tensors(layer, inputs)
    leaves = [x.detach().requires_grad_() if x.dtype.is_inexact else x for x in inputs]
    with enable_grad():
        outs = form.tensors(layer, leaves)
    _keep_tape(layer, (leaves, outs))
    return tuple(out.detach() for out in outs)


def _keep_tape(layer: Any, tape: Any) -> None:
    """Keep a tape for the backward; none is left after a run of a program."""
    if mode.capture is not None:
        mode.capture.note_attribute(layer, "_tape", None)
    object.__setattr__(layer, "_tape", tape)


class Derived:
    """The backward that the tape derives."""

    def tensors(
        self, layer: Any, grads: Sequence[Any], needs: Sequence[bool]
    ) -> tuple[Any, ...]:
        tape = object.__getattribute__(layer, "_tape")
        if tape is None:
            raise AutogradError(
                f"{layer._title}: this layer's backward is derived from its forward, "
                "which must have run in training mode, and in the same function if "
                "it is compiled; call train() before forward"
            )
        leaves, outs = tape
        wanted = [
            x for x, n in zip(leaves, needs, strict=True) if n and x.requires_grad
        ]
        learning = {k: p for k, p in layer.all_params().items() if p.requires_grad}
        sources = [*wanted, *learning.values()]
        gradients = list(grad(outs, sources, list(grads), allow_unused=True))
        gradients = [
            x.detach() * 0 if g is None else g
            for g, x in zip(gradients, sources, strict=True)
        ]
        layer.grads.update(zip(learning, gradients[len(wanted) :], strict=True))
        given = iter(gradients)
        return tuple(
            next(given) if n and x.requires_grad else None
            for x, n in zip(leaves, needs, strict=True)
        )

    def blobs(self, layer: Any, top: Any, needs: Any, bottom: Any) -> None:
        hand_down(bottom, self.tensors(layer, [t.diff for t in top], needs))


def backward_face(fn: Method) -> Method:
    form = backward_form(fn)

    @functools.wraps(fn)
    def backward(self: Any, *args: Any, propagate_down: Any = None) -> Any:
        return pull_face(self, form, args, propagate_down)

    backward.form = form  # type: ignore[attr-defined]
    return backward


def pull_face(layer: Any, form: Any, args: Any, needs: Any) -> Any:
    """Call a backward in either form."""
    blobs = len(args) == 3 and are_blobs(args[0]) and are_blobs(args[2])
    if blobs:
        needs = args[1]
    if layer._seen is None:
        raise AutogradError(
            f"{layer._title}: backward was called before forward; call forward first"
        )
    needs = _checked_needs(layer, needs)
    given = [t.diff for t in args[0]] if blobs else [as_tensor(g) for g in args]
    _check_shapes(layer, "backward to get gradients", given, layer._seen.outs)
    if running(layer):
        if blobs:
            return form.blobs(layer, args[0], needs, args[2])
        return single(form.tensors(layer, args, needs))
    with nullcontext() if taped() else no_grad(), entered(layer):
        layer.grads = {}
        if blobs:
            form.blobs(layer, args[0], needs, args[2])
            return check_grads(layer)
        found = form.tensors(layer, given, needs)
        _check_shapes(layer, "backward to give gradients", found, layer._seen.ins)
        check_grads(layer)
    return single(found)


def _check_shapes(layer: Any, what: str, grads: Any, shapes: Any) -> None:
    """Gradients have the shapes of what they belong to; None and no more are free."""
    for g, shape in zip(grads, shapes, strict=False):
        if g is not None and g.shape != shape:
            raise ShapeError(
                f"{layer._title}: expected {what} of {shape}, got {g.shape}"
            )


def _checked_needs(layer: Any, needs: Any) -> tuple[bool, ...]:
    count = len(layer._seen.ins)
    if needs is None:
        return (True,) * count
    if len(needs) != count:
        raise ShapeError(
            f"{layer._title}: expected propagate_down for each of {count} inputs, got "
            f"{len(needs)}"
        )
    return tuple(bool(n) for n in needs)


def check_grads(
    layer: Any,
    params: Mapping[str, Any] | None = None,
    learning: Sequence[bool] | None = None,
) -> None:
    """Every parameter that learns got a gradient of its shape."""
    params = layer.all_params() if params is None else params
    if learning is None:
        learning = [p.requires_grad for p in params.values()]
    for (key, p), learns in zip(params.items(), learning, strict=True):
        g = layer.grads.get(key)
        if g is None and learns:
            raise AutogradError(
                f"{layer._title}: backward left no gradient for {key!r}; set "
                f"self.grads[{key!r}]"
            )
        if g is not None and not isinstance(g, Tensor):
            raise DTypeError(
                f"{layer._title}: expected grads[{key!r}] to be a tensor, got "
                f"{type(g).__name__}"
            )
        if g is not None and g.shape != p.shape:
            raise ShapeError(
                f"{layer._title}: expected grads[{key!r}] of its parameter's shape "
                f"{p.shape}, got {g.shape}"
            )
