"""What ``weft.config.batch_invariant`` costs: times with it and without, in turns.

python benchmarks/batch_invariant.py [--rounds N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import weft
from weft import nn

F = nn.functional


def best(fn: Callable[[], Any], rounds: int) -> list[float]:
    """The least seconds of a call, without the setting and with it."""
    found = [float("inf")] * 2
    for turn in range(2 * rounds + 2):
        on = turn % 2
        with weft.config.using(batch_invariant=bool(on)):
            start = time.perf_counter()
            fn()
            took = time.perf_counter() - start
        if turn > 1:  # the first calls compile
            found[on] = min(found[on], took)
    return found


def programs() -> dict[str, tuple[Any, Any]]:
    gpt = weft.models.GPT(vocab=200, context=64, width=192, heads=6, layers=4).eval()
    net = weft.models.resnet18(classes=10, cifar=True).eval()
    layer, conv = nn.Linear(512, 512), nn.Conv2d(64, 64, 3, padding=1)

    def attend(x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)

    def ids(n: int) -> Any:
        return weft.randint(0, 200, (n, 64))

    return {
        "linear 512": (layer, lambda n: weft.randn(n, 512)),
        "conv 64x32x32": (conv, lambda n: weft.randn(n, 64, 32, 32)),
        "attention 6x64x32": (attend, lambda n: weft.randn(n, 6, 64, 32)),
        "layer_norm 64x192": (
            lambda x: F.layer_norm(x, (192,)), lambda n: weft.randn(n, 64, 192)
        ),
        "softmax 64x1000": (lambda x: x.softmax(-1), lambda n: weft.randn(n, 64, 1000)),
        "GPT of 4 layers": (gpt, ids),
        "ResNet-18": (net, lambda n: weft.randn(n, 3, 32, 32)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    weft.set_num_threads(1)
    print("one thread; ms without, and the ratio with it")
    print(f"{'':20}{'batch':>6}{'eager':>18}{'compiled':>18}")
    with weft.no_grad():
        for name, (fn, make) in programs().items():
            for n in (1, 32):
                x = make(n)
                text = ""
                for call in (fn, weft.compile(lambda x, fn=fn: fn(x))):
                    without, with_it = best(lambda c=call, x=x: c(x), rounds)
                    text += f"{without * 1e3:10.3f}{with_it / without:8.2f}"
                print(f"{name:20}{n:6}{text}", flush=True)


if __name__ == "__main__":
    main()
