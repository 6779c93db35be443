"""Reading and writing by index, against NumPy where it agrees with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft


@st.composite
def basic_item(draw: Any, size: int) -> Any:
    kind = draw(st.sampled_from(["int", "slice", "all"]))
    if kind == "int" and size:
        return draw(st.integers(-size, size - 1))
    if kind == "slice":
        bounds = st.one_of(st.none(), st.integers(-size - 1, size + 1))
        return slice(draw(bounds), draw(bounds), draw(st.sampled_from([None, 1, 2])))
    return slice(None)


@st.composite
def advanced_item(draw: Any, size: int, shape: tuple[int, ...]) -> Any:
    if size == 0:
        return np.zeros((0,) * len(shape), np.int64)
    values = st.integers(-size, size - 1)
    count = int(np.prod(shape))
    return np.array(draw(st.lists(values, min_size=count, max_size=count))).reshape(
        shape
    )


@st.composite
def indexed(draw: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape and an index of ints, slices, None, ..., index arrays and masks.

    Ints beside index arrays are left out where NumPy and PyTorch place the
    result's axes differently (a slice between them).
    """
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    used = draw(st.integers(0, len(shape)))
    arrays = draw(st.booleans())
    common = draw(st.sampled_from([(2,), (1,), (2, 2), (3,)]))
    items: list[Any] = []
    for size in shape[:used]:
        if arrays and draw(st.booleans()):
            items.append(draw(advanced_item(size, common)))
        elif (
            arrays
            and draw(st.integers(0, 9)) == 0
            and not any(isinstance(i, np.ndarray) for i in items)
        ):
            mask = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            items.append(np.array(mask))
            arrays = False
        elif arrays:
            items.append(slice(None))
        else:
            items.append(draw(basic_item(size)))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), None)
    if used < len(shape) and draw(st.booleans()):
        items.append(Ellipsis)
    if any(isinstance(i, np.ndarray) for i in items):
        items = [slice(i, i + 1 or None) if type(i) is int else i for i in items]
    return shape, tuple(items)


def ours(items: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(weft.tensor(i) if isinstance(i, np.ndarray) else i for i in items)


@settings(max_examples=200, deadline=None)
@given(indexed())
def test_reading_as_numpy(case: Any) -> None:
    shape, items = case
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    expected = array[items]
    got = weft.tensor(array)[ours(items)]
    assert got.shape == expected.shape
    assert np.array_equal(got.numpy(), expected)


@settings(max_examples=150, deadline=None)
@given(indexed(), st.booleans())
def test_writing_as_numpy(case: Any, scalar: bool) -> None:
    shape, items = case
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    x = weft.tensor(array)
    region = array[items]
    value = -1.0 if scalar else np.full(region.shape, -2.0)
    array[items] = value
    x[ours(items)] = value if scalar else weft.tensor(value)
    assert np.array_equal(x.numpy(), array)


@settings(max_examples=60, deadline=None)
@given(indexed(), st.integers(0, 99))
def test_gradient_of_reading_counts_every_use(case: Any, seed: int) -> None:
    shape, items = case
    x = weft.zeros(shape, dtype=weft.float64, requires_grad=True)
    out = x[ours(items)]
    weights = np.random.default_rng(seed).normal(size=out.shape)
    (out * weft.tensor(weights)).sum().backward()
    expected = np.zeros(shape)
    places = np.arange(np.prod(shape)).reshape(shape)[items]
    np.add.at(expected.reshape(-1), places.reshape(-1), weights.reshape(-1))
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(indexed(), st.integers(0, 99))
def test_gradient_of_writing(case: Any, seed: int) -> None:
    """What was overwritten gets no gradient; the value gets what it reached."""
    shape, items = case
    rng = np.random.default_rng(seed)
    x = weft.tensor(rng.normal(size=shape), requires_grad=True)
    places = np.arange(np.prod(shape)).reshape(shape)[items]
    if len(np.unique(places)) != places.size:
        return  # which of two writes stays is not defined
    value = weft.tensor(rng.normal(size=places.shape), requires_grad=True)
    y = x * 1
    y[ours(items)] = value
    weights = rng.normal(size=shape)
    (y * weft.tensor(weights)).sum().backward()
    left = weights.copy().reshape(-1)
    left[places.reshape(-1)] = 0
    kept = weft.zeros(shape) if x.grad is None else x.grad  # None: all overwritten
    np.testing.assert_allclose(kept.numpy(), left.reshape(shape))
    reached = weights.reshape(-1)[places.reshape(-1)].reshape(places.shape)
    np.testing.assert_allclose(value.grad.numpy(), reached)


# -- single points


def test_views_and_copies() -> None:
    x = weft.arange(12.0).reshape(3, 4)
    for view in (x[0], x[:, 1:], x[None], x[...], x[()], x[::2], x[True]):
        assert np.shares_memory(view.numpy(), x.numpy())
    for copy in (x[[0, 1]], x[x > 3], x[weft.tensor([0])], x[:, [1]]):
        assert not np.shares_memory(copy.numpy(), x.numpy())


def test_single_booleans_add_an_axis() -> None:
    x = weft.arange(6).reshape(2, 3)
    assert x[True].shape == (1, 2, 3)
    assert x[False].shape == (0, 2, 3)
    assert x[weft.tensor(True)].shape == (1, 2, 3)
    y = x.clone()
    y[False] = 9
    assert weft.equal(x, y)
    y[True] = 9
    assert (y == 9).all()


def test_empty_lists() -> None:
    x = weft.arange(6).reshape(2, 3)
    assert x[[]].shape == (0, 3)
    assert x[:, []].shape == (2, 0)
    assert x[weft.zeros(2, dtype=weft.bool)].shape == (0, 3)
    x[[]] = 5
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_0d_index_tensors_are_ints() -> None:
    x = weft.arange(6).reshape(2, 3)
    assert x[weft.tensor(1)].tolist() == [3, 4, 5]
    assert np.shares_memory(x[weft.tensor(1)].numpy(), x.numpy())
    assert x[weft.tensor(0) :, weft.tensor(2)].tolist() == [2, 5]


def test_separated_index_tensors_go_first() -> None:
    w = weft.zeros(2, 3, 4, 5)
    a = weft.tensor([0, 1, 0])
    assert w[a, :, a].shape == (3, 3, 5)
    assert w[:, a, a].shape == (2, 3, 5)
    assert w[:, a, :, a].shape == (3, 2, 4)
    assert w[0, :, a].shape == (3, 3, 5)  # the int is used up first, as in PyTorch


def test_masks_over_several_axes() -> None:
    w = weft.arange(24).reshape(2, 3, 4)
    mask = w[..., 0] > 5
    assert w[mask].tolist() == w.numpy()[mask.numpy()].tolist()
    w[mask] = weft.tensor([1, 2, 3, 4])
    assert (w[mask] == weft.tensor([1, 2, 3, 4])).all()


def test_repeated_indices() -> None:
    x = weft.zeros(3)
    x[weft.tensor([0, 0])] += 1  # read once, written twice
    assert x.tolist() == [1, 0, 0]
    x.index_put_((weft.tensor([0, 0]),), weft.tensor(1.0), accumulate=True)
    assert x.tolist() == [3, 0, 0]
    assert x.index_add(0, weft.tensor([2, 2]), weft.ones(2)).tolist() == [3, 0, 2]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda x: x.__setitem__(slice(1, None), x[:-1]), [0, 0, 1, 2]),
        (lambda x: x.__setitem__(slice(None, -1), x[1:]), [1, 2, 3, 3]),
        (lambda x: x[1:].copy_(x[:-1]), [0, 0, 1, 2]),
        (lambda x: x[1:].add_(x[:-1]), [0, 1, 3, 5]),
        (lambda x: x[1:].mul_(x[:-1]), [0, 0, 2, 6]),
        (lambda x: x.copy_(x.flip(0)), [3, 2, 1, 0]),
        (lambda x: x.view(2, 2).copy_(x.view(2, 2).t()), [0, 2, 1, 3]),
        (lambda x: x.__setitem__([0, 1], x[[1, 0]]), [1, 0, 2, 3]),
        (lambda x: x[:2].add_(x[2:]), [2, 4, 2, 3]),
    ],
)
def test_overlapping_writes_read_first(write: Any, expected: list[float]) -> None:
    x = weft.arange(4.0)
    write(x)
    assert x.tolist() == expected


def test_value_conversion() -> None:
    x = weft.zeros(2, 3, dtype=weft.int64)
    x[0] = 2.9
    x[1] = weft.tensor([1.5, 2.5, -3.5])
    assert x.tolist() == [[2, 2, 2], [1, 2, -3]]
    x[:, 0] = weft.tensor([[7, 8]])
    assert x[:, 0].tolist() == [7, 8]
    x[0] = [1, 2, 3]
    x[1] = np.array([4, 5, 6])
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_gather_family_by_loops() -> None:
    rng = np.random.default_rng(0)
    x = weft.tensor(rng.normal(size=(3, 4)))
    ids = weft.tensor(rng.integers(0, 4, (3, 2)))
    picked = x.gather(1, ids)
    for i in range(3):
        for j in range(2):
            assert picked[i, j].item() == x[i, ids[i, j].item()].item()
    assert weft.equal(x.take_along_dim(x.argsort(1), 1), x.sort(1).values)
    assert x.take(weft.tensor([-1])).item() == x[2, 3].item()
    assert weft.equal(x.index_select(1, weft.tensor([3, 3]))[:, 0], x[:, 3])
    assert weft.equal(x.masked_scatter(x > 9, x), x)


def test_masked_scatter_takes_in_order() -> None:
    mask = weft.tensor([[True, False], [True, True]])
    out = weft.zeros(2, 2).masked_scatter(mask, weft.tensor([5.0, 6.0, 7.0, 8.0]))
    assert out.tolist() == [[5, 0], [6, 7]]


def test_diagonal_is_a_view() -> None:
    x = weft.zeros(3, 3)
    x.diagonal().fill_(2)
    x.diagonal(1)[0] = 5
    assert x.tolist() == [[2, 5, 0], [0, 2, 0], [0, 0, 2]]
    assert x.fill_diagonal_(7).trace().item() == 21
    tall = weft.zeros(5, 2)
    assert tall.fill_diagonal_(1, wrap=True)[:, 0].tolist() == [1, 0, 0, 1, 0]
