"""GPT-2, 124 million parameters: a forward pass, batch 1, 128 tokens."""

from __future__ import annotations

from typing import Any

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run
from benchmarks.suite.workloads import gpt

SMALL = gpt.Sizes(65, 32, 32, 2, 2)
GPT2 = gpt.Sizes(50257, 1024, 768, 12, 12)


def case(sizes: gpt.Sizes, length: int) -> Case:
    def build(lib: Lib) -> Run:
        def predict(lib: Lib, p: Any, s: Any, ids: Any) -> Any:
            return gpt.forward(lib, sizes, p, ids)

        run = lib.model(predict, gpt.parameters(sizes), {})
        ids = lib.array(data.integers("ids", sizes.vocab, 1, length))
        return Run(lambda: run(ids))

    read = data.size(gpt.parameters(sizes)) + length * sizes.vocab
    return Case(
        name=f"GPT-2, {length} tokens",
        build=build,
        flops=sizes.flops(1, length),
        moved=float(flops.BYTES * read),
        tolerance=1e-3,
    )


def cases(small: bool) -> list[Case]:
    return [case(SMALL, 16) if small else case(GPT2, 128)]
