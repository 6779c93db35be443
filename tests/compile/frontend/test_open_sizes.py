"""Programs that use sizes as numbers are compiled once for all of them."""

import collections
import copy
import functools
import json

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
    "linspace of halves": lambda x: weft.linspace(0.1, 3, x.shape[1]).bfloat16() * x,
    "linspace in half": lambda x: weft.linspace(0.1, 3, x.shape[1], dtype=weft.half),
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


TABLE = {2: 1.0, 3: 5.0}
RESULTS = {
    "a size": lambda x: x.shape[0],
    "a shape": lambda x: x.shape,
    "part of a shape": lambda x: x.shape[:1],
    "sizes of a result": lambda x: weft.arange(x.shape[0]).shape,
    "in a list": lambda x: [x.shape[0], (x, x.shape[1])],
    "in a dictionary": lambda x: {"n": x.numel(), "m": {"k": x.shape[0] + 1}},
    "a quotient": lambda x: (x.shape[0] / 2, x.shape[0] // 2, divmod(x.shape[0], 2)),
    "a product": lambda x: (-x.shape[0], x.nbytes, sum(x.shape), max(x.shape[0], 3)),
    "a slice": lambda x: slice(x.shape[0]),
    "a copy": lambda x: copy.deepcopy(x.shape[0]),
    "the class": lambda x: (isinstance(x.shape[0], int), x.shape[0].__class__),
}
NUMBERS = {
    "text": lambda x: str(x.shape),
    "text of a list": lambda x: str([x.shape[0]]),
    "formatted": lambda x: f"{x.shape[0]:>5} {x.shape[0]:d} {x.shape!r}",
    "in the old way": lambda x: "%s" % x.shape[0],  # noqa: UP031
    "representation": lambda x: repr(x.shape[0]),
    "an unknown key": lambda x: x * TABLE.get(x.shape[0], 9.0),
    "a key": lambda x: {x.shape[0]: 1, (x.shape[1], 1): x},
    "a set": lambda x: ({x.shape[0], 3}, frozenset(x.shape)),
    "in a set": lambda x: x * (3 in {x.shape[0]}) + (x.shape[0] in {3: 1}),
    "hash": lambda x: hash(x.shape[0]),
    "counted": lambda x: collections.Counter(x.shape),
    "cached": lambda x: functools.lru_cache(lambda n: n + 1)(x.shape[0]),
    "type": lambda x: type(x.shape[0]) is int,
    "NumPy's": lambda x: str(np.array(x.shape).dtype) + str(np.prod(x.shape)),
    "JSON": lambda x: json.dumps(list(x.shape)),
}


@pytest.mark.parametrize("name", [*RESULTS, *NUMBERS])
def test_sizes_are_numbers_to_the_function(name):
    fn = {**RESULTS, **NUMBERS}[name]
    compiled = weft.compile(fn)
    for size in (2, 3, 4, 3):
        x = weft.ones(size, size)
        assert repr(compiled(x)) == repr(fn(x))
    assert len(compiled.compiles) == (2 if name in RESULTS else 3), compiled.compiles


def test_sizes_stay_numbers_in_containers_that_a_function_changes():
    @weft.compile
    def note(x, log):
        log["sizes"].append(x.shape[0])
        log["last"] = x.shape
        return x

    log = {"sizes": [], "last": None}
    for size in (2, 3, 4):
        log["sizes"].clear()
        note(weft.ones(size), log)
        assert log == {"sizes": [size], "last": (size,)}
        assert type(log["sizes"][0]) is int
