"""Scorecards: lines are counted rightly, and tiers keep to their budgets."""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent

SOURCE = '''\
"""A module.

Its text.
"""

import numpy as np  # a comment beside code

# a comment alone


def f(x):
    "Twice x."
    text = """
    not a docstring
    """
    return (
        x
        + x
    )


g = unary(
    "g",
    doc="""The g of x.

    >>> g(1)
    """,
)
'''


def test_code_words_and_blank_lines_are_told_apart(lines):
    code = 1 + 1 + 3 + 4 + 5  # import, def, text, return, g without its example
    assert lines.count(SOURCE) == (code, 3 + 1 + 1 + 1)
    assert lines.count("") == (0, 0)


def test_every_package_is_in_a_tier(lines):
    folders = {p.name for p in lines.SOURCE.iterdir() if p.is_dir()}
    names = [p.name for p in lines.packages()]
    assert folders - {"__pycache__"} == set(names) - {"*.py"}
    assert names[: len(lines.CORE)] == lines.CORE
    assert all(p.own.code > 0 for p in lines.packages())


@pytest.mark.parametrize("tier", ["core", "rest"])
def test_a_tier_keeps_to_its_budget(lines, tier):
    size, budget = lines.sizes()[tier].code, lines.BUDGET[tier]
    assert size <= budget, f"{tier} has {size} lines of code, its budget is {budget}"
    assert budget < 1.05 * size, f"{tier} has {size} lines of code: lower its budget"


def test_lines_to_write_are_counted_from_files(lines):
    table = lines.to_write()[1:]
    found = {what: int(count) for what, count in table}
    target = "a target, by the interpreter of loops (tests/support/toy_target.py)"
    assert found.pop(target) < 300
    assert found["an operator, from outside (docs/all_of_weft.md)"] <= 12
    assert found["a model, and its training (README.md)"] <= 12
    assert all(1 < count < 100 for count in found.values())


def test_scorecards_are_printed(lines, capsys):
    assert lines.main() == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in lines.CORE)
    assert "fastest peer / Weft" in out
    assert "measured on " in out


def test_a_tier_over_its_budget_is_an_error(lines, capsys, monkeypatch):
    monkeypatch.setitem(lines.BUDGET, "core", 10)
    assert lines.main() == 1
    assert "core is over its budget" in capsys.readouterr().err
