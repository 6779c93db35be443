"""A pole on a cart, kept upright by trial and error: REINFORCE.

    python examples/policy_gradient.py [--updates 60] [--carts 16] [--seed 0]

The cart is pushed left or right 50 times a second; an episode ends when the pole
leans by more than 12 degrees, the cart leaves its track, or 200 steps are over. The
policy learns from returns alone: actions that were followed by more steps than the
average at that time become likelier. Many carts run at once, as rows of one tensor.
"""

from __future__ import annotations

import argparse
import math

import weft
from weft import nn, optim

GRAVITY, FORCE, PERIOD = 9.8, 10.0, 0.02
CART, POLE, HALF = 1.0, 0.1, 0.5  # masses in kg, half the pole's length in m


def start(count: int) -> weft.Tensor:
    """States (N, 4): place, speed, angle and its rate, all near zero."""
    return 0.1 * weft.rand(count, 4) - 0.05


def move(state: weft.Tensor, action: weft.Tensor) -> weft.Tensor:
    """The state one period later, by Barto, Sutton and Anderson's equations."""
    _, speed, angle, rate = state.unbind(1)
    push = FORCE * (2 * action - 1).to(state.dtype)
    s, c, total = angle.sin(), angle.cos(), CART + POLE
    pull = (push + POLE * HALF * rate * rate * s) / total
    turn = (GRAVITY * s - c * pull) / (HALF * (4 / 3 - POLE * c * c / total))
    drive = pull - POLE * HALF * turn * c / total
    steps = weft.stack([speed, drive, rate, turn], 1)
    return state + PERIOD * steps


def upright(state: weft.Tensor) -> weft.Tensor:
    return (state[:, 0].abs() < 2.4) & (state[:, 2].abs() < math.radians(12))


@weft.no_grad()
def play(
    policy: nn.Module, count: int, limit: int
) -> tuple[weft.Tensor, weft.Tensor, weft.Tensor]:
    """States (T, N, 4), actions (T, N), and whether each was still in play (T, N)."""
    state, alive = start(count), weft.ones(count, dtype=weft.bool)
    states, actions, lives = [], [], []
    for _ in range(limit):
        action = weft.multinomial(policy(state).softmax(1), 1).squeeze(1)
        states.append(state)
        actions.append(action)
        lives.append(alive.float())
        state = move(state, action)
        alive = alive & upright(state)
        if not alive.any():
            break
    return weft.stack(states), weft.stack(actions), weft.stack(lives)


def advantages(lives: weft.Tensor, discount: float = 0.99) -> weft.Tensor:
    """Discounted returns, less the mean of the carts in play at that time."""
    later, rows = weft.zeros(lives.shape[1]), []
    for alive in reversed(list(lives.unbind(0))):
        later = alive * (1 + discount * later)
        rows.append(later)
    returns = weft.stack(rows[::-1])  # (T, N)
    mean = returns.sum(1, keepdim=True) / lives.sum(1, keepdim=True)
    centred = (returns - mean) * lives
    return centred / (centred.std() + 1e-6)


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--carts", type=int, default=16)
    parser.add_argument("--limit", type=int, default=200, help="steps of an episode")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    lasted = []
    for update in range(options.updates):
        states, actions, lives = play(policy, options.carts, options.limit)
        lasted.append(lives.sum(0).mean().item())
        logs = policy(states).log_softmax(-1)  # (T, N, 2)
        taken = logs.gather(2, actions.unsqueeze(2)).squeeze(2)
        optimizer.zero_grad()
        loss = -(taken * advantages(lives)).sum() / lives.sum()
        loss.backward()
        optimizer.step()
        if update % 5 == 0 or update == options.updates - 1:
            print(f"update {update:3}  the pole stood for {lasted[-1]:.0f} steps")
    some = max(1, options.updates // 10)
    first, last = sum(lasted[:some]) / some, sum(lasted[-some:]) / some
    print(f"mean return {first:.0f} at first, {last:.0f} of {options.limit} at last")
    return first, last


if __name__ == "__main__":
    main()
