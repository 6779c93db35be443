"""One graph for three hundred steps: a line fitted in a session.

    python examples/generations/static_linear.py [--steps 300] [--rate 0.05]

The gradient is a node, the update an ``assign`` node that uses it. The loop only runs
them: the graph and the plan for running it are made once.
"""

from __future__ import annotations

import argparse

import numpy as np

import weft
from weft import static


def main(arguments: list[str] | None = None) -> tuple[float, int]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    data = rng.normal(size=(64, 2))
    target = data @ [[2.0], [-3.0]]

    with static.Graph().as_default() as graph, static.Session(graph) as session:
        static.set_random_seed(options.seed)
        x = static.placeholder(weft.float32, shape=(None, 2), name="x")
        y = static.placeholder(weft.float32, shape=(None, 1), name="y")
        w = static.Variable(static.random_normal((2, 1)), name="w")
        y_pred = static.matmul(x, w)
        loss = static.reduce_mean(static.square(y_pred - y))
        (grad_w,) = static.gradients(loss, w)
        update_w = w.assign(w - options.rate * grad_w)

        session.run(static.global_variables_initializer())
        before = len(graph.get_operations())
        for step in range(options.steps):
            value, _ = session.run([loss, update_w], feed_dict={x: data, y: target})
            if step % 50 == 0:
                print(f"step {step:3}  loss {value:.6f}")
        print("w =", session.run(w).ravel())
        grown = len(graph.get_operations()) - before
    return value.item(), grown


if __name__ == "__main__":
    main()
