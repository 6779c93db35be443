"""TensorFlow's rules for single indices, no axes, fans of filters and step counts."""

import math

import numpy as np
import pytest

import weft
from weft import static
from weft.layers.fillers import filled


@pytest.fixture
def session():
    graph = static.Graph()
    with graph.as_default(), static.Session(graph) as found:
        yield found


# -- initialisers


def glorot_limit(shape):
    """As TensorFlow documents it: filters are (*window, in, out)."""
    if len(shape) < 2:
        inputs = outputs = shape[0] if shape else 1
    else:
        window = math.prod(shape[:-2])
        inputs, outputs = shape[-2] * window, shape[-1] * window
    return math.sqrt(6 / (inputs + outputs))


@pytest.mark.parametrize(
    "shape",
    [(5, 5, 1, 32), (3, 3, 64, 4), (7, 16, 8), (300, 100), (2000,), (2, 2, 2, 8, 9)],
)
def test_the_default_range_of_variables(session, shape):
    w = static.get_variable("w", shape)
    session.run(static.global_variables_initializer())
    values, limit = session.run(w), glorot_limit(shape)
    assert np.abs(values).max() <= limit
    assert np.abs(values).max() > limit * 0.95
    assert values.std() == pytest.approx(limit / math.sqrt(3), rel=0.15)


def test_a_filter_of_the_tutorial(session):
    w = static.get_variable("w", [5, 5, 1, 32])
    session.run(static.global_variables_initializer())
    assert 0.08 < np.abs(session.run(w)).max() <= math.sqrt(6 / (25 + 800)) < 0.0853


def test_variables_of_other_kinds(session):
    count = static.get_variable("count", [2], weft.int32)
    flag = static.get_variable("flag", [], weft.bool)
    one = static.get_variable("one", [])
    session.run(static.global_variables_initializer())
    assert session.run(count).tolist() == [0, 0]
    assert not session.run(flag)
    assert abs(session.run(one)) <= math.sqrt(3)


@pytest.mark.parametrize(
    ("norm", "count"),
    [(None, 27), ("FAN_IN", 27), ("FAN_OUT", 450), ("AVERAGE", 238.5)],
)
def test_fillers_of_caffe(norm, count):
    shape = (50, 3, 3, 3)  # (out, in, height, width)
    options = {} if norm is None else {"variance_norm": norm}
    uniform = filled({"type": "xavier", **options}, shape).detach().numpy()
    assert np.abs(uniform).max() == pytest.approx(math.sqrt(3 / count), rel=0.01)
    normal = filled({"type": "msra", **options}, shape).detach().numpy()
    assert normal.std() == pytest.approx(math.sqrt(2 / count), rel=0.06)
    with pytest.raises(ValueError, match=r"one of FAN_IN.*got 'FAN'"):
        filled({"type": "msra", "variance_norm": "FAN"}, shape)


# -- single indices, indices of any shape, and no axis


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [1, [1], [0, 1, 1], [[0, 1], [1, 0]], [[[1]]], []])
def test_gather(session, axis, indices):
    x = np.arange(24).reshape(2, 3, 4)
    ids = np.array(indices, np.int64)
    node = static.gather(static.constant(x), static.constant(ids), axis=axis)
    expected = np.take(x, ids, axis)
    assert tuple(node.get_shape()) == expected.shape
    np.testing.assert_array_equal(session.run(node), expected)


def test_gather_of_a_number_and_of_a_variable(session):
    v = static.Variable(np.arange(6.0).reshape(3, 2))
    step = static.Variable(2, trainable=False)
    session.run(static.global_variables_initializer())
    assert session.run(static.gather(v, 1)).tolist() == [2.0, 3.0]
    assert session.run(static.gather(v, step, name="row")).tolist() == [4.0, 5.0]
    (slope,) = static.gradients(static.reduce_sum(static.gather(v, 1)), [v])
    assert session.run(slope).tolist() == [[0, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize("one", [1, np.int64(1)])
def test_other_functions_take_single_indices(session, one):
    table = static.constant([[1.0, 2.0], [3.0, 4.0]])
    assert session.run(static.nn.embedding_lookup(table, one)).tolist() == [3.0, 4.0]
    assert session.run(static.one_hot(one, 3)).tolist() == [0.0, 1.0, 0.0]
    loss = static.nn.sparse_softmax_cross_entropy_with_logits(one, [0.0, 0.0])
    assert session.run(loss) == pytest.approx(math.log(2))
    mean, spread = session.run(static.nn.moments(table, int(one)))
    assert (mean.tolist(), spread.tolist()) == ([1.5, 3.5], [0.25, 0.25])
    assert session.run(static.zeros(2)).tolist() == [0.0, 0.0]


REDUCTIONS = {
    "reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max,
    "reduce_min": np.min, "reduce_prod": np.prod, "reduce_any": np.any,
    "reduce_all": np.all,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, -1, [0], [0, 1], (2, -2), (-3, 1), [], ()])
def test_reductions(session, name, axis):
    x = np.array([[[2.0, 0.5, 3.0], [1.0, 5.0, 4.0]]]).repeat(2, 0)
    x = x > 1 if name in ("reduce_any", "reduce_all") else x
    axes = tuple(axis) if isinstance(axis, list) else axis
    expected = x if axes == () else REDUCTIONS[name](x, axis=axes)
    node = getattr(static, name)(static.constant(x), axis)
    np.testing.assert_allclose(session.run(node), expected)


# -- nodes where numbers are meant


def test_a_saver_writes_the_step_in_the_name(session, tmp_path):
    step = static.Variable(7, trainable=False, name="step")
    session.run(static.global_variables_initializer())
    saver = static.train.Saver()
    given = [7, np.int64(7), session.run(step), step, step + 0]
    for k, one in enumerate(given):
        path = saver.save(session, str(tmp_path / str(k)), global_step=one)
        assert path == str(tmp_path / f"{k}-7")
        saver.restore(session, path)
    assert saver.save(session, str(tmp_path / "plain")) == str(tmp_path / "plain")
    with pytest.raises(TypeError, match=r"global_step to be a whole number, got 1\.5"):
        saver.save(session, str(tmp_path / "x"), global_step=1.5)
    session.run(step.assign(8))
    assert saver.save(session, str(tmp_path / "y"), step).endswith("y-8")


def test_summaries_take_the_step_as_a_number(session, tmp_path):
    step = static.Variable(3, trainable=False)
    session.run(static.global_variables_initializer())
    writer = static.summary.FileWriter(str(tmp_path))
    value = {"scalar:loss": np.float32(2.0)}
    writer.add_summary(value, session.run(step))
    writer.add_summary(value, np.int32(4))
    with pytest.raises((TypeError, RuntimeError), match=r"step|session\.run"):
        writer.add_summary(value, step)
    writer.close()
    events = [e for e in weft.training.read_events(writer.writer.path) if "loss" in e]
    assert [e["step"] for e in events] == [3, 4]


def test_a_chance_of_dropout_is_fed(session):
    keep = static.placeholder(weft.float32, [])
    x = static.constant(np.ones(1000))
    for node in (static.nn.dropout(x, keep), static.nn.dropout(x, rate=1 - keep)):
        assert session.run(node, {keep: 1.0}).tolist() == [1.0] * 1000
        values = session.run(node, {keep: 0.25})
        assert set(values.tolist()) == {0.0, 4.0}
        assert 0.15 < (values > 0).mean() < 0.35


def test_decay_by_a_number_or_a_node(session):
    decay = static.train.exponential_decay
    assert session.run(decay(1.0, 20, 10, 0.5)) == 0.25
    assert session.run(decay(1.0, static.constant(20), 10, 0.5)) == 0.25


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_the_mean_of_rows_whose_number_is_open(dtype):
    with static.Graph().as_default(), static.Session() as session:
        x = static.placeholder(getattr(weft, dtype), [None, 2])
        given = np.array([[1, 2], [3, 4]], x.dtype.np)
        got = session.run(weft.mean(x, 0), {x: given})
    assert got.tolist() == [2, 3]
