"""The names and layouts of weights in Hugging Face's files, and Weft's.

Llama's family differs by a prefix. GPT-2 keeps the three products of attention as one
matrix, and all matrices transposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import weft
from weft.core.tensor import Tensor
from weft.errors import FileFormatError
from weft.language.config import Config

_GPT2 = {
    "wte": "embed_tokens",
    "wpe": "embed_positions",
    "ln_f": "norm",
    "ln_1": "input_layernorm",
    "ln_2": "post_attention_layernorm",
    "attn.c_attn": "self_attn",
    "attn.c_proj": "self_attn.o_proj",
    "mlp.c_fc": "mlp.up_proj",
    "mlp.c_proj": "mlp.down_proj",
}
_IN_GPT2 = re.compile(r"(?:transformer\.)?(?:h\.(\d+)\.)?(.+)\.(weight|bias)")
# Tables that older files hold beside the weights: masks, and rotary frequencies.
_TABLES = re.compile(r".*\.attn\.(bias|masked_bias)|.*\.rotary_emb\.inv_freq")
HEAD = "lm_head.weight"
_QKV = ("q_proj", "k_proj", "v_proj")


def from_file(tensors: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """A state dict of ``Decoder`` from the tensors of a file."""
    read = _gpt2 if config.kind == "gpt2" else _llama
    found: dict[str, Tensor] = {}
    for name, tensor in read(tensors):
        if name in found:
            raise FileFormatError(f"language.load: the file holds {name!r} twice")
        found[name] = tensor
    if config.tied and "embed_tokens.weight" in found:
        found["lm_head.weight"] = found["embed_tokens.weight"]
    return found


def to_file(state: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """The tensors of a file from a state dict of ``Decoder``."""
    state = {n: t for n, t in state.items() if not (config.tied and n == HEAD)}
    if config.kind != "gpt2":
        return {n if n == HEAD else f"model.{n}": t for n, t in state.items()}
    back = {ours: theirs for theirs, ours in _GPT2.items()}
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name == HEAD:
            found[name] = tensor
            continue
        *layer, inner, end = _layer_of(name)
        if inner.endswith(_QKV):
            if not inner.endswith(_QKV[0]):
                continue
            parts = [state[name.replace(_QKV[0], one)] for one in _QKV]
            inner, tensor = "self_attn", weft.cat(parts, 0)
        matrix = layer and tensor.ndim == 2
        where = f"h.{layer[0]}." if layer else ""
        found[f"transformer.{where}{back[inner]}.{end}"] = (
            tensor.t().contiguous() if matrix else tensor
        )
    return found


def _layer_of(name: str) -> tuple[str, ...]:
    """``layers.3.mlp.up_proj.weight`` as ``3``, ``mlp.up_proj`` and ``weight``."""
    inner, _, end = name.rpartition(".")
    match = re.fullmatch(r"layers\.(\d+)\.(.+)", inner)
    return (*match.groups(), end) if match else (inner, end)


def _llama(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors.items():
        if not _TABLES.fullmatch(name):
            yield name.removeprefix("model."), tensor


def _gpt2(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors.items():
        if _TABLES.fullmatch(name):
            continue
        match = _IN_GPT2.fullmatch(name)
        layer, inner, end = match.groups() if match else (None, name, "")
        if name == HEAD:
            yield name, tensor
            continue
        if inner not in _GPT2:
            yield name, tensor  # which the module will not know
            continue
        where = f"layers.{layer}." if layer is not None else ""
        ours = where + _GPT2[inner]
        if layer is not None and tensor.ndim == 2:
            tensor = tensor.t()
        if inner == "attn.c_attn":
            if tensor.shape[0] % 3:
                raise FileFormatError(
                    f"language.load: {name!r} must hold queries, keys and values side "
                    f"by side, got a size of {tensor.shape[0]}"
                )
            for one, part in zip(_QKV, tensor.chunk(3, 0), strict=True):
                yield f"{ours}.{one}.{end}", part
        else:
            yield f"{ours}.{end}", tensor
