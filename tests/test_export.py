"""``weft.export``: programs captured from modules, run, changed, saved and loaded."""

import dataclasses
import io

import numpy as np
import pytest

import weft
from weft import nn
from weft.export import (
    AdditionalInputs,
    Dim,
    ExportedProgram,
    ShapesCollection,
    dims,
    export,
    load,
    register_dataclass,
    save,
)
from weft.export.graph_signature import InputKind, OutputKind
from weft.export.lift import operator_named

BATCH = Dim("batch", min=2, max=100)


class Network(nn.Module):
    """Parameters, buffers that change, a constant, random numbers and a branch."""

    def __init__(self):
        super().__init__()
        self.fc, self.bn, self.drop = (
            nn.Linear(3, 4),
            nn.BatchNorm1d(4),
            nn.Dropout(0.5),
        )
        self.register_buffer("calls", weft.zeros(1))
        self.register_buffer("hidden", weft.ones(1), persistent=False)
        self.shift = weft.ones(4)

    def forward(self, x, scale=True, *, more=None):
        self.calls.add_(1)
        h = self.drop(self.bn(self.fc(x)))
        if h.sum() > 0:
            h = h * 2
        return {"a": h + self.shift + self.hidden, "b": (h.reshape(-1, 2).mean(), 3, x)}


def exported(network, **options):
    return export(network, (weft.ones(4, 3),), {"more": None}, **options)


def written(ep, **options):
    file = io.BytesIO()
    save(ep, file, **options)
    return io.BytesIO(file.getvalue())


def run(network, x):
    weft.manual_seed(1)
    out = network(x, more=None)
    return out["a"], out["b"][0], network.bn.running_mean.clone(), weft.rand(1)


@pytest.mark.parametrize("way", ["module", "compiled", "file"])
def test_an_exported_module_does_what_the_module_does(way):
    weft.manual_seed(0)
    network, x = Network(), weft.randn(6, 3)
    ep = exported(network, dynamic_shapes={"x": {0: BATCH}})
    if way == "file":
        ep = load(written(ep))
    module = ep.module()
    state = {name: value.clone() for name, value in network.state_dict().items()}
    want = run(network, x)
    want[0].sum().backward()
    gradient = network.fc.weight.grad.clone()
    module.load_state_dict(state)
    network.zero_grad()
    called = weft.compile(module) if way == "compiled" else module
    have = run(called, x)
    for a, b in zip(want, have, strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-5, atol=1e-6)
    assert module.calls.item() == 1 + state["calls"].item()
    have[0].sum().backward()
    np.testing.assert_allclose(module.fc.weight.grad, gradient, rtol=1e-4, atol=1e-6)


def test_the_signature_names_the_state():
    signature = exported(Network()).graph_signature
    assert signature.parameters == ("fc.weight", "fc.bias", "bn.weight", "bn.bias")
    assert "calls" in signature.buffers
    assert "bn.running_var" in signature.buffers
    assert signature.non_persistent_buffers == ("hidden",)
    assert len(signature.lifted_tensor_constants) == 1
    assert signature.user_inputs == ("x",)
    assert set(signature.buffers_to_mutate.values()) == {
        "calls", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked",
    }  # fmt: skip
    assert signature.inputs_to_parameters["p_fc_weight"] == "fc.weight"
    assert signature.user_outputs[1:] != ()
    assert 3 in signature.user_outputs
    assert signature.input_specs[0].kind is InputKind.PARAMETER
    assert signature.output_specs[-1].kind is OutputKind.USER_OUTPUT


def test_the_signature_survives_a_file():
    ep = exported(Network(), dynamic_shapes={"x": {0: BATCH}})
    again = load(written(ep))
    for name in ("parameters", "buffers", "non_persistent_buffers", "user_inputs"):
        ours = set(getattr(ep.graph_signature, name))
        assert set(getattr(again.graph_signature, name)) == ours, name
    assert again.range_constraints == {"batch": (2, 100)}
    assert set(again.state_dict) == set(ep.state_dict)
    np.testing.assert_array_equal(again.example_inputs[0][0], weft.ones(4, 3))


def test_a_frozen_parameter_stays_frozen():
    linear = nn.Linear(3, 2)
    linear.bias.requires_grad_(False)
    again = load(written(export(linear, (weft.ones(1, 3),))))
    wants = {name: p.requires_grad for name, p in again.named_parameters()}
    assert wants == {"weight": True, "bias": False}


def test_extra_files_come_back():
    file = written(export(nn.ReLU(), (weft.ones(1),)), extra_files={"a.txt": "hello"})
    texts = {"a.txt": ""}
    load(file, extra_files=texts)
    assert texts == {"a.txt": "hello"}


def test_a_changed_graph_is_what_runs_and_what_is_saved():
    ep = export(nn.ReLU(), (weft.ones(2),))
    for node in ep.graph.nodes:
        if node.op == "call_function":
            node.target = operator_named("neg")
    assert ep.module()(weft.ones(2)).tolist() == [-1.0, -1.0]
    assert load(written(ep)).module()(weft.ones(2)).tolist() == [-1.0, -1.0]


def test_a_program_is_called_as_the_module_was():
    ep = exported(Network().eval())
    x = weft.ones(4, 3)
    assert ep.module()(x=x, more=None)["a"].shape == (4, 4)
    with pytest.raises(RuntimeError, match=r"takes \(x, \*, more\)"):
        ep.module()(x, x)
    with pytest.raises(RuntimeError, match="use `module"):
        ep(x)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (weft.ones(4, 5), r"exported for float32\[batch, 3\], got float32\[4, 5\]"),
        (weft.ones(4, 3).double(), "got float64"),
        (weft.ones(4), r"got float32\[4\]"),
        (weft.ones(1, 3), "batch is 1, and this program was exported for 2 to 100"),
        (weft.ones(101, 3), "batch is 101"),
        (3, "expected float32.*got 3"),
    ],
)
def test_other_arguments_are_refused(x, text):
    module = export(nn.Linear(3, 2), (weft.ones(4, 3),), dynamic_shapes=({0: BATCH},))
    with pytest.raises((RuntimeError, TypeError), match=text):
        module.module()(x)


class Sizes(nn.Module):
    def forward(self, x, y):
        return x.reshape(x.shape[0] // 2, -1), y.mean(0) * x.shape[0], x.shape[0] + 1


def test_sizes_are_computed_in_the_program():
    batch, time = dims("batch", "time")
    ep = export(
        Sizes(), (weft.ones(4, 3), weft.ones(5, 2)),
        dynamic_shapes={"x": (batch, None), "y": {0: time}},
    )  # fmt: skip
    x, y = weft.randn(8, 3), weft.randn(3, 2)
    for ours, theirs in zip(ep.module()(x, y), Sizes()(x, y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


class Fixed(nn.Module):
    def forward(self, x):
        return x + 1 if x.shape[0] == 4 else x


def test_a_size_that_decides_cannot_stay_open_unless_it_may_be_fixed():
    x = weft.ones(4)
    with pytest.raises(RuntimeError, match=r"leaves \['batch'\] open, but.*batch == 4"):
        export(Fixed(), (x,), dynamic_shapes=({0: Dim("batch")},))
    ep = export(Fixed(), (x,), dynamic_shapes=({0: Dim.AUTO},))
    assert ep.module()(x).tolist() == [2.0] * 4
    with pytest.raises(RuntimeError, match="exported for"):
        ep.module()(weft.ones(5))


class Product(nn.Module):
    def forward(self, x, y):
        return x[::2] + y


def test_derived_sizes_are_held_to_their_relation():
    half = Dim("half")
    ep = export(
        Product(), (weft.ones(6), weft.ones(3)),
        dynamic_shapes=({0: 2 * half}, {0: half}),
    )  # fmt: skip
    assert ep.module()(weft.ones(8), weft.ones(4)).shape == (4,)
    with pytest.raises(RuntimeError, match="does not hold"):
        ep.module()(weft.ones(7), weft.ones(4))


def test_specifications_by_tensor_and_by_examples():
    x = weft.ones(4, 3)
    shapes = ShapesCollection()
    shapes[x] = {0: BATCH}
    assert export(nn.ReLU(), (x,), dynamic_shapes=shapes).range_constraints
    more = AdditionalInputs()
    more.add((weft.ones(7, 3),))
    ep = export(nn.ReLU(), (x,), dynamic_shapes=more)
    more.verify(ep)
    with pytest.raises(RuntimeError, match="exported for"):
        ep.module()(weft.ones(4, 4))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"z": {0: BATCH}}, r"names \['z'\], but the arguments are \['input'\]"),
        (({0: 5},), "is 4, and dynamic_shapes says 5"),
        (({0: "batch"},), "expected a Dim for dimension 0"),
        ((None, None), "for 1 arguments, got 2"),
    ],
)
def test_wrong_specifications_are_refused(spec, text):
    with pytest.raises(RuntimeError, match=text):
        export(nn.Linear(3, 2), (weft.ones(4, 3),), dynamic_shapes=spec)


class InPlace(nn.Module):
    def forward(self, x):
        x.mul_(2)
        return x + 1


@pytest.mark.parametrize("filed", [False, True])
def test_an_argument_that_is_changed_in_place(filed):
    ep = export(InPlace(), (weft.ones(2),))
    if filed:
        ep = load(written(ep))
    assert list(ep.graph_signature.user_inputs_to_mutate.values()) == ["x"]
    x = weft.ones(2)
    assert ep.module()(x).tolist() == [3.0, 3.0]
    assert x.tolist() == [2.0, 2.0]


class Appending(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, out):
        out.append(x * 2)
        return x


def test_a_module_that_changes_python_objects_is_refused():
    with pytest.raises(RuntimeError, match="changes Python objects"):
        export(Appending(), (weft.ones(1), []))


class Printing(nn.Module):
    def forward(self, x):
        print("here", x.shape)
        return x + 1


def test_printing_is_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="prints"):
        ep = export(Printing(), (weft.ones(1),))
    assert ep.module()(weft.ones(1)).item() == 2


def test_what_is_no_module_or_no_tuple_is_refused():
    with pytest.raises(ValueError, match=r"torch\.nn\.Module"):
        export(lambda x: x, (weft.ones(1),))
    with pytest.raises(TypeError, match="tuple"):
        export(nn.ReLU(), weft.ones(1))
    with pytest.raises(TypeError, match="ExportedProgram"):
        save(nn.ReLU(), io.BytesIO())


@pytest.mark.parametrize("damage", ["cut", "other", "manifest"])
def test_a_damaged_file_is_refused(damage):
    data = written(export(nn.Linear(2, 2), (weft.ones(1, 2),))).getvalue()
    if damage == "cut":
        data = data[:-100]
    if damage == "other":
        data = b"PK\x03\x04" + bytes(50)
    if damage == "manifest":
        data = data.replace(b"PARAMETER", b"PARAMETEX")
    with pytest.raises(weft.errors.FileFormatError, match="no file of an exported"):
        load(io.BytesIO(data))


def test_decompositions_replace_operators():
    relu = operator_named("relu")
    ep = export(nn.ReLU(), (weft.ones(2),), dynamic_shapes=({0: Dim("n")},))
    assert ep.run_decompositions() is ep
    other = ep.run_decompositions({relu: lambda x: x.clamp(min=0)})
    assert relu not in {node.target for node in other.graph.nodes}
    assert other.module()(weft.tensor([-1.0, 2.0, 3.0])).tolist() == [0, 2, 3]


def test_data_classes_are_arguments():
    @dataclasses.dataclass
    class Pair:
        a: object
        b: object

    class Sum(nn.Module):
        def forward(self, pair):
            return Pair(pair.a + pair.b, -pair.a)

    register_dataclass(Pair)
    ep = export(Sum(), (Pair(weft.ones(2), weft.ones(2)),))
    out = ep.module()(Pair(weft.ones(2), 3 * weft.ones(2)))
    assert isinstance(out, Pair)
    assert out.a.tolist() == [4.0, 4.0]
    with pytest.raises(AssertionError, match="Only dataclasses"):
        register_dataclass(int)


class Loop(nn.Module):
    def forward(self, x):
        while x.sum() < 100:
            x = x * 2
        return x


def test_loops_over_values_are_part_of_the_program():
    ep = export(Loop(), (weft.ones(3),), dynamic_shapes=({0: Dim("n")},))
    x = weft.ones(5).requires_grad_()
    out = ep.module()(x)
    assert out.tolist() == [32.0] * 5
    out.sum().backward()
    assert x.grad.tolist() == [32.0] * 5


def test_programs_print_and_validate():
    ep = exported(Network())
    ep.validate()
    text = str(ep)
    assert "def forward(self, p_fc_weight" in text
    assert "BUFFER_MUTATION" in text
    assert isinstance(ep, ExportedProgram)
    assert [n for n, _ in ep.named_buffers()] == list(ep.graph_signature.buffers)
    assert len(list(ep.parameters())) == 4
    assert len(list(ep.buffers())) == 5
