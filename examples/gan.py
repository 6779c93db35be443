"""Two networks against each other: a generator learns a ring of eight clusters.

    python examples/gan.py [--steps 1500] [--width 64] [--seed 0]

The discriminator tells points of the ring from points that the generator makes of
noise; the generator learns to be believed. How close it came is measured without
either: by the distance between the moments of the two clouds of points, by the share
of points that lie near a cluster, and by how many clusters are visited.
"""

from __future__ import annotations

import argparse
import math

from tqdm import trange

import weft
from weft import nn, optim
from weft.nn import functional as F

NOISE, CLUSTERS, SPREAD = 8, 8, 0.1


def centres() -> weft.Tensor:
    angle = weft.arange(CLUSTERS) * (2 * math.pi / CLUSTERS)
    return 2 * weft.stack([angle.cos(), angle.sin()], 1)  # (8, 2)


def ring(count: int) -> weft.Tensor:
    """Points (N, 2) around eight centres on a circle."""
    chosen = weft.randint(0, CLUSTERS, (count,))
    return centres()[chosen] + SPREAD * weft.randn(count, 2)


def make_network(inputs: int, width: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, outputs),
    )


def moments(x: weft.Tensor) -> weft.Tensor:
    """Mean, second moments, and the mean and deviation of the radius."""
    radius = x.norm(dim=1)
    products = (x.T @ x / len(x)).flatten()
    return weft.cat([x.mean(0), products, radius.mean()[None], radius.std()[None]])


@weft.no_grad()
def judge(generator: nn.Module, count: int = 2000) -> tuple[float, float, int]:
    """The distance of moments, the share of points near a centre, centres visited."""
    made = generator(weft.randn(count, NOISE))
    apart = (moments(made) - moments(ring(count))).norm().item()
    gaps = (made.unsqueeze(1) - centres()).norm(dim=2)  # (N, 8)
    near = gaps.amin(1) < 4 * SPREAD
    visits = F.one_hot(gaps.argmin(1)[near], CLUSTERS).sum(0)
    return apart, near.float().mean().item(), int((visits > count // 100).sum())


def train(generator: nn.Module, critic: nn.Module, steps: int, batch: int) -> None:
    """Alternate: one step of the discriminator, one of the generator."""
    making = optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    judging = optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    yes, no = weft.ones(batch, 1), weft.zeros(batch, 1)
    bar = trange(steps, desc="training", disable=None)
    for step in bar:
        made = generator(weft.randn(batch, NOISE))
        judging.zero_grad()
        told = F.binary_cross_entropy_with_logits(critic(ring(batch)), 0.9 * yes)
        # Detached: this loss is no business of the generator's.
        fooled = F.binary_cross_entropy_with_logits(critic(made.detach()), no)
        (told + fooled).backward()
        judging.step()
        making.zero_grad()
        loss = F.binary_cross_entropy_with_logits(critic(made), yes)
        loss.backward()
        making.step()
        if step % 100 == 0:
            bar.set_postfix(generator=f"{loss.item():.3f}")


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    generator = make_network(NOISE, options.width, 2)
    critic = make_network(2, options.width, 1)
    before = judge(generator)
    train(generator, critic, options.steps, options.batch)
    after = judge(generator)
    for name, (apart, near, visited) in (("before", before), ("after", after)):
        print(
            f"{name:6}  moments {apart:.3f} apart, {near:.0%} of the points near a "
            f"cluster, {visited} of {CLUSTERS} clusters visited"
        )
    return before[0], after[0]


if __name__ == "__main__":
    main()
