"""Data sets, queues and batches of other nodes' values."""

import io
import threading

import numpy as np
import pytest
import tqdm

import weft
from weft import static as tf
from weft.errors import ArgumentError, ShapeError
from weft.static.data import Dataset


def values(session, dataset, most=50):
    """All elements of a data set, as lists."""
    return until_the_end(session, dataset.make_one_shot_iterator().get_next(), most)


def until_the_end(session, node, most=50):
    """The values of a node until the data end."""
    found = []
    try:
        for _ in range(most):
            found.append(session.run(node))
    except tf.errors.OutOfRangeError:
        return found
    raise AssertionError("the data do not end")


def plain(found):
    return [np.asarray(one).tolist() for one in found]


def test_elements_in_order(session):
    assert plain(values(session, Dataset.range(2, 8, 3))) == [2, 5]
    assert plain(values(session, Dataset.from_tensors([1, 2]))) == [[1, 2]]
    rows = Dataset.from_tensor_slices(({"a": [1, 2], "b": [3.0, 4.0]}, [5, 6]))
    first, second = values(session, rows)
    assert first == ({"a": 1, "b": 3.0}, 5)
    assert second == ({"a": 2, "b": 4.0}, 6)
    with pytest.raises(ShapeError, match="different numbers of rows"):
        Dataset.from_tensor_slices(([1, 2], [1, 2, 3]))


CHANGES = {
    "map": (lambda d: d.map(lambda x: x * x + 1), [1, 2, 5, 10, 17]),
    "filter": (lambda d: d.filter(lambda x: tf.equal(x % 2, 0)), [0, 2, 4]),
    "batch": (lambda d: d.batch(2), [[0, 1], [2, 3], [4]]),
    "drop": (lambda d: d.batch(2, drop_remainder=True), [[0, 1], [2, 3]]),
    "repeat": (lambda d: d.take(2).repeat(3), [0, 1, 0, 1, 0, 1]),
    "skip": (lambda d: d.skip(3).prefetch(1), [3, 4]),
    "take all": (lambda d: d.take(-1), [0, 1, 2, 3, 4]),
    "concatenate": (lambda d: d.take(1).concatenate(d.skip(4)), [0, 4]),
    "shard": (lambda d: d.shard(2, 1), [1, 3]),
    "cache": (lambda d: d.take(2).cache().repeat(2), [0, 1, 0, 1]),
    "zip": (
        lambda d: Dataset.zip((d, d.skip(3))).map(lambda a, b: a * 10 + b), [3, 14],
    ),
    "enumerate": (lambda d: d.skip(3).enumerate().map(lambda k, x: k - x), [-3, -3]),
    "empty repeat": (lambda d: d.skip(9).repeat(), []),
    "two batches": (lambda d: d.batch(2).batch(2).take(1), [[[0, 1], [2, 3]]]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_changes(session, name):
    change, expected = CHANGES[name]
    assert plain(values(session, change(Dataset.range(5)))) == expected


def test_shuffling(session):
    data = Dataset.range(20)
    orders = []
    for node in (
        data.shuffle(20, seed=1).repeat(2),
        data.shuffle(20, seed=1, reshuffle_each_iteration=False).repeat(2),
    ):
        found = plain(values(session, node))
        assert sorted(found[:20]) == sorted(found[20:]) == list(range(20))
        orders.append(found[:20] == found[20:])
    assert orders == [False, True]
    near = plain(values(session, data.shuffle(3, seed=2)))
    assert near != list(range(20))
    assert all(x <= place + 2 for place, x in enumerate(near))


def test_filling_up_batches(session):
    def rows():
        for n in (1, 3, 2):
            yield list(range(n)), n

    data = Dataset.from_generator(rows, (tf.int64, tf.int32), ([None], []))
    batches = data.padded_batch(2, ([None], []), (-1, 0))
    assert [plain(b) for b in values(session, batches)] == [
        [[[0, -1, -1], [0, 1, 2]], [1, 3]], [[[0, 1]], [2]],
    ]  # fmt: skip
    with pytest.raises(ShapeError, match="different shapes"):
        values(session, data.batch(2))
    with pytest.raises(ShapeError, match="larger than"):
        values(session, data.padded_batch(2, ([2], [])))


def test_shapes_and_types():
    data = Dataset.from_tensor_slices((np.zeros((6, 3), "f"), np.zeros(6, int)))
    assert data.output_types == (tf.float32, tf.int64)
    assert data.output_shapes == ((3,), ())
    assert data.batch(2).output_shapes == ((None, 3), (None,))
    assert data.batch(2, True).output_shapes == ((2, 3), (2,))


def test_iterators_that_begin_again(session):
    rows = tf.placeholder(tf.float32, [None, 2])
    size = tf.placeholder(tf.int64, [])
    iterator = (
        Dataset.from_tensor_slices(rows).batch(size).make_initializable_iterator()
    )
    following = iterator.get_next()
    with pytest.raises(ArgumentError, match="initializer first"):
        session.run(following)
    for n in (2, 3):
        session.run(iterator.initializer, {rows: np.ones((5, 2)), size: n})
        assert session.run(following).shape == (n, 2)
    with pytest.raises(ArgumentError, match="make_initializable_iterator"):
        Dataset.from_tensor_slices(rows).make_one_shot_iterator()


def test_one_iterator_for_several_data_sets(session):
    train, test = Dataset.range(3), Dataset.range(10, 12)
    iterator = tf.data.Iterator.from_structure(train.output_types, train.output_shapes)
    following = iterator.get_next() * 2
    begin = [iterator.make_initializer(d) for d in (train, test)]
    session.run(begin[1])
    assert session.run(following) == 20
    session.run(begin[0])
    assert [int(session.run(following)) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(tf.errors.OutOfRangeError):
        session.run(following)


def test_every_run_that_needs_an_element_takes_one(graph):
    x = Dataset.range(9).make_one_shot_iterator().get_next()
    y, other = x + 1, tf.constant(5)
    with tf.Session() as one, tf.Session() as two:
        assert one.run([x, y, x * 2]) == [0, 1, 0]
        one.run(other)
        assert one.run(y) == 2
        assert one.run(x, {x: 7}) == 7
        assert one.run(y) == 3
        assert two.run(y) == 1


def test_a_run_that_lacks_a_feed_takes_no_element(session):
    x = Dataset.range(9).make_one_shot_iterator().get_next()
    p = tf.placeholder(tf.int64, [])
    with pytest.raises(ArgumentError, match="must be fed"):
        session.run(x + p)
    assert session.run(x) == 0


def test_training_on_batches_of_a_data_set(session):
    rows = np.random.default_rng(0).normal(size=(64, 2)).astype("f")
    data = Dataset.from_tensor_slices((rows, rows @ np.array([[2.0], [-3.0]], "f")))
    x, y = (
        data.shuffle(64, seed=0)
        .repeat(40)
        .batch(10)
        .make_one_shot_iterator()
        .get_next()
    )
    w = tf.get_variable("w", [2, 1])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    session.run(tf.global_variables_initializer())
    assert len(until_the_end(session, step, 999)) == 256
    np.testing.assert_allclose(session.run(w).ravel(), [2, -3], atol=1e-3)


def test_functions_of_elements_have_no_other_nodes(graph):
    outer = tf.placeholder(tf.int64, [])
    with pytest.raises(Exception, match=r"belongs to|another graph"):
        Dataset.range(3).map(lambda x: x + outer)
    with pytest.raises(ArgumentError, match="one bool"):
        Dataset.range(3).filter(lambda x: x)


# -- queues


def test_first_in_first_out(session):
    queue = tf.FIFOQueue(5, [tf.float32, tf.int64], shapes=[(2,), ()])
    put = queue.enqueue([[1.0, 2.0], 7])
    many = queue.enqueue_many([[[3.0, 4.0], [5.0, 6.0]], [8, 9]])
    size, (x, n) = queue.size(), queue.dequeue()
    session.run(put)
    session.run(many)
    assert session.run(size) == 3
    first = session.run([x, n])
    np.testing.assert_array_equal(first[0], [1, 2])
    assert first[1] == 7
    np.testing.assert_array_equal(session.run(queue.dequeue_many(2))[1], [8, 9])
    with pytest.raises(ArgumentError, match="0 elements, 1 were asked for"):
        session.run(n)
    with pytest.raises(ShapeError, match=r"holds shape \(2,\), got \(3,\)"):
        session.run(queue.enqueue([[1.0, 2.0, 3.0], 7]))


def test_a_full_queue_and_a_closed_one(session):
    queue = tf.FIFOQueue(2, tf.int64, shapes=[()])
    session.run(queue.enqueue_many([[1, 2]]))
    with pytest.raises(ArgumentError, match="full"):
        session.run(queue.enqueue(3))
    session.run(queue.close())
    with pytest.raises(tf.errors.CancelledError):
        session.run(queue.enqueue(3))
    rest = queue.dequeue_up_to(5)
    np.testing.assert_array_equal(session.run(rest), [1, 2])
    with pytest.raises(tf.errors.OutOfRangeError):
        session.run(rest)


def test_random_order(session):
    queue = tf.RandomShuffleQueue(50, 5, tf.int64, shapes=[()], seed=3)
    session.run(queue.enqueue_many([np.arange(30)]))
    node = queue.dequeue_many(25)
    found = session.run(node).tolist()
    assert found != sorted(found)
    assert len(set(found)) == 25
    with pytest.raises(ArgumentError, match="5 elements"):
        session.run(queue.dequeue())
    session.run(queue.close())
    assert len(session.run(queue.dequeue_up_to(25))) == 5


def test_a_thread_fills_a_queue(session):
    queue = tf.FIFOQueue(2, tf.int64, shapes=[()])
    n = tf.placeholder(tf.int64, [])
    put, take, close = queue.enqueue(n), queue.dequeue(), queue.close()

    def fill():
        for k in range(5):
            session.run(put, {n: k})
        session.run(close)

    coordinator = tf.train.Coordinator()
    thread = threading.Thread(target=fill)
    thread.start()
    found = []
    try:
        while not coordinator.should_stop():
            found.append(int(session.run(take)))
    except tf.errors.OutOfRangeError as end:
        coordinator.request_stop(end)
    coordinator.join([thread])
    assert found == list(range(5))


def test_runners_fill_queues(session):
    count = tf.Variable(0, trainable=False)
    queue = tf.FIFOQueue(9, tf.int64, shapes=[()])
    runner = tf.train.QueueRunner(queue, [queue.enqueue(count.assign_add(1))])
    tf.train.add_queue_runner(runner)
    session.run(count.initializer)
    threads = tf.train.start_queue_runners(session)
    np.testing.assert_array_equal(session.run(queue.dequeue_many(3)), [1, 2, 3])
    assert threads == []


def test_batches_of_rows(session):
    rows = np.arange(10.0).reshape(5, 2)
    x, n = tf.train.slice_input_producer(
        [rows, np.arange(5)], num_epochs=1, shuffle=False
    )
    batch = tf.train.batch([x * 2, n], 2, allow_smaller_final_batch=True)
    found = until_the_end(session, batch)
    assert [ids.tolist() for _, ids in found] == [[0, 1], [2, 3], [4]]
    np.testing.assert_array_equal(np.concatenate([x for x, _ in found]), rows * 2)


def test_shuffled_batches(session):
    n = tf.train.range_input_producer(10, num_epochs=2, shuffle=False)
    batch = tf.train.shuffle_batch([n], 5, 20, 5, seed=0)
    found = [session.run(batch).tolist() for _ in range(4)]
    assert sorted(x for row in found for x in row) == sorted([*range(10)] * 2)
    assert found[0] != [0, 1, 2, 3, 4]
    assert max(found[0]) >= 5


def test_errors_of_threads_come_out(session):
    coordinator = tf.train.Coordinator()
    with coordinator.stop_on_exception():
        raise ValueError("broken")
    assert coordinator.should_stop()
    with pytest.raises(ValueError, match="broken"):
        coordinator.join()
    coordinator.clear_stop()
    assert not coordinator.wait_for_stop(0)


def test_a_thread_that_watches_progress_bars_changes_no_queue():
    bar = tqdm.tqdm(total=1, file=io.StringIO())  # which starts the thread
    with tf.Graph().as_default(), tf.Session() as session:
        queue = tf.FIFOQueue(2, [weft.float32], [()])
        with pytest.raises(ArgumentError, match="no other thread"):
            session.run(queue.dequeue())
    bar.close()
