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

import inspect
from collections.abc import Mapping
from typing import Any

from weft import as_tensor
from weft.core.mode import mode
from weft.layers.faces import (
    Derived,
    backward_face,
    forward_face,
    prepare,
    pull_face,
    written,
)
from weft.layers.forms import TensorForward
from weft.nn.module import Module
from weft.nn.parameter import Parameter


class Params(dict[str, Any]):
    """A layer's parameters by name; values put in become ``nn.Parameter``s."""

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(given or {})

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, _as_parameter(value))

    def update(self, given: Any) -> None:  # type: ignore[override]
        """Put several values in."""
        for key, value in dict(given).items():
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
    tensor([2., 2.])
    >>> layer.backward(weft.ones(2))
    tensor([2., 2.])
    """

    num_tops = 1  # outputs of a layer written in Caffe's form
    _keeps = True
    _tape: Any = None  # of the last forward, if the backward is derived
    hand_written = False  # does the class write its backward?
    name: str | None
    grads: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Start complete, so that a subclass need not call ``super().__init__``."""
        layer = super().__new__(cls)
        Module.__init__(layer)
        layer.__dict__.update(
            _parameters=Params(), grads={}, name=None, _seen=None, _prepared=False,
            _made_with=_options(cls, args, kwargs),
        )  # fmt: skip
        if mode.capture is not None:
            layer.__dict__["_made_inside"] = True
        return layer

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the methods callable in both forms."""
        super().__init_subclass__(**options)
        if "forward" in vars(cls):
            cls.forward = forward_face(vars(cls)["forward"])  # type: ignore[method-assign]
        if "backward" in vars(cls):
            cls.backward = backward_face(vars(cls)["backward"])  # type: ignore[method-assign]
        cls.hand_written = cls.backward is not Layer.backward

    # -- methods of a subclass

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
            written(self), TensorForward
        ):
            raise NotImplementedError(
                f"{type(self).__name__} has no backward; write backward(self, grad)"
            )
        return pull_face(self, Derived(), args, options.get("propagate_down"))

    def setup(self, *inputs: Any) -> None:
        """Called once before the first forward, with its arguments.

        Parameters whose shape the inputs decide are made here.
        """

    def reshape(self, bottom: Any, top: Any) -> None:
        """Allocate the top blobs before each forward (Caffe's form)."""
        for blob in top:
            blob.reshape(*bottom[0].shape, dtype=bottom[0].data.dtype)

    # -- parameters

    @property
    def params(self) -> Params:
        """The parameters by name."""
        return self.__dict__["_parameters"]

    @params.setter
    def params(self, given: Mapping[str, Any] | None) -> None:
        self.__dict__["_parameters"] = Params(given)

    def all_params(self) -> dict[str, Any]:
        """The parameters, with those of layers and modules inside this one by path.

        >>> list(weft.layers.Dense(2, 1).all_params())
        ['w', 'b']
        """
        inside = {
            f"{name}.{key}": p
            for name, child in self.named_children()
            for key, p in _params_of(child).items()
        }
        return {**self.params, **inside} if inside else self.params

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
        return HandWritten.apply(self, needs, *tensors, *self.all_params().values())

    # -- text

    @property
    def _title(self) -> str:
        """The name of this layer in errors."""
        kind = type(self).__name__
        return f"layer {self.name!r} ({kind})" if self.name else kind

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self._made_with.items())


def _params_of(module: Module) -> dict[str, Any]:
    if isinstance(module, Layer):
        return module.all_params()
    return dict(module.named_parameters())


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
