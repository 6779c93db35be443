"""A static graph, and a session that runs the part that is asked for.

    python examples/generations/static_exp.py [--at 1.0]

v2 = exp(v1), v3 = v2 + 1, v4 = v2 * v3. Building computes nothing: printing a node
shows what it is, not a number. A run for v3 leaves v4's product out, and a value fed
for v1 counts for that run alone.
"""

from __future__ import annotations

import argparse

import numpy as np

from weft import static


def main(arguments: list[str] | None = None) -> tuple[float, float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at", type=float, default=1.0)
    options = parser.parse_args(arguments)
    with static.Graph("exp").as_default() as graph:
        v1 = static.Variable([0.0], name="v1")
        v2 = static.exp(v1, name="v2")
        v3 = static.add(v2, 1.0, name="v3")
        v4 = static.multiply(v2, v3, name="v4")
        start = static.global_variables_initializer()
    print(v2)
    print(graph)
    with static.Session(graph) as session:
        session.run(start)
        feed, told = {v1: np.array([options.at])}, static.RunMetadata()
        value4 = session.run(v4, feed_dict=feed, run_metadata=told)
        print("for v4:", value4, dict(told.counts))
        value3 = session.run(v3, feed_dict=feed, run_metadata=told)
        print("for v3:", value3, dict(told.counts))
        kept = session.run(v1)
    return value3.item(), value4.item(), kept.item()


if __name__ == "__main__":
    main()
