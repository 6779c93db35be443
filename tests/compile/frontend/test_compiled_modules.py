"""Compiled modules are modules, and methods can be compiled."""

import copy
import pickle

import numpy as np
import pytest

import weft
from weft import nn, optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.scale, self.modes = 2.0, []

    def forward(self, x):
        return self.norm(self.layer(x)) * self.scale

    def twice(self, x):
        return self(x) * 2

    def train(self, mode=True):
        self.modes.append(mode)
        return super().train(mode)


class Method(nn.Module):
    def __init__(self, value=1.0):
        super().__init__()
        self.weight = nn.Parameter(weft.full((3,), value))

    @weft.compile
    def forward(self, x):
        return x * self.weight

    @weft.compile(dynamic=True)
    def other(self, x):
        return x + self.weight

    @classmethod
    @weft.compile
    def double(cls, x):
        return x * 2

    @staticmethod
    @weft.compile
    def triple(x):
        return x * 3


class Slotted:
    __slots__ = ("scale",)

    @weft.compile
    def scaled(self, x):
        return x * self.scale


@weft.compile
def function(x):
    return x * 2


def close(a, b):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-5, 1e-6)


@pytest.fixture
def x():
    return weft.tensor(np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32))


def test_it_is_the_module_but_for_its_calls(x):
    model = Net()
    twin, compiled = copy.deepcopy(model), weft.compile(model)
    assert isinstance(compiled, Net)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert list(map(id, compiled.parameters())) == list(map(id, model.parameters()))
    close(compiled(x), twin(x))
    close(compiled.norm.running_mean, twin.norm.running_mean)
    assert compiled.eval() is compiled
    assert not model.training
    assert model.modes == [False]  # its own method was called
    close(compiled.twice(x), twin.eval().twice(x))
    assert len(compiled.compiles) == 2
    compiled.scale = 3.0
    assert model.scale == 3.0
    close(compiled(x), twin(x) * 1.5)
    assert "Net: 3 compilations" in str(compiled.explain())
    with pytest.raises(AttributeError, match="nothing"):
        compiled.nothing


def test_it_trains_and_loads(x):
    compiled, twin = weft.compile(Net()), Net()
    twin.load_state_dict(compiled.state_dict())
    for model in (compiled, twin):
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
    close(compiled.layer.weight, twin.layer.weight)
    other = Net()
    compiled.load_state_dict(other.state_dict())
    close(compiled(x), other(x))


def test_as_part_of_another(x):
    model = nn.Sequential(weft.compile(nn.Linear(3, 4)), weft.compile(nn.Linear(4, 2)))
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    whole = weft.compile(model)
    close(whole(x), model(x))
    assert "CompiledLinear(in_features=3" in repr(whole)


def test_copies_have_parameters_and_programs_of_their_own(x):
    for model in (weft.compile(Net()).eval(), Method()):
        before = model(x)
        twin = copy.deepcopy(model)
        close(twin(x), before)
        for p in twin.parameters():
            p.data.mul_(2)
        close(model(x), before)
        assert not np.allclose(twin(x).detach().numpy(), before.detach().numpy())
    shallow = copy.copy(model := weft.compile(Net()).eval())
    close(shallow(x), model(x))
    assert shallow.layer is model.layer
    shallow.scale = 9.0
    assert model.scale == 2.0
    assert copy.deepcopy(function)(x).tolist() == function(x).tolist()
    assert pickle.loads(pickle.dumps(function)) is function


def test_methods(x):
    a, b = Method(1.0), Method(2.0)
    close(a(x), x)
    close(b(x), x * 2)
    close(a(x), x)
    assert a.forward is a.forward
    assert len(a.forward.compiles) == len(b.forward.compiles) == 1
    close(a.other(x), x + 1)
    assert a.other.dynamic
    assert list(a.state_dict()) == ["weight"]
    close(Method.double(x), x * 2)
    close(a.triple(x), x * 3)
    assert Method.forward.compiles == []


def test_methods_of_objects_with_slots(x):
    held = Slotted()
    for held.scale in (2.0, 3.0):
        close(held.scaled(x), x * held.scale)


def test_detached_outputs_require_no_gradient(x):
    def split(x):
        with weft.no_grad():
            half = x / 2
        return x.detach() * 2, x * 3, half

    given = x.clone().requires_grad_()
    found = weft.compile(split)(given)
    assert [one.requires_grad for one in found] == [False, True, False]
    found[1].sum().backward()
    close(given.grad, weft.full_like(x, 3.0))


def test_a_zero_has_a_sign():
    scale = {"by": 0.0}
    f = weft.compile(lambda x, k: (x / k, x / scale["by"]))
    for sign in (1.0, -1.0, 1.0):
        scale["by"] = sign * 0.0
        found = f(weft.ones(1), sign * 0.0)
        assert [one.item() for one in found] == [sign * np.inf] * 2
