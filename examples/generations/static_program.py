"""A program as a list: what was written, what was derived, what updates.

    python examples/generations/static_program.py

The user writes Multiply, Add, Loss. The framework completes the list with the
backward operators and the update, each with named inputs and outputs, and runs it in
order. Operators never change what they are given.
"""

from __future__ import annotations

import weft
from weft import static


def main(arguments: list[str] | None = None) -> tuple[float, float, list[str]]:
    with static.Graph("program").as_default() as graph:
        x = static.placeholder(weft.float32, [], name="X")
        label = static.placeholder(weft.float32, [], name="Label")
        w = static.Variable(20.0, name="W")
        b = static.Variable(0.0, name="B")
        product = static.multiply(x, w, name="Multiply")
        y = static.add(product, b, name="Add")
        loss = static.square(y - label, name="Loss")
        step = static.train.GradientDescentOptimizer(1e-3).minimize(loss)
        start = static.global_variables_initializer()
    program = static.Program(step)
    print(program)
    with static.Session(graph) as session:
        session.run(start)
        feed = {x: 10.0, label: 150.0}
        first = session.run(product, feed).item()
        print("Multiply of 10 and 20:", first)
        for _ in range(100):
            session.run(step, feed)
        last = session.run(loss, feed).item()
    print(f"loss after 100 updates: {last:.2e}")
    parts = (program.forward, program.backward, program.update)
    return first, last, [str(len(part)) for part in parts]


if __name__ == "__main__":
    main()
