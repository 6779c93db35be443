"""Layers, their variables' names and sharing, and batch normalization's updates."""

import itertools

import numpy as np
import pytest

from weft import static as tf
from weft.errors import ArgumentError, ShapeError

RANDOM = np.random.default_rng(1)


def array(*shape):
    return RANDOM.normal(size=shape).astype("f")


def window(x, size, step, same, fill=0.0):
    """(places, window, channels) of an image by loops: TensorFlow's definition."""
    h, w, _ = x.shape
    counts, pads = [], []
    for n in (h, w):
        out = -(-n // step) if same else -(-(n - size + 1) // step)
        total = max((out - 1) * step + size - n, 0) if same else 0
        counts.append(out)
        pads.append((total // 2, total - total // 2))
    wide = np.pad(x, [*pads, (0, 0)], constant_values=fill)
    blocks = [
        wide[i * step : i * step + size, j * step : j * step + size]
        for i, j in itertools.product(*map(range, counts))
    ]
    return np.stack(blocks).reshape(*counts, size, size, -1)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_convolution_and_pools(start, padding, step):
    image = array(7, 8, 3)
    x = tf.placeholder(tf.float32, [1, 7, 8, 3])
    layer = tf.layers.Conv2D(4, 3, step, padding)
    nodes = [
        layer(x),
        tf.layers.max_pooling2d(x, 3, step, padding),
        tf.layers.average_pooling2d(x, 3, step, padding),
    ]
    session = start()
    kernel = session.run(layer.kernel)
    same = padding == "same"
    blocks = window(image, 3, step, same)
    inside = window(np.ones_like(image), 3, step, same)
    expected = [
        np.einsum("hwabc,abco->hwo", blocks, kernel),
        window(image, 3, step, same, -np.inf).max((2, 3)),
        blocks.sum((2, 3)) / inside.sum((2, 3)),
    ]
    for found, want in zip(session.run(nodes, {x: image[None]}), expected, strict=True):
        np.testing.assert_allclose(found[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_images_of_any_size(start, step):
    x = tf.placeholder(tf.float32, [None, None, None, 3])
    layer = tf.layers.Conv2D(4, 3, step, "same")
    nodes = [layer(x), tf.layers.max_pooling2d(x, 3, step, "same")]
    session = start()
    kernel = session.run(layer.kernel)
    for size in ((7, 8), (5, 9), (6, 6)):
        image = array(*size, 3)
        found = session.run(nodes, {x: image[None]})
        blocks = window(image, 3, step, True)
        want = np.einsum("hwabc,abco->hwo", blocks, kernel)
        np.testing.assert_allclose(found[0][0], want, rtol=1e-4, atol=1e-5)
        largest = window(image, 3, step, True, -np.inf).max((2, 3))
        np.testing.assert_array_equal(found[1][0], largest)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_transposed_convolution_is_the_gradient_of_one(start, padding, step):
    layer = tf.layers.Conv2DTranspose(2, 3, step, padding, use_bias=False)
    small = tf.constant(array(1, 4, 5, 3))
    large = layer(small)
    # by definition: <conv(x, w), y> = <x, transposed(y, w)>
    x = tf.constant(array(*large.get_shape()))
    down = tf.nn.conv2d(x, layer.kernel, [1, step, step, 1], padding.upper())
    sums = [tf.reduce_sum(down * small), tf.reduce_sum(x * large)]
    left, right = start().run(sums)
    np.testing.assert_allclose(left, right, rtol=1e-4)
    assert large.get_shape()[1] == 4 * step + (
        0 if padding == "same" else max(3 - step, 0)
    )


def test_separable_convolution(start):
    x = tf.constant(array(1, 5, 5, 2))
    layer = tf.layers.SeparableConv2D(3, 3, depth_multiplier=2)
    y = layer(x)
    session = start()
    image, deep, mix, out = session.run(
        [x, layer.depthwise_kernel, layer.pointwise_kernel, y]
    )
    each = np.einsum("hwabc,abcm->hwcm", window(image[0], 3, 1, False), deep)
    want = each.reshape(3, 3, 4) @ mix[0, 0]
    np.testing.assert_allclose(out[0], want, rtol=1e-4, atol=1e-5)


def test_channels_first(start):
    image = array(1, 6, 6, 3)
    last = tf.layers.Conv2D(4, 3, padding="same", name="conv")
    a = last(tf.constant(image))
    first = tf.layers.conv2d(
        tf.constant(image.transpose(0, 3, 1, 2)), 4, 3, padding="same",
        data_format="channels_first", name="conv", reuse=True,
    )  # fmt: skip
    one, two = start().run([a, first])
    np.testing.assert_allclose(one.transpose(0, 3, 1, 2), two, rtol=1e-5, atol=1e-6)


def test_names_and_sharing(graph):
    x = tf.placeholder(tf.float32, [None, 3])
    tf.layers.dense(x, 4)
    tf.layers.dense(x, 4)
    tf.layers.dense(x, 5, name="head")
    tf.layers.dense(x, 5, name="head", reuse=True)
    with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
        tf.layers.dense(x, 2, use_bias=False)
    with tf.variable_scope("net", reuse=True):
        tf.layers.dense(x, 2, use_bias=False)
    assert [v.name for v in tf.trainable_variables()] == [
        "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias", "head/kernel",
        "head/bias", "net/dense/kernel",
    ]  # fmt: skip
    with pytest.raises(ArgumentError, match="'head/kernel' already"):
        tf.layers.dense(x, 5, name="head")
    layer = tf.layers.Dense(4, tf.nn.relu)
    layer(x)
    layer(x)
    assert len(layer.variables) == 2
    assert layer.name == "dense_2"


def test_initializers_regularizers_and_constraints(start):
    x = tf.constant(array(2, 3))
    y = tf.layers.dense(
        x, 4, kernel_initializer=tf.constant_initializer(2.0),
        bias_initializer=tf.ones_initializer(), activation=tf.nn.relu,
        kernel_regularizer=tf.contrib.layers.l2_regularizer(0.5),
        kernel_constraint=lambda w: tf.clip_by_value(w, 0.0, 1.0),
    )  # fmt: skip
    step = tf.train.GradientDescentOptimizer(0.0).minimize(tf.reduce_sum(y))
    session = start()
    given, found = session.run([x, y])
    want = np.maximum(given.sum(1, keepdims=True) * 2 + 1, 0)
    np.testing.assert_allclose(found, np.repeat(want, 4, 1), rtol=1e-5)
    assert session.run(tf.losses.get_regularization_loss()) == 0.5 * 0.5 * 12 * 4
    session.run(step)
    assert (session.run(tf.trainable_variables()[0]) == 1).all()


@pytest.mark.parametrize("flag", ["bool", "node"])
def test_batch_normalization_and_its_updates(start, flag):
    rows = array(8, 3) * 2 + 1
    x = tf.placeholder(tf.float32, [None, 3])
    training = True if flag == "bool" else tf.placeholder(tf.bool, [])
    y = tf.layers.batch_normalization(x, training=training, momentum=0.9)
    feeds = {x: rows} if flag == "bool" else {x: rows, training: True}
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        step = tf.no_op()
    session = start()
    mean, variance = rows.mean(0), rows.var(0)
    want = (rows - mean) / np.sqrt(variance + 1e-3)
    np.testing.assert_allclose(session.run(y, feeds), want, rtol=1e-4, atol=1e-5)
    session.run(step, feeds)
    moving = {v.name.rpartition("/")[2]: session.run(v) for v in tf.global_variables()}
    np.testing.assert_allclose(moving["moving_mean"], 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(
        moving["moving_variance"], 0.9 + 0.1 * variance, rtol=1e-5
    )
    if flag == "node":
        still = session.run(y, {x: rows, training: False})
        want = (rows - 0.1 * mean) / np.sqrt(moving["moving_variance"] + 1e-3)
        np.testing.assert_allclose(still, want, rtol=1e-4, atol=1e-5)
        session.run(step, {x: rows, training: False})
        np.testing.assert_array_equal(
            session.run("batch_normalization/moving_mean"), moving["moving_mean"]
        )


def test_batch_normalization_of_images_moves_by_an_estimate(start):
    image = array(2, 3, 3, 2)
    tf.layers.batch_normalization(tf.constant(image), training=True, momentum=0.0)
    session = start()
    session.run(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
    found = session.run("batch_normalization/moving_variance")
    np.testing.assert_allclose(found, image.var((0, 1, 2), ddof=1), rtol=1e-4)


def test_dropout_of_layers(start):
    x = tf.constant(np.ones((4, 500), "f"))
    flag = tf.placeholder(tf.bool, [])
    y = tf.layers.dropout(x, 0.25, training=flag)
    whole = tf.nn.dropout(x, 0.5, noise_shape=[4, 1])
    session = start()
    assert (session.run(y, {flag: False}) == 1).all()
    dropped = session.run(y, {flag: True})
    assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)}
    assert abs((dropped == 0).mean() - 0.25) < 0.05
    assert (session.run(whole).std(1) == 0).all()
    with pytest.raises(ArgumentError, match="keep_prob"):
        tf.nn.dropout(x)
    with pytest.raises(ArgumentError, match="above 0"):
        tf.nn.dropout(x, keep_prob=0.0)


def test_a_layer_must_know_its_channels(graph):
    x = tf.placeholder(tf.float32, [2, None])
    with pytest.raises(ShapeError, match="dense: the number of channels"):
        tf.layers.dense(x, 3)
    with pytest.raises(ShapeError, match="4 axes"):
        tf.nn.conv2d(x, array(3, 3, 1, 1), [1, 1, 1, 1], "SAME")
    with pytest.raises(ArgumentError, match="data_format"):
        tf.nn.max_pool(array(1, 2, 2, 1), 2, 2, "SAME", "HWNC")
    with pytest.raises(ArgumentError, match="'SAME' or 'VALID'"):
        tf.nn.max_pool(array(1, 2, 2, 1), 2, 2, "FULL")


def test_contrib_layers(start):
    x = tf.constant(array(2, 6, 6, 3))
    h = tf.contrib.layers.conv2d(x, 4, 3, scope="c")
    h = tf.contrib.layers.max_pool2d(h, 2)
    h = tf.contrib.layers.fully_connected(tf.contrib.layers.flatten(h), 5)
    assert [v.name for v in tf.trainable_variables()] == [
        "c/weights", "c/biases", "fully_connected/weights", "fully_connected/biases",
    ]  # fmt: skip
    assert start().run(h).shape == (2, 5)


# -- losses

TRUTH, GUESS = array(4, 3), array(4, 3)
ONES = (array(4, 3) > 0).astype("f")
WEIGHTS = np.array([[1.0], [0.0], [2.0], [1.0]], "f")
REDUCED = {
    "NONE": lambda x, w: x * w,
    "SUM": lambda x, w: (x * w).sum(),
    "MEAN": lambda x, w: (x * w).sum() / w.sum(),
    "SUM_OVER_BATCH_SIZE": lambda x, w: (x * w).mean(),
    "SUM_BY_NONZERO_WEIGHTS": lambda x, w: (x * w).sum() / (w != 0).sum(),
}


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


LOSSES = {
    "mean_squared_error": (TRUTH, GUESS, (TRUTH - GUESS) ** 2),
    "absolute_difference": (TRUTH, GUESS, abs(TRUTH - GUESS)),
    "hinge_loss": (ONES, GUESS, np.maximum(0, 1 - (2 * ONES - 1) * GUESS)),
    "huber_loss": (TRUTH, GUESS, np.where(
        abs(TRUTH - GUESS) <= 1, (TRUTH - GUESS) ** 2 / 2, abs(TRUTH - GUESS) - 0.5)),
    "log_loss": (ONES, softmax(GUESS), -np.where(
        ONES > 0, np.log(softmax(GUESS)), np.log(1 - softmax(GUESS)))),
    "sigmoid_cross_entropy": (
        ONES, GUESS, np.log1p(np.exp(-GUESS)) + (1 - ONES) * GUESS),
}  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCED)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_reductions(session, name, reduction):
    labels, guesses, each = LOSSES[name]
    kind = getattr(tf.losses.Reduction, reduction)
    found = getattr(tf.losses, name)(labels, guesses, weights=WEIGHTS, reduction=kind)
    want = REDUCED[reduction](each, WEIGHTS + 0 * each)
    np.testing.assert_allclose(session.run(found), want, rtol=2e-5, atol=1e-6)
    assert tf.losses.get_losses() == [found]


def test_cross_entropies_of_classes(session):
    ids = np.array([2, 0, 1, 1])
    want = -np.log(softmax(GUESS))[np.arange(4), ids]
    hot = np.eye(3, dtype="f")[ids]
    smooth = -(np.log(softmax(GUESS)) * (hot * 0.9 + 0.1 / 3)).sum(1)
    nodes = [
        tf.losses.sparse_softmax_cross_entropy(ids, GUESS),
        tf.losses.sparse_softmax_cross_entropy(ids[:, None], GUESS),
        tf.losses.softmax_cross_entropy(hot, GUESS),
        tf.losses.softmax_cross_entropy(hot, GUESS, label_smoothing=0.1),
        tf.losses.get_total_loss(),
    ]
    *found, total = session.run(nodes)
    each = [want.mean()] * 3 + [smooth.mean()]
    np.testing.assert_allclose(found, each, rtol=1e-5)
    np.testing.assert_allclose(total, sum(each), rtol=1e-5)


def test_losses_refuse_shapes_that_do_not_fit(graph):
    with pytest.raises(ShapeError, match="labels have shape"):
        tf.losses.mean_squared_error(TRUTH[:, 0], GUESS)
    with pytest.raises(ShapeError, match="weights"):
        tf.losses.mean_squared_error(TRUTH, GUESS, weights=[1.0, 2.0, 3.0])
    with pytest.raises(ArgumentError, match="reduction"):
        tf.losses.mean_squared_error(TRUTH, GUESS, reduction="mean")


def test_no_weights_are_no_loss(session):
    assert session.run(tf.losses.mean_squared_error(TRUTH, GUESS, weights=0.0)) == 0


def test_losses_with_drawn_classes(session):
    w, b = array(9, 3), array(9)
    ids = np.array([[4], [1], [0], [2]])
    drawn = (
        np.array([4, 1, 7]),
        np.full((4, 1), 0.3, "f"),
        np.array([0.2, 0.5, 0.1], "f"),
    )
    true = (GUESS * w[ids[:, 0]]).sum(1) + b[ids[:, 0]] - np.log(0.3)
    other = GUESS @ w[drawn[0]].T + b[drawn[0]] - np.log(drawn[2])
    nce = np.log1p(np.exp(-true)) + np.log1p(np.exp(other)).sum(1)
    other = np.where(ids == drawn[0], -np.inf, other)
    sampled = -np.log(softmax(np.column_stack([true, other]))[:, 0])
    given = (w, b, ids, GUESS, 3, 9)
    found = session.run([
        tf.nn.nce_loss(*given, sampled_values=drawn),
        tf.nn.sampled_softmax_loss(*given, sampled_values=drawn),
    ])  # fmt: skip
    np.testing.assert_allclose(found, [nce, sampled], rtol=1e-4)


def test_drawn_classes_are_as_common_as_is_expected(session):
    ids, _, counts = tf.nn.log_uniform_candidate_sampler([[0]], 1, 4, True, 12)
    runs = [session.run([ids, counts]) for _ in range(400)]
    assert all(len(set(row)) == 4 for row, _ in runs)
    seen, told = np.zeros(12), np.zeros(12)
    for row, expected in runs:
        seen[row] += 1
        told[row] += (
            1 / expected
        )  # how often 1/p is drawn is as often as there are runs
    np.testing.assert_allclose(told / 400, 1, atol=0.35)
    assert (np.diff(seen[[0, 3, 8]]) < 0).all()
    with pytest.raises(ArgumentError, match="5 different classes of 3"):
        tf.nn.uniform_candidate_sampler([[0]], 1, 5, True, 3)
