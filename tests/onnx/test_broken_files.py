"""Broken files are run or refused: a small part of ``tools/onnx_fuzz.py``."""

import importlib.util
import pathlib

import weft

ROOT = pathlib.Path(__file__).parents[2]


def tool():
    path = ROOT / "tools" / "onnx_fuzz.py"
    spec = importlib.util.spec_from_file_location("onnx_fuzz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FUZZ = tool()


def test_the_models_run_before_they_are_changed():
    for name, model in FUZZ.models().items():
        assert FUZZ.attempt(model.SerializeToString()) == "ran", name


def test_broken_files_are_run_or_refused():
    counts, failures = FUZZ.run(400, seed=7)
    assert failures == []
    assert min(counts["ran"], counts["refused"]) > 20


def test_a_failure_is_seen(monkeypatch):
    def broken(content):
        raise OSError("no error of Weft's")

    monkeypatch.setattr(weft.onnx, "load", broken)
    assert FUZZ.attempt(b"").startswith("failure: ")
