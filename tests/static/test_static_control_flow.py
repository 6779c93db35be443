"""Control flow with TensorFlow's arguments, limits on loops, and errors in bodies."""

import numpy as np
import pytest

import weft
from weft import static
from weft.errors import ArgumentError, DTypeError, WeftError


def test_identity_and_names_inside_of_bodies(session):
    x = static.placeholder(weft.float32, [None], name="x")
    _, y = static.while_loop(
        lambda k, a: k < 3,
        lambda k, a: [k + 1, static.identity(a, name="a") * static.exp(x, name="e")],
        [0, x],
    )
    z = static.cond(x.sum() > 0, lambda: static.identity(x), lambda: x * 2)
    got = session.run([y, z], {x: [0.0, 1.0]})
    np.testing.assert_allclose(got[0], [0, np.exp(3)], rtol=1e-6)
    np.testing.assert_array_equal(got[1], [0, 1])


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_without_an_initial_value(session, reverse):
    x = static.placeholder(weft.float64, [None, 2], name="x")
    y = static.scan(lambda a, e: a * 2 + e, x, reverse=reverse)
    pair = static.scan(lambda a, e: (a[0] + e[0], a[1] * e[1]), (x, x), reverse=reverse)
    (slope,) = static.gradients(y.sum(), x)
    order = slice(None, None, -1 if reverse else 1)
    for rows in (1, 4):
        v = np.random.default_rng(rows).normal(size=(rows, 2))
        want = v[order].copy()
        for k in range(1, rows):
            want[k] = want[k - 1] * 2 + v[order][k]
        got, (sums, products), found = session.run([y, pair, slope], {x: v})
        np.testing.assert_allclose(got, want[order])
        np.testing.assert_allclose(sums, np.cumsum(v[order], 0)[order])
        np.testing.assert_allclose(products, np.cumprod(v[order], 0)[order])
        weights = 2.0 ** (rows - np.arange(rows)) - 1  # a row is doubled in later ones
        np.testing.assert_allclose(found, np.stack([weights] * 2, 1)[order])


def test_maximum_iterations(session):
    most = static.placeholder(weft.int64, [])
    k, y = static.while_loop(
        lambda k, y: k < 5, lambda k, y: [k + 1, y * 2.0], [0, 1.0],
        maximum_iterations=most,
    )  # fmt: skip
    assert session.run([k, y], {most: 3}) == [3, 8]
    assert session.run([k, y], {most: 30}) == [5, 32]
    assert session.run(static.while_loop(lambda k: k > -1, lambda k: k + 1, [0],
                                         maximum_iterations=7)) == 7  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False])
def test_a_loop_that_never_ends(graph, compiled):
    n = static.placeholder(weft.int64, [])
    total = static.Variable(0, name="total")

    def inner(k, y):
        return [k + 1, static.while_loop(lambda j: j < k, lambda j: j + 1, [0]) + y]

    _, y = static.while_loop(lambda k, y: k < n, inner, [0, 0])
    endless = static.while_loop(
        lambda k: k < n,
        lambda k: static.while_loop(lambda j: j > -1, lambda j: j + 1, [k]),
        [0],
    )
    up = total.assign_add(y)
    with static.Session(graph, compiled=compiled, loop_limit=10) as session:
        session.run(total.initializer)
        assert session.run(up, {n: 10}) == 45
        with pytest.raises(
            ArgumentError,
            match=r"(?s)10 steps.*loop_limit.*test_static_control_flow.py",
        ):
            session.run(up, {n: 11})
        assert session.run(total) == 45
        assert session.run(endless, {n: 0}) == 0
        with pytest.raises(ArgumentError, match="10 steps"):
            session.run(endless, {n: 1})


def test_an_index_out_of_range_inside_of_a_body(session):
    ids = static.placeholder(weft.int64, [2], name="ids")
    table = static.Variable(np.arange(6.0).reshape(3, 2), name="table")
    session.run(table.initializer)
    _, y = static.while_loop(
        lambda k, y: k < 2,
        lambda k, y: [k + 1, y + static.gather(table, ids)],
        [0, np.zeros((2, 2))],
    )
    up = table.assign_add(static.concat([y, y[:1]], 0))
    for _ in range(2):
        before = session.run(table)
        with pytest.raises(WeftError, match=r"(?s)index 9.*out of range"):
            session.run(up, {ids: [0, 9]})
        np.testing.assert_array_equal(session.run(table), before)
        session.run(up, {ids: [0, 1]})


def test_types_that_do_not_agree(graph):
    x = static.placeholder(weft.float32, [])
    with pytest.raises(DTypeError, match=r"branches' results must agree.*int64\[2\]"):
        static.cond(x > 0, lambda: x, lambda: static.constant([1, 2]))
    with pytest.raises(DTypeError, match="what is carried must agree"):
        static.while_loop(lambda k: k < 3, lambda k: k + x, [0])
