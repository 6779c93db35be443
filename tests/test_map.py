"""``docs/map.md`` has every module of Weft once, with a line that reads well."""

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SOURCE = ROOT / "src" / "weft"
MODULES = sorted(SOURCE.rglob("*.py"))


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("map", ROOT / "tools" / "map.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(tool, golden):
    golden.file(tool.PAGE, tool.page())


def test_every_module_is_listed_once(tool):
    listed = re.findall(r"\]\(\.\./src/weft/(.*?)\)", tool.PAGE.read_text())
    assert sorted(listed) == sorted(p.relative_to(SOURCE).as_posix() for p in MODULES)


def test_rooms_that_are_named_are_there(tool):
    names = tool.ORDER.split()
    assert all((SOURCE / name).is_dir() for name in names)
    assert len(set(names)) == len(names)


def test_modules_come_after_those_they_import(tool):
    names = [path.stem for path in tool.modules(SOURCE / "compile" / "program")]
    assert names.index("steps") < names.index("aliasing") < names.index("memory_layout")


NO_SUBJECT = re.compile(
    "(What|Who|Those|That|One that|Which|Where|Whether|How|Why|Telling)\\b"
)


def test_first_lines_name_what_a_module_holds(tool):
    lines = {path: tool.first_line(path) for path in MODULES}
    for path, line in lines.items():
        assert line.endswith((".", ":", "?")), path
        assert not NO_SUBJECT.match(line), f"{path}: {line}"
