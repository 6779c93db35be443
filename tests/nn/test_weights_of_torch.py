"""Weights that PyTorch wrote load by its own names and give its outputs.

The file was written by ``record_weights.py`` with PyTorch 2.13.
"""

import pathlib

import numpy as np
import pytest
from weights import FAMILIES, arrays, first

import weft
from weft import nn

PATH = pathlib.Path(__file__).parent.parent / "golden" / "weights.safetensors"


@pytest.fixture(scope="module")
def recorded():
    by_family = {}
    for key, value in weft.load(PATH).items():
        family, name = key.split("|")
        by_family.setdefault(family, {})[name] = value
    return by_family


@pytest.mark.parametrize("name", FAMILIES)
def test_outputs(recorded, name):
    state = dict(recorded[name])
    expected = state.pop("out")
    module = FAMILIES[name][0](nn).eval()
    before = first(module(*map(weft.tensor, arrays(name)))).detach()
    module.load_state_dict(state)
    out = first(module(*map(weft.tensor, arrays(name)))).detach()
    np.testing.assert_allclose(out.numpy(), expected.numpy(), rtol=2e-5, atol=2e-6)
    assert not np.allclose(before.numpy(), expected.numpy(), rtol=1e-2)


@pytest.mark.parametrize("name", FAMILIES)
def test_names_and_shapes(recorded, name):
    state = FAMILIES[name][0](nn).state_dict()
    assert sorted(state) == sorted(FAMILIES[name][2])
    kept = {k: v.shape for k, v in recorded[name].items() if k != "out"}
    assert {k: v.shape for k, v in state.items()} == kept


def test_a_file_is_a_state_dict(tmp_path):
    """The two lines that a user writes."""
    path = tmp_path / "linear.safetensors"
    weft.save({"weight": weft.ones(3, 4), "bias": weft.zeros(3)}, path)
    model = nn.Linear(4, 3)
    model.load_state_dict(weft.load(path))
    assert model(weft.ones(1, 4)).tolist() == [[4.0, 4.0, 4.0]]
