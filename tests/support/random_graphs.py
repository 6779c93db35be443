"""Random programs over two matrices, for tests of what is done to graphs."""

import numpy as np
from hypothesis import strategies as st

import weft
from weft.graph import capture

STEPS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "scale": lambda a, b: a * 0.5,
    "one": lambda a, b: a * 1,
    "zero": lambda a, b: b + 0.0,
    "neg": lambda a, b: -a,
    "tanh": lambda a, b: weft.tanh(b),
    "maximum": lambda a, b: weft.maximum(a, b),
    "softmax": lambda a, b: a.softmax(-1),
    "mean": lambda a, b: (a - a.mean(0, keepdim=True)),
    "turn": lambda a, b: a.T.T,
    "flip": lambda a, b: a.flip(1) + b,
    "slice": lambda a, b: weft.cat([a[:, 1:], b[:, :1]], 1),
    "where": lambda a, b: weft.where(a > b, a, b * 2),
    "matmul": lambda a, b: a @ (b.T @ a) * 0.1,
    "constant": lambda a, b: a * weft.tensor([0.1, -2.5, 3.0, 1e-40]),
    "pick": lambda a, b: a * weft.sort(b, dim=1)[0],
    "qr": lambda a, b: a @ weft.linalg.qr(b.T @ b + weft.eye(4)).R,
}  # fmt: skip

programs = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)


def function(program):
    """The Python function of a drawn program."""

    def run(x, y):
        values = [x, y]
        for name, i, j in program:
            found = STEPS[name](values[i % len(values)], values[j % len(values)])
            values.append(found)
        return values[-1], values[len(values) // 2]

    return run


def graph(program, dynamic):
    """Its graph, with the number of rows open or not."""
    rows = "B" if dynamic else 3
    examples = [weft.ones(3, 4), weft.ones(3, 4)]
    if not dynamic:
        return capture(function(program), *examples).graph
    sizes = {"x": {0: rows}, "y": {0: rows}}
    return capture(function(program), *examples, dynamic=sizes).graph


def arrays(rows=3):
    draw = np.random.default_rng(7)
    return [draw.normal(size=(rows, 4)).astype(np.float32) for _ in range(2)]
