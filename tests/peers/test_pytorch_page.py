"""``docs/pytorch.md`` lists PyTorch's names as they are today."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest

import weft.torch.places

pytest.importorskip("torch", reason="compares with PyTorch")

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    path = ROOT / "tools" / "pytorch_names.py"
    spec = importlib.util.spec_from_file_location("pytorch_names", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(tool):
    if tool.PAGE.read_text() != tool.page():
        pytest.fail("docs/pytorch.md is stale: run python tools/pytorch_names.py")


@pytest.mark.filterwarnings("ignore")  # PyTorch's, of deprecated names
def test_names_are_sorted_into_present_absent_and_missing(tool):
    rows = {row.where: row for row in tool.rows()}
    assert "Linear" in rows["torch.nn"].present
    assert "AliasDb" in rows["torch"].absent
    assert rows["torch.package"].absent["PackageImporter"] == (
        weft.torch.places.why_absent("torch.package.PackageImporter")
    )
    for row in rows.values():
        names = [*row.present, *row.absent, *row.missing]
        assert len(names) == len(set(names))
