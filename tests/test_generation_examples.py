"""The programs of the second and third generation run, and do what they say."""

import importlib.util
import math
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent / "examples" / "generations"
E = math.e


def near(found, want, rel=1e-5):
    return found == pytest.approx(want, rel=rel)


RUNS = [
    ("static_exp.py", "", lambda r: near(r, (E + 1, E * (E + 1), 0))),
    ("static_exp.py", "--at 0", lambda r: near(r, (2, 2, 0))),
    ("eager_exp.py", "", lambda r: near(r, (2 * E * (E + 1), 4 * E * E + 2 * E))),
    (
        "eager_exp.py",
        "--at -2",  # the other branch
        lambda r: near(r, (E**-4 + E**-2, 2 * E**-4 + E**-2)),
    ),
    ("static_linear.py", "", lambda r: r[0] < 1e-9 and r[1] == 0),
    ("eager_linear.py", "", lambda loss: loss < 1e-9),
    ("compiled_linear.py", "", lambda r: r[0] < 1e-9 and r[1] < 1e-6),
    ("compiled_branch.py", "", lambda r: r[0] < 1e-6 and r[1:] == ([0, 1, 7], True)),
    ("static_perceptron.py", "", lambda r: r[1] < 0.6 * r[0] and r[0] < 6),
    (
        "static_register.py",
        "",
        lambda r: "own_negative" in r[0] and near(r[1], [1, 0, 0, 2 + E ** (1 + E)]),
    ),
    (
        "static_program.py",
        "",
        lambda r: r[0] == 200 and r[1] < 1e-6 and all(int(n) > 2 for n in r[2]),
    ),
    ("compiled_matmul.py", "--size 20", lambda r: r[0] < 1e-12 and "mulpd" in r[1]),
    ("three_derivatives.py", "", lambda r: r[0] < 1e-12 and 1e-12 < r[1] < 1e-6),
]


@pytest.mark.parametrize(
    ("name", "options", "good"), RUNS, ids=[f"{r[0]} {r[1]}".strip() for r in RUNS]
)
def test_example(name, options, good, capsys):
    spec = importlib.util.spec_from_file_location(name[:-3], ROOT / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = module.main(options.split())
    assert good(result), result
    assert capsys.readouterr().out


def test_every_example_is_run():
    others = {p.name for p in ROOT.glob("*.py") if not p.name.startswith("layers_")}
    assert others == {row[0] for row in RUNS}
