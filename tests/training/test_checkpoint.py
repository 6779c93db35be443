"""Checkpoints survive crashes, and a resumed run equals one that never stopped."""

import multiprocessing
import os
import random
import signal
import time

import pytest

import weft
from weft import nn, optim
from weft.training import load_checkpoint, save_checkpoint


def parts(seed=0):
    weft.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 8, act="tanh"), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = optim.Adam(model, lr=0.05)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    return model, optimizer, scheduler


def train(model, optimizer, scheduler, steps):
    losses = []
    for _ in range(steps):
        x = weft.rand(4, 3)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def test_resume_is_bit_for_bit(tmp_path):
    path = tmp_path / "run.safetensors"
    whole = parts()
    expected = train(*whole, 12)

    first = parts()
    losses = train(*first, 5)
    names = ("model", "optimizer", "scheduler")
    save_checkpoint(
        path, **dict(zip(names, first, strict=True)), step=5, extra={"a": 1}
    )
    second = parts(seed=99)
    found = load_checkpoint(path, **dict(zip(names, second, strict=True)))
    assert (found.step, found.extra) == (5, {"a": 1})
    losses += train(*second, 7)
    assert losses == expected
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert weft.equal(a, b)


def test_a_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "run.safetensors"
    model = nn.Linear(30, 30)
    save_checkpoint(path, model=model)
    data = bytearray(path.read_bytes())
    data[-100] ^= 4
    path.write_bytes(data)
    with pytest.raises(ValueError, match="wrong checksum"):
        load_checkpoint(path, model=model)


def test_a_changed_name_is_noticed(tmp_path):
    path = tmp_path / "run.safetensors"
    save_checkpoint(path, extra={"best": 1.5})
    path.write_bytes(path.read_bytes().replace(b"best", b"test"))
    with pytest.raises(ValueError, match="wrong checksum"):
        load_checkpoint(path)


def test_refusals(tmp_path):
    path = tmp_path / "run.safetensors"
    model = nn.Linear(2, 2)
    weft.save({"a": weft.ones(1)}, path)
    with pytest.raises(ValueError, match="no checkpoint"):
        load_checkpoint(path, model=model)
    save_checkpoint(path, model=model)
    with pytest.raises(ValueError, match="holds no optimizer"):
        load_checkpoint(path, model=model, optimizer=optim.SGD(model, lr=1.0))
    with pytest.raises(RuntimeError, match="wrong shape weight"):
        load_checkpoint(path, model=nn.Linear(3, 2))


def _save_for_ever(path):
    model = nn.Linear(64, 64)
    step = 1
    while True:
        with weft.no_grad():
            model.weight.fill_(step)
        save_checkpoint(path, model=model, step=step)
        step += 1


@pytest.mark.parametrize("count", [12])
def test_killed_at_random_moments_leaves_a_loadable_file(tmp_path, count):
    path = tmp_path / "run.safetensors"
    model = nn.Linear(64, 64)
    save_checkpoint(path, model=model, step=0)
    rng = random.Random(0)
    context = multiprocessing.get_context("fork")
    for _ in range(count):
        worker = context.Process(target=_save_for_ever, args=(path,))
        worker.start()
        before = path.stat().st_mtime_ns
        deadline = time.monotonic() + 10
        while path.stat().st_mtime_ns == before and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(rng.uniform(0, 0.01))
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        found = load_checkpoint(path, model=model)
        if found.step:
            assert (model.weight == found.step).all()
