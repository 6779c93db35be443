"""Configs of language models, and the ``config.json`` that describes them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import ArgumentError, FileFormatError

LIMIT = 1 << 20  # bytes of a config.json
ROTARY = ("llama", "mistral", "qwen2", "qwen3")
MODELS = ("gpt2", *ROTARY)
_ACTIVATIONS = {
    "swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
}  # fmt: skip
_NAMES = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}


@dataclass(frozen=True)
class Rotation:
    """Rotary positions: the wavelengths, and how they are stretched.

    ``factor`` divides all frequencies. Where ``low`` and ``high`` are given, it
    divides those of fewer than ``low`` turns within ``original`` positions, leaves
    those of more than ``high``, and goes from one to the other between them.
    """

    base: float = 10_000.0
    factor: float = 1.0
    low: float | None = None
    high: float | None = None
    original: int = 0

    def frequencies(self, dim: int) -> list[float]:
        """Radians by which each pair of components turns per position.

        >>> Rotation(base=100.0).frequencies(4)
        [1.0, 0.1]
        """
        return [self._stretched(self.base ** (-2 * k / dim)) for k in range(dim // 2)]

    def _stretched(self, frequency: float) -> float:
        if self.low is None or self.high is None:
            return frequency / self.factor
        turns = self.original * frequency / (2 * math.pi)
        share = (turns - self.low) / (self.high - self.low)
        share = min(1.0, max(0.0, share))
        return frequency * (share + (1 - share) / self.factor)


@dataclass(frozen=True)
class Config:
    """The sizes and kinds of a decoder's parts.

    >>> weft.language.Config(vocab=100, context=64, width=32, layers=2, heads=4).ends
    ()
    """

    vocab: int
    context: int
    width: int
    layers: int
    heads: int
    key_heads: int = 0  # that several heads share; 0: each has its own
    head_dim: int = 0  # 0: the width, divided by the heads
    inner: int = 0  # of the feed-forward part; 0: four times the width
    norm: str = "rms"  # or "layer"
    epsilon: float = 1e-5
    activation: str = "silu"
    gated: bool = True  # activation(gate(x)) * up(x), not activation(up(x))
    rotation: Rotation | None = field(default_factory=Rotation)  # None: learned ones
    query_bias: bool = False  # of queries, keys and values
    output_bias: bool = False  # of attention's results
    inner_bias: bool = False  # of the feed-forward part
    head_norm: bool = False  # queries and keys are normalised, head by head
    tied: bool = True  # the table of tokens serves both ends
    ends: tuple[int, ...] = ()  # tokens that end a text
    kind: str = "llama"  # whose names the file has

    def __post_init__(self) -> None:
        def fill(name: str, value: int) -> None:
            if not getattr(self, name):
                object.__setattr__(self, name, value)

        for name in ("vocab", "context", "width", "layers", "heads"):
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ArgumentError(f"Config: {name} must be positive, got {size!r}")
        fill("key_heads", self.heads)
        fill("head_dim", self.width // self.heads)
        fill("inner", 4 * self.width)
        if self.heads % self.key_heads:
            raise ArgumentError(
                f"Config: {self.heads} heads cannot share {self.key_heads} key heads; "
                "key_heads must divide heads"
            )
        if self.rotation is not None and self.head_dim % 2:
            raise ArgumentError(
                f"Config: rotary positions need heads of an even size, not "
                f"{self.head_dim}"
            )


class _Fields:
    """The entries of a config.json, taken with their types."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def bad(self, text: str) -> FileFormatError:
        return FileFormatError(f"language.load: {self.where}: {text}")

    def size(self, name: str, default: int | None = None) -> int:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.bad(f"{name} must be an integer, got {value!r}")
        if not 0 < value < 1 << 31:
            raise self.bad(f"{name} must be from 1 to 2**31 - 1, got {value}")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        value = self.values.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.bad(f"{name} must be a number, got {value!r}")
        if not 0 < value < math.inf:
            raise self.bad(f"{name} must be positive, got {value}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.bad(f"{name} must be true or false, got {value!r}")
        return value

    def refuse(self, name: str, reason: str) -> None:
        if self.values.get(name):
            raise self.bad(f"{name} = {self.values[name]!r}: {reason}")

    def activation(self, name: str) -> str:
        known, value = _ACTIVATIONS, self.values.get(name)
        if value not in known:
            raise self.bad(f"{name} must be one of {', '.join(known)}, got {value!r}")
        return known[str(value)]

    def ends(self) -> tuple[int, ...]:
        value = self.values.get("eos_token_id")
        found = value if isinstance(value, list) else [value] * (value is not None)
        if not all(isinstance(one, int) and one >= 0 for one in found):
            raise self.bad(f"eos_token_id must be token numbers, got {value!r}")
        return tuple(found)


def read_config(folder: str) -> Config:
    """The config that a folder's ``config.json`` describes."""
    path = os.path.join(folder, "config.json")
    try:
        with open(path, "rb") as file:
            raw = file.read(LIMIT + 1)
    except FileNotFoundError:
        raise FileFormatError(
            f"language.load: {folder!r} has no config.json; expected a folder with "
            "config.json and the weights in safetensors files"
        ) from None
    if len(raw) > LIMIT:
        raise FileFormatError(f"language.load: {path!r} has more than {LIMIT:,} bytes")
    try:
        values = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"language.load: {path!r} is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise FileFormatError(f"language.load: {path!r} must hold an object")
    return config_of(values, path)


def config_of(values: Mapping[str, Any], where: str = "config") -> Config:
    """The config that the entries of a ``config.json`` describe.

    >>> weft.language.config_of({"model_type": "gpt2", "vocab_size": 64, "n_embd": 32,
    ...     "n_layer": 2, "n_head": 4, "n_positions": 128}).inner
    128
    """
    fields = _Fields(values, where)
    kind = values.get("model_type")
    if kind not in MODELS:
        raise fields.bad(f"model_type is {kind!r}; known are {', '.join(MODELS)}")
    try:
        return _gpt2(fields) if kind == "gpt2" else _rotary(fields, str(kind))
    except ArgumentError as error:
        raise fields.bad(str(error).removeprefix("Config: ")) from None


def _gpt2(fields: _Fields) -> Config:
    fields.refuse("scale_attn_by_inverse_layer_idx", "this scaling is not known")
    if not fields.flag("scale_attn_weights", True):
        raise fields.bad("scale_attn_weights = false: products are always scaled")
    fields.values = {"activation_function": "gelu_new", **fields.values}
    width = fields.size("n_embd", 768)
    return Config(
        vocab=fields.size("vocab_size", 50257),
        context=fields.size("n_positions", 1024),
        width=width,
        layers=fields.size("n_layer", 12),
        heads=fields.size("n_head", 12),
        inner=fields.size("n_inner", 4 * width),
        norm="layer",
        epsilon=fields.real("layer_norm_epsilon", 1e-5),
        activation=fields.activation("activation_function"),
        gated=False,
        rotation=None,
        query_bias=True,
        output_bias=True,
        inner_bias=True,
        tied=fields.flag("tie_word_embeddings", True),
        ends=fields.ends(),
        kind="gpt2",
    )


def _rotary(fields: _Fields, kind: str) -> Config:
    if fields.flag("use_sliding_window", kind == "mistral"):
        fields.refuse("sliding_window", "windows of attention are not known")
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    default = kind == "qwen2"
    return Config(
        vocab=fields.size("vocab_size"),
        context=fields.size("max_position_embeddings"),
        width=width,
        layers=fields.size("num_hidden_layers"),
        heads=heads,
        key_heads=fields.size("num_key_value_heads", heads),
        head_dim=fields.size("head_dim", max(1, width // heads)),
        inner=fields.size("intermediate_size"),
        epsilon=fields.real("rms_norm_eps", 1e-6),
        activation=fields.activation("hidden_act"),
        rotation=_rotation(fields),
        query_bias=fields.flag("attention_bias", default),
        output_bias=False if default else fields.flag("attention_bias", False),
        inner_bias=fields.flag("mlp_bias", False),
        head_norm=kind == "qwen3",
        tied=fields.flag("tie_word_embeddings", False),
        ends=fields.ends(),
        kind=kind,
    )


def _rotation(fields: _Fields) -> Rotation:
    given = fields.values.get("rope_parameters") or fields.values.get("rope_scaling")
    inner = _Fields(given or {}, f"{fields.where}: rope_scaling")
    if not isinstance(inner.values, Mapping):
        raise inner.bad(f"must be an object, got {given!r}")
    theta = fields if "rope_theta" in fields.values else inner
    base = theta.real("rope_theta", 10_000.0)
    kind = inner.values.get("rope_type", inner.values.get("type", "default"))
    if kind == "default":
        return Rotation(base)
    if kind == "linear":
        return Rotation(base, inner.real("factor"))
    if kind == "llama3":
        low, high = inner.real("low_freq_factor"), inner.real("high_freq_factor")
        if low >= high:
            raise inner.bad("low_freq_factor must be below high_freq_factor")
        original = inner.size("original_max_position_embeddings")
        return Rotation(base, inner.real("factor"), low, high, original)
    raise inner.bad(f"the type is {kind!r}; known are default, linear and llama3")


# -- the other way


def described(config: Config) -> dict[str, Any]:
    """The entries of a ``config.json`` for a config.

    >>> config = Config(vocab=9, context=8, width=8, layers=1, heads=2)
    >>> config_of(described(config)) == config
    True
    """
    c = config
    wrong = _unlike(c)
    if wrong:
        raise ArgumentError(f"a config.json of type {c.kind!r} cannot say {wrong}")
    ends = {0: None, 1: c.ends[0] if c.ends else None}.get(len(c.ends), list(c.ends))
    both = {
        "model_type": c.kind, "vocab_size": c.vocab, "eos_token_id": ends,
        "tie_word_embeddings": c.tied,
    }  # fmt: skip
    if c.kind == "gpt2":
        return both | {
            "architectures": ["GPT2LMHeadModel"], "n_positions": c.context,
            "n_embd": c.width, "n_layer": c.layers, "n_head": c.heads,
            "n_inner": c.inner, "layer_norm_epsilon": c.epsilon,
            "activation_function": _NAMES[c.activation],
        }  # fmt: skip
    found = both | {
        "architectures": [f"{c.kind.capitalize()}ForCausalLM"],
        "hidden_size": c.width, "intermediate_size": c.inner,
        "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "num_key_value_heads": c.key_heads, "head_dim": c.head_dim,
        "max_position_embeddings": c.context, "rms_norm_eps": c.epsilon,
        "hidden_act": _NAMES[c.activation], "attention_bias": c.query_bias,
        "mlp_bias": c.inner_bias, "sliding_window": None,
    }  # fmt: skip
    assert c.rotation is not None
    return found | _described_rotation(c.rotation)


def _described_rotation(r: Rotation) -> dict[str, Any]:
    found: dict[str, Any] = {"rope_theta": r.base}
    if r.low is not None:
        found["rope_scaling"] = {
            "rope_type": "llama3", "factor": r.factor, "low_freq_factor": r.low,
            "high_freq_factor": r.high, "original_max_position_embeddings": r.original,
        }  # fmt: skip
    elif r.factor != 1:
        found["rope_scaling"] = {"rope_type": "linear", "factor": r.factor}
    return found


def _unlike(c: Config) -> str:
    """What a config has that a ``config.json`` of its kind does not tell."""
    if c.kind not in MODELS:
        return f"that type; known are {', '.join(MODELS)}"
    is_gpt2 = c.kind == "gpt2"
    outputs = c.query_bias and c.kind != "qwen2"
    fixed = {
        "norm": "layer" if is_gpt2 else "rms", "gated": not is_gpt2,
        "query_bias": True if is_gpt2 else c.query_bias, "output_bias": outputs,
        "inner_bias": True if is_gpt2 else c.inner_bias, "head_norm": c.kind == "qwen3",
        "key_heads": c.heads if is_gpt2 else c.key_heads,
        "head_dim": c.width // c.heads if is_gpt2 else c.head_dim,
    }  # fmt: skip
    if (c.rotation is None) != is_gpt2:
        return f"rotation={c.rotation!r}"
    return next(
        (f"{n}={getattr(c, n)!r}" for n, v in fixed.items() if getattr(c, n) != v), ""
    )
