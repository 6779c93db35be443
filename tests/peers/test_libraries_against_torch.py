"""Libraries from PyPI, unchanged: PyTorch and Weft give the same numbers.

Each program in ``libraries`` runs twice, on PyTorch and by ``weft run``, and writes
what its cases return into a file; the two files are compared case by case.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch")

FOLDER = pathlib.Path(__file__).with_name("libraries")
NEEDED = {
    "small_libraries": (
        "torch_ema", "pytorch_metric_learning", "torchinfo", "torchsummary",
        "accelerate", "sentence_transformers",
    ),
    "gpytorch": ("gpytorch", "linear_operator"), "peft": ("peft", "transformers"),
}  # fmt: skip
# Compiled, each outermost module call is one program or is refused with a line.
COMPILED = ("einops", "timm", "transformers", "x_transformers")


def cases(name: str) -> list[str]:
    """The functions of a program that are decorated as cases."""
    tree = ast.parse((FOLDER / f"use_{name}.py").read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id == "case" for d in node.decorator_list)
    ]


PROGRAMS = sorted(path.stem.removeprefix("use_") for path in FOLDER.glob("use_*.py"))
CASES = [(name, case) for name in PROGRAMS for case in cases(name)]


@functools.cache
def outcomes(name: str, *way: str) -> dict[str, tuple[str, Any]]:
    for needed in NEEDED.get(name, (name,)):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "outcomes")
        command = [sys.executable, *way, str(FOLDER / f"use_{name}.py"), path]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=900,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        with open(path, "rb") as file:
            return pickle.load(file)


def differences(theirs: Any, ours: Any, where: str = "") -> Iterator[str]:
    """The places where two results differ by more than 1e-4 of the largest element."""
    if isinstance(theirs, dict):
        if not isinstance(ours, dict) or theirs.keys() != ours.keys():
            yield f"{where}: other keys"
            return
        for key in theirs:
            yield from differences(theirs[key], ours[key], f"{where}/{key}")
    elif isinstance(theirs, list):
        if not isinstance(ours, list) or len(theirs) != len(ours):
            yield f"{where}: other lengths"
            return
        for k, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(a, b, f"{where}[{k}]")
    elif isinstance(theirs, (str, bool)) or theirs is None:
        if theirs != ours:
            yield f"{where}: expected {theirs!r}, got {ours!r}"
    else:
        a, b = np.asarray(theirs), np.asarray(ours)
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            yield f"{where}: {a.dtype}{a.shape} and {b.dtype}{b.shape}"
        elif a.dtype.kind not in "fc":
            if not np.array_equal(a, b):
                yield f"{where}: other whole numbers"
        elif a.size:
            finite = np.isfinite(a)
            scale = np.abs(a[finite]).max(initial=0.0)
            if not np.allclose(b, a, rtol=0, atol=1e-4 * scale + 2e-6, equal_nan=True):
                yield f"{where}: {np.abs(a - b).max():.2g} of {scale:.2g}"


def compare(name: str, case: str, *options: str) -> None:
    state, theirs = outcomes(name)[case]
    assert state == "ok", theirs
    state, ours = outcomes(name, "-m", "weft", "run", *options)[case]
    assert state == "ok", ours
    assert list(differences(theirs, ours)) == []


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{n}-{c}" for n, c in CASES])
def test_a_library_gives_what_it_gives_on_pytorch(name: str, case: str) -> None:
    compare(name, case)


@pytest.mark.parametrize(
    ("name", "case"),
    [pair for pair in CASES if pair[0] in COMPILED],
    ids=[f"{n}-{c}" for n, c in CASES if n in COMPILED],
)
def test_compiled_modules_give_the_same(name: str, case: str) -> None:
    compare(name, case, "--compile")


def test_differences_are_found() -> None:
    a = {"x": np.ones(3), "n": [1, "text"]}
    assert list(differences(a, {"x": np.ones(3) + 5e-5, "n": [1, "text"]})) == []
    for other in (
        {"x": np.ones(3) + 5e-4, "n": [1, "text"]}, {"x": np.ones(3), "n": [2, "text"]},
        {"x": np.ones(3), "n": [1, "other"]}, {"x": np.ones(2), "n": [1, "text"]},
        {"x": np.ones(3)}, {"x": np.array([1, 1, np.nan]), "n": [1, "text"]},
    ):  # fmt: skip
        assert len(list(differences(a, other))) == 1
