"""Layers, Caffe's form: a net in text, blobs filled in place, and a solver.

    python examples/generations/layers_caffe.py [--steps 600] [--seed 0]

``Exp`` reads its bottom and fills the top that waits for it; going back, it fills its
bottom's gradient if that is asked for. Registered, it takes its place in the text like
any stock layer. The net learns a decay: y = 2 exp(-x) + 1.
"""

from __future__ import annotations

import argparse

import weft
from weft.layers import Blob, Layer, Net, Solver, register, unregister

NET = """
name: "decay"
input: "x"
input: "y"
layer { name: "rate" type: "InnerProduct" bottom: "x" top: "rate"
        inner_product_param { num_output: 1 weight_filler { type: "constant" } } }
layer { name: "exp" type: "Exp" bottom: "rate" top: "exp" }
layer { name: "shift" type: "InnerProduct" bottom: "exp" top: "shift"
        inner_product_param { num_output: 1 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "shift" bottom: "y" top: "loss" }
"""


class Exp(Layer):
    def forward(self, bottom: list[Blob], top: list[Blob]) -> None:
        top[0].data[...] = bottom[0].data.exp()

    def backward(
        self, top: list[Blob], propagate_down: list[bool], bottom: list[Blob]
    ) -> None:
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff * top[0].data


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    register(Exp)
    try:
        net = Net.from_prototxt(NET)
        print(net.to_toml())
    finally:
        unregister("Exp")  # a program of its own would keep it
    x = weft.linspace(-1, 1, 64).unsqueeze(1)
    y = 2 * (-x).exp() + 1
    solver = Solver(
        net, base_lr=0.05, momentum=0.95, lr_policy="step", gamma=0.5, stepsize=400
    )
    for step in range(options.steps):
        loss = float(solver.step(x=x, y=y))
        if step % 100 == 0:
            print(f"step {step:4}  rate {solver.lr:.4f}  loss {loss:.6f}")
    w = net["rate"].params["w"].item()
    print(f"loss {loss:.2e}; the learnt exponent is {w:.3f} x")
    return loss


if __name__ == "__main__":
    main()
