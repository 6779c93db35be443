"""``weft.masked`` beside NumPy's masked arrays."""

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError

X = np.random.default_rng(0).normal(size=(3, 4))
MASK = np.array([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 1, 0]], bool)
ARRAY = np.ma.array(X, mask=~MASK)


def ours(name, *args, **kwargs):
    out = getattr(weft.masked, name)(
        weft.tensor(X), *args, mask=weft.tensor(MASK), **kwargs
    )
    return out.numpy()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "median", "amax", "amin"])
def test_reductions(name, dim):
    function = {"amax": "max", "amin": "min"}.get(name, name)
    whole = getattr(np.ma, function)(ARRAY, axis=dim)
    if name == "median":  # PyTorch's is the lower of two
        rows = ARRAY.T if dim == 0 else ARRAY
        whole = [np.sort(r.compressed())[(r.count() - 1) // 2] for r in rows]
    np.testing.assert_allclose(ours(name, dim), whole)


def test_spread_norms_and_arguments():
    np.testing.assert_allclose(ours("var", 1, unbiased=False), ARRAY.var(1))
    np.testing.assert_allclose(ours("std", None), ARRAY.std(ddof=1))
    np.testing.assert_allclose(ours("norm", 2, 0), np.sqrt((ARRAY**2).sum(0)))
    np.testing.assert_array_equal(ours("argmax", 1), ARRAY.argmax(1))
    np.testing.assert_array_equal(ours("argmin", 0), ARRAY.argmin(0))
    np.testing.assert_allclose(ours("cumsum", 0), ARRAY.filled(0).cumsum(0))
    np.testing.assert_allclose(ours("cumprod", 1), ARRAY.filled(1).cumprod(1))


def test_softmax_and_its_relatives():
    e = np.where(MASK, np.exp(X), 0)
    np.testing.assert_allclose(ours("softmax", 1), e / e.sum(1, keepdims=True))
    np.testing.assert_allclose(np.exp(ours("log_softmax", 1)), ours("softmax", 1))
    np.testing.assert_allclose(ours("logsumexp", 1), np.log(e.sum(1)))
    size = np.sqrt((ARRAY.filled(0) ** 2).sum(1, keepdims=True))
    np.testing.assert_allclose(ours("normalize", 2, 1), ARRAY.filled(0) / size)


def test_nothing_kept():
    x, none = weft.tensor([1.0, 2.0]), weft.tensor([False, False])
    assert weft.masked.sum(x, mask=none) == 0
    assert weft.masked.prod(x, mask=none) == 1
    assert weft.masked.mean(x, mask=none).isnan()
    assert weft.masked.amax(x, mask=none) == -weft.inf
    with pytest.raises(ArgumentError, match="pass dtype"):
        weft.masked.mean(weft.arange(3))


def test_gradients_reach_the_kept_elements_alone():
    x = weft.tensor(X, requires_grad=True)
    weft.masked.mean(x, mask=weft.tensor(MASK)).backward()
    np.testing.assert_allclose(x.grad, MASK / MASK.sum())
