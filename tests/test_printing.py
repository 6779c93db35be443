"""What tensors look like."""

from __future__ import annotations

import pytest

import weft


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (lambda: weft.tensor(3.0), "tensor(3.)"),
        (lambda: weft.tensor(True), "tensor(True)"),
        (lambda: weft.tensor([]), "tensor([])"),
        (lambda: weft.zeros(2, 0), "tensor([], size=(2, 0))"),
        (lambda: weft.tensor([1, -20]), "tensor([  1, -20])"),
        (
            lambda: weft.tensor([0.5, float("nan"), float("-inf")]),
            "tensor([0.5000,    nan,   -inf])",
        ),
        (
            lambda: weft.tensor([1e-6, 1.0]),
            "tensor([1.0000e-06, 1.0000e+00])",
        ),
        (lambda: weft.tensor(1e10), "tensor(1.0000e+10)"),
        (
            lambda: weft.tensor([1 - 2j, 0.5j]),
            "tensor([1.-2.0000j, 0.+0.5000j])",
        ),
        (
            lambda: weft.tensor([1.5], dtype=weft.bfloat16),
            "tensor([1.5000], dtype=weft.bfloat16)",
        ),
        (
            lambda: weft.ones(1, requires_grad=True),
            "tensor([1.], requires_grad=True)",
        ),
        (
            lambda: weft.ones(1, requires_grad=True) * 2,
            "tensor([2.], grad_fn=<mul>)",
        ),
        (
            lambda: weft.arange(8).reshape(2, 2, 2),
            "tensor([[[0, 1],\n         [2, 3]],\n\n"
            "        [[4, 5],\n         [6, 7]]])",
        ),
    ],
)  # fmt: skip
def test_repr(made: object, shown: str) -> None:
    assert repr(made()) == shown  # type: ignore[operator]


def test_long_tensors_are_shortened() -> None:
    text = repr(weft.arange(5000))
    assert "..." in text
    assert len(text) < 120
    square = repr(weft.zeros(100, 100))
    assert len(square.splitlines()) == 7


def test_rows_break_at_the_line_width() -> None:
    assert max(map(len, repr(weft.arange(500.0)).splitlines())) <= 88


def test_options() -> None:
    weft.set_printoptions(precision=2, threshold=5, edgeitems=1)
    try:
        text = repr(weft.arange(8) / 3)
        assert text.startswith("tensor([0.00,  ..., 2.33]")
    finally:
        weft.set_printoptions(precision=4, threshold=1000, edgeitems=3)


def test_format() -> None:
    assert f"{weft.tensor(3.14159):.2f}" == "3.14"
    assert f"{weft.tensor([2])}" == repr(weft.tensor([2]))


def test_inside_a_transform() -> None:
    seen = []
    weft.func.vmap(lambda x: seen.append(repr(x)) or x)(weft.ones(3, 2))
    assert "vmap" in seen[0]
    assert "(2,)" in seen[0]
