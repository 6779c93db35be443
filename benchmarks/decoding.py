"""GPT-2 of 124 million parameters, one text, one token after the other.

    python -m benchmarks.decoding [--tokens 64] [--rounds 5]

Weights are random: the work is the same. For weights of float32, int8 and int4: the
milliseconds of a token, the bytes of weights that it reads, and the share of what one
can read from memory in that time (a sum over 512 MB, in the same run). llama.cpp runs
beside it where ``llama_cpp`` and ``gguf`` are installed, with Q8_0 and Q4_0, in turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft import language

WEIGHTS = (None, "int8", "int4")
PROMPT = list(range(100, 116))
CONFIG = language.config.config_of({"model_type": "gpt2"})


def bandwidth(threads: int) -> float:
    """The bytes a second that a compiled sum reads."""
    x = weft.ones(1 << 27)
    run = weft.compile(weft.sum)
    run(x)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        run(x)
        times.append(time.perf_counter() - start)
    return x.nbytes / min(times)


def ours(folder: str, weights: str | None) -> tuple[Callable[[int], float], int]:
    """Seconds for so many tokens after the prompt, and the bytes of the weights."""
    model = language.load(folder, weights=weights)

    def run(tokens: int) -> float:
        stream = model.stream(PROMPT, max_new_tokens=tokens + 1, ignore_ends=True)
        next(stream)  # the prompt is read
        start = time.perf_counter()
        assert sum(1 for _ in stream) == tokens
        return time.perf_counter() - start

    positions = model.module.state_dict()["embed_positions.weight"].nbytes
    return run, model.engine.needs["weights"] - positions


def gguf_file(model: Any, path: str, kind: str) -> None:
    """The same weights for llama.cpp."""
    import gguf

    to = getattr(gguf.GGMLQuantizationType, kind)
    file = gguf.GGUFWriter(path, "gpt2")
    c = model.config
    file.add_context_length(c.context)
    file.add_embedding_length(c.width)
    file.add_block_count(c.layers)
    file.add_feed_forward_length(c.inner)
    file.add_head_count(c.heads)
    file.add_layer_norm_eps(c.epsilon)
    file.add_tokenizer_model("no_vocab")
    file.add_vocab_size(c.vocab)
    state = {name: t.numpy() for name, t in model.module.state_dict().items()}

    def add(name: str, array: np.ndarray) -> None:
        if array.ndim == 2 and name != "position_embd.weight":
            array = gguf.quants.quantize(array, to)
            file.add_tensor(name, array, raw_dtype=to)
        else:
            file.add_tensor(name, array.astype(np.float32))

    add("token_embd.weight", state["embed_tokens.weight"])
    add("position_embd.weight", state["embed_positions.weight"])
    parts = {
        "attn_norm": "input_layernorm", "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    for k in range(c.layers):
        for end in ("weight", "bias"):
            whole = [
                state[f"layers.{k}.self_attn.{one}_proj.{end}"]
                for one in ("q", "k", "v")
            ]
            add(f"blk.{k}.attn_qkv.{end}", np.concatenate(whole))
            for name, source in parts.items():
                add(f"blk.{k}.{name}.{end}", state[f"layers.{k}.{source}.{end}"])
    for end in ("weight", "bias"):
        add(f"output_norm.{end}", state[f"norm.{end}"])
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def theirs(path: str, threads: int) -> Callable[[int], float]:
    """Seconds for so many tokens after the prompt, by llama.cpp."""
    import llama_cpp as c

    c.llama_backend_init()
    silent = c.llama_log_callback(lambda *_: None)
    c.llama_log_set(silent, None)
    model = c.llama_model_load_from_file(path.encode(), c.llama_model_default_params())
    options = c.llama_context_default_params()
    options.n_ctx, options.n_threads, options.n_threads_batch = 512, threads, threads
    context = c.llama_init_from_model(model, options)
    assert context, path

    def decode(tokens: list[int]) -> int:
        array = (c.llama_token * len(tokens))(*tokens)
        assert c.llama_decode(context, c.llama_batch_get_one(array, len(tokens))) == 0
        logits = c.llama_get_logits_ith(context, -1)
        return int(np.ctypeslib.as_array(logits, (CONFIG.vocab,)).argmax())

    def run(tokens: int) -> float:
        c.llama_memory_clear(c.llama_get_memory(context), True)
        token = decode(PROMPT)
        start = time.perf_counter()
        for _ in range(tokens):
            token = decode([token])
        return time.perf_counter() - start

    run.kept = silent  # type: ignore[attr-defined]
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    threads = weft.get_num_threads()
    peer = all(map(importlib.util.find_spec, ("llama_cpp", "gguf")))
    rate = bandwidth(threads)
    print(f"{threads} threads; memory is read with {rate / 1e9:.1f} GB/s")
    weft.manual_seed(0)
    folder = tempfile.mkdtemp()
    whole = language.LanguageModel(language.Decoder(CONFIG))
    whole.save(os.path.join(folder, "gpt2"))
    for weights, kind in zip(WEIGHTS, ("F32", "Q8_0", "Q4_0"), strict=True):
        run, nbytes = ours(os.path.join(folder, "gpt2"), weights)
        runs = {"Weft": run}
        if peer:
            path = os.path.join(folder, f"{kind}.gguf")
            gguf_file(whole, path, kind)
            runs["llama.cpp"] = theirs(path, threads)
        for one in runs.values():
            one(4)
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.rounds):
            for name, one in runs.items():
                times[name].append(one(options.tokens) / options.tokens)
        least = {name: min(found) for name, found in times.items()}
        middle = {name: statistics.median(found) for name, found in times.items()}
        line = f"{weights or 'float32':8} {nbytes / 1e6:6.0f} MB"
        for name in runs:
            best, usual = least[name] * 1e3, middle[name] * 1e3
            line += f"   {name} {best:.2f} ms (median {usual:.2f})"
        line += f"   {nbytes / least['Weft'] / rate:.0%} of the bandwidth"
        if peer:
            line += f"   llama.cpp / Weft {least['llama.cpp'] / least['Weft']:.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
