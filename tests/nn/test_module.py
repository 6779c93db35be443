"""Modules: what they find, keep, save, refuse and say."""

import copy

import numpy as np
import pytest

import weft
from weft import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, x):
        return x + self.fc2(self.fc1(x).tanh())


class Net(nn.Module):
    """Submodules in a plain list, a tuple and a dict, and a bare parameter."""

    def __init__(self, width=4):
        super().__init__()
        self.blocks = [Block(width) for _ in range(2)]
        self.pair = (nn.Linear(width, width), "not a module")
        self.heads = {"a": nn.Linear(width, 2), "b": nn.Linear(width, 3)}
        self.scale = nn.Parameter(weft.ones(width))
        self.extra = [nn.Parameter(weft.zeros(1))]
        self.register_buffer("count", weft.tensor(0))
        self.register_buffer("scratch", weft.zeros(2), persistent=False)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.heads["a"](self.pair[0](x) * self.scale)


# -- the tree


def test_everything_is_found_once_with_stable_names():
    net = Net()
    names = [name for name, _ in net.named_parameters()]
    assert names == [
        "scale", "extra.0",
        "blocks.0.fc1.weight", "blocks.0.fc1.bias",
        "blocks.0.fc2.weight", "blocks.0.fc2.bias",
        "blocks.1.fc1.weight", "blocks.1.fc1.bias",
        "blocks.1.fc2.weight", "blocks.1.fc2.bias",
        "pair.0.weight", "pair.0.bias",
        "heads.a.weight", "heads.a.bias", "heads.b.weight", "heads.b.bias",
    ]  # fmt: skip
    assert [n for n, _ in net.named_buffers()] == ["count", "scratch"]
    assert [n for n, _ in net.named_children()] == [
        "blocks.0", "blocks.1", "pair.0", "heads.a", "heads.b",
    ]  # fmt: skip
    assert net.get_submodule("blocks.1.fc2") is net.blocks[1].fc2
    assert net.get_parameter("heads.a.bias") is net.heads["a"].bias


def test_shared_modules_and_parameters_count_once():
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    assert len(list(net.parameters())) == 2
    assert len(list(net.modules())) == 3
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_a_composite_needs_no_backward():
    net = Net().double()
    x = weft.rand(3, 4, dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(net, x)


def test_parameters_are_plain_tensors():
    p = nn.Parameter(weft.zeros(2))
    assert isinstance(p, nn.Parameter)
    assert isinstance(p, weft.Tensor)
    assert type(p) is weft.Tensor
    assert not isinstance(weft.zeros(2), nn.Parameter)
    assert not isinstance(p + 1, nn.Parameter)
    assert isinstance(copy.deepcopy(p), nn.Parameter)


def test_one_seed_one_network():
    weft.manual_seed(3)
    a = Net().state_dict()
    weft.manual_seed(3)
    b = Net().state_dict()
    assert all(weft.equal(a[k], b[k]) for k in a)


# -- modes and conversion


def test_train_and_eval_reach_every_module():
    net = nn.Sequential(nn.Dropout(0.5), [nn.BatchNorm1d(2)][0])
    net.eval()
    assert not any(m.training for m in net.modules())
    assert weft.equal(net[0](weft.ones(3, 2)), weft.ones(3, 2))
    net.train()
    assert all(m.training for m in net.modules())


def test_batch_norm_moves_its_statistics_only_when_training():
    norm = nn.BatchNorm1d(2)
    assert norm.running_mean.tolist() == [0, 0]
    assert norm.running_var.tolist() == [1, 1]
    assert [n for n, _ in norm.named_parameters()] == ["weight", "bias"]
    norm(weft.rand(5, 2) + 3)
    moved = norm.running_mean.clone()
    assert (moved > 0.2).all()
    assert norm.num_batches_tracked.item() == 1
    norm.eval()
    norm(weft.rand(5, 2))
    assert weft.equal(norm.running_mean, moved)


def test_conversion_keeps_the_parameter_objects():
    net = Net()
    before = list(net.parameters())
    net.to(weft.float64)
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert all(p.dtype is weft.float64 for p in net.parameters())
    assert net.count.dtype is weft.int64
    with pytest.raises(TypeError, match="floating-point dtype, got int64"):
        net.to(weft.int64)


def test_freezing_and_zeroing():
    net = Net()
    net.blocks[0].requires_grad_(False)
    net(weft.rand(2, 4)).sum().backward()
    assert net.blocks[0].fc1.weight.grad is None
    assert net.blocks[1].fc1.weight.grad is not None
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_apply_visits_children_first():
    seen = []
    nn.Sequential(nn.Linear(1, 1), nn.ReLU()).apply(
        lambda m: seen.append(type(m).__name__)
    )
    assert seen == ["Linear", "ReLU", "Sequential"]


# -- state


def test_state_round_trip_through_a_file(tmp_path):
    net = Net()
    path = tmp_path / "net.safetensors"
    weft.save(dict(net.state_dict()), path)
    other = Net()
    other.load_state_dict(weft.load(path))
    x = weft.rand(2, 4)
    assert weft.equal(net(x), other(x))
    assert "scratch" not in net.state_dict()


def test_strict_loading_shows_the_difference_and_changes_nothing():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = dict(net.state_dict())
    state["0.weight"] = weft.zeros(3, 2)
    state["1.weight"] = weft.zeros(5, 3)
    del state["1.bias"]
    state["2.weight"] = weft.zeros(1)
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    text = str(error.value)
    assert "missing     1.bias (1,)" in text
    assert "unexpected  2.weight (1,)" in text
    assert "wrong shape 1.weight (1, 3), got (5, 3)" in text
    assert "strict=False" in text
    assert all(weft.equal(before[k], v) for k, v in net.state_dict().items())


def test_loose_loading_reports_what_was_left_out():
    net = nn.Linear(2, 3)
    left = net.load_state_dict(
        {"weight": weft.zeros(3, 2), "x": weft.zeros(1)}, strict=False
    )
    assert left.missing_keys == ["bias"]
    assert left.unexpected_keys == ["x"]
    assert net.weight.abs().sum().item() == 0


# -- hooks


def test_forward_hooks():
    layer = nn.Linear(2, 2)
    seen = []
    pre = layer.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    post = layer.register_forward_hook(lambda m, args, out: seen.append(out.shape))
    out = layer(weft.ones(1, 2))
    assert weft.equal(out, layer.bias.unsqueeze(0))
    pre.remove()
    post.remove()
    layer(weft.ones(1, 2))
    assert seen == [(1, 2)]


def test_backward_hook_sees_and_replaces_gradients():
    layer = nn.Linear(2, 3)
    seen = []

    def hook(module, grad_input, grad_output):
        seen.append((module, grad_input[0].shape, grad_output[0].shape))
        return (grad_input[0] * 0,)

    layer.register_full_backward_hook(hook)
    x = weft.ones(4, 2, requires_grad=True)
    layer(x).sum().backward()
    assert seen == [(layer, (4, 2), (4, 3))]
    assert x.grad.abs().sum().item() == 0
    assert layer.weight.grad is not None


# -- attributes and errors


def test_attributes_are_guarded():
    net = Net()
    with pytest.raises(TypeError, match=r"is a parameter.*plain tensor"):
        net.scale = weft.zeros(4)
    with pytest.raises(TypeError, match=r"is a buffer.*got int"):
        net.count = 3
    net.count = weft.tensor(5)
    assert net.state_dict()["count"].item() == 5
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nope'"):
        net.nope
    with pytest.raises(ValueError, match="'scale' exists already"):
        net.register_buffer("scale", weft.zeros(1))


def test_forgetting_super_init_is_explained():
    class Bad(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\).*'fc'"):
        Bad()


def test_a_module_without_forward():
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        nn.Module()(1)


def test_errors_name_the_path_of_the_module():
    model = Net()
    model.blocks[1].fc1 = nn.Linear(7, 4)
    with pytest.raises(RuntimeError) as error:
        model(weft.rand(2, 4))
    text = str(error.value)
    assert "model.blocks[1].fc1 (Linear)" in text
    assert "expected input with 7 features" in text
    assert "got input of shape (2, 4)" in text
    assert "in forward" in text  # the user's line


def test_the_path_is_gone_after_the_call():
    with pytest.raises(RuntimeError) as error:
        weft.ones(2) + weft.ones(3)
    assert "in model" not in str(error.value)


def test_repr_reads_as_a_tree():
    net = nn.Sequential(nn.Linear(2, 3, act="tanh"), nn.Sequential(nn.Dropout(0.1)))
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=True, act='tanh')\n"
        "  (1): Sequential(\n"
        "    (0): Dropout(p=0.1, inplace=False)\n"
        "  )\n"
        ")"
    )


# -- layers by name, aliases, initialisers


def test_activation_by_name():
    weft.manual_seed(0)
    named = nn.Linear(3, 2, act="relu")
    plain = nn.Linear(3, 2)
    plain.load_state_dict(named.state_dict())
    x = weft.randn(5, 3)
    assert weft.equal(named(x), plain(x).clamp(min=0))
    with pytest.raises(ValueError, match=r"'foo'.*relu.*sigmoid"):
        nn.Linear(3, 2, act="foo")
    nn.register_activation("foo", lambda x: x * 0)
    assert nn.Linear(3, 2, act="foo")(x).sum().item() == 0


def test_linear_under_its_other_names():
    assert nn.Dense is nn.Linear is nn.fc
    assert [n for n, _ in nn.Linear(3, 2, bias=False).named_parameters()] == ["weight"]
    assert nn.Linear(3, 2, bias=False)(weft.ones(3)).shape == (2,)
    with pytest.raises(TypeError, match="Linear: expected a tensor, got list"):
        nn.Linear(3, 2)([1.0, 2.0, 3.0])


def test_initialisers_can_be_passed():
    layer = nn.Linear(3, 2, w_init=nn.init.ones_, b_init=lambda b: b.fill_(7))
    assert layer.weight.tolist() == [[1.0] * 3] * 2
    assert layer.bias.tolist() == [7.0, 7.0]


def test_unknown_option_says_what_is_known():
    with pytest.raises(TypeError, match=r"LeakyReLU.*it takes negative_slope, inplace"):
        nn.LeakyReLU(slope=0.1)


# -- containers


def test_containers():
    seq = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3))
    assert len(seq) == 3
    assert isinstance(seq[1], nn.ReLU)
    assert len(seq[:2]) == 2
    assert seq[-1].out_features == 3
    seq.insert(1, nn.Tanh())
    del seq[2]
    assert [type(m).__name__ for m in seq] == ["Linear", "Tanh", "Linear"]
    with pytest.raises(IndexError, match="out of range for 3 items"):
        seq[7]
    named = nn.Sequential({"first": nn.Linear(1, 2)})
    assert named.first.out_features == 2
    assert list(named.state_dict()) == ["first.weight", "first.bias"]
    with pytest.raises(TypeError, match="ModuleList: expected a Module, got int"):
        nn.ModuleList([1])
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Linear(1, 1)
    assert list(table) == ["a", "b"]
    assert "b" in table
    assert len(list(table.parameters())) == 2
    params = nn.ParameterDict({"w": weft.ones(2)})
    assert isinstance(params["w"], nn.Parameter)


def test_lazy_layers_become_plain_ones():
    net = nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5)
    )
    assert "LazyLinear" in repr(net)
    out = net(weft.rand(2, 3, 6, 6))
    assert out.shape == (2, 5)
    assert [type(m).__name__ for m in net] == [
        "Conv2d",
        "BatchNorm2d",
        "Flatten",
        "Linear",
    ]
    assert net[0].weight.shape == (4, 3, 3, 3)
    assert net[3].in_features == 64


def test_packed_sequences_equal_separate_runs():
    lengths = [2, 5, 3]
    rows = [weft.randn(n, 4) for n in lengths]
    for layer in (nn.LSTM(4, 3, 2, bidirectional=True), nn.GRU(4, 3), nn.RNN(4, 3)):
        packed = nn.utils.rnn.pack_sequence(rows, enforce_sorted=False)
        out, state = layer(packed)
        padded, sizes = nn.utils.rnn.pad_packed_sequence(out)
        assert sizes.tolist() == lengths
        for k, row in enumerate(rows):
            alone, last = layer(row)
            np.testing.assert_allclose(
                padded[: lengths[k], k].detach().numpy(),
                alone.detach().numpy(),
                atol=1e-6,
            )
            hs = state if isinstance(state, tuple) else (state,)
            ls = last if isinstance(last, tuple) else (last,)
            for h, one in zip(hs, ls, strict=True):
                np.testing.assert_allclose(
                    h[:, k].detach().numpy(), one.detach().numpy(), atol=1e-6
                )


def test_batch_of_one_equals_unbatched():
    x = weft.randn(3, 8, 8)
    for layer in (nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.InstanceNorm2d(3)):
        np.testing.assert_allclose(
            layer(x.unsqueeze(0))[0].detach().numpy(),
            layer(x).detach().numpy(),
            atol=1e-6,
        )


def test_functional_call_differentiates_by_the_parameters():
    model = Net().double()
    x = weft.rand(3, 4, dtype=weft.float64)
    state = {k: v.detach() for k, v in model.named_parameters()}

    def loss(params):
        return weft.func.functional_call(model, params, (x,)).square().sum()

    grads = weft.func.grad(loss)(state)
    model(x).square().sum().backward()
    for name, p in model.named_parameters():
        expected = weft.zeros_like(p) if p.grad is None else p.grad
        assert weft.allclose(grads[name], expected), name
    stacked = {k: weft.stack([v, 2 * v]) for k, v in state.items()}
    both = weft.func.vmap(loss)(stacked)  # an ensemble of two
    assert both[0].item() == pytest.approx(loss(state).item())
    assert isinstance(model.scale, nn.Parameter)
    with pytest.raises(ValueError, match=r"no parameter or buffer 'nope'"):
        weft.func.functional_call(model, {"nope": x}, (x,))


def test_conversions_do_not_call_a_subclass_to():
    class Own(nn.Linear):
        def to(self, *args, **options):
            return self.cpu() if args == ("cpu",) else super().to(*args, **options)

    layer = Own(2, 2)
    assert layer.to("cpu") is layer
    assert layer.double().weight.dtype is weft.float64
    assert layer.to(weft.float32).half().weight.dtype is weft.float16
