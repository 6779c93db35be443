"""``Trainer``: the plain training loop, with progress, logs and checkpoints.

It does what this loop does, and nothing else::

    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = step(model, batch)
            loss.backward()
            optimizer.step()
            scheduler.step()
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import weft
from weft.core.pytree import tree_flatten
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.metrics import Mean
from weft.nn.utils import clip_grad_norm_, untrained_parameters
from weft.serialization import sweep
from weft.training.checkpoint import load_checkpoint, save_checkpoint
from weft.training.events import SummaryWriter
from weft.training.picture import plot_curves
from weft.training.progress import Progress
from weft.utils.data import DataLoader

Step = Callable[[Any, Any], Tensor]


class Trainer:
    """Trains a model; every part of the run can be looked at or replaced.

    ``step(model, batch)`` gives a batch's loss; without it, ``loss_fn(model(x), y)``
    of batches ``(x, y)``. ``folder`` receives event files, ``curve.svg`` and
    ``checkpoint.safetensors``. A parameter that ``optimizer`` does not have, or that
    no step of the first epoch gave a gradient, is named in a warning.

    >>> model = weft.nn.Linear(2, 1)
    >>> data = [(weft.rand(8, 2), weft.zeros(8, 1)) for _ in range(5)]
    >>> optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    >>> trainer = weft.Trainer(model, optimizer, weft.nn.MSELoss(), progress=False)
    >>> history = trainer.fit(data, epochs=2)
    >>> trainer.steps
    10
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss_fn: Callable[..., Tensor] | None = None,
        *,
        step: Step | None = None,
        scheduler: Any = None,
        metrics: dict[str, Any] | None = None,
        clip_norm: float | None = None,
        folder: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        patience: int | None = None,
        progress: bool = True,
    ) -> None:
        if (loss_fn is None) == (step is None):
            raise ArgumentError("Trainer: give either loss_fn or step")
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.loss_fn, self.step = loss_fn, step
        self.metrics = metrics or {}
        self.clip_norm, self.patience = clip_norm, patience
        self.checkpoint_every, self.progress = checkpoint_every, progress
        self.folder = None if folder is None else pathlib.Path(folder)
        self.steps = self.epoch = 0
        self.best, self.waited = math.inf, 0  # validation loss; epochs without better
        self.history: dict[str, list[tuple[float, float]]] = {}
        self._writer: SummaryWriter | None = None
        self._untrained: dict[str, str] | None = None  # so far, and why

    # -- training

    def fit(
        self, loader: Any, epochs: int, validation: Any = None
    ) -> dict[str, list[tuple[float, float]]]:
        """Train until ``epochs`` are done (or patience is out); returns the curves."""
        try:
            while self.epoch < epochs and not self._out_of_patience():
                self._epoch(loader, epochs)
                self._warn_of_untrained()
                self.epoch += 1
                if validation is not None:
                    self._validate(validation)
                self._save(loader)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                self._close()
            raise
        self._close()
        return self.history

    def _out_of_patience(self) -> bool:
        return self.patience is not None and self.waited > self.patience

    def _validate(self, loader: Any) -> None:
        scores = self.evaluate(loader)
        self._note({f"validation {k}": v for k, v in scores.items()})
        better = scores["loss"] < self.best
        self.waited = 0 if better else self.waited + 1
        self.best = min(self.best, scores["loss"])

    def _epoch(self, loader: Any, epochs: int) -> None:
        self.model.train()
        label = f"epoch {self.epoch + 1}/{epochs}"
        with Progress(_length(loader), label, show=self.progress) as progress:
            for done, batch in enumerate(loader, 1):
                loss = self.train_step(batch)
                self._note({"loss": loss})
                progress.update(done, loss=f"{loss:.4f}", lr=f"{self._lr():.2g}")
                if self.checkpoint_every and self.steps % self.checkpoint_every == 0:
                    self._save(loader)

    def train_step(self, batch: Any) -> float:
        """One update from one batch; returns its loss."""
        self._check(batch)
        self.optimizer.zero_grad()
        loss = self._loss(batch)
        loss.backward()
        if self._untrained is None or self._untrained:
            self._note_untrained()
        if self.clip_norm is not None:
            clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        self.steps += 1
        return loss.item()

    def _note_untrained(self) -> None:
        now = untrained_parameters(self.model, self.optimizer)
        before = now if self._untrained is None else self._untrained
        self._untrained = {name: why for name, why in before.items() if name in now}

    def _warn_of_untrained(self) -> None:
        """Say once which parameters did not learn."""
        names, self._untrained = self._untrained, {}
        if names:
            lines = [f"  {name}: {why}" for name, why in names.items()]
            more = [f"  … and {len(lines) - 10} more"] if len(lines) > 10 else []
            warnings.warn(
                "Trainer: these parameters of the model did not learn in the first "
                "epoch; if that is meant, requires_grad_(False) says so\n"
                + "\n".join(lines[:10] + more),
                stacklevel=3,
            )

    def _check(self, batch: Any) -> None:
        """Refuse a batch without samples: its mean loss would be no number."""
        for leaf in tree_flatten(batch)[0]:
            if isinstance(leaf, Tensor) and leaf.ndim and not leaf.shape[0]:
                raise ShapeError(
                    f"Trainer: expected at least one sample in a batch, got a tensor "
                    f"of shape {leaf.shape} after {self.steps} steps"
                )

    def _loss(self, batch: Any) -> Tensor:
        if self.step is not None:
            return self.step(self.model, batch)
        x, y = batch
        assert self.loss_fn is not None
        return self.loss_fn(self.model(x), y)

    def _lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    # -- evaluation

    @weft.no_grad()
    def evaluate(self, loader: Any) -> dict[str, float]:
        """The mean loss and the metrics over a loader, in evaluation mode."""
        was = self.model.training
        self.model.eval()
        mean = Mean()
        for metric in self.metrics.values():
            metric.reset()
        for batch in loader:
            size = len(batch[0]) if isinstance(batch, (tuple, list)) else 1
            mean.update(self._loss(batch), size)
            if self.metrics:
                out = self.model(batch[0])
                for metric in self.metrics.values():
                    metric.update(out, batch[1])
        self.model.train(was)
        scores = {name: metric.compute() for name, metric in self.metrics.items()}
        return {"loss": mean.compute(), **scores}

    # -- logs and checkpoints

    def _note(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.history.setdefault(name, []).append((self.steps, float(value)))
        if self.folder is not None:
            if self._writer is None:
                self._writer = SummaryWriter(self.folder / "events")
            self._writer.add_scalars(values, self.steps)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self.folder is not None and self.history:
            plot_curves(self.history, self.folder / "curve.svg")

    @property
    def checkpoint_path(self) -> pathlib.Path | None:
        """The path of the checkpoint."""
        return None if self.folder is None else self.folder / "checkpoint.safetensors"

    def _parts(self, loader: Any) -> dict[str, Any]:
        parts = {"model": self.model, "optimizer": self.optimizer}
        if self.scheduler is not None:
            parts["scheduler"] = self.scheduler
        if isinstance(loader, DataLoader):
            parts["loader"] = loader
        return parts

    def _save(self, loader: Any) -> None:
        if self.checkpoint_path is None:
            return
        self.checkpoint_path.parent.mkdir(parents=True, exist_ok=True)
        extra = {
            "epoch": self.epoch, "best": self.best, "waited": self.waited,
            "history": {k: [list(p) for p in v] for k, v in self.history.items()},
        }  # fmt: skip
        save_checkpoint(
            self.checkpoint_path, step=self.steps, extra=extra, **self._parts(loader)
        )

    def resume(self, loader: Any = None) -> bool:
        """Go on from the folder's checkpoint, if there is one."""
        path = self.checkpoint_path
        if path is None or not path.exists():
            return False
        sweep(str(path))  # a killed run may have left its last, unfinished file
        found = load_checkpoint(path, **self._parts(loader))
        self.steps, self.epoch = found.step, found.extra["epoch"]
        self.best, self.waited = found.extra["best"], found.extra["waited"]
        self.history = {
            k: [(a, b) for a, b in v] for k, v in found.extra["history"].items()
        }
        return True


def _length(loader: Any) -> int | None:
    """The number of batches of a loader, if it knows."""
    try:
        return len(loader)
    except TypeError:
        return None
