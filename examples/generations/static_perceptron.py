"""Placeholders, variables and operations: house prices from thirteen numbers.

    python examples/generations/static_perceptron.py [--steps 400] [--seed 0]

A perceptron is ``X @ W + b``; a layer that can be called, with an activation by name,
makes a network of two. Making the nodes makes the graph, and listing the default graph
shows it in an order in which it can run. ``minimize`` adds gradients and update.
"""

from __future__ import annotations

import argparse

import numpy as np

import weft
from weft import nn, static


def houses(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(count, 13))
    bend = 3 * np.maximum(x[:, 3], 0) - 2 * x[:, 4] * (x[:, 5] > 0)
    price = 22 + x[:, :3] @ [4.0, -3.0, 2.0] + bend
    return x, (price + 0.5 * rng.normal(size=count))[:, None]


def fit(out: static.StaticTensor, X: static.StaticTensor, rng, steps: int) -> float:
    """Train the graph behind ``out``; the mean squared error on new rows."""
    y = static.placeholder(weft.float32, [None, 1], name="y")
    loss = static.reduce_mean(static.square(out - y))
    step = static.train.AdamOptimizer(0.1).minimize(loss)
    with static.Session() as session:
        session.run(static.global_variables_initializer())
        train_x, train_y = houses(rng, 512)
        for _ in range(steps):
            session.run(step, {X: train_x, y: train_y})
        test_x, test_y = houses(rng, 512)
        return session.run(loss, {X: test_x, y: test_y}).item()


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)

    with static.Graph("perceptron").as_default() as graph:
        X = static.placeholder(weft.float32, [None, 13], name="X")
        W = static.Variable(rng.normal(size=(13, 1)).astype("f"), name="W")
        b = static.Variable(np.zeros((1, 1), "f"), name="b")
        out = X @ W + b
        for op in graph.get_operations():
            print(f"  {op.type:8} {op.name}")
        straight = fit(out, X, rng, options.steps)

    with static.Graph("network").as_default():
        X = static.placeholder(weft.float32, [None, 13], name="X")
        hidden = nn.Linear(13, 16, act="relu")  # its parameters become variables
        bent = fit(nn.Linear(16, 1)(hidden(X)), X, rng, options.steps)
        print("  variables:", [v.name for v in static.trainable_variables()])

    print(f"perceptron {straight:.3f}, network {bent:.3f} (mean squared error)")
    return straight, bent


if __name__ == "__main__":
    main()
