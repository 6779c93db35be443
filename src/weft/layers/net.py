"""``Net``: layers in order, or wired by the names of what they read and make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import weft
from weft import as_tensor, no_grad
from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from weft.layers.blob import Blob
from weft.layers.faces import drop_loaded, entered, take_loaded
from weft.layers.forms import padded, tensors_of
from weft.layers.layer import Layer
from weft.layers.loss import Loss
from weft.layers.wiring import PHASES, Place, Wiring, wire
from weft.nn.containers import _Holder
from weft.nn.module import Module

Inputs = Mapping[str, Any] | Sequence[str]


class Net(_Holder):
    """Layers run in order forward, and in exactly the reverse order backward.

    ``layers`` follow one another, or are ``Place``s that say what each reads and makes.
    ``inputs`` names what the net is given, with shapes where they are known: then
    parameters that wait for a shape are made at once. ``force_backward`` asks for the
    inputs' gradients too, which ``input_grads`` then holds.

    >>> net = weft.layers.Net([weft.layers.Dense(3, 4), weft.layers.ReLU()])
    >>> net.forward(weft.zeros(2, 3)).shape
    (2, 4)
    >>> [sorted(grads) for grads in net.backward(weft.ones(2, 4))]
    [['b', 'w'], []]
    """

    _keeps = True

    def __init__(
        self, layers: Iterable[Layer | Place], *, inputs: Inputs = ("data",),
        force_backward: bool = False, name: str = "",
    ) -> None:  # fmt: skip
        super().__init__()
        if mode.capture is not None:
            self.__dict__["_made_inside"] = True
        shapes = inputs if isinstance(inputs, Mapping) else dict.fromkeys(inputs)
        self.inputs: dict[str, Any] = {
            k: None if s is None else tuple(s) for k, s in shapes.items()
        }
        self.name, self.force_backward = name, force_backward
        self.input_grads: dict[str, Any] = {}
        places = _placed(list(layers), self.inputs)
        self.__dict__["_modules"] = {str(p.layer.name): p.layer for p in places}
        self.places = [Place(p.layer, *p[1:]) for p in places]
        self._wirings = {p: wire(self.places, self.inputs, p) for p in PHASES}
        self._values: list[Any] | None = None
        self._phase_ran = self.phase  # of the steps that made the values
        self._grads: dict[int, Any] = {}
        self._build()

    def _own(self) -> Iterator[tuple[str, Any]]:
        yield from self._modules.items()  # the positions hold the same layers

    def _kind_of(self, name: str, value: Any) -> str | None:
        if isinstance(value, Module):
            self._register("_modules", "Net", name, value)
        return super()._kind_of(name, value)

    def _register(self, kind: str, caller: str, name: str, value: Any) -> None:
        if kind == "_modules":
            raise ArgumentError(
                f"{caller}: a net runs the layers that it was made of, in their "
                f"wiring, and would never run {name!r}; make a new Net with it"
            )
        super()._register(kind, caller, name, value)

    @property
    def layers(self) -> list[Layer]:
        """The layers in their listed order."""
        return list(self._modules.values())

    def __getitem__(self, key: str | int) -> Layer:
        """A layer by its name or number."""
        if isinstance(key, int):
            return self.layers[key]
        if key not in self._modules:
            known = ", ".join(self._modules)
            raise ArgumentError(f"Net: no layer is named {key!r}; there are {known}")
        return self._modules[key]

    def __bool__(self) -> bool:
        return True

    @property
    def phase(self) -> str:
        """``TRAIN`` or ``TEST``, as set by ``train()`` and ``eval()``."""
        return PHASES[0] if self.training else PHASES[1]

    @property
    def wiring(self) -> Wiring:
        """The present phase's steps."""
        return self._wirings[self.phase]

    @property
    def _ran(self) -> Wiring:
        """The steps of the last forward."""
        return self._wirings[self._phase_ran]

    def _build(self) -> None:
        """Make parameters that wait for a shape, where all inputs' are known."""
        for wiring in self._wirings.values():
            if all(self.inputs[name] is not None for name in wiring.inputs):
                zeros = {n: weft.zeros(self.inputs[n]) for n in wiring.inputs}
                self._rehearse(wiring, zeros)

    def _rehearse(self, wiring: Wiring, given: dict[str, Tensor]) -> None:
        self.eval()
        try:
            with no_grad(), entered(self):
                self._run(wiring, given, _forward)
        finally:
            self.train()
        for layer in self.layers:
            layer._seen = None  # no forward of the user's has run

    # -- running

    def forward(self, *args: Any, **named: Any) -> Any:
        """Run the layers; inputs come in order or by name.

        The output is a tensor, or tensors by name if there are several.
        """
        wiring, given = self.wiring, self._given(args, named)
        with no_grad(), entered(self):
            self._values = self._run(wiring, given, _forward)
        self._phase_ran = self.phase
        self._grads = {}
        return self._results(wiring, self._values)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run as a part of a tensor program, each layer one operator of the tape."""
        given = self._given(args, named)
        with entered(self):
            values = self._run(self.wiring, given, _call)
        return self._results(self.wiring, values)

    def _given(self, args: Any, named: Mapping[str, Any]) -> dict[str, Tensor]:
        if len(args) > len(self.inputs):
            raise ArgumentError(
                f"Net: expected at most {len(self.inputs)} inputs "
                f"({', '.join(self.inputs)}), got {len(args)}"
            )
        given = {**dict(zip(self.inputs, args, strict=False)), **named}
        missing = [name for name in self.wiring.inputs if name not in given]
        unknown = [name for name in given if name not in self.inputs]
        if missing or unknown:
            what = f"missing {missing[0]!r}" if missing else f"unknown {unknown[0]!r}"
            raise ArgumentError(
                f"Net: {what}; in phase {self.phase} the inputs are "
                f"{', '.join(self.wiring.inputs)}"
            )
        return {name: as_tensor(value) for name, value in given.items()}

    def _run(
        self, wiring: Wiring, given: Mapping[str, Tensor], call: Callable[..., Any]
    ) -> list[Any]:
        values: list[Any] = [None] * wiring.size
        for name, slot in wiring.inputs.items():
            values[slot] = given[name]
        for layer, ins, outs in wiring.steps:
            made = tensors_of(call(layer, [values[i] for i in ins]))
            if len(made) != len(outs):
                raise ShapeError(
                    f"{layer._title}: gave {len(made)} outputs for {len(outs)} tops"
                )
            for slot, value in zip(outs, made, strict=True):
                values[slot] = value
        return values

    def _results(self, wiring: Wiring, values: list[Any]) -> Any:
        found = {name: values[slot] for name, slot in wiring.outputs.items()}
        return next(iter(found.values())) if len(found) == 1 else found

    def backward(self, grad: Any = None, **named: Any) -> list[dict[str, Tensor]]:
        """Run the layers backward from the outputs' gradients.

        Losses start from 1 and need none. Returns the parameters' gradients in the
        layers' order.
        """
        if self._values is None:
            raise AutogradError(
                "Net: backward was called before forward; call forward first"
            )
        wiring = self._ran
        grads = self._seeds(wiring, grad, named)
        for layer in self.layers:
            layer.grads = {}
        with no_grad(), entered(self):
            for step in reversed(wiring.steps):
                if any(slot in grads for slot in step.outs):
                    self._pull(step, grads)
        self._grads = grads
        self.input_grads = {
            name: grads[slot] for name, slot in wiring.inputs.items() if slot in grads
        }
        return [layer.grads for layer in self.layers]

    def _seeds(self, wiring: Wiring, grad: Any, named: Any) -> dict[int, Any]:
        """The gradients of outputs, from the caller or from the losses."""
        given = dict(named)
        if grad is not None:
            if len(wiring.outputs) != 1:
                raise ArgumentError(
                    "Net: give gradients by name; the outputs are "
                    f"{', '.join(wiring.outputs)}"
                )
            given[next(iter(wiring.outputs))] = grad
        for name in given:
            if name not in wiring.outputs:
                raise ArgumentError(
                    f"Net: {name!r} is no output; they are {', '.join(wiring.outputs)}"
                )
        given = given or dict.fromkeys(self.loss_names(), 1.0)
        if not given:
            raise ArgumentError(
                "Net: no layer is a loss, so backward needs the gradient of "
                f"{', '.join(wiring.outputs)}"
            )
        return {
            wiring.outputs[name]: self._like_output(wiring.outputs[name], name, g)
            for name, g in given.items()
        }

    def loss_names(self) -> list[str]:
        """The outputs of the last forward that are losses."""
        losses = {
            slot
            for layer, _, outs in self._ran.steps
            if isinstance(layer, Loss)
            for slot in outs
        }
        return [name for name, slot in self._ran.outputs.items() if slot in losses]

    def _like_output(self, slot: int, name: str, grad: Any) -> Tensor:
        value = self._values[slot]  # type: ignore[index]
        g = as_tensor(grad).detach().to(value.dtype)
        if g.shape != value.shape:
            raise ShapeError(
                f"Net: expected a gradient for {name!r} of its shape {value.shape}, "
                f"got {g.shape}"
            )
        return g

    def _pull(self, step: Any, grads: dict[int, Any]) -> None:
        values: Any = self._values
        last = len(self.inputs)  # the inputs are the first values
        needs = tuple(self.force_backward or slot >= last for slot in step.ins)
        above = [
            grads[s] if s in grads else weft.zeros_like(values[s]) for s in step.outs
        ]
        found = tensors_of(step.layer.backward(*above, propagate_down=needs))
        for slot, g in zip(step.ins, padded(step.layer, found, needs), strict=True):
            if g is not None:
                grads[slot] = grads[slot] + g if slot in grads else g

    @property
    def blobs(self) -> dict[str, Blob]:
        """The last run's values by name, with their gradients."""
        out = {}
        for name, slot in self._ran.names.items():
            if self._values is not None and self._values[slot] is not None:
                out[name] = blob = Blob(self._values[slot])
                if slot in self._grads:
                    blob.diff = self._grads[slot]
        return out

    # -- parameters

    def get_parameters(self) -> list[dict[str, Any]]:
        """Each layer's parameters by name, in the layers' order."""
        return [layer.all_params() for layer in self.layers]

    def get_params_and_grads(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Each layer's parameters and gradients."""
        for layer in self.layers:
            yield layer.all_params(), layer.grads

    def set_parameters(self, params: Sequence[Mapping[str, Any]]) -> None:
        """Copy values in, given as ``get_parameters`` gives them."""
        count = len(params) if isinstance(params, Sequence) else type(params).__name__
        if count != len(self.layers):
            raise ArgumentError(
                f"set_parameters: expected a dictionary for each of {len(self.layers)} "
                f"layers, got {count}"
            )
        for layer, given in zip(self.layers, params, strict=True):
            _check_fit(layer, given)
        with no_grad():
            for mine, given in zip(self.get_parameters(), params, strict=True):
                for key, value in given.items():
                    mine[key].copy_(as_tensor(value).detach())

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Take over saved values by path.

        Layers whose parameters wait for an input take the shapes that are given here;
        their first forward checks them.
        """
        waiting = dict(self._waiting(state_dict))
        for layer, values in waiting.items():
            take_loaded(layer, values)
        try:
            return super().load_state_dict(state_dict, strict, assign)
        except BaseException:
            for layer in waiting:
                drop_loaded(layer)
            raise

    def _waiting(self, state_dict: Mapping[str, Any]) -> Iterator[tuple[Layer, Any]]:
        """Layers that have seen no input, with saved values that they lack."""
        for path, layer in self.named_modules():
            if not isinstance(layer, Layer) or layer._prepared:
                continue
            have = {
                *layer.params,
                *(k for k, v in layer._buffers.items() if v is not None),
            }
            named = [(k.rpartition("."), v) for k, v in state_dict.items()]
            values = {
                key: value
                for (lead, _, key), value in named
                if lead == path and key not in have
            }
            if values:
                yield layer, values

    # -- descriptions

    @classmethod
    def from_toml(cls, text: str) -> Net:
        """Read a net from TOML.

        >>> net = weft.layers.Net.from_toml('''
        ... [[input]]
        ... name = "data"
        ... shape = [1, 3]
        ... [[layer]]
        ... name = "ip"
        ... type = "InnerProduct"
        ... bottom = ["data"]
        ... num_output = 2
        ... ''')
        >>> net["ip"].params["w"].shape
        (3, 2)
        """
        from weft.layers import toml_text

        return toml_text.read(text).build(cls)

    @classmethod
    def from_prototxt(cls, text: str) -> Net:
        """Read a net from a text in Caffe's style.

        >>> net = weft.layers.Net.from_prototxt('''
        ... input: "data"
        ... layer { name: "relu" type: "ReLU" bottom: "data" top: "out" }
        ... ''')
        >>> net.forward(weft.tensor([-1.0, 1.0]))
        tensor([0., 1.])
        """
        from weft.layers import prototxt

        return prototxt.read(text).build(cls)

    def to_toml(self) -> str:
        """The net's structure as TOML, which ``from_toml`` reads.

        >>> print(weft.layers.Net([weft.layers.ReLU(name="relu")]).to_toml())
        [[input]]
        name = "data"
        <BLANKLINE>
        [[layer]]
        name = "relu"
        type = "ReLU"
        bottom = ["data"]
        top = ["relu"]
        <BLANKLINE>
        """
        from weft.layers import description, toml_text

        return toml_text.write(description.describe(self))

    def to_prototxt(self) -> str:
        """The net's structure in Caffe's style, which ``from_prototxt`` reads.

        >>> print(weft.layers.Net([weft.layers.ReLU(name="relu")]).to_prototxt())
        input: "data"
        layer {
          name: "relu"
          type: "ReLU"
          bottom: "data"
          top: "relu"
        }
        <BLANKLINE>
        """
        from weft.layers import description, prototxt

        return prototxt.write(description.describe(self))


def _forward(layer: Layer, inputs: list[Any]) -> Any:
    return layer.forward(*inputs)


def _call(layer: Layer, inputs: list[Any]) -> Any:
    return layer(*inputs)


def _placed(items: list[Any], inputs: Mapping[str, Any]) -> list[Place]:
    """Places for all layers; a bare layer reads what the one before it made."""
    if not inputs:
        raise ArgumentError("Net: expected at least one input, got none")
    out: list[Place] = []
    last: tuple[str, ...] = (next(iter(inputs)),)
    _name([item.layer if isinstance(item, Place) else item for item in items])
    for item in items:
        if isinstance(item, Layer):
            item = Place(item, last, (str(item.name),))
        if item.phase not in (None, *PHASES):
            raise ArgumentError(
                f"Net: {item.layer._title}: expected phase TRAIN or TEST, got "
                f"{item.phase!r}"
            )
        out.append(Place(item.layer, tuple(item.bottom), tuple(item.top), item.phase))
        last = out[-1].top
    return out


def _name(layers: list[Any]) -> None:
    """Check the layers' names, and give one to those that have none."""
    seen: set[int] = set()
    for layer in layers:
        if not isinstance(layer, Layer):
            raise DTypeError(
                f"Net: expected layers or places, got {type(layer).__name__}"
            )
        if id(layer) in seen:
            raise ArgumentError(
                f"Net: {layer._title} is there twice; what it keeps for its backward "
                "is of one call. Make another, or call it twice in a tensor program"
            )
        seen.add(id(layer))
    taken = Counter(layer.name for layer in layers if layer.name)
    for name, count in taken.items():
        if count > 1:
            raise ArgumentError(f"Net: {count} layers are named {name!r}")
    for layer in layers:
        if not layer.name:
            layer.name = _free(type(layer).__name__.lower(), taken)


def _free(stem: str, taken: Counter[str]) -> str:
    number = 1
    while f"{stem}{number}" in taken:
        number += 1
    taken[f"{stem}{number}"] += 1
    return f"{stem}{number}"


def _check_fit(layer: Layer, given: Mapping[str, Any]) -> None:
    params = layer.all_params()
    missing = [key for key in params if key not in given]
    extra = [key for key in given if key not in params]
    if missing or extra:
        raise ArgumentError(
            f"set_parameters: {layer._title}: missing {missing or 'nothing'}, "
            f"unexpected {extra or 'nothing'}"
        )
    for key, p in params.items():
        shape = tuple(as_tensor(given[key]).shape)
        if shape != p.shape:
            raise ShapeError(
                f"set_parameters: {layer._title}: expected {key!r} of shape {p.shape}, "
                f"got {shape}"
            )
