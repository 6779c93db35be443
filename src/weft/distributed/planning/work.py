"""The work of a model: operations, memory and messages of its layers, for a sample."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import weft
from weft.core.tensor import Tensor
from weft.distributed.calls import Call, Ref, recorded
from weft.distributed.pipelining.pipe import layers_of
from weft.distributed.planning.profile import Example, Profiles
from weft.distributed.tensor.parallel.found import Found, found_styles, linear_layers
from weft.distributed.tensor.placements import piece
from weft.dtype import DType
from weft.errors import ArgumentError
from weft.nn import Module


class Weight(NamedTuple):
    """A parameter: its path, shape and dtype, and where it stands in the model.

    ``cut`` is the axis along which tensor parallel processes have a part each, None if
    each has all of it.
    """

    path: str
    shape: tuple[int, ...]
    dtype: DType
    place: int
    cut: int | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of all of it."""
        return math.prod(self.shape) * self.dtype.itemsize

    def part(self, count: int, rank: int = 0) -> tuple[int, ...]:
        """The shape of what one of ``count`` tensor parallel processes has."""
        shape = list(self.shape)
        if self.cut is not None:
            shape[self.cut] = piece(shape[self.cut], count, rank)[1]
        return tuple(shape)


class Alone(NamedTuple):
    """The share of a layer's work that each tensor parallel process does all of."""

    flops: float = 0.0
    kept: float = 0.0
    moved: float = 0.0


class Layer(NamedTuple):
    """One layer, for one sample.

    ``flops`` are operations of forward, ``kept`` bytes that backward needs, ``passes``
    bytes that the next layer gets, ``exchanges`` bytes that its parts combine in
    forward if it is tensor parallel. ``moved`` are bytes that go through memory beside
    products, ``alone`` what each part does all of, and ``operators`` their number.

    Of a layer that was measured, ``weights`` are its parameters, ``needs`` says whether
    backward needs them, ``returns`` are bytes of gradients that it gives the layer
    before, ``sums`` bytes of each sum in forward, ``sums_back`` of those in backward,
    and ``fixed`` what passes on and comes back for a batch of any size.
    """

    name: str
    flops: float
    parameters: int
    kept: float
    passes: float
    exchanges: float
    moved: float = 0.0
    alone: Alone = Alone()
    operators: int = 0
    weights: tuple[Weight, ...] = ()
    needs: bool = True
    returns: float = 0.0
    sums: tuple[float, ...] = ()
    sums_back: tuple[float, ...] = ()
    fixed: tuple[float, float] = (0.0, 0.0)


class Work(NamedTuple):
    """A model's layers in order, the size of a batch, and bytes of a parameter.

    ``buffers`` are bytes of tensors that are no parameters. Layers that ``joined``
    counts together stay on one process.
    """

    layers: tuple[Layer, ...]
    batch: int
    itemsize: int = 4
    states: int = 8  # bytes of an optimizer's state for a parameter
    buffers: int = 0
    joined: tuple[int, ...] = ()  # the number of layers in each piece that stays whole

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
        2 * (17 * passes + scores), Alone(moved=2 * 5 * passes),
    )  # fmt: skip
    table = vocab * width
    first = Layer("embedding", 0.0, table, passes, passes, passes)
    head = Layer("head", 2.0 * sequence * table, 0, passes, 0.0, passes)
    return Work((first, *[block] * layers, head), batch, itemsize, states)


class Model:
    """A module whose calls were recorded on an example batch: it has work for plans.

    With ``loss_fn``, the last of the example is the target. The optimizer says how
    large its states are.
    """

    def __init__(
        self, module: Any, example: Any, loss_fn: Any = None, optimizer: Any = None
    ) -> None:
        if not isinstance(module, Module):
            raise ArgumentError(
                f"parallel: expected a module, got {type(module).__name__}; pass the "
                "one that the step trains"
            )
        args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
        first = next((a for a in args if isinstance(a, Tensor) and a.ndim), None)
        if first is None:
            raise ArgumentError(
                "parallel: expected an example with a tensor that has rows"
            )
        if loss_fn is not None and len(args) < 2:
            raise ArgumentError(
                "parallel: expected inputs and a target as the example, as there is a "
                f"loss_fn, got {len(args)} of them"
            )
        self.module, self.example, self.batch = module, args, first.shape[0]
        self.loss_fn, self.optimizer = loss_fn, optimizer
        self.linear = linear_layers(module)
        self.layers = layers_of(module)
        self.inputs = args if loss_fn is None else args[:-1]
        self.calls = recorded(module, self.inputs, self.linear, self.layers)
        self.places = {id(p): k for k, p in enumerate(module.parameters())}
        self._found: dict[int, Work] = {}

    def styles(self, tensor: int) -> Found:
        """The layers of which ``tensor`` processes can have a part each."""
        return found_styles(self.calls, self.linear, tensor)

    def work(self, tensor: int = 1) -> Work:
        """The work of the layers, shared out to ``tensor`` processes where they can."""
        if tensor not in self._found:
            self._found[tensor] = _Counting(self, tensor).work()
        return self._found[tensor]

    @functools.cached_property
    def _example(self) -> Example:
        names = tuple(one.name for one in self.work().layers)
        return Example(self.module, self.example, self.loss_fn, names)

    def profiles(self, limit: float, clocks: bool) -> Profiles:
        """The bytes, and seconds, of each layer; ``limit`` is for trying them."""
        return Profiles(self._example, limit, clocks)


def measured_work(module: Any, example: Any) -> Work:
    """The work of a module's layers, from a forward pass on an example batch.

    Layers are the module's children, and those of its lists and sequences, in the order
    in which they are called.
    """
    return Model(module, example).work()


class _Counting:
    """The work of a model's layers for a number of tensor parallel processes."""

    def __init__(self, model: Model, tensor: int) -> None:
        self.model, self.calls, self.batch = model, model.calls, model.batch
        self.found = model.styles(tensor) if tensor > 1 else Found((), (), frozenset())
        self.names = list(dict.fromkeys(filter(None, self._parts())))
        self.names = self.names or list(model.layers)[:1]
        self.at = {name: k for k, name in enumerate(self.names)}
        self.layer_of: list[int] = []  # by call: that of the layer before, if outside
        now = 0
        for part in self._parts():
            now = max(now, self.at.get(part, now))
            self.layer_of.append(now)

    def _parts(self) -> Iterable[str]:
        return [call.within for call in self.calls.calls]

    def work(self) -> Work:
        held = self._weights()
        layers = [self._layer(k, held) for k in range(len(self.names))]
        parameters = list(self.model.module.parameters())
        itemsize = parameters[0].dtype.itemsize if parameters else 4
        buffers = sum(b.nbytes for b in self.model.module.buffers())
        return Work(
            tuple(layers), self.batch, itemsize, self._states(itemsize), buffers,
            self._joined(),
        )  # fmt: skip

    def _states(self, itemsize: int) -> int:
        """Bytes of the optimizer's state for an element of a parameter."""
        optimizer = self.model.optimizer
        if optimizer is None:
            return 2 * itemsize
        group = optimizer.param_groups[0]
        like = weft.zeros(16, dtype=group["params"][0].dtype)
        state = optimizer.start(like, group)
        return sum(x.nbytes for x in state.values() if isinstance(x, Tensor)) // 16

    def _weights(self) -> list[list[Weight]]:
        """Each layer's parameters; those outside of layers are the last one's."""
        cuts = dict.fromkeys((f"{path}.weight" for path in self.found.columns), 0)
        cuts |= dict.fromkeys((f"{path}.bias" for path in self.found.columns), 0)
        cuts |= dict.fromkeys((f"{path}.weight" for path in self.found.rows), 1)
        module, places = self.model.module, self.model.places
        held: list[list[Weight]] = []
        seen: set[int] = set()
        for name in self.names:
            own = module.get_submodule(name)
            some = [
                (f"{name}.{n}" if name else n, p) for n, p in own.named_parameters()
            ]
            held.append([_weight(n, p, places, cuts) for n, p in some])
            seen |= {id(p) for _, p in some}
        rest = [(n, p) for n, p in module.named_parameters() if id(p) not in seen]
        held[-1] += [_weight(n, p, places, cuts) for n, p in rest]
        return held

    def _layer(self, k: int, held: list[list[Weight]]) -> Layer:
        mine = [c for c, at in zip(self.calls.calls, self.layer_of, strict=True)
                if at == k]  # fmt: skip
        weights, before = held[k], {w.place for one in held[:k] for w in one}
        whole = [c for c in mine if not self._in_parts(c)]
        passes, returns, fixed = self._passing(k)
        sums = [self._size(c.outs[0]) for c in mine if c.path in self.found.rows]
        back = [
            self._size(number)
            for c in mine if c.path in self.found.columns
            for number in [next(r.number for r in c.reads() if isinstance(r, Ref))]
            if number in self.calls.wanted
        ]  # fmt: skip
        n = self.batch
        return Layer(
            self.names[k], sum(c.flops for c in mine) / n,
            sum(math.prod(w.shape) for w in weights if w.place not in before),
            sum(c.kept for c in mine) / n, passes / n, (sum(sums) + sum(back)) / 2 / n,
            sum(c.moved for c in mine) / n,
            Alone(
                sum(c.flops for c in whole) / n,
                sum(c.kept for c in mine if not self._gives_parts(c)) / n,
                sum(c.moved for c in whole) / n,
            ),
            sum(c.operators for c in mine), tuple(weights),
            bool(self.calls.needs.get(self.names[k])), returns / n,
            tuple(size / n for size in sums), tuple(size / n for size in back), fixed,
        )  # fmt: skip

    def _size(self, number: int) -> float:
        kind = self.calls.types[number]
        return float(math.prod(kind.shape) * kind.dtype.itemsize)

    def _gives_parts(self, call: Call) -> bool:
        return call.path in self.found.columns or any(
            number in self.found.values for number in call.outs
        )

    def _in_parts(self, call: Call) -> bool:
        return call.path in self.found.rows or self._gives_parts(call)

    def _passing(self, k: int) -> tuple[float, float, tuple[float, float]]:
        """Bytes of what later layers need behind a layer, and of its gradients.

        First of what grows with the batch; the rest is ``fixed``.
        """
        if k == len(self.names) - 1:
            return 0.0, 0.0, (0.0, 0.0)
        end = sum(at <= k for at in self.layer_of)
        there = {
            *self.calls.inputs,
            *(n for c in self.calls.calls[:end] for n in c.outs),
        }
        later = {r.number for c in self.calls.calls[end:] for r in c.reads()
                 if isinstance(r, Ref)}  # fmt: skip
        live = there & (later | self.calls.outputs())
        sizes = {True: [0.0, 0.0], False: [0.0, 0.0]}
        for number in live:
            shape = self.calls.types[number].shape
            grows = bool(shape) and shape[0] == self.batch
            sizes[grows][0] += self._size(number)
            sizes[grows][1] += self._size(number) * (number in self.calls.wanted)
        return *sizes[True], (sizes[False][0], sizes[False][1])  # type: ignore[return-value]

    def _joined(self) -> tuple[int, ...]:
        """Runs of layers between which values are in parts."""
        last = list(range(len(self.names)))
        for number in self.found.values:
            uses = [
                at for c, at in zip(self.calls.calls, self.layer_of, strict=True)
                if number in c.outs or Ref(number) in list(c.reads())
            ]  # fmt: skip
            last[min(uses)] = max(last[min(uses)], max(uses))
        counts, k = [], 0
        while k < len(last):
            end = k
            while max(last[k : end + 1]) > end:
                end = max(last[k : end + 1])
            counts.append(end + 1 - k)
            k = end + 1
        return tuple(counts)


def _weight(
    path: str, p: Tensor, places: dict[int, int], cuts: dict[str, int]
) -> Weight:
    return Weight(path, tuple(p.shape), p.dtype, places[id(p)], cuts.get(path))
