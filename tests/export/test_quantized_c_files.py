"""Quantised models as C: integers inside, and the results of Python."""

import os

import numpy as np
import pytest
from c_programs import CModel, needs_cc

import weft
from weft import nn

WAYS = {
    "static": {},
    "dynamic": {"dynamic": True},
    "int8": {"weight_only": True},
    "int4": {"to": "int4", "weight_only": True},
}


@needs_cc
@pytest.mark.parametrize("way", WAYS)
def test_quantised_models_in_c(way, tmp_path):
    weft.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(100, 7)
    )
    x = weft.tensor(np.random.default_rng(0).normal(size=(3, 2, 5, 5)).astype("f"))
    options = dict(WAYS[way])
    if way == "static":
        options["data"] = x
    small = weft.quantize(net, options.pop("to", "int8"), **options)
    path = tmp_path / f"net_{way}.c"
    weft.export(small, x, str(path))
    text = path.read_text()
    assert ("uint8_t constant" if way == "int4" else "int8_t constant") in text
    model, out = CModel(path, 1 << 16), np.zeros((3, 7), np.float32)
    assert model("run", [x.numpy()], [out]) == "OK"
    if way in ("static", "dynamic"):  # sums are exact, and all else is rounded alike
        assert np.array_equal(out, small(x).numpy())
    else:
        np.testing.assert_allclose(out, small(x).numpy(), atol=1e-5)


@needs_cc
def test_bytes_beside_the_file_are_integers(tmp_path):
    layer = weft.quantize(nn.Linear(256, 256), "int4", weight_only=True)
    x = weft.randn(2, 256)
    path = str(tmp_path / "layer.c")
    files = weft.export(layer, x, path, weights="beside")
    (beside,) = (file for file in files if file.endswith(".safetensors"))
    assert os.path.getsize(beside) < 0.16 * 4 * 256 * 256
