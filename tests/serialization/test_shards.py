"""State dicts in several files."""

import io
import json
import os

import pytest
import safetensors.numpy

import weft
from weft.errors import ArgumentError, DTypeError, FileFormatError


def state():
    return {"a": weft.ones(4), "b": weft.arange(6.0).reshape(2, 3), "c": weft.zeros(2)}


def index_of(folder):
    return json.loads((folder / "model.safetensors.index.json").read_text())


@pytest.fixture
def folder(tmp_path):
    weft.save(state(), tmp_path / "model.safetensors", max_shard_size=40)
    return tmp_path


@pytest.mark.parametrize("mmap", [False, True])
def test_shards_come_back_in_order(folder, mmap):
    assert sorted(os.listdir(folder)) == [
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]  # fmt: skip
    for path in (folder, folder / "model.safetensors.index.json", str(folder)):
        found = weft.load(path, mmap=mmap)
        assert list(found) == ["a", "b", "c"]
        assert all(weft.equal(found[name], x) for name, x in state().items())
    assert index_of(folder)["metadata"] == {"total_size": 48}


def test_other_libraries_read_the_shards(folder):
    where = index_of(folder)["weight_map"]
    for name, x in state().items():
        found = safetensors.numpy.load_file(folder / where[name])
        assert found[name].tolist() == x.tolist()


def test_shards_of_pytorch(tmp_path):
    weft.save({"a": weft.ones(2)}, tmp_path / "pytorch_model-1.bin")
    weft.save({"b": weft.zeros(2)}, tmp_path / "pytorch_model-2.bin")
    where = {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}
    index = {"metadata": {"total_size": 16}, "weight_map": where}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    found = weft.load(tmp_path, map_location="cpu")
    assert {name: x.tolist() for name, x in found.items()} == {
        "a": [1, 1], "b": [0, 0],
    }  # fmt: skip


def test_one_file_where_everything_fits(tmp_path):
    path = tmp_path / "model.safetensors"
    weft.save(state(), path, max_shard_size="5 GB")
    assert os.listdir(tmp_path) == ["model.safetensors"]
    assert list(weft.load(tmp_path)) == ["a", "b", "c"]


def test_what_shards_need(tmp_path):
    for size in ("many", 0, "0", 1.5, "3 parsec"):
        with pytest.raises(ArgumentError, match="a number of bytes or a text"):
            weft.save(state(), tmp_path / "m.safetensors", max_shard_size=size)
    with pytest.raises(ArgumentError, match=r"ends in \.safetensors"):
        weft.save(state(), tmp_path / "m.pt", max_shard_size=9)
    with pytest.raises(ArgumentError, match="needs a path of safetensors"):
        weft.save(state(), io.BytesIO(), max_shard_size=9)
    for obj in ([weft.ones(1)], {"a": 1}, {1: weft.ones(1)}):
        with pytest.raises(DTypeError, match="a dictionary of names and tensors"):
            weft.save(obj, tmp_path / "m.safetensors", max_shard_size=9)
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileFormatError, match="is a folder without"):
        weft.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: i["weight_map"].pop("a"), "does not hold what the index says"),
        (lambda i: i["weight_map"].update(d=i["weight_map"]["a"]), "differ in"),
        (lambda i: i["weight_map"].update(a="../x.safetensors"), "beside the index"),
        (lambda i: i["weight_map"].update(a="/etc/passwd"), "beside the index"),
        (lambda i: i["weight_map"].update(a=".hidden"), "beside the index"),
        (lambda i: i["weight_map"].update(a=3), "map names to files"),
        (lambda i: i.pop("weight_map"), "expected the index to have a weight_map"),
        (lambda i: i.update(more=[1]), "no valid JSON for this format"),
    ],
)
def test_an_index_that_lies(folder, change, message):
    index = index_of(folder)
    change(index)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match=message):
        weft.load(folder)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "expected"),
        (b"\xff{}", "is no text"),
        (b'{"weight_map": {}, "weight_map": {}}', "'weight_map' occurs twice"),
        (b'{"weight_map": {"a": "x", "a": "x"}}', "'a' occurs twice"),
        (b"[" * 100_000, "expected"),
        (b'{"metadata": ' + b"[" * 100_000, "expected"),
        (b'{"weight_map": {}} x', "expected the end"),
    ],
)
def test_an_index_that_is_none(tmp_path, raw, message):
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(raw)
    with pytest.raises(FileFormatError, match=message):
        weft.load(path)


def test_a_missing_shard_is_named(folder):
    os.remove(folder / "model-00002-of-00002.safetensors")
    with pytest.raises(FileNotFoundError, match="model-00002-of-00002"):
        weft.load(folder)
