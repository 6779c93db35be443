"""Variable scopes, collections and initializers."""

import numpy as np
import pytest

from weft import static as tf
from weft.errors import ArgumentError


def test_names_in_nested_scopes(graph):
    with tf.variable_scope("a"):
        v = tf.get_variable("v", [2])
        with tf.variable_scope("b") as inner:
            w = tf.get_variable("w", [1])
            c = tf.constant(1.0, name="c")
        with tf.name_scope("n"):
            x = tf.get_variable("x", [1])
            y = tf.Variable(1.0, name="y")
    names = ["a/v", "a/b/w", "a/b/c", "a/x", "a/n/y"]
    assert [one.name for one in (v, w, c, x, y)] == names
    assert inner.name == "a/b"
    assert v.op.name == "a/v"
    with tf.variable_scope("a", reuse=True):
        assert tf.get_variable("v", [2]) is v
        assert tf.constant(1.0, name="k").name == "a_1/k"
        assert tf.get_variable_scope().reuse is True
    with tf.variable_scope(inner, reuse=True):
        assert tf.get_variable("w") is w
    with tf.variable_scope("other"), tf.variable_scope(inner):
        assert tf.get_variable("q", [1]).name == "a/b/q"


def test_sharing_is_asked_for(graph):
    def weight(shape=(2,)):
        return tf.get_variable("w", shape)

    with tf.variable_scope("s"):
        first = weight()
    with tf.variable_scope("s"), pytest.raises(ArgumentError, match="'s/w' already"):
        weight()
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        assert weight() is first
        assert tf.get_variable("new", [1]).name == "s/new"
        with pytest.raises(ArgumentError, match=r"has shape \(2,\), got \(3,\)"):
            weight((3,))
        with pytest.raises(ArgumentError, match="float32, got float64"):
            tf.get_variable("w", [2], tf.float64)
    with (
        tf.variable_scope("s", reuse=True),
        pytest.raises(ArgumentError, match="no var"),
    ):
        tf.get_variable("missing", [1])
    with tf.variable_scope("t") as scope:
        one = weight()
        scope.reuse_variables()
        assert weight() is one


def test_default_names_are_unique_and_begin_anew_in_a_scope(graph):
    def names():
        for _ in range(2):
            with tf.variable_scope(None, "d"):
                yield tf.get_variable("w", [1]).name

    assert list(names()) == ["d/w", "d_1/w"]
    with tf.variable_scope("e"):
        assert list(names()) == ["e/d/w", "e/d_1/w"]
    with tf.variable_scope("e", reuse=True):
        assert list(names()) == ["e/d/w", "e/d_1/w"]


def test_scopes_hand_on_initializers_regularizers_and_dtypes(start):
    with tf.variable_scope(
        "s", initializer=tf.constant_initializer(3.0), dtype=tf.float64,
        regularizer=lambda w: tf.reduce_sum(w) * 2,
    ):  # fmt: skip
        with tf.variable_scope("inner"):
            w = tf.get_variable("w", [2])
        one = tf.get_variable("one", [1], initializer=tf.ones_initializer())
    session = start()
    np.testing.assert_array_equal(session.run(w), [3.0, 3.0])
    assert session.run(one).dtype == np.float64
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert [float(v) for v in session.run(losses)] == [12, 2]


def test_getters_may_change_what_is_made(graph):
    def getter(made, name, *args, **kwargs):
        return made(f"{name}_mine", *args, **kwargs)

    with tf.variable_scope("s", custom_getter=getter):
        assert tf.get_variable("w", [1]).name == "s/w_mine"


def test_a_first_value_needs_no_shape(start):
    v = tf.get_variable("v", initializer=np.array([1, 2], np.int32), trainable=False)
    assert v.dtype is tf.int32
    np.testing.assert_array_equal(start().run(v), [1, 2])
    with pytest.raises(ArgumentError, match="expected a shape"):
        tf.get_variable("w")


def test_collections(graph):
    one = tf.Variable(1.0, name="one")
    local = tf.Variable(
        0, name="count", trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES]
    )
    still = tf.Variable(1.0, name="two/still", trainable=False)
    assert tf.global_variables() == [one, still]
    assert tf.trainable_variables() == [one]
    assert tf.local_variables() == [local]
    assert tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope="two/") == [still]
    tf.add_to_collections(["a", "b"], one)
    tf.get_collection_ref("b").append(2)
    assert tf.get_collection("b") == graph.get_collection("b") == [one, 2]
    tf.get_collection("b").clear()
    assert len(tf.get_collection("b")) == 2
    with tf.Graph().as_default():
        assert tf.get_collection("b") == []


def test_local_variables_begin_apart(session):
    local = tf.Variable(5, False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    session.run(tf.global_variables_initializer())
    with pytest.raises(tf.errors.FailedPreconditionError):
        session.run(local)
    session.run(tf.local_variables_initializer())
    assert session.run(local) == 5


LARGE = (400, 300)
STARTS = {
    "zeros_initializer": (tf.zeros_initializer(), 0, 0),
    "normal": (tf.random_normal_initializer(1.0, 2.0), 1, 2),
    "uniform": (tf.random_uniform_initializer(-1, 1), 0, 1 / 3**0.5),
    "truncated": (tf.truncated_normal_initializer(0, 1), 0, 0.87962566),
    "glorot_uniform": (tf.glorot_uniform_initializer(), 0, (2 / 700) ** 0.5),
    "glorot_normal": (tf.glorot_normal_initializer(), 0, (2 / 700) ** 0.5),
    "he_normal": (tf.initializers.he_normal(), 0, (2 / 400) ** 0.5),
    "lecun_uniform": (tf.initializers.lecun_uniform(), 0, (1 / 400) ** 0.5),
    "xavier": (tf.contrib.layers.xavier_initializer(), 0, (2 / 700) ** 0.5),
    "fan_out": (
        tf.variance_scaling_initializer(3.0, "fan_out", "untruncated_normal"),
        0, (3 / 300) ** 0.5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STARTS)
def test_initializers_have_their_mean_and_deviation(session, name):
    initializer, mean, deviation = STARTS[name]
    found = session.run(initializer(LARGE))
    np.testing.assert_allclose(found.mean(), mean, atol=0.02)
    np.testing.assert_allclose(found.std(), deviation, rtol=0.02)


def test_orthogonal_and_constant_initializers(session):
    for shape in ((5, 3), (3, 5), (2, 2, 3)):
        q = session.run(tf.orthogonal_initializer(2.0)(shape)).reshape(-1, shape[-1])
        small = q.T @ q if q.shape[0] >= q.shape[1] else q @ q.T
        np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-4)
    found = session.run(tf.constant_initializer([1.0, 2.0, 3.0])([2, 2]))
    np.testing.assert_array_equal(found, [[1, 2], [3, 3]])
    with pytest.raises(ArgumentError, match="3 values do not fit"):
        tf.constant_initializer([1, 2, 3])([2])
    with pytest.raises(ArgumentError, match="fan_in"):
        tf.variance_scaling_initializer(mode="fan")


def test_initializers_may_be_classes_and_functions(start):
    a = tf.get_variable("a", [2], initializer=tf.zeros_initializer)
    b = tf.get_variable(
        "b", [2], initializer=lambda shape, dtype: tf.ones(shape, dtype)
    )
    found = start().run([a, b])
    np.testing.assert_array_equal(found, [[0, 0], [1, 1]])
