"""Wrong calls raise errors of PyTorch's classes, and say something."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="compares with PyTorch")

import wrong_calls  # noqa: E402

import weft  # noqa: E402

# Calls that Weft takes, and why.
TAKEN = {
    "T.mv(x, n)": "dtypes are promoted",
    "x[::-1]": "negative steps are views",
    "F.pad(x, (1, 1), mode='reflect', value=1.0)": "the value is not needed",
    "F.binary_cross_entropy(x.sigmoid(), i)": "dtypes are promoted",
    "T.nn.Flatten()(T.tensor(1.0))": "a vector of one element comes out",
    "T.complex(x, i)": "dtypes are promoted",
    "T.polar(x, i)": "dtypes are promoted",
    "T.nextafter(i, i)": "dtypes are promoted",
    "T.isclose(x, i)": "dtypes are promoted",
    "T.allclose(x, 5)": "numbers are taken",
}
# Calls that Weft refuses, and why.
REFUSED = {
    "x.to(5.5)": "PyTorch takes no notice of the number",
    "T.nn.ParameterList([T.nn.Linear(1, 1)])": "only tensors become parameters",
    "T.nn.utils.rnn.pad_sequence([x, v])": "trailing sizes must be equal",
}
# Errors of another class, and why.
OTHER = {
    "T.flip(x, 5)": "one dimension may be a number",
    "T.permute(x, 0)": "dimensions may be arguments of their own",
    "T.reshape(x)": "sizes may be arguments of their own",
    "T.movedim(x, None, 0)": "None are all dimensions",
    "T.save(x, '/nosuch/folder/file')": "Python's own error says more",
    "F.relu('a')": "an AttributeError: layers' functions check no types",
    "F.dropout('a')": "an AttributeError: layers' functions check no types",
    "F.linear('a', x)": "an AttributeError: layers' functions check no types",
    "T.nn.Parameter('a')": "a TypeError says more than an AttributeError",
}


def raised(library, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return wrong_calls.outcome(library, text)


@pytest.mark.parametrize("text", list(wrong_calls.calls()))
def test_a_wrong_call_raises_an_error_of_pytorchs_class(text):
    theirs, _, _ = raised(torch, text)
    ours, bases, words = raised(weft, text)
    if not theirs:  # PyTorch takes it
        assert not ours or text in REFUSED, f"refused with {ours}: {words}"
    elif text in TAKEN:
        assert not ours
    elif text not in OTHER:
        wanted = {theirs.lstrip("_")}
        if theirs == "AssertionError":  # which nobody means to catch
            wanted |= {"ValueError", "TypeError"}
        assert wanted & set(bases)
        assert words


def test_lists_of_exceptions_are_of_calls_that_are_made():
    made = set(wrong_calls.calls())
    assert {*TAKEN, *REFUSED, *OTHER} <= made
