"""Digits, in one process or in several: ``weft run -n 2 examples/data_parallel.py``.

Each process takes its share of every batch, and all take the same steps.
"""

import argparse

import weft
import weft.distributed as dist
from weft import nn, optim
from weft.utils.data import DataLoader, DistributedSampler


def main(arguments=None):
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=3)
    options = options.parse_args(arguments)

    several = dist.environment.place() is not None  # a launcher started this
    dist.init_process_group(**({} if several else {"rank": 0, "world_size": 1}))
    weft.manual_seed(0)
    digits, test = weft.datasets.Digits(), weft.datasets.Digits(train=False)
    sampler = DistributedSampler(digits)
    loader = DataLoader(digits, batch_size=64 // dist.get_world_size(), sampler=sampler)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = optim.AdamW(net.parameters(), lr=3e-3)

    @weft.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(options.epochs):
        for x, y in loader:
            step(x, y)
    x, y = test.tensors()
    score = (net(x).argmax(-1) == y).float().mean().item()
    if dist.get_rank() == 0:
        print(f"{score:.1%} of the test digits are right")
    dist.destroy_process_group()
    return score


if __name__ == "__main__":
    main()
