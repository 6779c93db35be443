"""Compiled modules notice every change of what a module holds."""

import pytest

import weft
from weft import nn


def linear(value):
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, value)
    nn.init.constant_(layer.bias, value)
    return layer


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = linear(1.0)
        self.table = nn.ModuleDict({"k": linear(2.0)})
        self.list = nn.ModuleList([linear(3.0)])
        self.tail = nn.Sequential(linear(4.0))
        self.weights = nn.ParameterList([weft.ones(2)])
        self.register_buffer("shift", weft.ones(2))

    def forward(self, x):
        x = self.fc(x) + self.shift
        for name in self.table:
            x = self.table[name](x)
        for layer in self.list:
            x = layer(x)
        for weight in self.weights:
            x = x * weight
        return self.tail(x)


def set_shift(net):
    net.shift = weft.full((2,), 5.0)


def replace(net):
    net.fc = linear(7.0)


def no_bias(net):
    net.fc.bias = None


CHANGES = {
    "assignment": replace,
    "_modules": lambda n: n._modules.__setitem__("fc", linear(7.0)),
    "_modules.update": lambda n: n._modules.update(fc=linear(7.0)),
    "add_module": lambda n: n.add_module("fc", linear(7.0)),
    "a module's parameter": lambda n: n.fc.register_parameter(
        "bias", nn.Parameter(weft.full((2,), 9.0))
    ),
    "_parameters": lambda n: n.fc._parameters.update(
        bias=nn.Parameter(weft.full((2,), 9.0))
    ),
    "no bias": no_bias,
    "a buffer": set_shift,
    "_buffers": lambda n: n._buffers.update(shift=weft.full((2,), 5.0)),
    "append to Sequential": lambda n: n.tail.append(linear(5.0)),
    "add_module to Sequential": lambda n: n.tail.add_module("new", linear(5.0)),
    "assignment to Sequential": lambda n: setattr(n.tail, "new", linear(5.0)),
    "replace in Sequential": lambda n: setattr(n.tail, "0", linear(5.0)),
    "append to ModuleList": lambda n: n.list.append(linear(5.0)),
    "insert into ModuleList": lambda n: n.list.insert(0, linear(5.0)),
    "pop of ModuleList": lambda n: n.list.pop(),
    "ModuleDict item": lambda n: n.table.update(k=linear(5.0)),
    "ModuleDict new": lambda n: setattr(n.table, "new", linear(5.0)),
    "ModuleDict clear": lambda n: n.table.clear(),
    "ParameterList": lambda n: n.weights.append(weft.full((2,), 3.0)),
    "ParameterList item": lambda n: n.weights.__setitem__(0, weft.full((2,), 3.0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed(change):
    net, x = Net(), weft.tensor([[1.0, 2.0]])
    compiled = weft.compile(net)
    for _ in range(3):  # later calls take the quickest way there is
        before = compiled(x)
    assert weft.allclose(before, net(x))
    CHANGES[change](net)
    assert not weft.equal(net(x), before)
    for _ in range(3):
        assert weft.allclose(compiled(x), net(x))
