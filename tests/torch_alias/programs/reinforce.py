"""REINFORCE on a line: data-dependent loops, Python state, a recurrent net."""

import json
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(2, 8)
        self.head = nn.Linear(8, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x, hidden):
        hidden = self.cell(x, hidden)
        return torch.log_softmax(self.head(hidden), dim=-1), hidden


def episode(policy, rng):
    place, hidden = 0, torch.zeros(1, 8)
    for step in range(12):
        state = torch.tensor([[place / 4.0, step / 12.0]])
        logits, hidden = policy(state, hidden)
        right = rng.random() < logits.exp()[0, 1].item()
        policy.saved_log_probs.append(logits[0, int(right)])
        place += 1 if right else -1
        policy.rewards.append(1.0 if right else 0.0)
        if abs(place) >= 4:
            break
    return sum(policy.rewards)


def finish(policy, optimizer):
    R, returns = 0, deque()
    for r in policy.rewards[::-1]:
        R = r + 0.9 * R
        returns.appendleft(R)
    returns = torch.tensor(list(returns))
    returns = (returns - returns.mean()) / (returns.std() + 1e-3)
    losses = [-lp * R for lp, R in zip(policy.saved_log_probs, returns, strict=True)]
    optimizer.zero_grad()
    loss = torch.stack(losses).sum()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return loss.item()


def main():
    rng = np.random.default_rng(3)
    policy = Policy()
    for p in policy.parameters():
        p.data = torch.tensor(0.3 * rng.standard_normal(tuple(p.shape))).float()
    optimizer = optim.RMSprop(policy.parameters(), lr=2e-2)
    losses, scores = [], []
    for _ in range(10):
        scores.append(episode(policy, rng))
        losses.append(finish(policy, optimizer))
    print(json.dumps({"losses": losses, "score": scores}))


if __name__ == "__main__":
    main()
