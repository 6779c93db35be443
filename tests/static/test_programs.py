"""Programs as TensorFlow 1's tutorials and research code have them.

Each is written with TensorFlow's names alone, trains a little, and is held to a number
that NumPy, or the task itself, gives.
"""

import numpy as np
import pytest

import weft.static as tf

RANDOM = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def fresh_graph():
    RANDOM.bit_generator.state = np.random.default_rng(5).bit_generator.state
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        yield


def clusters(count=96, classes=3, width=4):
    """Points around a center for each class, and their classes."""
    labels = np.arange(count) % classes
    centers = np.random.default_rng(0).normal(size=(classes, width)) * 3
    points = centers[labels] + np.random.default_rng(1).normal(size=(count, width))
    return points.astype("f"), labels


def images(count=32, size=8):
    """Bright left or right halves, and which."""
    labels = np.arange(count) % 2
    pixels = np.random.default_rng(2).uniform(0, 0.3, (count, size, size, 1))
    for image, label in zip(pixels, labels, strict=True):
        image[:, size // 2 * label : size // 2 * (label + 1)] += 0.7
    return pixels.astype("f"), labels


def trained(session, step, feeds, runs):
    session.run(tf.global_variables_initializer())
    for _ in range(runs):
        session.run(step, feeds)


def test_linear_regression():
    xs = np.asarray([3.3, 4.4, 5.5, 6.71, 6.93, 4.168, 9.779, 6.182, 7.59, 2.167])
    ys = np.asarray([1.7, 2.76, 2.09, 3.19, 1.694, 1.573, 3.366, 2.596, 2.53, 1.221])
    X, Y = tf.placeholder("float"), tf.placeholder("float")
    W = tf.Variable(RANDOM.normal(), name="weight", dtype=tf.float32)
    b = tf.Variable(RANDOM.normal(), name="bias", dtype=tf.float32)
    pred = tf.add(tf.multiply(X, W), b)
    cost = tf.reduce_sum(tf.pow(pred - Y, 2)) / (2 * len(xs))
    optimizer = tf.train.GradientDescentOptimizer(0.02).minimize(cost)
    init = tf.global_variables_initializer()
    with tf.Session() as sess:
        sess.run(init)
        w0, b0 = sess.run([W, b])
        for _ in range(100):
            sess.run(optimizer, feed_dict={X: xs, Y: ys})
        found = sess.run([W, b])
    for _ in range(100):
        error = (w0 * xs + b0 - ys) / len(xs)
        w0, b0 = w0 - 0.02 * (error * xs).sum(), b0 - 0.02 * error.sum()
    np.testing.assert_allclose(found, [w0, b0], rtol=1e-3)


def test_logistic_regression():
    points, labels = clusters()
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.placeholder(tf.float32, [None, 3])
    W, b = tf.Variable(tf.zeros([4, 3])), tf.Variable(tf.zeros([3]))
    pred = tf.nn.softmax(tf.matmul(x, W) + b)
    cost = tf.reduce_mean(-tf.reduce_sum(y * tf.log(pred), reduction_indices=1))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(cost)
    correct = tf.equal(tf.argmax(pred, 1), tf.argmax(y, 1))
    accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
    feeds = {x: points, y: np.eye(3)[labels]}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(step, feeds)
        # one step from zero has a closed form
        want = 0.1 * points.T @ (np.eye(3)[labels] - 1 / 3) / len(points)
        np.testing.assert_allclose(sess.run(W), want, rtol=1e-4, atol=1e-6)
        for _ in range(150):
            sess.run(step, feeds)
        assert accuracy.eval(feeds) > 0.95


def test_multilayer_perceptron():
    points, labels = clusters()
    X = tf.placeholder("float", [None, 4])
    Y = tf.placeholder("float", [None, 3])
    weights = {
        "h1": tf.Variable(tf.random_normal([4, 16])),
        "out": tf.Variable(tf.random_normal([16, 3])),
    }
    biases = {
        "b1": tf.Variable(tf.random_normal([16])),
        "out": tf.Variable(tf.random_normal([3])),
    }
    layer = tf.nn.relu(tf.add(tf.matmul(X, weights["h1"]), biases["b1"]))
    logits = tf.matmul(layer, weights["out"]) + biases["out"]
    loss = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits(logits=logits, labels=Y)
    )
    step = tf.train.AdamOptimizer(learning_rate=0.05).minimize(loss)
    feeds = {X: points, Y: np.eye(3)[labels]}
    with tf.Session() as sess:
        trained(sess, step, feeds, 60)
        assert sess.run(loss, feeds) < 0.1


def conv_net(x, reuse, training):
    with tf.variable_scope("ConvNet", reuse=reuse):
        h = tf.layers.conv2d(x, 4, 3, activation=tf.nn.relu)
        h = tf.layers.max_pooling2d(h, 2, 2)
        h = tf.contrib.layers.flatten(h)
        h = tf.layers.dense(h, 16, activation=tf.nn.relu)
        h = tf.layers.dropout(h, rate=0.25, training=training)
        return tf.layers.dense(h, 2)


def test_convolutional_network_of_layers():
    pixels, labels = images()
    x = tf.placeholder(tf.float32, [None, 8, 8, 1])
    y = tf.placeholder(tf.int64, [None])
    train, test = conv_net(x, False, True), conv_net(x, True, False)
    assert len(tf.trainable_variables()) == 6
    loss = tf.losses.sparse_softmax_cross_entropy(y, train)
    step = tf.train.AdamOptimizer(0.01).minimize(loss)
    accuracy, update = tf.metrics.accuracy(y, tf.argmax(test, 1))
    feeds = {x: pixels, y: labels}
    with tf.Session() as sess:
        trained(sess, step, feeds, 40)
        sess.run(tf.local_variables_initializer())
        sess.run(update, feeds)
        assert sess.run(accuracy) == 1


def test_convolutional_network_of_operators():
    def conv2d(x, W, b, strides=1):
        x = tf.nn.conv2d(x, W, strides=[1, strides, strides, 1], padding="SAME")
        return tf.nn.relu(tf.nn.bias_add(x, b))

    def maxpool2d(x, k=2):
        return tf.nn.max_pool(
            x, ksize=[1, k, k, 1], strides=[1, k, k, 1], padding="SAME"
        )

    pixels, labels = images()
    X = tf.placeholder(tf.float32, [None, 64])
    Y = tf.placeholder(tf.float32, [None, 2])
    keep_prob = tf.placeholder(tf.float32)
    w1 = tf.Variable(tf.truncated_normal([5, 5, 1, 4], stddev=0.1))
    wd = tf.get_variable("wd", [4 * 4 * 4, 2])
    h = tf.reshape(X, shape=[-1, 8, 8, 1])
    h = maxpool2d(conv2d(h, w1, tf.Variable(tf.constant(0.1, shape=[4]))))
    h = tf.reshape(h, [-1, wd.get_shape().as_list()[0]])
    logits = tf.matmul(tf.nn.dropout(h, keep_prob), wd)
    loss = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits_v2(labels=Y, logits=logits)
    )
    step = tf.train.AdamOptimizer(0.01).minimize(loss)
    feeds = {X: pixels.reshape(-1, 64), Y: np.eye(2)[labels]}
    with tf.Session() as sess:
        trained(sess, step, {**feeds, keep_prob: 0.75}, 40)
        assert sess.run(loss, {**feeds, keep_prob: 1.0}) < 0.1


def test_autoencoder():
    points = RANDOM.normal(size=(64, 2)).astype("f") @ RANDOM.normal(size=(2, 8))
    x = tf.placeholder(tf.float32, [None, 8])
    code = tf.layers.dense(x, 2, name="encoder")
    y = tf.layers.dense(code, 8, name="decoder")
    cost = tf.losses.mean_squared_error(x, y)
    step = tf.train.RMSPropOptimizer(0.01).minimize(cost)
    with tf.Session() as sess:
        trained(sess, step, {x: points}, 400)
        assert sess.run(cost, {x: points}) < 0.02 * points.var()
        assert sess.run(code, {x: points}).shape == (64, 2)


def test_variational_autoencoder():
    points = (RANDOM.uniform(size=(32, 6)) > 0.5).astype("f")
    x = tf.placeholder(tf.float32, [None, 6])
    h = tf.layers.dense(x, 8, tf.nn.tanh)
    z_mean, z_std = tf.layers.dense(h, 2), tf.layers.dense(h, 2)
    eps = tf.random_normal(tf.shape(z_std), mean=0.0, stddev=1.0, name="epsilon")
    z = z_mean + tf.exp(z_std / 2) * eps
    out = tf.layers.dense(z, 6, tf.nn.sigmoid)
    told = x * tf.log(1e-10 + out) + (1 - x) * tf.log(1e-10 + 1 - out)
    divergence = 1 + z_std - tf.square(z_mean) - tf.exp(z_std)
    loss = tf.reduce_mean(-tf.reduce_sum(told, 1) - 0.5 * tf.reduce_sum(divergence, 1))
    step = tf.train.AdamOptimizer(0.05).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        before = np.mean([sess.run(loss, {x: points}) for _ in range(5)])
        for _ in range(100):
            sess.run(step, {x: points})
        assert sess.run(loss, {x: points}) < before - 0.3


def test_generative_adversarial_network():
    def generator(z):
        with tf.variable_scope("gen"):
            return tf.layers.dense(tf.layers.dense(z, 8, tf.nn.relu), 2)

    def discriminator(x, reuse=None):
        with tf.variable_scope("disc", reuse=reuse):
            return tf.layers.dense(tf.layers.dense(x, 8, tf.nn.leaky_relu), 1)

    real = tf.placeholder(tf.float32, [None, 2])
    z = tf.placeholder(tf.float32, [None, 3])
    fake = generator(z)
    d_real, d_fake = discriminator(real), discriminator(fake, True)
    cross = tf.nn.sigmoid_cross_entropy_with_logits
    d_loss = tf.reduce_mean(
        cross(logits=d_real, labels=tf.ones_like(d_real))
    ) + tf.reduce_mean(cross(logits=d_fake, labels=tf.zeros_like(d_fake)))
    g_loss = tf.reduce_mean(cross(logits=d_fake, labels=tf.ones_like(d_fake)))
    theta_d = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="disc")
    theta_g = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="gen")
    assert len(theta_d) == len(theta_g) == 4
    steps = [
        tf.train.AdamOptimizer(0.01).minimize(d_loss, var_list=theta_d),
        tf.train.AdamOptimizer(0.01).minimize(g_loss, var_list=theta_g),
    ]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        frozen = sess.run(theta_g)
        noise = RANDOM.normal(size=(16, 3))
        feeds = {real: RANDOM.normal(size=(16, 2)) + 4, z: noise}
        sess.run(steps[0], feeds)
        for before, after in zip(frozen, sess.run(theta_g), strict=True):
            np.testing.assert_array_equal(before, after)
        losses = [sess.run([d_loss, g_loss], feeds)]
        for step in steps:
            for _ in range(40):
                sess.run(step, feeds)
            losses.append(sess.run([d_loss, g_loss], feeds))
        told_apart, fooled = losses[1][0], losses[2][1]
        assert told_apart < 0.5 * losses[0][0]
        assert fooled < 0.5 * losses[1][1]


def test_deep_convolutional_gan_with_batch_normalization():
    training = tf.placeholder(tf.bool)
    z = tf.placeholder(tf.float32, [None, 4])
    with tf.variable_scope("generator"):
        h = tf.layers.dense(z, 2 * 2 * 8)
        h = tf.reshape(h, [-1, 2, 2, 8])
        h = tf.nn.relu(tf.layers.batch_normalization(h, training=training))
        h = tf.layers.conv2d_transpose(h, 4, 5, strides=2, padding="same")
        h = tf.nn.relu(tf.layers.batch_normalization(h, training=training))
        image = tf.nn.tanh(tf.layers.conv2d_transpose(h, 1, 5, 2, padding="same"))
    assert image.get_shape().as_list() == [None, 8, 8, 1]
    loss = tf.reduce_mean(tf.square(image - 0.5))
    update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS, scope="generator")
    assert len(update_ops) == 4
    with tf.control_dependencies(update_ops):
        step = tf.train.AdamOptimizer(0.02, beta1=0.5).minimize(loss)
    feeds = {z: RANDOM.normal(size=(8, 4)), training: True}
    with tf.Session() as sess:
        trained(sess, step, feeds, 30)
        assert sess.run(loss, feeds) < 0.1
        (mean,) = (v for v in tf.global_variables() if v.name.endswith(
            "batch_normalization/moving_mean"))  # fmt: skip
        assert (sess.run(mean) != 0).all()


def test_word2vec_with_noise_contrastive_estimation():
    words, width = 12, 4
    inputs = tf.placeholder(tf.int32, shape=[None])
    labels = tf.placeholder(tf.int32, shape=[None, 1])
    with tf.device("/cpu:0"):
        table = tf.Variable(tf.random_uniform([words, width], -1.0, 1.0))
        embed = tf.nn.embedding_lookup(table, inputs)
        weights = tf.Variable(tf.truncated_normal([words, width], stddev=0.5))
        biases = tf.Variable(tf.zeros([words]))
    loss = tf.reduce_mean(
        tf.nn.nce_loss(
            weights=weights, biases=biases, labels=labels, inputs=embed, num_sampled=4,
            num_classes=words,
        )
    )  # fmt: skip
    step = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
    norm = tf.sqrt(tf.reduce_sum(tf.square(table), 1, keepdims=True))
    normalized = table / norm
    alike = tf.matmul(normalized, normalized, transpose_b=True)
    # words of one half have the same contexts: one word of their own half
    given = RANDOM.integers(0, words, 200)
    context = np.where(given < words // 2, 0, words - 1)[:, None]
    with tf.Session() as sess:
        trained(sess, step, {inputs: given, labels: context}, 150)
        near = sess.run(alike)
        assert near[1, 2] > near[1, words - 2]


def sequences(count=32, steps=6):
    """Rows of plus and minus ones, and whether their sum is positive."""
    rows = RANDOM.choice([-1.0, 1.0], (count, steps, 1)).astype("f")
    return rows, (rows.sum((1, 2)) > 0).astype(int)


@pytest.mark.parametrize("cell", ["BasicLSTMCell", "GRUCell", "BasicRNNCell"])
def test_recurrent_network_of_rows_of_different_length(cell):
    rows, labels = sequences()
    lengths = np.full(len(rows), 6)
    x = tf.placeholder("float", [None, 6, 1])
    y = tf.placeholder("float", [None, 2])
    seqlen = tf.placeholder(tf.int32, [None])
    made = getattr(tf.contrib.rnn, cell)(8)
    outputs, _ = tf.nn.dynamic_rnn(made, x, dtype=tf.float32, sequence_length=seqlen)
    batch_size = tf.shape(outputs)[0]
    index = tf.range(0, batch_size) * 6 + tf.cast(seqlen - 1, tf.int64)
    last = tf.gather(tf.reshape(outputs, [-1, 8]), index)
    w = tf.Variable(tf.random_normal([8, 2]))
    pred = tf.matmul(last, w) + tf.Variable(tf.random_normal([2]))
    cost = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits_v2(logits=pred, labels=y)
    )
    step = tf.train.AdamOptimizer(0.05).minimize(cost)
    feeds = {x: rows, y: np.eye(2)[labels], seqlen: lengths}
    with tf.Session() as sess:
        trained(sess, step, feeds, 60)
        assert sess.run(cost, feeds) < 0.3


def test_recurrent_network_in_both_directions():
    rows, labels = sequences()
    X = tf.placeholder("float", [None, 6, 1])
    Y = tf.placeholder("float", [None, 2])
    x = tf.unstack(X, 6, 1)
    cells = [tf.nn.rnn_cell.BasicLSTMCell(4, forget_bias=1.0) for _ in range(2)]
    outputs, _, _ = tf.nn.static_bidirectional_rnn(*cells, x, dtype=tf.float32)
    logits = tf.layers.dense(outputs[-1], 2)
    loss = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits_v2(logits=logits, labels=Y)
    )
    optimizer = tf.train.AdamOptimizer(0.05)
    grads, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    grads, _ = tf.clip_by_global_norm(grads, 5.0)
    step = optimizer.apply_gradients(zip(grads, variables, strict=True))
    feeds = {X: rows, Y: np.eye(2)[labels]}
    with tf.Session() as sess:
        trained(sess, step, feeds, 60)
        assert sess.run(loss, feeds) < 0.3


def test_characters_with_a_stack_of_cells_and_a_state_that_is_carried_on():
    text = "abcabcabd" * 8
    chars = sorted(set(text))
    ids = np.array([chars.index(c) for c in text])
    batch, steps, size = 2, 6, 12
    inputs = tf.placeholder(tf.int32, [batch, steps])
    targets = tf.placeholder(tf.int32, [batch, steps])
    cell = tf.nn.rnn_cell.MultiRNNCell(
        [tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.BasicLSTMCell(size))
         for _ in range(2)], state_is_tuple=True,
    )  # fmt: skip
    first = cell.zero_state(batch, tf.float32)
    table = tf.get_variable("embedding", [len(chars), size])
    outputs, last = tf.nn.dynamic_rnn(
        cell, tf.nn.embedding_lookup(table, inputs), initial_state=first
    )
    logits = tf.layers.dense(tf.reshape(outputs, [-1, size]), len(chars))
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            logits=logits, labels=tf.reshape(targets, [-1])
        )
    )
    lr = tf.Variable(0.0, trainable=False)
    tvars = tf.trainable_variables()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), 5.0)
    step = tf.train.AdamOptimizer(lr).apply_gradients(zip(grads, tvars, strict=True))
    half = ids[:72].reshape(batch, 36)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(tf.assign(lr, 0.02))
        for _ in range(12):
            state = sess.run(first)
            for k in range(0, 30, steps):
                feed = {inputs: half[:, k : k + steps],
                        targets: half[:, k + 1 : k + steps + 1]}  # fmt: skip
                for i, (c, h) in enumerate(first):
                    feed[c], feed[h] = state[i].c, state[i].h
                cost, state, _ = sess.run([loss, last, step], feed)
        assert cost < 0.6


def test_sequence_to_sequence():
    rows = RANDOM.integers(1, 5, (32, 4))
    source = tf.placeholder(tf.int32, [None, 4])
    target = tf.placeholder(tf.int32, [None, 4])
    given = tf.concat([tf.zeros_like(target[:, :1]), target[:, :-1]], 1)
    with tf.variable_scope("encoder"):
        _, state = tf.nn.dynamic_rnn(
            tf.nn.rnn_cell.GRUCell(24), tf.one_hot(source, 5), dtype=tf.float32
        )
    with tf.variable_scope("decoder"):
        outputs, _ = tf.nn.dynamic_rnn(
            tf.nn.rnn_cell.GRUCell(24), tf.one_hot(given, 5), initial_state=state
        )
        logits = tf.layers.dense(outputs, 5)
    loss = tf.losses.sparse_softmax_cross_entropy(target, logits)
    step = tf.train.AdamOptimizer(0.02).minimize(loss)
    feeds = {source: rows, target: rows[:, ::-1]}
    with tf.Session() as sess:
        trained(sess, step, feeds, 80)
        assert sess.run(loss, feeds) < 0.7  # a guess has log 4


def test_k_means():
    points, _ = clusters(60, 3, 2)
    x = tf.constant(points)
    centers = tf.Variable(points[:3])
    apart = tf.reduce_sum(
        tf.square(tf.expand_dims(x, 0) - tf.expand_dims(centers, 1)), 2
    )
    nearest = tf.argmin(apart, 0)
    means = tf.unsorted_segment_mean(x, nearest, 3)
    moved = tf.reduce_sum(tf.square(means - centers))
    update = tf.assign(centers, means)
    want = points[:3].astype("d")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(5):
            sess.run([update, moved])
            own = ((points[None] - want[:, None]) ** 2).sum(2).argmin(0)
            want = np.stack([points[own == k].mean(0) for k in range(3)])
        np.testing.assert_allclose(sess.run(centers), want, rtol=1e-4)


def test_nearest_neighbour():
    points, _ = clusters()
    train = tf.placeholder("float", [None, 4])
    test = tf.placeholder("float", [4])
    distance = tf.reduce_sum(
        tf.abs(tf.add(train, tf.negative(test))), reduction_indices=1
    )
    pred = tf.arg_min(distance, 0)
    with tf.Session() as sess:
        for point in points[:5] + 0.1:
            found = sess.run(pred, feed_dict={train: points, test: point})
            assert found == abs(points - point).sum(1).argmin()


def test_deep_q_learning_with_a_target_network():
    def network(state, name):
        with tf.variable_scope(name):
            start = tf.random_normal_initializer(0.0, 0.3)
            h = tf.layers.dense(state, 8, tf.nn.relu, kernel_initializer=start)
            return tf.layers.dense(h, 2)

    s = tf.placeholder(tf.float32, [None, 3])
    a = tf.placeholder(tf.int32, [None])
    q_target = tf.placeholder(tf.float32, [None])
    q_eval, q_next = network(s, "eval_net"), network(s, "target_net")
    t = tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope="target_net")
    e = tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope="eval_net")
    replace = [tf.assign(to, of) for to, of in zip(t, e, strict=True)]
    rows = tf.stack([tf.range(tf.shape(a)[0]), tf.cast(a, tf.int64)], axis=1)
    chosen = tf.gather_nd(params=q_eval, indices=rows)
    loss = tf.reduce_mean(tf.squared_difference(q_target, chosen))
    step = tf.train.RMSPropOptimizer(0.01).minimize(loss, var_list=e)
    states = RANDOM.normal(size=(16, 3))
    acts = RANDOM.integers(0, 2, 16)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(replace)
        before, after = sess.run([q_eval, q_next], {s: states})
        np.testing.assert_array_equal(before, after)
        picked = sess.run(chosen, {s: states, a: acts})
        np.testing.assert_array_equal(picked, before[np.arange(16), acts])
        for _ in range(150):
            sess.run(step, {s: states, a: acts, q_target: states[:, 0]})
        cost = sess.run(loss, {s: states, a: acts, q_target: states[:, 0]})
        assert cost < 0.2
        np.testing.assert_array_equal(sess.run(q_next, {s: states}), after)


def test_policy_gradients():
    obs = tf.placeholder(tf.float32, [None, 2])
    acts = tf.placeholder(tf.int32, [None])
    reward = tf.placeholder(tf.float32, [None])
    logits = tf.layers.dense(obs, 3, name="policy")
    draw = tf.multinomial(logits, 1)
    negative = tf.nn.sparse_softmax_cross_entropy_with_logits(
        logits=logits, labels=acts
    )
    loss = tf.reduce_mean(negative * reward)
    step = tf.train.AdamOptimizer(0.1).minimize(loss)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(60):
            seen = np.eye(2)[RANDOM.integers(0, 2, 32)]
            taken = sess.run(draw, {obs: seen}).ravel()
            gains = (taken == seen[:, 1] * 2).astype("f")  # the first or the last one
            sess.run(step, {obs: seen, acts: taken, reward: gains - gains.mean()})
        best = sess.run(tf.argmax(logits, 1), {obs: np.eye(2)})
        np.testing.assert_array_equal(best, [0, 2])


def test_saving_and_going_on(tmp_path):
    x = tf.placeholder(tf.float32, [None, 4])
    w = tf.get_variable("w", [4, 1], initializer=tf.contrib.layers.xavier_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1))
    global_step = tf.Variable(0, name="global_step", trainable=False)
    step = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=global_step)
    saver = tf.train.Saver()
    rows = RANDOM.normal(size=(8, 4))
    with tf.Session() as sess:
        trained(sess, step, {x: rows}, 5)
        saver.save(sess, str(tmp_path / "model.ckpt"), global_step=global_step)
        sess.run(step, {x: rows})
        want = sess.run([w, global_step])
    with tf.Session() as sess:
        checkpoint = tf.train.get_checkpoint_state(str(tmp_path))
        assert checkpoint.model_checkpoint_path.endswith("-5")
        saver.restore(sess, checkpoint.model_checkpoint_path)
        sess.run(step, {x: rows})  # with the optimizer's slots
        found = sess.run([w, global_step])
    np.testing.assert_array_equal(found[0], want[0])
    assert found[1] == want[1] == 6


def test_looking_at_training_in_tensorboard(tmp_path):
    from weft.training import read_events

    points, labels = clusters()
    x = tf.placeholder(tf.float32, [None, 4], name="InputData")
    y = tf.placeholder(tf.int64, [None], name="LabelData")
    with tf.name_scope("Model"):
        pred = tf.layers.dense(x, 3)
    with tf.name_scope("Loss"):
        cost = tf.losses.sparse_softmax_cross_entropy(labels=y, logits=pred)
    with tf.name_scope("SGD"):
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        grads = list(zip(tf.gradients(cost, tf.trainable_variables()),
                         tf.trainable_variables(), strict=True))  # fmt: skip
        step = optimizer.apply_gradients(grads_and_vars=grads)
    tf.summary.scalar("loss", cost)
    for var in tf.trainable_variables():
        tf.summary.histogram(var.op.name, var)
    for grad, var in grads:
        tf.summary.histogram(var.name + "/gradient", grad)
    merged = tf.summary.merge_all()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        writer = tf.summary.FileWriter(str(tmp_path), graph=tf.get_default_graph())
        costs = []
        for k in range(3):
            _, c, summary = sess.run([step, cost, merged], {x: points, y: labels})
            writer.add_summary(summary, k)
            costs.append(float(c))
        writer.close()
    (path,) = tmp_path.iterdir()
    events = list(read_events(path))
    assert [e["loss"] for e in events if "loss" in e] == pytest.approx(costs)
    assert any("dense/kernel" in e for e in events)


def test_training_from_a_data_set_with_a_monitored_session():
    points, labels = clusters()
    data = tf.data.Dataset.from_tensor_slices((points, labels))
    data = data.map(lambda x, y: (x * 2, tf.one_hot(y, 3)))
    data = data.shuffle(100, seed=0).repeat(10).batch(16).prefetch(1)
    x, y = data.make_one_shot_iterator().get_next()
    logits = tf.layers.dense(x, 3)
    loss = tf.losses.softmax_cross_entropy(y, logits)
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.5, step, 20, 0.9, staircase=True)
    train = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step=step)
    with tf.train.MonitoredTrainingSession(
        hooks=[tf.train.StopAtStepHook(last_step=55)]
    ) as sess:
        while not sess.should_stop():
            _, cost, made = sess.run([train, loss, step])
    assert cost < 0.3
    assert made in (54, 55)


def test_averaged_weights_for_evaluation():
    x = tf.placeholder(tf.float32, [None, 2])

    def inference(x, average=None):
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
            w = tf.get_variable(
                "w", [2, 1],
                regularizer=None if average else tf.contrib.layers.l2_regularizer(0.01),
            )  # fmt: skip
        return tf.matmul(x, average.average(w) if average else w)

    y = inference(x)
    step = tf.Variable(0, trainable=False)
    ema = tf.train.ExponentialMovingAverage(0.9, step)
    averages = ema.apply(tf.trainable_variables())
    loss = tf.reduce_mean(tf.square(y - 1)) + tf.add_n(
        tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    )
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    with tf.control_dependencies([train, averages]):
        op = tf.no_op(name="train")
    smooth = inference(x, ema)
    rows = RANDOM.normal(size=(16, 2))
    with tf.Session() as sess:
        trained(sess, op, {x: rows}, 50)
        w = sess.run("net/w")
        now, averaged = sess.run([y, smooth], {x: rows})
    np.testing.assert_allclose(now, rows @ w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(averaged, now, atol=0.05)
    assert not np.array_equal(averaged, now)


def test_a_queue_of_batches_with_a_coordinator():
    points, labels = clusters()
    point, label = tf.train.slice_input_producer(
        [tf.constant(points), tf.constant(labels)], num_epochs=4, seed=0
    )
    x, y = tf.train.shuffle_batch([point, label], 16, 200, 50, seed=1)
    loss = tf.losses.sparse_softmax_cross_entropy(y, tf.layers.dense(x, 3))
    step = tf.train.AdagradOptimizer(0.5).minimize(loss)
    costs = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        try:
            while not coord.should_stop():
                costs.append(sess.run([step, loss])[1])
        except tf.errors.OutOfRangeError:
            coord.request_stop()
        coord.join(threads)
    assert len(costs) == 4 * 96 // 16
    assert np.mean(costs[-4:]) < 0.5 * costs[0]


def test_neural_style_of_shared_layers():
    """A residual network whose blocks are a loop, with L2 penalties and an image size
    that is known when it runs."""
    x = tf.placeholder(tf.float32, [None, None, None, 1])
    with tf.variable_scope(
        "net", regularizer=tf.contrib.layers.l2_regularizer(1e-3),
        initializer=tf.variance_scaling_initializer(),
    ):  # fmt: skip
        h = tf.layers.conv2d(x, 4, 3, padding="same", name="first")
        for k in range(2):
            with tf.variable_scope(f"block_{k}"):
                r = tf.nn.relu(tf.layers.conv2d(h, 4, 3, padding="same"))
                h = h + tf.layers.conv2d(r, 4, 3, padding="same")
        y = tf.reduce_mean(h, axis=[1, 2])
    assert len(tf.losses.get_regularization_losses()) == 10
    total = tf.reduce_mean(tf.square(y)) + tf.losses.get_regularization_loss()
    step = tf.train.AdamOptimizer(0.01).minimize(total)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        costs = [sess.run([total, step], {x: images(4, n)[0]})[0] for n in (6, 8, 6, 8)]
        for _ in range(10):
            sess.run(step, {x: images(4, 6)[0]})
        assert sess.run(total, {x: images(4, 6)[0]}) < costs[0]


def test_a_linear_model_with_a_hinge_and_feature_columns_by_hand():
    points, labels = clusters(64, 2)
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.placeholder(tf.float32, [None, 1])
    w = tf.get_variable("w", [4, 1], initializer=tf.zeros_initializer)
    b = tf.get_variable("b", [1], initializer=tf.zeros_initializer)
    score = tf.nn.xw_plus_b(x, w, b)
    loss = tf.losses.hinge_loss(y, score) + 0.01 * tf.nn.l2_loss(w)
    step = tf.train.FtrlOptimizer(0.5, l1_regularization_strength=0.01).minimize(loss)
    feeds = {x: points, y: labels[:, None]}
    with tf.Session() as sess:
        trained(sess, step, feeds, 60)
        right = tf.equal(tf.cast(score > 0, tf.float32), y)
        assert sess.run(tf.reduce_mean(tf.to_float(right)), feeds) > 0.95
