"""Functions and methods against PyTorch, argument combination by combination."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

from cases import CASES, DEVIATIONS, arrays
from compare import both, compare


def make_inputs() -> dict:
    found = {name: both(*given) for name, given in arrays().items()}
    found["n"] = tuple(w.transpose(0, 2) for w in found["w"])
    return found


@pytest.mark.parametrize("expression", CASES)
def test_same_as_pytorch(expression: str) -> None:
    assert not (problem := compare(expression, make_inputs())), problem


@pytest.mark.parametrize("expression", DEVIATIONS)
def test_documented_deviations_are_still_there(expression: str) -> None:
    assert compare(expression, make_inputs())
