"""The benchmark of public scripts: common random numbers, losses and failures."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "programs" / "script.py"

TRAIN = """
import sys
import torch

model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.nn.functional.dropout(torch.randn(4, 3))).square().sum().backward()
    optimizer.step()
"""


def result(folder, text, *arguments):
    script, out = folder / "train.py", folder / "result.json"
    script.write_text(text)
    subprocess.run(
        [sys.executable, "-m", "weft", "run", SCRIPT, out, "3", script, *arguments],
        check=True, capture_output=True,
    )  # fmt: skip
    return json.loads(out.read_text())


def test_losses_follow_numpy(tmp_path):
    found = result(tmp_path, TRAIN, "10")
    draws = np.random.default_rng(0)
    weight = np.random.default_rng((10**6 + 1, 0, 2, 3)).standard_normal((2, 3))
    bias = np.random.default_rng((10**6 + 1, 0, 2)).standard_normal(2) * 0.05
    weight *= 3**-0.5
    want = []
    for _ in range(3):
        x = draws.standard_normal((4, 3))
        out = x @ weight.T + bias
        want.append(np.square(out).sum())
        weight, bias = weight - 0.2 * out.T @ x, bias - 0.2 * out.sum(0)
    np.testing.assert_allclose(found["losses"], want, rtol=1e-5)
    assert found["end"] == "steps"
    assert not found["error"]


@pytest.mark.parametrize(
    ("text", "error"), [("1 / 0", "ZeroDivisionError"), ("exit(2)", "exit status 2")]
)
def test_failures_are_recorded(tmp_path, text, error):
    found = result(tmp_path, text)
    assert found["end"] == "error"
    assert found["error"].startswith(error)


def test_one_draw_of_a_categorical_has_no_dimension(tmp_path):
    text = """
import torch
p = torch.ones(3, requires_grad=True)
for shape in (), (2,), (2, 3):
    drawn = torch.distributions.Categorical(p / 3).sample(shape)
    assert drawn.shape == shape
    (p[drawn].sum() * 0).backward()
"""
    assert not result(tmp_path, text)["error"]


def test_rounding_is_told_from_wrong_answers():
    from benchmarks.programs.scripts import is_rounding

    own = [1e-7, 1e-6, 1e-3]
    assert is_rounding([1e-6, 1e-5, 9e-3], own, None)
    assert is_rounding([9e-5, 9e-5, 0.0], own, None)  # less than 1e-4 counts as equal
    assert not is_rounding([2e-4, 0.0, 0.0], own, 0.0)  # far before PyTorch's own are
    assert not is_rounding([0.0, 0.0, 2e-2], own, 0.0)
    assert not is_rounding([0.0, 0.0], own, 0.0)
    assert not is_rounding([1.0], [float("inf")], None)  # says nothing
    assert not is_rounding([1.0], [float("inf")], 1e-3)
    assert is_rounding([1.0], [float("inf")], 1e-6)
