"""Numbers that an integer dtype cannot hold are errors, as in PyTorch; sums wrap."""

import pytest

import weft
from weft import nn
from weft.errors import ArgumentError

X = weft.tensor([5, 200], dtype=weft.uint8)
MASK = weft.tensor([True, False])
FIRST = weft.tensor([0])

STORED = {
    "fill_": lambda x, v: x.clone().fill_(v),
    "setitem": lambda x, v: x.clone().__setitem__(0, v),
    "masked setitem": lambda x, v: x.clone().__setitem__(MASK, v),
    "masked_fill": lambda x, v: x.masked_fill(MASK, v),
    "masked_fill_": lambda x, v: x.clone().masked_fill_(MASK, v),
    "index_fill": lambda x, v: x.index_fill(0, FIRST, v),
    "scatter": lambda x, v: x.scatter(0, FIRST, v),
    "pad": lambda x, v: nn.functional.pad(x, (1, 1), value=v),
    "full": lambda x, v: weft.full((2,), v, dtype=x.dtype),
    "full_like": lambda x, v: weft.full_like(x, v),
    "new_full": lambda x, v: x.new_full((2,), v),
}
KEEPS_FLOATS = {
    "where": lambda x, v: weft.where(MASK, x, v),
    "clamp": lambda x, v: x.clamp(max=v),
    "clamp_min": lambda x, v: x.clamp_min(v),
}


@pytest.mark.parametrize("value", [300, 2**40, float("nan"), float("inf"), -400.0])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", [*STORED, *KEEPS_FLOATS])
def test_a_number_that_does_not_fit_is_refused(name, compiled, value):
    fn = {**STORED, **KEEPS_FLOATS}[name]
    if name in KEEPS_FLOATS and isinstance(value, float):
        assert fn(X, value).dtype is weft.float32
        return
    run = weft.compile(fn) if compiled else fn
    with pytest.raises(ArgumentError, match=r"does not fit into uint8 \(0 to 255\)"):
        run(X, value)


@pytest.mark.parametrize("name", STORED)
def test_fractions_are_cut_and_negative_numbers_wrap_in_unsigned_dtypes(name):
    def values(v):
        out = STORED[name](X, v)
        return None if out is None else out.tolist()

    assert values(2.5) == values(2)
    assert values(-1) == values(255)
    assert weft.compile(STORED[name])(X, -1) is None or (
        weft.compile(STORED[name])(X, -1).tolist() == values(-1)
    )


def test_arithmetic_and_comparisons_wrap():
    assert (X + 300).tolist() == [49, 244]
    assert (X * 1000).tolist() == [136, 64]
    assert (X == 300).tolist() == [False, False]
    assert weft.full((1,), 300, dtype=weft.bool).tolist() == [True]
