"""Files of weights that the installed PyTorch writes load and give its outputs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytest.importorskip("safetensors.torch", reason="PyTorch writes files with it")

import torch
from safetensors.torch import load_file, save_file
from weights import FAMILIES, arrays, first

import weft


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_written_by_pytorch(name, tmp_path):
    path = tmp_path / "weights.safetensors"
    build = FAMILIES[name][0]
    torch.manual_seed(5)
    theirs = build(torch.nn)
    first(theirs(*map(torch.tensor, arrays(name))))  # moves running statistics
    theirs.eval()
    save_file(theirs.state_dict(), path)
    ours = build(weft.nn).eval()
    ours.load_state_dict(weft.load(path))
    with torch.no_grad():
        expected = first(theirs(*map(torch.tensor, arrays(name)))).numpy()
    got = first(ours(*map(weft.tensor, arrays(name)))).detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_written_by_weft(name, tmp_path):
    path = tmp_path / "weights.safetensors"
    ours = FAMILIES[name][0](weft.nn)
    weft.save(ours.state_dict(), path)
    theirs = FAMILIES[name][0](torch.nn)
    theirs.load_state_dict(load_file(path))
    for key, value in theirs.state_dict().items():
        assert np.array_equal(value.numpy(), ours.state_dict()[key].numpy())
