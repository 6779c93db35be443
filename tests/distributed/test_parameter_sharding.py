"""Shares of parameter servers: complete, disjoint, balanced, the same every time."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.distributed.parameter_server.sharding import cut, initial_rows, summed

SIZES = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=8
)


@given(SIZES, st.integers(1, 7))
def test_pieces_cover_all_and_are_balanced(sizes, servers):
    named = {f"p{k}": one for k, one in enumerate(sizes)}
    shares = cut(named, servers)
    assert len(shares) == servers
    marks = {name: np.zeros(count, int) for name, (count, _) in named.items()}
    held = []
    for pieces in shares:
        for name, start, stop in pieces:
            assert start < stop
            marks[name][start:stop] += 1
        held.append(sum((stop - start) * named[n][1] for n, start, stop in pieces))
    assert all((mark == 1).all() for mark in marks.values())
    assert max(held) - min(held) <= 2 * 8  # an element at each end


@given(SIZES, st.integers(1, 7))
def test_pieces_are_in_the_order_of_parameters(sizes, servers):
    named = {f"p{k}": one for k, one in enumerate(sizes)}
    order = {name: k for k, name in enumerate(named)}
    every = [piece for pieces in cut(named, servers) for piece in pieces]
    assert every == sorted(every, key=lambda one: (order[one.name], one.start))


@given(st.lists(st.integers(-3, 9), max_size=30), st.integers(1, 3))
def test_rows_are_summed(rows, width):
    rows = np.array(rows, np.int64)
    values = np.random.default_rng(0).integers(-9, 9, (len(rows), width)).astype(float)
    found, sums = summed(rows, values)
    assert found.tolist() == sorted(set(rows.tolist()))
    for row, total in zip(found, sums, strict=True):
        assert total.tolist() == values[rows == row].sum(0).tolist()


@settings(max_examples=20)
@given(st.lists(st.integers(0, 2**62), max_size=9), st.integers(1, 9))
def test_first_values_depend_on_the_row_alone(rows, width):
    rows = np.array(rows, np.int64)
    every = initial_rows(rows, width, 0.5, 3)
    for k in range(len(rows)):
        assert (initial_rows(rows[k:], width, 0.5, 3)[0] == every[k]).all()


def test_first_values_are_normal():
    found = initial_rows(np.arange(20_000), 7, 2.0, 0)
    assert abs(found.mean()) < 0.02
    assert abs(found.std() - 2) < 0.02
    assert abs(np.corrcoef(found.T) - np.eye(7)).max() < 0.03
    assert abs((found**4).mean() / 2**4 - 3) < 0.1
    assert (initial_rows(np.arange(3), 2, 0.0, 0) == 0).all()
    other = initial_rows(np.arange(20_000), 7, 2.0, 1)
    assert abs(np.corrcoef(found[:, 0], other[:, 0])[0, 1]) < 0.03
