"""Nets read from TOML and from Caffe's text, and printed back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import layers
from weft.errors import ArgumentError, FileFormatError
from weft.layers import Net, Place, Solver
from weft.layers.description import LayerSpec, NetSpec, describe
from weft.layers.prototxt import read as read_prototxt
from weft.layers.prototxt import write as write_prototxt
from weft.layers.toml_text import read as read_toml
from weft.layers.toml_text import write as write_toml

LENET = """
name: "LeNet"  # the classic
layer { name: "data" type: "Input" top: "data"
        input_param { shape { dim: 2 dim: 1 dim: 12 dim: 12 } } }
layer { name: 'label' type: 'Input' top: 'label' input_param: { shape: { dim: 2 } } }
layer {
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param {
    num_output: 4 kernel_size: 5 stride: 1
    weight_filler { type: "gaussian" std: 0.1 }
  }
}
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
        pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1"
        inner_product_param { num_output: 10 } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "drop1" type: "Dropout" bottom: "ip1" top: "ip1"
        dropout_param { dropout_ratio: 0.25 } include { phase: TRAIN } }
layer { name: "side" type: "InnerProduct" bottom: "pool1" top: "side"
        inner_product_param { num_output: 10 bias_term: false } }
layer { name: "sum" type: "Eltwise" bottom: "ip1" bottom: "side" top: "sum"
        eltwise_param { operation: SUM } }
layer { name: "ip2" type: "InnerProduct" bottom: "sum" top: "ip2"
        inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss"
        include { phase: TRAIN } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy"
        include { phase: TEST } }
"""


def test_a_net_in_caffes_text_runs_and_learns(rng):
    net = Net.from_prototxt(LENET)
    assert net.name == "LeNet"
    assert net.inputs == {"data": (2, 1, 12, 12), "label": (2,)}
    assert net["conv1"].params["w"].shape == (4, 1, 5, 5)
    assert list(net["side"].params) == ["w"]
    y = rng.integers(0, 3, 12)
    x = rng.normal(size=(12, 1, 12, 12)) + y[:, None, None, None]
    x = x.astype(np.float32)
    solver = Solver(net, base_lr=0.01, momentum=0.9, weight_decay=5e-4)
    losses = solver.solve([{"data": x, "label": y}] * 60)
    assert losses[-1] < losses[0] / 4
    net.eval()
    assert float(net.forward(x, y)) > 0.9


def test_a_net_reparses_to_itself():
    net = Net.from_prototxt(LENET)
    text, toml = net.to_prototxt(), net.to_toml()
    for other in (Net.from_prototxt(text), Net.from_toml(toml)):
        assert describe(other) == describe(net)
        assert other.to_prototxt() == text
        assert other.to_toml() == toml
        other.set_parameters(net.get_parameters())
        net.eval(), other.eval()
        x, y = weft.randn(2, 1, 12, 12), weft.tensor([0, 2])
        assert float(net.forward(x, y)) == float(other.forward(x, y))
        net.train()


def test_a_net_built_in_python_prints():
    net = Net(
        [
            layers.Dense(3, 4, w_init={"type": "gaussian", "std": 0.5}, bias=False),
            layers.LeakyReLU(0.2),
            layers.Conv2D(None, 2, kernel=(1, 2), name='odd "name" \\ #'),
        ],
        force_backward=True,
    )
    assert 'name = "dense1"' in net.to_toml()
    assert 'w_init = { type = "gaussian", std = 0.5 }' in net.to_toml()
    assert "kernel: [1, 2]" in net.to_prototxt()
    assert describe(Net.from_toml(net.to_toml())) == describe(net)
    assert describe(Net.from_prototxt(net.to_prototxt())) == describe(net)


def test_toml_by_hand():
    net = Net.from_toml("""
        name = "small"
        force_backward = true
        [[input]]
        name = "x"
        [[layer]]
        name = "fc"
        type = "Dense"
        bottom = "x"
        num_in = 3
        num_out = 2
        w_init = "ones"
        [[layer]]
        name = "out"
        type = "Sigmoid"
        bottom = ["fc"]
        top = ["p"]
        phase = "TEST"
    """)
    assert net.forward(weft.ones(1, 3)).tolist() == [[3, 3]]
    net.eval()
    assert net.forward(weft.zeros(1, 3)).tolist() == [[0.5, 0.5]]
    assert list(net.wiring.outputs) == ["p"]
    assert net.force_backward


def test_a_users_layer_works_in_descriptions(rng):
    @layers.register
    class PowerUp(layers.Layer):
        def __init__(self, power=2):
            self.power = power

        def forward(self, inputs):
            self.inputs = inputs
            return inputs**self.power

        def backward(self, grad):
            return grad * self.power * self.inputs ** (self.power - 1)

    try:
        net = Net.from_prototxt("""
            input: "x" input: "y"
            layer { name: "ip" type: "InnerProduct" bottom: "x"
                    inner_product_param { num_output: 2 } }
            layer { name: "up" type: "PowerUp" bottom: "ip"
                    power_up_param { power: 3 } }
            layer { name: "loss" type: "EuclideanLoss" bottom: "up" bottom: "y" }
        """)
        assert describe(Net.from_toml(net.to_toml())) == describe(net)
        assert "power_up_param {\n    power: 3" in net.to_prototxt()
        batch = {"x": weft.ones(1, 2), "y": weft.tensor([[8.0, -1.0]])}
        losses = Solver(net, base_lr=0.003).solve([batch] * 200)
        assert losses[-1] < losses[0] / 20
        with pytest.raises(ArgumentError, match="a layer type named 'PowerUp' exists"):
            layers.register(PowerUp)
    finally:
        layers.unregister("PowerUp")
    with pytest.raises(ArgumentError, match="PowerUp is not registered; decorate"):
        net.to_toml()
    with pytest.raises(ArgumentError, match="expected a Layer class, got Linear"):
        layers.register(weft.nn.Linear)


HEAD = 'input: "data"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('layer { name: "a" type: "Relu" bottom: "data" }',
         r"line 2, column 1: unknown layer type 'Relu'; 'ReLU' is meant\?\n  known: A"),
        ('layer { name: "a" type: "ReLU" bottom: "dta" }', "reads 'dta', which is no"),
        ('layer { type: "ReLU" }', "column 1: expected this layer to have a name"),
        ('layer { name: "a" }', "expected this layer to have a type"),
        ('layer {\n  name "a" }', "line 3, column 8: expected ':' or '{' after 'name'"),
        ('layer {\n name: "a"', "line 3, column 11: the brace of line 2 is not closed"),
        ('layer { name: }', "line 2, column 15: expected a value, got '}'"),
        ('layer { name: "a" type: 3 }', "line 2, column 19: expected type to be a str"),
        ("}", "line 2, column 1: expected a field's name, got '}'"),
        ('nome: "x"', "line 2, column 1: unknown field 'nome'; expected name, force"),
        ('layer { name: "a" type: "ReLU" tap: 1 }', "column 32: unknown field 'tap'"),
        ("name: @", "line 2, column 7: unexpected character '@'"),
        ('name: "open', "line 2, column 7: unexpected character"),
        (r'name: "bad \q"', r'line 2, column 7: expected a string, got "bad'),
        ('layer { name: "a" type: "ReLU" bottom: "data" dropout_param {} }',
         "column 47: a ReLU layer has no dropout_param, but a relu_param"),
        ('layer { name: "a" type: "ReLU" bottom: "data" relu_param { slope: 1 } }',
         r"layer 'a' \(ReLU\): unknown option 'slope'; it takes negative_slope"),
        ('layer { name: "a" type: "InnerProduct" bottom: "data" }',
         r"line 2, column 1: layer 'a' \(InnerProduct\): missing option 'num_output'"),
        ('input_shape { dim: 1.5 }', "expected input_shape { dim: ... } of whole"),
        ('layer { name: "a" type: "ReLU" bottom: "data" }\n' * 2, "2 layers are named"),
        ('layer { name: "a" type: "ReLU" bottom: "b" top: "c" }\n'
         'layer { name: "d" type: "ReLU" bottom: "c" top: "b" }', "in a cycle"),
        ('layer { name: "a" type: "ReLU" bottom: "data" include { phase: VALID } }',
         "expected phase TRAIN or TEST, got 'VALID'"),
    ],
)  # fmt: skip
def test_mistakes_in_a_prototxt_say_where(text, expected):
    with pytest.raises(ValueError, match=expected):
        Net.from_prototxt(HEAD + text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = ", r"toml: Invalid value \(at end of document\)"),
        ("[[layer]]\nname = 3", "toml: layer 1: name: expected str, got 3"),
        ('[[layer]]\nname = "a"', r"layer 1 \('a'\): type: expected str, got nothing"),
        (
            '[[layer]]\nname = "a"\ntype = "Relu"',
            r"layer 1 \('a'\): unknown layer type",
        ),
        (
            '[[layer]]\nname = "a"\ntype = "ReLU"\nbottom = 1',
            "bottom: expected list, got 1",
        ),
        ("speed = 1", "toml: unknown key 'speed'; expected name, force_backward"),
        ('[[input]]\nname = "x"\nsize = 1', "toml: input 1: unknown key 'size'"),
        (
            '[[input]]\nname = "x"\nshape = [1.5]',
            "input 1: shape: expected int, got 1.5",
        ),
        ("layer = 3", r"expected 'layer' as \[\[layer\]\] tables"),
        ("", "expected at least one input"),
    ],
)
def test_mistakes_in_toml_say_where(text, expected):
    with pytest.raises(ValueError, match=expected):
        Net.from_toml(text)


def test_a_function_cannot_be_printed():
    net = Net([layers.Dense(2, 2, w_init=weft.ones, name="fc")])
    with pytest.raises(ArgumentError, match=r"'fc'.*option 'w_init' is a function"):
        net.to_toml()


def test_older_ways_to_state_inputs():
    spec = read_prototxt(
        "input: 'a' input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4"
    )
    assert spec.inputs == {"a": (1, 2, 3, 4)}
    spec = read_prototxt("input: 'a' input: 'b' input_shape { dim: [2, 3] }")
    assert spec.inputs == {"a": (2, 3), "b": None}


def test_values_of_every_kind():
    spec = read_prototxt("""
        layer { name: "a" "b" type: "Dense" bottom: ["x", "y"]
          dense_param { i: -3 f: 1e-3 g: .5 h: -inf t: true w: WORD s: 'it\\'s "so"'
                        r: 1 r: 2 l: [1, 2] n { deep { x: 1 } } } }
    """)
    (layer,) = spec.layers
    assert layer.name == "ab"
    assert layer.bottom == ("x", "y")
    assert layer.options == {
        "i": -3, "f": 1e-3, "g": 0.5, "h": float("-inf"), "t": True, "w": "WORD",
        "s": 'it\'s "so"', "r": [1, 2], "l": [1, 2], "n": {"deep": {"x": 1}},
    }  # fmt: skip


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
keys = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True).filter(
    lambda k: k not in ("name", "type", "bottom", "top", "phase", "inf", "nan")
)
scalars = (
    st.booleans() | st.integers(-(2**40), 2**40) | words | st.floats(allow_nan=False)
)
options = st.dictionaries(
    keys,
    scalars
    | st.lists(scalars, max_size=3)
    | st.dictionaries(keys, scalars, min_size=1, max_size=2),
    max_size=4,
)
specs = st.builds(
    LayerSpec, words, st.just("Dense"),
    st.lists(words, max_size=3).map(tuple),
    st.lists(words, min_size=1, max_size=2).map(tuple),
    st.sampled_from([None, "TRAIN", "TEST"]), options,
)  # fmt: skip
shapes = st.none() | st.lists(st.integers(0, 9), max_size=4).map(tuple)
nets = st.builds(
    NetSpec, st.dictionaries(words, shapes, max_size=2),
    st.lists(specs, max_size=3).map(tuple), words | st.just(""), st.booleans(),
)  # fmt: skip


@given(nets)
def test_what_is_written_is_read(spec):
    assert read_prototxt(write_prototxt(spec)) == spec
    assert read_toml(write_toml(spec)) == spec


@given(st.text(alphabet="{}[]:,\"'#\\ \nabTRUE01.-+@", max_size=60))
def test_no_text_breaks_the_reader(text):
    try:
        read_prototxt(text)
    except (FileFormatError, ArgumentError):
        pass


def test_a_deep_text_is_refused_not_a_crash():
    with pytest.raises(FileFormatError, match="nested more than"):
        read_prototxt("a {" * 5_000)
    with pytest.raises(FileFormatError, match="nested"):
        read_prototxt("a: [" + "{ b: [" * 5_000)
    with pytest.raises(FileFormatError, match="nested too deep"):
        read_toml("a = " + "[" * 5_000)


def test_a_wide_net_prints_quickly():
    places = [Place(layers.ReLU(name=f"r{i}"), (f"r{i - 1}",), (f"r{i}",))
              for i in range(1, 300)]  # fmt: skip
    net = Net(places, inputs=["r0"])
    assert describe(Net.from_prototxt(net.to_prototxt())) == describe(net)
