"""A GPT that reads characters and then writes some.

    python examples/char_gpt.py [--text FILE] [--steps 400] [--context 64] ...

Without a file the text is the source of Python's standard library. The last tenth of
it is kept aside for the validation loss, in nats a character: guessing evenly costs
the logarithm of the number of characters, about 5.
"""

from __future__ import annotations

import argparse
import math

from tqdm import trange

import weft
from weft import nn, optim
from weft.datasets import TextCorpus
from weft.models import GPT


def loss_of(model: nn.Module, x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
    """Cross-entropy of the next character at every position."""
    return nn.functional.cross_entropy(model(x).transpose(1, 2), y)  # (B, V, T), (B, T)


@weft.no_grad()
def validation(model: GPT, corpus: TextCorpus, batches: int = 8) -> float:
    """The loss on the text kept aside, over the same windows each time."""
    model.eval()
    fixed = corpus.batches("val", 16, model.context, generator=weft.Generator())
    total = sum(loss_of(model, *next(fixed)).item() for _ in range(batches))
    model.train()
    return total / batches


def train(model: GPT, corpus: TextCorpus, options: argparse.Namespace) -> None:
    optimizer = optim.AdamW(model, lr=options.rate, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = optim.lr_scheduler.OneCycleLR(
        optimizer, options.rate, total_steps=options.steps, pct_start=0.1
    )
    batches = corpus.batches("train", options.batch, options.context)
    bar = trange(1, options.steps + 1, desc="training", disable=None)
    for step in bar:
        optimizer.zero_grad()
        loss = loss_of(model, *next(batches))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
        if step % 100 == 0:
            bar.write(f"step {step:5}  validation {validation(model, corpus):.3f}")


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", help="a text file to read")
    parser.add_argument("--characters", type=int, default=1_000_000, help="at most")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rate", type=float, default=6e-3)
    parser.add_argument("--sample", type=int, default=300, help="characters to write")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)

    limit = options.characters
    if options.text is None:
        corpus = TextCorpus(max_chars=limit)
    else:
        corpus = TextCorpus.from_file(options.text, max_chars=limit)
    vocab = len(corpus.vocabulary)
    model = GPT(vocab, options.context, options.width, options.heads, options.layers)
    size = sum(p.numel() for p in model.parameters())
    print(
        f"{size:,} parameters, {len(corpus):,} characters of {vocab} kinds; "
        f"guessing costs {math.log(vocab):.3f}"
    )
    train(model, corpus, options)
    score = validation(model, corpus)
    print(f"validation loss {score:.3f} nats a character\n")
    model.eval()
    start = corpus.part("val")[:8].unsqueeze(0)
    print(corpus.decode(model.generate(start, options.sample, temperature=0.8)[0]))
    return score


if __name__ == "__main__":
    main()
