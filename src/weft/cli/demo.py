"""``weft demo``: a small GPT learns Python from the standard library's source."""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import weft
from weft import nn, optim
from weft.compile.frontend.function import compile as compiled
from weft.core.tensor import Tensor
from weft.datasets import TextCorpus
from weft.models import GPT
from weft.training import Progress, load_checkpoint, plot_curves, save_checkpoint

CONTEXT, BATCH = 64, 16
PROMPT = "def "
SEEN, UNSEEN = "batch", "unseen text"  # the curves


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of the next character at every position."""
    return nn.functional.cross_entropy(model(x).transpose(1, 2), y)  # (B, V, T), (B, T)


@weft.no_grad()
def validation(model: nn.Module, corpus: TextCorpus, batches: int = 8) -> float:
    """The loss on text that was kept aside, over fixed windows."""
    model.eval()
    fixed = corpus.batches("val", BATCH, CONTEXT, generator=weft.Generator())
    total = sum(loss_of(model, *next(fixed)).item() for _ in range(batches))
    model.train()
    return total / batches


def training_step(model: nn.Module, optimizer: optim.Optimizer) -> Any:
    """Forward, backward and update as one program, compiled in its first call."""

    @compiled
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


class Run:
    """One demonstration: model, optimizer, curves and where they are kept."""

    def __init__(self, folder: str, seed: int, corpus: TextCorpus) -> None:
        weft.manual_seed(seed)
        self.corpus = corpus
        self.folder = pathlib.Path(folder)
        self.path = self.folder / "checkpoint.safetensors"
        self.curve = self.folder / "curve.svg"
        vocab = len(corpus.vocabulary)
        self.model = GPT(vocab, CONTEXT, width=128, heads=4, layers=4)
        self.optimizer = optim.AdamW(self.model, lr=2e-3, betas=(0.9, 0.95))
        self.curves: dict[str, list[tuple[float, float]]] = {SEEN: [], UNSEEN: []}
        self.step = 0
        self.advance = training_step(self.model, self.optimizer)

    def resume(self) -> None:
        """Go on from the checkpoint."""
        found = load_checkpoint(self.path, model=self.model, optimizer=self.optimizer)
        self.step = found.step
        self.curves = {k: [(a, b) for a, b in rows] for k, rows in found.extra.items()}

    def save(self) -> None:
        """Write the checkpoint and the picture of the curves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        extra = {k: [list(p) for p in rows] for k, rows in self.curves.items()}
        save_checkpoint(
            self.path, model=self.model, optimizer=self.optimizer, step=self.step,
            extra=extra,
        )  # fmt: skip
        plot_curves(self.curves, self.curve, title="Loss of a character, in nats")

    def train(self, seconds: float) -> None:
        """Train for some time, and show the loss on the way."""
        batches = self.corpus.batches("train", BATCH, CONTEXT)
        with Progress(round(seconds), "training", unit=" s") as progress:
            for share in clock(seconds):
                loss = self.update(next(batches), share)
                progress.update(
                    round(share * seconds), step=str(self.step), loss=f"{loss:.3f}"
                )
                if self.step % 100 == 0:
                    self.validate()
        self.validate()

    def validate(self) -> None:
        """Note the loss on unseen text, and save."""
        self.curves[UNSEEN].append((self.step, validation(self.model, self.corpus)))
        self.save()

    def update(self, batch: Any, share: float) -> float:
        """One step; the learning rate rises, then falls with the time left."""
        for group in self.optimizer.param_groups:
            group["lr"] = 2e-3 * min(1.0, (self.step + 1) / 50) * (1 - 0.9 * share)
        loss = self.advance(*batch).item()
        self.step += 1
        self.curves[SEEN].append((self.step, loss))
        return loss

    def sample(self, count: int) -> str:
        """Text that the model writes."""
        self.model.eval()
        start = self.corpus.encode(PROMPT).unsqueeze(0)
        return self.corpus.decode(self.model.generate(start, count, 0.8)[0])


def clock(seconds: float) -> Iterator[float]:
    """The share of the time that is over, until all of it is."""
    start = time.monotonic()
    while (gone := time.monotonic() - start) < seconds:
        yield gone / seconds


def run(options: argparse.Namespace) -> Iterator[str]:
    """Train, report and write text."""
    corpus = TextCorpus(max_chars=1_000_000)
    demo = Run(options.folder, options.seed, corpus)
    size = sum(p.numel() for p in demo.model.parameters())
    yield (
        f"a GPT of {size:,} parameters reads {len(corpus):,} characters of Python's "
        f"standard library for {options.minutes:g} minutes"
    )
    if options.resume:
        demo.resume()
    demo.train(60 * options.minutes)
    first, last = demo.curves[SEEN][0][1], demo.curves[UNSEEN][-1][1]
    yield (
        f"loss {first:.3f} at the first step, {last:.3f} on unseen text after "
        f"{demo.step} steps\ncheckpoint {demo.path}\ncurve      "
        f"{demo.curve}\n\nwhat it writes:\n\n"
        f"{demo.sample(options.characters)}"
    )
