"""Training steps of TensorFlow 1 programs: ``weft.static`` and TensorFlow in turns.

    PYTHONPATH=src python benchmarks/sessions.py [--rounds N] [names ...]

The same function builds each model for both, with TensorFlow's names alone.

step        seconds of a step: in one process, in turns, the least of all rounds
process     seconds from the start of a process to the end of its first step
first       seconds of that from building to the end of the first step (no imports)
cold        the same with an empty kernel cache, of Weft alone
allocated   the most bytes that Python and NumPy allocate at a time in a step of Weft
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

Model = tuple[Any, dict[Any, np.ndarray]]  # what a step fetches, and its feeds
_RNG = np.random.default_rng(0)


def weft_static() -> Any:
    from weft import static

    return static


def tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    return tf


def _weight(tf: Any, *shape: int) -> Any:
    scale = np.sqrt(2 / np.prod(shape[:-1]))
    return tf.Variable((_RNG.normal(size=shape) * scale).astype(np.float32))


def _bias(tf: Any, size: int) -> Any:
    return tf.Variable(np.zeros(size, np.float32))


def _loss(tf: Any, labels: Any, logits: Any) -> Any:
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(each)


def mlp(tf: Any) -> Model:
    """784-256-128-10, a batch of 64, Adam."""
    x = tf.placeholder(tf.float32, [None, 784])
    y = tf.placeholder(tf.int64, [None])
    h = x
    for a, b in ((784, 256), (256, 128)):
        h = tf.nn.relu(tf.matmul(h, _weight(tf, a, b)) + _bias(tf, b))
    loss = _loss(tf, y, tf.matmul(h, _weight(tf, 128, 10)) + _bias(tf, 10))
    step = tf.train.AdamOptimizer(1e-3).minimize(loss)
    images = _RNG.normal(size=(64, 784)).astype(np.float32)
    return [loss, step], {x: images, y: _RNG.integers(0, 10, 64)}


def cnn(tf: Any) -> Model:
    """Two convolutions of 5x5 with pooling on 28x28, a batch of 32, momentum."""
    x = tf.placeholder(tf.float32, [None, 28, 28, 1])
    y = tf.placeholder(tf.int64, [None])
    h = x
    for a, b in ((1, 16), (16, 32)):
        h = tf.nn.conv2d(h, _weight(tf, 5, 5, a, b), [1, 1, 1, 1], "SAME")
        h = tf.nn.relu(h + _bias(tf, b))
        h = tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    h = tf.reshape(h, [-1, 7 * 7 * 32])
    loss = _loss(tf, y, tf.matmul(h, _weight(tf, 7 * 7 * 32, 10)) + _bias(tf, 10))
    step = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    images = _RNG.normal(size=(32, 28, 28, 1)).astype(np.float32)
    return [loss, step], {x: images, y: _RNG.integers(0, 10, 32)}


def lstm(tf: Any) -> Model:
    """An LSTM of 128 over 20 steps of 64, unrolled, a batch of 32, Adam."""
    x = tf.placeholder(tf.float32, [None, 20, 64])
    y = tf.placeholder(tf.int64, [None])
    w, b = _weight(tf, 64 + 128, 4 * 128), _bias(tf, 4 * 128)
    h = c = tf.matmul(x[:, 0], np.zeros((64, 128), np.float32))
    for t in range(20):
        gates = tf.matmul(tf.concat([x[:, t], h], 1), w) + b
        i, f, o, g = (gates[:, 128 * k : 128 * (k + 1)] for k in range(4))
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
    loss = _loss(tf, y, tf.matmul(h, _weight(tf, 128, 10)) + _bias(tf, 10))
    step = tf.train.AdamOptimizer(1e-3).minimize(loss)
    data = _RNG.normal(size=(32, 20, 64)).astype(np.float32)
    return [loss, step], {x: data, y: _RNG.integers(0, 10, 32)}


def word2vec(tf: Any) -> Model:
    """Skip-grams of 10,000 words of 128 with 16 negative words, a batch of 128, SGD."""
    center = tf.placeholder(tf.int64, [None])
    others = tf.placeholder(tf.int64, [None, 17])  # the right one first
    table, output = _weight(tf, 10_000, 128), _weight(tf, 10_000, 128)
    v = tf.nn.embedding_lookup(table, center)
    u = tf.nn.embedding_lookup(output, others)
    scores = tf.reduce_sum(u * tf.expand_dims(v, 1), 2)
    right = np.eye(1, 17, dtype=np.float32)
    each = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.zeros_like(scores) + right, logits=scores
    )
    loss = tf.reduce_mean(tf.reduce_sum(each, 1))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    words = _RNG.integers(0, 10_000, (128, 17))
    return [loss, step], {center: words[:, 0].copy(), others: words}


MODELS: dict[str, Callable[[Any], Model]] = {
    "mlp": mlp, "cnn": cnn, "lstm": lstm, "word2vec": word2vec
}  # fmt: skip


def started(tf: Any, model: Callable[[Any], Model]) -> Callable[[], Any]:
    """The step of a model in a session of its own, after its initializer."""
    global _RNG
    _RNG = np.random.default_rng(0)
    with tf.Graph().as_default() as graph:
        fetches, feed = model(tf)
        init = tf.global_variables_initializer()
    session = tf.Session(graph=graph)
    session.run(init)
    return lambda: session.run(fetches, feed)[0]


def timed(steps: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The least seconds of each step, in turns."""
    found = [float("inf")] * len(steps)
    for turn in range(rounds + 3):
        for k, step in enumerate(steps):
            start = time.perf_counter()
            step()
            if turn > 2:
                found[k] = min(found[k], time.perf_counter() - start)
    return found


def allocated(step: Callable[[], Any]) -> int:
    """The most bytes that a step has allocated at a time."""
    tracemalloc.start()
    step()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    step()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


def first(which: str, name: str, cache: str = "") -> tuple[float, float]:
    """Seconds of a process that makes one step, and those without its imports."""
    environment = dict(os.environ)
    # both as they are once installed: with bytecode, which the first run writes
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if cache:
        environment["WEFT_CACHE_DIR"] = cache
    code = (
        f"import sessions as s, time; tf = s.{which}(); start = time.perf_counter(); "
        f"s.started(tf, s.{name})(); print(time.perf_counter() - start)"
    )
    paths = [os.path.dirname(__file__), *environment.get("PYTHONPATH", "").split(":")]
    environment["PYTHONPATH"] = ":".join(map(os.path.abspath, filter(None, paths)))
    command = [sys.executable, "-c", code]
    start = time.perf_counter()
    done = subprocess.run(command, check=True, env=environment, capture_output=True)
    return time.perf_counter() - start, float(done.stdout)


def row(name: str, sides: list[Any], rounds: int) -> str:
    """The figures of a model: Weft's, the peer's and their ratio, for each time."""
    steps = [started(tf, MODELS[name]) for tf in sides]
    losses = [float(step()) for step in steps]
    assert np.allclose(losses, losses[0], rtol=1e-4), (name, losses)
    which = ["weft_static", "tensorflow"][: len(sides)]
    firsts = [np.min([first(w, name) for _ in range(3)], 0) for w in which]
    columns = [timed(steps, rounds), *zip(*firsts, strict=True)]
    text = f"{name:9}"
    for digits, column in zip((4, 2, 3), columns, strict=True):
        text += "".join(f" {seconds:8.{digits}f}" for seconds in column)
        text += f" {column[-1] / column[0]:5.2f}x " if len(sides) > 1 else ""
    cold = first("weft_static", name, tempfile.mkdtemp())[1]
    return f"{text} {cold:6.2f} {allocated(steps[0]):8,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    options = parser.parse_args()
    peer = importlib.util.find_spec("tensorflow") is not None
    sides = [weft_static(), *([tensorflow()] if peer else [])]
    print("model: step, process, first (Weft, TensorFlow, ratio); cold, allocated")
    for name in options.names:
        print(row(name, sides, options.rounds), flush=True)


if __name__ == "__main__":
    main()
