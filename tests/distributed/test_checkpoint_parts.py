"""Checkpoints in parts: any number of processes load them; whole or not there."""

import json
import os
import random

import pytest

import weft
import weft.distributed as dist
from weft import nn, optim
from weft.distributed import checkpoint
from weft.errors import WeftError


def network(steps=0):
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        net(weft.randn(5, 3)).square().sum().backward()
        optimizer.step()
    return net, optimizer


def numbers(net, optimizer):
    weights = [v.tolist() for v in net.state_dict().values()]
    state = optimizer.state_dict()["state"]
    return weights, [s["exp_avg"].tolist() for s in state.values()]


def saves(path):
    net, optimizer = network(3)
    state = {"net": net, "optimizer": optimizer, "step": 3, "x": weft.arange(5)}
    checkpoint.save(state, checkpoint_id=path)
    return numbers(net, optimizer)


def loads(path):
    net, optimizer = network(1)
    state = {"net": net, "optimizer": optimizer, "x": weft.zeros(5, dtype=weft.int64)}
    x = state["x"]
    checkpoint.load(state, checkpoint_id=path)
    assert x.tolist() == [0, 1, 2, 3, 4]
    assert state["x"] is x
    return numbers(net, optimizer)


@pytest.mark.parametrize(("before", "then"), [(3, 2), (1, 3)])
def test_any_number_of_processes_loads(worlds, tmp_path, before, then):
    path = str(tmp_path / "kept")
    (want, *_) = worlds.ok(saves, before, path)
    assert worlds.ok(loads, then, path) == [want] * then
    parts = [f"part-{k}-of-{before}.safetensors" for k in range(before)]
    assert sorted(os.listdir(path)) == ["metadata.json", *parts]
    sizes = [os.path.getsize(os.path.join(path, part)) for part in parts]
    assert max(sizes) < sum(sizes) / before + 400  # headers and the largest tensor
    keys = {k for part in parts for k in weft.load(os.path.join(path, part))}
    assert {"x", "net.0"} <= keys


def saves_later(path):
    x = weft.ones(3)
    waiting = [
        checkpoint.async_save({"x": x}, checkpoint_id=f"{path}/{k}") for k in range(2)
    ]
    x += 1  # what was there before is written
    dist.all_reduce(x)  # collectives go on meanwhile
    for one in waiting:
        one.result()
    state = {"x": weft.zeros(3)}
    checkpoint.load(state, checkpoint_id=f"{path}/1")
    return state["x"].tolist(), x.tolist()


def test_a_program_goes_on_while_states_are_written(worlds, tmp_path):
    found = worlds.ok(saves_later, 2, str(tmp_path))
    assert found == [[[1.0] * 3, [4.0] * 3]] * 2


def fails(path, what):
    checkpoint.save({"x": weft.ones(3)}, checkpoint_id=path)
    if what == "disk" and dist.get_rank() == 1:

        def full(*args, **options):
            raise OSError(28, "No space left on device")

        weft.save = full
    state = {"x": weft.zeros(3)}
    if what == "names":
        state |= {f"of {dist.get_rank()}": 1}
    try:
        checkpoint.save(state, checkpoint_id=path)
    except dist.CheckpointError as error:
        text = str(error)
    checkpoint.load(state := {"x": weft.zeros(3)}, checkpoint_id=path)
    return (
        text.partition("\n")[0],
        state["x"].tolist(),
        os.listdir(os.path.dirname(path)),
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [("disk", "rank 1 could not write the checkpoint"), ("names", "different names")],
)
def test_a_failure_is_told_by_all_and_leaves_the_old(worlds, tmp_path, what, words):
    for text, x, folder in worlds.ok(fails, 2, str(tmp_path / "kept"), what):
        assert words in text
        assert x == [1.0] * 3
        assert folder == ["kept"]


@pytest.fixture
def alone():
    dist.init_process_group(rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"y": 0}, "has no y"),
        ({"x": weft.zeros(2)}, r"expected a tensor of shape \(2,\) as 'x', got shape"),
        ({"n": weft.zeros(2)}, "as 'n', got none"),
        ({"d": {"a": 0, "b": 0}}, "the checkpoint has no d.b"),
        ({"x": weft.zeros(3), "d": {"a": weft.zeros(1)}}, "as 'd.a', got none"),
    ],
)
def test_what_does_not_fit_changes_nothing(alone, tmp_path, state, text):
    kept = {"x": weft.ones(3), "n": 5, "d": {"a": 1}}
    checkpoint.save(kept, checkpoint_id=tmp_path / "kept")
    with pytest.raises(dist.CheckpointError, match=text):
        checkpoint.load(state, checkpoint_id=tmp_path / "kept")
    assert all(x.sum() == 0 for x in state.values() if isinstance(x, weft.Tensor))


def test_names_and_folders(alone, tmp_path):
    with pytest.raises(ValueError, match="expected texts as names, got 3"):
        checkpoint.save({3: 4}, checkpoint_id=tmp_path / "kept")
    with pytest.raises(
        dist.CheckpointError, match="is no checkpoint; it has no metada"
    ):
        checkpoint.load({"x": 0}, checkpoint_id=tmp_path)
    with pytest.raises(TypeError, match="expected plain data"):
        checkpoint.save({"x": object()}, checkpoint_id=tmp_path / "kept")
    assert os.listdir(tmp_path) == []
    with pytest.raises(
        ValueError, match="expected checkpoint_id, the path of a folder"
    ):
        checkpoint.save({})
    writer = checkpoint.FileSystemWriter(tmp_path / "kept")
    checkpoint.save({"x": 3}, storage_writer=writer)
    reader = checkpoint.FileSystemReader(tmp_path / "kept")
    checkpoint.load(state := {"x": 0}, storage_reader=reader)
    assert state == {"x": 3}


def test_damaged_metadata_are_refused(alone, tmp_path):
    path = tmp_path / "kept"
    checkpoint.save({"x": weft.ones(3), "d": {"a": [1, 2.5]}}, checkpoint_id=path)
    text = (path / "metadata.json").read_bytes()
    draw = random.Random(0)
    refused = 0
    for _ in range(300):
        changed = bytearray(text)
        changed[draw.randrange(len(text))] = draw.randrange(32, 127)
        (path / "metadata.json").write_bytes(bytes(changed))
        state = {"x": weft.zeros(3), "d": {"a": 0}}
        try:
            checkpoint.load(state, checkpoint_id=path)
        except (WeftError, OSError):
            refused += 1
    assert refused > 200
    for change in ({"parts": "../9"}, {"entries": []}, {"entries": {"x": 3}}):
        found = {**json.loads(text), **change}
        (path / "metadata.json").write_text(json.dumps(found))
        with pytest.raises((WeftError, OSError)):
            checkpoint.load({"x": weft.zeros(3)}, checkpoint_id=path)
