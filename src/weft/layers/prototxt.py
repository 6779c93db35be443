"""Nets as text in Caffe's style: protobuf's text format, read without a schema.

    message ::= field*
    field   ::= name ':' value | name ':'? '{' message '}'
    value   ::= string+ | number | word | '[' (value ','?)* ']'

Fields may end with a comma or a semicolon. One that comes more than once is a list.
Words are ``true``, ``false`` and names of choices such as ``MAX``. ``#`` starts a
comment.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from weft.errors import FileFormatError
from weft.layers.description import LayerSpec, NetSpec, check_text
from weft.layers.registry import entry

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])|-inf\b)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<mark>[{}:\[\],;])""",
    re.VERBOSE,
)
_DEPTH = 50  # no net nests its blocks this deep
_WORDS: dict[str, Any] = {
    "true": True, "false": False, "inf": float("inf"), "nan": float("nan"),
}  # fmt: skip


class Token(NamedTuple):
    """A piece of the text and where it starts."""

    kind: str
    text: str
    line: int
    column: int


class Field(NamedTuple):
    """A name and its value: plain, a list of these, or a block (list of fields)."""

    name: str
    value: Any
    token: Token

    @property
    def is_block(self) -> bool:
        return isinstance(self.value, Block)


class Block(list[Field]):
    """The fields between two braces."""


def _bad(token: Token, reason: str) -> FileFormatError:
    return FileFormatError(
        f"prototxt: line {token.line}, column {token.column}: {reason}"
    )


def tokens(text: str) -> list[Token]:
    """The text's pieces, with one at the end that stands for it."""
    out, position, line, start = [], 0, 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        at = Token("", text[position : position + 1], line, position - start + 1)
        if match is None:
            raise _bad(at, f"unexpected character {at.text!r}")
        kind = str(match.lastgroup)
        if kind != "space":
            out.append(Token(kind, match.group(), line, at.column))
        newlines = match.group().count("\n")
        if newlines:
            line += newlines
            start = position + match.group().rindex("\n") + 1
        position = match.end()
    return [*out, Token("end", "the end of the text", line, len(text) - start + 1)]


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.position = 0
        self.depth = 0

    def next(self) -> Token:
        token = self.tokens[self.position]
        self.position += token.kind != "end"
        return token

    def take(self, mark: str) -> Token | None:
        """The next token, if it is this one."""
        return self.next() if self.tokens[self.position].text == mark else None

    def message(self, opened: Token | None) -> Block:
        """The fields up to the brace that closes this block, or the end."""
        self.depth += 1
        if self.depth > _DEPTH:
            raise _bad(self.next(), f"blocks are nested more than {_DEPTH} deep")
        fields = self.fields(opened)
        self.depth -= 1
        return fields

    def fields(self, opened: Token | None) -> Block:
        fields = Block()
        while True:
            token = self.next()
            if token.text == "}" and token.kind == "mark" and opened is not None:
                return fields
            if token.kind == "end" and opened is None:
                return fields
            if token.kind == "end":
                raise _bad(token, f"the brace of line {opened.line} is not closed")  # type: ignore[union-attr]
            if token.kind == "mark" and token.text in ",;":
                continue
            if token.kind != "word":
                raise _bad(token, f"expected a field's name, got {token.text!r}")
            fields.append(Field(token.text, self.value(token), token))

    def value(self, name: Token) -> Any:
        colon = self.take(":")
        brace = self.take("{")
        if brace is not None:
            return self.message(brace)
        if colon is None:
            token = self.next()
            raise _bad(
                token, f"expected ':' or '{{' after {name.text!r}, got {token.text!r}"
            )
        if self.take("["):
            return self.listed()
        return self.plain()

    def listed(self) -> list[Any]:
        out = []
        while not self.take("]"):
            brace = self.take("{")
            out.append(self.plain() if brace is None else self.message(brace))
            self.take(",")
        return out

    def plain(self) -> Any:
        token = self.next()
        if token.kind == "string":
            return _unquoted(token) + self._more_strings()
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "word":
            return _WORDS.get(token.text, token.text)
        raise _bad(token, f"expected a value, got {token.text!r}")

    def _more_strings(self) -> str:
        """Strings side by side are one."""
        out = ""
        while self.tokens[self.position].kind == "string":
            out += _unquoted(self.next())
        return out


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def _unquoted(token: Token) -> str:
    inner = token.text[1:-1]
    if token.text[0] == "'":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    try:
        return json.loads(f'"{inner}"', strict=False)
    except json.JSONDecodeError:
        raise _bad(token, f"expected a string, got {token.text}") from None


def _plain(value: Any) -> Any:
    """A block as a dictionary, its repeated fields as lists."""
    if isinstance(value, list) and not isinstance(value, Block):
        return [_plain(v) for v in value]
    if not isinstance(value, Block):
        return value
    out: dict[str, Any] = {}
    repeated: set[str] = set()
    for name, given, _ in value:
        if name not in out:
            out[name] = _plain(given)
            continue
        if name not in repeated:
            out[name] = [out[name]]
            repeated.add(name)
        out[name].append(_plain(given))
    return out


# -- a net's fields


def read(text: str) -> NetSpec:
    """The net that a text describes."""
    check_text("from_prototxt", text)
    inputs: dict[str, Any] = {}
    layers: list[LayerSpec] = []
    name, force = "", False
    dims: list[int] = []
    shapes: list[tuple[int, ...]] = []
    for f in _Parser(text).message(None):
        if f.name == "name":
            name = _of_kind(f, str)
        elif f.name == "force_backward":
            force = _of_kind(f, bool)
        elif f.name == "input":
            inputs[_of_kind(f, str)] = None
        elif f.name == "input_dim":
            dims.append(_of_kind(f, int))
        elif f.name in ("input_shape", "shape"):
            shapes.append(_shape(f))
        elif f.name == "layer" and f.is_block:
            _add_layer(f, inputs, layers)
        else:
            raise _bad(f.token, _unknown(f.name, _NET_FIELDS))
    shapes += [tuple(dims[i : i + 4]) for i in range(0, len(dims), 4)]
    bare = [key for key, shape in inputs.items() if shape is None]
    inputs.update(zip(bare, shapes, strict=False))
    return NetSpec(inputs, tuple(layers), name, force)


_NET_FIELDS = "name, force_backward, input, input_shape, input_dim, layer"
_LAYER_FIELDS = "name, type, bottom, top, phase, include, loss_weight"


def _unknown(name: str, known: str) -> str:
    return f"unknown field {name!r}; expected {known}"


def _of_kind(f: Field, kind: type) -> Any:
    if type(f.value) is not kind:
        raise _bad(
            f.token, f"expected {f.name} to be a {kind.__name__}, got {f.value!r}"
        )
    return f.value


def _shape(f: Field) -> tuple[int, ...]:
    found = _plain(f.value)
    dims = found.get("dim", []) if isinstance(found, dict) else None
    dims = [dims] if isinstance(dims, int) else dims
    if not isinstance(dims, list) or any(type(n) is not int for n in dims):
        raise _bad(f.token, f"expected {f.name} {{ dim: ... }} of whole numbers")
    return tuple(dims)


def _add_layer(f: Field, inputs: dict[str, Any], layers: list[LayerSpec]) -> None:
    spec = _layer(f)
    if spec.type != "Input":
        layers.append(spec)
        return
    blocks = [g for g in f.value if g.name == "input_param" and g.is_block]
    shapes = [_shape(g) for b in blocks for g in b.value if g.name == "shape"]
    for i, top in enumerate(spec.top):
        inputs[top] = shapes[min(i, len(shapes) - 1)] if shapes else None


def _layer(f: Field) -> LayerSpec:
    fields: dict[str, Any] = {"bottom": [], "top": [], "phase": None}
    blocks: dict[str, Field] = {}
    options: dict[str, Any] = {}
    for g in f.value:
        if g.name in ("name", "type"):
            fields[g.name] = _of_kind(g, str)
        elif g.name in ("bottom", "top"):
            many = g.value if type(g.value) is list else [_of_kind(g, str)]
            fields[g.name] += many
        elif g.name == "phase":
            fields["phase"] = _of_kind(g, str)
        elif g.name == "include" and g.is_block:
            fields["phase"] = _plain(g.value).get("phase")
        elif g.name == "loss_weight":
            options["loss_weight"] = g.value
        elif g.name.endswith("_param") and g.is_block:
            blocks[g.name] = g
        else:
            raise _bad(g.token, _unknown(g.name, f"{_LAYER_FIELDS}, ..._param"))
    for key in ("name", "type"):
        if key not in fields:
            raise _bad(f.token, f"expected this layer to have a {key}")
    options |= _options(f, fields["type"], blocks)
    position = f"prototxt: line {f.token.line}, column {f.token.column}: "
    top = tuple(fields["top"]) or (fields["name"],)
    return LayerSpec(
        fields["name"], fields["type"], tuple(fields["bottom"]), top, fields["phase"],
        options, position,
    )  # fmt: skip


def _options(f: Field, kind: str, blocks: dict[str, Field]) -> dict[str, Any]:
    """The fields of the type's own block."""
    if kind == "Input":
        return {}
    position = f"prototxt: line {f.token.line}, column {f.token.column}: "
    own = entry(kind, position).block
    for name, block in blocks.items():
        if name != own:
            raise _bad(block.token, f"a {kind} layer has no {name}, but a {own}")
    return _plain(blocks[own].value) if own in blocks else {}


# -- writing


def write(spec: NetSpec) -> str:
    """A net's description as text."""
    lines = [f"name: {_text(spec.name)}"] if spec.name else []
    if spec.force_backward:
        lines.append("force_backward: true")
    for name, shape in spec.inputs.items():
        if shape is None:
            lines.append(f"input: {_text(name)}")
        else:
            block = {"shape": {"dim": list(shape)}}
            fields = {"name": name, "type": "Input", "top": name, "input_param": block}
            lines += _block("layer", fields, "")
    for layer in spec.layers:
        lines += _block("layer", _fields(layer), "")
    return "\n".join([*lines, ""])


def _fields(layer: LayerSpec) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": layer.name, "type": layer.type}
    fields |= {"bottom": _Repeated(layer.bottom), "top": _Repeated(layer.top)}
    if layer.phase:
        fields["include"] = {"phase": layer.phase}
    if layer.options:
        fields[entry(layer.type).block] = layer.options
    return fields


class _Repeated(tuple[str, ...]):
    """Values written as one field each."""


def _block(name: str, fields: dict[str, Any], indent: str) -> list[str]:
    lines = [f"{indent}{name} {{"]
    for key, value in fields.items():
        inner = indent + "  "
        if isinstance(value, dict):
            lines += _block(key, value, inner)
        elif isinstance(value, _Repeated):
            lines += [f"{inner}{key}: {_text(v)}" for v in value]
        else:
            lines.append(f"{inner}{key}: {_text(value)}")
    return [*lines, f"{indent}}}"]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        choice = value.isupper() and re.fullmatch(r"[A-Z_][A-Z0-9_]*", value)
        return value if choice else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return f"{{ {' '.join(f'{k}: {_text(v)}' for k, v in value.items())} }}"
    return repr(value)
