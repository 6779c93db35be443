"""uint16, uint32 and uint64: like the other whole numbers, everywhere."""

import io

import numpy as np
import pytest

import weft
from weft import dtype as dtypes
from weft.errors import DTypeError
from weft.ops.copies import _wrapped

KINDS = pytest.mark.parametrize(
    "kind", [weft.uint8, weft.uint16, weft.uint32, weft.uint64], ids=lambda d: d.name
)
WHOLE = [d for d in dtypes.ALL if d.category == dtypes.INT]


@pytest.mark.parametrize("a", WHOLE, ids=lambda d: d.name)
@pytest.mark.parametrize("b", WHOLE, ids=lambda d: d.name)
def test_promotion_is_numpys_where_whole_numbers_hold_both(a, b):
    want = np.promote_types(a.np, b.np)
    if want.kind == "f":
        with pytest.raises(DTypeError, match=r"none holds both; convert one"):
            weft.promote_types(a, b)
    else:
        assert weft.promote_types(a, b).np == want


@KINDS
def test_promotion_with_other_categories(kind):
    x = weft.tensor([1, 2], dtype=kind)
    assert (x + 1).dtype is kind
    assert (x + True).dtype is kind
    assert (x & weft.tensor([True, False])).dtype is kind
    assert (x + 1.5).dtype is weft.float32
    assert (x * weft.ones(2, dtype=weft.float16)).dtype is weft.float16
    assert (x + 1j).dtype is weft.complex64
    assert (x / 2).dtype is weft.float32
    assert x.sum().dtype is weft.int64
    assert not x.dtype.is_signed


@KINDS
def test_arithmetic_wraps_around(kind):
    most = np.iinfo(kind.np).max
    x = weft.tensor([most, 0], dtype=kind)
    assert (x + 1).tolist() == [0, 1]
    assert (x - 1).tolist() == [most - 1, most]
    assert (-weft.ones(1, dtype=kind)).tolist() == [most]
    assert (x // 2).tolist() == [most // 2, 0]
    assert (x >> 1).tolist() == [most >> 1, 0]
    assert x.max().item() == most
    assert (x > 5).tolist() == [True, False]
    assert weft.tensor([5], dtype=kind).item() == 5


@KINDS
def test_numbers_that_do_not_fit_are_refused(kind):
    most = np.iinfo(kind.np).max
    with pytest.raises(weft.errors.WeftError, match=r"does not fit|too large|out of"):
        weft.tensor([-1], dtype=kind)
    if kind is not weft.uint64:
        with pytest.raises(weft.errors.ArgumentError, match="does not fit"):
            weft.tensor([most + 1], dtype=kind)


@KINDS
def test_casts_agree_with_numpy_compiled_too(kind):
    most = int(np.iinfo(kind.np).max)
    numbers = np.array([0, 1, 200, most // 2 + 7, most], kind.np)
    kinds = [d for d in dtypes.ALL if not d.is_complex]
    x = weft.tensor(numbers)

    def casts(x):
        return [x.to(d) for d in kinds]

    for found in (casts(x), weft.compile(casts)(x)):
        for got, d in zip(found, kinds, strict=True):
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(got.numpy(), numbers.astype(d.np))
    reals = np.array([0.0, 1.7, 200.0, float(most // 2 + 1)])
    back = weft.compile(lambda y: y.to(kind))(weft.tensor(reals))
    np.testing.assert_array_equal(back.numpy(), reals.astype(kind.np))


@KINDS
def test_sorting_and_searching_of_large_numbers(kind):
    numbers = np.random.default_rng(0).integers(
        0, np.iinfo(kind.np).max, 3000, kind.np, endpoint=True
    )
    x = weft.tensor(numbers)

    def order(x):
        return x.sort().values, x.argmax(), x.topk(5).values

    for found in (order(x), weft.compile(order)(x)):
        np.testing.assert_array_equal(found[0].numpy(), np.sort(numbers))
        assert found[1].item() == numbers.argmax()
        np.testing.assert_array_equal(found[2].numpy(), np.sort(numbers)[:-6:-1])


@KINDS
def test_as_an_index(kind):
    x = weft.arange(10.0)
    assert x.index_select(0, weft.tensor([7, 2], dtype=kind)).tolist() == [7, 2]
    assert weft.one_hot(weft.tensor([1], dtype=kind), 3).tolist() == [[0, 1, 0]]


@KINDS
def test_files_and_other_libraries(kind):
    x = weft.tensor([1, 2, 3], dtype=kind)
    file = io.BytesIO()
    weft.save({"x": x}, file)
    found = weft.load(io.BytesIO(file.getvalue()))["x"]
    assert found.dtype is kind
    assert found.tolist() == [1, 2, 3]
    assert x.numpy().dtype == kind.np
    assert weft.from_numpy(x.numpy()).dtype is kind
    assert np.from_dlpack(x).dtype == kind.np
    assert weft.from_dlpack(np.ones(2, kind.np)).dtype is kind
    assert repr(x) == f"tensor([1, 2, 3], dtype=weft.{kind.name})"
    assert weft.iinfo(kind).max == np.iinfo(kind.np).max


@KINDS
def test_creation_and_programs(kind):
    for made in (
        weft.zeros(2, dtype=kind), weft.arange(2, dtype=kind),
        weft.full((2,), 1, dtype=kind), weft.randint(0, 9, (2,), dtype=kind),
        weft.empty(2, dtype=kind),
    ):  # fmt: skip
        assert made.dtype is kind
    x = weft.tensor([3, 5], dtype=kind)
    captured = weft.graph.capture(lambda x: x * x + 1, x)
    assert captured(x).tolist() == [10, 26]
    assert weft.func.vmap(lambda x: x * x)(x).dtype is kind
    with weft.static.Graph().as_default(), weft.static.Session() as session:
        place = weft.static.placeholder(kind, [2])
        assert session.run(place * 2, {place: x}).tolist() == [6, 10]


def test_the_array_api_sums_unsigned_numbers_unsigned():
    xp = weft.array_api
    x = weft.tensor([200, 100], dtype=weft.uint8)
    for fn in (xp.sum, xp.prod, xp.cumulative_sum, xp.cumulative_prod):
        assert fn(x).dtype is weft.uint64
    assert xp.sum(x).item() == 300


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@KINDS
def test_numbers_below_zero_wrap(dtype, kind):
    """On machines whose casts make 0 of them too."""
    numbers = np.array([0.0, -1.0, 2.0, -100.0])
    x = weft.tensor(numbers).to(getattr(weft, dtype))
    want = numbers.astype(np.int64).astype(kind.np)
    np.testing.assert_array_equal(x.to(kind).numpy(), want)
    np.testing.assert_array_equal(_wrapped(x.numpy(), kind), want)


def test_the_largest_whole_numbers_are_cast():
    x = np.array([2.0**63, 2.0**64 - 2048, -1.0])
    want = np.array([2**63, 2**64 - 2048, 2**64 - 1], np.uint64)
    np.testing.assert_array_equal(_wrapped(x, weft.uint64), want)
