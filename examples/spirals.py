"""Two spirals: train a small network with nothing but tensors and gradients.

    python examples/spirals.py [--steps 600] [--seed 0]

The network is three matrix products. The program shows the loss falling, the
accuracy on points it has not seen, the map that it learnt, and then looks inside:
the gradient checked against differences, the curvature at the solution, and how
far single inputs can move before the answer changes.
"""

from __future__ import annotations

import argparse
import math

from tqdm import trange

import weft
from weft.func import grad, hessian, vmap


def spirals(count: int, noise: float = 0.08) -> tuple[weft.Tensor, weft.Tensor]:
    """Points on two interleaved spirals, and which one each belongs to."""
    side = weft.randint(0, 2, (count,))
    turn = weft.rand(count).sqrt() * 3 * math.pi
    radius = turn / (3 * math.pi) * 2
    angle = turn + math.pi * side
    x = weft.stack([radius * angle.cos(), radius * angle.sin()], dim=1)  # (N, 2)
    return x + noise * weft.randn(count, 2), side.float()


def make_network(hidden: int = 32) -> dict[str, weft.Tensor]:
    sizes = [2, hidden, hidden, 1]
    network = {}
    for k in range(3):
        scale = 1 / math.sqrt(sizes[k])
        network[f"w{k}"] = weft.randn(sizes[k], sizes[k + 1]) * scale
        network[f"b{k}"] = weft.zeros(sizes[k + 1])
    return network


def forward(p: dict[str, weft.Tensor], x: weft.Tensor) -> weft.Tensor:
    h = (2 * x @ p["w0"] + p["b0"]).tanh()  # (N, H)
    h = (h @ p["w1"] + p["b1"]).tanh()  # (N, H)
    return (h @ p["w2"] + p["b2"]).squeeze(-1)  # (N,)


def loss_of(p: dict[str, weft.Tensor], x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
    """Binary cross-entropy of the logits, without overflow."""
    z = forward(p, x)
    return (weft.clamp(z, min=0) - z * y + (1 + (-z.abs()).exp()).log()).mean()


def accuracy(p: dict[str, weft.Tensor], x: weft.Tensor, y: weft.Tensor) -> float:
    with weft.no_grad():
        return ((forward(p, x) > 0).float() == y).float().mean().item()


def train(
    p: dict[str, weft.Tensor], x: weft.Tensor, y: weft.Tensor, steps: int
) -> float:
    """Adam by hand, on the tape."""
    for value in p.values():
        value.requires_grad_()
    first = {k: weft.zeros_like(v) for k, v in p.items()}
    second = {k: weft.zeros_like(v) for k, v in p.items()}
    bar = trange(1, steps + 1, desc="training", disable=None)
    for step in bar:
        loss = loss_of(p, x, y)
        loss.backward()
        rate = 0.01 * min(1.0, 2 * (1 - step / (steps + 1)))
        with weft.no_grad():
            for k, v in p.items():
                first[k].mul_(0.9).add_(v.grad, alpha=0.1)
                second[k].mul_(0.99).add_(v.grad * v.grad, alpha=0.01)
                m, s = first[k] / (1 - 0.9**step), second[k] / (1 - 0.99**step)
                v -= rate * m / (s.sqrt() + 1e-8)
                v.grad = None
        if step % 50 == 0:
            bar.set_postfix(loss=f"{loss.item():.4f}")
    for value in p.values():
        value.requires_grad_(False)
    return loss.item()


def draw(p: dict[str, weft.Tensor], width: int = 60, height: int = 24) -> str:
    """The plane as text: which spiral the network sees where."""
    ys, xs = weft.meshgrid(
        weft.linspace(2.2, -2.2, height), weft.linspace(-2.2, 2.2, width)
    )
    z = forward(p, weft.stack([xs.flatten(), ys.flatten()], dim=1)).reshape(
        height, width
    )
    shades = " .:*#"
    level = (z.sigmoid() * (len(shades) - 0.01)).long()
    return "\n".join("".join(shades[v] for v in row) for row in level.tolist())


def look_inside(p: dict[str, weft.Tensor], x: weft.Tensor, y: weft.Tensor) -> None:
    exact = {k: v.double() for k, v in p.items()}
    x, y = x[:32].double(), y[:32].double()

    def of_last_layer(w: weft.Tensor) -> weft.Tensor:
        return loss_of({**exact, "w2": w}, x, y)

    w = exact["w2"].clone().requires_grad_()
    print(
        "gradient agrees with differences:", weft.autograd.gradcheck(of_last_layer, w)
    )
    curvature = hessian(of_last_layer)(exact["w2"]).reshape(w.numel(), w.numel())
    values = weft.linalg.eigvalsh(curvature)
    print(f"curvature of the last layer: {values.min():.2e} to {values.max():.2e}")
    slope = vmap(grad(lambda point: forward(exact, point)))(
        x
    )  # (32, 2), one an example
    margin = forward(exact, x).abs() / slope.norm(dim=1)
    print(f"nearest of 32 points to the boundary: about {margin.min():.3f} away")


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    x, y = spirals(600)
    unseen = spirals(600)
    network = make_network()
    loss = train(network, x, y, options.steps)
    score = accuracy(network, *unseen)
    print(f"loss {loss:.4f}, accuracy on unseen points {score:.1%}\n")
    print(draw(network) + "\n")
    look_inside(network, x, y)
    return score


if __name__ == "__main__":
    main()
