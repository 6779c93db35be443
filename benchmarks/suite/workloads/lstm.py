"""LSTM of two layers of 256, batch 32, length 64: a whole training step with Adam."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run

CLASSES = 10


class Sizes(NamedTuple):
    width: int
    layers: int
    batch: int
    length: int

    def flops(self) -> float:
        tokens = self.batch * self.length
        layer = flops.product(tokens, 4 * self.width, 2 * self.width)
        return self.layers * layer + flops.product(tokens, CLASSES, self.width)


def parameters(sizes: Sizes) -> dict[str, Any]:
    width, made = sizes.width, data.linear("head", sizes.width, CLASSES)
    for k in range(sizes.layers):
        for kind in ("ih", "hh"):
            name = f"weight_{kind}_l{k}"
            made[name] = data.normal(name, 4 * width, width, scale=width**-0.5)
            made[f"bias_{kind}_l{k}"] = np.zeros(4 * width, np.float32)
    return made


def case(sizes: Sizes, **options: Any) -> Case:
    """A training step that predicts a class at every position."""
    width, layers, batch, length = sizes

    def build(lib: Lib) -> Run:
        net = lib.recurrent(width, width, layers)

        def loss(lib: Lib, p: Any, s: Any, x: Any, y: Any) -> Any:
            own = {name: a for name, a in p.items() if not name.startswith("head")}
            logits = lib.linear(net(x, own), p, "head")
            return lib.cross_entropy(logits.reshape(-1, CLASSES), y)

        step = lib.step(loss, parameters(sizes), {}, "adam", lr=1e-3)
        x = lib.array(data.normal("x", length, batch, width))
        y = lib.array(data.integers("y", CLASSES, length * batch))
        return Run(lambda: step(x, y))

    return Case(
        build=build,
        flops=3 * sizes.flops(),
        moved=flops.update_bytes(data.size(parameters(sizes)), "adam"),
        tolerance=1e-4,
        calls=3,
        memory=True,
        **options,
    )


def cases(small: bool) -> list[Case]:
    sizes = Sizes(16, 2, 4, 6) if small else Sizes(256, 2, 32, 64)
    name = f"LSTM, batch {sizes.batch}, length {sizes.length}"
    return [case(sizes, name=name, launches=1 if small else 3)]
