"""``Layer``: a unit that knows its own forward and its own backward.

There is one core, and three ways in:

    layer.forward(x), layer.backward(g)                     tinynn
    layer.forward(bottom, top), layer.backward(top, propagate_down, bottom)   Caffe
    layer(x)                                                a tensor program

The first two run without a tape: the backward is the one written in the class. The
third puts the layer on the tape as one operator whose derivative is that backward. A
layer without a backward, whose forward is made of tensor operations, has it derived.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from weft import as_tensor, no_grad
from weft.autograd import enable_grad, grad
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import AutogradError, DTypeError, ShapeError, module_stack
from weft.layers.forms import (
    Method,
    TensorForward,
    are_blobs,
    backward_form,
    fill,
    forward_form,
    hand_down,
    single,
)
from weft.nn.module import Module
from weft.nn.parameter import Parameter


class Params(dict[str, Any]):
    """A layer's parameters by name; values put in become ``nn.Parameter``s."""

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(given or {})

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, _as_parameter(value))

    def update(self, given: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Put several values in."""
        for key, value in given.items():
            self[key] = value


def _as_parameter(value: Any) -> Any:
    value = as_tensor(value)
    free = value._node is None and value._interpreter is None
    return Parameter(value) if free and not value._parameter else value


class Layer(Module):
    """The base of all layers: write ``forward`` and, usually, ``backward``.

    ``params`` holds its parameters, and ``backward`` leaves their gradients under the
    same names in ``grads``.

    >>> class Double(weft.layers.Layer):
    ...     def forward(self, inputs):
    ...         return 2 * inputs
    ...     def backward(self, grad):
    ...         return 2 * grad
    >>> layer = Double()
    >>> layer.forward(weft.ones(2))
    tensor([2., 2.], shape=(2,), dtype=float32)
    >>> layer.backward(weft.ones(2))
    tensor([2., 2.], shape=(2,), dtype=float32)
    """

    num_tops = 1  # outputs of a layer written in Caffe's form
    hand_written = False  # does the class write its backward?
    name: str | None
    grads: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Start complete, so that a subclass need not call ``super().__init__``."""
        made = super().__new__(cls)
        Module.__init__(made)
        made.__dict__.update(
            _items=Params(), grads={}, name=None, _seen=None, _prepared=False,
            _made_with=_options(cls, args, kwargs),
        )  # fmt: skip
        return made

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the methods callable in both forms."""
        super().__init_subclass__(**options)
        if "forward" in vars(cls):
            cls.forward = _forward_face(vars(cls)["forward"])  # type: ignore[method-assign]
        if "backward" in vars(cls):
            cls.backward = _backward_face(vars(cls)["backward"])  # type: ignore[method-assign]
        cls.hand_written = cls.backward is not Layer.backward

    # -- what a subclass writes

    def forward(self, *args: Any) -> Any:
        """The outputs: ``forward(inputs)``, or ``forward(bottom, top)`` to fill top."""
        raise NotImplementedError(
            f"{type(self).__name__} has no forward; write forward(self, inputs)"
        )

    def backward(self, *args: Any, **options: Any) -> Any:
        """The inputs' gradients from the outputs'; derived unless a class writes it.

        ``propagate_down`` says which inputs want one.
        """
        if type(self).forward is Layer.forward or not isinstance(
            _written(self), TensorForward
        ):
            raise NotImplementedError(
                f"{type(self).__name__} has no backward; write backward(self, grad)"
            )
        return _pull_face(self, _Derived(), args, options.get("propagate_down"))

    def setup(self, *inputs: Any) -> None:
        """Called once before the first forward, with its arguments.

        Parameters whose shape the inputs decide are made here.
        """

    def reshape(self, bottom: Any, top: Any) -> None:
        """Caffe's form: make room in the top blobs before each forward."""
        for blob in top:
            blob.reshape(*bottom[0].shape, dtype=bottom[0].data.dtype)

    # -- parameters

    @property
    def params(self) -> Params:
        """The parameters by name."""
        return self.__dict__["_items"]

    @params.setter
    def params(self, given: Mapping[str, Any] | None) -> None:
        self.__dict__["_items"] = Params(given)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "params":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def _own(self) -> Iterator[tuple[str, Any]]:
        yield from self.params.items()
        for name, value in super()._own():
            if not name.startswith("_items"):
                yield name, value

    # -- tensor programs

    def __call__(self, *inputs: Any) -> Any:
        """Run as a part of a tensor program, on the tape if a gradient is wanted."""
        from weft.layers.taped import HandWritten

        if type(self).forward is Layer.forward:
            return self.forward(*inputs)
        tensors = [as_tensor(x) for x in inputs]
        prepare(self, tensors)
        if not self.hand_written:
            return super().__call__(*tensors)
        needs = tuple(x.requires_grad or x._interpreter is not None for x in tensors)
        return HandWritten.apply(self, needs, *tensors, *all_params(self).values())

    # -- text

    @property
    def _title(self) -> str:
        """What errors call this layer."""
        kind = type(self).__name__
        return f"layer {self.name!r} ({kind})" if self.name else kind

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self._made_with.items())


def _options(cls: type, args: Any, kwargs: Any) -> dict[str, Any]:
    """The constructor's arguments that are not its defaults, for printing."""
    try:
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        given = signature.bind(None, *args, **kwargs).arguments
    except TypeError:
        return {}  # __init__ itself is about to say what is wrong
    known = list(signature.parameters.values())[1:]
    out: dict[str, Any] = {}
    for p in known:
        if p.kind is p.VAR_KEYWORD:
            out.update(given.get(p.name, {}))
        elif p.name != "name" and _differs(given.get(p.name, p.default), p.default):
            out[p.name] = given[p.name]
    return out


def _differs(value: Any, default: Any) -> bool:
    return value is not default and value != default


def all_params(layer: Layer) -> dict[str, Any]:
    """A layer's parameters, with those of layers and modules inside it by path."""
    inside = {
        f"{name}.{key}": p
        for name, child in layer.named_children()
        for key, p in _params_of(child).items()
    }
    return {**layer.params, **inside} if inside else layer.params


def _params_of(module: Module) -> dict[str, Any]:
    if isinstance(module, Layer):
        return all_params(module)
    return dict(module.named_parameters())


# -- the core


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


def _written(layer: Layer) -> Any:
    """The form of this layer's forward."""
    return type(layer).forward.form  # type: ignore[attr-defined]


def prepare(layer: Layer, inputs: Sequence[Tensor]) -> None:
    """Let a layer see its inputs before its first forward."""
    if not layer._prepared:
        with entered(layer), no_grad():
            _written(layer).prepare(layer, inputs)
        layer._prepared = True


def _forward_face(fn: Method) -> Method:
    form = forward_form(fn)

    @functools.wraps(fn)
    def forward(self: Layer, *args: Any) -> Any:
        blobs = len(args) == 2 and are_blobs(args[0]) and are_blobs(args[1])
        if running(self):
            return (
                form.blobs(self, *args) if blobs else single(form.tensors(self, args))
            )
        if taped() and not blobs:
            return self(*args)  # part of something that a tape follows
        inputs = [b.data for b in args[0]] if blobs else [_plain(x) for x in args]
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


def _plain(x: Any) -> Tensor:
    return as_tensor(x).detach()


def _derivable(layer: Layer, form: Any, inputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """Run a forward that has no backward, and keep its tape while training."""
    layer.__dict__["_tape"] = None
    if not layer.training:
        with no_grad():
            return form.tensors(layer, inputs)
    leaves = [x.detach().requires_grad_() if x.dtype.is_inexact else x for x in inputs]
    with enable_grad():
        outs = form.tensors(layer, leaves)
    layer.__dict__["_tape"] = (leaves, outs)
    return tuple(out.detach() for out in outs)


class _Derived:
    """The backward that the tape derives."""

    def tensors(
        self, layer: Any, grads: Sequence[Any], needs: Sequence[bool]
    ) -> tuple[Any, ...]:
        tape = layer.__dict__.get("_tape")
        if tape is None:
            raise AutogradError(
                f"{layer._title}: this layer's backward is derived from its forward, "
                "which must have run in training mode; call train() before forward"
            )
        leaves, outs = tape
        wanted = [
            x for x, n in zip(leaves, needs, strict=True) if n and x.requires_grad
        ]
        learning = {k: p for k, p in all_params(layer).items() if p.requires_grad}
        sources = [*wanted, *learning.values()]
        found = list(grad(outs, sources, list(grads), allow_unused=True))
        found = [
            x.detach() * 0 if g is None else g
            for g, x in zip(found, sources, strict=True)
        ]
        layer.grads.update(zip(learning, found[len(wanted) :], strict=True))
        given = iter(found)
        return tuple(
            next(given) if n and x.requires_grad else None
            for x, n in zip(leaves, needs, strict=True)
        )

    def blobs(self, layer: Any, top: Any, needs: Any, bottom: Any) -> None:
        hand_down(bottom, self.tensors(layer, [t.diff for t in top], needs))


def _backward_face(fn: Method) -> Method:
    form = backward_form(fn)

    @functools.wraps(fn)
    def backward(self: Layer, *args: Any, propagate_down: Any = None) -> Any:
        return _pull_face(self, form, args, propagate_down)

    backward.form = form  # type: ignore[attr-defined]
    return backward


def _pull_face(layer: Layer, form: Any, args: Any, needs: Any) -> Any:
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


def _check_shapes(layer: Layer, what: str, grads: Any, shapes: Any) -> None:
    """Gradients have the shapes of what they belong to; None and no more are free."""
    for g, shape in zip(grads, shapes, strict=False):
        if g is not None and g.shape != shape:
            raise ShapeError(
                f"{layer._title}: expected {what} of {shape}, got {g.shape}"
            )


def _checked_needs(layer: Layer, needs: Any) -> tuple[bool, ...]:
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
    layer: Layer,
    params: Mapping[str, Any] | None = None,
    learning: Sequence[bool] | None = None,
) -> None:
    """Every parameter that learns got a gradient of its shape."""
    params = all_params(layer) if params is None else params
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
