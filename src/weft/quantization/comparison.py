"""A report on a quantised model: what it lost, where, and what it gained."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.compile import compile as compiled
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.sparse import Embedding
from weft.quantization.conversion import batches_of, call_model
from weft.quantization.folding import folded
from weft.quantization.modules import (
    QuantizedEmbedding,
    QuantizedModule,
    WeightOnlyConv,
    WeightOnlyLinear,
)

ENOUGH = 20.0  # decibels of signal over noise that a layer should keep
_RUNS = 5


@dataclass(frozen=True)
class Layer:
    """A layer's part of the loss: its output alone, given the input it had before.

    ``sqnr`` is the signal's power over the error's in decibels, ``sqnr_int4`` the same
    with weights of four bits and nothing else quantised.
    """

    name: str
    kind: str
    bits: int
    sqnr: float
    sqnr_int4: float

    @property
    def suggestion(self) -> str:
        """The fewest bits of its weights that keep enough of the signal."""
        if self.sqnr_int4 >= ENOUGH:
            return "int4"
        return f"int{self.bits}" if self.sqnr >= ENOUGH else "float32"


@dataclass(frozen=True)
class Report:
    """The accuracy or loss, size and speed of two models, and layers by loss."""

    scores: dict[str, tuple[float, float]]  # before, after
    sqnr: float
    nbytes: tuple[int, int]
    seconds: tuple[float, float]
    layers: list[Layer]  # the ones that lose most first

    def __str__(self) -> str:
        before, after = self.nbytes
        slow, fast = self.seconds
        lines = [f"{'':14}{'before':>12}{'after':>12}"]
        lines += [f"{n:14}{a:12.4f}{b:12.4f}" for n, (a, b) in self.scores.items()]
        share = f"  {after / max(before, 1):.1%}"
        lines.append(f"{'size (bytes)':14}{before:12,}{after:12,}{share}")
        times = f"{slow * 1e3:12.3f}{fast * 1e3:12.3f}  {slow / fast:.2f}x"
        lines.append(f"{'batch (ms)':14}{times}")
        lines.append(f"output: {self.sqnr:.1f} dB of signal over noise")
        width = max([5, *[len(one.name) for one in self.layers]])
        lines += ["", f"{'layer':{width}}  bits  SQNR dB  at int4  suggestion  kind"]
        lines += [
            f"{one.name:{width}}  {one.bits:4}  {one.sqnr:7.1f}  {one.sqnr_int4:7.1f}  "
            f"{one.suggestion:10}  {one.kind}"
            for one in self.layers
        ]
        return "\n".join(lines)


def report(
    model: Module,
    quantized: Module,
    data: Any,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    forward: Callable[[Any, Any], Any] | None = None,
    compile: bool = True,
) -> Report:
    """Compare a model with its quantised form on data, and look at each layer.

    Batches are those of ``weft.quantize``. Where they are pairs of inputs and labels,
    or targets, accuracy and loss are compared; ``loss(output, batch)`` says otherwise.
    Times are the best of some runs of the first batch, compiled unless told otherwise.

    >>> net = weft.nn.Sequential(weft.nn.Linear(4, 8), weft.nn.ReLU())
    >>> x = weft.rand(16, 4)
    >>> small = weft.quantize(net, data=x)
    >>> report = weft.quantization.report(net, small, x, compile=False)
    >>> [layer.name for layer in report.layers]
    ['0']
    >>> report.sqnr > 30
    True
    """
    if not any(isinstance(m, QuantizedModule) for m in quantized.modules()):
        raise ArgumentError(
            "report: expected a model that weft.quantize made as the second, got one "
            "without quantised layers"
        )
    run = forward or call_model
    batches = list(batches_of(data))
    if not batches:
        raise ArgumentError("report: expected data with at least one batch, got none")
    before = folded(model, lambda one: run(one, batches[0]))
    pairs = _pairs(before, quantized)
    noises = {name: (_Noise(), _Noise()) for name in pairs}
    total, scores = _Noise(), (_Scores(loss), _Scores(loss))
    hooks = [
        layer.register_forward_hook(_comparing(other, noises[name]))
        for name, (layer, other) in pairs.items()
    ]
    with weft.no_grad():
        try:
            for batch in batches:
                wanted, got = run(before, batch), run(quantized, batch)
                for a, b in zip(_tensors(wanted), _tensors(got), strict=True):
                    total.add(a, b)
                scores[0].add(wanted, batch)
                scores[1].add(got, batch)
        finally:
            for hook in hooks:
                hook.remove()
        seconds = tuple(
            _seconds(m, batches[0], run, compile) for m in (model, quantized)
        )
    first, second = (s.means() for s in scores)
    layers = [
        Layer(
            name, type(other).__name__, other.bits, *[n.decibels for n in noises[name]]
        )
        for name, (_, other) in pairs.items()
    ]
    return Report(
        {name: (first[name], second[name]) for name in first},
        total.decibels,
        (_nbytes(model), _nbytes(quantized)),
        seconds,  # type: ignore[arg-type]
        sorted(layers, key=lambda one: one.sqnr),
    )


class _Noise:
    """The powers of a signal and of an error, added up."""

    def __init__(self) -> None:
        self.signal = self.error = 0.0

    def add(self, wanted: Tensor, got: Tensor) -> None:
        a, b = (np.asarray(x.detach().double().cpu().numpy()) for x in (wanted, got))
        self.signal += float((a * a).sum())
        self.error += float(((a - b) ** 2).sum())

    @property
    def decibels(self) -> float:
        if not self.error:
            return float("inf")
        return 10 * float(np.log10(max(self.signal, 1e-300) / self.error))


def _pairs(before: Module, after: Module) -> dict[str, tuple[Module, QuantizedModule]]:
    """Layers and the quantised ones in their places."""
    plain = dict(before.named_modules())
    found = {
        name: (plain.get(name), module)
        for name, module in after.named_modules()
        if isinstance(module, QuantizedModule)
    }
    missing = [name for name, (layer, _) in found.items() if layer is None]
    if missing:
        raise ArgumentError(
            f"report: expected the model that was quantised as the first, got one "
            f"without {missing}"
        )
    return found  # type: ignore[return-value]


def _comparing(other: QuantizedModule, noises: tuple[_Noise, _Noise]) -> Any:
    """A hook that gives a layer's input to its quantised form, and to one of int4."""
    made: list[Module] = []

    def after(layer: Any, args: Any, out: Tensor) -> None:
        if not made:
            made.append(_int4(layer).eval())
        noises[0].add(out, other(*args))
        noises[1].add(out, made[0](*args))

    return after


def _int4(layer: Any) -> Module:
    if isinstance(layer, Embedding):
        return QuantizedEmbedding(layer, 4)
    return (WeightOnlyLinear if isinstance(layer, Linear) else WeightOnlyConv)(layer, 4)


def _tensors(result: Any) -> list[Tensor]:
    found = weft.tree_flatten(result)[0]
    return [x for x in found if isinstance(x, Tensor) and x.is_floating_point()]


class _Scores:
    """Means of accuracy and loss over batches, by the sizes of these."""

    def __init__(self, loss: Callable[[Any, Any], Any] | None) -> None:
        self.loss, self.count = loss, 0
        self.sums: dict[str, float] = {}

    def add(self, output: Any, batch: Any) -> None:
        scores = self._of(output, batch)
        size = len(output) if isinstance(output, Tensor) and output.ndim else 1
        self.count += size
        for name, value in scores.items():
            self.sums[name] = self.sums.get(name, 0.0) + size * float(value)

    def _of(self, output: Any, batch: Any) -> dict[str, Any]:
        if self.loss is not None:
            return {"loss": self.loss(output, batch)}
        pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        if not pair or not isinstance(output, Tensor):
            return {}
        target: Any = batch[1]
        if not isinstance(target, Tensor):
            return {}
        if target.is_floating_point():
            same = target.shape == output.shape
            return {"loss": F.mse_loss(output, target)} if same else {}
        if target.ndim != output.ndim - 1 or output.ndim < 2:
            return {}
        axis = 1 if target.shape[1:] == output.shape[2:] else -1
        right = (output.argmax(axis) == target).float().mean()
        flat = output.movedim(axis, -1).reshape(-1, output.shape[axis])
        return {
            "accuracy": right, "loss": F.cross_entropy(flat, target.reshape(-1)),
        }  # fmt: skip

    def means(self) -> dict[str, float]:
        return {name: total / self.count for name, total in self.sums.items()}


def _nbytes(model: Module) -> int:
    """Bytes of a model's state; what several modules share counts once."""
    found: dict[int, Any] = {id(x): x for x in _state(model)}
    return sum(x.numel() * x.element_size() for x in found.values())


def _state(model: Module) -> Iterable[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _seconds(model: Module, batch: Any, run: Any, compile: bool) -> float:
    """The best time of a batch in eval mode; the mode stays."""
    training = {m: m.training for m in model.modules()}
    called = compiled(model.eval()) if compile else model.eval()
    try:
        times = []
        for _ in range(_RUNS + 2):
            start = time.perf_counter()
            run(called, batch)
            times.append(time.perf_counter() - start)
        return min(times)
    finally:
        for module, mode in training.items():
            module.training = mode
