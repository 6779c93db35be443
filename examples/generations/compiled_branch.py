"""A branch in a woven graph is either both branches or an error, never the wrong one.

    python examples/generations/compiled_branch.py

A Python ``if`` on a value cannot be captured: the graph would hold one branch for ever.
It is refused, with the line. ``weft.cond`` puts both branches into the graph, and
``weft.while_loop`` a loop whose count the data decides.
"""

from __future__ import annotations

import weft


def eager(x: weft.Tensor) -> weft.Tensor:
    v4 = x.exp() * (x.exp() + 1)
    if v4.item() > 0.5:
        return v4 * 2
    return v4


def woven(x: weft.Tensor) -> weft.Tensor:
    v4 = x.exp() * (x.exp() + 1)
    return weft.cond(v4 > 0.5, lambda v: v * 2, lambda v: v + 0, v4)


def halvings(x: weft.Tensor) -> weft.Tensor:
    """How often x can be halved before it is below one."""
    count = weft.tensor(0)
    return weft.while_loop(
        lambda n, v: v >= 1, lambda n, v: (n + 1, v / 2), (count, x)
    )[0]


def main(arguments: list[str] | None = None) -> tuple[float, list[int], bool]:
    try:
        weft.graph.capture(eager, weft.tensor(1.0))
        refused = False
    except weft.graph.CaptureError as error:
        refused = True
        print(str(error).splitlines()[0][:100], "…")
    program = weft.graph.capture(woven, weft.tensor(1.0))
    apart = 0.0
    for at in (1.0, -2.0):
        x = weft.tensor(at)
        apart = max(apart, abs(program(x).item() - eager(x).item()))
        print(f"at {at:4}: {program(x).item():.6f}")
    loop = weft.graph.capture(halvings, weft.tensor(1.0))
    counts = [int(loop(weft.tensor(v))) for v in (0.5, 1.0, 100.0)]
    print("halvings:", counts)
    return apart, counts, refused


if __name__ == "__main__":
    main()
