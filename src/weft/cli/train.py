"""``weft train CONFIG.toml``: train what a file describes.

seed = 0
epochs = 10
folder = "runs/digits"

[model]
name = "MLP"            # a class of weft.models, with its options
sizes = [64, 64, 10]

[data]
name = "Digits"         # a class of weft.datasets, with its options
batch_size = 64
workers = 0

[optimizer]
name = "Adam"           # a class of weft.optim
lr = 1e-3

[scheduler]             # optional: a class of weft.optim.lr_scheduler
name = "CosineAnnealingLR"
T_max = 220
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import weft
from weft.errors import ArgumentError
from weft.utils.data import DataLoader


def _choose(
    namespace: Any, section: str, table: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The class that a section names, and its options."""
    options = dict(table)
    name = options.pop("name", None)
    if name not in namespace.__all__:
        known = ", ".join(n for n in namespace.__all__ if n[0].isupper())
        raise ArgumentError(
            f"[{section}] name = {name!r} is unknown; known are {known}"
        )
    return getattr(namespace, name), options


def _build(made: Any, section: str, *args: Any, **options: Any) -> Any:
    try:
        return made(*args, **options)
    except TypeError as error:
        if isinstance(error, weft.errors.WeftError):
            raise
        raise ArgumentError(f"[{section}]: {error}") from None


def read(path: str) -> dict[str, Any]:
    """A configuration file, with its sections checked."""
    with open(path, "rb") as file:
        try:
            config = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise ArgumentError(f"{path}: {error}") from None
    known = {"seed", "epochs", "folder", "clip_norm", "model", "data", "optimizer"}
    known |= {"scheduler"}
    unknown, missing = set(config) - known, {"model", "data", "optimizer"} - set(config)
    if unknown or missing:
        raise ArgumentError(
            f"{path}: unknown entries {sorted(unknown)}, missing sections "
            f"{sorted(missing)}"
        )
    return config


def loaders(table: dict[str, Any], seed: int) -> tuple[DataLoader, DataLoader]:
    """Training and validation batches of the data that a section names."""
    data, options = _choose(weft.datasets, "data", table)
    size = options.pop("batch_size", 64)
    workers = options.pop("workers", 0)
    train = _build(data, "data", train=True, **options)
    test = _build(data, "data", train=False, **options)
    return (
        DataLoader(train, size, shuffle=True, num_workers=workers, seed=seed),
        DataLoader(test, size, num_workers=workers, seed=seed),
    )


def run(options: Any) -> Iterator[str]:
    """Train what the file describes; gives the last scores."""
    config = read(options.config)
    seed = config.get("seed", 0)
    weft.manual_seed(seed)
    train, test = loaders(config["data"], seed)
    make, given = _choose(weft.models, "model", config["model"])
    model = _build(make, "model", **given)
    make, given = _choose(weft.optim, "optimizer", config["optimizer"])
    optimizer = _build(make, "optimizer", model, **given)
    scheduler = None
    if "scheduler" in config:
        make, given = _choose(weft.optim.lr_scheduler, "scheduler", config["scheduler"])
        scheduler = _build(make, "scheduler", optimizer, **given)
    trainer = weft.Trainer(
        model, optimizer, weft.nn.CrossEntropyLoss(), scheduler=scheduler,
        metrics={"accuracy": weft.metrics.Accuracy()},
        clip_norm=config.get("clip_norm"), folder=config.get("folder"),
    )  # fmt: skip
    if options.resume and trainer.resume(train):
        yield f"resumed at step {trainer.steps}"
    trainer.fit(train, config.get("epochs", 10), test)
    scores = trainer.evaluate(test)
    shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
    yield f"after {trainer.steps} steps: {shown}"
