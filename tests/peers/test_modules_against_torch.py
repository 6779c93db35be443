"""Names and arguments of the packages around networks are PyTorch's."""

from __future__ import annotations

import importlib
import inspect

import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

# What Weft leaves out, package by package.
LEFT_OUT = {
    "nn": set(),
    "nn.init": set(),
    "nn.utils.rnn": {"PackedSequence_", "bind"},
    "optim": {"swap_in_optimizer_params_and_state"},
    "optim.lr_scheduler": {"EPOCH_DEPRECATION_WARNING"},
    "optim.swa_utils": set(),
    "utils.data": {
        "DFIterDataPipe", "DataChunk", "DistributedSampler", "IterDataPipe",
        "MapDataPipe", "argument_validation", "functional_datapipe",
        "guaranteed_datapipes_determinism", "non_deterministic",
        "runtime_validation", "runtime_validation_disabled",
    },
}  # fmt: skip
# Arguments that are deprecated, private, or choose between PyTorch's own kernels.
IGNORED = {
    "size_average", "reduce", "min_value", "max_value", "sparse", "out",
    "capturable", "differentiable", "fused", "multi_avg_fn", "args", "kwargs",
}  # fmt: skip


def public(package):
    """A package's own public names."""
    for name in getattr(package, "__all__", dir(package)):
        thing = getattr(package, name)
        if not name.startswith("_") and not inspect.ismodule(thing):
            yield name, thing


def both(package):
    return (importlib.import_module(f"{top}.{package}") for top in ("torch", "weft"))


@pytest.mark.parametrize("package", LEFT_OUT)
def test_names(package):
    theirs, ours = both(package)
    missing = {name for name, _ in public(theirs) if not hasattr(ours, name)}
    assert missing <= LEFT_OUT[package]
    there = {name for name in LEFT_OUT[package] if hasattr(ours, name)}
    assert not there, "these are no longer left out"


def arguments(function):
    """Positional and all argument names, or nothing where there is no signature."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return [], set()
    kept = [p for p in found if p.name not in IGNORED and p.name[0] != "_"]
    return [p.name for p in kept if p.kind is p.POSITIONAL_OR_KEYWORD], {
        p.name for p in kept
    }


@pytest.mark.parametrize("package", [*LEFT_OUT, "nn.functional", "nn.utils"])
def test_arguments(package):
    theirs, ours = both(package)
    wrong, count = {}, 0
    for name, thing in public(theirs):
        if not callable(thing) or not hasattr(ours, name):
            continue
        count += 1
        order, names = arguments(thing)
        own_order, own_names = arguments(getattr(ours, name))
        shared = [n for n in order if n in own_order]
        if names - own_names or shared != [n for n in own_order if n in order]:
            wrong[name] = sorted(names - own_names) or "order"
    assert not wrong
    assert count
