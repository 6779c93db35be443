"""Less common names of TensorFlow 1: values by NumPy and by formulas."""

import contextlib
import itertools

import numpy as np
import pytest

import weft
from weft import static as tf
from weft.errors import ArgumentError, ShapeError
from weft.graph.ir import GraphError

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype("f")


# -- tensor arrays


def test_a_loop_reads_and_writes_tensor_arrays(graph, session):
    x = tf.placeholder(tf.float32, [None, 3])
    given = tf.TensorArray(tf.float32, size=tf.shape(x)[0]).unstack(x)
    made = tf.TensorArray(tf.float32, size=tf.shape(x)[0])

    def body(k, total, made):
        total = total * 0.5 + given.read(k)
        return k + 1, total, made.write(k, total)

    start = tf.constant(0), tf.zeros([3]), made
    count, _, made = tf.while_loop(lambda k, *_: k < tf.shape(x)[0], body, start)
    out = made.stack()
    (slope,) = tf.gradients(tf.reduce_sum(out**2), x)
    for rows in (1, 4):
        value = normal(rows, 3)
        found, by, k = session.run([out, slope, count], {x: value})
        want, weights = np.zeros((rows, 3)), np.zeros((rows, rows))
        for i in range(rows):
            weights[i, : i + 1] = 0.5 ** np.arange(i, -1, -1)
        want = weights @ value
        np.testing.assert_allclose(found, want, rtol=1e-5)
        np.testing.assert_allclose(by, 2 * weights.T @ want, rtol=1e-5)
        assert k == rows


def test_variables_of_a_body_that_is_built_twice_are_made_once(graph, session):
    rows = tf.TensorArray(tf.float32, size=2)

    def body(k, rows):
        w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
        return k + 1, rows.write(k, w * tf.cast(k + 1, tf.float32))

    _, rows = tf.while_loop(lambda k, _: k < 2, body, (tf.constant(0), rows))
    assert [v.name for v in tf.global_variables()] == ["w"]
    session.run(tf.global_variables_initializer())
    np.testing.assert_array_equal(session.run(rows.stack()), [[1, 1], [2, 2]])


def test_tensor_arrays_say_what_is_wrong(graph):
    with pytest.raises(ArgumentError, match="without dynamic_size"):
        tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    with pytest.raises(ArgumentError, match="nothing was written"):
        tf.TensorArray(tf.float32, size=2).stack()
    rows = tf.TensorArray(tf.float32, size=2).write(0, [1.0, 2.0])
    with pytest.raises(ShapeError, match=r"expected a value of shape \(2,\)"):
        rows.write(1, [1.0])


def test_loop_variables_may_be_nested(session):
    def body(k, state, total):
        c, h = state
        return k + 1, (c + h, c), total + h

    start = tf.constant(0), (tf.constant(1.0), tf.constant(0.0)), tf.constant(0.0)
    _, (c, _), total = tf.while_loop(lambda k, *_: k < 6, body, start)
    assert [float(v) for v in session.run([c, total])] == [13.0, 12.0]
    with pytest.raises(ArgumentError, match="expected 2 loop variables"):
        tf.while_loop(lambda k, x: k < 2, lambda k, x: [k + 1], [0, 1.0])


# -- sparse tensors and CTC


def test_sparse_products_and_their_gradients(graph, session):
    a, x = tf.sparse_placeholder(tf.float32), tf.placeholder(tf.float32, [None, 2])
    y = tf.sparse_tensor_dense_matmul(a, x)
    turned = tf.sparse_tensor_dense_matmul(a, x, adjoint_a=True)
    (by_x,) = tf.gradients(tf.reduce_sum(y**2), x)
    for n in (3, 5):
        dense = normal(n, n) * (RNG.random((n, n)) < 0.5)
        where = np.argwhere(dense)
        value = tf.SparseTensorValue(where, dense[tuple(where.T)], dense.shape)
        b = normal(n, 2)
        found = session.run([y, turned, by_x], {a: value, x: b})
        want = dense @ b, dense.T @ b, 2 * dense.T @ (dense @ b)
        for one, other in zip(found, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="outside of the shape"):
        session.run(y, {a: ([[0, 9]], [1.0], [2, 2]), x: normal(2, 2)})
    with pytest.raises(ArgumentError, match="fed a SparseTensorValue"):
        session.run(y, {a: 1.0, x: normal(2, 2)})


def likelihood(logits, labels):
    """The sum over all paths of classes that spell the labels; the blank is last."""
    chance = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    steps, classes = logits.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=steps):
        spelt = [c for k, c in enumerate(path) if k == 0 or c != path[k - 1]]
        if [c for c in spelt if c != classes - 1] == list(labels):
            total += np.prod([chance[t, c] for t, c in enumerate(path)])
    return total


def test_ctc_loss_is_the_sum_over_all_paths(graph, session):
    x = tf.placeholder(tf.float32, [None, None, 4])
    labels, lengths = tf.sparse_placeholder(tf.int32), tf.placeholder(tf.int32, [None])
    loss = tf.nn.ctc_loss(labels, x, lengths)
    (slope,) = tf.gradients(loss[0], x)
    logits, rows = normal(5, 3, 4), [[1, 1], [2], [0, 1, 2]]
    where = [[r, c] for r, row in enumerate(rows) for c in range(len(row))]
    fed = tf.SparseTensorValue(where, [1, 1, 2, 0, 1, 2], [3, 3])
    feed = {x: logits, labels: fed, lengths: [5, 3, 4]}
    found, by = session.run([loss, slope], feed)
    want = [
        -np.log(likelihood(logits[:n, k], rows[k])) for k, n in enumerate([5, 3, 4])
    ]
    np.testing.assert_allclose(found, want, rtol=1e-5)
    step = np.zeros_like(logits)
    step[2, 0, 1] = 1e-2
    ends = [-np.log(likelihood((logits + s)[:, 0], rows[0])) for s in (step, -step)]
    assert by[2, 0, 1] == pytest.approx((ends[0] - ends[1]) / 2e-2, rel=1e-3)
    assert not by[:, 1:].any()


def test_labels_without_enough_steps_have_an_infinite_loss(graph, session):
    labels = tf.SparseTensor([[0, 0], [0, 1], [0, 2]], [0, 1, 0], [1, 3])
    logits = np.zeros((2, 1, 3), "f")
    assert session.run(tf.nn.ctc_loss(labels, logits, [2])) == np.inf
    ignored = tf.nn.ctc_loss(
        labels, logits, [2], ignore_longer_outputs_than_inputs=True
    )
    assert session.run(ignored) == 0


# -- gradients of one's own


def test_gradients_are_overridden_where_functions_are_called(graph, session):
    @tf.RegisterGradient("GuidedReluOfATest")
    def _(op, grad):
        return (
            grad
            * tf.cast(op.outputs[0] > 0, tf.float32)
            * tf.cast(grad > 0, tf.float32)
        )

    x, weight = tf.constant([1.0, -1.0, 2.0]), np.array([1.0, 1.0, -1.0], "f")
    with graph.gradient_override_map({"Relu": "GuidedReluOfATest"}):
        guided = tf.nn.relu(x)
    plain = tf.nn.relu(x)
    found = [tf.gradients(y * weight, x)[0] for y in (guided, plain)]
    guided, plain = session.run(found)
    assert (guided.tolist(), plain.tolist()) == ([1, 0, 0], [1, 0, -1])
    with (
        pytest.raises(ArgumentError, match=r"expected one of .*'Relu'.*, got 'Conv2D'"),
        graph.gradient_override_map({"Conv2D": "GuidedReluOfATest"}),
    ):
        pass


# -- texts and summaries


def test_texts_are_fetched_beside_numbers(graph, session):
    hello, x = tf.constant("Hello"), tf.constant(2.0)
    found = session.run({"a": hello, "b": [x, tf.constant(["p", "q"])]})
    assert found["a"] == hello.eval() == b"Hello"
    assert found["b"][0] == 2
    assert found["b"][1].tolist() == [b"p", b"q"]


def test_numbers_made_in_python_and_texts_are_summaries(graph, session, tmp_path):
    tf.summary.text("note", tf.constant("a run"))
    writer = tf.summary.FileWriter(str(tmp_path))
    writer.add_summary(session.run(tf.summary.merge_all()), 1)
    numbers = tf.Summary(value=[tf.Summary.Value(tag="reward", simple_value=1.5)])
    writer.add_summary(numbers, 2)
    writer.close()
    (path,) = tmp_path.iterdir()
    assert all(word in path.read_bytes() for word in (b"a run", b"reward"))


# -- hooks, checkpoints and data sets


def test_hooks_of_training(graph, tmp_path):
    step = tf.train.get_or_create_global_step()
    w = tf.Variable(1.0, name="w")
    loss = tf.log(w)
    train = tf.group(w.assign_sub(0.75), step.assign_add(1))
    tf.summary.scalar("loss", loss)
    final = tf.train.FinalOpsHook(w)
    hooks = [
        tf.train.NanTensorHook(loss, fail_on_nan_loss=False), final,
        tf.train.SummarySaverHook(save_steps=1, output_dir=str(tmp_path)),
        tf.train.StepCounterHook(every_n_steps=1),
    ]  # fmt: skip
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run([train, loss])
    assert final.final_ops_values == -1.25
    assert len(list(tmp_path.iterdir())) == 1
    with (
        pytest.raises(tf.train.NanLossDuringTrainingError),
        tf.train.MonitoredTrainingSession(
            hooks=[tf.train.NanTensorHook(tf.log(w - 2.0))]
        ) as session,
    ):
        session.run(w)


def test_checkpoints_are_read_without_a_graph(graph, session, tmp_path):
    w = tf.get_variable("w", initializer=np.arange(6.0).reshape(2, 3))
    session.run(w.initializer)
    path = tf.train.Saver().save(session, str(tmp_path / "model"), 3)
    assert tf.train.list_variables(path) == [("w", [2, 3])]
    np.testing.assert_array_equal(tf.train.load_variable(path, "w"), session.run(w))
    reader = tf.train.load_checkpoint(str(tmp_path))
    assert [reader.has_tensor(name) for name in ("w:0", "v")] == [True, False]


def test_data_sets_of_data_sets(graph, session):
    data = tf.data.Dataset.range(3)
    flat = data.flat_map(lambda n: tf.data.Dataset.from_tensors(n * 10).repeat(2))
    turns = data.interleave(
        lambda n: tf.data.Dataset.from_tensors(n).repeat(3), 2, block_length=2
    )
    rows = tf.data.Dataset.from_tensor_slices(np.arange(4)).batch(2).unbatch()

    def drawn(data):
        node, found = data.make_one_shot_iterator().get_next(), []
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                found.append(int(session.run(node)))
        return found

    assert drawn(flat) == [0, 0, 10, 10, 20, 20]
    assert drawn(turns) == [0, 0, 1, 1, 0, 1, 2, 2, 2]
    assert drawn(rows) == [0, 1, 2, 3]


# -- arrays


def test_batches_and_blocks_of_space(graph, session):
    x = normal(1, 4, 6, 2)
    moved = tf.space_to_batch_nd(x, [2, 3], [[0, 0], [0, 0]])
    back = tf.batch_to_space_nd(moved, [2, 3], [[0, 0], [0, 0]])
    blocks, again = session.run([moved, back])
    want = [x[:, i::2, j::3] for i in range(2) for j in range(3)]
    np.testing.assert_array_equal(blocks, np.concatenate(want))
    np.testing.assert_array_equal(again, x)


def test_parts_of_a_variable_are_assigned(graph, start):
    w = tf.Variable(np.zeros((3, 2), "f"))
    steps = [
        w[1].assign([3.0, 4.0]), w[:, 0].assign([7.0, 8.0, 9.0]),
        tf.scatter_nd_add(w, [[2], [2]], [[1.0, 1.0], [1.0, 1.0]]),
        tf.scatter_max(w, [0], [[8.0, -1.0]]),
    ]  # fmt: skip
    session = start()
    for step in steps:
        session.run(step)
    assert session.run(w).tolist() == [[8, 0], [8, 4], [11, 2]]


def test_split_of_a_size_that_a_run_decides(graph, session):
    x = tf.placeholder(tf.float32, [None, 2])
    parts = tf.split(x, 2)
    value = normal(6, 2)
    for part, want in zip(
        session.run(parts, {x: value}), np.split(value, 2), strict=True
    ):
        np.testing.assert_array_equal(part, want)
    with pytest.raises(ShapeError):
        session.run(parts, {x: normal(5, 2)})


def test_patches_crops_and_measures_of_images(graph, session):
    x = RNG.uniform(size=(1, 4, 4, 3)).astype("f")
    one, two = [1, 1, 1, 1], [1, 2, 2, 1]
    patches = tf.extract_image_patches(x, two, two, one, "VALID")
    hsv = tf.image.rgb_to_hsv(x)
    found = session.run([
        patches, tf.image.hsv_to_rgb(hsv), tf.image.total_variation(x),
        tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], [0], [4, 4]),
        tf.image.resize_area(x, [2, 2]),
    ])  # fmt: skip
    block = x.reshape(1, 2, 2, 2, 2, 3)  # y, dy, x, dx, channel
    want = block.transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 2, 12)
    steps = abs(np.diff(x, axis=1)).sum() + abs(np.diff(x, axis=2)).sum()
    expected = want, x, [steps], x, block.mean((2, 4))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_metrics_of_classes_and_thresholds(graph, session):
    labels, said = np.array([0, 1, 2, 1, 0, 2]), np.array([0, 1, 1, 1, 0, 2])
    truth, score = np.array([1, 0, 1, 1, 0]), np.array([0.9, 0.4, 0.6, 0.3, 0.2])
    made = [
        tf.metrics.mean_iou(labels, said, 3),
        tf.metrics.mean_per_class_accuracy(labels, said, 3),
        tf.metrics.false_negatives(truth, score > 0.5),
        tf.metrics.auc(truth, score),
    ]
    session.run(tf.local_variables_initializer())
    session.run([update for _, update in made])
    found = session.run([value for value, _ in made])
    pairs = [(a, b) for a in score[truth == 1] for b in score[truth == 0]]
    ranked = np.mean([a > b for a, b in pairs])
    np.testing.assert_allclose(
        found, [(1 + 2 / 3 + 1 / 2) / 3, (1 + 1 + 1 / 2) / 3, 1, ranked], rtol=1e-3
    )


def test_distributions_are_formulas_over_nodes(graph, session):
    loc, scale = normal(3), abs(normal(3)) + 0.5
    d = tf.distributions.Normal(loc, scale)
    e = tf.distributions.Normal(np.zeros(3, "f"), np.ones(3, "f"))
    (slope,) = tf.gradients(d.log_prob(1.0), d.loc)
    found = session.run([
        d.prob(1.0), d.entropy(), tf.distributions.kl_divergence(d, e), slope
    ])  # fmt: skip
    density = np.exp(-((1 - loc) ** 2) / (2 * scale**2)) / (np.sqrt(2 * np.pi) * scale)
    want = (
        density, 0.5 * np.log(2 * np.pi * np.e * scale**2),
        (scale**2 + loc**2 - 1) / 2 - np.log(scale), (1 - loc) / scale**2,
    )  # fmt: skip
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    logits = normal(4)
    c = tf.distributions.Categorical(logits=logits)
    chance = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(session.run(c.prob(2)), chance[2], rtol=1e-5)
    draws = session.run(d.sample(2000))
    np.testing.assert_allclose(draws.mean(0), loc, atol=0.2)
    with pytest.raises(ArgumentError, match="expected loc, scale, got mean"):
        tf.distributions.Normal(mean=0.0)


def test_assertions_about_ranks_and_types_hold_while_building(graph):
    x = tf.placeholder(tf.float32, [None, 2])
    tf.assert_rank(x, 2), tf.assert_rank_at_least(x, 1), tf.assert_type(x, tf.float32)
    for wrong in (
        lambda: tf.assert_rank(x, 1),
        lambda: tf.assert_rank_at_least(x, 3),
        lambda: tf.assert_type(x, tf.int32),
    ):
        with pytest.raises(weft.errors.WeftError, match="expected"):
            wrong()
    with pytest.raises((ValueError, GraphError)):
        x.set_shape([3, 4])
