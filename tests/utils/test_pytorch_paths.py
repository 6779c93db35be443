"""PyTorch's paths and names in ``utils`` and ``func``."""

import importlib

import numpy as np
import pytest

import weft
from weft import nn
from weft.utils import checkpoint
from weft.utils.data import DataLoader, DistributedSampler


def test_paths_of_data():
    for path in ("dataloader", "_utils.collate", "distributed", "sampler", "dataset"):
        importlib.import_module(f"weft.utils.data.{path}")
    from weft.utils.data._utils.collate import default_collate
    from weft.utils.data.dataloader import DataLoader as Same

    assert Same is DataLoader
    assert default_collate is weft.utils.data.default_collate


@pytest.mark.parametrize("drop", [False, True])
def test_shares_of_samples(drop):
    parts = [
        DistributedSampler(range(10), 3, rank, seed=4, drop_last=drop)
        for rank in range(3)
    ]
    assert {len(list(p)) for p in parts} == {3 if drop else 4} == {len(parts[0])}
    seen = [k for p in parts for k in p]
    assert set(seen) <= set(range(10))
    if not drop:
        assert set(seen) == set(range(10))
    before = list(parts[0])
    parts[0].set_epoch(1)
    assert list(parts[0]) != before
    with pytest.raises(RuntimeError, match="num_replicas and rank"):
        DistributedSampler(range(3))
    with pytest.raises(ValueError, match="Invalid rank"):
        DistributedSampler(range(3), 2, 2)


def test_a_loader_says_how_it_starts_workers():
    loader = DataLoader(range(3), multiprocessing_context=None)
    assert loader.multiprocessing_context is None
    loader.multiprocessing_context = "fork"
    assert loader.context == "fork"
    loader.check_worker_number_rationality()
    loader.num_workers = 10**6
    with pytest.warns(UserWarning, match="worker processes"):
        loader.check_worker_number_rationality()


def test_names_of_checkpointing():
    first, second = checkpoint.noop_context_fn()
    with first, second, checkpoint.set_checkpoint_early_stop(False):
        pass
    with checkpoint.set_checkpoint_debug_enabled(True):
        pass
    assert issubclass(checkpoint.CheckpointError, RuntimeError)
    with pytest.warns(UserWarning, match="requires_grad"):
        checkpoint.check_backward_validity([weft.ones(1)])
    checkpoint.check_backward_validity([weft.ones(1, requires_grad=True)])
    with pytest.raises(RuntimeError, match="tuple"):
        checkpoint.detach_variable([1])
    assert checkpoint.detach_variable((1, weft.ones(1)))[0] == 1


def test_ensembles():
    weft.manual_seed(0)
    models = [nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)) for _ in range(4)]
    for model in models:
        model.eval()
    parameters, buffers = weft.func.stack_module_state(models)
    x = weft.randn(5, 2)

    def call(p, b, x):
        return weft.func.functional_call(models[0], (p, b), (x,))

    out = weft.func.vmap(call, (0, 0, None))(parameters, buffers, x)
    expected = np.stack([m(x).detach().numpy() for m in models])
    assert np.allclose(out.detach(), expected, atol=1e-6)
    with pytest.raises(ValueError, match="at least one"):
        weft.func.stack_module_state([])
    with pytest.raises(ValueError, match="same class"):
        weft.func.stack_module_state([models[0], nn.Linear(1, 1).eval()])
    with pytest.raises(ValueError, match="training/eval"):
        weft.func.stack_module_state([models[0], nn.Linear(1, 1)])


def test_norms_without_statistics():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.InstanceNorm1d(2))
    weft.func.replace_all_batch_norm_modules_(net)
    assert net[0].running_mean is None
    x = weft.randn(4, 3, 2)
    weft.func.vmap(lambda x: net[0](x))(x)


def test_gradient_before_value():
    gradient, (value, aux) = weft.func.grad_and_value(
        lambda x: ((x**3).sum(), x), has_aux=True
    )(weft.tensor([2.0]))
    assert gradient.item() == 12
    assert value.item() == 8
    assert aux.item() == 2
    with pytest.raises(ValueError, match="remove"):
        weft.func.functionalize(weft.sin, remove="x")


def test_libraries_register_named_tuples_by_pytorchs_functions():
    from typing import NamedTuple

    from weft.utils import _pytree

    class State(NamedTuple):
        v: object
        i: object

    pair = _pytree._namedtuple_flatten, _pytree._namedtuple_unflatten
    _pytree.register_pytree_node(State, *pair)
    try:
        found = _pytree.tree_map(lambda x: x + 1, State(1, [2]))
        assert found == State(2, [3])
        assert type(found) is State
    finally:
        del _pytree.SUPPORTED_NODES[State]
    assert _pytree._ordereddict_flatten({"a": 1}) == ([1], ["a"])


def test_tensors_are_grouped_as_optimizers_of_packages_do():
    from weft.utils._foreach_utils import _group_tensors_by_device_and_dtype as group

    x, y = weft.ones(1), weft.ones(2, dtype=weft.float64)
    found = group([[x, y, x], [1, 2, None]], with_indices=True)
    assert found[x.device, x.dtype] == ([[x, x], [1, None]], [0, 2])
    assert found[y.device, y.dtype] == ([[y], [2]], [1])
    assert group([[x]])[x.device, x.dtype] == ([[x]], [])
