"""Language models from files, and the texts that they write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import ArgumentError, FileFormatError
from weft.language.config import LIMIT, Config, described, read_config
from weft.language.decoder import Decoder
from weft.language.engine import Engine, Request
from weft.language.names import from_file, to_file
from weft.language.sampling import Sampling
from weft.language.tokenizer import Text, Tokenizer
from weft.memory.sizes import parse_bytes
from weft.serialization.atomic import replacing

Prompt = str | Sequence[int]


class LanguageModel:
    """A decoder with its tokenizer: ``generate`` and ``stream`` write texts.

    ``module`` is the network, which can be trained, compiled and exported as any other.

    >>> config = weft.language.Config(vocab=50, context=64, width=32, layers=1, heads=2)
    >>> model = weft.language.LanguageModel(weft.language.Decoder(config))
    >>> len(model.generate([1, 2, 3], max_new_tokens=5))
    5
    """

    def __init__(
        self,
        module: Decoder,
        tokenizer: Tokenizer | None = None,
        *,
        memory: int | str | None = None,
        batch: int = 8,
        chunk: int = 256,
        compiled: bool = True,
    ) -> None:
        limit = None if memory is None else parse_bytes(memory)
        self.module, self.tokenizer = module, tokenizer
        self.engine = Engine(
            module, memory=limit, batch=batch, chunk=chunk, compiled=compiled
        )

    @property
    def config(self) -> Config:
        return self.module.config

    @property
    def memory(self) -> int:
        """The bytes that weights, cache and the largest step take together."""
        return self.engine.memory

    def generate(self, prompt: Prompt, **options: Any) -> Any:
        """What follows a prompt: text behind a text, tokens behind tokens.

        Options are those of ``Sampling``: ``max_new_tokens``, ``temperature``,
        ``top_k``, ``top_p``, ``repetition_penalty``, ``seed``, ``stop``.
        """
        pieces = list(self.stream(prompt, **options))
        return "".join(pieces) if isinstance(prompt, str) else pieces

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Any]:
        """``generate``, piece by piece, as soon as each is known."""
        sampling = _sampling(options)
        if sampling.stop and not isinstance(prompt, str):
            raise ArgumentError("stop needs a prompt that is a text")
        request = self.submit(prompt, sampling)
        if not isinstance(prompt, str):
            return self.engine.run(request)
        return self.texts(self.engine.run(request), sampling)

    def submit(self, prompt: Prompt, sampling: Sampling) -> Request:
        """Let the engine write a text behind a prompt, beside others."""
        if isinstance(prompt, str):
            return self.engine.submit(self._words().encode(prompt), sampling)
        return self.engine.submit(list(prompt), sampling)

    def texts(self, tokens: Iterator[int], sampling: Sampling) -> Iterator[str]:
        """Pieces of text for tokens, until one of the strings that stop it."""
        text = Text(self._words(), sampling.stop)
        for token in tokens:
            piece = text.add(token)
            if piece:
                yield piece
            if text.stopped:
                return
        last = text.end()
        if last:
            yield last

    def _words(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ArgumentError(
                "this model has no tokenizer (no tokenizer.json beside its weights); "
                "give the prompt as token numbers"
            )
        return self.tokenizer

    def save(self, folder: str) -> None:
        """Write a folder as Hugging Face has it: the weights and ``config.json``."""
        text = json.dumps(described(self.config), indent=2)
        tensors = to_file(self.module.state_dict(), self.config)
        os.makedirs(folder, exist_ok=True)
        weft.save(tensors, os.path.join(folder, "model.safetensors"))
        with replacing(os.path.join(folder, "config.json")) as file:
            file.write(text.encode())
        if self.tokenizer is not None:
            self.tokenizer.save(os.path.join(folder, "tokenizer.json"))


def _sampling(options: dict[str, Any]) -> Sampling:
    known = Sampling.__dataclass_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ArgumentError(
            f"{unknown[0]!r} is no option; there are {', '.join(known)}"
        )
    return Sampling(**options)


def load(
    folder: str | os.PathLike[str],
    *,
    dtype: DType = weft.float32,
    weights: str | None = None,
    memory: int | str | None = None,
    batch: int = 8,
    chunk: int = 256,
    compiled: bool = True,
) -> LanguageModel:
    """A language model from a folder with ``config.json`` and weights.

    GPT-2's and Llama's shapes (also Mistral's, Qwen 2's and 3's) are read, under the
    names that Hugging Face's files have, from safetensors files, whole or in shards.
    ``tokenizer.json`` is used where it is there.

    ``weights`` are quantised to "int8" or "int4", each row or group with a scale of its
    own (``weft.quantize``). ``memory``, such as "2GB", is what weights, keys and values
    and the largest step may take together. ``batch`` texts at most are written side by
    side, and prompts are read ``chunk`` tokens at a time.
    """
    folder = os.fspath(folder)
    config = read_config(folder)
    config = replace(config, ends=_ends(folder, config))
    with weft.device("meta"):
        module = Decoder(config)
    tensors = weft.load(folder, mmap=True)
    strange = [n for n, t in tensors.items() if not isinstance(t, Tensor)]
    if strange:
        raise FileFormatError(f"language.load: {folder!r}: {strange[0]!r} is no tensor")
    _assign(module, from_file(tensors, config), dtype, folder)
    if weights is not None:
        module = weft.quantize(module, weights, weight_only=True)
    path = os.path.join(folder, "tokenizer.json")
    tokenizer = Tokenizer(path) if os.path.exists(path) else None
    return LanguageModel(
        module, tokenizer, memory=memory, batch=batch, chunk=chunk, compiled=compiled
    )


def _assign(
    module: Decoder, state: dict[str, Tensor], dtype: DType, folder: str
) -> None:
    """Give a module without memory the tensors of a file, in one dtype."""
    expected = {name: tuple(p.shape) for name, p in module.named_parameters()}
    missing = sorted(expected.keys() - state.keys())
    unknown = sorted(state.keys() - {*expected, "lm_head.weight"})
    if missing or unknown:
        raise FileFormatError(
            f"language.load: {folder!r} does not hold what its config.json says: "
            f"missing {missing[:3]}, unknown {unknown[:3]} (of {len(missing)} and "
            f"{len(unknown)})"
        )
    for name, shape in expected.items():
        if tuple(state[name].shape) != shape:
            raise FileFormatError(
                f"language.load: {folder!r}: {name} has shape "
                f"{tuple(state[name].shape)}, but config.json asks for {shape}"
            )
    made: dict[int, Tensor] = {}
    for name, tensor in state.items():
        if id(tensor) not in made:
            made[id(tensor)] = tensor.to(dtype).contiguous()
        state[name] = made[id(tensor)]
    module.load_state_dict(state, assign=True)


def _ends(folder: str, config: Config) -> tuple[int, ...]:
    """The tokens that end texts: ``generation_config.json`` may name more of them."""
    path = os.path.join(folder, "generation_config.json")
    if not os.path.exists(path):
        return config.ends
    with open(path, "rb") as file:
        raw = file.read(LIMIT + 1)
    try:
        value = json.loads(raw[:LIMIT]).get("eos_token_id")
    except (ValueError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"language.load: {path!r} is no JSON: {error}") from None
    more = value if isinstance(value, list) else [value]
    more = [one for one in more if type(one) is int]
    return tuple(dict.fromkeys([*config.ends, *more]))
