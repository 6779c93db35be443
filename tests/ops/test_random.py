"""Random numbers: the published Philox vectors, statistics, and state."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from weft.ops.random import philox, random_words

FULL = 0xFFFFFFFF
# Known-answer vectors of the Random123 distribution for philox4x32-10.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (FULL, FULL, FULL, FULL), (FULL, FULL),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_philox_known_answers(counter: tuple, key: tuple, expected: tuple) -> None:
    words = philox(tuple(np.uint64(c) for c in counter), key)
    assert tuple(int(w) for w in words) == expected


def test_words_are_philox_blocks() -> None:
    first = random_words(0, 0, 4)
    assert [int(w) for w in first] == list(VECTORS[0][2])
    assert np.array_equal(random_words(9, 5, 8), random_words(9, 0, 28)[20:])
    high = random_words(1, 2**32 - 1, 8)
    carried = philox((np.uint64(0), np.uint64(1), np.uint64(0), np.uint64(0)), (1, 0))
    assert [int(w) for w in high[4:]] == [int(w) for w in carried]


N = 20000


def within(values: np.ndarray, mean: float, variance: float, fourth: float) -> None:
    """Mean and variance of n draws lie within four standard errors."""
    n = values.size
    assert abs(values.mean() - mean) < 4 * math.sqrt(variance / n)
    spread = math.sqrt((fourth - variance**2) / n)
    assert abs(values.var() - variance) < 4 * spread


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_moments(name: str) -> None:
    g = weft.Generator().manual_seed(1)
    x = weft.rand(N, generator=g, dtype=name)
    assert x.dtype.name == name
    values = x.double().numpy()
    assert values.min() >= 0
    assert values.max() < 1
    step = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(name, 0.0)
    within(values + step / 2, 0.5, 1 / 12, 1 / 80)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_normal_moments(name: str) -> None:
    g = weft.Generator().manual_seed(2)
    x = weft.randn(N, generator=g, dtype=name)
    assert x.dtype.name == name
    values = x.double().numpy()
    assert np.isfinite(values).all()
    within(values, 0, 1, 3)
    shares = [np.mean(np.abs(values) < k) for k in (1, 2, 3)]
    for share, p in zip(shares, (0.682689, 0.954500, 0.997300), strict=True):
        # a half's spacing near k moves the share by less than 0.01
        slack = 0.01 if name in ("float16", "bfloat16") else 0
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / N) + slack


@pytest.mark.parametrize(
    "name", ["uint8", "int8", "int16", "int32", "int64", "float32"]
)
def test_integers_are_even(name: str) -> None:
    g = weft.Generator().manual_seed(3)
    x = weft.randint(2, 12, (N,), generator=g, dtype=name)
    assert x.dtype.name == name
    counts = np.bincount(x.long().numpy(), minlength=12)
    assert counts[:2].sum() == 0
    chi = ((counts[2:] - N / 10) ** 2 / (N / 10)).sum()
    assert chi < 9 + 4 * math.sqrt(18)  # mean 9, variance 18


def test_wide_integers() -> None:
    x = weft.randint(-(2**62), 2**62, (1000,))
    assert x.min().item() < -(2**60)
    assert x.max().item() > 2**60


def test_normal_with_parameters() -> None:
    weft.manual_seed(4)
    x = weft.normal(3.0, 2.0, (N,)).double().numpy()
    within((x - 3) / 2, 0, 1, 3)
    mean, std = weft.tensor([0.0, 100.0]), weft.tensor([1.0, 0.0])
    assert weft.normal(mean, std)[1].item() == 100
    assert weft.normal(mean, 0.0).tolist() == [0, 100]


def test_bernoulli_frequency() -> None:
    weft.manual_seed(5)
    for p in (0.0, 0.1, 0.5, 1.0):
        x = weft.bernoulli(weft.full((N,), p))
        assert set(x.tolist()) <= {0.0, 1.0}
        assert abs(x.mean().item() - p) <= 4 * math.sqrt(p * (1 - p) / N)


def test_multinomial_frequencies() -> None:
    weft.manual_seed(6)
    weights = weft.tensor([0.0, 1.0, 3.0, 0.0, 4.0])
    drawn = weft.multinomial(weights, N, replacement=True)
    counts = np.bincount(drawn.numpy(), minlength=5)
    for count, p in zip(counts, (0, 1 / 8, 3 / 8, 0, 1 / 2), strict=True):
        assert abs(count - N * p) <= 4 * math.sqrt(N * p * (1 - p))


def test_multinomial_without_replacement() -> None:
    weft.manual_seed(7)
    weights = weft.tensor([1.0, 3.0, 0.0, 4.0]).expand(4000, 4)
    drawn = weft.multinomial(weights, 3).numpy()
    assert all(sorted(row) == [0, 1, 3] for row in drawn.tolist())
    for k, p in ((0, 1 / 8), (1, 3 / 8), (3, 1 / 2)):
        share = np.mean(drawn[:, 0] == k)
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / 4000)


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_randperm_is_a_permutation(n: int) -> None:
    x = weft.randperm(n)
    assert x.dtype is weft.int64
    assert sorted(x.tolist()) == list(range(n))


def test_randperm_is_even() -> None:
    weft.manual_seed(8)
    firsts = np.array([weft.randperm(4)[0].item() for _ in range(2000)])
    counts = np.bincount(firsts, minlength=4)
    assert np.abs(counts - 500).max() < 4 * math.sqrt(2000 * 0.25 * 0.75)


def test_same_seed_same_numbers() -> None:
    weft.manual_seed(42)
    a = weft.rand(10), weft.randn(3, 3), weft.randint(9, (5,)), weft.randperm(6)
    weft.manual_seed(42)
    b = weft.rand(10), weft.randn(3, 3), weft.randint(9, (5,)), weft.randperm(6)
    assert all(weft.equal(x, y) for x, y in zip(a, b, strict=True))
    weft.manual_seed(43)
    assert not weft.equal(a[0], weft.rand(10))


def test_draws_do_not_overlap() -> None:
    g = weft.Generator().manual_seed(0)
    drawn = weft.cat([weft.rand(7, generator=g, dtype=weft.float64) for _ in range(50)])
    assert drawn.unique().numel() == drawn.numel()


def test_state_is_saved_and_restored() -> None:
    weft.manual_seed(3)
    weft.rand(5)
    state = weft.get_rng_state()
    a = weft.randn(4)
    weft.rand(100)
    weft.set_rng_state(state)
    assert weft.equal(a, weft.randn(4))
    big = weft.Generator().manual_seed(2**64 - 1)
    twin = weft.Generator().set_state(big.get_state())
    assert weft.equal(weft.rand(4, generator=big), weft.rand(4, generator=twin))


def test_generators_are_independent() -> None:
    a, b = weft.Generator().manual_seed(1), weft.Generator().manual_seed(1)
    first = weft.rand(3, generator=a)
    weft.manual_seed(99)
    weft.rand(50)
    assert weft.equal(first, weft.rand(3, generator=b))
    assert a.initial_seed() == 1
    c = weft.Generator()
    assert c.seed() == c.initial_seed()


def test_neighbouring_seeds_are_uncorrelated() -> None:
    x, y = (
        weft.randn(N, generator=weft.Generator().manual_seed(s)).numpy() for s in (0, 1)
    )
    assert abs(np.corrcoef(x, y)[0, 1]) < 4 / math.sqrt(N)


def _job(k: int) -> list[float]:
    return weft.rand(4, generator=weft.Generator().manual_seed(k)).tolist()


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_threads_do_not_matter(workers: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        assert list(pool.map(_job, range(20))) == [_job(k) for k in range(20)]


def test_threads_share_a_generator_without_repeating() -> None:
    g = weft.Generator().manual_seed(0)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: weft.rand(8, generator=g).tolist(), range(40)))
    flat = sorted(v for part in parts for v in part)
    again = weft.Generator().manual_seed(0)
    expected = [weft.rand(8, generator=again).tolist() for _ in range(40)]
    assert flat == sorted(v for part in expected for v in part)


def test_in_place_fills() -> None:
    weft.manual_seed(0)
    x = weft.zeros(N)
    assert x.uniform_(2, 4) is x
    assert x.min().item() >= 2
    assert x.max().item() < 4
    within((x.double().numpy() - 2) / 2, 0.5, 1 / 12, 1 / 80)
    within(x.normal_(1, 3).double().numpy() / 3 - 1 / 3, 0, 1, 3)
    within(x.exponential_(2.0).double().numpy() * 2, 1, 1, 9)
    assert set(x.random_(3, 6).tolist()) == {3, 4, 5}
    assert abs(x.bernoulli_(0.25).mean().item() - 0.25) < 4 * math.sqrt(0.1875 / N)


def test_like() -> None:
    x = weft.zeros(2, 3, dtype=weft.float64)
    for made in (weft.rand_like(x), weft.randn_like(x), weft.randint_like(x, 5)):
        assert made.shape == (2, 3)
        assert made.dtype is weft.float64


def test_vmap_randomness() -> None:
    x = weft.zeros(3)
    same = weft.func.vmap(lambda v: v + weft.rand(()), randomness="same")(x)
    assert same.unique().numel() == 1
    other = weft.func.vmap(lambda v: v + weft.rand(()), randomness="different")(x)
    assert other.unique().numel() == 3


@pytest.mark.parametrize("given", ["x", 0, [], weft.ones(2)])
def test_a_generator_is_one_of_ours_or_none(given):
    for draw in (weft.rand, weft.randn, weft.randperm):
        with pytest.raises(weft.errors.DTypeError, match="Generator"):
            draw(2, generator=given)
    with pytest.raises(weft.errors.DTypeError, match="Generator"):
        weft.poisson(weft.ones(2), given)
