"""GPT-2, 124 million parameters: one token after the other, with a key-value cache."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run
from benchmarks.suite.workloads import gpt
from benchmarks.suite.workloads.gpt2 import GPT2, SMALL


def predict(lib: Lib, sizes: gpt.Sizes, p: Any, cache: Any, ids: Any, t: Any) -> Any:
    """Logits after the token ``ids`` (1, 1) at position ``t`` (1,), and the next one.

    The cache has room for all positions; those after ``t`` are masked out.
    """
    room = cache["0.k"].shape[2]
    seen = (lib.positions(room) <= t).reshape(1, 1, 1, room)

    def attend(lib: Lib, layer: int, q: Any, k: Any, v: Any) -> Any:
        k = lib.put(cache, f"{layer}.k", t, k)
        v = lib.put(cache, f"{layer}.v", t, v)
        return lib.attention(q, k, v, mask=seen)

    x = lib.embedding(ids, p["token"]) + lib.embedding(t, p["position"])
    for k in range(sizes.layers):
        x = gpt.block(lib, p, k, x, sizes.heads, attend)
    logits = lib.linear(
        lib.layer_norm(x, p, "norm"), {"head.weight": p["token"]}, "head"
    )
    return logits, lib.argmax(logits)


def case(sizes: gpt.Sizes, room: int) -> Case:
    def build(lib: Lib) -> Run:
        def token(lib: Lib, p: Any, cache: Any, ids: Any, t: Any) -> Any:
            return predict(lib, sizes, p, cache, ids, t)

        shape = (1, sizes.heads, room, sizes.width // sizes.heads)
        cache = {
            f"{k}.{part}": np.zeros(shape, np.float32)
            for k in range(sizes.layers)
            for part in "kv"
        }
        run = lib.model(token, gpt.parameters(sizes), cache)
        steps = cycle([lib.array(np.array([t])) for t in range(room)])
        ids = lib.array(np.array([[1]]))

        def call() -> Any:
            nonlocal ids
            logits, ids = run(ids, next(steps))
            return logits

        return Run(call)

    cached = 2 * sizes.layers * sizes.width * room
    read = data.size(gpt.parameters(sizes)) + cached
    return Case(
        name=f"GPT-2, a token, cache of {room}",
        build=build,
        flops=sizes.flops(1, 1),
        moved=float(flops.BYTES * read),
        tolerance=1e-3,
        calls=4,
    )


def cases(small: bool) -> list[Case]:
    return [case(SMALL, 32) if small else case(GPT2, 256)]
