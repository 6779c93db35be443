"""A net's structure as data, whatever the syntax of its text."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from weft.errors import ArgumentError, DTypeError
from weft.layers.layer import Layer
from weft.layers.registry import Entry, entry, entry_of
from weft.layers.wiring import Place


@dataclass(frozen=True)
class LayerSpec:
    """One layer; ``where`` says where it was read, for errors."""

    name: str
    type: str
    bottom: tuple[str, ...]
    top: tuple[str, ...]
    phase: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class NetSpec:
    """A net: its inputs with their shapes (or None), and its layers."""

    inputs: dict[str, Any]
    layers: tuple[LayerSpec, ...]
    name: str = ""
    force_backward: bool = False

    def build(self, cls: Any) -> Any:
        """The net, of a class of nets."""
        return cls(
            [_place(spec) for spec in self.layers], inputs=self.inputs, name=self.name,
            force_backward=self.force_backward,
        )  # fmt: skip


def _place(spec: LayerSpec) -> Place:
    found = entry(spec.type, spec.where)
    _check_options(spec, found)
    layer = found.cls(**spec.options)
    layer.name = spec.name
    return Place(layer, spec.bottom, spec.top, spec.phase)


def _check_options(spec: LayerSpec, found: Entry) -> None:
    """The constructor's arguments, by name."""
    who = f"{spec.where}layer {spec.name!r} ({spec.type})"
    known = dict(inspect.signature(found.cls.__init__).parameters)
    known = {k: p for k, p in known.items() if k not in ("self", "name")}
    free = any(p.kind is p.VAR_KEYWORD for p in known.values())
    for key in spec.options:
        if key not in known and not free:
            takes = ", ".join(known) or "no options"
            raise ArgumentError(f"{who}: unknown option {key!r}; it takes {takes}")
    for key, p in known.items():
        variadic = p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if p.default is p.empty and not variadic and key not in spec.options:
            raise ArgumentError(f"{who}: missing option {key!r}")


def check_text(who: str, text: object) -> None:
    """Refuse a description that is not a string (read a file first)."""
    if not isinstance(text, str):
        raise DTypeError(
            f"{who}: expected the text as a string, got {type(text).__name__}"
        )


def describe(net: Any) -> NetSpec:
    """A net's structure, from which an equal one can be built.

    >>> from weft.layers.description import describe
    >>> net = weft.layers.Net([weft.layers.Dense(3, 2)])
    >>> describe(net).layers[0].options
    {'num_in': 3, 'num_out': 2}
    """
    return NetSpec(
        dict(net.inputs), tuple(_spec(place) for place in net.places), net.name,
        net.force_backward,
    )  # fmt: skip


def _spec(place: Place) -> LayerSpec:
    layer = place.layer
    options = {
        key: _plain(layer, key, value)
        for key, value in layer._made_with.items()
        if value is not None
    }
    return LayerSpec(
        str(layer.name), entry_of(layer).name, place.bottom, place.top, place.phase,
        options,
    )  # fmt: skip


def _plain(layer: Layer, key: str, value: Any) -> Any:
    """An option's value, if a text can state it."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(layer, key, v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(layer, key, v) for k, v in value.items()}
    raise ArgumentError(
        f"{layer._title}: its option {key!r} is a {type(value).__name__}, which a "
        "description cannot state; use a number, a string or a table of these"
    )
