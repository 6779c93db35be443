"""Long sums of products with few results, in parts."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.compile.passes.split_k import split_k
from weft.compile.targets.cpu.cost_model import COST

TURNED = ["", "a", "b", "ab"]
K, BLOCKS = COST.split_k.least_k, COST.split_k.blocks


def operands(rng, m, n, k, turned):
    a = rng.normal(size=(k, m) if "a" in turned else (m, k)).astype(np.float32)
    b = rng.normal(size=(n, k) if "b" in turned else (k, n)).astype(np.float32)
    return weft.tensor(a), weft.tensor(b)


def product(turned):
    return lambda a, b: (
        (a.T if "a" in turned else a) @ (b.T if "b" in turned else b)
    ).tanh()


def ops_of(function, *examples):
    graph = split_k(weft.graph.capture(function, *examples).graph)
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize("turned", TURNED)
def test_they_are_sums_of_products(rng, turned):
    a, b = operands(rng, 5, 7, K, turned)
    f = product(turned)
    assert ops_of(f, a, b)[-3:] == ["matmul", "sum", "tanh"]
    wide = f(a.double(), b.double()).numpy()
    np.testing.assert_allclose(weft.compile(f)(a, b).numpy(), wide, atol=1e-3)


@pytest.mark.parametrize("turned", TURNED)
def test_threads_do_not_change_a_bit(rng, turned):
    a, b = operands(rng, 33, 40, 2 * K, turned)
    results = []
    before = weft.get_num_threads()
    try:
        for threads in (1, 2, 4):
            weft.set_num_threads(threads)
            results.append(weft.compile(product(turned))(a, b).numpy())
    finally:
        weft.set_num_threads(before)
    assert all(np.array_equal(results[0], r) for r in results[1:])


def test_errors_do_not_grow(rng):
    a, b = operands(rng, 16, 16, 1 << 15, "")
    exact = a.double().numpy() @ b.double().numpy()
    found = weft.compile(lambda a, b: a @ b)(a, b).numpy()
    size = np.abs(a.numpy()).astype(np.float64) @ np.abs(b.numpy())
    assert (np.abs(found - exact) / size).max() < 2**-22


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(5, 7, K - BLOCKS), (5, 7, K + 1), (130, 130, K), (0, 7, K)],
)
def test_others_stay(m, n, k):
    names = ops_of(lambda a, b: a @ b, weft.ones(m, k), weft.ones(k, n))
    assert "sum" not in names


def test_views_that_would_be_copied_stay():
    x = weft.ones(2 * K, 3)
    names = ops_of(lambda x, b: x[::2].T @ b, x, weft.ones(K, 3))
    assert "sum" not in names


def test_weights_stay():
    layer = nn.Linear(K, 8)
    assert "sum" not in ops_of(layer, weft.ones(4, K))


def test_symbolic_sizes_stay():
    f = weft.compile(lambda a, b: a @ b)
    for k in (K, K + 8):
        got = f(weft.ones(3, k), weft.ones(k, 3))
        assert got.sum().item() == 9 * k
