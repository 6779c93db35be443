"""ONNX files as programs: served, timed and exported with their open sizes."""

import numpy as np
import onnx
import pytest

import weft
from weft.onnx import ModelError
from weft.serve import read_program

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
f (float[rows, 3] x_1, float[rows, 3] class, int64[2] n)
  => (float[rows, 3] y, float[rows] s)
{ z = Add(x_1, class)
  k = Constant<value_ints = [1]>()
  y = Relu(z)
  s = ReduceSum<keepdims = 0>(z, k) }"""


def test_open_sizes_and_names(tmp_path):
    path = str(tmp_path / "f.onnx")
    model = onnx.parser.parse_model(TEXT)
    model.graph.input[0].name = model.graph.node[0].input[0] = "x.1"
    onnx.save(model, path)
    program = read_program(path)
    assert [(f.name, tuple(map(str, f.shape))) for f in program.inputs] == [
        ("x_1", ("rows", "3")), ("_class", ("rows", "3")), ("n", ("2",))
    ]  # fmt: skip
    for rows in (5, 1):
        x, y = np.random.default_rng(rows).normal(size=(2, rows, 3)).astype("f")
        found = program([x, y, np.zeros(2, np.int64)])
        np.testing.assert_array_equal(found[0], np.maximum(x + y, 0))
        np.testing.assert_allclose(found[1], (x + y).sum(1), rtol=1e-5, atol=1e-6)
    files = weft.export(
        weft.onnx.captured(weft.onnx.load(path)), None, path[:-5] + ".c"
    )
    assert len(files) == 2


def test_sizes_that_decide_how_a_program_looks():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    f (float[n] x) => (float[m] y) { s = Shape(x)  i = NonZero(x)  y = Expand(x, s) }"""
    model = weft.onnx.load(onnx.parser.parse_model(text.replace("i = NonZero(x)", "")))
    assert weft.onnx.captured(model)(weft.ones(7)).shape == (7,)
    text = """<ir_version: 8, opset_import: ["" : 17]>
    f (float[n] x) => (int64[1, m] y) { y = NonZero(x) }"""
    with pytest.raises(ModelError, match="more than shapes of its inputs"):
        weft.onnx.captured(weft.onnx.load(onnx.parser.parse_model(text)))


def test_inputs_without_a_shape():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    f (float x) => (float y) { y = Relu(x) }"""
    model = onnx.parser.parse_model(text)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match="'x' is no tensor of a known rank"):
        weft.onnx.captured(weft.onnx.load(model))
