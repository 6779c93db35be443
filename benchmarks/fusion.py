"""What fusion saves: launches and bytes moved by whole training steps, stage by stage.

    python benchmarks/fusion.py

    a kernel a node   every node of the captured graph on its own, views as copies
    passes            the same after the graph passes
    views             views cost nothing: whoever reads one reads its base
    groups            what is computed together is one launch
    epilogues         what follows a product runs on each part of it, in a cache
    waves             launches that do not depend on one another run side by side
                      (times that threads meet)

Bytes are counted from shapes: what a launch reads and writes at least, each value once.
The last columns are the memory of all values that launches make, each with a place of
its own, and the arena they share.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import weft
from weft import nn, optim
from weft.compile import pipeline, targets
from weft.compile.cost.work import (
    NOTHING,
    bytes_read,
    bytes_written,
    size_of,
    unfused,
)
from weft.compile.emit.support import supported
from weft.compile.fusion.groups import Fusion, Operand
from weft.compile.program.concat import Piece
from weft.compile.program.memory_layout import MemoryLayout, lay_out
from weft.compile.program.steps import HostCall, KernelLaunch, LibraryCall, Step
from weft.graph import capture
from weft.graph.ir import Graph, Node


class Stage(NamedTuple):
    """How many launches there are, and what they move."""

    name: str
    launches: int
    read: int
    written: int

    def __str__(self) -> str:
        moved = (self.read + self.written) / 1e6
        return f"{self.name:18}{self.launches:8,}{moved:12.1f}"


class Table(NamedTuple):
    """The stages of one program, and its memory."""

    nodes: int
    stages: list[Stage]
    values: int
    arena: int


# -- stages


def everything(name: str, graph: Graph) -> Stage:
    """A kernel for every node, views too."""
    nodes = [n for n in graph.nodes if n.op not in NOTHING]
    tensors = [[i for i in n.inputs if type(i) is Node] for n in nodes]
    read = sum(size_of(i, {}) for inputs in tensors for i in inputs)
    return Stage(name, len(nodes), read, bytes_written(nodes, {}))


def grouped(graph: Graph) -> Stage:
    """Groups, and what is called as a whole."""
    units = [u for u in Fusion(graph, supported).units if u.nodes[0].op not in NOTHING]
    read = sum(bytes_read(u.nodes, {}) for u in units)
    made = [n for u in units for n in getattr(u, "outputs", u.nodes)]
    return Stage("groups", len(units), read, bytes_written(made, {}))


def launched(layout: MemoryLayout) -> tuple[Stage, Stage]:
    """Launches as they are, and how often threads meet."""
    steps = [s for s in layout.steps if not _is_nothing(s, layout)]
    needed = _needed(layout)
    copied = sum(size_of(s.piece, {}) for s in steps if isinstance(s, Piece))
    whole = [s for s in steps if not isinstance(s, Piece)]
    read = copied + sum(bytes_read(_nodes(s), {}) for s in whole)
    written = copied + sum(bytes_written(_made(s, needed), {}) for s in whole)
    waves = len({layout.order.waves[layout.steps.index(s)] for s in steps})
    follow = Stage("epilogues", len(steps), read, written)
    return follow, follow._replace(name="waves", launches=waves)


def _is_nothing(step: Step, layout: MemoryLayout) -> bool:
    """Whether a step does not run: its value is a view, or computed in its place."""
    if isinstance(step, Piece):
        return layout.inside.get(step.piece) == step.target
    return isinstance(step, HostCall) and step.node.op in NOTHING


def _nodes(step: Any) -> list[Node]:
    if isinstance(step, KernelLaunch):
        return step.group.nodes
    if isinstance(step, LibraryCall):
        return [step.node, *(_nodes(step.epilogue) if step.epilogue else [])]
    return [step.node]


def _made(step: Any, needed: set[Node]) -> list[Node]:
    if isinstance(step, LibraryCall) and step.epilogue is not None:
        return [n for n in (step.node, *step.epilogue.made) if n in needed]
    return list(step.made)


def _needed(layout: MemoryLayout) -> set[Node]:
    """Values that are read by another step than their own, or after all."""
    found = {Operand(n).base for n in layout.lowered.graph.outputs}
    found |= {Operand(n.inputs[0]).base for n in layout.lowered.writes}
    for step in layout.steps:
        own = set(_nodes(step))
        for node in own:
            bases = {Operand(i).base for i in node.inputs if type(i) is Node}
            found |= bases - own
    return found


def table(step: Any, *args: Any) -> Table:
    """All stages of a training step, for arguments like these."""
    captured = capture(step, *args)
    graph = pipeline.run(captured.graph)
    shaped = pipeline.run(graph, pipeline.KERNEL_PASSES)
    own = graph.variables.values()
    layout = lay_out(pipeline.lower(shaped, targets.default(), in_place=own), {})
    stages = [
        everything("a kernel a node", captured.graph),
        everything("passes", graph),
        Stage("views", *unfused(graph, {})),
        grouped(shaped),
        *launched(layout),
    ]
    buffers: Any = layout.layout.buffers
    values = sum(b.nbytes for b in buffers)
    return Table(len(captured.graph), stages, values, layout.layout.nbytes)


# -- programs


def training(model: Any, optimizer: Any, loss_of: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def classify(model: Any, x: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(model(x), y)


def next_token(model: Any, x: Any, y: Any) -> Any:
    out = model(x)
    out = out[0] if isinstance(out, tuple) else out
    return nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())


class VAE(nn.Module):
    """A variational autoencoder (Kingma and Welling, 2013)."""

    def __init__(self, width: int = 784, hidden: int = 400, code: int = 20) -> None:
        super().__init__()
        self.encoder = nn.Linear(width, hidden, act="relu")
        self.mean, self.spread = nn.Linear(hidden, code), nn.Linear(hidden, code)
        self.decoder = nn.Sequential(
            nn.Linear(code, hidden, act="relu"), nn.Linear(hidden, width)
        )

    def loss(self, x: Any) -> Any:
        hidden = self.encoder(x)
        mean, log_var = self.mean(hidden), self.spread(hidden)
        code = mean + weft.randn_like(mean) * (0.5 * log_var).exp()
        fit = nn.functional.binary_cross_entropy_with_logits(
            self.decoder(code), x, reduction="sum"
        )
        return fit + 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum()


def programs() -> dict[str, Any]:
    """Training steps and their arguments."""
    models = weft.models
    mlp, lenet = models.MLP([784, 512, 512, 10]), models.LeNet()
    resnet = models.resnet18(classes=10, cifar=True)
    gpt, lstm, vae = models.GPT(65, 64, 192, 6, 6), models.CharLSTM(65, 128), VAE()
    digits, labels = weft.randn(64, 784), weft.randint(0, 10, (64,))
    text, after = (weft.randint(0, 65, (8, 32)) for _ in "xy")
    long, next_ = (weft.randint(0, 65, (2, 64)) for _ in "xy")
    images = weft.randn(64, 1, 28, 28)

    def adam(model: Any) -> Any:
        return optim.Adam(model.parameters(), lr=1e-3)

    def momentum(model: Any) -> Any:
        return optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    adamw = optim.AdamW(gpt.parameters(), lr=1e-3)
    return {
        "MLP, Adam": (training(mlp, adam(mlp), classify), digits, labels),
        "LeNet, SGD": (training(lenet, momentum(lenet), classify), images, labels),
        "ResNet-18, SGD": (training(resnet, momentum(resnet), classify),
                           weft.randn(2, 3, 32, 32), labels[:2]),
        "GPT, 6 layers, AdamW": (training(gpt, adamw, next_token), long, next_),
        "LSTM, Adam": (training(lstm, adam(lstm), next_token), text, after),
        "VAE, Adam": (training(vae, adam(vae), lambda m, x, y: m.loss(x)),
                      weft.rand(64, 784), labels),
    }  # fmt: skip


def main() -> None:
    for name, (step, *args) in programs().items():
        found = table(step, *args)
        print(f"\n{name}: {found.nodes:,} nodes captured")
        print(f"{'':18}{'launches':>8}{'MB moved':>12}")
        for stage in found.stages:
            print(stage)
        values, shared = found.values / 1e6, found.arena / 1e6
        print(f"{'memory':18}{values:8.1f} MB of values in {shared:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
