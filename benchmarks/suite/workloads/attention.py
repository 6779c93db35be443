"""Attention, 4 x 6 heads of 64, lengths 128 to 2048: forward, and with gradients."""

from __future__ import annotations

from typing import Any

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run


def case(rows: int, heads: int, length: int, causal: bool, backward: bool) -> Case:
    width, shape = 64, (rows, heads, length, 64)
    arrays = [data.normal(name, *shape) for name in "qkvg"]

    def build(lib: Lib) -> Run:
        def attend(q: Any, k: Any, v: Any) -> Any:
            return lib.attention(q, k, v, causal=causal)

        run = lib.gradient(attend) if backward else lib.function(attend)
        inputs = [lib.array(a) for a in arrays[: 4 if backward else 3]]
        return Run(lambda: run(*inputs))

    kind = "causal" if causal else "full"
    kind += ", forward and backward" if backward else ", forward"
    products = flops.attention(rows, length, heads * width, causal)
    return Case(
        name=f"length {length}, {kind}",
        build=build,
        flops=3 * products if backward else products,
        moved=float(arrays[0].nbytes * (8 if backward else 4)),
        tolerance=1e-4,
        series=(f"attention ({kind}), length", length),
    )


def cases(small: bool) -> list[Case]:
    lengths = (16, 32) if small else (128, 256, 512, 1024, 2048)
    rows, heads = (1, 2) if small else (4, 6)
    return [
        case(rows, heads, length, causal, backward)
        for causal in (True, False)
        for backward in (False, True)
        for length in lengths
    ]
