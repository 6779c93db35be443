"""ResNet-18 for 32x32 images, batch 32: a whole training step with momentum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run


class Conv(NamedTuple):
    """A square convolution and its batch norm."""

    name: str
    channels: int
    filters: int
    kernel: int
    stride: int
    size: int  # of the images it reads

    @property
    def pixels(self) -> int:
        return (-(-self.size // self.stride)) ** 2

    def flops(self, batch: int) -> float:
        sizes = self.channels, self.filters, self.kernel
        return flops.convolution(batch, *sizes, self.pixels)


class Block(NamedTuple):
    """Convolutions one after the other, around a shortcut that may have one too."""

    convs: tuple[Conv, ...]
    shortcut: Conv | None


class Plan(NamedTuple):
    """A whole network; a ``large`` one has the stem for large images."""

    stem: Conv
    blocks: tuple[Block, ...]
    features: int
    classes: int
    large: bool

    def convs(self) -> Iterator[Conv]:
        yield self.stem
        for block in self.blocks:
            yield from block.convs
            if block.shortcut:
                yield block.shortcut

    def flops(self, batch: int) -> float:
        last = flops.product(batch, self.classes, self.features)
        return sum(conv.flops(batch) for conv in self.convs()) + last


def _block(
    name: str, channels: int, width: int, stride: int, size: int, bottleneck: bool
) -> Block:
    half = -(-size // stride)
    out = 4 * width if bottleneck else width
    convs: tuple[Conv, ...]
    if bottleneck:
        convs = (
            Conv(f"{name}.0", channels, width, 1, 1, size),
            Conv(f"{name}.1", width, width, 3, stride, size),
            Conv(f"{name}.2", width, out, 1, 1, half),
        )
    else:
        convs = (
            Conv(f"{name}.0", channels, width, 3, stride, size),
            Conv(f"{name}.1", width, width, 3, 1, half),
        )
    same = stride == 1 and channels == out
    short = None if same else Conv(f"{name}.s", channels, out, 1, stride, size)
    return Block(convs, short)


def plan(
    counts: tuple[int, ...], size: int, *, bottleneck: bool = False,
    large: bool = False, classes: int = 10, width: int = 64,
) -> Plan:  # fmt: skip
    """Groups of so many blocks each, for images of a size."""
    stem = Conv("stem", 3, width, 7 if large else 3, 2 if large else 1, size)
    size = size // 4 if large else size
    blocks, channels = [], width
    for k, count in enumerate(counts):
        for i in range(count):
            stride = 2 if k and i == 0 else 1
            wide, name = width * 2**k, f"{k}.{i}"
            blocks.append(_block(name, channels, wide, stride, size, bottleneck))
            size = -(-size // stride)
            channels = wide * 4 if bottleneck else wide
    return Plan(stem, tuple(blocks), channels, classes, large)


def weights(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters, and the running statistics of the batch norms."""
    made, state = {}, {}
    for c in plan.convs():
        shape = c.filters, c.channels, c.kernel, c.kernel
        fan = c.channels * c.kernel**2
        made[c.name] = data.normal(c.name, *shape, scale=(2 / fan) ** 0.5)
        made |= data.norm(f"{c.name}.n", c.filters)
        state[f"{c.name}.n.mean"] = np.zeros(c.filters, np.float32)
        state[f"{c.name}.n.var"] = np.ones(c.filters, np.float32)
    return made | data.linear("fc", plan.features, plan.classes), state


def forward(lib: Lib, plan: Plan, p: Any, s: Any, x: Any, training: bool) -> Any:
    def conv(x: Any, c: Conv) -> Any:
        y = lib.conv(x, p[c.name], c.stride, c.kernel // 2)
        return lib.batch_norm(y, p, s, f"{c.name}.n", training)

    x = lib.relu(conv(x, plan.stem))
    if plan.large:
        x = lib.max_pool(x)
    for block in plan.blocks:
        y = x
        for c in block.convs[:-1]:
            y = lib.relu(conv(y, c))
        y = conv(y, block.convs[-1])
        x = lib.relu(y + (conv(x, block.shortcut) if block.shortcut else x))
    return lib.linear(lib.pixel_mean(x), p, "fc")


def case(plan: Plan, batch: int, **options: Any) -> Case:
    """A training step."""
    size = plan.stem.size

    def build(lib: Lib) -> Run:
        def loss(lib: Lib, p: Any, s: Any, x: Any, y: Any) -> Any:
            return lib.cross_entropy(forward(lib, plan, p, s, x, True), y)

        step = lib.step(loss, *weights(plan), "momentum", lr=1e-3, momentum=0.9)
        x = lib.images(data.normal("x", batch, 3, size, size))
        y = lib.array(data.integers("y", plan.classes, batch))
        return Run(lambda: step(x, y))

    return Case(
        build=build,
        flops=3 * plan.flops(batch) - plan.stem.flops(batch),
        moved=flops.update_bytes(data.size(weights(plan)[0]), "momentum"),
        tolerance=1e-4,
        calls=3,
        memory=True,
        **options,
    )


def cases(small: bool) -> list[Case]:
    if small:
        return [case(plan((1, 1), 8, width=8), 4, name="ResNet, small")]
    return [case(plan((2, 2, 2, 2), 32), 32, name="ResNet-18, batch 32", launches=3)]
