"""A disk that fills up while saving: a clear error, and the old file as it was."""

import errno
import os
import subprocess
import sys
import textwrap

import pytest

import weft
from weft import nn, optim, serialization
from weft.training import load_checkpoint, save_checkpoint

FULL = "No space left on device"


def full(*args):
    raise OSError(errno.ENOSPC, FULL)


class Full:
    """A file on a disk with little room, which fails when it is closed, too."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            full()
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()
        if self.room < 0:
            full()


def fill_at_write(patch, room=600):
    def opened(*args):
        return Full(open(*args), room)

    patch.setattr(serialization.atomic, "open", opened, raising=False)


MOMENTS = {
    "write": fill_at_write,
    "first byte": lambda patch: fill_at_write(patch, room=0),
    "fsync": lambda patch: patch.setattr(serialization.atomic.os, "fsync", full),
    "rename": lambda patch: patch.setattr(serialization.atomic.os, "replace", full),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_save_leaves_the_old_file_and_names_it(tmp_path, monkeypatch, moment):
    path = tmp_path / "weights.safetensors"
    weft.save({"w": weft.ones(300)}, path)
    with monkeypatch.context() as patch:
        MOMENTS[moment](patch)
        with pytest.raises(OSError, match=FULL) as caught:
            weft.save({"w": weft.zeros(300)}, path)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(path)
    assert str(path) in str(caught.value)
    assert weft.equal(weft.load(path)["w"], weft.ones(300))
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "none" / "weights.safetensors"
    with pytest.raises(FileNotFoundError, match=r"none.weights\.safetensors'$"):
        weft.save(1, path)


def parts():
    model = nn.Sequential(nn.Linear(4, 30), nn.BatchNorm1d(30), nn.Linear(30, 1))
    return {"model": model, "optimizer": optim.Adam(model, lr=0.1)}


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_checkpoint_before_stays(tmp_path, monkeypatch, moment):
    path = tmp_path / "run.safetensors"
    run = parts()
    save_checkpoint(path, **run, step=1)
    kept = {k: v.clone() for k, v in run["model"].state_dict().items()}
    run["model"][0].weight.detach().zero_()
    with monkeypatch.context() as patch:
        MOMENTS[moment](patch)
        with pytest.raises(OSError, match=f"{FULL}.*run.safetensors"):
            save_checkpoint(path, **run, step=2)
    assert os.listdir(tmp_path) == [path.name]
    assert load_checkpoint(path, **run).step == 1
    for name, value in run["model"].state_dict().items():
        assert weft.equal(value, kept[name])


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_trainer_stops_and_its_checkpoint_resumes(tmp_path, monkeypatch, moment):
    data = [(weft.rand(8, 4), weft.rand(8, 1)) for _ in range(3)]

    def trainer():
        run = parts()
        return weft.Trainer(
            run["model"], run["optimizer"], nn.MSELoss(), folder=tmp_path,
            progress=False,
        )  # fmt: skip

    trainer().fit(data, 1)
    second = trainer()
    assert second.resume()
    with monkeypatch.context() as patch:
        MOMENTS[moment](patch)
        with pytest.raises(OSError, match=f"{FULL}.*checkpoint.safetensors"):
            second.fit(data, 2)
    third = trainer()
    assert third.resume()
    assert third.steps == 3
    left = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    events = {name for name in left if name.startswith("events.out")}
    assert left - events == {"checkpoint.safetensors", "curve.svg"}


PROGRAM = """
    import pathlib, resource, signal, sys
    import weft
    from weft import nn, optim

    folder = pathlib.Path(sys.argv[1])
    model = nn.Linear(100, 100)
    data = [(weft.rand(2, 100), weft.rand(2, 100))]
    optimizer = optim.Adam(model, lr=0.1)
    trainer = weft.Trainer(
        model, optimizer, nn.MSELoss(), folder=folder, progress=False
    )
    trainer.fit(data, 1)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    try:
        trainer.fit(data, 2)
    except OSError as error:
        print(error)
    try:
        weft.save({"w": weft.zeros(20_000)}, folder / "checkpoint.safetensors")
    except OSError as error:
        print(error)
"""


def test_a_limit_of_the_system(tmp_path):
    """The same with nothing replaced: the system itself refuses the bytes."""
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path)]
    out = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    expected = f"[Errno {errno.EFBIG}] {os.strerror(errno.EFBIG)}: "
    path = str(tmp_path / "checkpoint.safetensors")
    assert out.splitlines() == [expected + repr(path)] * 2
    model = nn.Linear(100, 100)
    run = {"model": model, "optimizer": optim.Adam(model, lr=0.1)}
    assert load_checkpoint(path, **run).step == 1
    assert not list(tmp_path.rglob("*.tmp"))
