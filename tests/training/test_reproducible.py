"""One seed, one network: the same bits over reruns, workers, saving and resuming."""

import os
import subprocess
import sys

import pytest

import weft
from weft import nn, optim
from weft.training import load_checkpoint, save_checkpoint
from weft.training.checkpoint import checksum
from weft.utils import transforms as T
from weft.utils.data import DataLoader, Dataset

EPOCHS, BATCHES = 3, 6  # of 4 images; the last batch of an epoch has 2
STOP = 9  # in the middle of the second epoch


class Images(Dataset):
    """Random images that are seen differently in each epoch."""

    def __init__(self):
        random = weft.Generator().manual_seed(1)
        self.images = weft.rand(22, 3, 8, 8, generator=random)
        self.labels = weft.randint(0, 3, (22,), generator=random)
        self.view = T.Compose(
            [
                T.RandomCrop(8, padding=1), T.RandomHorizontalFlip(),
                T.ColorJitter(0.3, 0.3, 0.3, 0.1), T.RandomRotation(10),
                T.RandomErasing(0.5),
            ]
        )  # fmt: skip

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.view(self.images[index]), self.labels[index]


class Run:
    """The parts of one small run; ``start`` decides what a resume must overwrite."""

    def __init__(self, workers, start=0):
        weft.manual_seed(start)
        self.loader = DataLoader(
            Images(), 4, shuffle=True, seed=11 + start, num_workers=workers
        )
        self.model = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.2),
            nn.Flatten(), nn.Linear(144, 8), nn.BatchNorm1d(8), nn.GELU(),
            nn.Dropout(0.3), nn.Linear(8, 3),
        )  # fmt: skip
        self.optimizer = optim.AdamW(self.model, lr=0.01)
        self.scheduler = optim.lr_scheduler.OneCycleLR(
            self.optimizer, 0.02, total_steps=EPOCHS * BATCHES
        )
        self.steps = 0

    def parts(self):
        names = ("model", "optimizer", "scheduler", "loader")
        return {name: getattr(self, name) for name in names}

    def loop(self, until=EPOCHS * BATCHES):
        """The plain loop."""
        while self.steps < until:
            for x, y in self.loader:
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(x), y).backward()
                self.optimizer.step()
                self.scheduler.step()
                self.steps += 1
                if self.steps == until:
                    break
        self.loader.close()
        return self

    def trainer(self, folder):
        return weft.Trainer(
            self.model, self.optimizer, nn.CrossEntropyLoss(), folder=folder,
            scheduler=self.scheduler, progress=False, checkpoint_every=STOP,
        )  # fmt: skip

    def digest(self):
        """All weights, running statistics and moments, and the next random number."""
        parts = {k: v.state_dict() for k, v in self.parts().items() if k != "loader"}
        return checksum([plain(parts), weft.rand(2)])


def plain(tree):
    return {k: plain(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


@pytest.fixture(scope="module")
def expected():
    return Run(0).loop().digest()


def test_the_digest_sees_every_part(expected):
    assert Run(0).digest() != expected
    for change in (
        lambda run: run.model[0].bias.detach()[0].add_(1e-7),
        lambda run: run.model[1].running_mean.add_(1e-7),
        lambda run: next(iter(run.optimizer.state.values()))["exp_avg"].add_(1e-9),
        lambda run: weft.rand(1),
    ):
        run = Run(0).loop()
        change(run)
        assert run.digest() != expected


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_reruns_and_workers(expected, workers):
    assert Run(workers).loop().digest() == expected


def test_another_seed_is_another_run(expected):
    assert Run(0, start=1).loop().digest() != expected


def test_another_process(expected):
    code = "import test_reproducible as t; print(t.Run(2).loop().digest())"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=os.path.dirname(__file__),
        env=os.environ | {"PYTHONHASHSEED": "12345"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert out.stdout.strip() == expected


MOVES = [(0, 0), (0, 2), (2, 4), (4, 0)]


@pytest.mark.parametrize(("before", "after"), MOVES)
def test_a_plain_loop_resumes(expected, tmp_path, before, after):
    path = tmp_path / "run.safetensors"
    first = Run(before).loop(until=STOP)
    save_checkpoint(path, **first.parts(), step=first.steps)
    second = Run(after, start=99)
    second.steps = load_checkpoint(path, **second.parts()).step
    assert second.loop().digest() == expected


class Stop(Exception):
    """The end of a run that did not want to end."""


@pytest.mark.parametrize(("before", "after"), MOVES)
def test_a_trainer_resumes(expected, tmp_path, before, after):
    first = Run(before)
    trainer = first.trainer(tmp_path)
    step = trainer.train_step

    def until_after_the_checkpoint(batch):
        if trainer.steps == STOP + 1:
            raise Stop
        return step(batch)

    trainer.train_step = until_after_the_checkpoint
    with pytest.raises(Stop):
        trainer.fit(first.loader, EPOCHS)
    first.loader.close()
    second = Run(after, start=99)
    trainer = second.trainer(tmp_path)
    assert trainer.resume(second.loader)
    assert (trainer.steps, trainer.epoch) == (STOP, 1)
    trainer.fit(second.loader, EPOCHS)
    second.loader.close()
    assert second.digest() == expected


def test_a_trainer_that_never_stopped(expected, tmp_path):
    run = Run(2)
    run.trainer(tmp_path).fit(run.loader, EPOCHS)
    run.loader.close()
    assert run.digest() == expected
