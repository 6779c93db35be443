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


@pytest.mark.parametrize("name", [*STORED, "tensor"])
def test_a_number_that_is_an_input_of_the_program_is_checked_in_each_run(name):
    fn = STORED.get(name, lambda x, v: weft.tensor(v, dtype=x.dtype))
    run = weft.compile(fn)
    for value in (1.0, 2.0, 255.0):  # after the first, it is an input
        want, found = fn(X, value), run(X, value)
        assert want is found is None or found.tolist() == want.tolist()
    for value in (300.5, 2.0**40, float("nan"), -float("inf"), -1.5):
        for call in (fn, run):
            with pytest.raises(ArgumentError, match=r"does not fit into uint8"):
                call(X, value)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: [1.5, v]])
def test_tensors_of_numbers_that_do_not_fit(dtype, wrap):
    dtype = getattr(weft, dtype)
    highest = weft.iinfo(dtype).max
    for value in (float(highest) * 2, float(2**64), -(2.0**70), float("nan")):
        with pytest.raises(ArgumentError, match=r"tensor: .* does not fit into"):
            weft.tensor(wrap(value), dtype=dtype)
    with pytest.raises(ArgumentError, match=r"tensor: .* does not fit into"):
        weft.tensor(wrap(highest + 1), dtype=dtype)
    assert weft.tensor(wrap(2.7), dtype=dtype).flatten()[-1].item() == 2


def test_arithmetic_and_comparisons_wrap():
    assert (X + 300).tolist() == [49, 244]
    assert (X * 1000).tolist() == [136, 64]
    assert (X == 300).tolist() == [False, False]
    assert weft.full((1,), 300, dtype=weft.bool).tolist() == [True]
