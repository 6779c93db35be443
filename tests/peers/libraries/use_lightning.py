"""lightning: its Trainer on the CPU, with callbacks, checkpoints and resuming."""

import logging
import tempfile
import warnings

import lightning as L
import torch
from common import case, fill, integers, main, normal
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    StochasticWeightAveraging,
)  # fmt: skip
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class Net(L.LightningModule):
    def __init__(self, lr=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = fill(
            torch.nn.Sequential(
                torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
            )
        )

    def _loss(self, batch):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def training_step(self, batch, index):
        loss = self._loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self._loss(batch), prog_bar=True)

    def test_step(self, batch, index):
        self.log("test_loss", self._loss(batch))

    def predict_step(self, batch, index):
        return self.net(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class Data(L.LightningDataModule):
    def loader(self, seed):
        data = TensorDataset(normal(20, 4, seed=seed), integers(3, 20, seed=seed))
        return DataLoader(data, batch_size=5)

    def train_dataloader(self):
        return self.loader(0)

    def val_dataloader(self):
        return self.loader(1)

    test_dataloader = predict_dataloader = val_dataloader


class Count(Callback):
    def __init__(self):
        self.seen = []

    def on_train_epoch_end(self, trainer, module):
        self.seen.append(f"epoch {trainer.current_epoch}")

    def on_validation_end(self, trainer, module):
        self.seen.append("validated")


def trainer(folder, **options):
    given = {
        "max_epochs": 2, "accelerator": "cpu", "devices": 1, "logger": False,
        "enable_progress_bar": False, "enable_model_summary": False,
        "default_root_dir": folder, "enable_checkpointing": False,
    }  # fmt: skip
    return L.Trainer(**{**given, **options})


def weights(module):
    return dict(module.named_parameters())


@case
def it_fits_validates_tests_and_predicts():
    with tempfile.TemporaryDirectory() as folder:
        count, module = Count(), Net()
        run = trainer(folder, callbacks=[count])
        run.fit(module, Data())
        return {
            "weights": weights(module), "metrics": dict(run.callback_metrics),
            "validated": run.validate(module, Data(), verbose=False),
            "tested": run.test(module, Data(), verbose=False),
            "predicted": run.predict(module, Data()), "seen": count.seen,
        }  # fmt: skip


@case
def it_saves_checkpoints_and_resumes():
    with tempfile.TemporaryDirectory() as folder:
        keep = ModelCheckpoint(
            folder, monitor="val_loss", save_last=True, filename="best"
        )
        module = Net()
        first = trainer(folder, callbacks=[keep], enable_checkpointing=True)
        first.fit(module, Data())
        loaded = Net.load_from_checkpoint(keep.last_model_path, weights_only=False)
        same = all(
            bool((a == b).all())
            for a, b in zip(loaded.parameters(), module.parameters(), strict=True)
        )
        again = Net()
        more = trainer(folder, max_epochs=4)
        more.fit(again, Data(), ckpt_path=keep.last_model_path, weights_only=False)
        return {
            "best": keep.best_model_score, "same": same, "lr": loaded.hparams.lr,
            "weights": weights(again), "steps": more.global_step,
        }  # fmt: skip


@case
def accumulation_clipping_and_limits():
    with tempfile.TemporaryDirectory() as folder:
        module = Net()
        run = trainer(
            folder, accumulate_grad_batches=2, gradient_clip_val=0.1,
            limit_train_batches=3, check_val_every_n_epoch=2,
        )  # fmt: skip
        run.fit(module, Data())
        return {"weights": weights(module), "steps": run.global_step}


@case
def stopping_early_and_logging():
    with tempfile.TemporaryDirectory() as folder:
        module = Net(lr=0.0)
        stop = EarlyStopping("val_loss", patience=1)
        run = trainer(
            folder, max_epochs=10, callbacks=[stop, LearningRateMonitor("epoch")],
            logger=CSVLogger(folder), log_every_n_steps=1,
        )  # fmt: skip
        run.fit(module, Data())
        return {"stopped": stop.stopped_epoch, "epochs": run.current_epoch}


@case
def averaged_weights():
    with tempfile.TemporaryDirectory() as folder:
        module = Net()
        swa = StochasticWeightAveraging(
            swa_lrs=0.01, swa_epoch_start=1, annealing_epochs=1
        )
        run = trainer(folder, max_epochs=4, callbacks=[swa])
        run.fit(module, Data())
        return weights(module)


@case
def by_hand_and_with_bfloat16():
    class ByHand(Net):
        automatic_optimization = False

        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, index):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            loss = self._loss(batch)
            self.manual_backward(loss)
            optimizer.step()

    with tempfile.TemporaryDirectory() as folder:
        module = ByHand()
        trainer(folder).fit(module, Data())
        mixed = Net()
        run = trainer(folder, precision="bf16-mixed")
        run.fit(mixed, Data())
        near = abs(float(run.callback_metrics["val_loss"]) - 1.0) < 0.5
    return {"weights": weights(module), "near": near}


@case
def fabric():
    fabric = L.Fabric(accelerator="cpu", devices=1)
    model = fill(torch.nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(Data().train_dataloader())
    for x, y in loader:
        optimizer.zero_grad()
        fabric.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
    return weights(model)


main()
