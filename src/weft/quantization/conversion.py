"""``quantize``: a copy of a model whose layers are integers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np

import weft
from weft import Tensor
from weft.errors import ArgumentError, ShapeError, WeftError
from weft.nn.conv import Conv1d, Conv2d, Conv3d
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.sparse import Embedding
from weft.quantization.folding import folded
from weft.quantization.modules import (
    DynamicConv,
    DynamicLinear,
    QuantizedConv,
    QuantizedEmbedding,
    QuantizedLinear,
    WeightOnlyConv,
    WeightOnlyLinear,
)
from weft.quantization.numbers import GROUP
from weft.quantization.observers import MinMax, observer_factory

BITS = {"int8": 8, "int4": 4}
CONVOLUTIONS = (Conv1d, Conv2d, Conv3d)
Forward = Callable[[Any, Any], Any]


def quantize(
    model: Module,
    to: str = "int8",
    *,
    data: Any = None,
    dynamic: bool = False,
    weight_only: bool = False,
    observer: Any = "minmax",
    group: int = GROUP,
    skip: Collection[str] = (),
    forward: Forward | None = None,
) -> Any:
    """A copy of a model, in eval mode, with integers for its layers' weights.

    ``Linear``, ``Conv1d`` to ``Conv3d`` and ``Embedding`` are replaced, but for those
    whose names are in ``skip``; subclasses and other layers stay as they are. Batch
    norms are folded into the layers before them. The model itself does not change.

    - By default, inputs of layers are integers too, of a range that an ``observer``
      finds in ``data``: a loader, or one batch. Of a batch that is a tuple, the model
      gets the first part; ``forward(model, batch)`` says otherwise.
    - With ``dynamic``, each row, or example, decides on its own range.
    - With ``weight_only``, inputs stay as they are. ``"int4"`` is for weights alone;
      ``group`` of them share a scale.

    With either of these, data are not needed, but their first batch shows which batch
    norms follow which layers; without it, only neighbours in a ``Sequential`` do.

    >>> net = weft.nn.Sequential(weft.nn.Linear(4, 8), weft.nn.ReLU())
    >>> x = weft.rand(16, 4)
    >>> small = weft.quantize(net, "int8", data=x)
    >>> small
    Sequential(
      (0): QuantizedLinear(in_features=4, out_features=8, bits=8)
      (1): ReLU()
    )
    >>> bool((small(x) - net(x)).abs().max() < 0.05)
    True
    """
    bits = _checked_bits(model, to, dynamic, weight_only, group)
    skipped = frozenset([skip] if isinstance(skip, str) else skip)
    run = forward or call_model
    if dynamic or weight_only:
        example = None if data is None else next(batches_of(data), None)
        traced = None if example is None else lambda one: _run(one, example, run, 0)
        net = folded(model, traced)
        layers = quantizable(net, skipped)
        make = _weight_only(bits, group) if weight_only else _dynamic
        return replaced(net, {name: make(layer) for name, layer in layers.items()})
    factory = observer_factory(observer)
    quantizable(model, skipped)  # a mistake is told before data are read
    batches = batches_of(data)
    first = next(batches, None)
    if first is None:
        raise ArgumentError(
            "quantize: expected data with at least one batch, got none; pass "
            "data=loader, or dynamic=True or weight_only=True, which need none"
        )
    net = folded(model, lambda one: _run(one, first, run, 0))
    layers = quantizable(net, skipped)
    ranges = _ranges(net, layers, _chained(first, batches), run, factory)
    return replaced(
        net, {name: _static(layer, ranges.get(name)) for name, layer in layers.items()}
    )


def _checked_bits(
    model: Any, to: Any, dynamic: bool, weight_only: bool, group: int
) -> int:
    if not isinstance(model, Module):
        raise ArgumentError(
            f"quantize: expected an nn.Module, got {type(model).__name__}"
        )
    if to not in BITS:
        raise ArgumentError(
            f"quantize: expected to be one of {', '.join(map(repr, BITS))}, got {to!r}"
        )
    if dynamic and weight_only:
        raise ArgumentError(
            "quantize: expected dynamic=True or weight_only=True, got both; with "
            "weight_only, inputs are no integers"
        )
    if to == "int4" and not weight_only:
        raise ArgumentError(
            "quantize: expected weight_only=True with 'int4', since inputs of four "
            "bits lose too much; or use 'int8'"
        )
    if group < 2 or group % 2:
        raise ArgumentError(f"quantize: expected an even group from 2 on, got {group}")
    return BITS[to]


# -- layers


def quantizable(model: Module, skip: Collection[str] = ()) -> dict[str, Module]:
    """The layers that are replaced, by name; a shared one under its first name.

    >>> list(weft.quantization.quantizable(weft.models.MLP([4, 3, 2])))
    ['layers.0', 'layers.1']
    """
    kinds = (Linear, *CONVOLUTIONS, Embedding)
    every = dict(model.named_modules())
    unknown = sorted(set(skip) - every.keys())
    if unknown:
        raise ArgumentError(
            f"quantize: expected skip to name modules of the model, got {unknown}; "
            f"it has {sorted(name for name in every if name)}"
        )
    found = {
        name: module
        for name, module in every.items()
        if type(module) in kinds
        and getattr(module, "max_norm", None) is None
        and not any(name == s or name.startswith(f"{s}.") for s in skip)
    }
    if not found:
        raise ArgumentError(
            "quantize: expected a model with a Linear, Conv1d, Conv2d, Conv3d or "
            f"Embedding that is not skipped, got {type(model).__name__} without one"
        )
    hooked = [n for n, m in found.items() if m._forward_hooks or m._forward_pre_hooks]
    if hooked:
        raise ArgumentError(
            f"quantize: expected layers without hooks, which their quantised forms "
            f"would lack, got hooks of {hooked}; remove them, or leave the layers out "
            "by skip"
        )
    return found


def replaced(model: Module, layers: dict[str, Module]) -> Any:
    """The model with other layers under these names, and wherever they are shared.

    Where inputs are rounded, its other parameters need no gradient: they would get one
    of a part of the model.
    """
    if "" in layers:
        return layers[""].eval()
    if any(_rounds_inputs(layer) for layer in layers.values()):
        model.requires_grad_(False)
    _share(model, layers)
    new = {id(model.get_submodule(name)): layer for name, layer in layers.items()}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if id(module) in new:
            model.set_submodule(name, new[id(module)].eval())
    return model


def _rounds_inputs(layer: Module) -> bool:
    kinds = QuantizedLinear, QuantizedConv, DynamicLinear, DynamicConv
    return isinstance(layer, kinds)


def _share(model: Module, layers: dict[str, Any]) -> None:
    """Let layers of one weight, such as a table that serves both ends, share its bytes.

    Two scales of it may differ, since ranges of inputs are part of some.
    """
    held: dict[int, Any] = {}
    for name, layer in layers.items():
        plain: Any = model.get_submodule(name)
        first = held.setdefault(id(plain.weight), layer).weight
        if first.dtype is layer.weight.dtype and first.shape == layer.weight.shape:
            layer.weight = first


def _static(layer: Any, found: tuple[float, float] | None) -> Module:
    if isinstance(layer, Embedding):
        return QuantizedEmbedding(layer, 8)
    assert found is not None
    make = QuantizedLinear if isinstance(layer, Linear) else QuantizedConv
    return make(layer, *found)


def _dynamic(layer: Any) -> Module:
    if isinstance(layer, Embedding):
        return QuantizedEmbedding(layer, 8)
    return DynamicLinear(layer) if isinstance(layer, Linear) else DynamicConv(layer)


def _weight_only(bits: int, group: int) -> Callable[[Any], Module]:
    def make(layer: Any) -> Module:
        if isinstance(layer, Embedding):
            return QuantizedEmbedding(layer, bits, group)
        kind = WeightOnlyLinear if isinstance(layer, Linear) else WeightOnlyConv
        return kind(layer, bits, group)

    return make


# -- data


def call_model(model: Any, batch: Any) -> Any:
    """The model's result for a batch, or for the first part of one that is a tuple."""
    return model(batch[0] if isinstance(batch, (tuple, list)) else batch)


def batches_of(data: Any) -> Iterator[Any]:
    """The batches of a loader, or the one that is given instead."""
    if data is None:
        raise ArgumentError(
            "quantize: expected data to find the ranges of inputs, got none; pass "
            "data=loader, or dynamic=True or weight_only=True, which need none"
        )
    if isinstance(data, Tensor):
        return iter([data])
    if isinstance(data, tuple) and data and isinstance(data[0], Tensor):
        return iter([data])
    if not isinstance(data, Iterable):
        raise ArgumentError(
            f"quantize: expected data to be a tensor or a loader of batches, got "
            f"{type(data).__name__}"
        )
    return iter(data)


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _ranges(
    model: Module,
    layers: dict[str, Module],
    batches: Iterable[Any],
    run: Forward,
    factory: Callable[[], MinMax],
) -> dict[str, tuple[float, float]]:
    """The range of each layer's input over all batches."""
    watched = {n: m for n, m in layers.items() if not isinstance(m, Embedding)}
    observers = {name: factory() for name in watched}
    number = 0

    def watch(name: str) -> Callable[..., None]:
        def before(module: Any, args: Any) -> None:
            array = np.asarray(args[0].detach().float().cpu().numpy())
            if not np.isfinite(array).all():
                raise ArgumentError(
                    f"quantize: expected finite numbers, but the input of {name!r} has "
                    f"infinities or NaN in batch {number} of the data; repair the "
                    "data, or leave the layer out by skip"
                )
            observers[name].observe(array)

        return before

    hooks = [m.register_forward_pre_hook(watch(n)) for n, m in watched.items()]
    try:
        with weft.no_grad():
            for number, batch in enumerate(batches):  # errors tell it
                _run(model, batch, run, number)
    finally:
        for hook in hooks:
            hook.remove()
    missing = [name for name, one in observers.items() if not one.seen]
    if missing:
        raise ArgumentError(
            f"quantize: no batch of the data reached {missing}, so that nothing is "
            "known of their inputs; add data that does, or leave them out by skip"
        )
    return {name: one.range() for name, one in observers.items()}


def _run(model: Module, batch: Any, run: Forward, number: int) -> Any:
    try:
        return run(model, batch)
    except ShapeError as error:
        raise ShapeError(
            f"quantize: the model refused batch {number} of the data: {error}"
        ) from error
    except WeftError:
        raise
    except TypeError as error:
        raise ArgumentError(
            f"quantize: the model could not be called with batch {number} of the data "
            f"({error}); pass forward=lambda model, batch: ..."
        ) from error
