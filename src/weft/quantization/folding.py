"""Batch norms folded into the convolutions and linear layers before them."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import weft
from weft import Tensor
from weft.nn import utils
from weft.nn.containers import Sequential
from weft.nn.conv import Conv1d, Conv2d, Conv3d
from weft.nn.linear import Identity, Linear
from weft.nn.module import Module
from weft.nn.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d

_NORMS: dict[type, Any] = {
    Linear: BatchNorm1d,
    Conv1d: BatchNorm1d,
    Conv2d: BatchNorm2d,
    Conv3d: BatchNorm3d,
}


def folded(model: Module, run: Any = None) -> Any:
    """A copy in eval mode without the batch norms that follow a layer.

    Convolutions and norms that are neighbours in a ``Sequential`` follow one another.
    With ``run(model)``, so do layers that hand a tensor on during it; if its results
    change by more than rounding, something else read that tensor too, and only
    neighbours are folded.

    >>> net = weft.nn.Sequential(weft.nn.Conv2d(1, 2, 3), weft.nn.BatchNorm2d(2))
    >>> folded(net)[1]
    Identity()
    """
    plain = _fold(copy.deepcopy(model).eval(), _neighbours)
    if run is None:
        return plain
    traced = _fold(copy.deepcopy(model).eval(), lambda net: _handed_on(net, run))
    with weft.no_grad():
        same = all(
            weft.allclose(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max() + 1e-6))
            for a, b in zip(_tensors(run(traced)), _tensors(run(plain)), strict=True)
        )
    return traced if same else plain


def _tensors(result: Any) -> list[Tensor]:
    found = weft.tree_flatten(result)[0]
    return [x for x in found if isinstance(x, Tensor) and x.is_floating_point()]


def _fold(model: Module, pairs: Any) -> Module:
    for before, after in pairs(model):
        layer, norm = (model.get_submodule(name) for name in (before, after))
        fuse: Any = utils.fuse_conv_bn_eval
        if isinstance(layer, Linear):
            fuse = utils.fuse_linear_bn_eval
        model.set_submodule(before, fuse(layer, norm))
        model.set_submodule(after, Identity())
    return model


def _fits(layer: Any, norm: Any) -> bool:
    """Whether a norm of this kind can be folded into a layer of this kind."""
    return (
        _NORMS.get(type(layer)) is type(norm)
        and norm.running_mean is not None
        and getattr(layer, "act", None) is None
        and layer.weight.shape[0] == norm.num_features
    )


def _names(model: Module) -> dict[int, list[str]]:
    """The names of each module, of which shared ones have several."""
    found: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        found.setdefault(id(module), []).append(name)
    return found


def _neighbours(model: Module) -> list[tuple[str, str]]:
    """Neighbours in a ``Sequential`` that are there once.

    What follows a linear layer may norm another axis than its features, which its
    input decides.
    """
    names, pairs = _names(model), []
    for name, module in model.named_modules():
        if type(module) is not Sequential:
            continue
        children = list(module.named_children())
        for (k, layer), (q, norm) in pairwise(children):
            once = len(names[id(layer)]) == 1 == len(names[id(norm)])
            if _fits(layer, norm) and once and not isinstance(layer, Linear):
                lead = f"{name}." if name else ""
                pairs.append((lead + k, lead + q))
    return pairs


def _handed_on(model: Module, run: Any) -> list[tuple[str, str]]:
    """A layer and a norm that gets its output, each called once."""
    names = _names(model)
    made: dict[int, tuple[Any, Module]] = {}
    calls: dict[int, int] = {}
    pairs: list[tuple[Module, Module]] = []

    def after(module: Any, args: Any, out: Any) -> None:
        calls[id(module)] = calls.get(id(module), 0) + 1
        if args and id(args[0]) in made:
            layer = made[id(args[0])][1]
            if _fits(layer, module):
                pairs.append((layer, module))
        if type(module) in _NORMS:
            made[id(out)] = out, module  # which lives on, so that no other has its id

    hooks = [
        m.register_forward_hook(after)
        for m in model.modules()
        if type(m) in (*_NORMS, *_NORMS.values())
    ]
    try:
        with weft.no_grad():
            run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return [
        (names[id(layer)][0], names[id(norm)][0])
        for layer, norm in pairs
        if all(calls[id(m)] == 1 == len(names[id(m)]) for m in (layer, norm))
    ]
