"""Mistakes have one error, from compiled sessions and from interpreted ones."""

import numpy as np
import pytest

import weft
from weft import static as tf
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.graph.ir import GraphError


@pytest.fixture(scope="module")
def parts():
    """A graph, and its nodes by name."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(weft.float32, [None, 3], name="x")
        i = tf.placeholder(weft.int32, [2], name="i")
        ids = tf.placeholder(weft.int64, [None], name="ids")
        w = tf.Variable(np.ones(3, "f"), name="w")
        empty = tf.Variable(1.0, name="empty")
        up = w.assign(w * 2, name="up")
        with tf.control_dependencies([up]):
            later = tf.gather(tf.identity(w.read_value()), ids)
        log = tf.check_numerics(tf.log(tf.reduce_min(x)), "loss")
        return {
            "graph": graph, "x": x, "i": i, "ids": ids, "w": w, "up": up,
            "y": tf.reduce_sum(x * w), "read": empty + 1, "log": log,
            "picked": tf.gather(w, ids), "later": later, "twice": i * 2,
            "loop": tf.while_loop(lambda k: k >= 0, lambda k: [k + 1], [ids[0]]),
            "start": w.initializer,
        }  # fmt: skip


FEED = np.ones((2, 3))
MISTAKES = [  # fetches, feeds, error, text
    ("y", {"x": np.ones(3)}, ShapeError, r"feed of 'x': expected float32\[x_0, 3\]"),
    ("y", {"x": np.ones((2, 4))}, ShapeError, r"feed of 'x'.*got shape \(2, 4\)"),
    ("y", {"x": [["a"] * 3]}, DTypeError, "feed of 'x'.*convert them first"),
    ("y", {"x": FEED * 1j}, DTypeError, "feed of 'x'.*got complex128"),
    ("twice", {"i": [1.5, 2.0]}, DTypeError, "feed of 'i'.*such as 1.5"),
    ("y", {"no_such": 1}, GraphError, "no node named 'no_such'"),
    ("y", {}, ArgumentError, "placeholder 'x' .* must be fed"),
    ("read", {}, ArgumentError, "variable 'empty' is read before it has a value"),
    ("loop", {"ids": [0]}, ArgumentError, "still holds after 50 steps"),
    ("picked", {"ids": [0, 7]}, OutOfRangeError, r"index 7 at position \(1,\)"),
    ("later", {"ids": [-9]}, OutOfRangeError, "index -9"),
    ("log", {"x": FEED - 1}, ArgumentError, "loss: the value has NaN or infinity"),
]


@pytest.mark.parametrize(("fetch", "feeds", "error", "text"), MISTAKES)
def test_both_kinds_of_session_say_the_same_and_change_nothing(
    parts, fetch, feeds, error, text
):
    said = []
    for compiled in (True, False):
        with tf.Session(parts["graph"], compiled=compiled, loop_limit=50) as session:
            session.run(parts["start"])
            named = {parts.get(k, k): v for k, v in feeds.items()}
            with pytest.raises(error, match=text) as raised:
                session.run([parts["up"], parts[fetch]], named)
            said.append(str(raised.value))
            assert session.run(parts["w"]).tolist() == [1, 1, 1]
            assert session.run(parts["y"], {parts["x"]: FEED}) == 6
    assert said[0] == said[1]
    built = error is not GraphError  # a name that is nowhere was made nowhere
    assert not built or f"{__file__}:" in said[0]


def test_sides_of_a_branch_that_differ_and_loops_that_change_a_type(graph):
    x = tf.placeholder(weft.float32, [2])
    for other in (lambda: x[:1], lambda: tf.cast(x, weft.int32)):
        with pytest.raises(weft.errors.WeftError, match=r"cond.*float32\[2\]"):
            tf.cond(x[0] > 0, lambda: x, other)
    with pytest.raises(DTypeError, match=r"while_loop.*must agree in shape and dtype"):
        tf.while_loop(lambda v: v[0] < 3, lambda v: tf.concat([v, v], 0), [x])
