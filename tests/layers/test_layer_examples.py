"""The programs of the first generation run, and learn."""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent / "examples" / "generations"
RUNS = [
    ("layers_two_linear.py", "", lambda ratio: ratio < 0.5),
    ("layers_caffe.py", "", lambda loss: loss < 1e-4),
    ("layers_tinynn.py", "--epochs 2", lambda right: right > 0.85),
]


@pytest.mark.parametrize(("name", "options", "good"), RUNS, ids=[r[0] for r in RUNS])
def test_example(name, options, good, capsys):
    spec = importlib.util.spec_from_file_location(name[:-3], ROOT / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    score = module.main(options.split())
    assert good(score), score
    assert capsys.readouterr().out


def test_every_example_is_run():
    assert {p.name for p in ROOT.glob("layers_*.py")} == {row[0] for row in RUNS}
