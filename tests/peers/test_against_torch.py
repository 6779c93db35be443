"""Functions and methods against PyTorch, argument combination by combination."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

from cases import CASES, DEVIATIONS
from compare import both, compare


def make_inputs() -> dict:
    rng = np.random.default_rng(0)
    x = rng.permutation(np.linspace(-2, 2, 12)).reshape(3, 4).astype(np.float32)
    nans = x.copy()
    nans[1, 2] = nans[0, 0] = np.nan
    w = rng.uniform(-2, 2, (2, 3, 4)).astype(np.float32)
    ours, theirs = both(w)
    ties = np.array([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]], np.float32)
    return {
        "x": both(x),
        "y": both(rng.uniform(0.5, 2, (3, 4)).astype(np.float32)),
        "v": both(rng.permutation(np.linspace(-1, 1, 5)).astype(np.float32)),
        "w": (ours, theirs),
        "n": (ours.transpose(0, 2), theirs.transpose(0, 2)),
        "m": both(rng.uniform(-2, 2, (4, 4)).astype(np.float32)),
        "d": both(rng.uniform(-2, 2, (3, 4))),
        "s": both(np.float32(1.5)),
        "z": both(np.zeros((0, 3), np.float32)),
        "e": both(np.zeros((2, 0), np.float32)),
        "e1": both(np.zeros((0,), np.float32)),
        "i": both(rng.integers(-5, 6, (3, 4))),
        "k": both(np.array([3, 1, 0, 2])),
        "p": both(np.array([2, 0])),
        "b": both(rng.uniform(size=(3, 4)) < 0.5),
        "bt": both(np.array([True, False, True])),
        "c": both((x + 1j * x[::-1]).astype(np.complex64)),
        "h": both(x, "float16"),
        "f": both(x, "bfloat16"),
        "u": both(rng.integers(0, 255, (3, 4)).astype(np.uint8)),
        "j": both(rng.integers(-100, 100, (3, 4)).astype(np.int32)),
        "q": both(nans),
        "t": both(ties),
        "o": both(
            np.array([-np.inf, -1.5, -0.0, 0.0, 2.5, np.inf, np.nan], np.float32)
        ),
        "ix": both(np.array([[0, 2, 1, 0], [2, 1, 0, 3]])),
        "ic": both(np.array([[0, 3], [1, 2], [3, 3]])),
        "edges": both(np.array([-1.0, 0.0, 1.0], np.float32)),
        "probs": both(np.array([0.1, 0.5, 0.9], np.float32)),
    }


@pytest.mark.parametrize("expression", CASES)
def test_same_as_pytorch(expression: str) -> None:
    assert not (problem := compare(expression, make_inputs())), problem


@pytest.mark.parametrize("expression", DEVIATIONS)
def test_documented_deviations_are_still_there(expression: str) -> None:
    assert compare(expression, make_inputs())
