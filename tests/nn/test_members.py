"""What a module holds is one thing, whichever way it was put there."""

import copy
import gc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import nn


def linear(value, width=2):
    layer = nn.Linear(width, width, bias=False)
    nn.init.constant_(layer.weight, value)
    return layer


class Chain(nn.Sequential):
    """A subclass that adds a module by assignment."""

    def __init__(self, *modules):
        super().__init__(*modules)
        self.last = linear(5.0)


def assign(net, name, module):
    setattr(net, name, module)


def enter(net, name, module):
    net._modules[name] = module


WAYS = {
    "add_module": lambda net, name, module: net.add_module(name, module),
    "register_module": lambda net, name, module: net.register_module(name, module),
    "assignment": assign,
    "_modules": enter,
    "_modules.update": lambda net, name, module: net._modules.update({name: module}),
    "_modules.setdefault": lambda net, n, m: net._modules.setdefault(n, m),
}


# -- entries of containers, however they came


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [nn.Sequential, Chain])
def test_modules_that_are_added_run(make, way):
    net = make()
    before = net(weft.ones(1, 2))
    WAYS[way](net, "new", linear(3.0))
    assert net.new is net[-1] is net._modules["new"] is list(net)[-1]
    assert weft.equal(net(weft.ones(1, 2)), before.sum() * 3 * weft.ones(1, 2))


@pytest.mark.parametrize("way", [w for w in WAYS if "default" not in w])
def test_modules_that_are_replaced_run(way):
    net = nn.Sequential(linear(1.0), linear(1.0))
    WAYS[way](net, "0", linear(3.0))
    assert weft.equal(net(weft.ones(1, 2)), weft.full((1, 2), 12.0))
    assert [n for n, _ in net.named_children()] == ["0", "1"]


@pytest.mark.parametrize("way", WAYS)
def test_lists_and_dictionaries_have_what_is_added(way):
    for held in (nn.ModuleList([linear(1.0)]), nn.ModuleDict({"0": linear(1.0)})):
        WAYS[way](held, "k", linear(2.0))
        assert held.k is held[1 if isinstance(held, nn.ModuleList) else "k"]
        assert len(held) == len(list(held)) == 2
        assert list(held.state_dict()) == ["0.weight", "k.weight"]


def test_entries_are_attributes():
    m = linear(1.0)
    assert nn.ModuleDict({"k": m}).k is m
    assert getattr(nn.ModuleList([m]), "0") is m
    assert nn.ParameterDict({"w": weft.ones(2)}).w.tolist() == [1, 1]
    assert "k" in dir(nn.ModuleDict({"k": m}))
    assert "0" not in dir(nn.ModuleList([m]))  # no attribute name


def test_attributes_that_are_deleted_are_gone():
    net = nn.Sequential({"a": linear(2.0), "b": linear(3.0)})
    del net.a
    assert len(net) == 1
    assert list(net.state_dict()) == ["b.weight"]
    assert weft.equal(net(weft.ones(1, 2)), weft.full((1, 2), 6.0))
    layer = nn.BatchNorm1d(2)
    del layer.weight, layer.running_mean
    assert "weight" not in layer._parameters
    assert "running_mean" not in layer._buffers
    for name in ("weight", "running_mean", "nothing"):
        with pytest.raises(AttributeError, match=name):
            delattr(layer, name)


def test_sequences():
    a, b, c, d = (linear(k) for k in (1.0, 2.0, 3.0, 4.0))
    net = nn.Sequential(a, b)
    assert net.append(c) is net
    assert net.extend([d]) is net
    assert net.insert(0, d)[0] is d
    assert net.pop(0) is d
    assert list(net) == [a, b, c, d]
    assert list(net._modules) == ["0", "1", "2", "3"]
    assert list(net[1:3]._modules) == ["1", "2"]  # names stay, as in PyTorch
    assert list(nn.ModuleList(net)[1:3]._modules) == ["0", "1"]
    assert list(net[:1] + net[2:]) == [a, c, d]
    assert list(net[:2] * 2) == list(2 * net[:2]) == [a, b, a, b]
    net *= 1
    net += [a]
    assert list(reversed(net)) == [a, d, c, b, a]
    del net[1:4]
    assert list(net._modules) == ["0", "1"]
    net[-1] = b
    assert net[1] is getattr(net, "1") is b
    net[:] = [c]
    assert list(net) == [c]
    with pytest.raises(IndexError, match="index 1 is out of range for 1 items"):
        net.pop(1)
    with pytest.raises(TypeError, match="expected a Module, got int"):
        net.append(1)
    assert len(nn.ModuleList([a]) + nn.ModuleList([b])) == 2


def test_append_replaces_nothing():
    net = nn.Sequential({"1": linear(1.0)})
    net.append(linear(2.0))
    assert list(net._modules) == ["1", "2"]


def test_dictionaries():
    a, b = linear(1.0), linear(2.0)
    table = nn.ModuleDict([("a", a)])
    table.update({"b": b})
    assert table.pop("a") is a
    assert dict(table.items()) == {"b": b}
    assert not hasattr(table, "a")
    table |= {"a": a}
    assert list(reversed(table)) == ["a", "b"]
    assert table == table
    assert table != nn.ModuleDict({"b": b, "a": a})
    assert len({table, table}) == 1
    table.clear()
    assert len(table) == 0
    assert list(table.parameters()) == []
    with pytest.raises(ValueError, match="'pop' exists already"):
        table["pop"] = a
    with pytest.raises(TypeError, match=r"keys without dots, got 'a\.b'"):
        table["a.b"] = a


def test_parameter_containers():
    values = nn.ParameterList([weft.zeros(1), weft.ones(2)])
    values.append(weft.ones(3)).insert(0, weft.ones(4))
    assert [n for n, _ in values.named_parameters()] == ["0", "1", "2", "3"]
    assert [p.shape[0] for p in values] == [4, 1, 2, 3]
    assert all(isinstance(p, nn.Parameter) for p in values)
    table = nn.ParameterDict({"a": weft.zeros(1)})
    table.b = nn.Parameter(weft.ones(2))
    assert list(table) == list(table.state_dict()) == ["a", "b"]
    assert table.setdefault("c", weft.ones(3)).shape == (3,)
    assert table.popitem()[0] == "c"
    assert list(table | {"d": weft.ones(1)}) == ["a", "b", "d"]
    assert table.copy()["a"] is table["a"]
    assert table.get("nope") is None


# -- names, None, and what may be assigned


def test_none_keeps_a_name():
    net = nn.Module()
    net.register_parameter("bias", None)
    net.register_buffer("mean", None)
    net.add_module("head", None)
    assert (net.bias, net.mean, net.head) == (None, None, None)
    assert list(net.state_dict()) == []
    assert [*net.parameters(), *net.buffers(), *net.children()] == []
    with pytest.raises(TypeError, match=r"bias is a parameter: .*got a plain tensor"):
        net.bias = weft.zeros(2)
    with pytest.raises(TypeError, match=r"mean is a buffer: expected a tensor.*int"):
        net.mean = 3
    with pytest.raises(TypeError, match=r"head is a submodule: .*got int.*del module"):
        net.head = 3
    net.bias, net.mean, net.head = nn.Parameter(weft.ones(2)), weft.ones(2), linear(1.0)
    assert list(net.state_dict()) == ["bias", "mean", "head.weight"]
    net.bias = net.mean = net.head = None
    assert list(net.state_dict()) == []
    del net.head
    net.head = 3
    assert net.head == 3


@pytest.mark.parametrize("way", ["register_parameter", "register_buffer", "add_module"])
def test_names_that_are_refused(way):
    net = nn.Linear(2, 2)
    net.note = 1
    for name in ("", "a.b", 3):
        with pytest.raises(ValueError, match=f"{way}: expected a name"):
            getattr(net, way)(name, None)
    taken = {"weight", "note", "forward", "training"}
    for name in taken - ({"weight"} if way == "register_parameter" else set()):
        with pytest.raises(ValueError, match=f"{way}: attribute '{name}' exists"):
            getattr(net, way)(name, None)
    with pytest.raises(TypeError, match=f"{way}: expected a"):
        getattr(net, way)("new", "text")


def test_a_name_changes_its_kind():
    net = nn.Module()
    net.register_buffer("x", weft.ones(1), persistent=False)
    net.x = nn.Parameter(weft.ones(2))
    assert list(net.state_dict()) == ["x"]
    assert "x" not in net._buffers
    net.x = linear(1.0)
    assert list(net.state_dict()) == ["x.weight"]
    assert "x" not in net._parameters


def test_classes_with_defaults_and_properties():
    class Net(nn.Module):
        head = None

        def __init__(self):
            super().__init__()
            self.head = linear(1.0)
            self.tail = linear(2.0)

        @property
        def tail(self):
            return self.inner

        @tail.setter
        def tail(self, value):
            self.inner = value

    net = Net()
    assert isinstance(net.head, nn.Linear)
    assert net.tail is net.inner
    assert list(net.state_dict()) == ["head.weight", "inner.weight"]
    del net.head
    assert net.head is None


def test_order_is_that_of_assignment():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = linear(1.0)
            self.blocks = [linear(2.0)]
            self.scale = nn.Parameter(weft.ones(1))
            self.register_buffer("count", weft.zeros(1))
            self.b = linear(3.0)

    assert list(Net().state_dict()) == [
        "scale", "count", "a.weight", "blocks.0.weight", "b.weight",
    ]  # fmt: skip


# -- one truth


def step(net, action, name, kind):
    held = getattr(net, kind)
    made = {
        "_parameters": lambda: nn.Parameter(weft.ones(1)),
        "_buffers": lambda: weft.ones(1),
        "_modules": lambda: nn.ReLU(),
    }[kind]
    if action == "set":
        held[name] = made()
    elif action == "none":
        held[name] = None
    elif action == "assign" and not (kind == "_buffers" and name not in held):
        setattr(net, name, made())
    elif action == "pop":
        held.pop(name, None)
    elif action == "delete" and hasattr(net, name):
        delattr(net, name)
    elif action == "clear":
        held.clear()
    elif action == "popitem" and held:
        held.popitem()
    elif action == "merge":
        held |= {name: made()}


ACTIONS = ["set", "none", "assign", "pop", "delete", "clear", "popitem", "merge"]
KINDS = ("_parameters", "_buffers", "_modules")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.sampled_from("abc"),
                  st.sampled_from(KINDS)),
        max_size=12,
    ),
    st.booleans(),
)  # fmt: skip
def test_attributes_are_what_the_dictionaries_hold(steps, copied):
    net = nn.Module()
    for action, name, kind in steps:
        if any(name in getattr(net, k) for k in KINDS if k != kind) and (
            action not in ("assign", "delete")
        ):
            continue  # one name in two of them has no meaning
        if action == "assign" and kind == "_buffers" and name not in net._buffers:
            continue
        step(net, action, name, kind)
    if copied:
        net = copy.deepcopy(net)
    held = {k: v for kind in KINDS for k, v in getattr(net, kind).items()}
    own = {k: v for k, v in vars(net).items() if k in "abc"}
    assert own == held
    assert {k: getattr(net, k) for k in held} == held
    assert not any(hasattr(net, name) for name in set("abc") - set(held))
    assert [n for n, _ in net.named_parameters()] == [
        n for n in vars(net) if net._parameters.get(n) is not None
    ]
    assert len(list(net.children())) == sum(
        m is not None for m in net._modules.values()
    )


# -- copies and memory


def test_deep_copies_hold_copies():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.ModuleDict({"k": linear(1.0)}))
    twin = copy.deepcopy(net)
    assert list(twin.state_dict()) == list(net.state_dict())
    assert twin[1].k is not net[1].k
    twin[1]["k"] = linear(7.0)
    assert twin[1].k.weight.sum().item() == 28
    assert net[1].k.weight.sum().item() == 4
    twin[0].running_mean = weft.ones(2)
    assert net[0].running_mean.tolist() == [0, 0]


def test_copies_share_the_values_and_not_the_dictionaries():
    net = nn.Sequential(linear(1.0))
    twin = copy.copy(net)
    assert twin[0] is net[0]
    twin.append(linear(2.0))
    twin[0] = linear(3.0)
    assert len(net) == 1
    assert net[0].weight.sum().item() == getattr(net, "0").weight.sum().item() == 4
    assert twin[0] is getattr(twin, "0") is not net[0]


def test_modules_go_when_they_are_let_go():
    gc.collect()
    gc.disable()
    try:
        net = nn.Sequential(linear(1.0), nn.BatchNorm1d(2))
        kept, gone = net._modules, weakref.ref(net)
        del net
        assert gone() is None
        kept["0"] = None  # the dictionary is still one
    finally:
        gc.enable()


def test_layers_of_nets_stay_those_that_run():
    net = weft.layers.Net([weft.layers.Dense(2, 2)])
    for way in WAYS:
        if not way.startswith("_"):
            with pytest.raises(ValueError, match="would never run 'new'"):
                WAYS[way](net, "new", weft.layers.ReLU())
