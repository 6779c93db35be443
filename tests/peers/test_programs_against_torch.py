"""Whole programs, run by PyTorch and by ``weft run``: losses and results agree."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch")

PROGRAMS = pathlib.Path(__file__).parents[1] / "torch_alias" / "programs"


def result(*command: str) -> dict[str, list[float]]:
    run = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("options", [[], ["--compile"]], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", sorted(p.stem for p in PROGRAMS.glob("*.py")))
def test_a_program_gives_what_pytorch_gives(name: str, options: list[str]) -> None:
    script = str(PROGRAMS / f"{name}.py")
    theirs = result(script)
    ours = result("-m", "weft", "run", *options, script)
    np.testing.assert_allclose(ours["losses"], theirs["losses"], rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(ours["score"], theirs["score"], rtol=2e-4, atol=2e-5)
