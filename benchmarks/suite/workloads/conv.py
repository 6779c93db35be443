"""Convolutions of ResNet-50, batch 8: forward, and both gradients."""

from __future__ import annotations

from typing import Any

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run
from benchmarks.suite.workloads.resnet import Conv, plan

KINDS = ("forward", "input gradient", "weight gradient")


def case(c: Conv, batch: int, kind: str) -> Case:
    x = data.normal("x", batch, c.channels, c.size, c.size)
    w = data.normal("w", c.filters, c.channels, c.kernel, c.kernel)
    side = -(-c.size // c.stride)
    g = data.normal("g", batch, c.filters, side, side)
    options = (c.stride, c.kernel // 2)

    def build(lib: Lib) -> Run:
        functions = {
            "forward": lambda x, w, g: lib.conv(x, w, *options),
            "input gradient": lambda x, w, g: lib.conv_input_grad(g, x, w, *options),
            "weight gradient": lambda x, w, g: lib.conv_weight_grad(g, x, w, *options),
        }
        run = lib.function(functions[kind])
        inputs = lib.images(x), lib.filters(w), lib.images(g)

        def outputs(results: list[Any]) -> list[Any]:
            turn = lib.from_filters if kind == "weight gradient" else lib.from_images
            return [turn(result) for result in results]

        return Run(lambda: run(*inputs), outputs)

    return Case(
        name=f"{describe(c)}, {kind}",
        build=build,
        flops=c.flops(batch),
        moved=float(flops.BYTES * (x.size + w.size + g.size)),
        tolerance=1e-4,
    )


def describe(c: Conv) -> str:
    stride = f"/{c.stride}" if c.stride > 1 else ""
    return f"{c.channels}x{c.size} to {c.filters}, {c.kernel}x{c.kernel}{stride}"


def cases(small: bool) -> list[Case]:
    if small:
        network, batch = plan((1, 1), 8, bottleneck=True, width=4), 2
    else:
        network = plan((3, 4, 6, 3), 224, bottleneck=True, large=True, classes=1000)
        batch = 8
    distinct = dict.fromkeys(c._replace(name="") for c in network.convs())
    return [case(c, batch, kind) for c in distinct for kind in KINDS]
