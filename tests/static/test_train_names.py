"""Optimizers, decays, averages, checkpoints, monitored sessions, metrics, effects."""

import math
import os

import numpy as np
import pytest

from weft import static as tf
from weft.errors import ArgumentError, ShapeError

START = np.array([3.0, -4.0, 0.5], "f")


def adadelta(w, g, s):
    s["a"] = 0.9 * s.get("a", 0) + 0.1 * g * g
    d = g * np.sqrt(s.get("u", 0) + 1e-3) / np.sqrt(s["a"] + 1e-3)
    s["u"] = 0.9 * s.get("u", 0) + 0.1 * d * d
    return w - 2 * d


def ftrl(w, g, s):
    before = s.get("n", np.full(3, 0.1))
    s["n"] = before + g * g
    s["z"] = s.get("z", 0) + g - (np.sqrt(s["n"]) - np.sqrt(before)) / 0.5 * w
    rate = np.sqrt(s["n"]) / 0.5 + 2 * 0.2
    pulled = (np.sign(s["z"]) * 3 - s["z"]) / rate
    return np.where(abs(s["z"]) > 3, pulled, 0)


def proximal(w, g, s):
    moved = w - 0.1 * g
    return np.sign(moved) * np.maximum(abs(moved) - 0.05, 0) / 1.03


RULES = {
    "adadelta": (lambda: tf.train.AdadeltaOptimizer(2.0, 0.9, 1e-3), adadelta),
    "ftrl": (
        lambda: tf.train.FtrlOptimizer(
            0.5, l1_regularization_strength=3.0, l2_regularization_strength=0.2
        ),
        ftrl,
    ),
    "proximal": (
        lambda: tf.train.ProximalGradientDescentOptimizer(0.1, 0.5, 0.3), proximal,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_rules(start, name):
    make, rule = RULES[name]
    w = tf.Variable(START)
    step = make().minimize(tf.reduce_sum(w * w) / 2)
    session = start()
    want, state = START.astype("d"), {}
    for _ in range(4):
        session.run(step)
        want = rule(want, want, state)
        np.testing.assert_allclose(session.run(w), want, rtol=2e-5, atol=1e-6)


def decays(t):
    step, n = t, min(t, 10)
    return {
        "exponential_decay": ((10, 0.5, True), 0.5 ** (step // 10)),
        "natural_exp_decay": ((10, 0.5), math.exp(-0.5 * step / 10)),
        "inverse_time_decay": ((10, 0.5), 1 / (1 + 0.5 * step / 10)),
        "polynomial_decay": ((10, 0.1, 2.0), 0.9 * (1 - n / 10) ** 2 + 0.1),
        "cosine_decay": ((10, 0.1), 0.9 * (1 + math.cos(math.pi * n / 10)) / 2 + 0.1),
    }


@pytest.mark.parametrize("at", [0, 5, 10, 25])
@pytest.mark.parametrize("name", decays(0))
def test_decays(session, name, at):
    args, want = decays(at)[name]
    found = session.run(getattr(tf.train, name)(1.0, at, *args))
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_steps_of_constants(session):
    at = tf.placeholder(tf.int64, [])
    rate = tf.train.piecewise_constant(at, [5, 10], [1.0, 0.5, 0.1])
    found = [float(session.run(rate, {at: t})) for t in (0, 5, 6, 10, 11)]
    np.testing.assert_allclose(found, [1, 1, 0.5, 0.5, 0.1])
    with pytest.raises(ArgumentError, match="one value more"):
        tf.train.piecewise_constant(at, [5], [1.0])


def test_a_cycle_of_polynomials_and_restarts(session):
    cycle = session.run(tf.train.polynomial_decay(1.0, 25, 10, 0.0, cycle=True))
    np.testing.assert_allclose(cycle, 1 - 25 / 30, rtol=1e-6)
    # cosines of lengths 10, 20, ...: step 20 is the middle of the second
    again = session.run(tf.train.cosine_decay_restarts(1.0, 20, 10, 2.0, 0.5))
    np.testing.assert_allclose(again, 0.25, rtol=1e-6)


def test_moving_averages_follow_the_step_that_they_come_after(start):
    w = tf.Variable(4.0, name="w")
    step = tf.train.GradientDescentOptimizer(0.25).minimize(w * w)
    ema = tf.train.ExponentialMovingAverage(0.75)
    with tf.control_dependencies([step]):
        update = ema.apply([w])
    session = start()
    value, average = 4.0, 4.0
    for _ in range(3):
        session.run(update)
        value -= 0.25 * 2 * value
        average = 0.75 * average + 0.25 * value
        np.testing.assert_allclose(session.run([w, ema.average(w)]), [value, average])
    assert ema.average(w).name == "w/ExponentialMovingAverage"
    assert not ema.average(w).trainable
    assert ema.variables_to_restore()["w/ExponentialMovingAverage"] is w
    assert tf.moving_average_variables() == [w]


def test_moving_averages_begin_faster_with_a_count(start):
    w = tf.Variable(1.0)
    ema = tf.train.ExponentialMovingAverage(0.99, num_updates=tf.constant(2.0))
    update = ema.apply([w])
    session = start()
    session.run(w.assign(5.0))
    session.run(update)
    want = 1 - (1 - 3 / 12) * (1 - 5)
    np.testing.assert_allclose(session.run(ema.average(w)), want, rtol=1e-6)


def test_the_counter_of_steps(start):
    step = tf.train.get_or_create_global_step()
    assert tf.train.get_or_create_global_step() is tf.train.get_global_step() is step
    w = tf.Variable(1.0)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(w * w, global_step=step)
    session = start()
    session.run(train)
    assert tf.train.global_step(session, step) == 1
    with pytest.raises(ArgumentError, match="already"):
        tf.train.create_global_step()


# -- checkpoints


def test_checkpoints_are_kept_and_found(start, tmp_path):
    w = tf.Variable(0.0, name="w")
    step = tf.train.create_global_step()
    up = tf.group(w.assign_add(1.5), step.assign_add(1))
    session = start()
    saver = tf.train.Saver(max_to_keep=2)
    for _ in range(3):
        session.run(up)
        path = saver.save(session, str(tmp_path / "model.ckpt"), step)
    assert path.endswith("model.ckpt-3")
    kept = sorted(p.name for p in tmp_path.iterdir())
    assert kept == ["checkpoint", "model.ckpt-2", "model.ckpt-3"]
    assert (
        tf.train.latest_checkpoint(str(tmp_path)) == path == saver.last_checkpoints[-1]
    )
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert state.model_checkpoint_path == path
    assert len(state.all_model_checkpoint_paths) == 2
    saver.restore(session, state.all_model_checkpoint_paths[0])
    assert session.run([w, step]) == [3.0, 2]


def test_moved_folders_and_bad_files(start, tmp_path):
    tf.Variable(0.0, name="w")
    session = start()
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    tf.train.Saver().save(session, str(old / "m"))
    os.rename(old, new)
    assert tf.train.latest_checkpoint(str(new)) == str(new / "m")
    (new / "m").unlink()
    assert tf.train.latest_checkpoint(str(new)) is None
    assert tf.train.get_checkpoint_state(str(tmp_path)) is None
    with pytest.raises(tf.errors.NotFoundError):
        tf.train.Saver().restore(session, str(new / "m"))
    (new / "checkpoint").write_text("import os")
    with pytest.raises(ArgumentError, match="has the line"):
        tf.train.latest_checkpoint(str(new))


def test_variables_under_other_names(start, tmp_path):
    w = tf.Variable([1.0, 2.0], name="w")
    session = start()
    path = tf.train.Saver({"other": w}).save(session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as second:
        v = tf.Variable([0.0, 0.0], name="v")
        tf.train.Saver({"other": v}).restore(second, path)
        np.testing.assert_array_equal(second.run(v), [1, 2])
        with pytest.raises(ArgumentError, match="no values"):
            tf.train.Saver([v]).restore(second, path)
        small = tf.Variable(0.0)
        with pytest.raises(ShapeError, match="other"):
            tf.train.Saver({"other": small}).restore(second, path)


# -- sessions that look after themselves


def test_a_monitored_session_stops_saves_and_restores(tmp_path):
    seen = []

    class Watch(tf.train.SessionRunHook):
        def before_run(self, run_context):
            return tf.train.SessionRunArgs({"w": "w"})

        def after_run(self, run_context, run_values):
            seen.append(float(run_values.results["w"]))

    def train(last):
        with tf.Graph().as_default():
            w = tf.Variable(8.0, name="w")
            step = tf.train.get_or_create_global_step()
            op = tf.train.GradientDescentOptimizer(0.25).minimize(w * w, step)
            hooks = [tf.train.StopAtStepHook(last_step=last), Watch()]
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks
            ) as session:
                while not session.should_stop():
                    session.run(op)
                return float(session.run(w))

    assert train(2) == 2.0
    assert train(3) == 1.0  # goes on from the checkpoint
    assert seen[0] == 8.0
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-3")


def test_the_end_of_data_ends_a_monitored_session(graph):
    x = tf.data.Dataset.range(3).make_one_shot_iterator().get_next()
    found = []
    with tf.train.MonitoredTrainingSession() as session:
        while not session.should_stop():
            found.append(int(session.run(x)))
    assert found == [0, 1, 2]
    with pytest.raises(ValueError, match="mine"), tf.train.MonitoredTrainingSession():
        raise ValueError("mine")


# -- metrics


def test_metrics_over_batches(session):
    p, t = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    made = {
        "mean": tf.metrics.mean(p, weights=t + 1),
        "accuracy": tf.metrics.accuracy(t, tf.round(p)),
        "mse": tf.metrics.mean_squared_error(t, p),
        "rmse": tf.metrics.root_mean_squared_error(t, p),
        "mae": tf.metrics.mean_absolute_error(t, p),
        "precision": tf.metrics.precision(t, tf.round(p)),
        "recall": tf.metrics.recall(t, tf.round(p)),
    }
    guesses, truth = np.array([0.2, 0.9, 0.8, 0.1, 0.7]), np.array([0, 1, 0, 1, 1])
    error, said = guesses - truth, guesses > 0.5
    want = {
        "mean": np.average(guesses, weights=truth + 1), "accuracy": 0.6,
        "mse": (error**2).mean(), "rmse": (error**2).mean() ** 0.5,
        "mae": abs(error).mean(), "precision": truth[said].mean(),
        "recall": said[truth == 1].mean(),
    }  # fmt: skip
    session.run(tf.local_variables_initializer())
    assert not any(session.run([value for value, _ in made.values()]))
    for k in (slice(0, 2), slice(2, 5)):
        feeds = {p: guesses[k], t: truth[k]}
        updated = session.run({name: up for name, (_, up) in made.items()}, feeds)
    found = session.run({name: value for name, (value, _) in made.items()})
    for name, value in want.items():
        np.testing.assert_allclose([found[name], updated[name]], value, rtol=1e-5)
    assert tf.global_variables() == []


# -- effects


def test_printing(session, capsys):
    x = tf.placeholder(tf.float32, [4])
    y = tf.Print(x, [x, x[0]], "x: ", first_n=2, summarize=2) * 2
    (slope,) = tf.gradients(tf.reduce_sum(y), x)
    feeds = {x: [1.0, 2.0, 3.0, 4.0]}
    for _ in range(3):
        session.run([y, slope], feeds)
    assert capsys.readouterr().err == "x: [1.0 2.0...][1.0]\n" * 2
    with tf.control_dependencies([tf.print("n is", x[1], sep=" ")]):
        z = tf.identity(x)
    np.testing.assert_array_equal(session.run(z, feeds), feeds[x])
    assert capsys.readouterr().err == "n is 2.0\n"
    session.run(x * 1, feeds)
    assert capsys.readouterr().err == ""


def test_checks_of_values(session):
    x = tf.placeholder(tf.float32, [None])
    checks = {
        tf.Assert(tf.reduce_all(x > 0), [x]): "assertion failed",
        tf.assert_equal(x, tf.ones_like(x)): "x == y",
        tf.assert_less(x, 2.0, message="too large"): "too large",
        tf.assert_positive(x): "x > 0",
        tf.check_numerics(x, "weights"): "weights",
    }
    for check, says in checks.items():
        session.run(check, {x: [1.0]})
        bad = np.nan if says == "weights" else -1.0 if "large" not in says else 3.0
        with pytest.raises(tf.errors.InvalidArgumentError, match=says):
            session.run(check, {x: [bad]})
    with tf.control_dependencies([tf.assert_greater(x, 0.0)]):
        y = x * 2
    assert session.run(y, {x: [1.0]}) == 2
    with pytest.raises(ArgumentError, match="assert_greater"):
        session.run(y, {x: [-1.0]})


def test_defaults_of_placeholders(session):
    keep = tf.placeholder_with_default(1.0, [])
    rows = tf.placeholder_with_default(np.zeros((2, 3), "f"), [None, 3])
    computed = tf.placeholder_with_default(keep * 2, [])
    assert session.run(keep * 3) == 3
    assert session.run(keep * 3, {keep: 0.5}) == 1.5
    assert session.run(computed) == 2
    assert session.run(computed, {computed: 9}) == 9
    assert session.run(rows).shape == (2, 3)
    assert session.run(rows, {rows: np.ones((5, 3))}).shape == (5, 3)


def test_sessions_take_settings(graph):
    config = tf.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    with tf.Session(graph=graph, config=config) as session, tf.device("/gpu:0"):
        assert tf.get_default_session() is session
        assert session.run(tf.constant(1)) == 1
    with pytest.raises(ArgumentError, match="no target"):
        tf.Session("grpc://machine")


def test_flags(monkeypatch):
    flags = tf.app.flags
    monkeypatch.setattr("sys.argv", ["prog", "--steps=7", "--fast", "rest"])
    flags.DEFINE_boolean("slow", True, "whether not")
    flags.DEFINE_integer("steps", 3, "how many")
    flags.DEFINE_boolean("fast", False, "whether")
    flags.DEFINE_float("rate", 0.5, "how much")
    assert (flags.FLAGS.steps, flags.FLAGS.fast, flags.FLAGS.rate) == (7, True, 0.5)
    assert flags.FLAGS(["prog", "--noslow", "rest"]) == ["prog", "rest"]
    assert flags.FLAGS.slow is False
    flags.FLAGS.rate = 0.1
    assert flags.FLAGS.flag_values_dict()["rate"] == 0.1
    with pytest.raises(AttributeError, match="no flag 'other'"):
        _ = flags.FLAGS.other
    with pytest.raises(SystemExit) as ended:
        tf.app.run(lambda argv: len(argv), ["prog", "--steps", "1", "a", "b"])
    assert ended.value.code == 3


def test_resized_images(session):
    image = np.arange(12.0, dtype="f").reshape(1, 3, 4, 1)
    wide = session.run(tf.image.resize_images(image, [3, 8]))[0, 0, :, 0]
    np.testing.assert_allclose(wide, [0, 0.5, 1, 1.5, 2, 2.5, 3, 3])
    ends = session.run(tf.image.resize_bilinear(image, [3, 7], align_corners=True))
    np.testing.assert_allclose(ends[0, 0, :, 0], np.arange(7) / 2)
    near = session.run(tf.image.resize_nearest_neighbor(image, [6, 2]))[0, :, :, 0]
    np.testing.assert_array_equal(near[:, 0], [0, 0, 4, 4, 8, 8])
    flat = session.run(tf.image.per_image_standardization(image[0]))
    np.testing.assert_allclose(flat, (image[0] - 5.5) / image.std(), rtol=1e-5)
    flips = session.run(tf.image.random_flip_left_right(np.repeat(image, 200, 0)))
    assert 60 < (flips[:, 0, 0, 0] == 3).sum() < 140


def test_single_numbers_need_no_shape(start):
    """Flags, chances and rates without a shape leave the shapes of others known."""
    x = tf.placeholder(tf.float32, [None, 3])
    flag, keep = tf.placeholder(tf.bool), tf.placeholder(tf.float32)
    rate = tf.placeholder(tf.float32)
    h = tf.cond(flag, lambda: x * 2, lambda: x)
    h = tf.nn.dropout(tf.layers.dense(h, 4), keep_prob=keep)
    y = tf.layers.dense(tf.layers.batch_normalization(h, training=flag), 2)
    step = tf.train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(y * y))
    session = start()
    feeds = {x: np.ones((5, 3)), flag: True, keep: 0.5, rate: 0.1}
    before = session.run(tf.trainable_variables())
    session.run(step, feeds)
    assert session.run(y, feeds).shape == (5, 2)
    after = session.run(tf.trainable_variables())
    assert not all(map(np.array_equal, before, after))
    with pytest.raises(ArgumentError, match="must be fed"):
        session.run(y, {**feeds, keep: [0.5, 0.5]})
