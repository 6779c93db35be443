"""How training steps grow with the batch, the width and the context."""

from __future__ import annotations

from benchmarks.suite.case import Case
from benchmarks.suite.workloads import gpt, mlp


def cases(small: bool) -> list[Case]:
    factor = 8 if small else 1
    made = []
    for batch in (16, 64, 256, 1024):
        batch //= factor
        sizes = (784 // factor, 512 // factor, 512 // factor, 10)
        name, series = f"MLP, batch {batch}", ("MLP, batch", batch)
        made.append(mlp.case(sizes, batch, name=name, series=series))
    for width in (128, 512, 2048):
        width //= factor
        series = ("MLP, batch 64, width", width)
        sizes = (784 // factor, width, width, 10)
        made.append(mlp.case(sizes, 64, name=f"MLP, width {width}", series=series))
    for context in (64, 128, 256, 512):
        context //= factor
        series = ("GPT of two layers, batch 4, context", context)
        model = gpt.Sizes(65, context, 256 // factor, 4, 2)
        made.append(gpt.case(model, 4, name=f"GPT, context {context}", series=series))
    return made
