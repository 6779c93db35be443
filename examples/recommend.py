"""Ratings from tables of users and items: ``weft run -n 2 --servers 2`` runs it too.

The tables are on parameter servers. Each worker has the rows of its batch, and is at
most four steps ahead of the slowest.
"""

import argparse

import weft
from weft import nn, optim
from weft.distributed import parameter_server

USERS, ITEMS, STRIDE = 200, 100, 10**9  # identities may be any large numbers


class Ratings(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.users = parameter_server.Embedding(USERS * STRIDE, width, std=0.1)
        self.items = parameter_server.Embedding(ITEMS * STRIDE, width, std=0.1, seed=1)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(-1)


def main(arguments=None):
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=400)
    options = options.parse_args(arguments)

    with parameter_server.connect() as store:
        net = Ratings(width=4)
        optimizer = parameter_server.Optimizer(
            store, net, optim.Adagrad, lr=0.1, synchronous=False, staleness=4
        )
        weft.manual_seed(0)
        taste, kind = weft.randn(USERS, 3), weft.randn(ITEMS, 3)

        def ratings(count):
            user, item = (
                weft.randint(0, USERS, (count,)),
                weft.randint(0, ITEMS, (count,)),
            )
            return user * STRIDE, item * STRIDE, (taste[user] * kind[item]).sum(-1)

        weft.manual_seed(1 + store.rank)
        for _ in range(optimizer.steps_done, options.steps):
            user, item, rating = ratings(256)
            optimizer.zero_grad()
            nn.functional.mse_loss(net(user, item), rating).backward()
            optimizer.step()
        user, item, rating = ratings(4096)
        with weft.no_grad():
            error = (
                nn.functional.mse_loss(net(user, item), rating) / rating.var()
            ).item()
        print(f"worker {store.rank}: {1 - error:.0%} of the variance is explained")
    return error


if __name__ == "__main__":
    main()
