"""Classical models (``ai.onnx.ml``) against ONNX's reference."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import weft
from weft.onnx import ModelError

X = np.random.default_rng(3).normal(size=(20, 3)).astype(np.float32)
# Two trees: a root with two leaves, and a root, an inner node and three leaves.
TREES = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LT", "BRANCH_GTE", "LEAF",
                    "LEAF", "LEAF"],
    "nodes_featureids": [0, 0, 0, 1, 2, 0, 0, 0],
    "nodes_values": [0.1, 0.0, 0.0, 0.3, -0.2, 0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0, 1, 3, 0, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 4, 0, 0, 0],
}  # fmt: skip
LEAVES = {"treeids": [0, 0, 1, 1, 1], "nodeids": [1, 2, 2, 3, 4]}


def model(op, outputs=("y",), kinds=(1,), **attributes):
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])
    ends = [
        helper.make_tensor_value_info(n, k, None)
        for n, k in zip(outputs, kinds, strict=True)
    ]
    graph = helper.make_graph([node], "g", [value], ends)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets)


def check(proto, x=X):
    want = ReferenceEvaluator(proto).run(None, {"x": x})
    net = weft.onnx.load(proto)
    for found in (net(weft.from_numpy(x)), weft.compile(net)(weft.from_numpy(x))):
        found = found if isinstance(found, tuple) else (found,)
        for have, w in zip(found, want, strict=True):
            assert tuple(have.shape) == w.shape
            np.testing.assert_allclose(have.numpy(), w, rtol=1e-5, atol=1e-6)


def leaves(name, columns):
    values = {f"{name}_{k}": v for k, v in LEAVES.items()}
    return {**values, f"{name}_ids": columns,
            f"{name}_weights": [1.0, -2.0, 0.5, 3.0, -0.25]}  # fmt: skip


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regression_by_trees(aggregate):
    check(model("TreeEnsembleRegressor", aggregate_function=aggregate, n_targets=1,
                **TREES, **leaves("target", [0] * 5)))  # fmt: skip


def test_classification_by_trees():
    check(model("TreeEnsembleClassifier", ("label", "scores"), (7, 1),
                classlabels_int64s=[3, 5, 9], post_transform="NONE",
                **TREES, **leaves("class", [0, 1, 2, 0, 1])))  # fmt: skip


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classification(post):
    check(model("LinearClassifier", ("label", "scores"), (7, 1),
                coefficients=[0.5, -1, 2, 1, 0.1, -0.7, 0.2, 0.3, 0.4],
                intercepts=[0.1, 0.2, -0.3], classlabels_ints=[4, 7, 8],
                post_transform=post))  # fmt: skip


def test_linear_regression():
    check(model("LinearRegressor", coefficients=[0.5, -1, 2, 1, 0.1, -0.7],
                intercepts=[0.1, 0.2], targets=2))  # fmt: skip


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm):
    x = np.abs(X) if norm == "MAX" else X  # the reference divides by the signed largest
    check(model("Normalizer", norm=norm), x)


def test_columns_are_prepared():
    check(model("Scaler", offset=[0.5, 0.0, -1.0], scale=[2.0, 1.0, 0.5]))
    check(model("Binarizer", threshold=0.25))
    holes = np.where(X > 1, np.float32("nan"), X)
    check(model("Imputer", imputed_value_floats=[1.0, 2.0, 3.0],
                replaced_value_float=float("nan")), holes)  # fmt: skip


def test_trees_that_come_back_are_refused():
    trees = {**TREES, "nodes_truenodeids": [0, 0, 0, 1, 3, 0, 0, 0]}
    net = weft.onnx.load(model("TreeEnsembleRegressor", **trees,
                               **leaves("target", [0] * 5)))  # fmt: skip
    with pytest.raises(ModelError, match="come back to a node"):
        net(weft.from_numpy(X))


def test_labels_may_be_strings():
    proto = model("LinearClassifier", ("label", "scores"), (8, 1),
                  coefficients=[1.0, 0, 0, 0, 1, 0, 0, 0, 1],
                  classlabels_strings=["a", "b", "c"])  # fmt: skip
    labels, scores = weft.onnx.load(proto)(weft.from_numpy(X))
    assert labels.tolist() == ["abc"[k] for k in X.argmax(1)]
    assert (scores.numpy() == X).all()


def test_scores_by_labels():
    proto = model("ZipMap", classlabels_strings=["a", "b", "c"])
    rows = weft.onnx.load(proto)(weft.from_numpy(X))
    assert [row["b"].item() for row in rows] == X[:, 1].tolist()
