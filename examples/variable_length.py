"""Sequences of different lengths: reviews of made-up words, packed for an LSTM.

    python examples/variable_length.py [--epochs 8] [--count 2000] [--seed 0]

A review is a list of words: neutral ones, pleasing ones, displeasing ones, and "not",
which turns the next word around. Its label is whether pleasure outweighs displeasure.
Reviews have 3 to 20 words; a batch is padded to its longest, and packing lets the
LSTM stop at each one's own end, so that padding has no influence at all.
"""

from __future__ import annotations

import argparse
import random

import weft
from weft import nn, optim
from weft.nn.utils.rnn import pack_padded_sequence, pad_sequence
from weft.utils.data import DataLoader

GOOD = ["good", "lovely", "bright", "funny", "warm"]
BAD = ["bad", "dull", "noisy", "cold", "sad"]
PLAIN = ["film", "the", "a", "plot", "scene", "actor", "and", "with"]
WORDS = ["<pad>", "not", *GOOD, *BAD, *PLAIN]
NUMBER = {word: i for i, word in enumerate(WORDS)}
Review = tuple[list[str], int]


def balance(words: list[str]) -> int:
    """Pleasing words less displeasing ones, each turned around by "not" before it."""
    total = 0
    for before, word in zip(["", *words], words, strict=False):
        value = (word in GOOD) - (word in BAD)
        total += -value if before == "not" else value
    return total


def reviews(count: int, seed: int) -> list[Review]:
    chance = random.Random(seed)
    weights = [0.0, 2.0, *[0.6] * len(GOOD + BAD), *[0.4] * len(PLAIN)]
    made: list[Review] = []
    while len(made) < count:
        words = chance.choices(WORDS, weights, k=chance.randint(3, 20))
        if total := balance(words):
            made.append((words, int(total > 0)))
    return made


def collate(batch: list[Review]) -> tuple[weft.Tensor, weft.Tensor, weft.Tensor]:
    """Padded words (N, T), lengths (N,) and labels (N,)."""
    rows = [weft.tensor([NUMBER[word] for word in words]) for words, _ in batch]
    lengths = weft.tensor([len(row) for row in rows])
    labels = weft.tensor([label for _, label in batch])
    return pad_sequence(rows, batch_first=True), lengths, labels


class Reader(nn.Module):
    """An LSTM's last state, at each sequence's own end, decides."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, ids: weft.Tensor, lengths: weft.Tensor) -> weft.Tensor:
        packed = pack_padded_sequence(
            self.embed(ids), lengths, batch_first=True, enforce_sorted=False
        )
        _, (last, _) = self.lstm(packed)  # (1, N, width)
        return self.head(last[-1])


@weft.no_grad()
def accuracy(model: Reader, data: list[Review]) -> float:
    ids, lengths, labels = collate(data)
    return (model(ids, lengths).argmax(1) == labels).float().mean().item()


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    loader = DataLoader(
        reviews(options.count, options.seed), 32, shuffle=True, collate_fn=collate
    )
    unseen = reviews(500, options.seed + 1)
    model = Reader()
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(options.epochs):
        for ids, lengths, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(ids, lengths), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        score = accuracy(model, unseen)
        print(f"epoch {epoch + 1}  loss {loss.item():.3f}  unseen {score:.1%}")
    for text in ("lovely film", "not good", "not bad and not dull"):
        ids, lengths, _ = collate([(text.split(), 0)])
        share = model(ids, lengths).softmax(1)[0, 1].item()
        print(f"{text!r} pleases with probability {share:.2f}")
    return score


if __name__ == "__main__":
    main()
