"""A Llama-shaped model: trained, saved as Hugging Face has it, and read back in int8.

    python examples/small_llama.py [--steps 400] [--width 128] [--layers 4] ...

The text is the source of Python's standard library, character by character. What is
saved is a folder that other libraries read too; what is read back has weights of int8,
and writes several texts side by side with keys and values in pages.
"""

from __future__ import annotations

import argparse
import tempfile

from tqdm import trange

import weft
from weft import language, nn, optim
from weft.datasets import TextCorpus
from weft.language import Sampling


@weft.no_grad()
def validation(net: nn.Module, corpus: TextCorpus, context: int) -> float:
    """The loss on text that was kept aside, in nats a character."""
    net.eval()
    fixed = corpus.batches("val", 16, context, generator=weft.Generator())
    losses = []
    for _ in range(4):
        x, y = next(fixed)
        losses.append(nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten()))
    return sum(losses).item() / len(losses)


def train(net: nn.Module, corpus: TextCorpus, options: argparse.Namespace) -> None:
    optimizer = optim.AdamW(net.parameters(), lr=options.rate)

    @weft.compile
    def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    net.train()
    batches = corpus.batches("train", 16, options.context)
    for _ in (bar := trange(options.steps, desc="training")):
        bar.set_postfix(loss=f"{step(*next(batches)).item():.3f}")


def write(model: language.LanguageModel, corpus: TextCorpus, length: int) -> None:
    """Texts behind several prompts, written side by side."""
    prompts = ["def ", "class ", "import "]
    sampling = Sampling(max_new_tokens=length, temperature=0.7, top_p=0.95, seed=1)
    engine = model.engine
    texts = [engine.submit(corpus.encode(p).tolist(), sampling) for p in prompts]
    while engine.busy:
        engine.step()
    for text in texts:
        print("-" * 40, corpus.decode(text.ids), sep="\n")


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Returns the losses of the trained model and of the one in int8."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--characters", type=int, default=500_000)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--sample", type=int, default=150)
    options = parser.parse_args(arguments)
    weft.manual_seed(0)

    corpus = TextCorpus(max_chars=options.characters)
    config = language.Config(
        vocab=len(corpus.vocabulary),
        context=4 * options.context,
        width=options.width,
        inner=3 * options.width,
        layers=options.layers,
        heads=options.heads,
        key_heads=options.heads // 2,
        tied=False,
    )
    net = language.Decoder(config)
    train(net, corpus, options)
    loss = validation(net, corpus, options.context)

    with tempfile.TemporaryDirectory() as folder:
        language.LanguageModel(net).save(folder)
        model = language.load(folder, weights="int8", memory="512MB")
    small = validation(model.module, corpus, options.context)
    needs = model.engine.needs
    print(f"loss {loss:.3f}, in int8 {small:.3f}; {needs['weights']:,} B of weights")
    write(model, corpus, options.sample)
    return loss, small


if __name__ == "__main__":
    main()
