"""Recurrent cells and networks agree with loops over NumPy arrays."""

import numpy as np
import pytest

from weft import static as tf
from weft.errors import ArgumentError, ShapeError

RANDOM = np.random.default_rng(2)
UNITS, BATCH, STEPS, WIDTH = 4, 3, 5, 2
INPUTS = RANDOM.normal(size=(BATCH, STEPS, WIDTH)).astype("f")
LENGTHS = np.array([5, 2, 0])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, state, kernel, bias):
    c, h = state
    i, j, f, o = np.split(np.hstack([x, h]) @ kernel + bias, 4, 1)
    c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
    h = sigmoid(o) * np.tanh(c)
    return h, (c, h)


def basic(x, state, kernel, bias):
    h = np.tanh(np.hstack([x, state[0]]) @ kernel + bias)
    return h, (h,)


def gru(x, state, gates, gate_bias, kernel, bias):
    (h,) = state
    r, u = np.split(sigmoid(np.hstack([x, h]) @ gates + gate_bias), 2, 1)
    new = np.tanh(np.hstack([x, r * h]) @ kernel + bias)
    h = u * h + (1 - u) * new
    return h, (h,)


CELLS = {
    "BasicRNNCell": (tf.nn.rnn_cell.BasicRNNCell, basic, 1),
    "BasicLSTMCell": (tf.nn.rnn_cell.BasicLSTMCell, lstm, 2),
    "LSTMCell": (tf.nn.rnn_cell.LSTMCell, lstm, 2),
    "GRUCell": (tf.nn.rnn_cell.GRUCell, gru, 1),
}


def unrolled(step, weights, inputs, lengths, parts):
    """Outputs and the last state, by a loop."""
    state = tuple(np.zeros((BATCH, UNITS)) for _ in range(parts))
    outputs = []
    for t in range(STEPS):
        out, new = step(inputs[:, t], state, *weights)
        goes_on = (t < lengths)[:, None]
        outputs.append(np.where(goes_on, out, 0))
        state = tuple(np.where(goes_on, n, s) for n, s in zip(new, state, strict=True))
    return np.stack(outputs, 1), state


def flat(state):
    return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("kind", ["dynamic", "static", "time_major"])
def test_cells_along_time(start, name, lengths, kind):
    make, step, parts = CELLS[name]
    cell = make(UNITS)
    ends = np.full(BATCH, STEPS) if lengths is None else lengths
    if lengths is not None:
        lengths = tf.placeholder(tf.int32, [None])
    x = tf.placeholder(tf.float32, [None, STEPS if kind == "static" else None, WIDTH])
    if kind == "static":
        found, state = tf.nn.static_rnn(
            cell, tf.unstack(x, axis=1), dtype=tf.float32, sequence_length=lengths
        )
        found = tf.stack(found, 1)
    elif kind == "time_major":
        found, state = tf.nn.dynamic_rnn(
            cell, tf.transpose(x, [1, 0, 2]), lengths, dtype=tf.float32, time_major=True
        )
        found = tf.transpose(found, [1, 0, 2])
    else:
        found, state = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32)
    session = start()
    weights = session.run(cell.variables)
    want, last = unrolled(step, weights, INPUTS, ends, parts)
    feeds = {x: INPUTS} if lengths is None else {x: INPUTS, lengths: ends}
    got, end = session.run([found, list(flat(state))], feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    for a, b in zip(end, last, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_names_of_a_stack_of_cells(start):
    cells = [tf.nn.rnn_cell.BasicLSTMCell(n) for n in (3, 4)]
    x = tf.placeholder(tf.float32, [None, STEPS, WIDTH])
    y, state = tf.nn.dynamic_rnn(
        tf.nn.rnn_cell.MultiRNNCell(cells), x, dtype=tf.float32
    )
    assert [v.name for v in tf.trainable_variables()] == [
        f"rnn/multi_rnn_cell/cell_{k}/basic_lstm_cell/{part}"
        for k in range(2) for part in ("kernel", "bias")
    ]  # fmt: skip
    assert isinstance(state[1], tf.nn.rnn_cell.LSTMStateTuple)
    out, last = start().run([y, state], {x: INPUTS})
    assert out.shape == (BATCH, STEPS, 4)
    np.testing.assert_array_equal(out[:, -1], last[1].h)


def test_both_directions(start):
    cells = [tf.nn.rnn_cell.GRUCell(UNITS) for _ in range(2)]
    x = tf.constant(INPUTS)
    (there, back), (_, first) = tf.nn.bidirectional_dynamic_rnn(
        *cells, x, LENGTHS, dtype=tf.float32
    )
    session = start()
    turned = INPUTS.copy()
    for row, n in zip(turned, LENGTHS, strict=True):
        row[:n] = row[:n][::-1]
    weights = session.run(cells[1].variables)
    want, (last,) = unrolled(gru, weights, turned, LENGTHS, 1)
    for row, n in zip(want, LENGTHS, strict=True):
        row[:n] = row[:n][::-1]
    np.testing.assert_allclose(session.run(back), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(session.run(first), last, rtol=1e-4, atol=1e-5)
    want, _ = unrolled(gru, session.run(cells[0].variables), INPUTS, LENGTHS, 1)
    np.testing.assert_allclose(session.run(there), want, rtol=1e-4, atol=1e-5)
    lead = "bidirectional_rnn/fw/gru_cell/gates/kernel"
    assert cells[0].variables[0].name == lead
    listed, *_ = tf.nn.static_bidirectional_rnn(
        *cells, tf.unstack(x, axis=1), dtype=tf.float32, sequence_length=LENGTHS
    )
    both = session.run(tf.stack(listed, 1))
    np.testing.assert_allclose(
        both, session.run(tf.concat([there, back], 2)), atol=1e-6
    )


def test_peepholes_projections_and_clips(start):
    cell = tf.nn.rnn_cell.LSTMCell(
        UNITS, use_peepholes=True, num_proj=2, cell_clip=0.1, proj_clip=0.05
    )
    x = tf.constant(INPUTS[:, 0])
    c0, h0 = (RANDOM.normal(size=(BATCH, n)).astype("f") for n in (UNITS, 2))
    y, (c, h) = cell(x, tf.nn.rnn_cell.LSTMStateTuple(tf.constant(c0), tf.constant(h0)))
    session = start()
    kernel, bias, wi, wf, wo, project = session.run(cell.variables)
    i, j, f, o = np.split(np.hstack([INPUTS[:, 0], h0]) @ kernel + bias, 4, 1)
    memory = sigmoid(f + 1 + wf * c0) * c0 + sigmoid(i + wi * c0) * np.tanh(j)
    memory = np.clip(memory, -0.1, 0.1)
    out = np.clip(sigmoid(o + wo * memory) * np.tanh(memory) @ project, -0.05, 0.05)
    for node, want in ((c, memory), (h, out), (y, out)):
        np.testing.assert_allclose(session.run(node), want, rtol=1e-4, atol=1e-5)


def test_gradients_through_time_are_those_of_the_unrolled_network(start):
    cell = tf.nn.rnn_cell.BasicLSTMCell(UNITS)
    x = tf.constant(INPUTS)
    y, _ = tf.nn.dynamic_rnn(cell, x, LENGTHS, dtype=tf.float32)
    listed, _ = tf.nn.static_rnn(
        cell, tf.unstack(x, axis=1), dtype=tf.float32, sequence_length=LENGTHS
    )
    sums = [tf.reduce_sum(y**2), tf.add_n([tf.reduce_sum(v**2) for v in listed])]
    pairs = [tf.gradients(total, [*cell.variables, x]) for total in sums]
    for a, b in zip(*start().run(pairs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_dropout_around_a_cell(start):
    keep = tf.placeholder(tf.float32, [])
    cell = tf.nn.rnn_cell.GRUCell(50)
    wrapped = tf.nn.rnn_cell.DropoutWrapper(cell, output_keep_prob=keep)
    y, _ = tf.nn.dynamic_rnn(wrapped, tf.constant(INPUTS), dtype=tf.float32)
    session = start()
    assert (session.run(y, {keep: 1.0}) != 0).all()
    masks = session.run(y, {keep: 0.5}) == 0
    assert abs(masks.mean() - 0.5) < 0.1
    assert len({masks[:, t].tobytes() for t in range(STEPS)}) == STEPS


def test_cells_of_ones_own(start):
    class Own(tf.nn.rnn_cell.RNNCell):
        state_size = output_size = 3

        def call(self, inputs, state):
            with tf.variable_scope("part", reuse=tf.AUTO_REUSE):
                w = tf.get_variable("w", [WIDTH, 3])
            h = tf.tanh(tf.matmul(inputs, w) + state)
            return h, h

    _, last = tf.nn.dynamic_rnn(Own(), tf.constant(INPUTS), dtype=tf.float32)
    (w,) = tf.trainable_variables()
    assert w.name == "rnn/own/part/w"
    session = start()
    h = 0
    for t in range(STEPS):
        h = np.tanh(INPUTS[:, t] @ session.run(w) + h)
    np.testing.assert_allclose(session.run(last), h, rtol=1e-4)


def test_states_of_ones_own(start):
    cell = tf.nn.rnn_cell.BasicRNNCell(UNITS)
    x = tf.placeholder(tf.float32, [None, None, WIDTH])
    first = cell.zero_state(tf.shape(x)[0], tf.float32)
    y, _ = tf.nn.dynamic_rnn(cell, x, initial_state=first + 1)
    ones = tf.ones([tf.shape(x)[0], UNITS])
    want, _ = tf.nn.dynamic_rnn(cell, x, initial_state=ones)
    a, b = start().run([y, want], {x: INPUTS})
    np.testing.assert_array_equal(a, b)


def test_what_a_network_needs(graph):
    cell = tf.nn.rnn_cell.GRUCell(2)
    with pytest.raises(ArgumentError, match="initial_state= or dtype="):
        tf.nn.dynamic_rnn(cell, tf.constant(INPUTS))
    with pytest.raises(ShapeError, match="GRUCell: the last size"):
        tf.nn.dynamic_rnn(
            cell, tf.placeholder(tf.float32, [2, 3, None]), dtype=tf.float32
        )
    with pytest.raises(ArgumentError, match="at least one cell"):
        tf.nn.rnn_cell.MultiRNNCell([])
