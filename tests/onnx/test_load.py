"""Models of ONNX files as modules: run, compiled, trained, captured with open sizes."""

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

import weft
from weft import nn
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.onnx import ModelError
from weft.onnx.operators import load_all
from weft.onnx.registry import TABLE


def model(text, opset=17):
    return parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def check(proto, *arrays, close=1e-5):
    """The same results from ONNX's reference, eagerly, and compiled."""
    names = [i.name for i in proto.graph.input][: len(arrays)]
    want = ReferenceEvaluator(proto).run(None, dict(zip(names, arrays, strict=True)))
    loaded = weft.onnx.load(proto).eval()
    given = [weft.from_numpy(a) for a in arrays]
    for found in (loaded(*given), weft.compile(loaded)(*given)):
        found = found if isinstance(found, tuple) else (found,)
        for y, w in zip(found, want, strict=True):
            assert y.dtype.np == w.dtype
            np.testing.assert_allclose(y.detach().numpy(), w, rtol=close, atol=close)
    return loaded


X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def with_weights(proto, **arrays):
    for name, array in arrays.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def mlp():
    rng = np.random.default_rng(1)
    proto = model(
        "mlp (float[N, 3] x) => (float[N, 2] y) {"
        "h = Gemm <transB = 1> (x, fc1.weight, fc1.bias) a = Relu(h)"
        "y = MatMul(a, fc2.weight) }".replace("fc1.", "fc1_").replace("fc2.", "fc2_")
    )
    for node in proto.graph.node:
        node.input[:] = [n.replace("fc1_", "fc1.").replace("fc2_", "fc2.")
                         for n in node.input]  # fmt: skip
    arrays = {"fc1.weight": (5, 3), "fc1.bias": (5,), "fc2.weight": (5, 2)}
    return with_weights(
        proto, **{k: rng.normal(size=v).astype(np.float32) for k, v in arrays.items()}
    )


def test_parameters_have_the_names_of_initializers_and_train():
    net = check(mlp(), X)
    assert list(net.state_dict()) == ["fc1.weight", "fc1.bias", "fc2.weight"]
    assert isinstance(net.fc1.weight, nn.Parameter)
    optimizer = weft.optim.Adam(net.parameters(), lr=0.05)
    x, target = weft.from_numpy(X), weft.zeros(4, 2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_bytes_and_paths_give_the_same_model(tmp_path):
    proto = mlp()
    onnx.save(proto, tmp_path / "m.onnx")
    x = weft.from_numpy(X)
    first = weft.onnx.load(tmp_path / "m.onnx")(x)
    assert (first == weft.onnx.load(proto.SerializeToString())(x)).all()
    assert (weft.onnx.load(proto)(x=x) == first).all()


def test_shapes_that_are_computed_are_known_to_captured_programs():
    proto = model(
        "g (float[N, 6] x) => (float[M, K] y) <int64 zero = {0}, int64[1] last = {-1},"
        " int64[1] two = {2}> { s = Shape(x) n = Gather(s, zero)"
        " axes = Constant <value_ints = [0]> () m = Unsqueeze(n, axes)"
        " d = Mul(m, two) t = Concat <axis = 0> (d, last) y = Reshape(x, t) }"
    )
    net = check(proto, np.arange(12, dtype=np.float32).reshape(2, 6))
    step = weft.graph.capture(net, weft.ones(2, 6), dynamic={"args.0": {0: "N"}})
    assert step(weft.ones(5, 6)).shape == (10, 3)


def test_branches_and_loops_are_captured():
    proto = model(
        "g (float[3] x) => (float[3] y, float[3] z) <float ten = {10.0}> {"
        " s = ReduceSum <keepdims = 0> (x) big = Greater(s, ten)"
        " y = If (big) <then_branch = t () => (float[3] a) { a = Neg(x) },"
        " else_branch = e () => (float[3] b) { b = Add(x, ten) }>"
        " n = Constant <value_int = 3> () go = Constant <value = bool {1}> ()"
        " z = Loop (n, go, x) <body = b (int64 i, bool c, float[3] v) =>"
        " (bool d, float[3] w) { d = Identity(c) w = Add(v, v) }> }"
    )
    for scale in (1, 10):
        check(proto, np.array([1, 2, 3], np.float32) * scale)


def test_a_loop_that_ends_by_its_condition_is_captured():
    proto = model(
        "g (float[2] x) => (float[2] y) <float ten = {10.0}> {"
        " go = Constant <value = bool {1}> ()"
        ' y = Loop ("", go, x) <body = b (int64 i, bool c, float[2] v) =>'
        " (bool d, float[2] w) { w = Add(v, v) s = ReduceSum <keepdims = 0> (w)"
        " d = Less(s, ten) }> }".replace('""', "")
    )
    check(proto, np.array([1, 2], np.float32))


def test_functions_of_the_model_take_attributes():
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
        "g (float[N] x) => (float[N] y) { y = own.scaled <by = 3.0> (x) }\n"
        '<opset_import: ["" : 17], domain: "own">\n'
        "scaled <by> (v) => (w) { k = Constant <value_float: float = @by> ()"
        " w = Mul(v, k) }"
    )
    proto = parse_model(text)
    found = weft.onnx.load(proto)(weft.tensor([1.0, 2.0]))
    assert found.tolist() == [3, 6]


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 21])
def test_softmax_changed_its_axis_with_opset_13(opset):
    proto = model(
        "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax(x) }", opset
    )
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    axes = -1 if opset >= 13 else (1, 2)
    want = np.exp(x) / np.exp(x).sum(axes, keepdims=True)
    found = weft.onnx.load(proto)(weft.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_opset_7_slices_and_upsamples_by_attributes():
    proto = model(
        "g (float[1, 1, 2, 2] x) => (float[1, 1, 3, 4] y) {"
        " s = Upsample <mode = \"nearest\", scales = [1.0, 1.0, 2.0, 2.0]> (x)"
        " y = Slice <axes = [2], starts = [0], ends = [3]> (s) }", 7,
    )  # fmt: skip
    x = weft.arange(4).float().reshape(1, 1, 2, 2)
    want = x.repeat_interleave(2, 2).repeat_interleave(2, 3)[:, :, :3]
    assert (weft.onnx.load(proto)(x) == want).all()


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_resize_to_very_many_elements_is_quick(mode):
    text = (
        "g (float[1, 1, 3] x) => (float[1, 1, N] y) <float[3] s = {1., 1., 100000.}>"
        f' {{ y = Resize <mode = "{mode}"> (x, , s) }}'
    )
    x = weft.tensor([[[1.0, 2.0, 4.0]]])
    found = weft.onnx.load(model(text, 18))(x)
    assert found.shape == (1, 1, 300_000)
    few = model(text.replace("100000.", "20."), 18)  # by the other way
    many = model(text.replace("100000.", "40."), 18)
    want = weft.onnx.load(few)(x)[0, 0]
    near = weft.onnx.load(many)(x)[0, 0].reshape(-1, 2).mean(1)
    np.testing.assert_allclose(near.numpy(), want.numpy(), atol=2e-3)


def test_dropout_and_batch_norm_follow_the_model_not_the_mode():
    proto = with_weights(
        model(
            "g (float[N, 3] x) => (float[N, 3] y) {"
            " b = BatchNormalization(x, s, o, m, v) y = Dropout(b) }"
        ),
        s=np.ones(3, np.float32), o=np.zeros(3, np.float32),
        m=np.full(3, 0.5, np.float32), v=np.full(3, 4, np.float32),
    )  # fmt: skip
    net = check(proto, X)
    assert [name for name, _ in net.named_parameters()] == ["s", "o"]
    assert [name for name, _ in net.named_buffers()] == ["m", "v"]
    assert (net.train()(weft.from_numpy(X)) == net.eval()(weft.from_numpy(X))).all()


def test_external_data_is_read_from_the_models_folder_alone(tmp_path):
    proto = mlp()
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True,
              location="m.data", size_threshold=0)  # fmt: skip
    x = weft.from_numpy(X)
    net = weft.onnx.load(tmp_path / "m.onnx")
    assert weft.allclose(net(x), weft.onnx.load(mlp())(x))
    (tmp_path / "inner").mkdir()
    bare = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for place in ("../m.data", str(tmp_path / "m.data"), "none.data"):
        for tensor in bare.graph.initializer:
            tensor.external_data[0].value = place
        onnx.save(bare, tmp_path / "inner" / "m.onnx")
        with pytest.raises(ModelError, match="in the model's folder"):
            weft.onnx.load(tmp_path / "inner" / "m.onnx")
    with pytest.raises(ModelError, match="load the model's path"):
        weft.onnx.load(bare)


def test_arguments_are_checked():
    net = weft.onnx.load(mlp())
    with pytest.raises(ShapeError, match=r"x: expected the shape \[N, 3\]"):
        net(weft.ones(4, 5))
    with pytest.raises(DTypeError, match="x: expected float32, got int64"):
        net(weft.ones(4, 3, dtype=weft.int64))
    with pytest.raises(ModelError, match="the input 'x' is missing"):
        net()
    with pytest.raises(ModelError, match="expected the inputs"):
        net(z=weft.ones(4, 3))


def test_lacking_operators_are_named_all_at_once():
    proto = model(
        "g (float[N] x) => (float[N] y) { a = StringConcat(x, x)"
        " b = com.other.Thing(a) y = com.other.Stuff(b) }"
    )
    with pytest.raises(ModelError, match="3 operators") as error:
        weft.onnx.load(proto)
    for name in ("StringConcat 'a'", "Thing 'b' (com.other None)", "Stuff 'y'"):
        assert name in str(error.value)


def test_errors_name_the_node():
    proto = model("g (float[N] x, float[M] y) => (float[K] z) { z = Add(x, y) }")
    with pytest.raises(ShapeError) as error:
        weft.onnx.load(proto)(weft.ones(2), weft.ones(3))
    assert error.value.__notes__ == ["in the ONNX node Add 'z'"]


def broken(change):
    proto = mlp()
    change(proto)
    return proto


def _cycle(proto):
    proto.graph.node[0].input[0] = "a"


def _huge(proto):
    proto.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]


def _negative(proto):
    proto.graph.initializer[0].dims[0] = -1


def _unknown_type(proto):
    proto.graph.initializer[0].data_type = 99


def _twice(proto):
    proto.graph.node[1].output[0] = "h"


def _lost(proto):
    proto.graph.output[0].name = "nowhere"


def _attribute(proto):
    proto.graph.node[0].attribute[0].name = "trans"


def _kind(proto):
    proto.graph.node[0].attribute[0].type = 1


def _inputs(proto):
    proto.graph.node[1].input.append("h")


def _opset(proto):
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid("other", 1))


def _old(proto):
    proto.opset_import[0].version = 5


def _future(proto):
    proto.opset_import[0].version = 1000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_cycle, "later node makes"),
        (_huge, "expected .* bytes for the shape"),
        (_negative, "sizes of 0 or more"),
        (_unknown_type, "element type 99"),
        (_twice, "a second value 'h'"),
        (_lost, "is made by no node"),
        (_attribute, "got 'trans'"),
        (_kind, "to be a INT"),
        (_inputs, "expected 1 to 1 inputs"),
        (_opset, "names no version"),
        (_old, "changed before 6; onnx.version_converter"),
        (_future, "got 1000"),
    ],
)
def test_contradictory_models_are_refused(change, message):
    with pytest.raises(ModelError, match=message):
        weft.onnx.load(broken(change))


def test_truncated_files_are_refused():
    content = mlp().SerializeToString()
    for end in range(0, len(content) - 1, 7):
        with pytest.raises(ModelError):
            weft.onnx.load(content[:end])


def test_functions_that_call_themselves_are_refused():
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
        "g (float[N] x) => (float[N] y) { y = own.f(x) }\n"
        '<opset_import: ["" : 17, "own" : 1], domain: "own">\n'
        "f (v) => (w) { w = own.f(v) }"
    )
    with pytest.raises(ModelError, match="call themselves"):
        weft.onnx.load(parse_model(text))


def test_sizes_that_a_model_asks_for_are_bounded():
    proto = model("g (int64[2] s) => (float[N, M] y) { y = ConstantOfShape(s) }")
    net = weft.onnx.load(proto)
    with pytest.raises(ModelError, match="at most"):
        net(weft.tensor([1 << 40, 1 << 20]))
    with pytest.raises(ModelError, match="0 or more"):
        net(weft.tensor([-1, 2]))


def test_types_of_half_precision_keep_their_bits():
    values = np.array([1.5, -2.25, np.inf], np.float16)
    tensor = numpy_helper.from_array(values, "t")
    listed = helper.make_tensor("t", TensorProto.FLOAT16, [3], values)
    for proto in (tensor, listed):
        found = weft.onnx.reading.array_of(proto)
        assert found.dtype == np.float16
        assert (found == values).all()


# -- the table

NOT_READ = {  # trees whose numbers are float64; and an experiment before opset 7
    ("Upsample", "height_scale"),
    ("Upsample", "width_scale"),
    ("TreeEnsembleClassifier", "base_values_as_tensor"),
    ("TreeEnsembleClassifier", "class_weights_as_tensor"),
    ("TreeEnsembleClassifier", "nodes_hitrates_as_tensor"),
    ("TreeEnsembleClassifier", "nodes_values_as_tensor"),
    ("TreeEnsembleRegressor", "base_values_as_tensor"),
    ("TreeEnsembleRegressor", "nodes_hitrates_as_tensor"),
    ("TreeEnsembleRegressor", "nodes_values_as_tensor"),
    ("TreeEnsembleRegressor", "target_weights_as_tensor"),
}


def attributes_since_opset_6():
    """All attributes that ONNX's operators have had, by domain and name."""
    every = onnx.defs.get_all_schemas_with_history()
    for schema in every:
        later = [s.since_version for s in every
                 if (s.domain, s.name) == (schema.domain, schema.name)
                 and s.since_version > schema.since_version]  # fmt: skip
        if schema.domain == "" and later and min(later) <= 6:
            continue
        for name in schema.attributes:
            yield schema.domain, schema.name, name


def test_all_attributes_are_known_and_no_others():
    load_all()
    found: dict = {}
    for domain, name, attribute in attributes_since_opset_6():
        found.setdefault((domain, name), set()).add(attribute)
    lacking = {
        (key[1], a) for key, op in TABLE.items() for a in found.get(key, ())
        if a not in op.attributes
    }  # fmt: skip
    assert lacking == NOT_READ
    more = {
        (key[1], a) for key, op in TABLE.items() if key in found
        for a in op.attributes - found[key]
    }  # fmt: skip
    assert more == {("Scatter", "reduction")}  # shares its function


# -- derivatives, and the package that is needed


def test_gradients_are_those_of_differences():
    proto = model(
        "g (double[3, 4] x) => (double[3, 2] y) {"
        " h = Gemm <transB = 1, alpha = 0.5> (x, w, b) a = Softplus(h)"
        " n = LayerNormalization <stash_type = 11> (a, s) t = Tanh(n)"
        " k = MatMul(t, v) y = Softmax(k) }"
    )
    rng = np.random.default_rng(0)
    shapes = {"w": (5, 4), "b": (5,), "s": (5,), "v": (5, 2)}
    arrays = {k: rng.normal(size=s) for k, s in shapes.items()}
    net = weft.onnx.load(with_weights(proto, **arrays))
    x = weft.from_numpy(rng.normal(size=(3, 4)))

    def loss(*parameters):
        named = dict(zip(shapes, parameters, strict=True))
        return weft.func.functional_call(net, named, (x,))

    values = tuple(p.detach().clone().requires_grad_() for p in net.parameters())
    assert weft.autograd.gradcheck(loss, values)


def test_without_the_onnx_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    calls = (
        lambda: weft.onnx.load(b""),
        lambda: weft.onnx.export(weft.exp, weft.ones(2)),
        lambda: weft.onnx.__getattr__("backend"),  # as where it was not used yet
    )
    for call in calls:
        with pytest.raises(ArgumentError, match=r"pip install 'weft\[onnx\]'"):
            call()


def test_functions_that_double_are_bounded(monkeypatch):
    monkeypatch.setattr(weft.onnx.program, "MOST_STEPS", 2000)
    lines = ['<ir_version: 8, opset_import: ["" : 17, "own" : 1]>',
             "g (float[N] x) => (float[N] y) { y = own.f0(x) }"]  # fmt: skip
    head = '<opset_import: ["" : 17, "own" : 1], domain: "own">'
    for k in range(40):
        inner = f"own.f{k + 1}" if k < 39 else "Neg"
        lines.append(f"{head}\nf{k} (v) => (w) {{ u = {inner}(v) w = {inner}(u) }}")
    with pytest.raises(ModelError, match="nodes"):
        weft.onnx.load(parse_model("\n".join(lines)))
