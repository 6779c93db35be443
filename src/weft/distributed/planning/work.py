"""The work of a model: operations, memory and messages of its layers, for a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import weft
from weft import nn
from weft.core.mode import observe
from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.nn import Module


class Layer(NamedTuple):
    """One layer, for one sample.

    ``flops`` are operations of forward, ``kept`` bytes that backward needs, ``passes``
    bytes that the next layer gets, ``exchanges`` bytes that its parts combine in
    forward if it is tensor parallel. ``moved`` are bytes that go through memory beside
    products, and ``alone`` those of them that each part moves all of.
    """

    name: str
    flops: float
    parameters: int
    kept: float
    passes: float
    exchanges: float
    moved: float = 0.0
    alone: float = 0.0


class Work(NamedTuple):
    """A model's layers in order, the size of a batch, and bytes of a parameter."""

    layers: tuple[Layer, ...]
    batch: int
    itemsize: int = 4
    states: int = 8  # bytes of an optimizer's state for a parameter

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(one.parameters for one in self.layers)

    def flops(self, recompute: bool = False) -> float:
        """The operations of a step: backward is two forwards, and perhaps one more."""
        return (4 if recompute else 3) * self.batch * sum(x.flops for x in self.layers)


def transformer(
    *, layers: int, width: int, sequence: int, vocab: int, batch: int,
    heads: int = 0, inner: int | None = None, gated: bool = False,
    keys: float = 1.0, itemsize: int = 2, states: int = 12,
) -> Work:  # fmt: skip
    """The work of a decoder: attention and a feed-forward part of ``inner`` features.

    ``keys`` is the share of heads that have keys of their own. With ``heads``, scores
    are kept and go through memory; else attention is one kernel.

    >>> work = weft.distributed.planning.transformer(
    ...     layers=96, width=12288, sequence=2048, vocab=50257, batch=1)
    >>> round(work.parameters / 1e9)
    175
    """
    inner = 4 * width if inner is None else inner
    products = width * width * (2 + 2 * keys) + (3 if gated else 2) * width * inner
    flops = 2 * sequence * products + 4 * sequence**2 * width
    passes = float(sequence * width * itemsize)
    scores = 2.5 * heads * sequence**2 * itemsize
    kept = 17 * passes + scores  # Korthikanti et al., 2022: 34 s h + 5 a s² in float16
    block = Layer(
        "block", flops, int(products), kept, passes, 2 * passes,
        2 * (12 * passes + scores), 2 * 5 * passes,
    )  # fmt: skip
    table = vocab * width
    first = Layer("embedding", 0.0, table, passes, passes, passes)
    head = Layer("head", 2.0 * sequence * table, 0, passes, 0.0, passes)
    return Work((first, *[block] * layers, head), batch, itemsize, states)


def measured_work(module: Any, example: Any) -> Work:
    """The work of a module's layers, from a forward pass on an example batch.

    Layers are the module's children, and those of its lists and sequences.
    """
    if not isinstance(module, Module):
        raise ArgumentError(
            f"parallel: expected a module, got {type(module).__name__}; pass the one "
            "that the step trains"
        )
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    first = next((a for a in args if isinstance(a, Tensor) and a.ndim), None)
    if first is None:
        raise ArgumentError("parallel: expected an example with a tensor that has rows")
    units = list(_units("", module)) or [("model", module)]
    noting = _Noting(units)
    with weft.no_grad(), noting, observe(noting.note):
        module(*args)
    batch = first.shape[0]
    seen: set[int] = set()
    layers = []
    for name, unit in units:
        own = [p for p in unit.parameters() if id(p) not in seen]
        seen |= {id(p) for p in own}
        count = sum(p.numel() for p in own)
        layers.append(noting.layer(name, count, batch))
    rest = sum(p.numel() for p in module.parameters() if id(p) not in seen)
    outside = noting.layer("", rest, batch)
    if rest or outside.flops:
        last = layers[-1]
        layers[-1] = last._replace(
            flops=last.flops + outside.flops, parameters=last.parameters + rest,
            kept=last.kept + outside.kept, moved=last.moved + outside.moved,
        )  # fmt: skip
    itemsize = next((p.dtype.itemsize for p in module.parameters()), 4)
    return Work(tuple(layers), batch, itemsize, 2 * itemsize)


def _units(path: str, module: Module) -> Any:
    for name, child in module.named_children():
        full = f"{path}.{name}" if path else name
        if isinstance(child, (nn.ModuleList, nn.Sequential)):
            yield from _units(full, child)
        else:
            yield full, child


class _Noting:
    """Operators of a forward pass, by the layer that runs them."""

    def __init__(self, units: Sequence[tuple[str, Module]]) -> None:
        self.units = units
        self.now = [""]
        self.flops: dict[str, float] = {}
        self.kept: dict[str, float] = {}
        self.moved: dict[str, float] = {}
        self.passes: dict[str, float] = {}
        self.handles: list[Any] = []

    def __enter__(self) -> None:
        for name, unit in self.units:
            self.handles += [
                unit.register_forward_pre_hook(
                    lambda mod, args, name=name: self.now.append(name)
                ),
                unit.register_forward_hook(
                    lambda mod, args, out, name=name: self._left(name, out)
                ),
            ]

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _left(self, name: str, out: Any) -> None:
        self.now.pop()
        leaves = weft.tree_flatten(out)[0]
        self.passes[name] = sum(x.nbytes for x in leaves if isinstance(x, Tensor))

    def note(self, op: Op, args: Any, params: Any, out: Any) -> None:
        name = self.now[-1]
        outs = out if type(out) is tuple else (out,)
        if op.facts.flops is not None:
            shapes = [tuple(a.shape) for a in args if isinstance(a, Tensor)]
            done = float(math.prod(op.facts.flops(tuple(outs[0].shape), *shapes)))
        elif op.view:
            done = 0.0
        else:
            done = float(op.facts.cost * outs[0].numel())
        self.flops[name] = self.flops.get(name, 0.0) + done
        if not op.view:
            size = sum(one.nbytes for one in outs)
            self.kept[name] = self.kept.get(name, 0.0) + size
            size += sum(a.nbytes for a in args if isinstance(a, Tensor))
            self.moved[name] = self.moved.get(name, 0.0) + size

    def layer(self, name: str, count: int, batch: int) -> Layer:
        every = self.flops, self.kept, self.passes, self.moved
        flops, kept, passes, moved = (one.get(name, 0.0) / batch for one in every)
        exchanges = 2 * passes if count else 0.0
        return Layer(name, flops, count, kept, passes, exchanges, moved)
