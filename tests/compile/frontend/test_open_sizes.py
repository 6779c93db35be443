"""Programs that use sizes as numbers are compiled once for all of them."""

import numpy as np
import pytest

import weft
from weft import nn

F = nn.functional


def stored(x):
    y = x.clone()
    y[0] = x.shape[1]
    return y


PROGRAMS = {
    "where": lambda x: weft.where(x > 0.5, x.shape[0], x),
    "clamp": lambda x: (x * 10).clamp(1, x.shape[1]),
    "fill_": lambda x: x.clone().fill_(x.shape[0]),
    "setitem": stored,
    "tensor": lambda x: x * weft.tensor(x.shape[0]),
    "scatter": lambda x: x.scatter(1, (x[:, :1] * 0).long(), x.shape[0]),
    "eye": lambda x: weft.eye(x.shape[0], x.shape[1]) * x,
    "one_hot": lambda x: F.one_hot(weft.arange(x.shape[0]), x.shape[0]),
    "linspace": lambda x: weft.linspace(-1, 1, x.shape[1]) + x,
    "linspace of ints": lambda x: weft.linspace(0, 10, x.shape[0], dtype=weft.int64),
    "reflected": lambda x: F.pad(x[None], (1, 2), mode="reflect"),
    "replicated": lambda x: F.pad(x[None], (2, 1), mode="replicate"),
    "in a circle": lambda x: F.pad(x[None], (1, 1), mode="circular"),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 0),
    "embedding_bag": lambda x: F.embedding_bag((x * 3).long(), weft.ones(3, 2)),
    "multinomial": lambda x: weft.multinomial(x + 0.1, 2),
    "with replacement": lambda x: weft.multinomial(x + 0.1, 5, replacement=True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_once_for_all_sizes(name):
    program = PROGRAMS[name]
    compiled = weft.compile(program, dynamic=True)
    for shape in ((6, 8), (5, 9), (4, 4), (2, 3), (9, 3)):
        x = weft.tensor(np.random.default_rng(3).uniform(size=shape).astype(np.float32))
        weft.manual_seed(1)
        want = program(x)
        weft.manual_seed(1)
        got = compiled(x)
        assert got.dtype is want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert len(compiled.compiles) == 1
