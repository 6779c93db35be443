"""Saving and loading: round trips, atomic writing, and files that lie."""

import contextlib
import copy
import doctest
import errno
import io
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import weft
from weft import dtype as dtypes
from weft import serialization
from weft.errors import AutogradError, DTypeError, FileFormatError


def save(obj, f):
    weft.save(obj, f, format="safetensors")


def roundtrip(obj):
    file = io.BytesIO()
    save(obj, file)
    return weft.load(io.BytesIO(file.getvalue()))


def same(a, b):
    """Equal in structure, types and bits."""
    assert type(a) is type(b)
    if isinstance(a, weft.Tensor):
        assert a.dtype is b.dtype
        assert a.shape == b.shape
        assert a.array().tobytes() == b.array().tobytes()
        assert a.requires_grad == (b.requires_grad and b.is_leaf)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, (float, complex)):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    else:
        assert a == b


def values(dtype, shape):
    rng = np.random.default_rng(3)
    array = rng.integers(0, 255, (*shape, dtype.itemsize), dtype=np.uint8)
    if dtype is weft.bool:
        array %= 2
    return weft.from_numpy(array.view(dtype.np).reshape(shape).copy())


# -- round trips


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2), (1,), (2, 1, 3)])
def test_every_dtype_and_shape_comes_back_bit_by_bit(dtype, shape):
    x = values(dtype, shape)
    same(roundtrip(x), x)


def test_non_contiguous_tensors():
    x = weft.arange(24).reshape(2, 3, 4)
    z = weft.complex(weft.rand(4, 3), weft.rand(4, 3))
    for view in (x.permute(2, 0, 1), x[:, ::2], x[..., 1], x.flip(0), z.T, z[::2, 1:]):
        same(roundtrip(view), view.contiguous())
    same(roundtrip(weft.ones(1).expand(3, 2)), weft.ones(3, 2))


STRUCTURE = {
    "weights": [weft.ones(2, 3), (weft.tensor(5), None, True, False)],
    "numbers": [0, -1, 2**63 - 1, -(2**63), 2**200, -(10**400), 0.1, -0.0, 1e-308],
    "limits": [math.inf, -math.inf, math.nan, 1 + 2j, complex(-0.0, math.nan)],
    7: "int keys",
    "7": "and string keys",
    -(2**80): {},
    "text": ["", 'ünï\x00\n"\\', "\ud800", "__metadata__"],
    "empty": [[], (), {}, ((),)],
    "a.b": weft.zeros(1),
    "a": {"b": weft.ones(1)},
    "__metadata__": weft.tensor([1.5]),
}


def test_structures():
    same(roundtrip(STRUCTURE), STRUCTURE)


@pytest.mark.parametrize("obj", [None, 3, "s", [], {}, (), 2.5, True])
def test_structures_without_tensors(obj):
    same(roundtrip(obj), obj)


def test_nesting_of_any_depth():
    deep = weft.ones(2)
    for k in range(20_000):
        deep = [deep] if k % 2 else {"k": deep}
    found = roundtrip(deep)
    for k in reversed(range(20_000)):
        found = found[0] if k % 2 else found["k"]
    same(found, weft.ones(2))


def test_requires_grad_of_leaves_is_remembered():
    leaf = weft.ones(2, requires_grad=True)
    z = weft.ones(2, dtype=weft.complex128, requires_grad=True)
    found = roundtrip({"leaf": leaf, "z": z, "result": leaf * 2, "plain": weft.ones(2)})
    assert {k: v.requires_grad for k, v in found.items()} == {
        "leaf": True, "z": True, "result": False, "plain": False,
    }  # fmt: skip
    (found["leaf"] * 3).sum().backward()
    assert found["leaf"].grad.tolist() == [3, 3]


def test_shared_memory_is_stored_once_each():
    x = weft.ones(4)
    a, b = roundtrip([x, x])
    a[0] = 5
    assert b[0] == 1


def test_ordered_dicts_come_back_as_dicts():
    assert roundtrip(OrderedDict(b=1, a=2)) == {"b": 1, "a": 2}


def test_paths_and_files(tmp_path):
    x = weft.arange(5)
    for path in (tmp_path / "a", str(tmp_path / "b"), os.fsencode(tmp_path / "c")):
        save(x, path)
        same(weft.load(path), x)
        same(weft.load(path, mmap=True), x)
    with open(tmp_path / "a", "rb") as file:
        same(weft.load(file), x)
    with pytest.raises(FileNotFoundError):
        weft.load(tmp_path / "missing")
    for call in (lambda: weft.load(3.5), lambda: save(x, 3.5)):
        with pytest.raises(DTypeError, match="expected a path or a binary file"):
            call()


def test_a_file_that_cannot_seek(tmp_path):
    file = io.BytesIO()
    save(STRUCTURE, file)

    class Pipe:
        def __init__(self, data):
            self.data = io.BytesIO(data)

        def read(self, n=-1):
            return self.data.read(min(n, 7))

    same(weft.load(Pipe(file.getvalue())), STRUCTURE)


def test_text_files_are_refused(tmp_path):
    with pytest.raises(DTypeError, match="save: expected a file opened in binary"):
        save(1, io.StringIO())
    (tmp_path / "x").write_text("12345678{}")
    with (
        open(tmp_path / "x") as file,
        pytest.raises(DTypeError, match="load: expected a file opened in binary"),
    ):
        weft.load(file)


def test_a_file_is_read_from_where_it_stands():
    file = io.BytesIO(b"before")
    file.seek(6)
    save([weft.ones(3), 1], file)
    file.seek(6)
    same(weft.load(file), [weft.ones(3), 1])


def test_mapped_tensors_do_not_change_the_file(tmp_path):
    path = tmp_path / "x"
    saved = {"x": weft.arange(6), "flag": weft.tensor([True]), "h": weft.ones(3).half()}
    save(saved, path)
    found = weft.load(path, mmap=True)
    same(found, saved)
    found["x"][0] = 99
    same(weft.load(path), saved)
    with pytest.raises(ValueError, match="needs a path"):
        weft.load(io.BytesIO(path.read_bytes()), mmap=True)


def test_mapped_tensors_are_aligned(tmp_path):
    arrays = {"a": np.ones(3, np.uint8), "b": np.arange(4.0)}
    header = {
        "a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "b": {"dtype": "F64", "shape": [4], "data_offsets": [3, 35]},
    }
    path = tmp_path / "x"
    path.write_bytes(_build(header, b"".join(a.tobytes() for a in arrays.values())))
    found = weft.load(path, mmap=True)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].numpy(), array)
        assert found[name].array().flags.aligned


# -- the safetensors format


def test_other_readers_see_the_tensors_by_name(tmp_path):
    path = tmp_path / "x.safetensors"
    save({"layer": {"weight": weft.ones(2, 3), "bias": weft.tensor(True)}}, path)
    found = safetensors.numpy.load_file(path)
    assert sorted(found) == ["layer.bias", "layer.weight"]
    np.testing.assert_array_equal(found["layer.weight"], np.ones((2, 3), np.float32))
    save(STRUCTURE, path)
    assert len(safetensors.numpy.load_file(path)) == 5


def test_files_of_other_writers(tmp_path):
    arrays = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "n": np.array(7),
        "e": np.zeros((0, 2), np.int8),
        "b": np.array([True, False]),
        "h": np.ones(3, np.float16),
        "bf": np.ones(3, dtypes.bfloat16.np),
    }
    path = tmp_path / "x.safetensors"
    for metadata in (None, {"format": "pt"}):
        safetensors.numpy.save_file(arrays, path, metadata)
        for mmap in (False, True):
            found = weft.load(path, mmap=mmap)
            assert set(found) == set(arrays)
            for name, array in arrays.items():
                same(found[name], weft.from_numpy(array))


# -- what cannot be saved


class Weird:
    pass


@pytest.mark.parametrize(
    ("obj", "place"),
    [
        (Weird(), r"save obj, a Weird"),
        ({"a": [1, 2, 3, Weird()]}, r'obj\["a"\]\[3\], a Weird'),
        ([({"k": {4: set()}},)], r'obj\[0\]\[0\]\["k"\]\[4\], a set'),
        ([np.ones(2)], r"obj\[0\], a ndarray"),
        ([np.float64(2)], r"obj\[0\], a float64"),
        ({1.5: 1}, r"keys in obj, got float \(1\.5\)"),
        ([{True: 1}], r"keys in obj\[0\], got bool"),
        ([b"bytes"], r"obj\[0\], a bytes"),
    ],
)
def test_unserialisable_objects_are_named(obj, place, tmp_path):
    with pytest.raises(DTypeError, match=place):
        save(obj, tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_a_structure_that_contains_itself(tmp_path):
    loop = [1]
    loop.append({"again": loop})
    with pytest.raises(DTypeError, match=r'obj\[1\]\["again"\] contains itself'):
        save(loop, tmp_path / "x")
    shared = [1]
    same(roundtrip([shared, shared]), [[1], [1]])


# -- atomic writing


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    save("old", path)
    before = path.read_bytes()
    written = []

    def full_disk(file, header, arrays):
        file.write(header)
        written.append(len(os.listdir(tmp_path)))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(serialization.container, "write", full_disk)
        with pytest.raises(OSError, match="No space left"):
            save("new", path)
    assert written == [2]  # the temporary lay beside the old file
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(serialization.atomic.os, name, _fail)
            with pytest.raises(OSError, match="no"):
                save("new", path)
    with pytest.raises(DTypeError):
        save([weft.ones(2), Weird()], path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x"]


def _fail(*args):
    raise OSError("no")


def test_a_really_full_disk(tmp_path):
    path = tmp_path / "x"
    save("old", path)
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most))
    try:
        with pytest.raises(OSError):
            save(weft.zeros(1 << 16), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
        signal.signal(signal.SIGXFSZ, before)
    assert weft.load(path) == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_the_file_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    calls = []
    replace = os.replace
    monkeypatch.setattr(
        serialization.atomic.os, "fsync", lambda f: calls.append("fsync")
    )
    monkeypatch.setattr(
        serialization.atomic.os,
        "replace",
        lambda a, b: calls.append("replace") or replace(a, b),
    )
    save(1, tmp_path / "x")
    assert calls == ["fsync", "replace", "fsync"]


def test_links_stay_links(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    save(1, tmp_path / "real")
    save(2, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert weft.load(tmp_path / "real") == 2


# -- files that lie


def _file(obj):
    file = io.BytesIO()
    save(obj, file)
    return file.getvalue()


def _build(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _split(raw):
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def tensor(**changes):
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


DATA = bytes(8)
HOSTILE = {
    "empty": b"",
    "seven bytes": b"1234567",
    "huge header": (1 << 62).to_bytes(8, "little") + b"{}",
    "full header length": b"\xff" * 8 + b"{}",
    "no header": bytes(8),
    "not JSON": _build(b"[1, 2"),
    "not UTF-8": _build(b'{"\xff": 1}'),
    "a list": _build([]),
    "a number": _build(b"1"),
    "NaN": _build(b'{"a": NaN}'),
    "digits": _build(b'{"a": ' + b"9" * 10_000 + b"}"),
    "deep": _build(b"[" * 100_000),
    "deep object": _build(b'{"a":' * 100_000),
    "deep in shape": _build(
        b'{"a":{"dtype":"F32","data_offsets":[0,8],"shape":' + b"[" * 50_000
    ),
    "duplicate": _build(
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        b'"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        DATA,
    ),
    "duplicate field": _build(
        b'{"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}', DATA
    ),
    "entry is a list": _build({"a": []}),
    "unknown dtype": _build({"a": tensor(dtype="F7")}, DATA),
    "dtype is a list": _build({"a": tensor(dtype=[])}, DATA),
    "no dtype": _build({"a": {"shape": [2], "data_offsets": [0, 8]}}, DATA),
    "no shape": _build({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, DATA),
    "no offsets": _build({"a": {"dtype": "F32", "shape": [2]}}, DATA),
    "negative size": _build({"a": tensor(shape=[-2])}, DATA),
    "two negatives": _build({"a": tensor(shape=[-1, -2])}, DATA),
    "float size": _build({"a": tensor(shape=[2.0])}, DATA),
    "boolean size": _build({"a": tensor(shape=[True, 2])}, DATA),
    "text size": _build({"a": tensor(shape=["2"])}, DATA),
    "null shape": _build({"a": tensor(shape=None)}, DATA),
    "overflow": _build({"a": tensor(shape=[1 << 32, 1 << 32, 2])}, DATA),
    "overflow to zero": _build(
        {"a": tensor(shape=[1 << 62, 4], data_offsets=[0, 0])}, b""
    ),
    "overflow beside zero": _build(
        {"a": tensor(shape=[0, 1 << 62, 1 << 62], data_offsets=[0, 0])}
    ),
    "huge ints": _build({"a": tensor(shape=[10**300])}, DATA),
    "many dims": _build({"a": tensor(shape=[1] * 65 + [2])}, DATA),
    "very many dims": _build({"a": tensor(shape=[2**62] * 100_000)}, DATA),
    "one offset": _build({"a": tensor(data_offsets=[8])}, DATA),
    "three offsets": _build({"a": tensor(data_offsets=[0, 8, 8])}, DATA),
    "reversed offsets": _build({"a": tensor(data_offsets=[8, 0])}, DATA),
    "negative offset": _build({"a": tensor(data_offsets=[-8, 0])}, DATA),
    "past the end": _build({"a": tensor(data_offsets=[0, 8])}, DATA[:7]),
    "petabytes": _build(
        {"a": tensor(shape=[1 << 50], data_offsets=[0, 1 << 52])}, DATA
    ),
    "wrong size": _build({"a": tensor(shape=[3])}, DATA),
    "bytes left over": _build({"a": tensor()}, DATA + b"x"),
    "a hole": _build({"a": tensor(data_offsets=[4, 12])}, DATA + bytes(4)),
    "overlap": _build({"a": tensor(), "b": tensor(data_offsets=[4, 12])}, bytes(12)),
    "the same bytes": _build({"a": tensor(), "b": tensor()}, DATA),
    "invalid booleans": _build(
        {"a": tensor(dtype="BOOL", shape=[8])}, b"\x00\x01\x02" + bytes(5)
    ),
    "metadata is a list": _build({"__metadata__": []}),
    "metadata of numbers": _build({"__metadata__": {"format": 1}}),
}


def weft_file(nodes, version="1", entries=None, data=b""):
    text = nodes if isinstance(nodes, str) else json.dumps(nodes)
    metadata = {"format": "weft", "version": version, "structure": text}
    return _build({"__metadata__": metadata, **(entries or {})}, data)


ONE = {"t": tensor()}
PAIR = {"t": tensor(shape=[1, 2])}
HOSTILE |= {
    "other version": weft_file([["value", 1]], version="2"),
    "no structure": _build({"__metadata__": {"format": "weft", "version": "1"}}),
    "structure not JSON": weft_file("[["),
    "structure of NaN": weft_file('[["value", NaN]]'),
    "deep structure": weft_file("[" * 100_000),
    "structure is an object": weft_file({}),
    "no nodes": weft_file([]),
    "node is a number": weft_file([1]),
    "empty node": weft_file([[]]),
    "unknown node": weft_file([["eval", "1"]]),
    "node of a list": weft_file([[["list"], []]]),
    "too many fields": weft_file([["value", 1, 2]]),
    "a value that is a list": weft_file([["value", []]]),
    "child after its parent": weft_file([["list", [1]], ["value", 1]]),
    "its own child": weft_file([["list", [0]]]),
    "negative child": weft_file([["value", 1], ["list", [-1]]]),
    "boolean child": weft_file([["value", 1], ["value", 2], ["list", [0, True]]]),
    "a child used twice": weft_file([["value", 1], ["list", [0, 0]]]),
    "two roots": weft_file([["value", 1], ["value", 2]]),
    "children not a list": weft_file([["value", 1], ["list", {"0": 0}]]),
    "missing key": weft_file([["value", 1], ["dict", [], [0]]]),
    "equal keys": weft_file([["value", 1], ["value", 1], ["dict", ["a", "a"], [0, 1]]]),
    "key is a float": weft_file([["value", 1], ["dict", [1.5], [0]]]),
    "key is null": weft_file([["value", 1], ["dict", [None], [0]]]),
    "hexadecimal of words": weft_file([["int", "0xhello"]]),
    "decimal": weft_file([["int", "12"]]),
    "float of words": weft_file([["float", "one"]]),
    "float of a list": weft_file([["float", []]]),
    "long float": weft_file([["float", "1" * 100_000]]),
    "complex of words": weft_file([["complex", "1", "i"]]),
    "no such tensor": weft_file([["tensor", "x", "float32", False]], "1", ONE, DATA),
    "unused tensor": weft_file([["value", 1]], "1", ONE, DATA),
    "tensor of another dtype": weft_file(
        [["tensor", "t", "int32", False]], "1", ONE, DATA
    ),
    "tensor of no dtype": weft_file([["tensor", "t", "int", False]], "1", ONE, DATA),
    "tensor dtype is a list": weft_file([["tensor", "t", [], False]], "1", ONE, DATA),
    "tensor name is a list": weft_file(
        [["tensor", [], "float32", False]], "1", ONE, DATA
    ),
    "complex from one": weft_file(
        [["tensor", "t", "complex64", False]],
        "1",
        {"t": tensor(shape=[2, 1])},
        DATA,
    ),
    "complex of another size": weft_file(
        [["tensor", "t", "complex128", False]], "1", PAIR, DATA
    ),
    "0-d complex": weft_file(
        [["tensor", "t", "complex64", False]],
        "1",
        {"t": tensor(shape=[], data_offsets=[0, 4])},
        DATA[:4],
    ),
    "requires_grad is a number": weft_file(
        [["tensor", "t", "float32", 1]], "1", ONE, DATA
    ),
    "integers that require grad": weft_file(
        [["tensor", "t", "int32", True]], "1", {"t": tensor(dtype="I32")}, DATA
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name, tmp_path):
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    for load in (
        lambda: weft.load(path),
        lambda: weft.load(path, mmap=True),
        lambda: weft.load(io.BytesIO(HOSTILE[name])),
    ):
        with pytest.raises(FileFormatError, match="load: '"):
            load()


def test_errors_name_the_file_and_the_reason(tmp_path):
    path = tmp_path / "cut"
    path.write_bytes(_file(weft.ones(4))[:-1])
    with pytest.raises(FileFormatError) as info:
        weft.load(path)
    assert repr(str(path)) in str(info.value)
    assert "need 16 bytes of data, got 15" in str(info.value)
    assert isinstance(info.value, ValueError)


def test_valid_files_built_by_hand():
    """The builders above make good files when asked to: the faults are the faults."""
    same(weft.load(io.BytesIO(_build({"a": tensor()}, DATA))), {"a": weft.zeros(2)})
    node = [["tensor", "t", "complex64", True]]
    z = weft.load(io.BytesIO(weft_file(node, "1", PAIR, DATA)))
    same(z, weft.zeros(1, dtype=weft.complex64).requires_grad_())
    assert weft.load(io.BytesIO(weft_file([["int", "-0x10"]]))) == -16


@pytest.mark.parametrize("name", ["huge header", "petabytes", "overflow", "many dims"])
def test_claims_are_not_allocated(name, tmp_path):
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    tracemalloc.start()
    try:
        for mmap in (False, True):
            with pytest.raises(FileFormatError):
                weft.load(path, mmap=mmap)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_loading_allocates_about_the_files_size(tmp_path):
    path = tmp_path / "x"
    save({"a": weft.zeros(1 << 20), "b": weft.zeros(1 << 19)}, path)
    tracemalloc.start()
    try:
        found = weft.load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found["a"].nbytes + found["b"].nbytes <= peak < 1.1 * path.stat().st_size


@pytest.mark.parametrize("text", ["[],", "{},", '"ab",', "0,", '["list",[]],'])
def test_a_header_full_of_small_values(text):
    """Python's objects are larger than their JSON, so none are made of these."""
    raw = _build(b'{"a":[' + text.encode() * 20_000 + b"0]}")
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError):
            weft.load(io.BytesIO(raw))
        assert tracemalloc.get_traced_memory()[1] < 2 * len(raw) + (1 << 20)
    finally:
        tracemalloc.stop()


# -- fuzzing


def fuzz_seeds():
    state = {
        "w": weft.ones(2, 3),
        "steps": [1, 2.5, None, True, "text", math.inf, 1j, 2**70],
        "z": (weft.complex(weft.ones(2), weft.ones(2)), weft.tensor([True, False])),
        3: weft.tensor(1.5, dtype=weft.bfloat16),
    }
    plain = {"a": tensor(), "b": tensor(data_offsets=[8, 16])}
    return [_file(state), _file(weft.arange(3)), _build(plain, bytes(16))]


WORDS = [
    None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**30, 1.5, -0.0, 1e308, "", "F32",
    "BOOL", "C64", "weft", "tensor", "list", "\ud800", [], {}, [[]], [0, 8], [8, 0],
    {"dtype": "F32"}, "__metadata__", "nan", "0x10",
]  # fmt: skip


def mutate_json(value, rng):
    """One random change somewhere inside a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        return _mutate_dict(dict(value), key, rng)
    if isinstance(value, list) and value and rng.random() < 0.85:
        i = rng.randrange(len(value))
        action = rng.randrange(4)
        if action == 0:
            return value[:i] + value[i + 1 :]
        if action == 1:
            return [*value, value[i]]
        return [*value[:i], mutate_json(value[i], rng), *value[i + 1 :]]
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice([-8, -1, 1, 2, 8, 1 << 20, 1 << 40])
    return rng.choice(WORDS)


def _mutate_dict(value, key, rng):
    action = rng.randrange(5)
    if action == 0:
        del value[key]
    elif action == 1:
        value[str(rng.choice(WORDS)).encode("ascii", "replace").decode()] = value[key]
    elif key == "structure" and str(value[key]).startswith("[[") and rng.random() < 0.8:
        nodes = json.loads(value[key]) if isinstance(value[key], str) else value[key]
        value[key] = json.dumps(mutate_json(nodes, rng))
    else:
        value[key] = mutate_json(value[key], rng)
    return value


def mutate(raw, rng):
    kind = rng.randrange(7)
    header, data = _split(raw)
    if kind < 3:
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            header = mutate_json(header, rng) if isinstance(header, dict) else header
        return _build(header, data)
    out = bytearray(raw)
    if kind == 3:
        for _ in range(rng.randrange(1, 5)):
            out[rng.randrange(len(out))] = rng.randrange(256)
    elif kind == 4:
        out[rng.randrange(len(raw) - len(data), len(out))] ^= 1 << rng.randrange(8)
    elif kind == 5:
        del out[rng.randrange(len(out)) :]
    else:
        place = rng.randrange(len(out) + 1)
        extra = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        out[place : place + rng.choice([0, 0, 3])] = extra
    return bytes(out)


def test_ten_thousand_mutations():
    """Each mutated file loads as something or is refused; nothing else happens."""
    rng = random.Random(20240611)
    seeds = fuzz_seeds()
    refused = loaded = 0
    start = time.perf_counter()
    for k in range(10_000):
        raw = mutate(seeds[k % len(seeds)], rng)
        try:
            weft.load(io.BytesIO(raw))
            loaded += 1
        except FileFormatError:
            refused += 1
    assert refused + loaded == 10_000
    assert refused > 6_000  # the mutations do bite,
    assert loaded > 1_000  # and some only change what the file says
    assert time.perf_counter() - start < 60


def test_every_truncation_is_refused(tmp_path):
    raw = fuzz_seeds()[0]
    path = tmp_path / "cut"
    for length in range(0, len(raw), 3):
        with pytest.raises(FileFormatError):
            weft.load(io.BytesIO(raw[:length]))
    for length in range(0, len(raw), 97):
        path.write_bytes(raw[:length])
        with pytest.raises(FileFormatError):
            weft.load(path, mmap=True)


def test_every_byte_of_the_header_can_be_flipped():
    raw = fuzz_seeds()[0]
    end = 8 + int.from_bytes(raw[:8], "little")
    for place in range(end):
        for bit in (1, 0x20, 0x80):
            changed = bytearray(raw)
            changed[place] ^= bit
            with contextlib.suppress(FileFormatError):
                weft.load(io.BytesIO(changed))


# -- copying and pickling


def test_deepcopy_of_a_leaf():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    twin = copy.deepcopy({"x": x})["x"]
    assert twin.is_leaf
    assert twin.requires_grad
    assert twin.grad.tolist() == [2, 4]
    with weft.no_grad():
        twin.add_(1)
        twin.grad.add_(1)
    assert x.tolist() == [1, 2]
    assert x.grad.tolist() == [2, 4]
    both = copy.deepcopy([x, x])
    assert both[0] is both[1]


def test_deepcopy_of_a_result_is_refused():
    x = weft.ones(2, requires_grad=True)
    with pytest.raises(AutogradError, match=r"made by 'mul'. Use \.detach\(\)"):
        copy.deepcopy(x * 2)
    assert copy.deepcopy((x * 2).detach()).tolist() == [2, 2]


def test_shallow_copy():
    x = weft.zeros(2)
    twin = copy.copy(x)
    assert twin is not x
    twin[0] = 3
    assert x.tolist() == [3, 0]
    leaf = weft.ones(2, requires_grad=True)
    other = copy.copy(leaf)
    (other * 2).sum().backward()
    assert other.grad.tolist() == [2, 2]
    assert leaf.grad is None
    result = copy.copy(leaf * 3)
    result.sum().backward()
    assert leaf.grad.tolist() == [3, 3]


def test_examples():
    result = doctest.testmod(serialization.files, extraglobs={"weft": weft, "np": np})
    assert result.attempted > 0
    assert result.failed == 0


def test_importing_weft_does_not_load_what_only_files_need():
    code = "import sys, weft; print('safetensors' in sys.modules)"
    source = str(Path(weft.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
