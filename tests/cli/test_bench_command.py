"""``weft bench``: a program's speed, by sizes."""

import re

import pytest

import weft
from weft.cli.main import main


@pytest.fixture
def path(tmp_path):
    net = weft.nn.Sequential(weft.nn.Embedding(5, 4), weft.nn.Linear(4, 2)).eval()
    ids = weft.zeros(2, 3, dtype=weft.int64)
    program = weft.graph.capture(net, ids, dynamic={"input": {0: "rows", 1: "steps"}})
    weft.save(program, tmp_path / "net.weft")
    return str(tmp_path / "net.weft")


def test_sizes(path, capsys):
    sizes = ["--size", "rows=1,8", "--size", "steps=3"]
    assert main(["bench", path, "--seconds", "0", *sizes]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "input: int64[rows, steps]"
    assert re.match(r"first answer after \d+\.\d\d s; \d+ threads", lines[1])
    assert [line[:20].strip() for line in lines[3:]] == [
        "rows=1 steps=3", "rows=8 steps=3"
    ]  # fmt: skip
    for line in lines[3:]:
        half, most, rate = map(float, line[20:].split())
        assert 0 < half <= most
        assert rate > 0


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("x=1", "'x=1' names no open size; there are ['rows', 'steps']"),
        ("rows=a", "expected numbers such as rows=1,8"),
        ("rows=0", "must be positive"),
    ],
)
def test_wrong_sizes(path, size, message, capsys):
    assert main(["bench", path, "--size", size]) == 1
    assert message in capsys.readouterr().err
