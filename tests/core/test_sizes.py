"""Symbolic sizes: whatever they are simplified to is the same number."""

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from weft.core.size import (
    Scope,
    below,
    evaluate,
    larger,
    may_be_negative,
    same,
    slice_bounds,
    slice_length,
    smaller,
)


def scope_with(bounds):
    """A scope of positions below some bounds, and one open size."""
    scope = Scope()
    found = {}
    for name, bound in bounds.items():
        scope.bounds[name] = bound
        found[name] = scope.symbol(name)
    found["B"] = scope.symbol("B", 5)
    return found


expressions = st.recursive(
    st.sampled_from(["i", "j", "B", -128, -7, -1, 0, 1, 3, 64]),
    lambda inner: st.tuples(
        st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner
    ),
    max_leaves=6,
)


def built(tree, leaves):
    if not isinstance(tree, tuple):
        return leaves.get(tree, tree)
    kind, a, b = tree
    x, y = built(a, leaves), built(b, leaves)
    if kind == "min":
        return smaller(x, y)
    if kind == "max":
        return larger(x, y)
    return x + y if kind == "+" else x - y if kind == "-" else x * y


def plain(tree, sizes):
    if not isinstance(tree, tuple):
        return sizes.get(tree, tree)
    kind, a, b = tree
    x, y = plain(a, sizes), plain(b, sizes)
    if kind in ("min", "max"):
        return min(x, y) if kind == "min" else max(x, y)
    return x + y if kind == "+" else x - y if kind == "-" else x * y


PLACES = [
    dict(zip("ijB", values, strict=True))
    for values in itertools.product((0, 1, 31, 63), (0, 2, 3), (0, 1, 5, 9))
]


@given(expressions, st.sampled_from([2, 3, 4, 32, 64]))
def test_what_is_simplified_is_the_same_number(tree, divisor):
    size = built(tree, scope_with({"i": 64, "j": 4}))
    quotient, rest = size // divisor, size % divisor
    for sizes in PLACES:
        want = plain(tree, sizes)
        assert evaluate(size, sizes) == want
        assert evaluate(quotient, sizes) == want // divisor
        assert evaluate(rest, sizes) == want % divisor


@given(expressions, st.sampled_from([1, 4, 32, 64, 200]))
def test_what_is_proved_to_be_below_is(tree, limit):
    size = built(tree, scope_with({"i": 64, "j": 4}))
    if below(size, limit):
        assert all(0 <= plain(tree, sizes) < limit for sizes in PLACES)


@pytest.mark.parametrize("offset", [-128, -64, -1, 0, 1, 32])
def test_positions_in_blocks(offset):
    leaves = scope_with({"i": 64, "j": 4})
    position = 64 * leaves["j"] + leaves["i"] + offset
    for i, j in itertools.product(range(64), range(4)):
        sizes = {"i": i, "j": j, "B": 5}
        assert evaluate(position // 32, sizes) == (64 * j + i + offset) // 32
        assert evaluate(position % 32, sizes) == (64 * j + i + offset) % 32


ENDS = [None, 0, 1, 3, 7, -1, -2, -6]


@pytest.mark.parametrize("step", [None, 1, 2, 3, -1, -2, -3])
def test_slices_take_what_pythons_do(step):
    size = Scope().symbol("B", 5)
    for start, stop in itertools.product(ENDS, ENDS):
        item = slice(start, stop, step)
        bounds = slice_bounds(item, size)
        for n in range(9):
            sizes = {"B": n}
            want = range(n)[item]
            assert evaluate(slice_length(*bounds), sizes) == len(want)
            if len(want):
                assert evaluate(bounds[0], sizes) == want[0]


def test_what_ends_at_a_size_takes_no_more_of_it():
    n, m = map(Scope().symbol, "nm")
    assert same(smaller(smaller(1, n), n), smaller(1, n))
    assert same(larger(n - smaller(m, n), 0), n - smaller(m, n))
    assert same(larger(larger(n, 3), 2), larger(n, 3))
    assert not may_be_negative(n - smaller(n, 4))
    assert may_be_negative(n - smaller(m, 4))
    assert may_be_negative(n - larger(n, 4))


def test_polynomials_divide_without_rest_or_not_at_all():
    n, m = map(Scope().symbol, "nm")
    gap = n - smaller(1, n)
    for factors in itertools.product([gap, n + m, 2 * n - 3, m], repeat=2):
        product = factors[0] * factors[1]
        for factor, other in (factors, factors[::-1]):
            assert same(product // factor, other)
            assert same(product % factor, 0)
            rest = (product + 1) % factor
            assert evaluate(rest, {"n": 5, "m": 4}) == 1


def test_the_larger_and_the_smaller_are_both():
    n, m = map(Scope().symbol, "nm")
    assert same(larger(n - 1, 0) + smaller(1, n), n)
    assert same(smaller(n, m) + larger(m, n), n + m)
    assert same(2 * larger(n, 3) + m + 2 * smaller(3, n), 2 * n + m + 6)
    assert not same(larger(n, 3) + 2 * smaller(n, 3), n + 3)
    assert not same(larger(n, 3) + smaller(n, 4), n + 4)
