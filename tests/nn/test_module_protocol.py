"""Hooks, saved state and the remaining methods of modules, as PyTorch has them."""

import copy
import importlib
import pickle

import numpy as np
import pytest

import weft
from weft import nn


def test_paths_of_modules():
    for name, inside in {
        "conv": "_ConvNd", "batchnorm": "_BatchNorm", "linear": "Linear",
        "loss": "_Loss", "module": "Module", "container": "Sequential",
        "utils": "_pair", "dropout": "_DropoutNd", "rnn": "RNNBase",
        "pooling": "_MaxPoolNd", "padding": "ZeroPad2d", "activation": "ReLU",
    }.items():  # fmt: skip
        assert hasattr(importlib.import_module(f"weft.nn.modules.{name}"), inside)
    from weft.nn.modules.conv import _ConvNd

    from weft.nn.modules.utils import _ntuple, _pair, _triple

    assert isinstance(nn.Conv2d(1, 1, 1), _ConvNd)
    assert nn.modules.Linear is nn.Linear
    assert _pair(3) == (3, 3)
    assert _triple([1, 2, 3]) == (1, 2, 3)
    assert _ntuple(4)(1) == (1,) * 4


def test_a_loss_of_ones_own():
    class Mine(nn.modules.loss._Loss):
        def __init__(self, reduction="mean"):
            super().__init__(None, None, reduction)

        def forward(self, x):
            return x.sum() if self.reduction == "sum" else x.mean()

    assert Mine("sum")(weft.ones(3)).item() == 3


def test_hooks_with_keyword_arguments_and_order():
    class Add(nn.Module):
        def forward(self, x, y=0):
            return x + y

    seen = []
    layer = Add()
    layer.register_forward_pre_hook(lambda m, a: seen.append("first"))
    layer.register_forward_pre_hook(
        lambda m, a, k: (a, {"y": 10}), with_kwargs=True, prepend=True
    )
    layer.register_forward_hook(lambda m, a, k, out: out + k["y"], with_kwargs=True)
    assert layer(weft.ones(1)).item() == 21
    assert seen == ["first"]
    layer.register_forward_pre_hook(lambda m, a, k: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"\(args, kwargs\)"):
        layer(weft.ones(1))


def test_a_hook_that_is_always_called():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    seen = []
    layer = Fails()
    layer.register_forward_hook(lambda m, a, out: seen.append(out), always_call=True)
    layer.register_forward_hook(lambda m, a, out: seen.append("never"))
    with pytest.raises(ValueError, match="no"):
        layer(1)
    assert seen == [None]


def test_backward_hooks_see_and_replace_gradients():
    layer = nn.Linear(2, 2, bias=False)
    seen = []
    pre = layer.register_full_backward_pre_hook(lambda m, g: (g[0] * 2,))
    layer.register_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x = weft.ones(1, 2, requires_grad=True)
    layer(x).sum().backward()
    assert seen[0][1][0].tolist() == [[2, 2]]
    assert np.allclose(x.grad, 2 * layer.weight.detach().sum(0, keepdim=True))
    pre.remove()
    layer(weft.ones(1, 2)).sum().backward()  # no gradient goes to the input
    assert seen[1][0] == (None,)
    assert seen[1][1][0].tolist() == [[1, 1]]


def test_state_hooks_run_in_pytorch_order():
    net = nn.Sequential(nn.Linear(1, 1))
    order = []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: order.append("pre"))
    net[0].register_state_dict_post_hook(
        lambda m, state, prefix, meta: state.pop(prefix + "bias") and None
    )
    state = net.state_dict()
    assert order == ["pre"]
    assert list(state) == ["0.weight"]
    assert state._metadata["0"] == {"version": 1}

    def rename(module, state, prefix, *rest):
        state[prefix + "bias"] = state.pop(prefix + "offset")

    net[0].register_load_state_dict_pre_hook(rename)
    net.register_load_state_dict_post_hook(lambda m, left: order.append(left))
    found = net.load_state_dict({"0.weight": weft.ones(1, 1), "0.offset": weft.ones(1)})
    assert net[0].bias.item() == 1
    assert order[-1] is found
    assert str(found) == "<All keys matched successfully>"
    net[0].register_state_dict_post_hook(lambda *args: 3)
    with pytest.raises(RuntimeError, match="return None"):
        net.state_dict()


def test_a_result_of_a_private_hook_replaces_the_state():
    layer = nn.Linear(1, 1)
    layer._register_state_dict_hook(lambda m, state, prefix, meta: {"only": 1})
    assert layer.state_dict() == {"only": 1}


def test_classes_load_their_own_part():
    class Old(nn.Linear):
        _version = 2

        def _load_from_state_dict(self, state, prefix, meta, *rest):
            if meta.get("version", 1) < 2:
                state[prefix + "weight"] = state.pop(prefix + "kernel").T
            super()._load_from_state_dict(state, prefix, meta, *rest)

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "note"] = weft.ones(1)

    layer = Old(2, 1, bias=False)
    layer.load_state_dict({"kernel": weft.tensor([[1.0], [2.0]])})
    assert layer.weight.tolist() == [[1, 2]]
    assert list(layer.state_dict()) == ["weight", "note"]


def test_batch_norm_without_a_count_loads():
    layer = nn.BatchNorm1d(2)
    state = dict(layer.state_dict())
    del state["num_batches_tracked"]
    layer.load_state_dict(state)


def test_extra_state():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = 0

        def get_extra_state(self):
            return {"seen": self.seen}

        def set_extra_state(self, state):
            self.seen = state["seen"]

    first, second = nn.Sequential(Counts()), nn.Sequential(Counts())
    first[0].seen = 7
    assert list(first.state_dict()) == ["0._extra_state"]
    second.load_state_dict(first.state_dict())
    assert second[0].seen == 7
    with pytest.raises(RuntimeError, match=r"missing     0\._extra_state"):
        second.load_state_dict({})
    with pytest.raises(RuntimeError, match="get_extra_state"):
        nn.Module().get_extra_state()
    with pytest.raises(RuntimeError, match="set_extra_state"):
        nn.Module().set_extra_state(1)


def test_load_refuses_what_is_no_mapping():
    with pytest.raises(TypeError, match="dictionary of tensors"):
        nn.Linear(1, 1).load_state_dict([1])


def test_whole_trees_are_converted():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert net.type(weft.float64)[0].weight.dtype is weft.float64
    weight = net[0].weight
    assert net.to_empty(device="cpu")[0].weight is weight
    calls = []

    class Own(nn.Linear):
        def _apply(self, fn, recurse=True):
            calls.append(self)
            return super()._apply(fn, recurse)

    nn.Sequential(Own(1, 1)).double()
    assert len(calls) == 1
    for kind in ("cuda", "xpu", "ipu", "mtia"):
        with pytest.raises(RuntimeError):
            getattr(nn.Linear(1, 1), kind)()


def test_a_submodule_is_replaced_by_path():
    net = nn.Sequential(nn.Sequential(nn.ReLU()))
    net.set_submodule("0.0", nn.Tanh())
    assert isinstance(net[0][0], nn.Tanh)
    with pytest.raises(AttributeError):
        net.set_submodule("0.1", nn.Tanh(), strict=True)
    with pytest.raises(ValueError, match="path"):
        net.set_submodule("", nn.Tanh())
    with pytest.raises(ValueError, match="Module"):
        net.set_submodule("0", 3)


def test_buffers_by_assignment():
    layer = nn.Module()
    layer.a = nn.Buffer(weft.ones(2))
    layer.b = nn.Buffer(weft.ones(2), persistent=False)
    assert [n for n, _ in layer.named_buffers()] == ["a", "b"]
    assert list(layer.state_dict()) == ["a"]
    assert isinstance(layer.a, nn.Buffer)
    assert not isinstance(weft.ones(1), nn.Buffer)


def test_a_class_after_module_is_initialised():
    class Named:
        def __init__(self, name):
            self.name = name

    class Both(nn.Module, Named):
        call_super_init = True

    assert Both("x").name == "x"
    with pytest.raises(TypeError, match="takes no arguments"):
        nn.Module(3)


def test_compiled_in_place_gives_the_same():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = weft.randn(5, 3)
    expected = net(x)
    net.compile()
    assert np.allclose(net(x).detach(), expected.detach(), atol=1e-6)
    with weft.no_grad():
        net[2].bias.add_(1)
    assert np.allclose(net(x).detach(), expected.detach() + 1, atol=1e-6)


def test_shared_modules_are_named_each_time_on_request():
    layer = nn.Linear(1, 1)
    net = nn.Sequential(layer, layer)
    assert len(list(net.named_modules())) == 2
    assert len(list(net.named_modules(remove_duplicate=False))) == 3


def test_copies_keep_hooks():
    layer = nn.Linear(1, 1)
    layer.register_forward_hook(_double)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert weft.equal(twin(weft.ones(1)), layer(weft.ones(1)))


def _double(module, args, out):
    return out * 2


def test_lazy_parameters_are_told_apart():
    lazy = nn.LazyLinear(3)
    assert nn.parameter.is_lazy(lazy.weight)
    assert not nn.parameter.is_lazy(nn.Linear(1, 1).weight)


def test_factory_options():
    assert nn.factory_kwargs({"factory_kwargs": {"dtype": weft.int8}}) == {
        "dtype": weft.int8
    }
    assert nn.factory_kwargs(None) == {}
    with pytest.raises(TypeError, match="unexpected"):
        nn.factory_kwargs({"size": 3})
    with pytest.raises(TypeError, match="twice"):
        nn.factory_kwargs({"dtype": 1, "factory_kwargs": {"dtype": 2}})


def test_prefixes_are_taken_off():
    state = nn.DataParallel(nn.Linear(1, 1)).state_dict()
    take_off = nn.modules.utils.consume_prefix_in_state_dict_if_present
    take_off(state, "module.")
    assert list(state) == ["weight", "bias"]
    assert set(state._metadata) == {""}
