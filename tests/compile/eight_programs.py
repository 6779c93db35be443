"""Eight small programs, seen at every stage of the pipeline.

``stages(example)`` is what the golden texts hold: the graph after all passes, its
groups, the Loop IR of its kernels, and its steps with the memory layout. The CPU level
and the number of threads are fixed, so that the text is the same on any machine.
"""

from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.nn.functional as F
from weft import nn, optim
from weft.compile import pipeline
from weft.compile.program.memory_layout import lay_out
from weft.compile.program.program import compiled
from weft.compile.program.text import groups_text, layout_text
from weft.compile.targets.cpu.target import cpu_target
from weft.compile.tuning import choices
from weft.graph import capture

LEVEL, THREADS = "avx2", 2


class Example(NamedTuple):
    """A captured program, and arrays to run it with."""

    graph: Any
    feeds: list
    store: dict

    def copies(self):
        """The variables' arrays, to be written over."""
        return {v: array.copy() for v, array in self.store.items()}


def example(fn, *args, name):
    """Capture a program, with its arguments and the values of its variables."""
    captured = capture(fn, *args, name=name)
    cells = captured.cells
    store = {v: cells[n].get() for n, v in captured.graph.variables.items()}
    return Example(captured.graph, [a.numpy() for a in args], store)


def normal(*shape):
    return weft.tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


# -- the programs


def softmax():
    return example(lambda x: x.softmax(-1), normal(4, 10), name="softmax")


def layer_norm():
    norm = nn.LayerNorm(10)
    return example(norm, normal(4, 10), name="layer_norm")


def mlp_step():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return example(step, normal(6, 4), weft.tensor([0, 1, 2, 0, 1, 2]), name="mlp_step")


def conv_bn_relu():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    return example(model.eval(), normal(2, 3, 8, 8), name="conv_bn_relu")


def attention():
    def attend(q, k, v):
        return q + (q @ k.mT / 2.0).softmax(-1) @ v

    return example(attend, *[normal(2, 5, 4) + k for k in range(3)], name="attention")


def lstm_cell():
    cell = nn.LSTMCell(4, 8)
    step = lambda x, h, c: cell(x, (h, c))
    return example(step, normal(3, 4), normal(3, 8), normal(3, 8) / 2, name="lstm_cell")


def scatter():
    def add_rows(x, index):
        return weft.zeros(4, 3).index_add(0, index, x.exp())

    index = weft.tensor([3, 0, 3, 1, 0])
    return example(add_rows, normal(5, 3), index, name="scatter")


def adamw():
    layer = nn.Linear(4, 3)
    optimizer = optim.AdamW(layer.parameters(), lr=1e-2)

    def update(weight, bias):
        layer.weight.grad, layer.bias.grad = weight, bias
        optimizer.step()
        optimizer.zero_grad()

    grads = normal(3, 4), normal(3)
    update(*grads)  # there is a state from here on
    return example(update, *grads, name="adamw")


PROGRAMS = {
    fn.__name__: fn
    for fn in (
        softmax,
        layer_norm,
        mlp_step,
        conv_bn_relu,
        attention,
        lstm_cell,
        scatter,
        adamw,
    )
}


# -- the stages


@contextmanager
def any_machine():
    """Be independent of this machine's threads, and of what was measured on it."""
    threads, table = weft.get_num_threads(), list(choices._table)
    weft.set_num_threads(THREADS)
    choices._table[:] = [choices.Table()]
    try:
        yield
    finally:
        weft.set_num_threads(threads)
        choices._table[:] = table


def lowered(example):
    """A program down to its steps, for the fixed CPU level."""
    variables = example.graph.variables.values()
    graph = pipeline.run(example.graph, pipeline.PASSES, in_place=variables)
    return pipeline.lower(graph, cpu_target(LEVEL), in_place=variables)


def program(example):
    """The compiled program, for this machine."""
    return compiled(example.graph, list(example.graph.variables.values()))


def stages(example):
    """The text of each stage, by name."""
    low = lowered(example)
    return {
        "graph": str(low.graph),
        "groups": groups_text(low.fusion),
        "loops": "\n\n".join(map(str, low.kernels.values())),
        "steps": layout_text(lay_out(low, {})),
    }
