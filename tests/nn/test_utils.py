"""Weights that are computed: norms, parametrizations, pruning; and fused layers."""

import copy
import pickle

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import utils
from weft.nn.utils import parametrizations, parametrize, prune


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, value):
        return value.triu()


class Twice(nn.Module):
    def forward(self, x):
        return 2 * x


def trains(layer, x, name="weight"):
    """Whether gradients reach every parameter, eagerly and compiled alike."""
    layer(x).sum().backward()
    eager = {n: p.grad.numpy().copy() for n, p in layer.named_parameters()}
    layer.zero_grad()
    weft.compile(lambda x: layer(x).sum())(x).backward()
    return all(np.allclose(p.grad, eager[n], atol=1e-5)
               for n, p in layer.named_parameters())  # fmt: skip


def test_a_parametrized_weight():
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert weft.equal(layer.weight, layer.weight.T)
    assert isinstance(layer, nn.Linear)
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert repr(layer).startswith("ParametrizedLinear(")
    assert "parametrizations.weight.original" in layer.state_dict()
    assert trains(layer, weft.randn(2, 3))
    given = weft.ones(3, 3)
    layer.weight = given
    assert weft.equal(layer.weight.detach(), given)
    parametrize.register_parametrization(layer, "weight", Twice())
    assert weft.equal(layer.weight.detach(), 2 * given)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert weft.equal(twin.weight, layer.weight)
        assert twin.parametrizations.weight.original is not (
            layer.parametrizations.weight.original
        )
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert weft.equal(layer.weight.detach(), 2 * given)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_parametrizations_say_what_is_wrong():
    class Shorter(nn.Module):
        def forward(self, x):
            return x[:1]

    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="unsafe"):
        parametrize.register_parametrization(layer, "weight", Shorter())
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "nothing", Twice())
    with pytest.raises(ValueError, match="does not have a parametrization"):
        parametrize.remove_parametrizations(layer, "weight")
    with pytest.raises(ValueError, match="one or more"):
        parametrize.ParametrizationList([], layer.weight)
    parametrizations.weight_norm(layer)
    with pytest.raises(ValueError, match="leave_parametrized"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)


def test_parametrizations_are_handed_over():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    parametrize.register_parametrization(first, "weight", Symmetric())
    parametrize.transfer_parametrizations_and_params(first, second)
    assert weft.equal(first.weight, second.weight)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    old, new = nn.Linear(4, 3), nn.Linear(4, 3)
    weight = old.weight.detach().clone()
    utils.weight_norm(old, dim=dim)
    new.weight.data = weight.clone()
    parametrizations.weight_norm(new, dim=dim)
    for layer in (old, new):
        assert np.allclose(layer.weight.detach(), weight, atol=1e-6)
        assert trains(layer, weft.randn(2, 4))
    with weft.no_grad():
        old.weight_g.mul_(2)
    assert np.allclose(old.weight.detach(), 2 * weight, atol=1e-6)
    new.load_state_dict(old.state_dict())
    assert np.allclose(new.weight.detach(), 2 * weight, atol=1e-6)
    with pytest.raises(RuntimeError, match="two weight_norm"):
        utils.weight_norm(old)
    with pytest.raises(AttributeError, match="computed"):
        old.weight = nn.Parameter(weight)
    utils.remove_weight_norm(old)
    assert sorted(old.state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="not found"):
        utils.remove_weight_norm(old)


@pytest.mark.parametrize("norm", [utils.spectral_norm, parametrizations.spectral_norm])
def test_spectral_norm(norm):
    weft.manual_seed(0)
    layer = norm(nn.Conv2d(2, 4, 3), n_power_iterations=20)
    layer(weft.rand(1, 2, 5, 5)).sum().backward()
    layer.eval()
    matrix = layer.weight.detach().flatten(1).numpy()
    assert np.isclose(np.linalg.norm(matrix, 2), 1, atol=1e-4)
    if norm is utils.spectral_norm:
        with pytest.raises(RuntimeError, match="two spectral_norm"):
            norm(layer)
        utils.remove_spectral_norm(layer)
        assert sorted(layer.state_dict()) == ["bias", "weight"]
        assert not layer._forward_pre_hooks
    with pytest.raises(ValueError, match="positive"):
        norm(nn.Linear(2, 2), n_power_iterations=0)


@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_orthogonal(kind, shape):
    weft.manual_seed(0)
    layer = nn.Linear(*shape, bias=False).double()
    parametrizations.orthogonal(layer, orthogonal_map=kind)
    for _ in range(3):
        q = layer.weight.detach().numpy()
        small = q @ q.T if q.shape[0] < q.shape[1] else q.T @ q
        assert np.allclose(small, np.eye(len(small)), atol=1e-8)
        layer.zero_grad()
        (layer(weft.rand(2, shape[0]).double()) ** 2).sum().backward()
        with weft.no_grad():
            p = layer.parametrizations.weight.original
            p.sub_(0.1 * p.grad)


def test_orthogonal_says_what_is_wrong():
    with pytest.raises(ValueError, match="one of"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="x")
    with pytest.raises(ValueError, match="matrix"):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="use_trivialization"):
        parametrizations.orthogonal(nn.Linear(2, 2), use_trivialization=False)


# -- pruning


def test_pruning_by_size():
    layer = nn.Linear(4, 3)
    weight = layer.weight.detach().numpy().copy()
    prune.l1_unstructured(layer, "weight", amount=5)
    lowest = np.argsort(np.abs(weight).ravel())[:5]
    expected = weight.copy()
    expected.ravel()[lowest] = 0
    assert np.array_equal(layer.weight.detach(), expected)
    assert prune.is_pruned(nn.Sequential(layer))
    assert trains(layer, weft.randn(2, 4))
    prune.ln_structured(layer, "weight", amount=1, n=2, dim=0)
    rows = np.linalg.norm(expected, axis=1)
    expected[rows.argmin()] = 0
    assert np.allclose(layer.weight.detach(), expected)
    prune.remove(layer, "weight")
    assert np.allclose(layer.weight.detach(), expected)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert not prune.is_pruned(layer)
    with pytest.raises(ValueError, match="has to be pruned"):
        prune.remove(layer, "weight")


def test_pruning_what_is_left():
    layer = nn.Linear(10, 10)
    for left in (50, 25):
        prune.random_unstructured(layer, "weight", amount=0.5)
        assert int((layer.weight != 0).sum()) == left
    prune.random_structured(layer, "weight", amount=2, dim=1)
    assert int((layer.weight_mask.sum(0) == 0).sum()) >= 2
    prune.identity(layer, "bias")
    prune.custom_from_mask(layer, "bias", weft.arange(10) % 2)
    assert int((layer.bias == 0).sum()) == 5


def test_pruning_several_parameters_together():
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    with weft.no_grad():
        second.weight.mul_(100)
    prune.global_unstructured(
        [(first, "weight"), (second, "weight")], prune.L1Unstructured, amount=16
    )
    assert int((first.weight == 0).sum()) == 16
    with pytest.raises(TypeError, match="unstructured"):
        prune.global_unstructured(
            [(first, "weight")], prune.LnStructured, amount=1, n=2
        )
    with pytest.raises(TypeError, match="Iterable"):
        prune.global_unstructured(3, prune.L1Unstructured)
    with pytest.raises(TypeError, match="dict"):
        prune.global_unstructured([], prune.L1Unstructured, [1])


def test_pruning_says_what_is_wrong():
    layer = nn.Linear(2, 2)
    for amount, error in ((1.5, ValueError), (-1, ValueError), ("x", TypeError)):
        with pytest.raises(error, match="amount"):
            prune.l1_unstructured(layer, "weight", amount)
    with pytest.raises(ValueError, match="smaller than"):
        prune.l1_unstructured(layer, "weight", 9)
    with pytest.raises(ValueError, match="multidimensional"):
        prune.random_structured(layer, "bias", 1, 0)
    with pytest.raises(AssertionError, match="same shape"):
        prune.l1_unstructured(layer, "weight", 1, importance_scores=weft.ones(3))
    method = prune.L1Unstructured(1)
    pruned = method.prune(weft.tensor([3.0, -1.0, 2.0]))
    assert pruned.tolist() == [3, 0, 2]
    with pytest.raises(TypeError, match="subclass"):
        prune.PruningContainer().add_pruning_method(3)
    a, b = prune.Identity(), prune.Identity()
    a._tensor_name, b._tensor_name = "weight", "bias"
    with pytest.raises(ValueError, match="named"):
        prune.PruningContainer(a, b)


# -- fused and other layers


def test_batch_norm_is_folded_in():
    weft.manual_seed(0)
    for layer, norm, x, options in (
        (nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), weft.rand(2, 2, 4, 4), ()),
        (
            nn.ConvTranspose2d(2, 3, 2),
            nn.BatchNorm2d(3),
            weft.rand(2, 2, 4, 4),
            (True,),
        ),
        (nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3), weft.rand(5, 4), ()),
    ):
        both = nn.Sequential(layer, norm)
        for _ in range(3):
            both(x)
        fuse = (
            utils.fuse_linear_bn_eval
            if isinstance(layer, nn.Linear)
            else utils.fuse_conv_bn_eval
        )
        with pytest.raises(ValueError, match="eval"):
            fuse(layer, norm)
        both.eval()
        fused = fuse(layer, norm, *options)
        assert np.allclose(fused(x).detach(), both(x).detach(), atol=1e-5)
    with pytest.raises(ValueError, match="out_features"):
        utils.fuse_linear_bn_eval(nn.Linear(2, 2).eval(), nn.BatchNorm1d(3).eval())
    with pytest.raises(ValueError, match="running"):
        utils.fuse_conv_bn_eval(
            layer.eval(), nn.BatchNorm1d(3, track_running_stats=False).eval()
        )


def test_layers_without_first_values():
    before = weft.default_generator.get_state()
    layer = utils.skip_init(nn.Linear, 3, 2)
    assert layer.weight.shape == (2, 3)
    assert weft.equal(weft.default_generator.get_state(), before)
    with pytest.raises(RuntimeError, match="Expected a Module"):
        utils.skip_init(3)
    with pytest.raises(RuntimeError, match="device"):
        utils.skip_init(nn.ReLU)


def test_memory_formats_of_weights():
    layer = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Linear(2, 2))
    utils.convert_conv2d_weight_memory_format(layer, weft.channels_last)
    assert layer[0].weight.is_contiguous(memory_format=weft.channels_last)
    solid = nn.Conv3d(2, 3, 2)
    utils.convert_conv3d_weight_memory_format(solid, weft.channels_last_3d)
    assert solid.weight.is_contiguous(memory_format=weft.channels_last_3d)


def test_paths_and_older_names():
    from weft.nn.utils.clip_grad import clip_grad_norm_
    from weft.nn.utils.convert_parameters import parameters_to_vector
    from weft.nn.utils.stateless import functional_call

    assert clip_grad_norm_ is utils.clip_grad_norm_
    assert parameters_to_vector is utils.parameters_to_vector
    assert functional_call is weft.func.functional_call
    p = weft.ones(2, requires_grad=True)
    (p * 3).sum().backward()
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        utils.clip_grad_norm(p, 1.0)
    with pytest.warns(FutureWarning, match="nn.init.constant_"):
        assert nn.init.constant(weft.zeros(1), 2.0).item() == 2
    assert utils.rnn.invert_permutation(None) is None
