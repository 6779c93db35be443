"""``func.rearrange`` and ``func.debug_unwrap``."""

import numpy as np
import pytest

import weft

X = weft.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("pattern", "sizes", "want"),
    [
        ("a b c -> c a b", {}, lambda x: x.transpose(2, 0, 1)),
        ("a b c -> a (b c)", {}, lambda x: x.reshape(2, 12)),
        ("a b (c d) -> (a d) b c", {"d": 2},
         lambda x: x.reshape(2, 3, 2, 2).transpose(0, 3, 1, 2).reshape(4, 3, 2)),
        ("a ... -> ... a", {}, lambda x: x.transpose(1, 2, 0)),
        ("a ... -> a (...)", {}, lambda x: x.reshape(2, 12)),
        ("a b c -> a 1 b c", {}, lambda x: x[:, None]),
    ],
)  # fmt: skip
def test_patterns(pattern, sizes, want):
    ours = weft.func.rearrange(X, pattern, **sizes)
    np.testing.assert_array_equal(ours, want(X.numpy()))


def test_a_list_is_stacked():
    ours = weft.func.rearrange([X, X], "l a b c -> a (l b) c")
    np.testing.assert_array_equal(ours, np.concatenate([X, X], axis=1))


@pytest.mark.parametrize(
    ("pattern", "sizes", "text"),
    [
        ("a b c", {}, "expected a pattern with '->'"),
        ("a b c -> a b", {}, "each name once on both sides"),
        ("a b -> b a", {}, "2 dimensions, the tensor has 3"),
        ("a b (c d) -> a b c d", {}, r"size of 4 does not tell \['c', 'd'\]"),
        ("a b (c d) -> a b c d", {"c": 3}, "does not tell"),
        ("a b c -> a b c", {"a": 5}, "is 2 in the tensor"),
        ("a (b c -> a b c", {}, "brackets"),
        ("a b c -> a b & c", {}, "no pattern of names"),
    ],
)
def test_wrong_patterns(pattern, sizes, text):
    with pytest.raises(RuntimeError, match=text):
        weft.func.rearrange(X, pattern, **sizes)


def test_values_inside_of_transforms():
    seen = []

    def f(x):
        seen.append(weft.func.debug_unwrap(x).shape)
        seen.append(type(weft.func.debug_unwrap(x, recurse=False)) is weft.Tensor)
        return x.sum()

    weft.vmap(weft.func.jacfwd(f))(weft.ones(3, 2))
    assert seen[-1] is False
    assert weft.func.debug_unwrap(X) is X
