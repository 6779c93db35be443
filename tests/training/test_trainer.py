"""The training loop: what it logs, when it stops, and that resuming is exact."""

import pytest

import weft
from weft import metrics, nn, optim
from weft.training import read_events
from weft.utils.data import DataLoader, TensorDataset


def make(folder=None, seed=0, **options):
    x = weft.rand(40, 3, generator=weft.Generator().manual_seed(8))
    y = (x.sum(1) > 1.5).long()
    weft.manual_seed(seed)
    loader = DataLoader(TensorDataset(x, y), 8, shuffle=True, seed=5)
    model = nn.Sequential(
        nn.Linear(3, 16, act="tanh"), nn.Dropout(0.1), nn.Linear(16, 2)
    )
    optimizer = optim.Adam(model, lr=0.05)
    trainer = weft.Trainer(
        model, optimizer, nn.CrossEntropyLoss(), folder=folder, progress=False,
        scheduler=optim.lr_scheduler.ExponentialLR(optimizer, 0.99),
        metrics={"accuracy": metrics.Accuracy()}, **options,
    )  # fmt: skip
    return trainer, loader


def test_it_learns_and_logs(tmp_path):
    trainer, loader = make(tmp_path, clip_norm=1.0)
    history = trainer.fit(loader, 8, loader)
    assert trainer.steps == 40
    assert len(history["loss"]) == 40
    assert len(history["validation accuracy"]) == 8
    assert trainer.evaluate(loader)["accuracy"] > 0.9
    (events,) = (tmp_path / "events").iterdir()
    logged = [e["loss"] for e in read_events(events) if "loss" in e]
    assert logged == pytest.approx([v for _, v in history["loss"]])
    assert (tmp_path / "curve.svg").exists()


def test_resume_equals_a_run_that_never_stopped(tmp_path):
    whole, loader = make(tmp_path / "a")
    whole.fit(loader, 4)
    first, loader = make(tmp_path / "b")
    first.fit(loader, 2)
    second, loader = make(tmp_path / "b", seed=77)
    assert second.resume(loader)
    second.fit(loader, 4)
    assert second.history["loss"] == whole.history["loss"]
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert weft.equal(a, b)


def test_resume_in_the_middle_of_an_epoch(tmp_path):
    whole, loader = make(tmp_path / "a")
    whole.fit(loader, 2)

    class Stop(Exception):
        pass

    first, loader = make(tmp_path / "b", checkpoint_every=7)
    step = first.train_step

    def until_eight(batch):
        if first.steps == 8:
            raise Stop
        return step(batch)

    first.train_step = until_eight
    with pytest.raises(Stop):
        first.fit(loader, 2)
    second, loader = make(tmp_path / "b", seed=3)
    assert second.resume(loader)
    assert second.steps == 7
    second.fit(loader, 2)
    assert second.history["loss"] == whole.history["loss"]


def test_resuming_sweeps_what_a_killed_run_left(tmp_path):
    trainer, loader = make(tmp_path)
    trainer.fit(loader, 1)
    left = tmp_path / ".checkpoint.safetensors.0123456789ab.tmp"
    others = [tmp_path / ".checkpoint.safetensors.note.tmp", tmp_path / "my.tmp"]
    for path in (left, *others):
        path.write_bytes(b"half")
    assert make(tmp_path)[0].resume(loader)
    assert not left.exists()
    assert all(path.exists() for path in others)


def test_patience_stops_a_run_that_does_not_improve():
    trainer, loader = make(patience=1)
    for group in trainer.optimizer.param_groups:
        group["lr"] = 0.0
    in_order = DataLoader(loader.dataset, 8)
    trainer.fit(loader, 50, in_order)
    assert trainer.epoch == 3


def test_a_resumed_run_has_no_more_patience_than_the_first(tmp_path):
    def run():
        trainer, loader = make(tmp_path, patience=2)
        for group in trainer.optimizer.param_groups:
            group["lr"] = 0.0
        trainer.scheduler = None
        return trainer, loader, DataLoader(loader.dataset, 8)

    trainer, loader, in_order = run()
    trainer.fit(loader, 2, in_order)
    trainer, loader, in_order = run()
    assert trainer.resume(loader)
    trainer.fit(loader, 50, in_order)
    assert trainer.epoch == 4


def test_evaluation_leaves_the_mode_and_records_nothing():
    trainer, loader = make()
    trainer.evaluate(loader)
    assert trainer.model.training
    assert all(p.grad is None for p in trainer.model.parameters())


def test_a_step_of_ones_own():
    model = nn.Linear(2, 2)
    trainer = weft.Trainer(
        model, optim.SGD(model, lr=0.1), progress=False,
        step=lambda m, batch: (m(batch) - batch).square().mean(),
    )  # fmt: skip
    history = trainer.fit([weft.rand(8, 2)] * 20, epochs=2)["loss"]
    assert history[-1][1] < history[0][1]
    with pytest.raises(ValueError, match="either loss_fn or step"):
        weft.Trainer(model, optim.SGD(model, lr=0.1))


def test_an_empty_batch_is_refused_and_changes_nothing():
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    trainer = weft.Trainer(
        model, optim.SGD(model, lr=0.1), nn.MSELoss(), progress=False
    )
    with pytest.raises(ValueError, match=r"at least one sample .* \(0, 2\) after 0 st"):
        trainer.fit([(weft.zeros(0, 2), weft.zeros(0, 2))], 1)
    assert weft.equal(model.weight, before)


class Part(nn.Module):
    """A model with a head that takes part now and then."""

    def __init__(self, every):
        super().__init__()
        self.body, self.head = nn.Linear(2, 1), nn.Linear(2, 1)
        self.every, self.calls = every, 0

    def forward(self, x):
        self.calls += 1
        with_head = self.every and self.calls % self.every == 0
        return self.body(x) + self.head(x) if with_head else self.body(x)


def fit_part(model, optimizer, epochs=2):
    trainer = weft.Trainer(model, optimizer, nn.MSELoss(), progress=False)
    trainer.fit([(weft.rand(4, 2), weft.zeros(4, 1)) for _ in range(3)], epochs)


def test_parameters_that_do_not_learn_are_named_once():
    model = Part(0)
    with pytest.warns(UserWarning, match="did not learn") as seen:
        fit_part(model, weft.optim.SGD(model.parameters(), lr=0.1))
    assert len(seen) == 1
    assert "head.weight: it has no gradient\n" in str(seen[0].message)
    model = Part(1)
    with pytest.warns(UserWarning, match="head.bias: the optimizer does not have it"):
        fit_part(model, weft.optim.SGD(model.body.parameters(), lr=0.1))


@pytest.mark.filterwarnings("error")
def test_parameters_that_learn_now_and_then_or_are_frozen_are_not_named():
    model = Part(3)
    fit_part(model, weft.optim.SGD(model.parameters(), lr=0.1))
    model = Part(0)
    model.head.requires_grad_(False)
    fit_part(model, weft.optim.SGD(model.body.parameters(), lr=0.1))
    model = nn.Sequential(nn.LazyLinear(1))
    model(weft.ones(1, 2))
    fit_part(model, weft.optim.SGD(model.parameters(), lr=0.1))
