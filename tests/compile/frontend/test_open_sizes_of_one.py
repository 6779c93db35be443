"""Open sizes that are 1 for some calls: they are broadcast, as eagerly.

A program's own handlers must not see an error that eagerly there is not.
"""

import numpy as np
import pytest

import weft
from weft import nn

THREE = weft.arange(3.0)
BROADCASTS = {
    "operands": lambda x: x + x[1:].chunk(2, 0)[-1],
    "a constant": lambda x: THREE + x[1:],
    "maximum": lambda x: weft.maximum(x[1:], THREE),
    "expand": lambda x: x[1:].expand(5, 3) * 2,
    "broadcast_to": lambda x: weft.broadcast_to(x[1:], (3,)) + 1,
    "where": lambda x: weft.where(x[1:] > 0, THREE, x[1:]),
    "batches": lambda x: x[1:].reshape(-1, 1, 1) @ weft.ones(3, 1, 2),
    "a bias": lambda x: nn.functional.linear(weft.ones(2, 4), weft.ones(3, 4), x[1:]),
    "in place": lambda x: THREE.clone().add_(x[1:]),
    "values of indices": lambda x: weft.zeros(3).index_put(
        (weft.tensor([0, 2]),), x[1:]
    ),
    "squeeze": lambda x: x[1:].squeeze(0) * 2,
    "reshape": lambda x: x[1:].reshape(1) * 2,
}


@pytest.mark.parametrize("name", BROADCASTS)
def test_handlers_see_the_errors_of_eager_calls(name):
    def fn(x):
        try:
            return BROADCASTS[name](x)
        except RuntimeError:
            return x * 100

    program = weft.compile(fn)
    for size in (16, 2, 9, 2, 4):
        x = weft.arange(float(size)) + 1
        found, want = program(x), fn(x)
        assert found.shape == want.shape
        np.testing.assert_array_equal(found.numpy(), want.numpy())
