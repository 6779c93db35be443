"""The tool that runs tests on aarch64 says what it misses."""

import importlib.util
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture
def tool(tmp_path, monkeypatch):
    path = ROOT / "tools" / "on_aarch64.py"
    spec = importlib.util.spec_from_file_location("on_aarch64", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("FOLDER", "SYSTEM", "SITE", "PYTHON"):
        place = getattr(module, name).relative_to(ROOT)
        monkeypatch.setattr(module, name, tmp_path / place)
    return module


def test_without_debian(tool, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemExit, match=r"apt-get is not installed\. This program"):
        tool.main([])


def test_a_command_that_fails(tool):
    with pytest.raises(SystemExit, match=r"ls /nonexistent\nfailed:\n.*No such file"):
        tool.run("ls", "/nonexistent")


def test_what_is_prepared_is_used(tool, monkeypatch):
    """Arguments go to pytest; without any, the suites are run."""
    tool.PYTHON.parent.mkdir(parents=True)
    tool.PYTHON.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@" > told\n')
    tool.PYTHON.chmod(0o755)
    monkeypatch.setattr(tool, "ROOT", tool.PYTHON.parent)
    told = tool.PYTHON.parent / "told"
    assert tool.main(["tests/ops", "-x"]) == 0
    assert told.read_text().endswith("/site -m pytest tests/ops -x\n")
    assert tool.main([]) == 0
    assert told.read_text().endswith(f"-m pytest {' '.join(tool.SUITES)}\n")


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs Debian's dpkg-deb")
def test_one_file_of_a_package(tool, tmp_path):
    package = tmp_path / "package"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "DEBIAN" / "control").write_text(
        "Package: one\nVersion: 1\nArchitecture: all\nMaintainer: nobody\n"
        "Description: a test\n"
    )
    for name in ("wanted", "other"):
        (package / name).write_text(name)
    packed = tmp_path / "one.deb"
    subprocess.run(["dpkg-deb", "-b", package, packed], check=True, capture_output=True)
    tool._extract(packed, "wanted", tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["wanted"]
