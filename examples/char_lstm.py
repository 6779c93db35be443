"""An LSTM that reads a text from beginning to end, and then writes some.

    python examples/char_lstm.py [--text FILE] [--steps 400] [--length 32] ...

The text is cut into as many columns as a batch has rows, and each step reads on where
the last one stopped: the state is carried over, but cut off from the tape, so that
the network remembers further back than gradients reach. Without a file the text is
the source of Python's standard library.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

import weft
from weft import nn, optim
from weft.datasets import TextCorpus
from weft.models import CharLSTM


def strips(
    codes: weft.Tensor, batch: int, length: int
) -> Iterator[tuple[weft.Tensor, weft.Tensor, bool]]:
    """Pieces (B, T) that follow on each other, for ever; True where a pass begins."""
    rows = codes[: len(codes) // batch * batch].reshape(batch, -1)  # (B, N / B)
    if rows.shape[1] <= length:
        raise SystemExit("the text is too short for this batch and length")
    while True:
        for start in range(0, rows.shape[1] - length, length):
            piece = rows[:, start : start + length + 1]
            yield piece[:, :-1], piece[:, 1:], start == 0


def loss_of(logits: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
    return nn.functional.cross_entropy(logits.transpose(1, 2), y)  # (B, V, T), (B, T)


@weft.no_grad()
def validation(model: CharLSTM, corpus: TextCorpus, length: int) -> float:
    """The loss over the text kept aside, read with the state carried over."""
    model.eval()
    mean, state = weft.metrics.Mean(), None
    pieces = strips(corpus.part("val"), 16, length)
    for _ in range(8):
        x, y, fresh = next(pieces)
        logits, state = model(x, None if fresh else state)
        mean.update(loss_of(logits, y).item())
    model.train()
    return mean.compute()


def train(model: CharLSTM, corpus: TextCorpus, options: argparse.Namespace) -> None:
    optimizer = optim.Adam(model.parameters(), lr=options.rate)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    pieces = strips(corpus.part("train"), options.batch, options.length)
    state: Any = None
    bar = tqdm(range(1, options.steps + 1), desc="training", disable=None)
    for step in bar:
        x, y, fresh = next(pieces)
        # Detached, or each step's backward would go through all the steps before.
        state = None if fresh else tuple(part.detach() for part in state)
        optimizer.zero_grad()
        logits, state = model(x, state)
        loss = loss_of(logits, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
        if step % 100 == 0:
            now = validation(model, corpus, options.length)
            bar.write(f"step {step:5}  validation {now:.3f}")


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", help="a text file to read")
    parser.add_argument("--characters", type=int, default=1_000_000, help="at most")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1e-2)
    parser.add_argument("--sample", type=int, default=300, help="characters to write")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)

    limit = options.characters
    if options.text is None:
        corpus = TextCorpus(max_chars=limit)
    else:
        corpus = TextCorpus.from_file(options.text, max_chars=limit)
    model = CharLSTM(len(corpus.vocabulary), options.width, options.layers)
    train(model, corpus, options)
    score = validation(model, corpus, options.length)
    print(f"validation loss {score:.3f} nats a character\n")
    model.eval()
    start = corpus.part("val")[:8].unsqueeze(0)
    print(corpus.decode(model.generate(start, options.sample, temperature=0.8)[0]))
    return score


if __name__ == "__main__":
    main()
