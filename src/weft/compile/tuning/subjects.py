"""Subjects of tuning: the products, convolutions and loops of a program.

A subject has axes along which its choice may be varied, one after the other. All
choices on them compute the same bits, which is checked for each before it is timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from weft.compile.program.program import Program
from weft.compile.program.steps import KernelLaunch
from weft.compile.targets.cpu.convolution.call import Convolution
from weft.compile.targets.cpu.matmul.call import Product
from weft.compile.targets.cpu.matmul.tiling import SHAPES
from weft.compile.tuning.choices import Columns, Cut, Loops, trying
from weft.compile.tuning.trials import (
    Memory,
    Sizes,
    Trial,
    library_trial,
    loop_trial,
)  # fmt: skip
from weft.graph.interpret import resolve
from weft.runtime.cpu import pool

Choice = tuple[int, ...]
Axis = Callable[[Any], list[Any]]
CHUNKS = (1024, 16384, 65536)
SQUARES = (8, 32)
BLOCKS = (64, 256, 1024, 4096)
COLUMNS = (128, 512, 1024)
TILES = (64, 256)


class Subject(NamedTuple):
    """A kernel of a program, and the choices for it."""

    name: str
    key: str
    default: Any
    axes: Sequence[Axis]
    runs: int  # how often a run of the program runs it
    make: Callable[[Choice, Memory], Trial | None]
    sizes: Sizes

    def memory(self) -> Memory:
        """Arrays for its trials."""
        return Memory(self.sizes)


def subjects(program: Program, sizes: Sizes) -> list[Subject]:
    """The kernels of a program that have choices, equal ones as one."""
    found: dict[str, Subject] = {}
    runs: Counter[str] = Counter()
    for step in program.lowered.steps:
        one = _subject(program, step, sizes)
        if one is not None:
            runs[one.key] += 1
            found.setdefault(one.key, one)
    return [one._replace(runs=runs[key]) for key, one in found.items()]


def _subject(program: Program, step: Any, sizes: Sizes) -> Subject | None:
    if isinstance(step, (Product, Convolution)):
        if 0 in resolve(step.node.shape, sizes):
            return None
        product = isinstance(step, Product)
        axes = (
            _product_axes(step, sizes)
            if product
            else _convolution_axes(step, sizes, program)
        )
        default = Cut() if product else Columns()
        if not axes:
            return None
        make = partial(_library_call, program, step, sizes)
        name = _title(step, sizes)
        return Subject(name, step.key(sizes), default, axes, 1, make, sizes)
    if type(step) is not KernelLaunch:
        return None
    key, _ = program.lowered.table.cut(step.kernel)
    if not key:
        return None
    make = partial(_loops, program, step, key, sizes)
    axes = [*_loop_axes(step), _grains]
    names = [node.op.name for node in step.group.nodes]
    name = f"{step.name}: {', '.join(names[:4])}{', …' * (len(names) > 4)}"
    return Subject(name, key, Loops(), axes, 1, make, sizes)


def _title(step: Any, sizes: Sizes) -> str:
    shapes = [resolve(i.shape, sizes) for i in step.node.inputs[:2]]
    given = ", ".join("×".join(map(str, shape)) for shape in shapes)
    return f"{step.node.op.name} of {given}"


def _library_call(
    program: Program, step: Any, sizes: Sizes, choice: Choice, memory: Memory
) -> Trial | None:
    with trying({step.alone.key(sizes): choice}):
        return library_trial(program, step, sizes, memory)


def _loops(
    program: Program,
    use: KernelLaunch,
    key: str,
    sizes: Sizes,
    choice: Choice,
    memory: Memory,
) -> Trial | None:
    with trying({key: choice}):
        return loop_trial(program, use, sizes, memory)


# -- axes


def _product_axes(step: Any, sizes: Sizes) -> list[Axis]:
    *_, m, n = resolve(step.node.shape, sizes)
    whole = step.epilogue is not None and step.epilogue.whole
    threads = max(pool.get_num_threads(), 2)
    counts = 1, 2, threads, 2 * threads, 4 * threads
    splits = [
        (across, down)
        for across in dict.fromkeys(counts)
        for down in dict.fromkeys(counts)
        if across * down <= 8 * threads and across <= n and down <= m
        and not (whole and across > 1)
    ]  # fmt: skip
    axes: list[Axis] = [lambda cut: [cut._replace(across=a, down=d) for a, d in splits]]
    if len(step.operands) == 2:  # panels that are packed before fix the tile's width
        shapes = range(len(SHAPES[True]))
        axes.append(lambda cut: [cut._replace(shape=s) for s in shapes])
    return axes


def _convolution_axes(step: Any, sizes: Sizes, program: Program) -> list[Axis]:
    """The axes of the convolution's algorithm."""
    work = program.target.library_work([step], sizes).works.get(step)
    if work is None:
        return []
    if work.function.name.startswith("winograd"):
        return [lambda cut: [cut._replace(tiles=n) for n in TILES]]
    if work.function.name in ("image_tasks", "direct_tasks", "weight_tasks"):
        return [lambda cut: [cut._replace(columns=n) for n in COLUMNS]]
    return []


def _loop_axes(use: KernelLaunch) -> list[Axis]:
    """The axes of a kernel, by the names of its parallel loops."""
    names = {name for name, _ in use.kernel.parallel}
    axes: list[Axis] = []
    if "chunk" in names:
        axes.append(lambda cut: [cut._replace(chunk=n) for n in CHUNKS])
    if "u" in names:
        axes.append(lambda cut: [cut._replace(square=n) for n in SQUARES])
    if "block" in names:
        axes.append(lambda cut: [cut._replace(block=n, wide=n) for n in BLOCKS])
    return axes


def _grains(cut: Loops) -> list[Loops]:
    return [cut._replace(grain=n) for n in (cut.grain // 4, 4 * cut.grain)]
