"""Nets as TOML: ``[[input]]`` and ``[[layer]]`` tables with their options."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from weft.errors import ArgumentError, FileFormatError
from weft.layers.description import LayerSpec, NetSpec, check_text

_OWN = ("name", "type", "bottom", "top", "phase")


def read(text: str) -> NetSpec:
    """The net that a TOML text describes."""
    check_text("from_toml", text)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"toml: {error}") from None
    except RecursionError:
        raise FileFormatError("toml: values are nested too deep") from None
    _check_keys("toml: ", table, ("name", "force_backward", "input", "layer"))
    return NetSpec(
        dict(_input(i, t) for i, t in enumerate(_tables(table, "input"), 1)),
        tuple(_layer(i, t) for i, t in enumerate(_tables(table, "layer"), 1)),
        _kind("toml: name", table.get("name", ""), str),
        _kind("toml: force_backward", table.get("force_backward", False), bool),
    )


def _tables(table: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(t, dict) for t in found):
        raise FileFormatError(f"toml: expected {key!r} as [[{key}]] tables")
    return found


def _input(number: int, table: dict[str, Any]) -> tuple[str, Any]:
    who = f"toml: input {number}"
    _check_keys(f"{who}: ", table, ("name", "shape"))
    shape = table.get("shape")
    if shape is not None:
        shape = tuple(_kind(f"{who}: shape", n, int) for n in _list(who, shape))
    return _kind(f"{who}: name", table.get("name"), str), shape


def _layer(number: int, table: dict[str, Any]) -> LayerSpec:
    who = f"toml: layer {number}"
    name = _kind(f"{who}: name", table.get("name"), str)
    who = f"toml: layer {number} ({name!r})"
    options = {k: v for k, v in table.items() if k not in _OWN}
    return LayerSpec(
        name,
        _kind(f"{who}: type", table.get("type"), str),
        _names(f"{who}: bottom", table.get("bottom", [])),
        _names(f"{who}: top", table.get("top", [name])),
        table.get("phase"),
        options,
        f"{who}: ",
    )


def _names(who: str, value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else _list(who, value)
    return tuple(_kind(who, v, str) for v in listed)


def _list(who: str, value: Any) -> list[Any]:
    return _kind(who, value, list)


def _kind(who: str, value: Any, kind: type) -> Any:
    if type(value) is not kind:
        got = "nothing" if value is None else repr(value)
        raise FileFormatError(f"{who}: expected {kind.__name__}, got {got}")
    return value


def _check_keys(who: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise FileFormatError(
                f"{who}unknown key {key!r}; expected {', '.join(known)}"
            )


# -- writing


def write(spec: NetSpec) -> str:
    """A net's description as TOML."""
    head: dict[str, Any] = {}
    if spec.name:
        head["name"] = spec.name
    if spec.force_backward:
        head["force_backward"] = True
    blocks = [_lines(head)] if head else []
    for name, shape in spec.inputs.items():
        given = {} if shape is None else {"shape": list(shape)}
        blocks.append("[[input]]\n" + _lines({"name": name, **given}))
    blocks += ["[[layer]]\n" + _lines(_table(layer)) for layer in spec.layers]
    return "\n".join(blocks)


def _table(layer: LayerSpec) -> dict[str, Any]:
    clash = [key for key in layer.options if key in _OWN]
    if clash:
        raise ArgumentError(
            f"layer {layer.name!r}: an option named {clash[0]!r} cannot be told from "
            "the layer's own in TOML"
        )
    table: dict[str, Any] = {"name": layer.name, "type": layer.type}
    table |= {"bottom": list(layer.bottom), "top": list(layer.top)}
    if layer.phase:
        table["phase"] = layer.phase
    return table | layer.options


def _lines(table: dict[str, Any]) -> str:
    return "".join(f"{_key(k)} = {_value(v)}\n" for k, v in table.items())


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
        return f"{{ {inner} }}"
    return repr(value)
