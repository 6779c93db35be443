"""A bar on a terminal, few lines in a log file; time is told by the test."""

import io

import pytest

import weft
from weft import nn, optim
from weft.training import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_log_file_gets_a_line_every_ten_seconds_and_one_at_the_end():
    file, clock = io.StringIO(), Clock()
    with Progress(100, "epoch 1/3", file=file, clock=clock) as progress:
        for done in range(1, 101):
            clock.now = 0.25 * done  # 25 s in all
            progress.update(done, loss=f"{1 / done:.2f}", lr="0.1")
    assert file.getvalue().splitlines() == [
        "epoch 1/3: 40/100, loss 0.03, lr 0.1",
        "epoch 1/3: 80/100, loss 0.01, lr 0.1",
        "epoch 1/3: 100/100, loss 0.01, lr 0.1",
    ]


def test_the_last_line_is_not_repeated():
    file, clock = io.StringIO(), Clock()
    with Progress(None, "reading", unit=" s", file=file, clock=clock) as progress:
        clock.now = 10.0
        progress.update(7)
    assert file.getvalue() == "reading: 7 s\n"


def test_an_error_leaves_the_last_state_in_the_log():
    file = io.StringIO()

    def fail():
        with Progress(9, "run", file=file, clock=Clock()) as progress:
            progress.update(4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert file.getvalue() == "run: 4/9\n"


@pytest.mark.parametrize("total", [5, None])
def test_a_terminal_gets_a_bar(total):
    file = Terminal()
    with Progress(total, "epoch 1/1", unit=" s", file=file) as progress:
        for done in range(1, 6):
            progress.update(done, loss="0.5")
    last = file.getvalue().split("\r")[-1]
    assert last.startswith("epoch 1/1: ")
    assert f" 5/{total or '?'} s [00:00<" in last
    assert "loss=0.5" in last


@pytest.mark.parametrize("file", [io.StringIO(), Terminal()])
def test_nothing_is_shown_where_nothing_is_wanted(file):
    with Progress(2, "run", show=False, file=file) as progress:
        progress.update(2)
    assert file.getvalue() == ""


def test_a_trainer_writes_one_line_for_a_short_epoch(capsys):
    model = nn.Linear(2, 2)
    trainer = weft.Trainer(
        model, optim.SGD(model, lr=0.1), step=lambda m, batch: m(batch).square().mean()
    )
    trainer.fit([weft.rand(8, 2)] * 50, epochs=1)
    trainer.fit(iter([weft.rand(8, 2)]), epochs=2)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("epoch 1/1: 50/50, loss ")
    assert first.endswith(", lr 0.1")
    assert second.startswith("epoch 2/2: 1, loss ")
