"""Functions under TensorFlow's names agree with NumPy's, or with their definitions."""

import math

import numpy as np
import pytest

import weft
from weft import static as tf
from weft.errors import ArgumentError, ShapeError

RANDOM = np.random.default_rng(0)
X, Y = (RANDOM.normal(size=(4, 6)).astype("f") for _ in range(2))
M = RANDOM.normal(size=(3, 3)).astype("f")
S = M @ M.T + 3 * np.eye(3, dtype="f")
ROWS = np.array([2, 0, 1, 2])
gamma = np.vectorize(math.lgamma)

CASES = {
    "acos": (lambda: tf.acos(X / 4), np.arccos(X / 4)),
    "asinh": (lambda: tf.asinh(X), np.arcsinh(X)),
    "lgamma": (lambda: tf.lgamma(abs(X) + 1), gamma(abs(X) + 1)),
    "rint to even": (lambda: tf.rint([0.5, 1.5, 2.5]), [0, 2, 2]),
    "is_nan": (lambda: tf.is_nan([1.0, np.nan]), [False, True]),
    "div of whole numbers": (lambda: tf.div([7, -7], [2, 2]), [3, -4]),
    "div of floats": (lambda: tf.div([7.0], [2.0]), [3.5]),
    "div_no_nan": (lambda: tf.div_no_nan([1.0, 1.0], [2.0, 0.0]), [0.5, 0]),
    "truncatemod": (lambda: tf.truncatemod([-7.0], [4.0]), [-3]),
    "floormod": (lambda: tf.floormod([-7.0], [4.0]), [1]),
    "squared_difference": (lambda: tf.squared_difference(X, Y), (X - Y) ** 2),
    "reduce_logsumexp": (
        lambda: tf.reduce_logsumexp(X, 1),
        np.log(np.exp(X.astype("d")).sum(1)),
    ),
    "reduce_std": (lambda: tf.reduce_std(X, 0), X.std(0)),
    "reduction_indices": (
        lambda: tf.reduce_sum(X, reduction_indices=[1], keep_dims=True),
        X.sum(1, keepdims=True),
    ),
    "shape": (lambda: tf.shape(X), [4, 6]),
    "size": (lambda: tf.size(X), 24),
    "rank": (lambda: tf.rank(X), 2),
    "tile": (lambda: tf.tile(X, [2, 3]), np.tile(X, (2, 3))),
    "pad": (lambda: tf.pad(X, [[1, 2], [0, 3]]), np.pad(X, [[1, 2], [0, 3]])),
    "pad reflect": (
        lambda: tf.pad(X, [[1, 2], [2, 0]], "REFLECT"),
        np.pad(X, [[1, 2], [2, 0]], "reflect"),
    ),
    "pad symmetric": (
        lambda: tf.pad(X, [[1, 2], [2, 0]], "SYMMETRIC"),
        np.pad(X, [[1, 2], [2, 0]], "symmetric"),
    ),
    "slice": (lambda: tf.slice(X, [1, 2], [2, -1]), X[1:3, 2:]),
    "strided_slice": (
        lambda: tf.strided_slice(X, [1, 0], [2, 6], [1, 2], shrink_axis_mask=1),
        X[1, ::2],
    ),
    "reverse": (lambda: tf.reverse(X, [1]), X[:, ::-1]),
    "sequence_mask": (
        lambda: tf.sequence_mask([1, 3], 3, tf.float32),
        [[1, 0, 0], [1, 1, 1]],
    ),
    "one_hot outside": (lambda: tf.one_hot([0, 5, -1], 2), [[1, 0], [0, 0], [0, 0]]),
    "one_hot axis": (lambda: tf.one_hot(ROWS, 3, axis=0), np.eye(3)[ROWS].T),
    "one_hot values": (lambda: tf.one_hot([1], 2, 5.0, -1.0), [[-1, 5]]),
    "where of rows": (
        lambda: tf.where([True, False, True, False], X, Y),
        np.where(np.array([True, False, True, False])[:, None], X, Y),
    ),
    "where of square": (
        lambda: tf.where([True, False, True], M, S),
        np.where(np.array([True, False, True])[:, None], M, S),
    ),
    "gather axis": (lambda: tf.gather(X, ROWS, axis=1), X[:, ROWS]),
    "gather_nd": (lambda: tf.gather_nd(X, [[0, 1], [2, 3]]), X[[0, 2], [1, 3]]),
    "gather_nd rows": (lambda: tf.gather_nd(X, [[0], [2]]), X[[0, 2]]),
    "scatter_nd": (
        lambda: tf.scatter_nd([[0, 1], [0, 1]], [1.0, 2.0], [2, 2]),
        [[0, 3], [0, 0]],
    ),
    "argmin": (lambda: tf.argmin(X, 1), X.argmin(1)),
    "sort": (lambda: tf.sort(X, 0, "DESCENDING"), -np.sort(-X, 0)),
    "argsort": (lambda: tf.argsort(X), X.argsort(-1)),
    "cumsum exclusive": (
        lambda: tf.cumsum(X, 1, exclusive=True),
        np.cumsum(X, 1) - X,
    ),
    "cumsum reverse": (
        lambda: tf.cumsum(X, 1, reverse=True),
        np.cumsum(X[:, ::-1], 1)[:, ::-1],
    ),
    "cumprod": (lambda: tf.cumprod(X, 1), np.cumprod(X, 1)),
    "fill": (lambda: tf.fill([2, 3], 5.0), np.full((2, 3), 5.0)),
    "range": (lambda: tf.range(2, 9, 3), [2, 5, 8]),
    "linspace": (lambda: tf.linspace(1.0, 2.0, 5), np.linspace(1, 2, 5)),
    "linspace of one": (lambda: tf.linspace(1.0, 2.0, 1), [1]),
    "eye": (lambda: tf.eye(2, 3, batch_shape=[4]), np.stack([np.eye(2, 3)] * 4)),
    "meshgrid": (
        lambda: tf.meshgrid([1, 2], [3, 4, 5])[1],
        np.meshgrid([1, 2], [3, 4, 5])[1],
    ),
    "matrix_inverse": (lambda: tf.matrix_inverse(S), np.linalg.inv(S)),
    "matrix_determinant": (lambda: tf.matrix_determinant(S), np.linalg.det(S)),
    "cholesky": (lambda: tf.cholesky(S), np.linalg.cholesky(S)),
    "trace": (lambda: tf.trace([S, M]), [np.trace(S), np.trace(M)]),
    "diag": (lambda: tf.diag([1.0, 2.0]), np.diag([1, 2])),
    "matrix_solve": (lambda: tf.matrix_solve(S, M), np.linalg.solve(S, M)),
    "norm": (lambda: tf.norm(X, axis=1), np.linalg.norm(X, axis=1)),
    "norm by columns": (lambda: tf.norm(M, 1, [0, 1]), np.linalg.norm(M, 1)),
    "tensordot": (lambda: tf.tensordot(X, Y, [[1], [1]]), X @ Y.T),
    "band": (lambda: tf.matrix_band_part(S, 0, -1), np.triu(S)),
    "segment sum": (
        lambda: tf.unsorted_segment_sum(X, [0, 2, 0, -1], 4),
        [X[0] + X[2], X[0] * 0, X[1], X[0] * 0],
    ),
    "segment max": (
        lambda: tf.unsorted_segment_max(X, [0, 1, 0, 1], 2),
        [np.maximum(X[0], X[2]), np.maximum(X[1], X[3])],
    ),
    "segment mean": (
        lambda: tf.unsorted_segment_mean(X, [0, 1, 0, 1], 2),
        [(X[0] + X[2]) / 2, (X[1] + X[3]) / 2],
    ),
    "histogram": (
        lambda: tf.histogram_fixed_width(X, [-1.0, 1.0], 4),
        np.histogram(np.clip(X, -1, 0.999), 4, (-1, 1))[0],
    ),
    "bincount": (
        lambda: tf.bincount([1, 1, 3, 9], minlength=4, maxlength=4),
        [0, 2, 0, 1],
    ),
    "confusion_matrix": (
        lambda: tf.confusion_matrix([0, 1, 1], [0, 0, 1], 2, weights=[1, 2, 3]),
        [[1, 0], [2, 3]],
    ),
    "clip_by_norm": (lambda: tf.clip_by_norm(X, 1.0), X / np.linalg.norm(X)),
    "clip_by_norm short": (lambda: tf.clip_by_norm(X, 99.0), X),
    "clip_by_norm zero": (lambda: tf.clip_by_norm([0.0, 0.0], 1.0), [0, 0]),
    "global_norm": (
        lambda: tf.global_norm([X, None, Y]),
        np.sqrt((X**2).sum() + (Y**2).sum()),
    ),
    "saturate_cast": (lambda: tf.saturate_cast([300.0, -5.0], tf.uint8), [255, 0]),
    "nodes in a list": (
        lambda: tf.reduce_sum([tf.constant(1.0), tf.constant(2.0)]),
        3,
    ),
    "top_k": (lambda: tf.nn.top_k(X, 2).indices, (-X).argsort(1)[:, :2]),
    "in_top_k": (lambda: tf.nn.in_top_k([[1.0, 3.0, 2.0]], [2], 2), [True]),
    "l2_normalize": (
        lambda: tf.nn.l2_normalize(X, 1),
        X / np.linalg.norm(X, axis=1, keepdims=True),
    ),
    "weighted cross entropy": (
        lambda: tf.nn.weighted_cross_entropy_with_logits(X > 0, Y, 2.0),
        np.where(X > 0, 2 * np.log1p(np.exp(-Y)), np.log1p(np.exp(Y))),
    ),
    "lrn": (
        lambda: tf.nn.lrn(X[None, None], 1, 2.0, 0.5, 0.75),
        (X / (2 + 0.5 * sum(np.pad(X**2, [(0, 0), (1, 1)])[:, k : k + 6]
                            for k in range(3))) ** 0.75)[None, None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_numpy(name, session):
    build, expected = CASES[name]
    found = session.run(build())
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-6)


def test_parts_along_an_axis(session):
    for build, expected in (
        (tf.split(X, 3, 1), np.split(X, 3, 1)),
        (tf.split(X, [1, -1], 0), [X[:1], X[1:]]),
        (tf.unstack(X, axis=1), list(X.T)),
    ):
        for found, part in zip(session.run(build), expected, strict=True):
            np.testing.assert_array_equal(found, part)
    with pytest.raises(ShapeError, match="6 elements are not 4 equal parts"):
        tf.split(X, 4, 1)


def test_rows_reversed_up_to_their_lengths(session):
    found = session.run(tf.reverse_sequence([[1, 2, 3], [4, 5, 6]], [2, 0], 1, 0))
    np.testing.assert_array_equal(found, [[2, 1, 3], [4, 5, 6]])


def test_rows_of_a_variable_change(start):
    w = tf.Variable(np.zeros((3, 2), "f"))
    changes = [
        tf.scatter_update(w, [0, 2], [[1.0, 2.0], [3.0, 4.0]]),
        tf.scatter_add(w, [2, 2], [[1.0, 1.0], [1.0, 1.0]]),
        tf.scatter_sub(w, 0, [1.0, 1.0]),
    ]
    session = start()
    for change in changes:
        found = session.run(change)
    np.testing.assert_array_equal(found, [[0, 1], [0, 0], [5, 6]])
    np.testing.assert_array_equal(session.run(w), found)


def test_a_segment_that_is_not_there_is_an_error(session):
    with pytest.raises(weft.errors.WeftError):
        session.run(tf.unsorted_segment_sum(X, [0, 1, 2, 4], 4))


def test_clipping_together(session):
    parts, norm = tf.clip_by_global_norm([X, None, Y], 1.0)
    assert parts[1] is None
    (x, y), before = session.run([[parts[0], parts[2]], norm])
    np.testing.assert_allclose(np.sqrt((x**2).sum() + (y**2).sum()), 1, rtol=1e-5)
    np.testing.assert_allclose(x / X, 1 / before, rtol=1e-4)
    (bad, *_), _ = tf.clip_by_global_norm([np.array([np.inf], "f")], 1.0)
    assert np.isnan(session.run(bad)).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: tf.boolean_mask(X, X > 0), "boolean_mask.*where"),
        (lambda: tf.where(X > 0), "where: expected x and y"),
        (lambda: tf.unique([1]), "unique.*numpy"),
        (lambda: tf.sequence_mask([1, 2]), "maxlen"),
        (lambda: tf.confusion_matrix([1], [1]), "num_classes"),
        (lambda: tf.bincount([1], minlength=1), "minlength and maxlength"),
        (lambda: tf.range(tf.placeholder(tf.int32, [])), "expected sizes"),
        (lambda: tf.pad(X, [[1, 1], [1, 1]], "WRAP"), "mode"),
        (lambda: tf.sort(X, 0, "UP"), "ASCENDING"),
    ],
)
def test_what_cannot_be_says_what_can(graph, call, says):
    with pytest.raises(ArgumentError, match=says):
        call()


def test_sums_of_different_shapes_are_refused(graph):
    with pytest.raises(ShapeError, match="add_n"):
        tf.add_n([tf.constant([1.0]), tf.constant(1.0)])


def test_shapes_are_sizes_of_results(session):
    x = tf.placeholder(tf.float32, [None, 3])
    n = tf.shape(x)[0]
    nodes = [
        tf.zeros([n, 2]),
        tf.fill(tf.stack([n, 2]), 1.0),
        tf.reshape(x, [n * 3]),
        tf.random_normal(tf.shape(x)),
        tf.ones(tf.shape(x)[1:]),
        tf.range(tf.size(x)),
        tf.tile(tf.constant([1.0]), [n]),
    ]
    shapes = [(5, 2), (5, 2), (15,), (5, 3), (3,), (15,), (5,)]
    found = session.run(nodes, {x: np.ones((5, 3), "f")})
    assert [value.shape for value in found] == shapes


def test_random_nodes_inside_a_loop_differ_from_step_to_step(session):
    drawn = tf.map_fn(lambda v: v + tf.random_uniform([4]), tf.zeros([3]))
    rows = session.run(drawn)
    assert len({tuple(row) for row in rows}) == 3


def test_whole_random_numbers(session):
    drawn = session.run(tf.random_uniform([200], 2, 5, tf.int32))
    assert set(drawn.tolist()) == {2, 3, 4}
    assert drawn.dtype == np.int32


def test_drawing_classes(session):
    chances = np.array([[0.2, 0.8], [0.9, 0.1]])
    drawn = session.run(tf.multinomial(np.log(chances), 4000))
    np.testing.assert_allclose(drawn.mean(1), chances[:, 1], atol=0.03)


def test_shuffling_keeps_rows_whole(session):
    x = tf.placeholder(tf.float32, [None, 2])
    rows = np.arange(40.0).reshape(20, 2)
    found = session.run(tf.random_shuffle(x), {x: rows})
    assert not np.array_equal(found, rows)
    np.testing.assert_array_equal(found[found[:, 0].argsort()], rows)
